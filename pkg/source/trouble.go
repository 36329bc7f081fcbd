package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

// trouble is an error that repeats until something outside changes. It is said once, and over when a while passed without it; what the first tries may cure is not said at all. One of a
// partition is paced by pausing the partition, and is over when records flow as well. Source.mu guards it. The key is a partition, a whole
// topic (partition -1), or the whole client (no topic).
type trouble struct {
	kind  EventKind
	tries int
	said  bool
	// retryAt is when the partition is fetched again; zero while it is being fetched.
	retryAt time.Time
	// quietAt is when the trouble is over unless the error comes back; zero if only records end it.
	quietAt time.Time
}

const (
	retryBase  = 250 * time.Millisecond
	retryLimit = 5 * time.Second
	// quiet is how long the error must stay away: longer than a fetch that waits for records, than a request to a broker that does not
	// answer, and than the pauses between the tries of the client.
	quiet = 10 * time.Second
	// forgetAfter is how long a broker that failed, and is not tried any more, is remembered.
	forgetAfter = 90 * time.Second
)

// sayAfter is the number of tries in a row that make a trouble worth saying: a leader that moves is found at the first or second, and a
// topic that was just created is not known to all brokers at once.
func sayAfter(kind EventKind) int {
	switch kind {
	case EventLeader:
		return 3
	case EventUnknownTopicID:
		return 4
	default:
		return 1
	}
}

func recoveredEvent(p Partition) Event {
	return Event{Kind: EventRecovered, Partition: p, From: -1, To: -1, Divergence: -1}
}

// trouble notes an error that repeats, and says it the first time: for a partition to its owner, for a topic to the owners of all its
// partitions, or to the whole client if there are none.
func (s *Source) trouble(p Partition, kind EventKind, to int64, err error) {
	now := time.Now()
	s.mu.Lock()
	st := s.parts[p]
	if st == nil && p.Topic != "" && p.Partition >= 0 {
		s.mu.Unlock() // a leftover of an earlier assignment
		return
	}
	t := s.troubles[p]
	if t == nil || t.kind != kind {
		t = &trouble{kind: kind}
		s.troubles[p] = t
	}
	t.tries++
	if st != nil {
		t.retryAt, t.quietAt = now.Add(backoff(t.tries, retryBase, retryLimit)), time.Time{}
		s.pauseLocked(st, reasonRetry)
	} else if p != (Partition{}) { // what the group says is over when it gives an assignment
		t.quietAt = now.Add(quiet)
	}
	var events []Event
	if !t.said && t.tries >= sayAfter(kind) {
		t.said = true
		events = s.addressLocked(p, Event{Kind: kind, To: to, Divergence: -1, Err: err})
	}
	s.mu.Unlock()
	for _, e := range events {
		s.tell(e)
	}
}

// addressLocked makes the events for whoever p concerns. Source.mu is held.
func (s *Source) addressLocked(p Partition, e Event) []Event {
	var events []Event
	for q, st := range s.parts {
		if q == p || q.Topic == p.Topic && p.Partition < 0 {
			e.Partition, e.Generation, e.From = q, st.generation, st.next
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		e.Partition, e.Generation, e.From = Partition{}, 0, -1
		if p.Topic != "" && e.Err != nil {
			e.Err = fmt.Errorf("topic %s: %w", p.Topic, e.Err)
		}
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b Event) int { return compare(a.Partition, b.Partition) })
	return events
}

// retry lets troubled partitions be fetched again when their time has come, and ends troubles that did not come back.
func (s *Source) retry(ctx context.Context) {
	now := time.Now()
	var over []Event
	s.mu.Lock()
	for p, t := range s.troubles {
		st := s.parts[p]
		switch {
		case !t.quietAt.IsZero() && now.After(t.quietAt):
			over = append(over, s.overLocked(p)...)
		case st != nil && !t.retryAt.IsZero() && now.After(t.retryAt):
			if st.unfetched {
				t.retryAt = now.Add(backoff(t.tries, retryBase, retryLimit))
				t.tries++
				s.lookups.Go(func() { s.commitReadable(ctx, p) })
				continue
			}
			t.retryAt = time.Time{}
			if t.kind == EventStuck && st.handing() {
				// The client may have stepped over the batch, or have given the partition up: put it back. Only records end this.
				st.start = &position{offset: st.next, epoch: st.epoch}
				s.in.put(nil)
				continue
			}
			t.quietAt = now.Add(quiet)
			s.resumeLocked(st, reasonRetry)
		}
	}
	s.mu.Unlock()
	for _, e := range over {
		s.tell(e)
	}
}

// commitReadable replaces the client if the commit of a partition it does not fetch for want of it can be read now: a client asks only once
// per assignment.
func (s *Source) commitReadable(ctx context.Context, p Partition) {
	ctx, cancel := context.WithTimeout(ctx, retryLimit)
	defer cancel()
	if _, err := s.Committed(ctx, p.Topic, []int32{p.Partition}); err == nil {
		s.in.replace("the commit of " + p.String() + " can be read now")
	}
}

// overLocked ends a trouble and makes the events that say so; a partition whose topic is still in trouble has not recovered. Source.mu is
// held.
func (s *Source) overLocked(p Partition) []Event {
	t := s.troubles[p]
	if t == nil {
		return nil
	}
	delete(s.troubles, p)
	if st := s.parts[p]; st != nil {
		s.resumeLocked(st, reasonRetry)
	}
	if !t.said {
		return nil
	}
	events := s.addressLocked(p, recoveredEvent(p))
	return slices.DeleteFunc(events, func(e Event) bool {
		return e.Partition.Topic != "" && (s.troubles[e.Partition] != nil || s.troubles[Partition{Topic: e.Partition.Topic, Partition: -1}] != nil)
	})
}

// recovered ends the trouble of a partition that delivered.
func (s *Source) recovered(p Partition) {
	s.mu.Lock()
	over := s.overLocked(p)
	s.mu.Unlock()
	for _, e := range over {
		s.tell(e)
	}
}

// groupBack ends the trouble of the whole client: the group has given an assignment.
func (s *Source) groupBack() { s.recovered(Partition{}) }

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
