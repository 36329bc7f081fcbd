package pipeline

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rollcall/pkg/sink/starrockstest"
)

func join(s []string) string { return strings.Join(s, "\n") }

// More workers than partitions: who has none is ready, and has something to do when another one leaves.
func TestSimIdleWorkerIsReady(t *testing.T) {
	simulate(t, simOptions{partitions: 2}, func(t *testing.T, s *sim) {
		a := s.worker("a")
		s.ready(time.Minute, a)
		b, c := s.worker("b"), s.worker("c")
		s.ready(time.Minute, a, b, c)
		s.produce(300)
		s.exact(20 * time.Second)
		idle := 0
		for _, w := range s.workers {
			m := w.identity()
			if m.sum("rollcall_source_assigned_partitions") == 0 {
				idle++
			}
			require.Zero(t, m.sum("rollcall_freshness_seconds", "none", "x"))
		}
		require.Equal(t, 1, idle)
		for _, w := range s.workers {
			w.stop(0)
			s.produce(100)
			if w != c {
				s.exact(time.Minute)
			}
		}
		require.NotEmpty(t, s.truth.Diff(s.view()), "nobody is left to count")
		d := s.worker("d")
		s.exact(time.Minute)
		d.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// Everything is away at the start: the worker is up, says why it is not ready, and runs when it comes.
func TestSimStartWithEverythingAway(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(200)
		s.net.set(netRefuse, append(kafkaPorts(), rocksPorts()...)...)
		w := s.worker("w")
		for range 20 {
			time.Sleep(30 * time.Second)
			w.live()
			r := join(w.reasons())
			require.Contains(t, r, "kafka: ")
			require.Contains(t, r, "table: ")
			code, _ := w.get("/status")
			require.Equal(t, http.StatusOK, code)
		}
		s.net.set(netOpen, kafkaPorts()...)
		s.eventually(time.Minute, "kafka found", func() bool { return !strings.Contains(join(w.reasons()), "kafka: ") })
		require.Contains(t, join(w.reasons()), "table: ")
		s.net.set(netOpen, rocksPorts()...)
		s.exact(time.Minute)
		s.ready(time.Second, w)
		w.stop(0)
	})
}

// STARTUP_TIMEOUT ends a start that waits, with the code of what it waits for.
func TestSimStartupTimeout(t *testing.T) {
	group := func(s *sim) {
		s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.CoordinatorLoadInProgress, TopLevel: true})
	}
	for name, tc := range map[string]struct {
		away func(s *sim)
		code int
		says string
	}{
		"kafka refuses": {func(s *sim) { s.net.set(netRefuse, kafkaPorts()...) }, ExitSource, "kafka"},
		"kafka hangs":   {func(s *sim) { s.net.set(netHole, kafkaPorts()...) }, ExitSource, "kafka"},
		"fe refuses":    {func(s *sim) { s.net.set(netRefuse, rocksPorts()...) }, ExitTable, "table"},
		"fe hangs":      {func(s *sim) { s.net.set(netHole, rocksPorts()...) }, ExitTable, "table"},
		"ddl hangs": {func(s *sim) {
			s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "CREATE TABLE", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Hang()}})
		}, ExitTable, "table"},
		"ddl fails": {func(s *sim) {
			s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "CREATE TABLE", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.SQLError(1064, "no luck today")}})
		}, ExitTable, "no luck today"},
		"no assignment": {group, ExitSource, "group"},
		"restore fails": {func(s *sim) {
			s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "SELECT.*rollcall_next_offset", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.SQLError(1064, "restore refused")}})
		}, ExitCheckpoint, "restore refused"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				tc.away(s)
				begun := time.Now()
				w := s.worker("w", "STARTUP_TIMEOUT=40s")
				time.Sleep(30 * time.Second)
				require.False(t, w.ended(), "%v", w.err)
				w.live()
				require.Equal(t, tc.code, w.wait(time.Minute), "%v", w.err)
				require.ErrorContains(t, w.err, tc.says)
				require.Less(t, time.Since(begun), 70*time.Second)
				s.healKafka()
				for _, at := range s.committed() {
					require.LessOrEqual(t, at, int64(0))
				}
			})
		})
	}
}

