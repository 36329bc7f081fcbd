package pipeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

// Freshness and complete-until as docs/metrics.md says: an idle topic is fresh, what is not durable holds it, and it recovers.
func TestSimFreshness(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		fresh := func(w *simWorker) float64 { return w.metrics().sum("rollcall_freshness_seconds") }
		until := func(w *simWorker, partition string) time.Time {
			return time.UnixMilli(int64(w.metrics().sum("rollcall_complete_until_timestamp_seconds", "partition", partition) * 1000))
		}
		w := s.worker("w")
		s.ready(time.Minute, w)
		s.produce(100)
		s.exact(time.Minute)
		for range 10 { // nothing comes: idle is fresh
			time.Sleep(time.Minute)
			require.Less(t, fresh(w), 10.0)
		}
		// Loads fail: partition 2 is complete up to its first record that is not durable, the others to now.
		s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtHeader, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Fail("away")}})
		time.Sleep(10 * time.Second)
		begun := time.Now()
		s.produce(20, 2)
		time.Sleep(5 * time.Minute)
		s.produce(20, 2)
		time.Sleep(time.Minute)
		require.WithinDuration(t, begun, until(w, "2"), 2*time.Second)
		require.InDelta(t, 360, fresh(w), 10)
		require.WithinDuration(t, time.Now(), until(w, "0"), 10*time.Second)
		s.rocks.Heal()
		s.exact(time.Minute)
		time.Sleep(10 * time.Second)
		require.Less(t, fresh(w), 10.0)
		// Kafka is away: nobody knows what is there, so nothing is complete beyond the last look.
		s.net.set(netRefuse, "w")
		time.Sleep(5 * time.Minute)
		require.InDelta(t, 300, fresh(w), 15)
		require.Contains(t, join(w.reasons()), "the group session is lost")
		s.net.set(netOpen, "w")
		s.ready(time.Minute, w)
		time.Sleep(15 * time.Second)
		require.Less(t, fresh(w), 10.0)
		w.stop(0)

		// A partition that cannot be restored is not complete at all, and freshness does not hide it.
		s.produce(20)
		w = s.worker("w2")
		s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "SELECT.*rollcall_next_offset", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.SQLError(1064, "no")}})
		time.Sleep(5 * time.Minute)
		require.Greater(t, fresh(w), 280.0)
		s.rocks.Heal()
		s.exact(time.Minute)
		time.Sleep(10 * time.Second)
		require.Less(t, fresh(w), 10.0)
		w.stop(0)
	})
}
