package sink

import (
	"context"
	"fmt"
	"time"
)

// Offer hands a batch over: the flusher owns it afterwards. It never blocks. After Close began or Run ended it returns ErrClosed; then the
// batch is not accepted and its Done is never called. Batches of one source must be offered in offset order, by one goroutine at a time.
func (f *Flusher) Offer(b Batch) error {
	it := newItem(b, time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing || f.phase == phaseEnded {
		return fmt.Errorf("batch of %s below %d: %w", b.Source, b.Next, ErrClosed)
	}
	f.q.add(b.Source, it, f.pace.limit, f.pace.ratio)
	f.signal()
	return nil
}

// Request asks for a load soon, with a Seal before it: a source has enough for one, or lags. Requests coalesce, and while overload has
// widened the interval they wait for it.
func (f *Flusher) Request() {
	f.mu.Lock()
	f.requested = true
	f.mu.Unlock()
	f.signal()
}

// Flush returns when every batch accepted before the call has a known outcome: nil if all are durable (or were discarded), the error with which the
// run ended if it ended before. When ctx is done first it returns a NotDurableError. Loads start at once, without asking owners to seal.
// The answer for the same batches is the same however often and by how many goroutines it is asked for.
func (f *Flusher) Flush(ctx context.Context) error {
	return f.barrier(ctx, "flush", f.q.await)
}

// FlushSource is Flush for the batches of one source.
func (f *Flusher) FlushSource(ctx context.Context, source string) error {
	return f.barrier(ctx, "flush "+source, func(w *waiter) bool { return f.q.awaitSource(w, source) })
}

// WaitSource returns when the source is Idle: the table shows all that was accepted of it (or it was discarded). Loads start at once.
// When ctx is done first it returns a NotDurableError.
func (f *Flusher) WaitSource(ctx context.Context, source string) error {
	return f.barrier(ctx, "wait for "+source, func(w *waiter) bool { return f.q.awaitIdle(w, source) })
}

// barrier waits for what register makes the waiter wait for; register reports whether there is anything, with f.mu held.
func (f *Flusher) barrier(ctx context.Context, what string, register func(*waiter) bool) error {
	w := &waiter{done: make(chan struct{})}
	f.mu.Lock()
	if f.phase == phaseEnded {
		defer f.mu.Unlock()
		return f.endErr
	}
	if !register(w) {
		f.mu.Unlock()
		return nil
	}
	f.urgent++
	f.mu.Unlock()
	f.signal()
	return f.hold(ctx, w, what)
}

// Close accepts no more batches and then waits like Flush; it returns nil when all that was ever accepted is durable and Run has returned. When ctx
// is done before, it returns a NotDurableError with what is open, and may be called again. While closing, no attempt starts that is not likely
// to end by ctx's deadline; of several calls the latest deadline counts. Safe to call concurrently and repeatedly.
func (f *Flusher) Close(ctx context.Context) error {
	w := &waiter{done: make(chan struct{})}
	f.mu.Lock()
	if f.phase == phaseEnded {
		defer f.mu.Unlock()
		return f.endErr
	}
	f.extend(ctx)
	open := f.q.await(w)
	f.urgent++
	running := f.phase == phaseRunning
	f.mu.Unlock()
	f.signal()
	select {
	case f.kick <- struct{}{}:
	default:
	}
	if open {
		if err := f.hold(ctx, w, "close"); err != nil {
			return err
		}
	} else {
		f.leave(w)
	}
	if !running {
		return nil
	}
	select {
	case <-f.ended:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.endErr
	case <-ctx.Done():
		// Everything has its outcome; only the loop has not returned yet.
		return nil
	}
}

// extend notes that closing has begun and until when. f.mu must be held.
func (f *Flusher) extend(ctx context.Context) {
	by, limited := ctx.Deadline()
	switch {
	case !f.closing:
		f.closeBy = by
	case f.closeBy.IsZero():
	case !limited:
		f.closeBy = time.Time{}
	case by.After(f.closeBy):
		f.closeBy = by
	}
	f.closing = true
}

// hold waits for w and takes it back.
func (f *Flusher) hold(ctx context.Context, w *waiter, what string) error {
	defer f.leave(w)
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	default:
	}
	return fmt.Errorf("%s: %w", what, f.notDurable(context.Cause(ctx)))
}

func (f *Flusher) leave(w *waiter) {
	f.mu.Lock()
	f.urgent--
	f.forget(w)
	f.mu.Unlock()
}

// Discard drops the batches of a source that are not in flight: its log was truncated and the records will be read again under a new history. Their
// Done gets ErrDiscarded, later, from Run's goroutine; a batch in flight runs out. It returns how many were dropped.
func (f *Flusher) Discard(source string) (dropped int) {
	f.mu.Lock()
	dropped = f.q.discard(source)
	f.mu.Unlock()
	f.signal()
	return dropped
}

// Idle reports whether nothing of the source is queued, in flight or committed without being visible yet.
func (f *Flusher) Idle(source string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.q.idle(source)
}

// Bytes estimates the memory of everything accepted and not completed.
func (f *Flusher) Bytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.q.bytes
}

// BodyBytes is the length of the body of the load in flight, which is held beside the rows that Bytes counts; 0 if there is none.
func (f *Flusher) BodyBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(f.report.inFlight.Bytes)
}

// SourceBytes is Bytes of one source.
func (f *Flusher) SourceBytes(source string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.q.lanes[source]
	if l == nil {
		return 0
	}
	n := int64(0)
	for _, it := range l.items {
		n += it.bytes
	}
	return n
}
