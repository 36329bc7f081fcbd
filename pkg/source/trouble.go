package source

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// trouble is an error of a partition that repeats until something outside changes. It is said once, paced by pausing the partition, and
// over when records flow again or a while passed without the error. Source.mu guards it. The key may be a whole topic (partition -1) or
// the whole client (no topic).
type trouble struct {
	kind  EventKind
	tries int
	// retryAt is when the partition is fetched again; zero while it is being fetched.
	retryAt time.Time
	// quietAt is when the trouble is over unless the error comes back.
	quietAt time.Time
}

const (
	retryBase  = 250 * time.Millisecond
	retryLimit = 5 * time.Second
	// quiet is how long a retried partition must go without the error: longer than a fetch that waits for records, and than a request to a
	// broker that does not answer.
	quiet = 10 * time.Second
	// quietTopic is the same for errors of a whole topic or of the group, which come with metadata.
	quietTopic = 90 * time.Second
)

func recoveredEvent(p Partition) Event {
	return Event{Kind: EventRecovered, Partition: p, From: -1, To: -1, Divergence: -1}
}

// trouble notes an error that repeats, and says it the first time.
func (s *Source) trouble(p Partition, kind EventKind, to int64, err error) {
	now := time.Now()
	s.mu.Lock()
	st := s.parts[p]
	if st == nil && p.Topic != "" && p.Partition >= 0 {
		s.mu.Unlock() // a leftover of an earlier assignment
		return
	}
	t, known := s.troubles[p]
	if !known || t.kind != kind {
		t = &trouble{kind: kind}
		s.troubles[p] = t
		known = false
	}
	t.tries++
	e := Event{Kind: kind, Partition: p, From: -1, To: to, Divergence: -1, Err: err}
	if st != nil {
		t.retryAt, t.quietAt = now.Add(backoff(t.tries, retryBase, retryLimit)), time.Time{}
		s.pauseLocked(st, reasonRetry)
		e.Generation, e.From = st.generation, st.next
	} else {
		t.quietAt = now.Add(quietTopic)
	}
	s.mu.Unlock()
	if !known {
		s.tell(e)
	}
}

// retry lets troubled partitions be fetched again when their time has come, and ends troubles that did not come back.
func (s *Source) retry() {
	now := time.Now()
	var over []Event
	s.mu.Lock()
	for p, t := range s.troubles {
		st := s.parts[p]
		switch {
		case !t.quietAt.IsZero() && now.After(t.quietAt):
			delete(s.troubles, p)
			e := recoveredEvent(p)
			if st != nil {
				e.Generation, e.From = st.generation, st.next
			}
			over = append(over, e)
		case st != nil && !t.retryAt.IsZero() && now.After(t.retryAt):
			t.retryAt, t.quietAt = time.Time{}, now.Add(quiet)
			if t.kind == EventStuck && st.handing() {
				// The client may have stepped over the batch, or have given the partition up: put it back.
				st.start = &position{offset: st.next, epoch: st.epoch}
				t.quietAt = time.Time{} // only records end it
				s.in.put(nil)
				continue
			}
			s.resumeLocked(st, reasonRetry)
		}
	}
	s.mu.Unlock()
	for _, e := range over {
		s.tell(e)
	}
}

// recovered ends the trouble of a partition that delivered, and of its topic.
func (s *Source) recovered(p Partition) {
	s.mu.Lock()
	if len(s.troubles) == 0 {
		s.mu.Unlock()
		return
	}
	var over []Event
	for _, key := range []Partition{p, {Topic: p.Topic, Partition: -1}} {
		if _, ok := s.troubles[key]; !ok {
			continue
		}
		delete(s.troubles, key)
		e := recoveredEvent(key)
		if st := s.parts[key]; st != nil {
			e.Generation, e.From = st.generation, st.next
			s.resumeLocked(st, reasonRetry)
		}
		over = append(over, e)
	}
	s.mu.Unlock()
	for _, e := range over {
		s.tell(e)
	}
}

// groupBack ends the troubles of the whole client: the group has given an assignment.
func (s *Source) groupBack() {
	s.mu.Lock()
	over := 0
	for p := range s.troubles {
		if p.Topic == "" {
			delete(s.troubles, p)
			over++
		}
	}
	s.mu.Unlock()
	if over > 0 {
		s.tell(recoveredEvent(Partition{}))
	}
}

// outOfRange asks where the log is, in the background, and then says what the position is outside of. The client does not move.
func (s *Source) outOfRange(ctx context.Context, p Partition) {
	s.mu.Lock()
	st := s.parts[p]
	if st == nil || !st.handing() {
		s.mu.Unlock()
		return
	}
	s.pauseLocked(st, reasonPosition)
	generation, next, epoch := st.generation, st.next, st.epoch
	s.mu.Unlock()
	s.log.Warn("the position is outside the log", zap.String("topic", p.Topic), zap.Int32("partition", p.Partition), zap.Int64("offset", next))
	s.lookups.Go(func() {
		for tries := 1; ; tries++ {
			b, divergence, err := s.whereIs(ctx, p, epoch, next)
			if err == nil {
				s.in.put(func() { s.located(p, generation, next, b, divergence) })
				return
			}
			s.failed(err)
			if !sleep(ctx, backoff(tries, retryBase, retryLimit)) || !s.waiting(p, generation, next) {
				return
			}
		}
	})
}

// waiting reports whether a partition still waits, at the position it was parked at, for its bounds.
func (s *Source) waiting(p Partition, generation uint64, next int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.ownedLocked(p, generation)
	if st == nil || st.start != nil || st.next != next {
		return false
	}
	_, parked := st.reasons[reasonPosition]
	return parked
}

// whereIs asks for the bounds of a partition, and for the divergence if the position is beyond them (-1 if there is none or it is unknown).
func (s *Source) whereIs(ctx context.Context, p Partition, epoch int32, next int64) (Bounds, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	bounds, err := s.Bounds(ctx, []Partition{p})
	if err != nil {
		return Bounds{}, -1, err
	}
	b := bounds[p]
	if next <= b.High || epoch < 0 {
		return b, -1, nil
	}
	at, below, err := s.Divergence(ctx, p, epoch, next)
	if err != nil || !below {
		at = -1 // the bounds are enough to go on with
	}
	return b, at, nil
}

// located says what became of a position that the broker did not have. It runs on the poll goroutine.
func (s *Source) located(p Partition, generation uint64, next int64, b Bounds, divergence int64) {
	if !s.waiting(p, generation, next) {
		return
	}
	e := Event{Partition: p, Generation: generation, From: next, Divergence: divergence}
	switch {
	case next < b.Start:
		e.Kind, e.To = EventGap, b.Start
	case next > b.High:
		e.Kind, e.To = EventTruncated, b.High
	default:
		// It is there: a leader that had just been elected did not know its end yet. Ask again, paced like any trouble.
		s.mu.Lock()
		st := s.parts[p]
		t := s.troubles[p]
		if t == nil {
			t = &trouble{kind: EventLeader}
			s.troubles[p] = t
		}
		t.tries++
		t.retryAt, t.quietAt = time.Now().Add(backoff(t.tries, retryBase, retryLimit)), time.Time{}
		s.pauseLocked(st, reasonRetry)
		s.resumeLocked(st, reasonPosition)
		s.mu.Unlock()
		return
	}
	s.tell(e)
}
