package pipeline

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// backlogHigh is how many bytes of chunks may wait in all mailboxes together before the next poll is held back.
	backlogHigh = 4 << 20
	// paceLimit is for how long at most: the poll also carries the group's rebalances and the source's timers.
	paceLimit = 50 * time.Millisecond
)

// backlog counts the bytes of chunks that wait for their owners. Safe for concurrent use.
type backlog struct {
	bytes atomic.Int64
	less  chan struct{} // an owner has applied a chunk
}

func newBacklog() *backlog { return &backlog{less: make(chan struct{}, 1)} }

func (b *backlog) add(n int64) {
	if n == 0 {
		return
	}
	b.bytes.Add(n)
	if n < 0 {
		select {
		case b.less <- struct{}{}:
		default:
		}
	}
}

// pace holds the next poll back while enough waits already. Called by the source's poll goroutine.
func (b *backlog) pace(ctx context.Context) {
	if b.bytes.Load() <= backlogHigh {
		return
	}
	t := time.NewTimer(paceLimit)
	defer t.Stop()
	for b.bytes.Load() > backlogHigh {
		select {
		case <-b.less:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
