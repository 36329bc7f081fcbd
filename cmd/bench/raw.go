package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// rawSpec says what the raw consumer reads.
type rawSpec struct {
	Addr, Group string
	Events      int
}

// rawDone is the raw consumer's line.
type rawDone struct {
	Records int
	Bytes   int64
	Span    span
	Touched uint64 // so that nothing is optimised away
	PeakRSS int64
}

// playRaw consumes the topic with the worker's options and garbage collection, and does nothing but look at each record's first byte, last
// byte and offset.
func playRaw(ctx context.Context, arg string) error {
	var spec rawSpec
	if err := json.Unmarshal([]byte(arg), &spec); err != nil {
		return err
	}
	debug.SetGCPercent(400) // as cmd/rollcall
	var assigned atomic.Pointer[time.Time]
	cl, err := kgo.NewClient(append(rawOptions(spec), kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
		if now := time.Now(); len(ps) > 0 {
			assigned.CompareAndSwap(nil, &now)
		}
	}))...)
	if err != nil {
		return fmt.Errorf("raw consumer: %w", err)
	}
	defer cl.CloseAllowingRebalance()
	var out rawDone
	for out.Records < spec.Events {
		fetches := cl.PollRecords(ctx, 10000)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("raw consumer: %d of %d records: %w", out.Records, spec.Events, err)
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("raw consumer: %w", e.Err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				out.Touched += uint64(r.Value[0]) + uint64(r.Value[len(r.Value)-1]) + uint64(r.Offset) //nolint:gosec // never negative
				out.Bytes += int64(len(r.Value))
			}
			out.Records += len(p.Records)
		})
		cl.AllowRebalance()
	}
	out.Span.begin(0, *assigned.Load())
	out.Span.seen(out.Records, time.Now())
	if out.PeakRSS, err = peakRSS(pidSelf()); err != nil {
		out.PeakRSS = 0
	}
	return tell(out)
}

// rawOptions are those of pkg/source that matter for speed; whoever changes them there changes them here. The limits that only matter when
// brokers fail are left out.
func rawOptions(spec rawSpec) []kgo.Opt {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Fetch), 15)
	return []kgo.Opt{
		kgo.SeedBrokers(spec.Addr),
		kgo.ClientID("bench-raw"),
		kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.DisableClientMetrics(),
		kgo.MaxVersions(versions),
		kgo.FetchMaxWait(time.Second),
		kgo.FetchMaxBytes(4 << 20),
		kgo.FetchMaxPartitionBytes(512 << 10),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumerGroup(spec.Group),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(12 * time.Second),
		kgo.HeartbeatInterval(3 * time.Second),
		kgo.RebalanceTimeout(30 * time.Second),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	}
}

// raw runs the raw consumer once.
func (st *stage) raw(ctx context.Context, group string) (run, error) {
	c, err := spawn(ctx, roleRaw, rawSpec{Addr: st.addr, Group: group, Events: st.workload.Events})
	if err != nil {
		return run{}, err
	}
	stop := shares(ctx, c.cmd.Process.Pid, st.broker.cmd.Process.Pid)
	var out rawDone
	err = c.hear(&out)
	shareOf := stop()
	if err != nil {
		return run{}, fmt.Errorf("raw consumer: %w", err)
	}
	c.end()
	return run{
		events: out.Records, bytes: out.Bytes, span: out.Span, rssMiB: mib(out.PeakRSS),
		cpuSeconds: cpu(c.cmd.ProcessState).Seconds(), share: shareOf(out.Span.From, out.Span.To),
	}, nil
}
