package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"rollcall/pkg/kafkatest"
)

// Eleven of twelve brokers are dead and the one that lives is found within one round's budget, at start-up and from the last snapshot.
func TestElevenOfTwelveDead(t *testing.T) {
	for _, mode := range []kafkatest.Mode{kafkatest.Refuse, kafkatest.Drop, kafkatest.Silent} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 12, Opts: []kfake.Opt{kfake.SeedTopics(12, "t")}})
			cfg := Config{Seeds: f.Addrs(), Topics: []string{"t"}}
			warm := mustNew(t, cfg)
			_, err := warm.First(t.Context())
			require.NoError(t, err)
			for n := range int32(12) {
				if n != 7 {
					require.NoError(t, f.Set(mode, n))
				}
			}
			cold := mustNew(t, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begin := time.Now()
			snap, err := cold.First(ctx)
			require.NoError(t, err)
			t.Logf("found after %s", time.Since(begin)) // at most 11 hedges of 100 ms and one good try
			require.Len(t, snap.Topics["t"].Partitions, 12)
			require.Len(t, snap.Brokers, 12)
			require.Equal(t, 0, cold.Status().FailedRounds)

			a, err := warm.walk(ctx, hedge)
			require.NoError(t, err)
			require.Equal(t, "node 7", a.from)
		})
	}
}

// Those that failed are asked after the others, and after them those that have confirmed a suspicion already.
func TestOrder(t *testing.T) {
	d := mustNew(t, Config{Seeds: []string{"a:1"}, Topics: []string{"t"}})
	d.failing["b2:1"] = true
	d.names = map[string]string{"a:1": "a:1", "b1:1": "node 1", "b2:1": "node 2", "b3:1": "node 3", "b4:1": "node 4"}
	d.view.suspects[suspect{topic: "t"}] = &suspicion{by: map[string]bool{"node 3": true, "a:1": true}}
	first := map[string]bool{}
	for range 100 {
		w := &walk{asker: d.asker, plan: plan{rank: d.ranking()}, seen: map[string]bool{}}
		w.add([]candidate{{addr: "a:1"}, {addr: "b3:1"}})
		w.add([]candidate{{addr: "b2:1"}, {addr: "b1:1"}, {addr: "b4:1"}, {addr: "b1:1"}})
		var order []string
		for _, c := range w.queue {
			order = append(order, c.addr)
		}
		require.Len(t, order, 5)
		first[order[0]] = true
		require.ElementsMatch(t, []string{"b1:1", "b4:1"}, order[:2])
		require.Equal(t, "b2:1", order[2])
	}
	require.Len(t, first, 2, "shuffled")

	// A broker that answered is no longer failing, one that was slow is, and one that is no candidate is forgotten.
	d.failing, d.names = map[string]bool{"good:1": true, "left:1": true}, map[string]string{"left:1": "x", "bad:1": "node 3"}
	d.remember(&walk{
		plan: plan{hedge: time.Second}, seen: map[string]bool{"good:1": true, "bad:1": true, "slow:1": true, "new:1": true}, good: []string{"good:1"},
		causes:   []Cause{{Broker: "bad:1"}, {Broker: "some name"}},
		inFlight: map[string]time.Time{"slow:1": time.Now().Add(-2 * time.Second), "new:1": time.Now()},
	}, &answer{brokers: []Broker{{1, "good:1", ""}, {5, "later:1", ""}}})
	require.Equal(t, map[string]bool{"bad:1": true, "slow:1": true}, d.failing)
	require.Equal(t, map[string]string{
		"good:1": "node 1", "bad:1": "node 3", "slow:1": "slow:1", "new:1": "new:1", "later:1": "node 5",
	}, d.names)
}

