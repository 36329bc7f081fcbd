package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The timestamps that ListOffsets gives a meaning of its own (KIP-79).
const (
	listLatest   = -1
	listEarliest = -2
)

// remoteLookup is how long a broker may take to find a time in remote storage.
const remoteLookup = 10 * time.Second

// Committed reads the group's commits of a topic's partitions. A partition that is not in the result has none. It fails as a whole: a
// commit that could not be read must not be taken for none. Transactions that are about to commit offsets make it fail as well
// (UNSTABLE_OFFSET_COMMIT): ask again.
func (s *Source) Committed(ctx context.Context, topic string, partitions []int32) (map[int32]Committed, error) {
	client, err := s.current()
	if err != nil {
		return nil, err
	}
	if len(partitions) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = s.cfg.Group
	reqTopic := kmsg.NewOffsetFetchRequestGroupTopic()
	reqTopic.Topic = topic
	reqTopic.Partitions = partitions
	group.Topics = append(group.Topics, reqTopic)
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("reading commits of %s: %w", topic, err)
	}
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("reading commits of %s: the answer has %d groups", topic, len(resp.Groups))
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("reading commits of %s: %w", topic, err)
	}
	return committedIn(topic, partitions, resp.Groups[0].Topics)
}

// committedIn takes the commits out of an answer, in which every partition must be.
func committedIn(topic string, partitions []int32, topics []kmsg.OffsetFetchResponseGroupTopic) (map[int32]Committed, error) {
	open := make(map[int32]struct{}, len(partitions))
	for _, p := range partitions {
		open[p] = struct{}{}
	}
	out := make(map[int32]Committed, len(partitions))
	var errs []error
	for _, t := range topics {
		if t.Topic != topic {
			continue
		}
		for _, p := range t.Partitions {
			if _, asked := open[p.Partition]; !asked {
				continue
			}
			delete(open, p.Partition)
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				errs = append(errs, &PartitionError{Partition{topic, p.Partition}, fmt.Errorf("reading the commit: %w", err)})
				continue
			}
			if p.Offset < 0 {
				continue
			}
			c := Committed{Offset: p.Offset, LeaderEpoch: max(p.LeaderEpoch, -1)}
			if p.Metadata != nil {
				c.Metadata = *p.Metadata
			}
			out[p.Partition] = c
		}
	}
	for p := range open {
		errs = append(errs, &PartitionError{Partition{topic, p}, errors.New("reading the commit: the answer does not name the partition")})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// Bounds asks the leaders for the offsets of partitions, which need not be assigned. Partitions that failed are not in the result; the
// error joins a PartitionError for each, and the result holds the others. The lag of assigned partitions is brought up to date.
func (s *Source) Bounds(ctx context.Context, ps []Partition) (map[Partition]Bounds, error) {
	client, err := s.current()
	if err != nil {
		return nil, err
	}
	failed := make(map[Partition]error)
	start := list(ctx, client, ps, listEarliest, 0, failed)
	stable := list(ctx, client, ps, listLatest, 1, failed)
	high := list(ctx, client, ps, listLatest, 0, failed) // last: not below the stable offset
	out := make(map[Partition]Bounds, len(ps))
	for _, p := range ps {
		if failed[p] == nil {
			out[p] = Bounds{Start: start[p].offset, High: high[p].offset, Stable: stable[p].offset, LeaderEpoch: high[p].epoch}
		}
	}
	s.mu.Lock()
	for p, b := range out {
		if st := s.parts[p]; st != nil {
			st.high, st.stable, st.logStart = max(st.high, b.High), max(st.stable, b.Stable), max(st.logStart, b.Start)
			s.lagLocked(st)
		}
	}
	s.mu.Unlock()
	return out, joinPartitions("asking for bounds", failed)
}

// OffsetAt finds for each partition the first offset whose record's timestamp is not before at, or the end that may be read if there is
// none. Errors as Bounds.
func (s *Source) OffsetAt(ctx context.Context, ps []Partition, at time.Time) (map[Partition]int64, error) {
	client, err := s.current()
	if err != nil {
		return nil, err
	}
	failed := make(map[Partition]error)
	// The end is asked for first: a record that arrives in between is then found, not stepped over.
	ends := list(ctx, client, ps, listLatest, s.cfg.isolationLevel(), failed)
	found := list(ctx, client, ps, ceilMilli(at), s.cfg.isolationLevel(), failed)
	out := make(map[Partition]int64, len(ps))
	for _, p := range ps {
		switch {
		case failed[p] != nil:
		case found[p].offset >= 0:
			out[p] = found[p].offset
		default:
			out[p] = ends[p].offset
		}
	}
	return out, joinPartitions("looking for a time", failed)
}

// ceilMilli rounds up to the milliseconds that records carry. Below zero timestamps have meanings of their own.
func ceilMilli(at time.Time) int64 {
	ms := at.UnixMilli()
	if at.After(time.UnixMilli(ms)) {
		ms++
	}
	return max(ms, 0)
}

// Divergence asks the leader of p where its log ends for a leader epoch that was read. If that is below offset, the log was truncated, and
// the result is the first offset that differs. A negative epoch asks nothing, and an epoch the leader does not know shows nothing.
func (s *Source) Divergence(ctx context.Context, p Partition, epoch int32, offset int64) (int64, bool, error) {
	if epoch < 0 {
		return -1, false, nil
	}
	client, err := s.current()
	if err != nil {
		return -1, false, err
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = p.Topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition = p.Partition
	rp.LeaderEpoch = epoch
	t.Partitions = append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return -1, false, &PartitionError{p, fmt.Errorf("asking for the end of epoch %d: %w", epoch, err)}
	}
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			if t.Topic != p.Topic || rp.Partition != p.Partition {
				continue
			}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return -1, false, &PartitionError{p, fmt.Errorf("asking for the end of epoch %d: %w", epoch, err)}
			}
			if rp.EndOffset < 0 || rp.EndOffset >= offset {
				return -1, false, nil
			}
			return rp.EndOffset, true, nil
		}
	}
	return -1, false, &PartitionError{p, fmt.Errorf("asking for the end of epoch %d: the answer does not name the partition", epoch)}
}

