package discovery

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest/observer"
)

// bubble is a discoverer running against three kfake brokers in virtual time.
type bubble struct {
	*tamper
	c    *kfake.Cluster
	d    *Discoverer
	logs *observer.ObservedLogs
	drain

	cancel context.CancelFunc
	done   chan error
}

// inBubble runs f in virtual time, with First done and Run running, interval 30 s, budget 10 s, 3 s a try.
func inBubble(t *testing.T, change func(*Config), f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var vnet kfake.VirtualNetwork
		c, err := kfake.NewCluster(kfake.Ports(9001, 9002, 9003), kfake.SeedTopics(4, "t"), kfake.ListenFn(vnet.Listen))
		require.NoError(t, err)
		defer c.Close()
		log, logs := newLog()
		cfg := Config{
			Seeds: c.ListenAddrs(), Topics: []string{"t"}, Security: []kgo.Opt{kgo.Dialer(vnet.DialContext)},
			Log: log, Metrics: NewMetrics(prometheus.NewRegistry()),
		}
		if change != nil {
			change(&cfg)
		}
		b := &bubble{tamper: &tamper{}, c: c, d: mustNew(t, cfg), logs: logs, done: make(chan error, 1)}
		b.install(c)
		_, err = b.d.First(t.Context())
		require.NoError(t, err)
		b.times()
		ctx, cancel := context.WithCancel(context.Background())
		b.cancel = cancel
		go func() { b.done <- b.d.Run(ctx, b.report) }()
		defer b.stop(t) // also when f has failed: the bubble must be empty
		f(t, b)
	})
}

func (b *bubble) stop(t *testing.T) {
	t.Helper()
	b.cancel()
	require.NoError(t, <-b.done)
	b.done <- nil // stopping twice is fine
}

// valueOf reads a counter or gauge.
func valueOf(m prometheus.Metric) float64 {
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		panic(err)
	}
	return d.GetCounter().GetValue() + d.GetGauge().GetValue()
}

func (b *bubble) rounds(result string) float64 {
	return valueOf(b.d.s.Metrics.rounds.WithLabelValues(result))
}

func (b *bubble) partitions(state string) float64 {
	return valueOf(b.d.s.Metrics.partitions.WithLabelValues(state))
}

func (b *bubble) breaker(state string) float64 {
	return valueOf(b.d.s.Metrics.breaker.WithLabelValues(state))
}

func (b *bubble) logged(msg string) int { return b.logs.FilterMessage(msg).Len() }

func TestIntervalIsJittered(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		last := time.Now()
		time.Sleep(time.Hour)
		asked := b.times()
		require.InDelta(t, 120, len(asked), 8)
		gaps := map[time.Duration]bool{}
		for _, at := range asked {
			gap := at.Sub(last)
			require.GreaterOrEqual(t, gap, 24*time.Second)
			require.LessOrEqual(t, gap, 36*time.Second)
			gaps[gap] = true
			last = at
		}
		require.Greater(t, len(gaps), 100)
		require.EqualValues(t, len(asked)+1, b.rounds(resultOK))
		require.Len(t, b.take(), len(asked), "every good round is reported")
		require.Equal(t, 0, b.logs.FilterLevelExact(1).Len())
	})
}

func TestGrowth(t *testing.T) {
	inBubble(t, func(c *Config) { c.Topics, c.Pattern = nil, mustRegexp("^t") }, func(t *testing.T, b *bubble) {
		require.NoError(t, b.c.CreateTopic("t2", 3, nil))
		require.NoError(t, b.c.CreateTopic("other", 3, nil))
		time.Sleep(36 * time.Second)
		cs := b.take()
		require.Equal(t, []string{"t2"}, cs[0].AddedTopics)
		require.Len(t, b.d.Snapshot().Topics["t2"].Partitions, 3)
		require.EqualValues(t, 7, b.partitions("known"))
		require.NotContains(t, b.d.Snapshot().Topics, "other")
	})
}

