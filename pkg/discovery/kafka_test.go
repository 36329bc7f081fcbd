package discovery

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"rollcall/pkg/kafkatest"
)

// running is a discoverer that runs against real Kafka and hands its changes out.
func running(ctx context.Context, t *testing.T, d *Discoverer) <-chan Change {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan Change, 1000)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, func(c Change) { changes <- c }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return changes
}

// until waits for a change that fits.
func until(ctx context.Context, t *testing.T, changes <-chan Change, what string, fits func(Change) bool) Change {
	t.Helper()
	for {
		select {
		case c := <-changes:
			if fits(c) {
				return c
			}
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

// What real brokers answer to a killed leader, a frozen broker, a deleted and a re-created topic.
func TestRealKafka(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Addrs()...), kgo.DisableClientMetrics(), kgo.DialTimeout(time.Second))
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	require.NoError(t, k.CreateTopic(ctx, "whole", 6, nil))
	_, err = adm.CreateTopic(ctx, 3, 1, nil, "single") // one replica each: its broker gone, nobody leads
	require.NoError(t, err)
	require.NoError(t, k.WaitInSync(ctx))

	cfg := quick(Config{Seeds: k.Addrs(), Pattern: mustRegexp(".")})
	d := mustNew(t, cfg)
	snap, err := d.First(ctx)
	require.NoError(t, err)
	require.Equal(t, k.ClusterID(), snap.ClusterID)
	require.False(t, snap.Topics["whole"].ID.IsZero())
	changes := running(ctx, t, d)
	// The broker that answered may not have heard of a topic made a moment ago.
	snap = until(ctx, t, changes, "both topics", func(c Change) bool { return len(c.Snapshot.Topics["single"].Partitions) == 3 }).Snapshot
	require.Equal(t, "single whole", topicNames(snap), "no internal topics")

	lost := int32(-1)
	for p, part := range snap.Topics["single"].Partitions {
		if part.Leader == 1 {
			lost = p
		}
	}
	require.GreaterOrEqual(t, lost, int32(0), "three partitions on three brokers")
	require.NoError(t, k.Kill(1))
	until(ctx, t, changes, "leaderless", func(c Change) bool {
		return c.Snapshot.Topics["single"].Partitions[lost].State == Leaderless
	})
	require.NotZero(t, d.Status().OldestLeaderless)
	for _, part := range d.Snapshot().Topics["whole"].Partitions {
		require.NotEqual(t, Missing, part.State)
	}
	require.NoError(t, k.Restart(1))
	until(ctx, t, changes, "led again", func(c Change) bool { return c.Snapshot.Topics["single"].Partitions[lost].State == Live })
	require.NoError(t, k.WaitReady(ctx))
	require.NoError(t, k.WaitInSync(ctx))

	// A frozen broker, the others' answers go on.
	require.NoError(t, k.Stop(2))
	for range 5 {
		until(ctx, t, changes, "an answer", func(Change) bool { return true })
	}
	require.Equal(t, "closed", d.Status().Breaker)
	cold := mustNew(t, cfg)
	_, err = cold.First(ctx)
	require.NoError(t, err)
	require.NoError(t, k.Continue(2))
	require.NoError(t, k.WaitReady(ctx))

	_, err = adm.CreatePartitions(ctx, 3, "whole")
	require.NoError(t, err)
	until(ctx, t, changes, "grown", func(c Change) bool { return len(c.Snapshot.Topics["whole"].Partitions) == 9 })

	old := d.Snapshot().Topics["whole"].ID
	_, err = adm.DeleteTopic(ctx, "whole")
	require.NoError(t, err)
	until(ctx, t, changes, "gone", func(c Change) bool { _, ok := c.Snapshot.Topics["whole"]; return !ok })
	require.NoError(t, k.CreateTopic(ctx, "whole", 2, nil))
	c := until(ctx, t, changes, "re-created", func(c Change) bool { return len(c.Recreated) > 0 })
	require.Equal(t, old, c.Recreated[0].OldID)
	require.NotEqual(t, old, c.Recreated[0].NewID)
	require.Len(t, c.Snapshot.Topics["whole"].Partitions, 2)
}

// What a real broker answers to wrong credentials, and to a topic that must not be described, by name and by pattern.
func TestRealKafkaRefuses(t *testing.T) {
	as := func(user, pass string) []kgo.Opt {
		return []kgo.Opt{kgo.SASL(plain.Auth{User: user, Pass: pass}.AsMechanism())}
	}
	k := kafkatest.Start(t, kafkatest.Options{
		Brokers: 1, Client: as("admin", "admin"),
		Properties: map[string]string{
			"listener.security.protocol.map":       "BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
			"sasl.enabled.mechanisms":              "PLAIN",
			"sasl.mechanism.inter.broker.protocol": "PLAIN",
			"listener.name.broker.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required ` +
				`username="admin" password="admin" user_admin="admin" user_reader="right";`,
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:admin;User:ANONYMOUS", // the controller listener has no users
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, k.CreateTopic(ctx, "t", 3, nil))
	named := quick(Config{Seeds: k.Addrs(), Topics: []string{"t"}, Security: as("reader", "right")})

	wrong := named
	wrong.Security = as("reader", "wrong")
	_, err := mustNew(t, wrong).First(ctx)
	require.ErrorIs(t, err, ErrDenied)
	require.ErrorIs(t, err, kerr.SaslAuthenticationFailed)

	_, err = mustNew(t, named).First(ctx)
	require.ErrorIs(t, err, ErrDenied)
	var te *TopicsError
	require.ErrorAs(t, err, &te)
	require.Equal(t, []string{"t"}, te.Topics)

	cl, err := kgo.NewClient(append(as("admin", "admin"), kgo.SeedBrokers(k.Addrs()...), kgo.DisableClientMetrics())...)
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	acl := kadm.NewACLs().Topics("t").ResourcePatternType(kmsg.ACLResourcePatternTypeLiteral).
		Operations(kmsg.ACLOperationDescribe).Allow("User:reader").AllowHosts("*")
	_, err = adm.CreateACLs(ctx, acl)
	require.NoError(t, err)
	pattern := named
	pattern.Topics, pattern.Pattern = nil, mustRegexp("^t$")
	d := mustNew(t, pattern)
	require.Eventually(t, func() bool {
		snap, err := d.First(ctx)
		return err == nil && len(snap.Topics["t"].Partitions) == 3
	}, time.Minute, 100*time.Millisecond)

	// Taken away again: a list just leaves the topic out, and yet it is not taken for gone.
	_, err = adm.DeleteACLs(ctx, acl)
	require.NoError(t, err)
	changes := running(ctx, t, d)
	for range 5 {
		c := until(ctx, t, changes, "refused", func(c Change) bool { return len(c.Denied) > 0 })
		require.Equal(t, Live, c.Snapshot.Topics["t"].Partitions[0].State)
	}
	require.ErrorIs(t, d.Status().Err, ErrDenied)
	require.Equal(t, "closed", d.Status().Breaker)
}
