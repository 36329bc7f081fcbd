package pipeline

import (
	"sync"
	"time"

	"rollcall/pkg/source"
)

const (
	// queueHigh is how many bytes of chunks of one partition may wait before it is paused; pausing throws away what was fetched already, so
	// it is for a partition that takes more than its turn. The usual brake is pace.
	queueHigh = 32 << 20
	queueLow  = 8 << 20
)

// mailbox is how the source reaches an owner without ever waiting for it: chunks and events in the order they came.
type mailbox struct {
	mu     sync.Mutex
	items  []mail
	bytes  int64
	paused bool
	closed bool
	all    *backlog  // of all owners together
	moved  time.Time // when an item was last taken, or put into an empty mailbox
	wake   chan struct{}
}

// mail is a chunk or an event.
type mail struct {
	chunk source.Chunk
	event *source.Event
}

// put queues an item and reports whether the partition should be paused now.
func (m *mailbox) put(it mail) (pause bool) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	if len(m.items) == 0 {
		m.moved = time.Now()
	}
	m.items = append(m.items, it)
	m.bytes += it.chunk.Bytes
	m.all.add(it.chunk.Bytes)
	pause = m.bytes > queueHigh && !m.paused
	m.paused = m.paused || pause
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return pause
}

// next takes the oldest item.
func (m *mailbox) next() (it mail, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.items) == 0 {
		m.items = nil
		return mail{}, false
	}
	m.moved = time.Now()
	it, m.items[0] = m.items[0], mail{}
	m.items = m.items[1:]
	return it, true
}

// applied gives back the memory of a chunk and reports whether fetching should resume.
func (m *mailbox) applied(c *source.Chunk) (resume bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(m.bytes, c.Bytes) // less if it was dropped meanwhile
	m.bytes -= n
	m.all.add(-n)
	resume = m.paused && m.bytes < queueLow
	m.paused = m.paused && !resume
	return resume
}

// drop forgets what is queued: the partition is about to be positioned anew, or with end is no longer ours. It reports whether fetching
// was paused.
func (m *mailbox) drop(end bool) (paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	paused = m.paused
	m.all.add(-m.bytes)
	m.items, m.bytes, m.paused = nil, 0, false
	m.closed = m.closed || end
	return paused
}

// stuckFor is how long the oldest item has waited for its owner, 0 if nothing waits.
func (m *mailbox) stuckFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.items) == 0 {
		return 0
	}
	return time.Since(m.moved)
}

func (m *mailbox) queued() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}