// STARTUP_TIMEOUT is about the start: nobody has to ask for readiness to end it, and later outages do not end the worker.
func TestSimStartupTimeoutDoesNotEndARunningWorker(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w", "STARTUP_TIMEOUT=30s")
		time.Sleep(20 * time.Second) // nobody probes
		s.net.set(netRefuse, append(kafkaPorts(), rocksPorts()...)...)
		time.Sleep(10 * time.Minute)
		require.False(t, w.ended(), "%v", w.err)
		s.net.set(netOpen, append(kafkaPorts(), rocksPorts()...)...)
		s.produce(100)
		s.exact(2 * time.Minute)
		w.stop(0)
	})
}

// Errors that no waiting mends end a start at once.
func TestSimPermanentErrorsAtStart(t *testing.T) {
	for name, tc := range map[string]struct {
		rocks starrockstest.Config
		make  func(s *sim)
		env   []string
		code  int
		says  string
	}{
		"no right to create": {
			rocks: starrockstest.Config{Users: []starrockstest.User{{Name: "root", Privileges: []starrockstest.Privilege{starrockstest.Select, starrockstest.Insert}}}},
			code:  ExitTable, says: "CREATE",
		},
		"no such user": {env: []string{"STARROCKS_USER=nobody"}, code: ExitTable, says: "nobody"},
		"another key model": {
			make: func(s *sim) {
				require.NoError(s.t, s.rocks.Exec("CREATE TABLE dau.daily (dt DATE NOT NULL, pv BIGINT) DUPLICATE KEY(dt) DISTRIBUTED BY HASH(dt)"))
			},
			code: ExitTable, says: "key",
		},
		"table missing with verify": {env: []string{"TABLE_MODE=verify"}, code: ExitTable, says: "daily"},
		"topic not allowed": {
			make: func(s *sim) {
				s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: simTopic, Err: kerr.TopicAuthorizationFailed})
			},
			code: ExitSource, says: "denied: " + simTopic,
		},
		"group not allowed": {
			make: func(s *sim) {
				s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator, kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed})
			},
			code: ExitSource, says: "GROUP_AUTHORIZATION_FAILED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{rocks: tc.rocks}, func(t *testing.T, s *sim) {
				if tc.make != nil {
					tc.make(s)
				}
				w := s.worker("w", tc.env...)
				require.Equal(t, tc.code, w.wait(15*time.Second), "%v", w.err)
				require.ErrorContains(t, w.err, tc.says)
			})
		})
	}
}

// SIGTERM at any moment of a start or a run: bounded, and 0 unless rows are open.
func TestSimStopAnyTime(t *testing.T) {
	sql := func(statement string, a ...starrockstest.Action) func(s *sim) {
		return func(s *sim) {
			s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: statement, Times: starrockstest.Forever, Do: a})
		}
	}
	for name, tc := range map[string]struct {
		make  func(s *sim)
		code  int
		abort bool
		// within is the longest the stop may take.
		within time.Duration
	}{
		"kafka refuses":        {make: func(s *sim) { s.net.set(netRefuse, kafkaPorts()...) }, within: 3 * time.Second},
		"kafka hangs":          {make: func(s *sim) { s.net.set(netHole, kafkaPorts()...) }, within: 3 * time.Second},
		"everything refuses":   {make: func(s *sim) { s.net.set(netRefuse, append(kafkaPorts(), rocksPorts()...)...) }, within: 3 * time.Second},
		"fe hangs":             {make: func(s *sim) { s.net.set(netHole, rocksPorts()...) }, within: 3 * time.Second},
		"ddl hangs":            {make: sql("CREATE TABLE", starrockstest.Hang()), within: 3 * time.Second},
		"ddl hangs, abort":     {make: sql("CREATE TABLE", starrockstest.Hang()), abort: true, within: 3 * time.Second},
		"restore hangs":        {make: sql("SELECT.*rollcall_next_offset", starrockstest.Hang()), within: 6 * time.Second},
		"restore hangs, abort": {make: sql("SELECT.*rollcall_next_offset", starrockstest.Hang()), abort: true, within: 6 * time.Second},
		"joining hangs": {make: func(s *sim) {
			s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.CoordinatorLoadInProgress, TopLevel: true})
		}, within: 13 * time.Second},
		"load hangs":            {make: load(starrockstest.AtHeader, starrockstest.Hang()), code: ExitNotDurable, within: 13 * time.Second},
		"load hangs, abort":     {make: load(starrockstest.AtHeader, starrockstest.Hang()), abort: true, code: ExitNotDurable, within: 6 * time.Second},
		"load fails":            {make: load(starrockstest.AtCommit, starrockstest.Fail("no luck")), code: ExitNotDurable, within: 13 * time.Second},
		"load in doubt":         {make: load(starrockstest.AtCommit, starrockstest.CommitUnknown(true)), within: 13 * time.Second},
		"publish takes longer":  {make: load(starrockstest.AtCommit, starrockstest.PublishTimeout(time.Minute)), within: 13 * time.Second},
		"nothing wrong":         {make: func(*sim) {}, within: 3 * time.Second},
		"nothing wrong, at t=0": {make: func(*sim) {}, within: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				s.settings["SHUTDOWN_TIMEOUT"] = "10s"
				s.produce(100)
				tc.make(s)
				w := s.worker("w")
				if name != "nothing wrong, at t=0" {
					time.Sleep(20 * time.Second)
				}
				begun := time.Now()
				w.term()
				if tc.abort {
					time.Sleep(100 * time.Millisecond)
					w.worker.Abort()
				}
				require.Equal(t, tc.code, w.wait(time.Minute), "%v", w.err)
				require.LessOrEqual(t, time.Since(begun), tc.within)
				// Whatever happened, nothing is lost.
				s.rocks.Heal()
				s.net.set(netOpen, append(kafkaPorts(), rocksPorts()...)...)
				s.healKafka()
				next := s.worker("next")
				s.exact(2 * time.Minute)
				next.stop(0)
			})
		})
	}
}

