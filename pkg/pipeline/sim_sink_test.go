package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

// Somebody changes the table by hand under a running worker: the change is named, at the latest by the look each minute, nothing is dropped,
// and all goes on by itself once the change is undone.
func TestSimDrift(t *testing.T) {
	for name, tc := range map[string]struct {
		change, undo, says string
	}{
		"column dropped":  {"ALTER TABLE dau.daily DROP COLUMN most", "ALTER TABLE dau.daily ADD COLUMN most BIGINT MAX NULL", "column most: missing_column"},
		"type narrowed":   {"ALTER TABLE dau.daily MODIFY COLUMN pv INT MAX NOT NULL", "ALTER TABLE dau.daily MODIFY COLUMN pv BIGINT MAX NOT NULL", "column pv: type: want bigint, found int"},
		"NOT NULL added":  {"ALTER TABLE dau.daily MODIFY COLUMN least BIGINT MIN NOT NULL", "ALTER TABLE dau.daily MODIFY COLUMN least BIGINT MIN NULL", "column least: nullability: want NULL, found NOT NULL"},
		"column appeared": {"ALTER TABLE dau.daily MODIFY COLUMN extra BIGINT MAX NOT NULL", "ALTER TABLE dau.daily DROP COLUMN extra", "column extra: extra_column"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				w := s.worker("w")
				s.produce(1000)
				s.exact(time.Minute)
				if name == "column appeared" { // NOT NULL without a default takes two steps
					require.NoError(t, s.rocks.Exec("ALTER TABLE dau.daily ADD COLUMN extra BIGINT MAX NULL"))
				}
				require.NoError(t, s.rocks.Exec(tc.change))
				begun := time.Now()
				s.produce(1000)
				s.eventually(70*time.Second, "the change is named", func() bool { return strings.Contains(join(w.reasons()), tc.says) })
				t.Logf("named after %v", time.Since(begun).Round(time.Second))
				w.live()
				require.True(t, w.logs.has("StarRocks table check failed", tc.says))
				require.NotZero(t, w.metrics().sum("rollcall_table_operations_total", "op", "verify", "result", "failed"))
				loads := len(s.rocks.Loads())
				s.produce(1000)
				time.Sleep(3 * time.Minute)
				require.Contains(t, join(w.reasons()), "sink: table: ")
				require.LessOrEqual(t, len(s.rocks.Loads()), loads+1, "nothing is loaded into a table that is not ours, and nothing tried without end")
				require.InDelta(t, 3000, w.identity().sum("rollcall_source_records_total"), 0.1, "and nothing else waits")
				require.NoError(t, s.rocks.Exec(tc.undo))
				s.produce(1000) // every key, so that also a dropped column has its totals again: they are absolute
				s.exact(40 * time.Second)
				s.ready(10*time.Second, w)
				w.stop(0)
				require.Equal(t, s.ends(), s.committed())
			})
		})
	}
}

// While a look at the table hangs, loads, reading and probes go on.
func TestSimTableCheckHangs(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		r := s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^DESC", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Hang()}})
		for range 10 {
			s.produce(100)
			s.exact(6 * time.Second)
			w.live()
			require.Less(t, w.identity().sum("rollcall_freshness_seconds"), 6.0)
			time.Sleep(15 * time.Second)
		}
		require.NotZero(t, r.Hits())
		require.Contains(t, join(w.reasons()), "table: ")
		s.rocks.Heal()
		s.ready(20*time.Second, w)
		w.stop(0)
	})
}