// A topic that was deleted is gone after three rounds of three brokers, which follow each other faster than the interval; re-created it is
// reported as such.
func TestDeletedAndRecreated(t *testing.T) {
	for name, pattern := range map[string]bool{"by name": false, "by pattern": true} {
		t.Run(name, func(t *testing.T) {
			change := func(c *Config) {
				if pattern {
					c.Topics, c.Pattern = nil, mustRegexp("^t$")
				}
			}
			inBubble(t, change, func(t *testing.T, b *bubble) {
				old := b.d.Snapshot().Topics["t"].ID
				require.NoError(t, b.c.DeleteTopic("t"))
				begin := time.Now()
				for b.partitions("gone") == 0 {
					time.Sleep(time.Second)
					require.Less(t, time.Since(begin), 36*time.Second+3*confirmAfter)
				}
				cs := b.take()
				require.Len(t, cs, 3)
				require.Equal(t, []string{"t"}, cs[2].GoneTopics)
				require.Empty(t, cs[2].Snapshot.Topics)
				for _, c := range cs[:2] {
					require.Equal(t, Missing, c.Snapshot.Topics["t"].Partitions[0].State)
				}
				require.EqualValues(t, 2, b.rounds(resultSuspicious))
				require.Equal(t, 1, b.logged("topic is gone"))
				require.Equal(t, 1, b.logged("suspicious metadata, to be confirmed"))
				require.Equal(t, []string{"t"}, b.d.Status().GoneTopics)

				require.NoError(t, b.c.CreateTopic("t", 2, nil))
				time.Sleep(36 * time.Second)
				cs = b.take()
				now := b.d.Snapshot().Topics["t"]
				require.Equal(t, []Recreation{{"t", old, now.ID}}, cs[len(cs)-1].Recreated)
				require.Len(t, now.Partitions, 2)
				require.Zero(t, b.partitions("gone"))
			})
		})
	}
}

// Deleted and created again between two rounds.
func TestRecreatedBetweenRounds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		old := b.d.Snapshot().Topics["t"].ID
		require.NoError(t, b.c.DeleteTopic("t"))
		require.NoError(t, b.c.CreateTopic("t", 9, nil))
		time.Sleep(36*time.Second + 3*confirmAfter)
		cs := b.take()
		require.Len(t, cs, 3)
		require.Empty(t, cs[0].Recreated)
		require.Equal(t, old, cs[1].Snapshot.Topics["t"].ID, "not before it is confirmed")
		require.Len(t, cs[2].Recreated, 1)
		require.Len(t, cs[2].Snapshot.Topics["t"].Partitions, 9)
	})
}

// Five empty answers from one stale broker take nothing away.
func TestEmptyAnswers(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		before := b.d.Snapshot().Topics
		var n atomic.Int32
		b.set(fromCluster(b.c, []string{"t"}, func(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
			if b.c.CurrentNode() == 1 && n.Load() < 5 {
				n.Add(1)
				resp.Topics = nil
				byName(req, resp, kerr.UnknownTopicOrPartition)
			}
		}))
		for n.Load() < 5 {
			time.Sleep(time.Second)
			for p := range before["t"].Partitions {
				require.Contains(t, b.d.Snapshot().Topics["t"].Partitions, p)
			}
		}
		time.Sleep(2 * time.Minute)
		require.Equal(t, Live, b.d.Snapshot().Topics["t"].Partitions[0].State)
		for _, c := range b.take() {
			require.Empty(t, c.GoneTopics)
		}
		require.EqualValues(t, 5, b.rounds(resultSuspicious))
		require.Zero(t, b.partitions("missing"))
	})
}

// An answer without a middle partition from one broker: the others' answers bring it back; from all brokers it is confirmed gone.
func TestGappedAnswers(t *testing.T) {
	gap := func(resp *kmsg.MetadataResponse) {
		resp.Topics[0].Partitions = append(resp.Topics[0].Partitions[:2:2], resp.Topics[0].Partitions[3:]...)
	}
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		b.set(fromCluster(b.c, []string{"t"}, func(_ *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
			if b.c.CurrentNode() == 0 {
				gap(resp)
			}
		}))
		time.Sleep(10 * time.Minute)
		require.Positive(t, b.rounds(resultSuspicious))
		require.Zero(t, b.partitions("gone"))

		b.set(fromCluster(b.c, []string{"t"}, func(_ *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) { gap(resp) }))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, b.partitions("gone"))
		require.EqualValues(t, 3, b.partitions("known"))

		b.set(nil)
		time.Sleep(time.Minute)
		require.Zero(t, b.partitions("gone"))
		require.EqualValues(t, 4, b.partitions("known"))
	})
}