// listed is one answer of ListOffsets.
type listed struct {
	offset int64
	epoch  int32
}

// list asks the leaders for one offset per partition, leaving out those that failed already, and notes new failures.
func list(ctx context.Context, client *kgo.Client, ps []Partition, timestamp int64, isolation int8, failed map[Partition]error) map[Partition]listed {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = isolation
	// How long the broker may look into remote storage (KIP-1075), which the ends of a log do not need. The client waits as long as that and
	// its overhead on the connection, and everything behind it as well, whatever ctx says: the default of 30 s would hold metadata up.
	req.TimeoutMillis = 0
	if timestamp >= 0 {
		req.TimeoutMillis = int32(remoteLookup.Milliseconds())
	}
	topics := make(map[string]int)
	open := make(map[Partition]struct{}, len(ps))
	for _, p := range ps {
		if failed[p] != nil {
			continue
		}
		if _, twice := open[p]; twice {
			continue
		}
		open[p] = struct{}{}
		i, ok := topics[p.Topic]
		if !ok {
			i = len(req.Topics)
			topics[p.Topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = p.Topic
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition = p.Partition
		rp.Timestamp = timestamp
		rp.MaxNumOffsets = 1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	out := make(map[Partition]listed, len(open))
	if len(open) == 0 {
		return out
	}
	for _, shard := range client.RequestSharded(ctx, req) {
		listShard(shard, open, out, failed)
	}
	for p := range open {
		failed[p] = errors.New("the answer does not name the partition")
	}
	return out
}

// listShard takes one broker's answer.
func listShard(shard kgo.ResponseShard, open map[Partition]struct{}, out map[Partition]listed, failed map[Partition]error) {
	if shard.Err != nil {
		req, ok := shard.Req.(*kmsg.ListOffsetsRequest)
		if !ok {
			return
		}
		for _, t := range req.Topics {
			for _, rp := range t.Partitions {
				p := Partition{t.Topic, rp.Partition}
				if _, ok := open[p]; ok {
					delete(open, p)
					failed[p] = shard.Err
				}
			}
		}
		return
	}
	resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
	if !ok {
		return
	}
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			p := Partition{t.Topic, rp.Partition}
			if _, ok := open[p]; !ok {
				continue
			}
			delete(open, p)
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				failed[p] = err
				continue
			}
			l := listed{offset: rp.Offset, epoch: rp.LeaderEpoch}
			if len(rp.OldStyleOffsets) > 0 {
				l.offset = rp.OldStyleOffsets[0] // version 0
			}
			out[p] = l
		}
	}
}

func joinPartitions(what string, failed map[Partition]error) error {
	errs := make([]error, 0, len(failed))
	for p, err := range failed {
		errs = append(errs, &PartitionError{p, fmt.Errorf("%s: %w", what, err)})
	}
	return errors.Join(errs...)
}
