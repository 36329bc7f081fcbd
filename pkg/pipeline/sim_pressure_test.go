package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
)

// many writes events of many distinct users, which is what takes memory.
func (s *sim) many(n int, partitions ...int32) {
	s.t.Helper()
	gen := s.gen
	s.gen = oracle.NewGenerator(s.rnd.Uint64(), 1<<40, time.Now().Add(-20*time.Hour), 20*time.Hour)
	s.produce(n, partitions...)
	s.gen = gen
}

// StarRocks is away for ten minutes while more comes in than the buffer holds: reading pauses, memory stays bounded, the worker says why it
// is not ready, and it resumes by itself.
func TestSimBackPressure(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.settings["BUFFER_MAX_BYTES"], s.settings["FLUSH_MAX_BYTES"] = "256KiB", "128KiB"
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		s.net.set(netRefuse, rocksPorts()...)
		paused := false
		for range 20 {
			s.many(2000)
			time.Sleep(30 * time.Second)
			w.live()
			m := w.identity()
			require.Less(t, m.sum("rollcall_buffer_bytes"), 1024.0*1024)
			paused = paused || m.sum("rollcall_source_paused", "reason", pauseBuffer)+m.sum("rollcall_source_paused", "reason", pauseShare) > 0
		}
		require.True(t, paused)
		m := w.identity()
		require.Less(t, m.sum("rollcall_source_records_total"), 20000.0, "it has stopped reading")
		require.Greater(t, m.sum("rollcall_source_lag_records"), 20000.0)
		require.Greater(t, m.sum("rollcall_freshness_seconds"), 500.0)
		require.Contains(t, join(w.reasons()), "sink: ")
		_, status := w.get("/status")
		require.Contains(t, status, pauseBuffer)
		s.net.set(netOpen, rocksPorts()...)
		s.exact(2 * time.Minute)
		s.ready(30*time.Second, w)
		m = w.identity()
		require.Zero(t, m.sum("rollcall_source_paused", "reason", pauseBuffer))
		require.Zero(t, m.sum("rollcall_source_paused", "reason", pauseShare))
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// One partition may not take the whole buffer: with its dead letters unconfirmed it stops at its share, the others go on.
func TestSimShareOfTheBuffer(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.settings["BUFFER_MAX_BYTES"], s.settings["FLUSH_MAX_BYTES"] = "1MiB", "512KiB"
		s.settings["DEADLETTER_TOPIC"] = simDead
		w := s.worker("w")
		s.ready(time.Minute, w)
		s.kafkaRefusesDeadLetters()
		s.produceBad(record(3, []byte("garbage")))
		for range 20 {
			s.many(2500, 3)
			s.produce(40, 0, 1, 2)
			time.Sleep(5 * time.Second)
		}
		m := w.identity()
		require.InDelta(t, 1, m.sum("rollcall_source_paused", "reason", pauseShare), 0.1)
		require.Zero(t, m.sum("rollcall_source_paused", "reason", pauseBuffer))
		require.InDelta(t, 800, counted(s.view()), 0.1, "the others go on")
		require.Less(t, m.sum("rollcall_buffer_bytes"), 800.0*1024)
		s.healKafka()
		s.exact(2 * time.Minute)
		require.Zero(t, w.identity().sum("rollcall_source_paused", "reason", pauseShare))
		w.stop(0)
	})
}

// /livez is 200 through every outage, readiness says what is wrong, and all is well again soon after.
func TestSimOutages(t *testing.T) {
	for name, tc := range map[string]struct {
		ports []string
		mode  netMode
		says  string
	}{
		"kafka refuses":     {kafkaPorts(), netRefuse, "discovery: "},
		"kafka hangs":       {kafkaPorts(), netHole, "discovery: "},
		"starrocks refuses": {rocksPorts(), netRefuse, "sink: "},
		"starrocks hangs":   {rocksPorts(), netHole, "sink: "},
		"everything":        {append(kafkaPorts(), rocksPorts()...), netRefuse, "discovery: "},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				w := s.worker("w")
				s.produce(100)
				s.exact(time.Minute)
				s.produce(100)
				s.net.set(tc.mode, tc.ports...)
				for range 15 {
					time.Sleep(time.Minute)
					w.live()
					w.identity()
					if !strings.HasPrefix(name, "kafka") && !strings.HasPrefix(name, "every") {
						s.produce(20)
					}
				}
				require.False(t, w.ended())
				require.Contains(t, join(w.reasons()), tc.says)
				s.net.set(netOpen, tc.ports...)
				s.produce(20)
				s.exact(time.Minute)
				s.ready(time.Minute, w)
				w.stop(0)
				require.Equal(t, s.ends(), s.committed())
			})
		})
	}
}