// One of three front ends is dead or a black hole: the next one is used. All of them: reading goes on while merging fits, and everything
// is well soon after they are back.
func TestSimFrontEnds(t *testing.T) {
	for name, mode := range map[string]netMode{"refuse": netRefuse, "silent": netHole} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{rocks: starrockstest.Config{FEs: 3}}, func(t *testing.T, s *sim) {
				w := s.worker("w")
				s.produce(100)
				s.exact(time.Minute)
				for fe := range 3 {
					ports := []string{[]string{"8030", "8031", "8032"}[fe], []string{"9030", "9031", "9032"}[fe]}
					s.net.set(mode, ports...)
					s.produce(100)
					s.exact(9 * time.Second) // a flush interval and the switch
					s.net.set(netOpen, ports...)
				}
				all := []string{"8030", "8031", "8032", "9030", "9031", "9032"}
				s.net.set(mode, all...)
				for range 6 {
					s.produce(100)
					time.Sleep(10 * time.Second)
				}
				require.Contains(t, join(w.reasons()), "sink: ")
				m := w.identity()
				require.InDelta(t, 1000, m.sum("rollcall_source_records_total"), 0.1, "reading went on")
				s.net.set(netOpen, all...)
				s.exact(20 * time.Second)
				s.ready(20*time.Second, w)
				w.stop(0)
			})
		})
	}
}

// The server takes far less than FLUSH_MAX_BYTES: the limit is learnt and loads are split.
func TestSimServerLimit(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		const limit = 24 << 10
		s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtHeader, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.LimitBody(limit)}})
		s.many(4000)
		w := s.worker("w")
		s.exact(time.Minute)
		for _, l := range s.rocks.Loads() {
			require.False(t, l.Committed && l.Bytes > limit)
		}
		loads := len(s.rocks.Loads())
		s.many(4000)
		s.exact(30 * time.Second)
		refused := 0
		for _, l := range s.rocks.Loads()[loads:] {
			if !l.Committed {
				refused++
			}
		}
		require.LessOrEqual(t, refused, 2, "the limit has been learnt")
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// SIGTERM right after a load has begun, with nothing counted since: the stop waits for it, and for its offsets.
func TestSimStopWaitsForTheLoadInFlight(t *testing.T) {
	for name, at := range map[string]starrockstest.Point{"before the commit": starrockstest.AtCommit, "after the commit": starrockstest.AtCommitted} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				s.settings["LOAD_TIMEOUT"], s.settings["SHUTDOWN_TIMEOUT"] = "30s", "40s"
				w := s.worker("w")
				s.ready(time.Minute, w)
				r := s.rocks.Inject(starrockstest.Fault{At: at, Do: []starrockstest.Action{starrockstest.Sleep(20 * time.Second)}})
				s.produce(100)
				s.eventually(10*time.Second, "a load", func() bool { return r.Hits() == 1 })
				time.Sleep(time.Second)
				begun := time.Now()
				w.stop(0)
				require.InDelta(t, 19, time.Since(begun).Seconds(), 2)
				require.Empty(t, s.truth.Diff(s.view()))
				require.Equal(t, s.ends(), s.committed())
				require.True(t, w.logs.has("stopped: everything that was read is durable"))
			})
		})
	}
}

// The budget of retries is longer than the grace: no attempt is begun that cannot end in time, and the worker is gone before the kubelet's
// SIGKILL, with the labels in its last words.
func TestSimStopWithinTheGrace(t *testing.T) {
	for name, do := range map[string][]starrockstest.Action{
		"fails":         {starrockstest.Fail("no luck")},
		"fails slowly":  {starrockstest.Sleep(9 * time.Second), starrockstest.Fail("no luck")},
		"never answers": {starrockstest.Hang()},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				s.settings["LOAD_TIMEOUT"], s.settings["SHUTDOWN_TIMEOUT"] = "20s", "25s"
				w := s.worker("w")
				s.ready(time.Minute, w)
				s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtHeader, Times: starrockstest.Forever, Do: do})
				s.produce(100)
				time.Sleep(100 * time.Second) // far into the back-off
				begun := time.Now()
				w.stop(ExitNotDurable)
				require.LessOrEqual(t, time.Since(begun), 25*time.Second)
				require.ErrorContains(t, w.err, "(labels w-")
				for _, at := range s.committed() {
					require.Zero(t, at)
				}
				s.rocks.Heal()
				again := s.worker("again")
				s.exact(30 * time.Second)
				again.stop(0)
			})
		})
	}
}