// With all brokers dead the round ends within its budget and says what each broker did.
func TestAllDead(t *testing.T) {
	for mode, want := range map[kafkatest.Mode]string{
		kafkatest.Refuse: "connect: connection refused",
		kafkatest.Drop:   "connect: no answer in time",
		kafkatest.Silent: "request: no answer in time",
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{})
			require.NoError(t, f.Set(mode, 0, 1, 2))
			d := mustNew(t, Config{Seeds: f.Addrs(), Topics: []string{"t"}, RequestTimeout: 2 * time.Second, Timeout: 6 * time.Second})
			begin := time.Now()
			_, err := d.walk(t.Context(), hedge)
			require.Less(t, time.Since(begin), 8*time.Second)
			var re *RoundError
			require.ErrorAs(t, err, &re)
			require.Len(t, re.Causes, 3)
			for _, c := range re.Causes {
				require.Equal(t, want, c.Err.Error())
			}
			require.False(t, Permanent(err))

			// First keeps trying and gives the last reason with the context's.
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			_, err = d.First(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, want)
		})
	}
}

// Cancelling a round in which every broker is silent ends it and everything it started; goleak watches.
func TestCancelHungRound(t *testing.T) {
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 12})
	for n := range int32(12) {
		require.NoError(t, f.Set([]kafkatest.Mode{kafkatest.Drop, kafkatest.Silent}[n%2], n))
	}
	d := mustNew(t, Config{Seeds: f.Addrs(), Topics: []string{"t"}})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("told to stop")
	done := make(chan error, 1)
	go func() {
		_, err := d.First(ctx)
		done <- err
	}()
	time.Sleep(700 * time.Millisecond) // several tries are in flight
	cancel(stop)
	select {
	case err := <-done:
		require.ErrorIs(t, err, stop)
	case <-time.After(2 * time.Second):
		t.Fatal("First did not end")
	}
	require.Equal(t, Status{Breaker: "closed"}, d.Status(), "a cancelled round leaves no trace")
}

// A broker that belongs to another cluster is passed over, with the others dead is an error, and is never adopted.
func TestOtherCluster(t *testing.T) {
	ours := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 1, Opts: []kfake.Opt{kfake.ClusterID("ours"), kfake.SeedTopics(3, "t")}})
	theirs := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 1, Opts: []kfake.Opt{kfake.ClusterID("theirs"), kfake.SeedTopics(7, "t")}})
	d := mustNew(t, quick(Config{Seeds: append(ours.Addrs(), theirs.Addrs()...), Topics: []string{"t"}, ClusterID: "ours"}))
	for range 8 {
		a, err := d.walk(t.Context(), hedge)
		require.NoError(t, err)
		require.Equal(t, "ours", a.clusterID)
	}
	require.NoError(t, ours.Set(kafkatest.Refuse, 0))
	_, err := d.walk(t.Context(), hedge)
	require.ErrorIs(t, err, ErrOtherCluster)
	require.ErrorContains(t, err, `"theirs"`)
	require.False(t, Permanent(err))

	// Without a configured id the first cluster is the one.
	require.NoError(t, ours.Set(kafkatest.Pass, 0))
	d = mustNew(t, quick(Config{Seeds: ours.Addrs(), Topics: []string{"t"}}))
	_, err = d.First(t.Context())
	require.NoError(t, err)
	d.s.seeds = append(d.s.seeds, mustSeed(t, theirs.Addrs()[0]))
	require.NoError(t, ours.Set(kafkatest.Refuse, 0))
	_, err = d.walk(t.Context(), hedge)
	require.ErrorIs(t, err, ErrOtherCluster)
}

func mustSeed(t *testing.T, addr string) hostPort {
	t.Helper()
	hp, err := parseSeed(addr)
	require.NoError(t, err)
	return hp
}