// Loads far smaller than what a source has: bitmaps go ahead, in parts, and the table is exact at the end and after a kill in the middle.
func TestSimTinyLoads(t *testing.T) {
	simulate(t, simOptions{partitions: 2}, func(t *testing.T, s *sim) {
		s.settings["FLUSH_MAX_BYTES"] = "8KiB"
		s.settings["BUFFER_MAX_BYTES"] = "1MiB"
		s.many(4000)
		w := s.worker("w")
		s.exact(5 * time.Minute)
		require.True(t, w.logs.has("bitmaps go ahead"))
		s.many(4000)
		s.eventually(20*time.Second, "loading", func() bool { return w.identity().sum("rollcall_source_records_total") >= 8000 })
		time.Sleep(time.Second)
		w.kill()
		w = s.worker("again")
		s.exact(5 * time.Minute)
		w.stop(0)
		for _, l := range s.rocks.Loads() {
			require.LessOrEqual(t, l.Bytes, int64(64<<10))
		}
	})
}

// Keys beyond AGGREGATE_MAX_KEYS fold, and the same ones fold after a restart.
func TestSimFolding(t *testing.T) {
	simulate(t, simOptions{partitions: 1}, func(t *testing.T, s *sim) {
		s.settings["AGGREGATE_MAX_KEYS"] = "3"
		folded := map[oracle.Key]*[2]map[uint64]bool{} // what the table must say: users by key, after folding
		pv := map[oracle.Key]int64{}
		known := map[string]map[oracle.Key]bool{}
		day := time.Now().Add(-time.Hour)
		write := func(n int) {
			var rs []*kgo.Record
			for range n {
				e := s.event(day)
				k := oracle.Key{Day: e.At.Format(time.DateOnly), Platform: e.Platform, Channel: e.Channel}
				if known[k.Day] == nil {
					known[k.Day] = map[oracle.Key]bool{}
				}
				if !known[k.Day][k] && len(known[k.Day]) >= 3 {
					k.Platform, k.Channel = "__other__", "__other__"
				} else {
					known[k.Day][k] = true
				}
				if folded[k] == nil {
					folded[k] = &[2]map[uint64]bool{{}, {}}
				}
				folded[k][0][e.User] = true
				pv[k]++
				rs = append(rs, record(0, e.AppendJSON(nil)))
			}
			s.write(rs...)
		}
		total := func() (n int64) {
			for _, v := range pv {
				n += v
			}
			return n
		}
		for i := range 3 {
			w := s.worker("w")
			write(200)
			s.eventually(time.Minute, "loaded", func() bool { return counted(s.view()) == total() })
			rows := s.view()
			require.Len(t, rows, 4)
			for _, r := range rows {
				require.Equal(t, pv[r.Key], r.PV, "%v", r.Key)
				require.Len(t, folded[r.Key][0], int(r.UV), "%v", r.Key)
			}
			require.NotZero(t, w.identity().sum("rollcall_aggregate_keys_folded_total"))
			if i == 1 {
				w.kill()
				continue
			}
			w.stop(0)
		}
	})
}

// Totals are never begun without a restore: MySQL is down for a minute after the assignment, and nothing is counted before.
func TestSimRestoreWaits(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(200)
		s.exact(time.Minute)
		b := s.worker("b")
		s.ready(time.Minute, w, b)
		s.produce(200)
		s.exact(time.Minute)
		s.rocks.StopMySQL(1)
		b.kill() // its partitions come to w, which cannot restore them
		s.produce(200)
		for range 6 {
			time.Sleep(10 * time.Second)
			w.live()
			w.identity()
		}
		require.Contains(t, join(w.reasons()), "partition_restoring")
		require.InDelta(t, 500, counted(s.view()), 0.1, "its own partitions go on, the others wait")
		require.NoError(t, s.rocks.StartFE(1))
		s.exact(30 * time.Second)
		s.ready(30*time.Second, w)
		w.stop(0)
	})
}

// Rows that StarRocks refuses block the sink with the reason; it goes on by itself when the table is mended.
func TestSimRefusedRows(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		r := s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Filter(1)}})
		s.produce(100)
		time.Sleep(20 * time.Second)
		require.Contains(t, join(w.reasons()), "sink: refused")
		require.Contains(t, join(w.reasons()), "too many filtered rows")
		w.live()
		require.LessOrEqual(t, r.Hits(), 6)
		s.rocks.Heal()
		s.exact(15 * time.Second)
		s.ready(5*time.Second, w)
		w.stop(0)
	})
}
