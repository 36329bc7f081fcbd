package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/oracle"
)

// feed produces events and keeps the truth. One goroutine runs it.
type feed struct {
	s       *stage
	gen     *oracle.Generator
	truth   *oracle.Truth
	bad     int64 // records nobody can read, on purpose
	hold    bool  // keep one event from the topic
	failed  atomic.Pointer[error]
	pending sync.WaitGroup
}

// badEvery is how many events lie between two records that cannot be read.
const badEvery = 5000

func newFeed(s *stage, now time.Time, hold bool) *feed {
	// Three calendar days up to now; every event carries its own time, in no order.
	return &feed{s: s, gen: oracle.NewGenerator(uint64(now.UnixNano()), 100000, now.Add(-60*time.Hour), 60*time.Hour), //nolint:gosec // any seed
		truth: oracle.NewTruth(time.UTC), hold: hold}
}

// run produces rate events a second until ctx is done or, if above 0, for the time given. When it returns without an error every event
// of the truth is acknowledged by Kafka.
func (f *feed) run(ctx context.Context, rate int, length time.Duration) error {
	const tick = 20 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	begun := time.Now()
	sent := 0
	for length == 0 || time.Since(begun) < length {
		for want := int(time.Since(begun).Seconds() * float64(rate)); sent < want; sent++ {
			f.one(ctx, sent)
		}
		if err := f.failed.Load(); err != nil {
			return fmt.Errorf("produce: %w", *err)
		}
		if length == 0 { // nobody else looks
			if err := f.s.worker.Alive(); err != nil {
				f.s.showLog(os.Stderr)
				return err
			}
		}
		select {
		case <-ctx.Done():
			f.pending.Wait()
			return ctx.Err()
		case <-ticker.C:
		}
	}
	f.pending.Wait()
	if err := f.failed.Load(); err != nil {
		return fmt.Errorf("produce: %w", *err)
	}
	return nil
}

func (f *feed) one(ctx context.Context, i int) {
	p := int32(i % partitions) //nolint:gosec // small
	if i%badEvery == badEvery-1 {
		f.bad++
		f.produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte(`{"user_id":"nobody","ts":`)})
	}
	e := f.gen.Next()
	f.truth.Add(e)
	if f.hold && i == 1000 {
		return
	}
	f.produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: e.AppendJSON(nil)})
}

func (f *feed) produce(ctx context.Context, r *kgo.Record) {
	f.pending.Add(1)
	f.s.prod.Produce(ctx, r, func(_ *kgo.Record, err error) {
		if err != nil {
			f.failed.CompareAndSwap(nil, &err)
		}
		f.pending.Done()
	})
}
