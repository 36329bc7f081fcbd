package source

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// stall remembers at which position a partition made no progress, so that a client is not replaced again and again for what replacing
// does not cure.
type stall struct {
	next  int64
	times int
	until time.Time
}

// watch looks for partitions that should deliver and do not, asks in the background whether there is something to read, and has the client
// replaced if so while the leader answers. Source.mu guards what it remembers.
func (s *Source) watch(ctx context.Context) {
	now := time.Now()
	var silent []Partition
	s.mu.Lock()
	for p, st := range s.parts {
		if s.shouldDeliverLocked(st) && now.Sub(st.progress) >= s.cfg.StallTimeout {
			st.progress = now // asked once per timeout
			silent = append(silent, p)
		}
	}
	s.mu.Unlock()
	if len(silent) == 0 {
		return
	}
	s.lookups.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		before := s.positionsOf(silent)
		bounds, _ := s.Bounds(ctx, silent) // a leader that does not answer is no stalled client
		for p, b := range bounds {
			if at, ok := before[p]; ok && s.endOf(b.High, b.Stable) > at.next {
				s.in.put(func() { s.stalledAt(p, at) })
			}
		}
	})
}

// shouldDeliverLocked reports whether nothing but the client and the leader keep a partition's records back: it is fetched, or would be but
// for errors of its leader. Source.mu is held.
func (s *Source) shouldDeliverLocked(st *partState) bool {
	if st.start != nil {
		return false
	}
	for reason := range st.reasons {
		if t := s.troubles[st.p]; reason != reasonRetry || t == nil || t.kind != EventLeader {
			return false
		}
	}
	return true
}

type mark struct {
	generation uint64
	next       int64
}

func (s *Source) positionsOf(ps []Partition) map[Partition]mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[Partition]mark, len(ps))
	for _, p := range ps {
		if st := s.parts[p]; st != nil {
			out[p] = mark{st.generation, st.next}
		}
	}
	return out
}

// stalledAt runs on the poll goroutine: the partition had something to read and a whole timeout to do so.
func (s *Source) stalledAt(p Partition, at mark) {
	now := time.Now()
	s.mu.Lock()
	st := s.ownedLocked(p, at.generation)
	if st == nil || st.next != at.next || !s.shouldDeliverLocked(st) {
		s.mu.Unlock()
		return
	}
	known := s.stalled[p]
	if known.next != at.next {
		known = stall{next: at.next}
	}
	if now.Before(known.until) {
		s.mu.Unlock()
		return
	}
	known.times++
	known.until = now.Add(backoff(known.times, 2*s.cfg.StallTimeout, 30*time.Minute))
	s.stalled[p] = known
	s.mu.Unlock()
	s.log.Warn("a partition with records to read delivers none", zap.String("topic", p.Topic), zap.Int32("partition", p.Partition),
		zap.Int64("offset", at.next), zap.Duration("since", s.cfg.StallTimeout))
	s.in.replace(fmt.Sprintf("%s delivers nothing at %d", p, at.next))
}
