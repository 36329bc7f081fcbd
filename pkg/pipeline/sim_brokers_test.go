package pipeline

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// All brokers are away for half an hour. The clients of the whole worker, discovery's among them, dial none of them more than once a second,
// and the worker is ready again soon after they are back, although discovery's breaker was open.
func TestSimDialsWhileBrokersAreAway(t *testing.T) {
	for name, mode := range map[string]netMode{"refuse": netRefuse, "hang": netHole} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				w := s.worker("w", "DEADLETTER_TOPIC="+simDead)
				s.produce(100)
				s.exact(time.Minute)
				s.prod.Close() // its dials do not count
				s.net.set(mode, kafkaPorts()...)
				time.Sleep(10 * time.Second) // the first tries follow each other closely
				for range 30 {
					before := s.net.dialled(kafkaPorts()...)
					time.Sleep(time.Minute)
					dials := s.net.dialled(kafkaPorts()...) - before
					require.LessOrEqual(t, dials, 72*len(kafkaPorts()), "one per second, and a fifth for the fall of the dice")
					w.live()
					require.Contains(t, join(w.reasons()), "discovery: no broker answers")
				}
				s.net.set(netOpen, kafkaPorts()...)
				s.prod = s.client()
				s.produce(20)
				s.exact(12 * time.Second)
				s.ready(12*time.Second, w)
				w.stop(0)
			})
		})
	}
}

// One of two brokers comes and goes every 20 s for ten minutes: the worker stays, the breaker stays closed since the other broker answers,
// and what leads there is read whenever it is there.
func TestSimFlappingBroker(t *testing.T) {
	for name, ports := range map[string][]string{"one of two": {"9093"}, "both": kafkaPorts()} {
		t.Run(name, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				w := s.worker("w")
				s.produce(100)
				s.exact(time.Minute)
				for range 15 {
					s.net.set(netRefuse, ports...)
					time.Sleep(20 * time.Second)
					w.live()
					require.False(t, w.ended(), "%v", w.err)
					s.net.set(netOpen, ports...)
					s.produce(40)
					time.Sleep(20 * time.Second)
					w.identity()
				}
				s.exact(30 * time.Second)
				s.ready(30*time.Second, w)
				// Ten minutes, and the breaker stays open for half a minute: not more often than that.
				require.LessOrEqual(t, w.logs.count("discovery breaker opened"), 20)
				if len(ports) == 1 {
					require.Zero(t, w.logs.count("discovery breaker opened"))
				}
				w.stop(0)
				require.Equal(t, s.ends(), s.committed())
			})
		})
	}
}

// The right to read is taken away for a while: said with who and what, not ready, nothing lost, and all well soon after it is given back. The
// other topic is read meanwhile.
func TestSimReadRevoked(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Topic: simTopic, Partitions: []int32{0, 1}, Err: kerr.TopicAuthorizationFailed})
		s.produce(100)
		s.eventually(10*time.Second, "not ready", func() bool { return strings.Contains(join(w.reasons()), "TOPIC_AUTHORIZATION_FAILED") })
		require.Contains(t, join(w.reasons()), simTopic+"/0")
		time.Sleep(5 * time.Minute)
		w.live()
		require.False(t, w.ended(), "%v", w.err)
		require.LessOrEqual(t, w.logs.count(`"level":"error"`, "TOPIC_AUTHORIZATION_FAILED"), 4, "said once per partition")
		for _, p := range []string{"2", "3"} {
			require.InDelta(t, 50, w.identity().sum("rollcall_source_records_total", "partition", p), 0.1, "others are read")
		}
		s.healKafka()
		s.exact(12 * time.Second)
		s.ready(12*time.Second, w)
		w.stop(0)
	})
}

// Only describing the topic is refused: reading goes on, discovery tries no more than once per interval, and says it once.
func TestSimDescribeRevoked(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		s.ready(10*time.Second, w)
		ok := w.metrics().sum("rollcall_discovery_rounds_total")
		s.prod.Close()
		s.prod = s.client()
		s.produce(20)
		const minutes = 4
		s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: simTopic, Err: kerr.TopicAuthorizationFailed})
		for range minutes { // the producer may not ask either, but knows the leaders for as long
			time.Sleep(time.Minute)
			s.produce(20)
		}
		s.exact(20 * time.Second)
		m := w.metrics()
		require.LessOrEqual(t, m.sum("rollcall_discovery_rounds_total")-ok, minutes*60/8.0+2, "an interval of 10 s, a fifth less at times")
		require.Equal(t, 1.0, m.sum("rollcall_discovery_breaker_state", "state", "closed"))
		require.Equal(t, float64(s.opt.partitions), m.sum("rollcall_discovery_partitions", "state", "known"))
		require.LessOrEqual(t, w.logs.count(`"level":"error"`, `"logger":"discovery"`), 1)
		s.healKafka()
		s.ready(time.Minute, w)
		w.stop(0)
	})
}

// Committing is refused: data goes on, since the table is the checkpoint; counted and said once; over when it is allowed again.
func TestSimCommitsRefused(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: simTopic, Err: kerr.GroupAuthorizationFailed})
		for range 10 {
			s.produce(40)
			s.exact(30 * time.Second)
			time.Sleep(30 * time.Second)
		}
		require.Positive(t, w.metrics().sum("rollcall_source_commits_total", "result", "failed"))
		require.Equal(t, 1, w.logs.count(`"level":"error"`, "offset commits fail"))
		s.healKafka()
		s.produce(40)
		s.exact(30 * time.Second)
		s.eventually(30*time.Second, "committed", func() bool { return fmt.Sprint(s.committed()) == fmt.Sprint(s.ends()) })
		require.Equal(t, 1, w.logs.count("offset commits work again"))
		w.stop(0)
	})
}

