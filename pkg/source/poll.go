package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// tick is how long a poll waits at most: the time the loop's own timers are checked in.
const tick = time.Second

// poll is the loop of one client. It returns the reason to replace the client, and whether it ever delivered; or because ctx is done.
//
// The client's callbacks wait while a poll that returned something is not followed by AllowRebalance: what happens in between, and the
// callbacks, are all calls the handler ever gets.
func (s *Source) poll(ctx context.Context, sess *session) (reason string, delivered bool) {
	errorsInRow, wait := 0, tick
	for ctx.Err() == nil {
		if reason := s.in.takeReason(); reason != "" {
			return reason, delivered
		}
		pollCtx, cancel := s.in.polling(ctx, wait)
		fetches := sess.client.PollRecords(pollCtx, s.cfg.MaxPollRecords)
		cancel()
		s.mu.Lock()
		s.lastPoll = time.Now()
		s.mu.Unlock()
		if len(fetches) == 0 { // a rebalance took what there was; callbacks are not held off now
			continue
		}
		if ctx.Err() != nil { // the shutdown revokes, nothing is handed over any more
			break
		}
		failed, closed := s.fetchErrors(ctx, fetches)
		if closed {
			return "closed by itself", delivered
		}
		got := s.handOver(fetches)
		for _, work := range s.in.take() {
			work()
		}
		wait = s.applyStarts(sess.client)
		s.retry(ctx)
		s.watch(ctx)
		s.lookAround(ctx, sess)
		sess.forget()
		s.packing.fit(sess.client, s.cfg)
		sess.client.AllowRebalance()
		if s.cfg.Pace != nil {
			s.cfg.Pace(ctx)
		}

		delivered = delivered || got
		if got || !failed {
			errorsInRow = 0
			continue
		}
		errorsInRow++
		sleep(ctx, backoff(errorsInRow, 10*time.Millisecond, time.Second))
	}
	sess.client.AllowRebalance()
	return "", delivered
}

// fetchErrors deals with the errors of a poll, before its records: an error that says the log changed comes with or before the records
// that are different. failed says that there was one that is not ours.
func (s *Source) fetchErrors(ctx context.Context, fetches kgo.Fetches) (failed, closed bool) {
	fetches.EachError(func(topic string, partition int32, err error) {
		switch class := classify(err); class {
		case classContext:
		case classClosed:
			closed = true
		default:
			failed = true
			p := Partition{Topic: topic, Partition: partition}
			s.failed(fmt.Errorf("%s: %w", p, err))
			s.fetchError(ctx, p, class, err)
		}
	})
	return failed, closed
}

func (s *Source) fetchError(ctx context.Context, p Partition, class pollClass, err error) {
	switch class {
	case classGroup:
		s.trouble(Partition{}, EventGroupLost, -1, err)
	case classDataLoss:
		s.dataLoss(p, err)
	case classOutOfRange:
		s.outOfRange(ctx, p)
	case classTopicID:
		s.trouble(p, EventUnknownTopicID, -1, err)
	case classDenied:
		if as := s.cfg.Principal; as != "" {
			err = fmt.Errorf("as %s: %w", as, err)
		}
		s.trouble(p, EventDenied, -1, err)
	case classStuck:
		to := int64(-1)
		if large, ok := errors.AsType[*kgo.ErrDecompressTooLarge](err); ok {
			to = large.NextOffset
		}
		s.trouble(p, EventStuck, to, err)
	case classLeader, classContext, classClosed: // the last two do not get here
		s.trouble(p, EventLeader, -1, err)
	}
}

// dataLoss is the client's word that the leader's log ends, for the epoch that was read, below the position. The client stands at the
// divergence now.
func (s *Source) dataLoss(p Partition, err error) {
	var loss *kgo.ErrDataLoss
	if !errors.As(err, &loss) {
		return
	}
	s.park(p, Event{Kind: EventTruncated, To: loss.ResetTo, Divergence: loss.ResetTo, Err: err})
}

// park stops handing a partition over until Start is called again, and says why. From is the position. Without effect if the partition is
// not ours, was not started, or waits already.
func (s *Source) park(p Partition, e Event) {
	s.mu.Lock()
	st := s.parts[p]
	if st == nil || !st.handing() {
		s.mu.Unlock()
		return
	}
	s.pauseLocked(st, reasonPosition)
	e.Partition, e.Generation, e.From = p, st.generation, st.next
	s.mu.Unlock()
	s.tell(e)
}

// handOver gives the records of a poll to the handler and reports whether there were any.
func (s *Source) handOver(fetches kgo.Fetches) (got bool) {
	fetches.EachPartition(func(fp kgo.FetchTopicPartition) {
		p := Partition{Topic: fp.Topic, Partition: fp.Partition}
		if fp.Err != nil && len(fp.Records) == 0 {
			return
		}
		chunk, event := s.accept(p, &fp.FetchPartition)
		if event != nil {
			s.tell(*event)
			return
		}
		if len(chunk.Records) == 0 {
			return
		}
		got = true
		s.recovered(p)
		s.handler.Records(chunk)
	})
	return got
}

