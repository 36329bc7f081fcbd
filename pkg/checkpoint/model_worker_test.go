package checkpoint

import (
	"maps"

	"rollcall/pkg/aggregate"
)

// mworker is one owner of the partition, or what is left of one.
type mworker struct {
	id, group, gen int
	prog           int
	alive          bool
	// lost: another worker owns the partition. leaving: given up in an orderly way, reads no more. Either may still load.
	lost, leaving bool
	// detached: only batches, of an owner that has begun anew.
	detached bool
	refused  string
	// What it asks with: cause holds Running, Diverged and Recreated until the decision is carried out; decided waits for its restore.
	waits   *Waits
	cause   Input
	decided *Decision
	asked   Input
	before  mrows // the read of the first step
	// What it counts.
	running bool
	tid     int
	src     msrc
	pos     int
	branch  int
	count   mcount
	letters []int
	queue   []*mbatch
	tracker *Tracker
}

// mbatch is a sealed batch on its way.
type mbatch struct {
	rows       mrows
	next       int
	letters    []int
	lettersOK  bool
	state      int
	txn, ahead *mtxn
}

const (
	unsent = iota
	unknown
	committed
	visible
)

func (m *model) newWorker(group int) *mworker {
	g := m.groups[group]
	g.gen++
	w := &mworker{id: len(m.workers), group: group, gen: g.gen, prog: m.prog, alive: true, waits: NewWaits(modelLoad)}
	g.owner = w.id
	w.reset()
	m.workers = append(m.workers, w)
	return w
}

// reset drops what the worker counted.
func (w *mworker) reset() {
	w.running, w.decided, w.refused = false, nil, ""
	w.count, w.letters, w.queue, w.tracker = nil, nil, nil, nil
}

func (m *model) kill(w *mworker) {
	w.alive = false
	w.reset()
}

func (m *model) owner(group int) *mworker {
	if g := m.groups[group]; g.owner >= 0 {
		return m.workers[g.owner]
	}
	return nil
}

// detach lets a worker's batches go on without it, as the flusher does.
func (m *model) detach(w *mworker) {
	if len(w.queue) > 0 {
		z := &mworker{id: len(m.workers), group: w.group, gen: -1, prog: w.prog, alive: true, lost: true, leaving: true, detached: true}
		z.reset()
		z.running, z.src, z.tid, z.queue = true, w.src, w.tid, w.queue
		m.workers = append(m.workers, z)
	}
}

// read counts the next record.
func (m *model) poll(w *mworker) {
	log := m.log()
	switch {
	case w.tid != m.tid:
		return
	case m.env["redeliver"] && m.p(.1) && w.pos > w.src.start && w.pos > m.logStart && w.pos <= len(log):
		// Rule 2: what is below the position was counted. The real aggregator drops it itself.
		if m.off["rule2"] || m.program != nil {
			w.count.apply(log[w.pos-1], w.pos-1)
		}
	case w.pos < m.logStart:
		m.say("w%d: retention took what is next (%d < %d)", w.id, w.pos, m.logStart)
		if w.lost {
			m.kill(w)
			return
		}
		m.seal(w)
		m.detach(w)
		running := &Running{w.src.history(), int64(w.pos)}
		w.reset()
		w.cause.Running = running
	case w.pos < len(log):
		if rec := log[w.pos]; rec.kind == 1 {
			w.letters = append(w.letters, rec.id)
		}
		w.count.apply(log[w.pos], w.pos)
		m.say("w%d reads o=%d", w.id, w.pos)
		w.pos++
	}
}

func (m *model) seal(w *mworker) {
	if !w.count.dirty() && len(w.letters) == 0 {
		last := w.tracker.Durable()
		if n := len(w.queue); n > 0 {
			last = int64(w.queue[n-1].next)
		}
		if int64(w.pos) <= last {
			return
		}
	}
	b := &mbatch{rows: w.count.seal(w.src, w.pos), next: w.pos, letters: w.letters}
	w.letters = nil
	// Rule 1: merged only into the newest unsent batch; rule 2: all its rows then carry its last next offset.
	if n := len(w.queue); n > 0 && w.queue[n-1].state == unsent && w.queue[n-1].ahead == nil && m.p(.6) {
		o := w.queue[n-1]
		o.rows.merge(b.rows)
		if !m.off["mergecut"] {
			for k, r := range o.rows {
				r.next = b.next
				o.rows[k] = r
			}
		}
		o.next, o.letters, o.lettersOK = b.next, append(append([]int(nil), o.letters...), b.letters...), false
		m.say("w%d seals up to %d, merged", w.id, w.pos)
		return
	}
	w.queue = append(w.queue, b)
	m.say("w%d seals up to %d: %v", w.id, w.pos, b.rows)
}

