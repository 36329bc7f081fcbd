package checkpoint

import "rollcall/pkg/aggregate"

// Tracker turns what the sink completes for one history of one partition into the next offset to commit with its metadata: only what is
// durable, only forward, coalesced. It belongs to one goroutine; it has no clock and does no I/O.
type Tracker struct {
	mark Mark
	// next is the offset to commit: everything of the history below it is durable.
	next int64
	// dirty says that the group does not hold next and mark yet.
	dirty bool
}

// NewTracker goes on from what is durable at next and described by mark. pending says that the group does not hold that yet, as for a
// new history, whose start is committed before anything is counted.
func NewTracker(next int64, mark Mark, pending bool) *Tracker {
	return &Tracker{mark: mark, next: next, dirty: pending}
}

// Note takes a completion without error: everything below next is durable, and if loaded, rows that carry next are in the table, the
// greatest of them of day maxDay. What does not go forward is ignored.
func (t *Tracker) Note(next int64, loaded bool, maxDay aggregate.Day) {
	if loaded && next > t.mark.Table {
		t.mark.Table, t.mark.Day, t.mark.HasDay = next, maxDay, true
		t.dirty = t.dirty || next >= t.next
	}
	if next > t.next {
		t.next, t.dirty = next, true
	}
}

// Pending is the offset to commit now with its metadata; ok is false if the group holds it already. A commit that fails or whose reply
// is lost stays pending.
func (t *Tracker) Pending() (offset int64, mark Mark, ok bool) { return t.next, t.mark, t.dirty }

// Committed says that the group confirmed the commit of what Pending gave. A completion noted in between stays pending.
func (t *Tracker) Committed(offset int64, mark Mark) {
	if offset == t.next && mark == t.mark {
		t.dirty = false
	}
}

// History is the history whose offsets are tracked.
func (t *Tracker) History() History { return t.mark.History }

// Durable is the greatest next offset known to be durable.
func (t *Tracker) Durable() int64 { return t.next }