func load(at starrockstest.Point, a ...starrockstest.Action) func(s *sim) {
	return func(s *sim) {
		s.rocks.Inject(starrockstest.Fault{At: at, Times: starrockstest.Forever, Do: a})
	}
}

// A port in use is an error of the settings.
func TestSimPortInUse(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		l, err := s.net.Listen("tcp", "localhost:18081")
		require.NoError(t, err)
		defer l.Close()
		w := s.worker("w")
		require.Equal(t, ExitSettings, w.wait(time.Second))
		require.ErrorContains(t, w.err, "HTTP_ADDR")
	})
}

// A pattern that matches nothing is said in the log, by readiness and so on the page; a topic that appears is read.
func TestSimPatternMatchesNothing(t *testing.T) {
	simulate(t, simOptions{noTopic: true}, func(t *testing.T, s *sim) {
		s.settings["KAFKA_TOPICS"], s.settings["KAFKA_TOPICS_EXCLUDE"] = "/event.*/", simDead
		w := s.worker("w")
		s.eventually(time.Minute, "the worker says what it waits for", func() bool {
			code, body := w.get("/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(body, "matches KAFKA_TOPICS (^(?:event.*)$)")
		})
		require.Len(t, w.reasons(), 1)
		require.Equal(t, 1, w.logs.count("no topic matches the pattern; waiting for one"))
		_, err := kadm.NewClient(s.prod).CreateTopic(t.Context(), 2, 1, nil, simTopic)
		require.NoError(t, err)
		s.produce(100, 0, 1)
		s.ready(2*time.Minute, w)
		s.exact(time.Minute)
		w.stop(0)
	})
}

// Every partition waits for the first start of its topic and one line says so.
func TestSimFirstStartIsSaidOnce(t *testing.T) {
	simulate(t, simOptions{partitions: 32}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.ready(time.Minute, w)
		require.LessOrEqual(t, w.logs.count("first start of the topic: waiting"), 1)
		require.Equal(t, 1, w.logs.count("first start of the topic: start of every partition committed"))
		for _, reason := range pauseReasons() {
			require.True(t, w.metrics().has("rollcall_source_paused", "reason", reason), reason)
		}
		w.stop(0)
	})
}

// A measure whose field is in no event is said once, and one that has values is not.
func TestSimMeasureWithoutValues(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.settings["AGGREGATE_MEASURES"] = "pv=count,uv=distinct(user_id),paid=sum(amuont)"
		w := s.worker("w")
		s.ready(time.Minute, w)
		s.produce(3 * noValueAfter)
		s.eventually(time.Minute, "the log says it", func() bool { return w.logs.has("no event so far has a value for a measure", "amuont") })
		s.produce(3 * noValueAfter)
		time.Sleep(time.Minute)
		require.Equal(t, 1, w.logs.count("no event so far has a value for a measure"))
		w.stop(0)
	})
}
