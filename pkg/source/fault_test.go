package source

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Retention overtakes a partition that is paused: the gap is said with its exact bounds, nothing is handed over until the owner decides.
func TestRetentionGap(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 20, 0, 1)
		m := w.join(func(_ *Config, n *notes) { n.onAssigned = nil })
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 2 })
		g := m.notes.gen(part(0))
		require.NoError(t, w.kafka.DeleteRecords(topic, 0, 15))
		require.NoError(t, m.Start(part(0), g, 4, 0))
		require.NoError(t, m.Start(part(1), g, 0, 0))
		w.eventually(5*time.Second, "gap", func() bool { return len(m.notes.of(EventGap)) > 0 })
		require.Equal(t, []Event{{Kind: EventGap, Partition: part(0), Generation: g, From: 4, To: 15, Divergence: -1}}, m.notes.of(EventGap))
		time.Sleep(10 * time.Second)
		require.Len(t, m.notes.of(EventGap), 1)
		require.Empty(t, m.notes.read(part(0)))
		require.Contains(t, m.Status().Partitions[0].Paused, reasonPosition)
		require.Equal(t, int64(20), m.notes.at(part(1)))
		require.NoError(t, m.Start(part(0), g, 15, -1))
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 20 })
		require.Equal(t, sequence(15, 20), m.notes.read(part(0)))
	})
}

// While records flow, retention overtakes the position; the log does not end the partition's reading, the gap is exact.
func TestRetentionGapWhileReading(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		m := w.join(func(_ *Config, n *notes) {
			n.onEvent = func(e Event) {
				if e.Kind == EventGap {
					require.NoError(t, n.m.Start(e.Partition, e.Generation, e.To, -1))
				}
			}
		})
		defer m.leave()
		w.produce(topic, 5, 0)
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
		m.Pause(part(0), m.notes.gen(part(0)), "buffer")
		time.Sleep(2 * time.Second)
		w.produce(topic, 30, 0)
		require.NoError(t, w.kafka.DeleteRecords(topic, 0, 25))
		m.Resume(part(0), m.notes.gen(part(0)), "buffer")
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 35 })
		require.Equal(t, append(sequence(0, 5), sequence(25, 35)...), m.notes.read(part(0)))
		es := m.notes.of(EventGap)
		require.Len(t, es, 1)
		require.Equal(t, []int64{5, 25}, []int64{es[0].From, es[0].To})
	})
}

// A position beyond the end of the log: the log was truncated, or made anew.
func TestPositionBeyondTheEnd(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		w.produce(topic, 10, 0)
		m := w.join(func(_ *Config, n *notes) {
			n.onAssigned = func(g uint64, ps []Partition) { require.NoError(t, n.m.Start(ps[0], g, 1000, -1)) }
		})
		defer m.leave()
		w.eventually(5*time.Second, "truncated", func() bool { return len(m.notes.of(EventTruncated)) > 0 })
		e := m.notes.of(EventTruncated)[0]
		require.Equal(t, []int64{1000, 10, -1}, []int64{e.From, e.To, e.Divergence})
		require.NoError(t, m.Start(part(0), e.Generation, 7, -1))
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 10 })
		require.Equal(t, sequence(7, 10), m.notes.read(part(0)))
	})
}

// A new leader's log ends below what was read: the divergence is said before any record of the new log, also if the owner then goes on at
// the very position the client believes to be at.
func TestTruncatedByAnElection(t *testing.T) {
	for name, next := range map[string]int64{"at the divergence": 6, "where it was": 10} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, w *world) {
				w.epochEnds(6)
				w.produce(topic, 10, 0)
				m := w.join(nil)
				defer m.leave()
				w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 10 })
				require.NoError(t, w.kafka.MoveTopicPartition(topic, 0, 1-w.kafka.LeaderFor(topic, 0)))
				w.eventually(20*time.Second, "truncated", func() bool { return len(m.notes.of(EventTruncated)) > 0 })
				time.Sleep(5 * time.Second)
				es := m.notes.of(EventTruncated)
				require.Len(t, es, 1)
				require.Equal(t, []int64{10, 6, 6}, []int64{es[0].From, es[0].To, es[0].Divergence})
				require.Equal(t, sequence(0, 10), m.notes.read(part(0)))
				at, below, err := m.Divergence(t.Context(), part(0), 0, 10)
				require.NoError(t, err)
				require.True(t, below)
				require.Equal(t, int64(6), at)

				// With the epoch of the last record the client takes the old position for its own.
				require.NoError(t, m.Start(part(0), es[0].Generation, next, 0))
				w.produce(topic, 3, 0)
				w.eventually(5*time.Second, "goes on", func() bool { return m.notes.at(part(0)) == 13 })
				require.Equal(t, append(sequence(0, 10), sequence(next, 13)...), m.notes.read(part(0)))
				require.Len(t, m.notes.of(EventTruncated), 1)
			})
		})
	}
}

