package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

// brokerFault is something that befalls brokers of a real cluster and is over when it returns.
type brokerFault struct {
	name string
	do   func(ctx context.Context, k *kafkatest.Cluster, rnd *rand.Rand, topic string) error
}

func between(rnd *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rnd.Int64N(int64(high-low)))
}

// brokerFaults are the kinds that come in turn at random. Three nodes vote, so two that are away stop everything until they return.
func brokerFaults() []brokerFault {
	return []brokerFault{
		{"killed", func(_ context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			i := rnd.IntN(3)
			if err := k.Kill(i); err != nil {
				return err
			}
			time.Sleep(between(rnd, 500*time.Millisecond, 5*time.Second))
			return k.Restart(i)
		}},
		{"killed and started at once", func(_ context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			return k.Restart(rnd.IntN(3))
		}},
		{"frozen for less than a session", func(_ context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			return frozen(k, between(rnd, 500*time.Millisecond, 2500*time.Millisecond), rnd.IntN(3))
		}},
		{"frozen until others lead", func(_ context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			return frozen(k, between(rnd, 4*time.Second, 9*time.Second), rnd.IntN(3))
		}},
		{"all frozen", func(_ context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			return frozen(k, between(rnd, time.Second, 3*time.Second), 0, 1, 2)
		}},
		{"two killed", func(_ context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			left := rnd.IntN(3)
			for i := range 3 {
				if i != left {
					if err := k.Kill(i); err != nil {
						return err
					}
				}
			}
			time.Sleep(between(rnd, 0, 2*time.Second))
			for i := range 3 {
				if i != left {
					if err := k.Restart(i); err != nil {
						return err
					}
				}
			}
			return nil
		}},
		{"shut down in order and started", func(ctx context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			i := rnd.IntN(3)
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			_ = k.Shutdown(ctx, i) // Restart kills one that has not ended
			return k.Restart(i)
		}},
		{"started at a new address", func(_ context.Context, k *kafkatest.Cluster, rnd *rand.Rand, _ string) error {
			return k.Replace(rnd.IntN(3))
		}},
		{"leaders moved", func(ctx context.Context, k *kafkatest.Cluster, rnd *rand.Rand, topic string) error {
			for range 4 {
				if err := k.MoveLeader(ctx, topic, rnd.Int32N(partitions), rnd.IntN(3)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"preferred leaders elected", func(ctx context.Context, k *kafkatest.Cluster, _ *rand.Rand, _ string) error {
			return k.ElectPreferred(ctx)
		}},
	}
}

func frozen(k *kafkatest.Cluster, d time.Duration, nodes ...int) error {
	for _, i := range nodes {
		if err := k.Stop(i); err != nil {
			return err
		}
	}
	time.Sleep(d)
	for _, i := range nodes {
		if err := k.Continue(i); err != nil {
			return err
		}
	}
	return nil
}

// Random faults of real brokers in a row, under load, with two workers: neither is ever started anew, after each fault they catch up, they
// take no more memory or goroutines in the end than in the beginning, and every number is right.
func TestManyBrokerFaults(t *testing.T) {
	kafka := kafkatest.Start(t, kafkatest.Options{})
	faults := size(t, 100, 8)
	const early = 4
	r := newRig(t, kafka.Addrs(), starrockstest.Config{})
	r.patient()
	require.NoError(t, kafka.CreateTopic(t.Context(), r.topic, partitions, map[string]string{"min.insync.replicas": "2"}))
	ps := map[string]*workerproc.Process{"a": r.worker("a"), "b": r.worker("b")}
	for _, p := range ps {
		require.NoError(t, p.Start())
	}
	r.ready(ps["a"], ps["b"])
	births := map[string]birth{"a": r.birth(ps["a"]), "b": r.birth(ps["b"])}
	s := r.stream(41, 1200)
	w := r.watch(r.askedEnds(), ps)
	rnd := rand.New(rand.NewPCG(5, uint64(faults))) //nolint:gosec // repeatable
	kinds := brokerFaults()
	rnd.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	before := map[string]vitals{}
	var slowest time.Duration
	for i := range faults {
		f := kinds[i%len(kinds)] // each kind once before any comes again, so that a small run has many
		if i >= len(kinds) {
			f = kinds[rnd.IntN(len(kinds))]
		}
		took := r.brokerFault(kafka, rnd, f, ps)
		slowest = max(slowest, took)
		t.Logf("fault %d of %d: %s; caught up %.1f s after the cluster was whole again", i+1, faults, f.name, took.Seconds())
		if i+1 == early {
			before = r.vitals(ps)
		}
		time.Sleep(between(rnd, 0, time.Second))
	}
	_, still := w.worstWorker()
	s.end(time.Minute)
	r.exact(time.Minute, ps["a"], ps["b"])
	after := r.vitals(ps)
	for name, p := range ps {
		r.same(p, births[name])
		r.identity(p)
		t.Logf("%s: %v after %d faults, %v after %d", name, before[name], early, after[name], faults)
		// Go's runtime keeps what it once needed, and a rebalance may have given one worker more partitions than before.
		require.LessOrEqual(t, after[name].resident, before[name].resident*3/2+32*mebibyte, "resident memory of %s", name)
		// One more broker with its connections, and all partitions instead of half of them.
		require.LessOrEqual(t, after[name].goroutines, before[name].goroutines+partitions+15, "goroutines of %s", name)
	}
	t.Logf("%d faults: caught up at most %.1f s after the cluster was whole; a partition stood still for at most %.1f s with records known to be there, a worker for at most %.1f s; %d events exact",
		faults, slowest.Seconds(), w.worstOf().Seconds(), still.Seconds(), r.truth.Events())
	r.stop(ps["a"], 0)
	r.stop(ps["b"], 0)
	require.Equal(t, r.ends(), r.committed())
}

// brokerFault runs a fault and returns how long after the cluster was whole again the workers had read everything that was there by then.
func (r *rig) brokerFault(k *kafkatest.Cluster, rnd *rand.Rand, f brokerFault, ps map[string]*workerproc.Process) time.Duration {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(r.t, f.do(ctx, k, rnd, r.topic), f.name)
	require.NoError(r.t, k.WaitReady(ctx), f.name)
	require.NoError(r.t, k.WaitInSync(ctx), f.name)
	whole := time.Now()
	ends := r.ends()
	var at map[int32]int64
	require.Eventually(r.t, func() bool {
		at = map[int32]int64{}
		for _, p := range ps {
			require.NoError(r.t, p.Alive())
			g, err := statusOf(ctx, p)
			require.NoError(r.t, err)
			for _, q := range g.Partitions {
				at[q.Partition] = max(at[q.Partition], q.Position)
			}
		}
		for p, end := range ends {
			if at[p] < end {
				return false
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond, "after %s the workers do not catch up", f.name)
	return time.Since(whole)
}

// vitals are what a process takes.
type vitals struct {
	resident   float64
	goroutines float64
}

func (v vitals) String() string {
	return fmt.Sprintf("%.0f MiB, %.0f goroutines", v.resident/mebibyte, v.goroutines)
}

// vitals are the medians of some seconds.
func (r *rig) vitals(ps map[string]*workerproc.Process) map[string]vitals {
	r.t.Helper()
	resident, goroutines := map[string][]float64{}, map[string][]float64{}
	for range 9 {
		for name, p := range ps {
			m, err := p.Metrics(r.t.Context())
			require.NoError(r.t, err)
			resident[name] = append(resident[name], m.Sum("process_resident_memory_bytes"))
			goroutines[name] = append(goroutines[name], m.Sum("go_goroutines"))
		}
		time.Sleep(200 * time.Millisecond)
	}
	out := map[string]vitals{}
	for name := range ps {
		slices.Sort(resident[name])
		slices.Sort(goroutines[name])
		out[name] = vitals{resident[name][4], goroutines[name][4]}
	}
	return out
}