// accept moves the position over the records, or says why it can't.
func (s *Source) accept(p Partition, fp *kgo.FetchPartition) (Chunk, *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.parts[p]
	if st == nil || !st.handing() {
		return Chunk{}, nil
	}
	st.high, st.stable, st.logStart = fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset
	from := st.next
	if n := len(fp.Records); n > 0 {
		first, last := fp.Records[0], fp.Records[n-1]
		switch {
		case first.Offset < st.next:
			// The client never gives less than it was asked for: it was moved back.
			s.pauseLocked(st, reasonPosition)
			return Chunk{}, &Event{
				Kind: EventTruncated, Partition: p, Generation: st.generation, From: st.next, To: first.Offset, Divergence: -1,
				Err: fmt.Errorf("%s: record %d was delivered although the position is %d", p, first.Offset, st.next),
			}
		case first.Offset > st.next && st.logStart > st.next:
			s.pauseLocked(st, reasonPosition)
			return Chunk{}, &Event{Kind: EventGap, Partition: p, Generation: st.generation, From: st.next, To: st.logStart, Divergence: -1}
		}
		st.next, st.epoch = last.Offset+1, last.LeaderEpoch
		st.progress = time.Now()
	}
	s.lagLocked(st)
	chunk := Chunk{
		Partition: p, Generation: st.generation, Records: fp.Records, From: from, Next: st.next,
		HighWatermark: fp.HighWatermark, StableOffset: fp.LastStableOffset, LogStart: fp.LogStartOffset,
	}
	for _, r := range fp.Records {
		chunk.Bytes += int64(len(r.Key) + len(r.Value))
	}
	return chunk, nil
}

// lagLocked sets the gauge. Source.mu is held.
func (s *Source) lagLocked(st *partState) {
	if end := s.endOf(st.high, st.stable); end >= 0 && st.next >= 0 {
		st.lag.Set(float64(max(end-st.next, 0)))
	}
}

// endOf is the end of what may be read. Brokers that know no transactions give no stable offset.
func (s *Source) endOf(high, stable int64) int64 {
	if s.cfg.readCommitted() && stable >= 0 {
		return stable
	}
	return high
}

// startEvery is the pace of applying positions: each time stops every fetch under way, and partitions are restored one after the other.
const startEvery = 50 * time.Millisecond

// applyStarts brings the client to the positions that Start gave, all at once, and returns how long the next poll may wait.
func (s *Source) applyStarts(client *kgo.Client) time.Duration {
	now := time.Now()
	s.mu.Lock()
	wait, next := startEvery-now.Sub(s.startedAt), tick
	var started []startedAt
	for p, st := range s.parts {
		if st.start == nil {
			continue
		}
		at := startedAt{Partition: p, position: *st.start, nudge: st.moved}
		at.there = !st.moved && st.initial == at.offset && at.epoch < 0
		if !at.there && wait > 0 {
			next = wait
			continue
		}
		started = append(started, at)
	}
	s.mu.Unlock()
	setOffsets(client, started)

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range started {
		st := s.parts[at.Partition]
		if st == nil || st.start == nil || *st.start != at.position {
			continue // a newer Start: the next turn applies it
		}
		st.start, st.moved = nil, true
		st.next, st.epoch = at.offset, at.epoch
		for _, reason := range []string{reasonRestoring, reasonPosition, reasonRetry} {
			s.resumeLocked(st, reason)
		}
		st.progress = now
		if !at.there {
			s.startedAt = now
		}
		s.lagLocked(st)
	}
	return next
}

// startedAt is a position that is being applied.
type startedAt struct {
	Partition
	position
	// there says that the client stands there already, nudge that it may only believe to.
	there, nudge bool
}

// setOffsets moves the client. What it believes to be at the position already is moved away first, or it would stay where it really is.
func setOffsets(client *kgo.Client, started []startedAt) {
	set, away := make(map[Partition]position), make(map[Partition]position)
	for _, at := range started {
		if at.there {
			continue
		}
		set[at.Partition] = at.position
		if at.nudge {
			away[at.Partition] = position{offset: at.offset + 1, epoch: -1}
		}
	}
	client.SetOffsets(offsetsOf(away))
	client.SetOffsets(offsetsOf(set))
}

// tell gives an event to the handler, with one line in the log.
func (s *Source) tell(e Event) {
	fields := []zap.Field{zap.Stringer("event", e.Kind), zap.Error(e.Err)}
	if e.Partition.Topic != "" {
		fields = append(fields, zap.String("topic", e.Partition.Topic), zap.Int32("partition", e.Partition.Partition),
			zap.Int64("offset", e.From))
	}
	switch e.Kind {
	case EventRecovered:
		s.log.Info("source recovered", fields...)
	case EventGap, EventTruncated:
		s.log.Error("source position lost", append(fields, zap.Int64("to", e.To), zap.Int64("divergence", e.Divergence))...)
	default:
		s.log.Warn("source trouble", fields...)
	}
	s.handler.Event(e)
}

// String names the kind as logs do.
func (k EventKind) String() string {
	switch k {
	case EventTruncated:
		return "truncated"
	case EventGap:
		return "gap"
	case EventLeader:
		return "leader"
	case EventUnknownTopicID:
		return "unknown topic id"
	case EventDenied:
		return "denied"
	case EventGroupLost:
		return "group lost"
	case EventStuck:
		return "stuck"
	case EventRecovered:
		return "recovered"
	}
	return "invalid"
}
