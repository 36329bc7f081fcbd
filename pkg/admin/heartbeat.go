package admin

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Stale is a loop that has not turned for longer than it may.
type Stale struct {
	Name  string
	For   time.Duration // since its last beat
	Limit time.Duration
}

// Heartbeats knows the loops of the process that have to turn. The zero value
// is ready; it is safe for concurrent use.
type Heartbeats struct {
	mu   sync.Mutex
	live map[*Heartbeat]struct{}
}

// Heartbeat is one loop. Its owner calls Beat every turn and Stop at the end.
// A nil Heartbeat may be used and does nothing.
type Heartbeat struct {
	name  string
	limit time.Duration
	all   *Heartbeats
	last  time.Time // guarded by all.mu
}

// Register adds a loop that must beat at least once per limit. Choose a limit
// well above the longest deadline of anything the loop waits for, so that only
// a loop that is stuck for good exceeds it.
func (h *Heartbeats) Register(name string, limit time.Duration) *Heartbeat {
	b := &Heartbeat{name: name, limit: limit, all: h, last: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live == nil {
		h.live = make(map[*Heartbeat]struct{})
	}
	h.live[b] = struct{}{}
	return b
}

// Beat says that the loop has turned. It costs a lock nobody holds for long;
// call it per chunk, not per record.
func (b *Heartbeat) Beat() {
	if b == nil {
		return
	}
	now := time.Now()
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	b.last = now
}

// Stop ends the watch. A loop that has ended is not stale.
func (b *Heartbeat) Stop() {
	if b == nil {
		return
	}
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	delete(b.all.live, b)
}

// Stale lists the loops over their limit, the longest first.
func (h *Heartbeats) Stale() []Stale {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var stale []Stale
	for b := range h.live {
		if d := now.Sub(b.last); d > b.limit {
			stale = append(stale, Stale{Name: b.name, For: d, Limit: b.limit})
		}
	}
	slices.SortFunc(stale, func(x, y Stale) int {
		return cmp.Or(-cmp.Compare(x.For, y.For), strings.Compare(x.Name, y.Name))
	})
	return stale
}