// Reading one partition is forbidden for a while: said once, the other flows, and it goes on by itself without losing a record.
func TestDeniedAndGivenBack(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 5, 0, 1)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 && m.notes.at(part(1)) == 5 })
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		w.eventually(5*time.Second, "denied", func() bool { return len(m.notes.of(EventDenied)) > 0 })
		w.produce(topic, 5, 0, 1)
		time.Sleep(20 * time.Second)
		require.Equal(t, int64(10), m.notes.at(part(1)))
		require.Equal(t, int64(5), m.notes.at(part(0)))
		require.Len(t, m.notes.of(EventDenied), 1)
		require.Empty(t, m.notes.of(EventRecovered))
		require.LessOrEqual(t, h.Hits(), 20, "tries are paced")
		require.Equal(t, "denied", m.Status().Partitions[0].Trouble)
		require.ErrorIs(t, m.notes.of(EventDenied)[0].Err, kerr.TopicAuthorizationFailed)
		h.Remove()
		w.eventually(10*time.Second, "recovered", func() bool { return m.notes.at(part(0)) == 10 && len(m.notes.of(EventRecovered)) == 1 })
		require.Equal(t, part(0), m.notes.of(EventRecovered)[0].Partition)
		require.Equal(t, sequence(0, 10), m.notes.read(part(0)))
		require.Empty(t, m.Status().Partitions[0].Trouble)
	})
}

// The same with nothing to read: it recovers without a record.
func TestDeniedIdlePartitionRecovers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 1 })
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		w.eventually(5*time.Second, "denied", func() bool { return len(m.notes.of(EventDenied)) > 0 })
		h.Remove()
		w.eventually(30*time.Second, "recovered", func() bool { return len(m.notes.of(EventRecovered)) == 1 })
		w.produce(topic, 1, 0)
		w.eventually(5*time.Second, "record", func() bool { return m.notes.at(part(0)) == 1 })
		require.Len(t, m.notes.of(EventDenied), 1)
	})
}

// A topic is deleted and created anew: said once and paced; replaced, it is read from its beginning under a new generation.
func TestTopicCreatedAnew(t *testing.T) {
	for _, how := range []string{"names", "pattern"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, w *world) {
				w.produce(topic, 5, 0)
				m := w.join(func(c *Config, _ *notes) {
					if how == "pattern" {
						c.Topics, c.Pattern = nil, regexpT
					}
				})
				defer m.leave()
				w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
				g := m.notes.gen(part(0))
				require.NoError(t, w.kafka.DeleteTopic(topic))
				require.NoError(t, w.kafka.CreateTopic(topic, 1, nil))
				w.prod.PurgeTopicsFromClient(topic)
				w.produce(topic, 3, 0)
				w.eventually(30*time.Second, "noticed", func() bool { return len(m.notes.of(EventUnknownTopicID)) > 0 })
				time.Sleep(5 * time.Second)
				require.Len(t, m.notes.of(EventUnknownTopicID), 1)
				require.Equal(t, sequence(0, 5), m.notes.read(part(0)), "nothing of the new topic under the old generation")
				require.NoError(t, m.ReplaceTopic(t.Context(), topic))
				require.ErrorIs(t, m.Commit(t.Context(), []Commit{{Partition: part(0), Generation: g, Offset: 5}}), ErrNotAssigned)
				w.eventually(30*time.Second, "the new one", func() bool { return m.notes.at(part(0)) == 3 })
				require.Greater(t, m.notes.gen(part(0)), g)
				revoked, lost := m.notes.gone()
				require.Equal(t, []Partition{part(0)}, append(revoked, lost...), "the old assignment was ended, once")
				require.Equal(t, append(sequence(0, 5), sequence(0, 3)...), m.notes.read(part(0)))
				require.NoError(t, m.Commit(t.Context(), []Commit{{Partition: part(0), Generation: m.notes.gen(part(0)), Offset: 3}}))
				require.ErrorIs(t, m.Commit(t.Context(), []Commit{{Partition: part(0), Generation: g, Offset: 5}}), ErrNotAssigned)
			})
		})
	}
}

// Control records move the position, past an aborted tail too, and aborted records are not handed over.
func TestAbortedTail(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		m := w.join(nil)
		defer m.leave()
		w.produce(topic, 2, 0)
		tx := w.client(kgo.TransactionalID("tx"))
		defer tx.Close()
		for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			require.NoError(t, tx.BeginTransaction())
			for range 3 {
				require.NoError(t, tx.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr())
			}
			time.Sleep(3 * time.Second)
			require.NoError(t, tx.EndTransaction(t.Context(), commit))
		}
		// 0 1 | 2 3 4 marker 5 | 6 7 8 aborted, marker 9
		w.eventually(5*time.Second, "the end", func() bool { return m.notes.at(part(0)) == 10 })
		require.Equal(t, sequence(0, 5), m.notes.read(part(0)))
		require.Equal(t, 2, m.notes.control[part(0)])
		require.Empty(t, m.notes.of(EventGap))
		require.Empty(t, m.notes.of(EventTruncated))
		b, err := m.Bounds(t.Context(), []Partition{part(0)})
		require.NoError(t, err)
		require.Equal(t, Bounds{Start: 0, High: 10, Stable: 10, LeaderEpoch: 0}, b[part(0)])
	})
}