func TestLeaderless(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		b.set(fromCluster(b.c, []string{"t"}, func(_ *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
			ps := resp.Topics[0].Partitions
			for i := range ps {
				switch ps[i].Partition {
				case 1:
					ps[i].Leader = -1
				case 2:
					ps[i].ErrorCode = kerr.LeaderNotAvailable.Code
				}
			}
		}))
		time.Sleep(36 * time.Second)
		cs := b.take()
		require.Equal(t, []TopicPartition{{"t", 1}, {"t", 2}}, cs[0].Leaderless)
		since := cs[0].Snapshot.At
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 2, b.partitions("leaderless"))
		require.EqualValues(t, 4, b.partitions("known"))
		st := b.d.Status()
		require.Equal(t, since, st.OldestLeaderless)
		require.Equal(t, TopicPartition{"t", 1}, st.OldestLeaderlessPartition)
		require.Equal(t, 1, b.logged("partitions without leader"))
		require.Equal(t, resultOKRounds(b), b.rounds(resultOK), "leaderless is an answer like any other")

		b.set(nil)
		time.Sleep(36 * time.Second)
		require.Zero(t, b.partitions("leaderless"))
		require.True(t, b.d.Status().OldestLeaderless.IsZero())
		require.Equal(t, 1, b.logged("partitions have a leader again"))
	})
}

func resultOKRounds(b *bubble) float64 {
	return b.rounds(resultOK) + b.rounds(resultSuspicious) + b.rounds(resultFailed)
}

// Brokers accept and say nothing: each round ends at its budget at the latest, three open the breaker, one probe per cooldown follows, nothing
// is taken away, everything is said once, and one good probe ends it.
func TestBreaker(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		before := b.d.Snapshot()
		b.setSilent(true)
		for b.breaker("open") == 0 {
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 3, b.rounds(resultFailed))
		st := b.d.Status()
		require.Equal(t, "open", st.Breaker)
		require.Equal(t, 3, st.FailedRounds)
		require.Contains(t, st.LastError, "request: no answer in time")
		require.NotEmpty(t, st.LastErrorBroker)
		require.Same(t, before, b.d.Snapshot())
		require.Empty(t, b.take())
		require.Equal(t, 1, b.logged("discovery round failed"))
		opened := b.logs.FilterMessage("discovery breaker opened").All()
		require.Len(t, opened, 1)
		fields := opened[0].ContextMap()
		require.Contains(t, fields["broker"], "localhost:900")
		require.Equal(t, "request: no answer in time", fields["error"])
		require.Equal(t, 10*time.Second, fields["budget"])
		require.InDelta(t, 3.5, fields["elapsed"].(time.Duration).Seconds(), 0.1) // the third try starts after two hedges
		require.Len(t, fields["brokers"], 3)

		b.times()
		begin := time.Now()
		b.d.Kick() // no way around the breaker
		time.Sleep(10 * time.Minute)
		probes := 0
		var last time.Time
		for _, at := range b.times() {
			if at.Sub(last) > time.Second { // three brokers are asked within half a second
				require.True(t, last.IsZero() || at.Sub(last) >= 30*time.Second, at.Sub(last))
				probes++
			}
			last = at
		}
		require.InDelta(t, 600/35, probes, 2)
		require.EqualValues(t, 3+probes, b.rounds(resultFailed))
		require.Zero(t, b.rounds(resultSkipped), "no probe came too early")
		require.Equal(t, 1, b.logged("discovery breaker opened"))
		require.Equal(t, 1, b.logged("discovery round failed"))
		require.WithinDuration(t, begin, b.d.Status().BreakerSince, 2*time.Second)

		b.setSilent(false)
		time.Sleep(40 * time.Second)
		require.EqualValues(t, 1, b.breaker("closed"))
		require.Zero(t, b.breaker("open"))
		require.Equal(t, "closed", b.d.Status().Breaker)
		require.Empty(t, b.d.Status().LastError)
		require.Equal(t, 1, b.logged("discovery breaker closed"))
		require.Equal(t, 1, b.logged("discovery works again"))
		require.NotEmpty(t, b.take())
	})
}

