package source

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A commit goes forward only, carries its metadata, and is read back with it. What has no commit is not in the answer.
func TestCommitAndReadBack(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world) {
		w.produce(topic, 10, 0, 1)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 10 && m.notes.at(part(1)) == 10 })
		g := m.notes.gen(part(0))
		commit := func(p int32, offset int64, meta string) error {
			return m.Commit(t.Context(), []Commit{{Partition: part(p), Generation: g, Offset: offset, LeaderEpoch: 0, Metadata: meta}})
		}
		require.NoError(t, m.Commit(t.Context(), []Commit{
			{Partition: part(0), Generation: g, Offset: 6, LeaderEpoch: 0, Metadata: "rollcall/1 a"},
			{Partition: part(1), Generation: g, Offset: 7, LeaderEpoch: -1, Metadata: "rollcall/1 b"},
		}))
		c, err := m.Committed(t.Context(), topic, []int32{0, 1, 2})
		require.NoError(t, err)
		require.Equal(t, map[int32]Committed{
			0: {Offset: 6, LeaderEpoch: 0, Metadata: "rollcall/1 a"}, 1: {Offset: 7, LeaderEpoch: -1, Metadata: "rollcall/1 b"},
		}, c)

		require.ErrorIs(t, commit(0, 5, "back"), ErrBehind)
		require.NoError(t, commit(0, 6, "same offset, newer table offset"))
		require.NoError(t, m.Start(part(0), g, 4, -1))
		require.NoError(t, commit(0, 4, "a new history begins behind the old one's end"))
		require.ErrorIs(t, commit(0, 3, "back"), ErrBehind)
		require.NoError(t, commit(0, 5, "goes on from there"))
		// One refused, the other goes.
		err = m.Commit(t.Context(), []Commit{
			{Partition: part(0), Generation: g + 1, Offset: 9}, {Partition: part(1), Generation: g, Offset: 9, Metadata: "went"},
		})
		require.Equal(t, map[Partition]error{part(0): ErrNotAssigned}, PartitionErrors(err))
		require.Error(t, commit(2, -1, ""))
		c, err = m.Committed(t.Context(), topic, []int32{0, 1})
		require.NoError(t, err)
		require.Equal(t, Committed{Offset: 5, LeaderEpoch: 0, Metadata: "goes on from there"}, c[0])
		require.Equal(t, "went", c[1].Metadata)
		require.Equal(t, 6.0, value(t, m.cfg.Metrics.commits.WithLabelValues(commitOK)))
		require.Equal(t, 4.0, value(t, m.cfg.Metrics.commits.WithLabelValues(commitRefused)))
		require.Equal(t, int64(5), m.Status().Partitions[0].Committed)
		require.NoError(t, m.Commit(t.Context(), nil))
	})
}

// The owner of partition 0 commits the first start of all partitions of the topic, also of those that others own; nobody else may.
func TestFirstStartIsCommittedForAllPartitions(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, w *world) {
		hold := func(_ *Config, n *notes) { n.onAssigned = nil }
		a, b := w.join(hold), w.join(hold)
		defer a.leave()
		defer b.leave()
		w.eventually(20*time.Second, "shared", func() bool { return a.notes.owned() == 2 && b.notes.owned() == 2 })
		owner, other := a, b
		if a.notes.gen(part(0)) == 0 {
			owner, other = b, a
		}
		var all []Commit
		for p := range int32(4) {
			all = append(all, Commit{Partition: part(p), Offset: int64(100 + p), LeaderEpoch: -1, Metadata: "start"})
		}
		require.Len(t, PartitionErrors(other.Commit(t.Context(), all)), 4)
		require.NoError(t, owner.Commit(t.Context(), all))
		c, err := other.Committed(t.Context(), topic, []int32{0, 1, 2, 3})
		require.NoError(t, err)
		require.Len(t, c, 4)
		require.Equal(t, Committed{Offset: 103, LeaderEpoch: -1, Metadata: "start"}, c[3])
		require.ErrorIs(t, owner.Commit(t.Context(), all[:1]), nil, "the same again")
	})
}

// Only a partition whose answer says so is committed; the rest is an error, and data goes on.
func TestFailedCommits(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 5, 0, 1)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 && m.notes.at(part(1)) == 5 })
		g := m.notes.gen(part(0))
		both := []Commit{{Partition: part(0), Generation: g, Offset: 5}, {Partition: part(1), Generation: g, Offset: 5}}

		w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed})
		err := m.Commit(t.Context(), both)
		require.Len(t, PartitionErrors(err), 1)
		require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
		require.Equal(t, 1.0, value(t, m.cfg.Metrics.commits.WithLabelValues(commitFailed)))

		// Not a word: it fails when its time is up, though the caller would wait for ever, and the next one works.
		var silent atomic.Bool
		silent.Store(true)
		w.kafka.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.kafka.KeepControl()
			return nil, nil, silent.Load()
		})
		begin := time.Now()
		err = m.Commit(t.Context(), both)
		require.Error(t, err)
		require.Equal(t, 10*time.Second, time.Since(begin))
		silent.Store(false)
		require.NoError(t, m.Commit(t.Context(), both))

		// Commits fail, records flow.
		h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
		require.ErrorIs(t, m.Commit(t.Context(), both), kerr.GroupAuthorizationFailed)
		w.produce(topic, 5, 0)
		w.eventually(3*time.Second, "more records", func() bool { return m.notes.at(part(0)) == 10 })
		h.Remove()
		require.NoError(t, m.Commit(t.Context(), both))
		require.Equal(t, g, m.notes.gen(part(0)))
	})
}

// An answer without a partition is not "no commit", nor is an unstable one.
func TestCommittedDoesNotGuess(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 2 })
		w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Partitions: []int32{1}, Err: kerr.UnstableOffsetCommit})
		_, err := m.Committed(t.Context(), topic, []int32{0, 1})
		require.ErrorIs(t, err, kerr.UnstableOffsetCommit)
		require.Contains(t, PartitionErrors(err), part(1))
		_, err = m.Committed(t.Context(), "unheard-of", []int32{0})
		require.Error(t, err)
		_, err = committedIn(topic, []int32{0, 1}, []kmsg.OffsetFetchResponseGroupTopic{{
			Topic: topic, Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{{Partition: 0, Offset: -1}},
		}})
		require.Contains(t, PartitionErrors(err), part(1))
		require.NotContains(t, PartitionErrors(err), part(0))
	})
}

// The coordinator goes away; commits work again without a restart, and no partition is given up for it.
func TestCoordinatorMoves(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.epochEnds(keepsAll)
		w.produce(topic, 5, 0, 1)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
		for range 3 {
			w.kafka.RehashCoordinators()
			w.eventually(30*time.Second, "commit", func() bool {
				g := m.notes.gen(part(0))
				return g != 0 && m.Commit(t.Context(), []Commit{{Partition: part(0), Generation: g, Offset: 5}}) == nil
			})
		}
		w.produce(topic, 5, 0)
		w.eventually(30*time.Second, "records", func() bool { return m.notes.at(part(0)) == 10 })
	})
}
