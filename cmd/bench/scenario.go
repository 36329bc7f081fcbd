package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"rollcall/pkg/oracle"
)

// run is one measured run of one side.
type run struct {
	events     int
	bytes      int64
	span       span
	cpuSeconds float64 // of the process, start and end included
	rssMiB     float64
	share      share // while the records were read
}

func (r run) rate() float64      { return r.span.rate() }
func (r run) megabytes() float64 { return r.rate() * float64(r.bytes) / float64(r.events) / 1e6 }
func (r run) micros() float64    { return r.cpuSeconds / float64(r.events) * 1e6 }

// span is the part of a run that its rate is taken from: from when every partition may be fetched, so that starting, joining the group and
// restoring are over, to the last record.
type span struct {
	From, To time.Time
	Read     int // records between them
	before   int
}

// begin notes the moment from which on it counts, when n records had been read already; the first one holds.
func (s *span) begin(n int, at time.Time) {
	if s.From.IsZero() {
		s.From, s.before = at, n
	}
}

// seen notes that n records had been read at a moment.
func (s *span) seen(n int, at time.Time) { s.To, s.Read = at, n-s.before }

func (s *span) over(all int) bool { return !s.From.IsZero() && s.before+s.Read >= all }

func (s *span) rate() float64 {
	if d := s.To.Sub(s.From).Seconds(); d > 0 {
		return float64(s.Read) / d
	}
	return 0
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
func pidSelf() int            { return os.Getpid() }

// stage is a filled topic, and what the worker must make of it.
type stage struct {
	flags    flags
	workload workload
	truth    *oracle.Truth
	broker   *child
	addr     string
}

// newStage starts a filled broker in its own process; end it. Meanwhile the truth is counted here.
func newStage(ctx context.Context, f flags, w workload, compression string) (*stage, error) {
	say("filling a topic: %d events, %d partitions, compression %s", w.Events, w.partitions(), compression)
	c, err := spawn(ctx, roleBroker, brokerSpec{Workload: w, Compression: compression, Batch: f.batch})
	if err != nil {
		return nil, err
	}
	truth := w.truth()
	var at brokerReady
	if err := c.hear(&at); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return &stage{flags: f, workload: w, truth: truth, broker: c, addr: at.Addr}, nil
}

// speedResult is what the two sides did with one topic.
type speedResult struct {
	compression string
	raw, worker []run
}

// ratio is the median of the worker's rates, each divided by the rate of the raw consumer that ran just before it: what else the machine does
// changes from minute to minute, and hits both of a pair.
func (s speedResult) ratio() float64 {
	pairs := make([]float64, len(s.worker))
	for i := range pairs {
		pairs[i] = s.worker[i].rate() / s.raw[i].rate()
	}
	return middle(pairs)
}

// speed measures both sides in turn, so that whatever else the machine does hits both.
func speed(ctx context.Context, f flags, compression string) (speedResult, error) {
	out := speedResult{compression: compression}
	w := newWorkload(speedEvents, f.events, f.users, time.Now())
	st, err := newStage(ctx, f, w, compression)
	if err != nil {
		return out, err
	}
	defer st.broker.end()
	for i := range f.runs {
		raw, err := st.raw(ctx, fmt.Sprintf("raw-%d", i))
		if err != nil {
			return out, err
		}
		say("raw    %s", raw)
		wk, err := st.worker(ctx, fmt.Sprintf("worker-%d", i))
		if err != nil {
			return out, err
		}
		say("worker %s", wk)
		out.raw, out.worker = append(out.raw, raw), append(out.worker, wk)
	}
	return out, nil
}

// memoryResult is one run of the memory scenario.
type memoryResult struct {
	kind, compression string
	users             int
	run               run
}

// memory measures the worker's peak of memory while it counts every user of a day for the first time, with its default settings; once with
// the ids as they are and once with hashes of them.
func memory(ctx context.Context, f flags, compression string) ([]memoryResult, error) {
	const eventsPerUser = 2
	w := newWorkload(memoryIDs, eventsPerUser*f.memoryUsers, f.memoryUsers, time.Now())
	st, err := newStage(ctx, f, w, compression)
	if err != nil {
		return nil, err
	}
	defer st.broker.end()
	var out []memoryResult
	for i, kind := range []string{memoryIDs, memoryHashes} {
		st.workload.Kind = kind
		r, err := st.worker(ctx, fmt.Sprintf("memory-%d", i))
		if err != nil {
			return nil, err
		}
		say("%s: %s", kind, r)
		out = append(out, memoryResult{kind: kind, compression: compression, users: f.memoryUsers, run: r})
	}
	return out, nil
}

// say tells who waits what happens.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

func (r run) String() string {
	return fmt.Sprintf("%8.0f events/s  %4.0f MB/s  %.2f µs CPU per event  %4.0f MiB  %5.2f s  %s", r.rate(), r.megabytes(), r.micros(), r.rssMiB, r.span.To.Sub(r.span.From).Seconds(), r.share)
}
