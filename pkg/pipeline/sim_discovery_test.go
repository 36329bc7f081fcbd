package pipeline

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Brokers whose names cannot be resolved: a start waits as long as it may and ends with the name, a worker that runs waits and goes on.
func TestSimNamesThatAreUnknown(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		simulate(t, simOptions{}, func(t *testing.T, s *sim) {
			s.net.set(netNoName, kafkaPorts()...)
			begun := time.Now()
			w := s.worker("w", "STARTUP_TIMEOUT=30s")
			require.Equal(t, ExitSource, w.wait(time.Minute), "%v", w.err)
			require.InDelta(t, 30, time.Since(begun).Seconds(), 3)
			require.ErrorContains(t, w.err, "localhost: no such host")
		})
	})
	t.Run("while running", func(t *testing.T) {
		simulate(t, simOptions{}, func(t *testing.T, s *sim) {
			w := s.worker("w")
			s.produce(100)
			s.exact(time.Minute)
			s.ready(time.Minute, w)
			s.prod.Close()
			s.net.set(netNoName, kafkaPorts()...)
			time.Sleep(2 * time.Minute)
			w.live()
			require.False(t, w.ended(), "%v", w.err)
			require.Contains(t, join(w.reasons()), "no such host")
			s.net.set(netOpen, kafkaPorts()...)
			s.prod = s.client()
			s.produce(100)
			s.exact(12 * time.Second)
			s.ready(12*time.Second, w)
			w.stop(0)
		})
	})
}

// Brokers answer discovery after four seconds. The limit of one request and the budget of a round act each for itself.
func TestSimSlowDiscovery(t *testing.T) {
	slow := func(s *sim) (end func()) {
		var over atomic.Bool
		s.kafka.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			if s.kafka.KeepControl(); !over.Load() {
				s.kafka.SleepControl(func() { time.Sleep(4 * time.Second) })
			}
			return nil, nil, false
		})
		return func() {
			over.Store(true)
			time.Sleep(5 * time.Second) // those under way
		}
	}
	t.Run("a request may take one second", func(t *testing.T) {
		simulate(t, simOptions{}, func(t *testing.T, s *sim) {
			defer slow(s)()
			w := s.worker("w", "DISCOVERY_REQUEST_TIMEOUT=1s", "DISCOVERY_TIMEOUT=10s", "STARTUP_TIMEOUT=40s")
			require.Equal(t, ExitSource, w.wait(time.Minute), "%v", w.err)
			require.GreaterOrEqual(t, w.metrics().sum("rollcall_discovery_rounds_total", "result", "failed"), 3.0)
		})
	})
	t.Run("a request may take five", func(t *testing.T) {
		simulate(t, simOptions{}, func(t *testing.T, s *sim) {
			s.produce(100)
			defer slow(s)()
			w := s.worker("w", "DISCOVERY_REQUEST_TIMEOUT=5s", "DISCOVERY_TIMEOUT=10s")
			s.exact(time.Minute)
			s.ready(time.Minute, w)
			require.Zero(t, w.metrics().sum("rollcall_discovery_rounds_total", "result", "failed"))
			w.stop(0)
		})
	})
	t.Run("a round may take three", func(t *testing.T) {
		simulate(t, simOptions{}, func(t *testing.T, s *sim) {
			defer slow(s)()
			w := s.worker("w", "DISCOVERY_REQUEST_TIMEOUT=3s", "DISCOVERY_TIMEOUT=3500ms", "STARTUP_TIMEOUT=40s")
			require.Equal(t, ExitSource, w.wait(time.Minute), "%v", w.err)
		})
	})
}
