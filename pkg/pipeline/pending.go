package pipeline

import "sync"

// pendingTimes remembers the record time of the oldest record of every batch that is not durable yet, so that completeness can be said
// from durable data only. The owner pushes, the flusher's callback pops.
type pendingTimes struct {
	mu      sync.Mutex
	batches []pendingBatch
	current int64 // record time of the oldest record applied and not sealed, Unix ms, 0 if none
	durable int64 // next offset known durable
}

type pendingBatch struct{ next, firstMs int64 }

// push adds a sealed batch.
func (t *pendingTimes) push(next, firstMs int64) {
	t.mu.Lock()
	t.batches = append(t.batches, pendingBatch{next, firstMs})
	t.current = 0
	t.mu.Unlock()
}

// reading sets the oldest time of what is applied and not sealed.
func (t *pendingTimes) reading(firstMs int64) {
	t.mu.Lock()
	t.current = firstMs
	t.mu.Unlock()
}

// done says that everything below next is durable.
func (t *pendingTimes) done(next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := 0
	for i < len(t.batches) && t.batches[i].next <= next {
		i++
	}
	t.batches = append(t.batches[:0], t.batches[i:]...)
	t.durable = max(t.durable, next)
}

// restart begins again at a position that is durable.
func (t *pendingTimes) restart(next int64) {
	t.mu.Lock()
	t.batches, t.current, t.durable = nil, 0, next
	t.mu.Unlock()
}

// oldest is the record time of the oldest record that is not durable, 0 if everything applied is; durable is the next offset known durable.
func (t *pendingTimes) oldest() (ms, durable int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.batches {
		if b.firstMs > 0 && (ms == 0 || b.firstMs < ms) {
			ms = b.firstMs
		}
	}
	if t.current > 0 && (ms == 0 || t.current < ms) {
		ms = t.current
	}
	return ms, t.durable
}