// A probe that is refused leaves the breaker half open: brokers answer again. The next good round closes it.
func TestBreakerProbeRefused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		b.setSilent(true)
		for b.breaker("open") == 0 {
			time.Sleep(time.Second)
		}
		var refuse atomic.Bool
		refuse.Store(true)
		refuseConnections(b.c, &refuse)
		b.setSilent(false)
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 1, b.breaker("half_open"))
		require.InDelta(t, 9, b.rounds(resultDenied), 2)
		require.Zero(t, b.rounds(resultSkipped))
		require.Equal(t, 1, b.logged("discovery breaker half open: brokers answer and refuse"))
		refuse.Store(false)
		time.Sleep(36 * time.Second)
		require.EqualValues(t, 1, b.breaker("closed"))
		require.Equal(t, 1, b.logged("discovery breaker closed"))
	})
}

// refuseConnections makes brokers answer every new connection with an authorization failure while on.
func refuseConnections(c *kfake.Cluster, on *atomic.Bool) (tries *atomic.Int32) {
	tries = new(atomic.Int32)
	c.ControlKey(int16(kmsg.ApiVersions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !on.Load() {
			return nil, nil, false
		}
		tries.Add(1)
		resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil, true
	})
	return tries
}

// Interval shorter than a round: still one round at a time, and no pile-up afterwards.
func TestNeverTwoAtATime(t *testing.T) {
	change := func(c *Config) {
		c.Interval, c.BreakerFailures, c.RequestTimeout, c.Timeout = 2*time.Second, 1000, 8*time.Second, 9*time.Second
	}
	inBubble(t, change, func(t *testing.T, b *bubble) {
		b.setSilent(true)
		for range 50 {
			b.d.Kick()
			time.Sleep(2 * time.Second)
		}
		asked := b.times()
		require.LessOrEqual(t, len(asked), 3*(100/8+1))
		for i := 3; i < len(asked); i++ {
			require.GreaterOrEqual(t, asked[i].Sub(asked[i-3]), 8*time.Second, "a broker is asked again only after its last try ended")
		}
		b.setSilent(false)
		time.Sleep(15 * time.Second)
		b.times()
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, len(b.times()), 7)
	})
}

// A topic authorization failure: one request per interval, no breaker, said once, what is known stays, and it ends by itself.
func TestDenied(t *testing.T) {
	for name, pattern := range map[string]bool{"by name": false, "by pattern": true} {
		t.Run(name, func(t *testing.T) {
			change := func(c *Config) {
				if pattern {
					c.Topics, c.Pattern = nil, mustRegexp("^t$")
				}
			}
			inBubble(t, change, func(t *testing.T, b *bubble) {
				var lists atomic.Int32
				b.set(fromCluster(b.c, nil, func(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
					byName(req, resp, kerr.TopicAuthorizationFailed)
					if req.Topics == nil {
						lists.Add(1)
					}
				}))
				b.times()
				for range 600 {
					b.d.Kick()
					time.Sleep(time.Second)
				}
				asked := len(b.times())
				if pattern { // the list leaves the topic out, so it is asked for by name behind it
					require.InDelta(t, asked/2, lists.Load(), 1)
					asked = int(lists.Load())
				}
				require.InDelta(t, 20, asked, 3, "one try per interval, kicks or not")
				require.EqualValues(t, asked, b.rounds(resultDenied))
				require.EqualValues(t, 1, b.breaker("closed"))
				require.Equal(t, 1, b.logged("discovery refused"))
				st := b.d.Status()
				require.ErrorIs(t, st.Err, ErrDenied)
				require.Equal(t, []string{"t"}, st.Denied)
				require.EqualValues(t, 4, b.partitions("known"))
				require.Zero(t, b.partitions("missing"))
				for _, c := range b.take() {
					c.BrokersChanged = false // the made-up answers lack the rack
					require.True(t, c.Empty())
					require.Equal(t, []string{"t"}, c.Denied)
				}
				b.set(nil)
				time.Sleep(36 * time.Second)
				require.NoError(t, b.d.Status().Err)
				require.Equal(t, 1, b.logged("discovery no longer refused"))
			})
		})
	}
}

