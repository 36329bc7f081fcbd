package checkpoint

import (
	"context"
	"errors"
	"sync"
	"time"
)

// shareWait is how long a read waits for others to share it: when a worker starts, the owners of all its partitions ask at once.
const shareWait = 10 * time.Millisecond

// together lets callers that come within a moment share one read. The first of them reads, with its own context; if that ends, those who
// are left read again. Safe for concurrent use.
type together[K, V any] struct {
	// read answers every question in its order; what concerns one of them alone is in its answer, an error concerns all.
	read func(ctx context.Context, asked []K) ([]V, error)
	// most is how many may share a read.
	most int

	mu   sync.Mutex
	open *round[K, V] // that may still be joined, nil for none
	// limit is most, or less after reads that failed: what is too much for one read must come through in several.
	limit int
}

// round is one read.
type round[K, V any] struct {
	asked []K           // together.mu, until the round is closed
	full  chan struct{} // closed when limit is reached
	done  chan struct{} // closed when the fields below are set
	out   []V
	err   error
	gone  bool // its reader's context ended: err says nothing to the others
}

func newTogether[K, V any](most int, read func(context.Context, []K) ([]V, error)) *together[K, V] {
	return &together[K, V]{read: read, most: most, limit: most}
}

// ask returns the answer of a read that began after the call.
func (t *together[K, V]) ask(ctx context.Context, k K) (V, error) {
	var none V
	for {
		r, i := t.join(k)
		if i == 0 {
			t.run(ctx, r)
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
		switch {
		case r.err == nil:
			return r.out[i], nil
		case i > 0 && r.gone:
		default:
			return none, r.err
		}
	}
}

// join returns the round that answers k and the place of the answer; who gets place 0 runs the round.
func (t *together[K, V]) join(k K) (*round[K, V], int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.open
	if r == nil {
		r = &round[K, V]{full: make(chan struct{}), done: make(chan struct{})}
		t.open = r
	}
	r.asked = append(r.asked, k)
	if len(r.asked) >= t.limit {
		t.open = nil
		close(r.full)
	}
	return r, len(r.asked) - 1
}

// run waits for others, closes the round and reads.
func (t *together[K, V]) run(ctx context.Context, r *round[K, V]) {
	timer := time.NewTimer(shareWait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.full:
	case <-ctx.Done():
	}
	t.mu.Lock()
	if t.open == r {
		t.open = nil
	}
	t.mu.Unlock()
	r.out, r.err = t.read(ctx, r.asked)
	r.gone = ctx.Err() != nil
	t.mu.Lock()
	if r.err == nil {
		t.limit = min(t.most, 2*t.limit)
	} else if n := len(r.asked); n > 1 && !errors.Is(ctx.Err(), context.Canceled) {
		t.limit = max(1, min(t.limit, n/2))
	}
	t.mu.Unlock()
	close(r.done)
}
