package source

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"rollcall/pkg/kafkatest"
)

// Real brokers, processes that are killed: what a source owes its owner holds there too. Each case has a topic and a group of its own.
func TestAgainstKafka(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	begin := func(t *testing.T, name string, partitions int32) *world {
		require.NoError(t, c.CreateTopic(ctx, name, partitions, map[string]string{"min.insync.replicas": "2"}))
		w := &world{t: t, log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), seeds: c.Addrs()}
		w.prod = w.client()
		t.Cleanup(w.prod.Close)
		return w
	}
	for _, protocol := range []string{ProtocolClassic, ProtocolConsumer} {
		t.Run("members come and go while a broker dies, "+protocol, func(t *testing.T) {
			membersAndAKilledBroker(t, begin(t, "moving-"+protocol, 6), c, "moving-"+protocol, protocol)
		})
	}
	t.Run("retention", func(t *testing.T) { realRetention(t, begin(t, "retention", 1), "retention") })
	t.Run("transactions", func(t *testing.T) { realTransactions(t, begin(t, "transactions", 1), "transactions") })
	t.Run("created anew", func(t *testing.T) { realCreatedAnew(t, begin(t, "anew", 1), "anew") })
}

// keeper is what a pipeline does, as simply as can be: it goes on at the commit and commits all it has when it is revoked.
func (w *world) keeper(topic, protocol string, seen *ledger) *member {
	return w.join(func(c *Config, n *notes) {
		c.Group, c.Topics, c.Protocol = topic, []string{topic}, protocol
		n.onAssigned = func(g uint64, ps []Partition) {
			for _, p := range ps {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					for ctx.Err() == nil && n.gen(p) == g {
						committed, err := n.m.Committed(ctx, topic, []int32{p.Partition})
						if err == nil {
							at, epoch := int64(0), int32(-1)
							if c, ok := committed[p.Partition]; ok {
								at, epoch = c.Offset, c.LeaderEpoch
							}
							_ = n.m.Start(p, g, at, epoch) // the assignment may be over
							return
						}
						sleep(ctx, 100*time.Millisecond)
					}
				}()
			}
		}
		n.onRecords = seen.take
		n.onRevoked = func(ctx context.Context, ps []Partition) {
			var cs []Commit
			for _, p := range ps {
				if at := n.at(p); at > 0 {
					cs = append(cs, Commit{Partition: p, Generation: n.gen(p), Offset: at, LeaderEpoch: n.epochOf(p), Metadata: "revoked"})
				}
			}
			if err := n.m.Commit(ctx, cs); err != nil {
				w.log.Warn("commit when revoked", zap.Error(err))
			}
		}
	})
}

// ledger counts how often each record was handed over.
type ledger struct {
	mu   sync.Mutex
	seen map[string]int
}

func (l *ledger) take(c Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range c.Records {
		l.seen[string(r.Value)]++
	}
}

func (l *ledger) missing(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return n - len(l.seen)
}

// membersAndAKilledBroker feeds records with known values while members come and go and a broker is killed and restarted. Every one must be
// handed over; again only what a commit that failed made so.
func membersAndAKilledBroker(t *testing.T, w *world, c *kafkatest.Cluster, topic, protocol string) {
	seen := &ledger{seen: map[string]int{}}
	stop, fed := make(chan struct{}), 0
	var feeding sync.WaitGroup
	feeding.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			r := &kgo.Record{Topic: topic, Partition: int32(i % 6), Value: fmt.Appendf(nil, "%d", i)}
			if err := w.prod.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				w.log.Error("feeding", zap.Error(err))
				return
			}
			fed++
		}
	})
	a := w.keeper(topic, protocol, seen)
	w.eventually(60*time.Second, "all are a's", func() bool { return a.notes.owned() == 6 })
	b := w.keeper(topic, protocol, seen)
	w.eventually(60*time.Second, "shared", func() bool { return a.notes.owned() == 3 && b.notes.owned() == 3 })
	require.NoError(t, c.Kill(1))
	time.Sleep(5 * time.Second)
	require.NoError(t, c.Restart(1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, c.WaitReady(ctx))
	require.NoError(t, c.WaitInSync(ctx))
	a.leave()
	w.eventually(60*time.Second, "all are b's", func() bool { return b.notes.owned() == 6 })
	close(stop)
	feeding.Wait()
	w.eventually(60*time.Second, "all records", func() bool { return seen.missing(fed) == 0 })
	b.leave()

	require.Empty(t, a.notes.of(EventGap))
	require.Empty(t, a.notes.of(EventTruncated))
	require.Empty(t, b.notes.of(EventTruncated))
	require.False(t, a.notes.overlapped || b.notes.overlapped, "handler calls overlapped")
	repeated := 0
	for _, n := range seen.seen {
		repeated += n - 1
	}
	t.Logf("%d records, %d of them again; rebuilds %d and %d", fed, repeated, a.Status().Rebuilds, b.Status().Rebuilds)
}

