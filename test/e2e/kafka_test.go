package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

// Real Kafka: three brokers, twelve partitions, a million events over three days with two dimensions, two workers. Every row is exact,
// also with a broker killed half way, also with a worker killed five times.
func TestRealKafka(t *testing.T) {
	const events = 1000000
	kafka := kafkatest.Start(t, kafkatest.Options{})
	for i, c := range []struct {
		name  string
		fault func(t *testing.T, r *rig, victim *workerproc.Process)
	}{
		{"healthy", func(*testing.T, *rig, *workerproc.Process) {}},
		{"worker killed five times", func(t *testing.T, _ *rig, victim *workerproc.Process) {
			rnd := rand.New(rand.NewPCG(3, 4))
			for range 5 {
				time.Sleep(time.Duration(500+rnd.IntN(1500)) * time.Millisecond)
				victim.Kill()
				require.NoError(t, victim.Start())
			}
		}},
		{"broker killed half way", func(t *testing.T, _ *rig, _ *workerproc.Process) {
			require.NoError(t, kafka.Kill(1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, kafka.Addrs(), starrockstest.Config{})
			r.topic, r.group = fmt.Sprintf("events-%d", i), fmt.Sprintf("g-%d", i)
			require.NoError(t, kafka.CreateTopic(t.Context(), r.topic, partitions, nil))
			a, b := r.worker("a"), r.worker("b")
			require.NoError(t, a.Start())
			require.NoError(t, b.Start())
			r.ready(a, b)
			begun := time.Now()
			gen := threeDays(9)
			require.NoError(t, r.produce(t.Context(), gen, events/2, 0))
			rest := make(chan error, 1)
			go func() { rest <- r.produce(t.Context(), gen, events/2, 0) }()
			c.fault(t, r, b)
			require.NoError(t, <-rest)
			r.exact(120*time.Second, a, b)
			t.Logf("exact %.1f s after the first event", time.Since(begun).Seconds())
			r.identity(a)
			r.identity(b)
			r.stop(a, 0)
			r.stop(b, 0)
		})
	}
}
