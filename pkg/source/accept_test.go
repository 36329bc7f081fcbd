package source

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the client should never do is not passed on: a jump over what retention removed, a step back, records before a start.
func TestAcceptChecksThePosition(t *testing.T) {
	records := func(offsets ...int64) (rs []*kgo.Record) {
		for _, o := range offsets {
			rs = append(rs, &kgo.Record{Offset: o, Key: []byte("k"), Value: []byte("vv"), LeaderEpoch: 3})
		}
		return rs
	}
	for name, c := range map[string]struct {
		records   []*kgo.Record
		logStart  int64
		restoring bool
		kind      EventKind
		to        int64
		handed    bool
	}{
		"contiguous":               {records: records(10, 11), handed: true},
		"hole of compaction":       {records: records(12, 15), handed: true},
		"hole that retention made": {records: records(40), logStart: 30, kind: EventGap, to: 30},
		"retention just behind":    {records: records(10), logStart: 10, handed: true},
		"a step back":              {records: records(7, 8), kind: EventTruncated, to: 7},
		"not started":              {records: records(10), restoring: true},
		"nothing":                  {},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Config{Seeds: []string{"a:1"}, Group: "g", Topics: []string{topic}}, nil)
			require.NoError(t, err)
			st := newPartState(part(0), 5, s.cfg.Metrics)
			st.next = 10
			if c.restoring {
				st.reasons[reasonRestoring] = st.progress
			}
			s.parts[part(0)] = st
			chunk, event := s.accept(part(0), &kgo.FetchPartition{Records: c.records, HighWatermark: 60, LastStableOffset: 50, LogStartOffset: c.logStart})
			if c.kind != 0 {
				require.Equal(t, c.kind, event.Kind)
				require.Equal(t, []int64{10, c.to, -1}, []int64{event.From, event.To, event.Divergence})
				require.Equal(t, uint64(5), event.Generation)
				require.False(t, st.handing(), "it waits for Start")
				require.Equal(t, int64(10), st.next)
				return
			}
			require.Nil(t, event)
			if !c.handed {
				require.Empty(t, chunk.Records)
				require.Equal(t, int64(10), st.next)
				return
			}
			next := c.records[len(c.records)-1].Offset + 1
			require.Equal(t, Chunk{
				Partition: part(0), Generation: 5, Records: c.records, Bytes: 3 * int64(len(c.records)), From: 10, Next: next,
				HighWatermark: 60, StableOffset: 50, LogStart: c.logStart,
			}, chunk)
			require.Equal(t, float64(50-next), value(t, st.lag))
		})
	}
}

// The client asks for positions again when a rebalance interrupted it: what is started keeps its position, also if the commit has moved.
func TestPositionsKeepWhatIsStarted(t *testing.T) {
	s, err := New(Config{Seeds: []string{"a:1"}, Group: "g", Topics: []string{topic}}, nil)
	require.NoError(t, err)
	sess := newSession(s, nil)
	started, restoring := newPartState(part(0), 5, s.cfg.Metrics), newPartState(part(1), 5, s.cfg.Metrics)
	started.moved, started.next = true, 12
	s.parts[part(0)], s.parts[part(1)] = started, restoring
	offsets, err := sess.positions(t.Context(), map[string]map[int32]kgo.Offset{topic: {
		0: kgo.NewOffset().At(20).WithEpoch(3), 1: kgo.NewOffset().At(30).WithEpoch(3), 2: kgo.NewOffset().AtStart(),
	}})
	require.NoError(t, err)
	for p, want := range map[int32]int64{0: 12, 1: 30, 2: 0} {
		require.Equal(t, kgo.EpochOffset{Epoch: -1, Offset: want}, offsets[topic][p].EpochOffset())
	}
	require.Equal(t, int64(30), restoring.initial)
}

// A partition that is given up between a commit and its sending is taken out of the request; one with nothing left is not sent.
func TestCommitChecksOwnershipWhenItIsSent(t *testing.T) {
	s, err := New(Config{Seeds: []string{"a:1"}, Group: "g", Topics: []string{topic}}, nil)
	require.NoError(t, err)
	r := &commitRun{source: s, want: map[Partition]Commit{}, failed: map[Partition]error{}}
	req := kmsg.NewPtrOffsetCommitRequest()
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	for p := range int32(2) {
		s.parts[part(p)] = newPartState(part(p), 5, s.cfg.Metrics)
		r.want[part(p)] = Commit{Partition: part(p), Generation: 5, Offset: 9, Metadata: "m"}
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition = p
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	s.parts[part(0)] = newPartState(part(0), 6, s.cfg.Metrics) // revoked and assigned again
	require.NoError(t, r.adjust(req))
	require.Len(t, req.Topics[0].Partitions, 1)
	require.Equal(t, int32(1), req.Topics[0].Partitions[0].Partition)
	require.Equal(t, "m", *req.Topics[0].Partitions[0].Metadata)
	require.ErrorIs(t, r.failed[part(0)], ErrNotAssigned)

	delete(s.parts, part(1))
	err = r.adjust(req)
	require.ErrorIs(t, err, errNothingLeft)
	r.answered(req, nil, err)
	require.Equal(t, map[Partition]error{part(0): ErrNotAssigned, part(1): ErrNotAssigned}, PartitionErrors(r.finish()))
}