// attempt makes one attempt to load; the result is a batch's state.
func (m *model) attempt(t *mtxn, healthy bool) int {
	x := m.r.Float64()
	switch {
	case healthy || x < .45:
		m.commitTxn(t)
		for i, o := range m.waiting {
			if o == t && m.publish(i) {
				return visible
			}
		}
		return committed
	case x < .6:
		m.commitTxn(t)
		m.say("  committed (Publish Timeout)")
		return committed
	case x < .75:
		t.gone = true
		m.say("  failed")
		return unsent
	}
	m.unknown = append(m.unknown, t)
	m.say("  unknown")
	return unknown
}

// next is the batch to send: batch k+1 only after k is visible (rule 1).
func (m *model) next(w *mworker) *mbatch {
	for _, b := range w.queue {
		if !m.off["rule1order"] || b.state == unsent || b.state == unknown {
			return b
		}
	}
	return nil
}

func (m *model) send(w *mworker, healthy bool) {
	b := m.next(w)
	if b == nil || b.state == visible {
		return
	}
	if b.state != unsent { // ask for the label's state
		switch {
		case b.txn.visible:
			b.state = visible
		case b.txn.committed:
			b.state = committed
		case b.state == unknown:
			b.state = unsent
		}
		return
	}
	if !m.sendLetters(b, healthy) {
		return
	}
	if len(b.rows) == 0 {
		b.state = visible
		return
	}
	rows := maps.Clone(b.rows)
	if !m.sendAhead(w, b, rows, healthy) {
		return
	}
	if m.off["rule1whole"] && len(rows) > 1 && m.p(.5) {
		half := mrows{}
		for k, v := range rows {
			if m.p(.5) {
				half[k] = v
			}
		}
		m.say("w%d sends a part of %d", w.id, b.next)
		m.attempt(m.begin(w.id, half), healthy)
		if m.p(.3) {
			return
		}
	}
	m.say("w%d sends %d", w.id, b.next)
	b.txn = m.begin(w.id, rows)
	b.state = m.attempt(b.txn, healthy)
	if m.off["unknowndone"] && b.state == unknown {
		b.state = visible
	}
}

// sendLetters: dead letters are confirmed before the load that goes past them is sent (rule 6).
func (m *model) sendLetters(b *mbatch, healthy bool) bool {
	if b.lettersOK || m.off["rule6"] {
		return true
	}
	if !healthy && m.p(.3) {
		return false
	}
	for _, l := range b.letters {
		m.letters[l] = true
	}
	b.lettersOK = true
	return true
}

// sendAhead sends bitmaps ahead of their totals, which must be visible before the totals follow (rule 1).
func (m *model) sendAhead(w *mworker, b *mbatch, rows mrows, healthy bool) bool {
	if m.env["ahead"] && b.ahead == nil && m.p(.4) {
		ahead := mrows{}
		for k, v := range rows {
			if m.p(.6) {
				ahead[k] = mrow{ids: v.ids}
			}
		}
		if len(ahead) > 0 {
			t := m.begin(w.id, ahead)
			m.say("w%d sends bitmaps ahead of %d", w.id, b.next)
			state := m.attempt(t, healthy)
			if state != visible && !m.off["aheadwait"] {
				return false
			}
			b.ahead = t
			if m.p(.5) {
				return false
			}
		}
	}
	if b.ahead != nil {
		for k := range b.ahead.rows {
			r := rows[k]
			r.ids = 0
			rows[k] = r
		}
	}
	return true
}

// complete takes outcomes in order: offsets may be committed on COMMITTED, the next batch waits for VISIBLE.
func (m *model) complete(w *mworker) {
	for len(w.queue) > 0 {
		b := w.queue[0]
		if b.txn != nil && b.txn.visible && b.state != unsent {
			b.state = visible
		}
		if b.state != committed && b.state != visible {
			return
		}
		m.note(w, b)
		if b.state == committed {
			return
		}
		if m.off["rule6"] {
			for _, l := range b.letters {
				m.letters[l] = true
			}
		}
		w.queue = w.queue[1:]
	}
}

func (m *model) note(w *mworker, b *mbatch) {
	if w.tracker == nil {
		return
	}
	day := -1
	for k := range b.rows {
		day = max(day, k.day)
	}
	w.tracker.Note(int64(b.next), day >= 0, aggregate.Day(day))
}

// commit is refused by the broker for a worker that is not the owner any more; its reply may be lost.
func (m *model) commit(w *mworker) bool {
	g := m.groups[w.group]
	offset, mark, ok := w.tracker.Pending()
	if !ok || w.gen != g.gen {
		return false
	}
	g.commit, g.branch = &Commit{offset, mark.Format()}, w.branch
	m.say("w%d commits %d %s", w.id, offset, g.commit.Metadata)
	if m.p(.2) {
		m.say("  reply lost")
		return false
	}
	w.tracker.Committed(offset, mark)
	return true
}