// A first answer from a foreign cluster that lacks our topic does not pin it.
func TestForeignFirstAnswerPinsNothing(t *testing.T) {
	ours := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 1, Opts: []kfake.Opt{kfake.ClusterID("ours"), kfake.SeedTopics(3, "t")}})
	theirs := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 1, Opts: []kfake.Opt{kfake.ClusterID("theirs"), kfake.SeedTopics(3, "x")}})
	d := mustNew(t, quick(Config{Seeds: theirs.Addrs(), Topics: []string{"t"}}))
	_, err := d.round(t.Context(), hedge, d.walk)
	require.ErrorIs(t, err, ErrUnconfirmed)
	d.s.seeds = append(d.s.seeds, mustSeed(t, ours.Addrs()[0]))
	snap, err := d.First(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ours", snap.ClusterID)
}

// Every address of a bootstrap name is a candidate, looked up anew in each round; a name that does not resolve is named and holds nobody up.
func TestNamesAreResolvedEveryRound(t *testing.T) {
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 1, Opts: []kfake.Opt{kfake.SeedTopics(1, "t")}})
	_, port, err := net.SplitHostPort(f.Addrs()[0])
	require.NoError(t, err)
	var hosts []string
	cfg := quick(Config{Seeds: []string{"kafka.example:" + port, "gone.example:" + port}, Topics: []string{"t"}})
	cfg.Resolve = func(_ context.Context, host string) ([]string, error) {
		if host == "gone.example" {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return hosts, nil
	}
	d := mustNew(t, cfg)
	hosts = []string{"127.0.0.2"} // nobody listens there
	_, err = d.walk(t.Context(), hedge)
	require.ErrorContains(t, err, "gone.example: look up: lookup gone.example: no such host")
	require.ErrorContains(t, err, "127.0.0.2:"+port+": connect: connection refused")
	hosts = []string{"127.0.0.2", "127.0.0.3", "127.0.0.1"}
	a, err := d.walk(t.Context(), hedge)
	require.NoError(t, err)
	require.Equal(t, "node 0", a.from)

	// A look-up that hangs is given up with the try and does not hold back an address.
	cfg.Seeds = []string{"slow.example:" + port, f.Addrs()[0]}
	cfg.Resolve = func(ctx context.Context, _ string) ([]string, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_, err = mustNew(t, cfg).walk(t.Context(), hedge)
	require.NoError(t, err)
}

// Refusals are permanent: typed, found out by a few rounds at start-up, and told apart from mere trouble.
func TestFirstRefused(t *testing.T) {
	t.Run("unknown topic", func(t *testing.T) {
		f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(1, "t")}})
		_, err := mustNew(t, quick(Config{Seeds: f.Addrs(), Topics: []string{"t", "nope"}})).First(t.Context())
		require.ErrorIs(t, err, ErrUnknownTopic)
		var te *TopicsError
		require.ErrorAs(t, err, &te)
		require.Equal(t, []string{"nope"}, te.Topics)
	})
	t.Run("topic not ours to see", func(t *testing.T) {
		f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(1, "t")}})
		f.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
		_, err := mustNew(t, quick(Config{Seeds: f.Addrs(), Topics: []string{"t"}})).First(t.Context())
		require.ErrorIs(t, err, ErrDenied)
		require.True(t, Permanent(err))
	})
	t.Run("password", func(t *testing.T) {
		f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: []kfake.Opt{
			kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "right"),
		}})
		with := func(pass string) Config {
			return quick(Config{Seeds: f.Addrs(), Topics: []string{"t"}, Security: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: pass}.AsMechanism())}})
		}
		_, err := mustNew(t, with("right")).First(t.Context())
		require.NoError(t, err)
		refuseSASL(f.Cluster)
		_, err = mustNew(t, with("wrong")).First(t.Context())
		require.ErrorIs(t, err, ErrDenied)
		require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)
		require.ErrorContains(t, err, "SASL_AUTHENTICATION_FAILED")
	})
}

// refuseSASL makes brokers, all if none are named, answer as a real one does to wrong credentials; kfake itself would hang up.
func refuseSASL(c *kfake.Cluster, nodes ...int32) {
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if len(nodes) > 0 && !slices.Contains(nodes, c.CurrentNode()) {
			return nil, nil, false
		}
		resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("Authentication failed: Invalid username or password")
		return resp, nil, true
	})
}

