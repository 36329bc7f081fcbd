package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// question asks the worker something that may hang, and does not.
//
// At most one call is under way; whoever asks meanwhile waits for its answer.
// So a call that never returns costs one goroutine, however often it is asked.
type question[T any] struct {
	name  string
	limit time.Duration
	ask   func(ctx context.Context) (T, error)
	log   *zap.Logger

	mu      sync.Mutex
	current *call[T] // nil if none is under way
	failing bool     // the last answer was none; for one log line per change
}

// call is one call. value and err are set before done is closed.
type call[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// answer returns the answer, or an error after the limit or when ctx ends.
func (q *question[T]) answer(ctx context.Context) (T, error) {
	c := q.join()
	timer := time.NewTimer(q.limit)
	defer timer.Stop()
	select {
	case <-c.done:
		q.note(c.err)
		return c.value, c.err
	case <-timer.C:
		var none T
		err := fmt.Errorf("%s: %w (%s)", q.name, errNoAnswer, q.limit)
		q.note(err)
		return none, err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%s: %w", q.name, context.Cause(ctx))
	}
}

// join returns the call under way, or starts one.
func (q *question[T]) join() *call[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.current == nil {
		c := &call[T]{done: make(chan struct{})}
		q.current = c
		go q.run(c)
	}
	return q.current
}

// run makes the call. Its context is its own, since its answer is for all who
// wait and not only for the first.
func (q *question[T]) run(c *call[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), q.limit)
	defer cancel()
	defer func() {
		// A panic here would end the worker for the sake of a page.
		if p := recover(); p != nil {
			c.err = fmt.Errorf("%s: panic: %v", q.name, p)
		}
		q.mu.Lock()
		q.current = nil
		q.mu.Unlock()
		close(c.done)
	}()
	c.value, c.err = q.ask(ctx)
}

// note logs when answers begin to fail and when they are back.
func (q *question[T]) note(err error) {
	q.mu.Lock()
	changed := q.failing != (err != nil)
	q.failing = err != nil
	q.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		q.log.Warn("no answer for the admin server", zap.String("question", q.name), zap.Error(err))
	default:
		q.log.Info("answers for the admin server are back", zap.String("question", q.name))
	}
}

// wait joins the call under way, if any, for as long as ctx lasts.
func (q *question[T]) wait(ctx context.Context) error {
	q.mu.Lock()
	c := q.current
	q.mu.Unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: still under way: %w", q.name, context.Cause(ctx))
	}
}
