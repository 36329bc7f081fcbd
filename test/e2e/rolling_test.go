package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

// Rolling restarts of three workers under load: each is stopped with SIGTERM, started anew and ready before the next one's turn. Every
// number is right, and neither a worker nor a partition goes long without being read while there is something to read.
func TestRollingRestarts(t *testing.T) {
	f := fake(t)
	r := newRig(t, f.Addrs(), starrockstest.Config{})
	r.patient()
	rollingRestarts(t, r, fakeEnds(f, r.topic))
}

// The same with brokers as they are, whose groups rebalance in their own time.
func TestRollingRestartsRealKafka(t *testing.T) {
	if os.Getenv("ROLLCALL_LONG") == "" {
		t.Skip("only with ROLLCALL_LONG=1; TestRollingRestarts runs the same on kfake")
	}
	kafka := kafkatest.Start(t, kafkatest.Options{})
	r := newRig(t, kafka.Addrs(), starrockstest.Config{})
	r.patient()
	require.NoError(t, kafka.CreateTopic(t.Context(), r.topic, partitions, nil))
	rollingRestarts(t, r, r.askedEnds())
}

func rollingRestarts(t *testing.T, r *rig, ends func() map[int32]int64) {
	const limit = 5*time.Second + time.Second
	rounds := size(t, 10, 2)
	r.extra["KAFKA_SESSION_TIMEOUT"] = "12s" // the default; the leaver leaves, so it must not matter
	names := []string{"a", "b", "c"}
	ps := map[string]*workerproc.Process{}
	for _, name := range names {
		ps[name] = r.worker(name)
		require.NoError(t, ps[name].Start())
	}
	for _, name := range names {
		r.ready(ps[name])
	}
	s := r.stream(61, 1500)
	time.Sleep(time.Second)
	w := r.watch(ends, ps)
	time.Sleep(time.Second)
	w.forget()
	var stops, starts time.Duration
	for range rounds {
		for _, name := range names {
			begun := time.Now()
			r.stop(ps[name], 0)
			stopped := time.Now()
			require.NoError(t, ps[name].Start())
			r.ready(ps[name])
			stops, starts = max(stops, stopped.Sub(begun)), max(starts, time.Since(stopped))
		}
	}
	time.Sleep(time.Second)
	name, worst := w.worstWorker()
	partition := w.worstOf()
	s.end(30 * time.Second)
	r.exact(30*time.Second, ps["a"], ps["b"], ps["c"])
	t.Logf("%d rolling restarts of 3 workers: stopped within %.2f s, ready within %.2f s; a worker (%s) with something to read read nothing for at most %.2f s, a partition stood still for at most %.2f s; %d events exact",
		rounds, stops.Seconds(), starts.Seconds(), name, worst.Seconds(), partition.Seconds(), r.truth.Events())
	require.LessOrEqual(t, worst, limit)
	require.LessOrEqual(t, partition, limit)
	for _, p := range ps {
		r.stop(p, 0)
	}
	require.Equal(t, r.ends(), r.committed())
}