// The member is thrown out of the group: lost, said, joined again, read on.
func TestThrownOutOfTheGroup(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedInstanceID} {
		t.Run(err.Message, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, w *world) {
				w.produce(topic, 5, 0)
				m := w.join(nil)
				defer m.leave()
				w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
				g := m.notes.gen(part(0))
				w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, TopLevel: true, Err: err})
				w.eventually(10*time.Second, "said", func() bool { return len(m.notes.of(EventGroupLost)) == 1 })
				_, lost := m.notes.gone()
				require.Equal(t, []Partition{part(0)}, lost)
				w.eventually(20*time.Second, "back", func() bool { return m.notes.gen(part(0)) > g })
				w.eventually(5*time.Second, "read anew", func() bool { return len(m.notes.read(part(0))) == 10 })
			})
		})
	}
}

// A leader that dies is said once, with its broker; the other's partition flows; it is over when the broker is back.
func TestLeaderGoes(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.epochEnds(keepsAll)
		w.produce(topic, 5, 0, 1)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 && m.notes.at(part(1)) == 5 })
		node := w.kafka.LeaderFor(topic, 0)
		if w.kafka.LeaderFor(topic, 1) == node {
			require.NoError(t, w.kafka.MoveTopicPartition(topic, 1, 1-node))
		}
		// The broker cuts every fetch.
		var down atomic.Bool
		down.Store(true)
		w.kafka.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.kafka.KeepControl()
			if down.Load() && w.kafka.CurrentNode() == node {
				return nil, context.DeadlineExceeded, true
			}
			return nil, nil, false
		})
		w.eventually(5*time.Second, "said", func() bool { return len(m.notes.of(EventLeader)) == 1 })
		w.produce(topic, 5, 1)
		w.eventually(3*time.Second, "the other", func() bool { return m.notes.at(part(1)) == 10 })
		require.Len(t, m.notes.of(EventLeader), 1)
		require.ErrorContains(t, m.notes.of(EventLeader)[0].Err, "broker "+strconv.Itoa(int(node)))
		require.Empty(t, m.notes.of(EventRecovered))
		down.Store(false)
		w.produce(topic, 5, 0)
		w.eventually(10*time.Second, "back", func() bool { return m.notes.at(part(0)) == 10 })
		require.Equal(t, sequence(0, 10), m.notes.read(part(0)))
		require.Len(t, m.notes.of(EventRecovered), 1)
	})
}

// A client that fetches nothing while the leader has records is replaced, within the timeout, and the new one reads on.
func TestStalledClientIsReplaced(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 5, 0)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
		client, err := m.current()
		require.NoError(t, err)
		client.PauseFetchPartitions(map[string][]int32{topic: {0, 1}}) // behind the source's back
		time.Sleep(3 * time.Minute)
		require.Zero(t, m.Status().Rebuilds, "nothing to read is no stall")
		w.produce(topic, 5, 0)
		time.Sleep(65 * time.Second)
		require.Equal(t, 1, m.Status().Rebuilds)
		w.eventually(time.Minute, "all", func() bool { return m.notes.at(part(0)) == 10 })
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, m.Status().Rebuilds)
	})
}

// A client that keeps asking the wrong broker, while the right one answers, is replaced too.
func TestClientThatAsksTheWrongBrokerIsReplaced(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		w.produce(topic, 5, 0)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: -1})
		w.produce(topic, 5, 0)
		time.Sleep(50 * time.Second)
		require.Zero(t, m.Status().Rebuilds)
		require.LessOrEqual(t, h.Hits(), 40, "paced")
		time.Sleep(20 * time.Second)
		require.Equal(t, 1, m.Status().Rebuilds)
		h.Remove()
		w.eventually(20*time.Second, "records", func() bool { return m.notes.at(part(0)) == 10 })
	})
}

// What replacing does not cure is not tried again and again.
func TestStallsAreBackedOff(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "started", func() bool { return m.notes.owned() == 1 && len(m.Status().Partitions[0].Paused) == 0 })
		for range 25 { // minutes
			m.stalledAt(part(0), mark{generation: m.notes.gen(part(0))})
			time.Sleep(time.Minute)
		}
		replaced := m.Status().Rebuilds
		require.GreaterOrEqual(t, replaced, 3)
		require.LessOrEqual(t, replaced, 6)
	})
}
