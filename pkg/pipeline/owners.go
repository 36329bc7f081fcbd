package pipeline

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/source"
)

func stack() string { return string(debug.Stack()) }

// owners is the set of partitions assigned to this worker and the source's Handler. Its calls come from the source's poll goroutine and
// rebalance callbacks; others only read the set.
type owners struct {
	w   *worker
	ctx context.Context // ends with the run: parent of every owner's context

	mu        sync.Mutex
	current   map[source.Partition]*owner
	ending    []*owner  // given up, perhaps not ended yet
	joined    bool      // an assignment with partitions has been seen
	idleSince time.Time // since when the group has us as a member without partitions, zero if it has not
	draining  bool      // no new owners: the worker is shutting down
	wg        sync.WaitGroup
}

func newOwners(ctx context.Context, w *worker) *owners {
	return &owners{w: w, ctx: ctx, current: map[source.Partition]*owner{}}
}

// Assigned implements source.Handler.
func (s *owners) Assigned(gen uint64, ps []source.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	if s.draining {
		return
	}
	for _, p := range ps {
		if old := s.current[p]; old != nil {
			// Never seen from the client, but two owners of one partition may not count into one history beside each other.
			old.end(true)
		}
		o := newOwner(s.w, gen, p)
		ctx, cancel := context.WithCancel(s.ctx)
		o.cancel = cancel
		s.current[p] = o
		s.w.commits.begin(p, gen)
		s.wg.Go(func() { defer cancel(); o.run(ctx) })
	}
}

// Revoked implements source.Handler: seal, hand over, wait for the loads as long as ctx allows, commit what is durable. What is not
// durable by then may still load; its offsets are not committed and the next owner reads it again.
func (s *owners) Revoked(ctx context.Context, ps []source.Partition) {
	gone := s.take(ps, false)
	for _, o := range gone {
		select {
		case <-o.done:
		case <-ctx.Done():
			o.cancel()
		}
	}
	if len(gone) > 0 && !s.isDraining() { // a stop has waited already, and commits by itself
		s.waitDurable(ctx, gone)
		if err := s.w.commits.now(ctx, ps); err != nil {
			s.w.log.Warn("offsets of revoked partitions not committed; the next owner resumes from the table", zap.Error(err))
		}
	}
	s.forget(gone)
}

// waitDurable waits until what the owners sealed is durable, or for ctx.
func (s *owners) waitDurable(ctx context.Context, gone []*owner) {
	s.w.flusher.Request()
	open := 0
	var first error
	for _, o := range gone {
		h := o.view.Load().history
		if h == "" {
			continue
		}
		if err := s.w.flusher.FlushSource(ctx, h); err != nil {
			open++
			if first == nil {
				first = err
			}
		}
	}
	if open > 0 {
		s.w.log.Info("partitions revoked with rows that are not durable yet; their offsets stay", zap.Int("partitions", open), zap.Error(first))
	}
}

func (s *owners) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Lost implements source.Handler.
func (s *owners) Lost(ps []source.Partition) {
	gone := s.take(ps, true)
	s.forget(gone)
}

// take removes the owners of ps from the set and tells them to end.
func (s *owners) take(ps []source.Partition, lost bool) []*owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*owner
	for _, p := range ps {
		if o := s.current[p]; o != nil {
			o.end(lost)
			delete(s.current, p)
			out = append(out, o)
		}
	}
	s.ending = slices.DeleteFunc(s.ending, (*owner).ended)
	s.ending = append(s.ending, out...)
	return out
}

// mayHaveRows says whether a seal can find anything: not before the partition is restored.
func (o *owner) mayHaveRows() bool {
	s := o.view.Load().state
	return s == stateRunning || s == stateStopped
}

func (o *owner) ended() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

func (s *owners) forget(gone []*owner) {
	for _, o := range gone {
		s.w.commits.end(o.p, o.gen)
		s.w.metrics.forget(o.p)
	}
}

// Records implements source.Handler.
func (s *owners) Records(c source.Chunk) {
	if o := s.get(c.Partition, c.Generation); o != nil {
		o.deliver(c)
	}
}

// Event implements source.Handler.
func (s *owners) Event(e source.Event) {
	if e.Partition.Topic == "" {
		s.w.clientEvent(e)
		return
	}
	if e.Kind == source.EventLeader || e.Kind == source.EventUnknownTopicID {
		s.w.discovery.Kick()
	}
	if o := s.get(e.Partition, e.Generation); o != nil {
		o.notify(e)
	}
}

func (s *owners) get(p source.Partition, gen uint64) *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.current[p]
	if o == nil || o.gen != gen {
		return nil
	}
	return o
}

// all is the current owners in order of topic and partition.
func (s *owners) all() []*owner {
	s.mu.Lock()
	out := make([]*owner, 0, len(s.current))
	for _, o := range s.current {
		out = append(out, o)
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b *owner) int {
		if c := strings.Compare(a.p.Topic, b.p.Topic); c != 0 {
			return c
		}
		return int(a.p.Partition - b.p.Partition)
	})
	return out
}

// sealAll asks every owner to seal and waits for them, or for ctx. The flusher calls it before it composes a load.
func (s *owners) sealAll(ctx context.Context) {
	var wg sync.WaitGroup
	for _, o := range s.all() {
		if o.mayHaveRows() {
			wg.Go(func() { o.requestSeal(ctx) })
		}
	}
	wg.Wait()
}

// drain ends every owner in order and waits until they have sealed, or for ctx. After it no owner starts.
func (s *owners) drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	all := s.all()
	for _, o := range all {
		o.end(false)
	}
	for _, o := range all {
		select {
		case <-o.done:
		case <-ctx.Done():
			o.cancel()
		}
	}
}

// idleAfter is how long a worker without partitions waits before it takes that for its assignment: in a cooperative group a new member
// gets its share only in the rebalance after the one it joins by.
const idleAfter = 10 * time.Second

// hasJoined reports whether the group has given this worker an assignment, be it empty. The source says nothing of an empty one, so being a
// member for a while counts.
func (s *owners) hasJoined() bool {
	member := s.w.member.answered.Load() && s.w.source.Status().MemberGeneration >= 0
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.joined:
		return true
	case !member:
		s.idleSince = time.Time{}
	case s.idleSince.IsZero():
		s.idleSince = time.Now()
	default:
		return time.Since(s.idleSince) >= idleAfter
	}
	return false
}
