package source

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds and times of partitions, owned or not; an open transaction holds the stable offset back; one failure leaves the others.
func TestBoundsAndTimes(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world) {
		begin := time.Now()
		var rs []*kgo.Record
		for i := range 10 {
			rs = append(rs, &kgo.Record{Topic: topic, Timestamp: begin.Add(time.Duration(i) * time.Minute)})
		}
		require.NoError(t, w.prod.ProduceSync(t.Context(), rs...).FirstErr())
		require.NoError(t, w.kafka.DeleteRecords(topic, 0, 2))
		tx := w.client(kgo.TransactionalID("tx"))
		defer tx.Close()
		require.NoError(t, tx.BeginTransaction())
		require.NoError(t, tx.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Timestamp: begin.Add(time.Hour)}).FirstErr())

		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 3 })
		all := []Partition{part(0), part(1), part(2)}
		b, err := m.Bounds(t.Context(), all)
		require.NoError(t, err)
		require.Equal(t, Bounds{Start: 2, High: 11, Stable: 10, LeaderEpoch: 0}, b[part(0)])
		require.Equal(t, int64(0), b[part(1)].High)
		require.Len(t, b, 3)

		for at, want := range map[time.Time]int64{
			begin.Add(-time.Hour): 2, begin.Add(3 * time.Minute): 3, begin.Add(150 * time.Second): 3, begin.Add(9*time.Minute + 1): 10,
			begin.Add(2 * time.Hour): 10, time.Unix(-5, 0): 2,
		} {
			found, err := m.OffsetAt(t.Context(), all[:2], at)
			require.NoError(t, err)
			require.Equal(t, map[Partition]int64{part(0): want, part(1): 0}, found, "at %s", at.Sub(begin))
		}

		w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		b, err = m.Bounds(t.Context(), append(all, part(2), Partition{"unheard-of", 0}))
		require.Len(t, b, 2)
		failed := PartitionErrors(err)
		require.Len(t, failed, 2)
		require.ErrorIs(t, failed[part(1)], kerr.TopicAuthorizationFailed)
		require.Error(t, failed[Partition{"unheard-of", 0}])
	})
}

func TestDivergence(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		w.produce(topic, 10, 0)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 10 })
		for _, c := range []struct {
			epoch  int32
			offset int64
			at     int64
			below  bool
		}{{0, 10, -1, false}, {0, 11, 10, true}, {-1, 11, -1, false}, {9, 5, -1, false}} {
			at, below, err := m.Divergence(t.Context(), part(0), c.epoch, c.offset)
			require.NoError(t, err)
			require.Equal(t, c.below, below, "%+v", c)
			require.Equal(t, c.at, at, "%+v", c)
		}
		_, _, err := m.Divergence(t.Context(), part(7), 0, 1)
		require.Error(t, err)
	})
}

// Topics that match are found, excluded ones are not; a topic is added by name; partitions that are added come as new assignments.
func TestWhatIsRead(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		m := w.join(func(c *Config, _ *notes) {
			c.Topics, c.Pattern, c.Exclude = nil, regexpT2, []string{"^t-bad$"}
		})
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 1 })
		require.NoError(t, w.kafka.CreateTopic("t-new", 2, nil))
		require.NoError(t, w.kafka.CreateTopic("t-bad", 2, nil))
		require.NoError(t, w.kafka.CreateTopic("other", 2, nil))
		m.Refresh()
		w.eventually(10*time.Second, "the new one", func() bool { return m.notes.owned() == 3 })
		g := m.notes.gen(part(0))
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic, 3
		req.Topics = append(req.Topics, rt)
		_, err := req.RequestWith(t.Context(), w.prod)
		require.NoError(t, err)
		m.Refresh()
		w.eventually(10*time.Second, "the new partitions", func() bool { return m.notes.owned() == 5 })
		require.Equal(t, g, m.notes.gen(part(0)), "what was there goes on")
		w.produce(topic, 2, 0, 1, 2)
		w.eventually(10*time.Second, "records", func() bool { return m.notes.at(part(2)) == 2 && m.notes.at(part(0)) == 2 })
		time.Sleep(time.Minute)
		require.Equal(t, 5, m.notes.owned())

		byName := w.join(func(c *Config, _ *notes) { c.Group = "by-name" })
		defer byName.leave()
		w.eventually(10*time.Second, "assigned", func() bool { return byName.notes.owned() == 3 })
		byName.AddTopics("other", topic)
		w.eventually(10*time.Second, "added", func() bool { return byName.notes.owned() == 5 })
		byName.Rebuild("must not forget it")
		w.eventually(20*time.Second, "added", func() bool { return byName.notes.owned() == 5 && byName.Status().Rebuilds == 1 })
	})
}

// While no broker is there, none is dialled more than once per second.
func TestDialsWhileAllAreAway(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		var up atomic.Bool
		up.Store(true)
		var dials atomic.Int64
		m := w.join(func(c *Config, _ *notes) {
			c.Security = []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !up.Load() {
					dials.Add(1)
					return nil, syscall.ECONNREFUSED
				}
				return w.net.DialContext(ctx, network, addr)
			})}
		})
		defer m.leave()
		w.produce(topic, 5, 0)
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
		up.Store(false)
		for _, away := range []time.Duration{time.Minute, 3 * time.Minute} {
			before := dials.Load()
			m.Rebuild("drops its connections")
			time.Sleep(away)
			t.Log("dials", dials.Load()-before, "in", away)
			require.Less(t, dials.Load()-before, int64(2*away/time.Second))
		}
		up.Store(true)
		w.eventually(10*time.Second, "back", func() bool { return m.notes.owned() == 1 })
	})
}

// Only the addresses that discovery finds later are any good.
func TestSeedsAreUpdated(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		m := w.join(func(c *Config, _ *notes) { c.Seeds = []string{"localhost:1"} })
		defer m.leave()
		time.Sleep(time.Minute)
		require.Zero(t, m.notes.owned())
		require.True(t, m.Status().Connected)
		require.NoError(t, m.UpdateSeeds(w.kafka.ListenAddrs()))
		w.eventually(30*time.Second, "assigned", func() bool { return m.notes.owned() == 1 })
		require.NoError(t, m.UpdateSeeds(nil))
	})
}
