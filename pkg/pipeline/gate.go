package pipeline

import "sync"

// gate is open until every dead letter of one batch is confirmed. One owner adds and seals, the dead-letter client's goroutine confirms.
type gate struct {
	mu      sync.Mutex
	pending int
	sealed  bool
	ready   chan struct{}
}

func newGate() *gate { return &gate{ready: make(chan struct{})} }

// add counts a dead letter that was published.
func (g *gate) add() {
	g.mu.Lock()
	g.pending++
	g.mu.Unlock()
}

// confirmed is the answer for one dead letter. A letter that failed for good (the publisher stopped) is never confirmed, so its batch
// never becomes ready and its offset never moves.
func (g *gate) confirmed(err error) {
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending--
	if g.sealed && g.pending == 0 {
		close(g.ready)
	}
}

// seal says that no letter follows and returns the channel that closes when all are confirmed, nil if they are already.
func (g *gate) seal() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sealed = true
	if g.pending == 0 {
		return nil
	}
	return g.ready
}