// realRetention: DeleteRecords overtakes the position.
func realRetention(t *testing.T, w *world, topic string) {
	w.produce(topic, 100, 0)
	m := w.join(func(c *Config, n *notes) { c.Group, c.Topics, n.onAssigned = topic, []string{topic}, nil })
	defer m.leave()
	p := Partition{topic, 0}
	w.eventually(30*time.Second, "assigned", func() bool { return m.notes.owned() == 1 })
	adm := kadm.NewClient(w.prod)
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 60, -1)
	_, err := adm.DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	require.NoError(t, m.Start(p, m.notes.gen(p), 10, 0))
	w.eventually(30*time.Second, "gap", func() bool { return len(m.notes.of(EventGap)) == 1 })
	e := m.notes.of(EventGap)[0]
	require.Equal(t, []int64{10, 60}, []int64{e.From, e.To})
	require.NoError(t, m.Start(p, e.Generation, e.To, -1))
	w.eventually(30*time.Second, "records", func() bool { return m.notes.at(p) == 100 })
	require.Equal(t, sequence(60, 100), m.notes.read(p))

	require.NoError(t, m.Start(p, e.Generation, 5000, -1))
	w.eventually(30*time.Second, "truncated", func() bool { return len(m.notes.of(EventTruncated)) == 1 })
	require.Equal(t, int64(100), m.notes.of(EventTruncated)[0].To)
	require.NoError(t, m.Start(p, e.Generation, 100, -1))
	w.produce(topic, 1, 0)
	w.eventually(30*time.Second, "goes on", func() bool { return m.notes.at(p) == 101 })
}

// realTransactions: the position gets past aborted records and markers, an open transaction holds the end back, commits keep their metadata.
func realTransactions(t *testing.T, w *world, topic string) {
	m := w.join(func(c *Config, _ *notes) { c.Group, c.Topics = topic, []string{topic} })
	defer m.leave()
	p := Partition{topic, 0}
	tx := w.client(kgo.TransactionalID(topic))
	defer tx.Close()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, tx.BeginTransaction())
		require.NoError(t, tx.ProduceSync(t.Context(), &kgo.Record{Topic: topic}, &kgo.Record{Topic: topic}).FirstErr())
		require.NoError(t, tx.EndTransaction(t.Context(), commit))
	}
	// 0 1 marker 2 | 3 4 aborted, marker 5
	w.eventually(30*time.Second, "the end", func() bool { return m.notes.at(p) == 6 })
	require.Equal(t, sequence(0, 2), m.notes.read(p))
	require.NoError(t, tx.BeginTransaction())
	require.NoError(t, tx.ProduceSync(t.Context(), &kgo.Record{Topic: topic}).FirstErr())
	b, err := m.Bounds(t.Context(), []Partition{p})
	require.NoError(t, err)
	require.Equal(t, []int64{0, 7, 6}, []int64{b[p].Start, b[p].High, b[p].Stable})
	at, err := m.OffsetAt(t.Context(), []Partition{p}, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, int64(6), at[p])
	require.NoError(t, tx.EndTransaction(t.Context(), kgo.TryAbort))

	g := m.notes.gen(p)
	require.NoError(t, m.Commit(t.Context(), []Commit{{Partition: p, Generation: g, Offset: 6, LeaderEpoch: b[p].LeaderEpoch, Metadata: "rollcall/1 x"}}))
	require.ErrorIs(t, m.Commit(t.Context(), []Commit{{Partition: p, Generation: g, Offset: 5}}), ErrBehind)
	committed, err := m.Committed(t.Context(), topic, []int32{0})
	require.NoError(t, err)
	require.Equal(t, Committed{Offset: 6, LeaderEpoch: b[p].LeaderEpoch, Metadata: "rollcall/1 x"}, committed[0])
	_, below, err := m.Divergence(t.Context(), p, b[p].LeaderEpoch, 6)
	require.NoError(t, err)
	require.False(t, below)
	end, below, err := m.Divergence(t.Context(), p, b[p].LeaderEpoch, 1000)
	require.NoError(t, err)
	require.True(t, below)
	require.GreaterOrEqual(t, end, int64(7))
}

// realCreatedAnew: the topic is deleted and created again under its name.
func realCreatedAnew(t *testing.T, w *world, topic string) {
	w.produce(topic, 5, 0)
	m := w.join(func(c *Config, _ *notes) { c.Group, c.Topics = topic, []string{topic} })
	defer m.leave()
	p := Partition{topic, 0}
	w.eventually(30*time.Second, "records", func() bool { return m.notes.at(p) == 5 })
	adm := kadm.NewClient(w.prod)
	_, err := adm.DeleteTopic(t.Context(), topic)
	require.NoError(t, err)
	w.eventually(30*time.Second, "created", func() bool {
		_, err := adm.CreateTopic(t.Context(), 1, 3, nil, topic)
		return err == nil
	})
	w.prod.PurgeTopicsFromClient(topic)
	w.eventually(30*time.Second, "written", func() bool {
		return w.prod.ProduceSync(t.Context(), &kgo.Record{Topic: topic}).FirstErr() == nil
	})
	w.eventually(60*time.Second, "noticed", func() bool { return len(m.notes.of(EventUnknownTopicID)) > 0 })
	require.Len(t, m.notes.read(p), 5)
	require.NoError(t, m.ReplaceTopic(t.Context(), topic))
	w.eventually(60*time.Second, "the new one", func() bool { return m.notes.at(p) == 1 })
	require.Equal(t, append(sequence(0, 5), 0), m.notes.read(p))
}