// Wrong credentials while running: every broker is tried once per interval, no breaker, said once.
func TestCredentialsRefusedWhileRunning(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		var refuse atomic.Bool
		refuse.Store(true)
		tries := refuseConnections(b.c, &refuse)
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 60, tries.Load(), 9)
		require.InDelta(t, 20, b.rounds(resultDenied), 3)
		require.EqualValues(t, 1, b.breaker("closed"))
		require.Equal(t, 1, b.logged("discovery refused"))
		require.ErrorIs(t, b.d.Status().Err, kerr.ClusterAuthorizationFailed)
		require.EqualValues(t, 4, b.partitions("known"))
	})
}

// Many kicks make one round, soon but not at once after another.
func TestKick(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		time.Sleep(10 * time.Second)
		begin := time.Now()
		for range 20 {
			b.d.Kick()
		}
		synctest.Wait()
		asked := b.times()
		require.Len(t, asked, 1)
		require.Equal(t, begin, asked[0])
		for range 100 {
			b.d.Kick()
			time.Sleep(100 * time.Millisecond)
		}
		asked = b.times()
		require.InDelta(t, 5, len(asked), 1)
		for i := 1; i < len(asked); i++ {
			require.GreaterOrEqual(t, asked[i].Sub(asked[i-1]), confirmAfter)
		}
	})
}

// Ending Run while a round hangs takes no time, and the round counts for nothing.
func TestEndDuringHungRound(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bubble) {
		b.setSilent(true)
		b.d.Kick()
		time.Sleep(3 * time.Second)
		require.NotEmpty(t, b.times(), "a round is under way")
		begin := time.Now()
		b.stop(t)
		require.Zero(t, time.Since(begin))
		require.Zero(t, b.rounds(resultFailed))
		require.Zero(t, b.d.Status().FailedRounds)
		require.EqualValues(t, 1, b.breaker("closed"))
	})
}

// Before any answer First goes on by itself, at most one round in five seconds once it has backed off, and says what is wrong once.
func TestFirstKeepsTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var vnet kfake.VirtualNetwork
		c, err := kfake.NewCluster(kfake.Ports(9001), kfake.SeedTopics(1, "t"), kfake.ListenFn(vnet.Listen))
		require.NoError(t, err)
		defer c.Close()
		log, logs := newLog()
		dials := 0
		d := mustNew(t, Config{Seeds: []string{"localhost:9001", "localhost:9009"}, Topics: []string{"t"}, Log: log, Security: []kgo.Opt{
			kgo.Dialer(func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
				if addr == "localhost:9009" {
					dials++
				}
				return vnet.DialContext(ctx, network, addr)
			}),
		}})
		tm := &tamper{silent: true}
		tm.install(c)
		go func() {
			time.Sleep(3 * time.Minute)
			tm.setSilent(false)
		}()
		begin := time.Now()
		_, err = d.First(t.Context())
		require.NoError(t, err)
		require.InDelta(t, 180, time.Since(begin).Seconds(), 10)
		require.LessOrEqual(t, dials, 2*180/4)
		require.Equal(t, 1, logs.FilterMessage("discovery round failed").Len())
		require.Equal(t, 1, logs.FilterMessage("discovery works again").Len())
	})
}

// Run without First begins with a round at once.
func TestRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var vnet kfake.VirtualNetwork
		c, err := kfake.NewCluster(kfake.Ports(9001), kfake.SeedTopics(1, "t"), kfake.ListenFn(vnet.Listen))
		require.NoError(t, err)
		defer c.Close()
		d := mustNew(t, Config{Seeds: c.ListenAddrs(), Topics: []string{"t"}, Security: []kgo.Opt{kgo.Dialer(vnet.DialContext)}})
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan Change, 1)
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx, func(c Change) { got <- c }) }()
		begin := time.Now()
		require.Equal(t, []string{"t"}, (<-got).AddedTopics)
		require.Zero(t, time.Since(begin))
		cancel()
		require.NoError(t, <-done)
	})
}