// The topic is deleted while it is read: said soon, believed gone only after it was confirmed, the worker stays, and what was counted stays.
func TestSimTopicDeleted(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		require.NoError(t, s.kafka.DeleteTopic(simTopic))
		s.eventually(time.Minute, "gone", func() bool { return w.logs.has("topic is gone") })
		time.Sleep(10 * time.Minute)
		w.live()
		require.False(t, w.ended(), "%v", w.err)
		require.Empty(t, s.truth.Diff(s.view()))
		require.Positive(t, w.metrics().sum("rollcall_discovery_partitions", "state", "gone"))
		require.Contains(t, join(w.reasons()), simTopic, "not ready, and it says which topic")
		w.stop(0)
	})
}

// Discovery asks once per interval, however many partitions there are.
func TestSimDiscoveryIsNotAmplified(t *testing.T) {
	simulate(t, simOptions{partitions: 64}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		s.produce(640)
		s.exact(time.Minute)
		before := w.metrics().sum("rollcall_discovery_rounds_total")
		asked := s.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1})
		defer asked.Remove()
		const d = 10 * time.Minute
		time.Sleep(d)
		rounds := w.metrics().sum("rollcall_discovery_rounds_total") - before
		require.LessOrEqual(t, rounds, d.Seconds()/8+1)
		require.GreaterOrEqual(t, rounds, d.Seconds()/12-1)
		// Besides: the client's own, once a minute, and before it asks for the ends of the logs, every 5 s.
		require.LessOrEqual(t, asked.Hits(), int(rounds)+14*int(d.Minutes())+5)
		w.stop(0)
	})
}

// No broker ever answers a metadata request: SIGTERM ends the worker at once, at the start and while it runs, and reading does not suffer.
func TestSimStopWhileDiscoveryHangs(t *testing.T) {
	for seed, running := range []bool{false, true, true, true} {
		t.Run(strconv.FormatBool(running), func(t *testing.T) {
			simulate(t, simOptions{seed: uint64(seed)}, func(t *testing.T, s *sim) { //nolint:gosec // small
				var w *simWorker
				if running {
					w = s.worker("w")
					s.produce(100)
					s.exact(time.Minute)
				}
				s.kafka.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
					s.kafka.KeepControl()
					return nil, nil, true
				})
				if running {
					time.Sleep(13 * time.Second)
					s.produce(100)
					s.exact(10 * time.Second)
					code, _ := w.get("/readyz")
					require.Equal(t, http.StatusOK, code, "brokers answer everything else: %v", w.reasons())
					time.Sleep(time.Duration(s.rnd.IntN(8000)) * time.Millisecond)
				} else {
					w = s.worker("w")
					time.Sleep(7 * time.Second)
					require.Contains(t, join(w.reasons()), "kafka: ")
				}
				begun := time.Now()
				w.stop(0)
				require.LessOrEqual(t, time.Since(begun), 2*time.Second)
			})
		})
	}
}

// Credentials that are refused at the start end it with what was refused, and to whom.
func TestSimLoginRefusedAtStart(t *testing.T) {
	simulate(t, simOptions{kafka: []kfake.Opt{kfake.EnableSASL(), kfake.Superuser("PLAIN", "counter", "right")}}, func(t *testing.T, s *sim) {
		// As Kafka answers; kfake closes the connection.
		s.kafka.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			s.kafka.KeepControl()
			resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("wrong password")
			return resp, nil, true
		})
		w := s.worker("w", "KAFKA_SASL_MECHANISM=PLAIN", "KAFKA_SASL_USERNAME=counter", "KAFKA_SASL_PASSWORD=wrong")
		require.Equal(t, ExitSource, w.wait(30*time.Second), "%v", w.err)
		require.ErrorContains(t, w.err, "kafka as counter: ")
	})
}

// One of four partitions has no leader for a while, from the start or later: the worker runs and is ready, the others are read and fresh data
// of theirs shows, the gauges and the status page say which one waits and since when, and it is read soon after it has a leader again.
func TestSimPartitionWithoutALeader(t *testing.T) {
	for _, when := range []string{"from the start", "later"} {
		t.Run(when, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				s.produce(100)
				leaderless := func() {
					s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: simTopic, Partitions: []int32{1}, Err: kerr.LeaderNotAvailable})
					s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Topic: simTopic, Partitions: []int32{1}, Err: kerr.NotLeaderForPartition})
				}
				var w *simWorker
				if when == "later" {
					w = s.worker("w")
					s.exact(time.Minute)
					leaderless()
				} else {
					leaderless()
					w = s.worker("w")
				}
				time.Sleep(30 * time.Second)
				read := w.metrics().sum("rollcall_source_records_total", "partition", "2")
				s.produce(30, 0, 2, 3) // a producer would wait for the leader of 1
				time.Sleep(30 * time.Second)
				m := w.identity()
				require.InDelta(t, read+10, m.sum("rollcall_source_records_total", "partition", "2"), 0.1, "others are read")
				for state, n := range map[string]float64{"known": 4, "assigned": 4, "leaderless": 1, "missing": 0, "gone": 0} {
					require.InDelta(t, n, m.sum("rollcall_discovery_partitions", "state", state), 0.1, state)
				}
				w.live()
				s.healKafka()
				healed := time.Now()
				s.produce(10, 1)
				s.exact(15 * time.Second)
				t.Logf("%s: exact %s after the partition had a leader again", when, time.Since(healed))
				s.ready(15*time.Second, w)
				s.eventually(30*time.Second, "said", func() bool {
					return w.metrics().sum("rollcall_discovery_partitions", "state", "leaderless") == 0
				})
				w.stop(0)
				require.Equal(t, s.ends(), s.committed())
			})
		})
	}
}
