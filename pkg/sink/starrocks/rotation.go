package starrocks

import (
	"sync"
	"time"
)

// rotation remembers which of several equal servers to try first. The one that worked last stays first; one that failed is tried
// after all others for downTime. Safe for concurrent use; nothing blocks under the lock.
type rotation struct {
	mu    sync.Mutex
	first int
	down  []time.Time // until when; zero is up
}

func newRotation(n int) *rotation { return &rotation{down: make([]time.Time, n)} }

// order lists every index once: from the preferred one on, those that are down last, the longest down first.
func (r *rotation) order(now time.Time) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	up := make([]int, 0, len(r.down))
	var down []int
	for k := range r.down {
		i := (r.first + k) % len(r.down)
		if now.Before(r.down[i]) {
			down = insertByTime(down, i, r.down)
		} else {
			up = append(up, i)
		}
	}
	return append(up, down...)
}

func insertByTime(list []int, i int, at []time.Time) []int {
	pos := len(list)
	for pos > 0 && at[i].Before(at[list[pos-1]]) {
		pos--
	}
	list = append(list, 0)
	copy(list[pos+1:], list[pos:])
	list[pos] = i
	return list
}

// failed marks i down and reports whether it was up before.
func (r *rotation) failed(i int, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.down[i].IsZero()
	r.down[i] = now.Add(downTime)
	if r.first == i {
		r.first = (i + 1) % len(r.down)
	}
	return was
}

// worked marks i up and preferred and reports whether it was down before.
func (r *rotation) worked(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := !r.down[i].IsZero()
	r.down[i] = time.Time{}
	r.first = i
	return was
}

// advance lets the next attempt begin at another server, without a word about i's health.
func (r *rotation) advance(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == i {
		r.first = (i + 1) % len(r.down)
	}
}