// One broker that refuses does not speak for the others.
func TestOneBrokerRefuses(t *testing.T) {
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: []kfake.Opt{
		kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", "p"),
	}})
	refuseSASL(f.Cluster, 0, 1)
	d := mustNew(t, quick(Config{Seeds: f.Addrs(), Topics: []string{"t"}, Security: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: "p"}.AsMechanism())}}))
	for range 6 {
		_, err := d.walk(t.Context(), hedge)
		require.NoError(t, err)
	}
}

func TestFirstWithPattern(t *testing.T) {
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(2, "events-a", "events-b", "events-old", "other")}})
	require.NoError(t, f.Cluster.CreateTopic("events-internal", 1, map[string]string{"kfake.is_internal": "true"}))
	cfg := quick(Config{Seeds: f.Addrs(), Pattern: mustRegexp("^events-"), Exclude: []string{"/old/"}})
	snap, err := mustNew(t, cfg).First(t.Context())
	require.NoError(t, err)
	require.Equal(t, "events-a events-b", topicNames(snap))
	require.Equal(t, f.Cluster.TopicInfo("events-a").TopicID, [16]byte(snap.Topics["events-a"].ID))
	require.Len(t, snap.Addrs(), 3)

	// Nothing matches, which every broker has to say, also those that were slow before.
	cfg.Pattern = mustRegexp("nothing")
	d := mustNew(t, cfg)
	d.failing = map[string]bool{f.Addrs()[0]: true, f.Addrs()[1]: true}
	snap, err = d.First(t.Context())
	require.NoError(t, err)
	require.Empty(t, snap.Topics)
}

// Brokers from before topic ids (KIP-516, metadata 10) give none.
func TestBrokersWithoutTopicIDs(t *testing.T) {
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(2, "t"), kfake.MaxVersions(mustVersion("v2.7"))}})
	snap, err := mustNew(t, quick(Config{Seeds: f.Addrs(), Topics: []string{"t"}})).First(t.Context())
	require.NoError(t, err)
	require.True(t, snap.Topics["t"].ID.IsZero())
	require.Len(t, snap.Topics["t"].Partitions, 2)
}

func TestOneAtATime(t *testing.T) {
	d := mustNew(t, Config{Seeds: []string{"127.0.0.1:1"}, Topics: []string{"t"}})
	require.NoError(t, d.takeTurn())
	_, err := d.First(t.Context())
	require.ErrorIs(t, err, errRunning)
	require.ErrorIs(t, d.Run(t.Context(), func(Change) {}), errRunning)
	d.endTurn()
}

func TestRoundErrorText(t *testing.T) {
	re := &RoundError{Elapsed: time.Second, Budget: 10 * time.Second, ctx: context.DeadlineExceeded}
	for i := range 6 {
		re.Causes = append(re.Causes, Cause{Broker: fmt.Sprintf("b%d", i), Err: &tryError{"connect", fmt.Errorf("dial: %w", errors.New("no route"))}})
	}
	re.Causes[2].Err = fmt.Errorf("%w: %w", ErrDenied, &tryError{"request", kerr.SaslAuthenticationFailed})
	require.Equal(t, "no good answer from 6 brokers in 1s (budget 10s); b0: connect: no route; b1: connect: no route; "+
		"b2: denied: request: SASL_AUTHENTICATION_FAILED: SASL Authentication failed.; b3: connect: no route; and 2 more", re.Error())
	require.Equal(t, "b2", re.worst().Broker)
	require.ErrorIs(t, re, context.DeadlineExceeded)
	require.ErrorIs(t, re, kerr.SaslAuthenticationFailed)
	require.True(t, strings.Contains((&RoundError{}).worst().Err.Error(), "no broker"))
}