// Three restarts in a row that each fail at another step: each ends with its own code and reason, and none leaves anything to the next.
func TestSimRestartsThatFailDifferently(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		fail := func(at starrockstest.Point, statement string, do starrockstest.Action) {
			s.rocks.Heal()
			s.rocks.Inject(starrockstest.Fault{At: at, Statement: statement, Times: starrockstest.Forever, Do: []starrockstest.Action{do}})
		}
		s.produce(200)
		for range 2 {
			fail(starrockstest.AtSQL, "^CREATE TABLE", starrockstest.SQLError(1064, "no table today"))
			w := s.worker("table", "STARTUP_TIMEOUT=20s")
			require.Equal(t, ExitTable, w.wait(time.Minute))
			require.ErrorContains(t, w.err, "no table today")

			fail(starrockstest.AtSQL, "SELECT.*rollcall_next_offset", starrockstest.SQLError(1064, "no totals today"))
			w = s.worker("store", "STARTUP_TIMEOUT=20s")
			require.Equal(t, ExitCheckpoint, w.wait(time.Minute))
			require.ErrorContains(t, w.err, "no totals today")

			fail(starrockstest.AtCommit, "", starrockstest.Fail("no load today"))
			w = s.worker("sink", "KAFKA_STOP=latest", "SHUTDOWN_TIMEOUT=10s")
			require.Equal(t, ExitNotDurable, w.wait(time.Minute))
			require.ErrorContains(t, w.err, "no load today")
			for _, at := range s.committed() {
				require.Zero(t, at)
			}
			require.NoError(t, s.rocks.Exec("DROP VIEW dau.daily_view", "DROP TABLE dau.daily"))
		}
		s.rocks.Heal()
		w := s.worker("w")
		s.exact(time.Minute)
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// A measure more is another program: refused before the table is touched, said once and without doubled names; with PROGRAM_CHANGE=continue
// the column is added and counting goes on.
func TestSimMeasureAdded(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(200)
		s.exact(time.Minute)
		w.stop(0)
		more := "AGGREGATE_MEASURES=uv=distinct(user_id),pv=count,amount=sum(amount,2),least=min(amount,2),most=max(amount,2),visits=count"
		columns := func() int {
			_, rows, err := s.rocks.Query("DESC dau.daily")
			require.NoError(t, err)
			return len(rows)
		}
		before := columns()
		w = s.worker("more", more)
		require.Equal(t, ExitCheckpoint, w.wait(time.Minute))
		require.ErrorContains(t, w.err, "PROGRAM_CHANGE=continue")
		require.Equal(t, before, columns())

		// The column is there already: the partitions refuse, each naming itself once.
		require.NoError(t, s.rocks.Exec("ALTER TABLE dau.daily ADD COLUMN visits BIGINT MAX NOT NULL DEFAULT '0'"))
		w = s.worker("added", more)
		require.Equal(t, ExitCheckpoint, w.wait(time.Minute))
		require.ErrorContains(t, w.err, "AGGREGATE_*")
		require.Equal(t, 1, strings.Count(w.err.Error(), simTopic+"/0: ")+strings.Count(w.err.Error(), simTopic+"/1: ")+
			strings.Count(w.err.Error(), simTopic+"/2: ")+strings.Count(w.err.Error(), simTopic+"/3: "), "%v", w.err)
		require.NoError(t, s.rocks.Exec("ALTER TABLE dau.daily DROP COLUMN visits"))

		w = s.worker("continues", more, "PROGRAM_CHANGE=continue")
		s.produce(200)
		s.exact(2 * time.Minute)
		require.Equal(t, before+1, columns())
		w.stop(0)
	})
}

// What a start says of a table it cannot use names the table once.
func TestSimTableIsNamedOnce(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		require.NoError(t, s.rocks.Exec("CREATE TABLE dau.daily (dt DATE NOT NULL, pv BIGINT) DUPLICATE KEY(dt) DISTRIBUTED BY HASH(dt)"))
		w := s.worker("w")
		require.Equal(t, ExitTable, w.wait(time.Minute))
		require.Equal(t, 1, strings.Count(w.err.Error(), "table dau.daily"), "%v", w.err)
	})
}
