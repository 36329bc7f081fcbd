package sink

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/pkg/aggregate"
)

// queue is the state of everything not completed: per source, batches in offset order. It is a plain state machine without goroutines, clock,
// I/O or lock; the Flusher guards it.
type queue struct {
	measures []aggregate.Measure
	lanes    map[string]*lane
	seq      uint64
	bytes    int64
	// fire are the completions that nobody has been told of yet, in order; telling is the one being told now.
	fire    []event
	telling *event
}

// lane is one source's queue. Its items complete in order; only the first one is ever sent.
type lane struct {
	source string
	items  []*item
	// hidden is the label of the source's last load while readers may not see it yet (DESIGN §1 rule 1); "" otherwise.
	hidden string
	// holdUntil keeps the source out of loads after an encoding error.
	holdUntil time.Time
	// held is that error.
	held error
	// waiters wait for the lane to be empty and visible.
	waiters []*waiter
}

// itemState says who may touch an item's rows.
type itemState uint8

const (
	// itemQueued: never sent. The newest one of a lane takes in further batches.
	itemQueued itemState = iota + 1
	// itemSending: part of the load in flight, whose goroutine reads the rows.
	itemSending
	// itemSplit: some of its bitmaps went ahead or are about to; takes nothing in.
	itemSplit
)

// item is one sealed batch, or several of one source merged.
type item struct {
	lane  *lane
	state itemState
	seq   uint64
	next  int64
	rows  []aggregate.Row
	// index finds a row by its key; made by the first merge, dropped when the item is sent.
	index map[string]int
	// bytes estimates memory, size the encoded length.
	bytes, size int64
	// gates are the dead-letter gates not seen closed yet.
	gates   []<-chan struct{}
	dones   []func(Completion)
	waiters []*waiter
	since   time.Time
	// ahead are bitmap-only parts that must be visible before the rows are sent; only in state itemSplit.
	ahead []Part
	// split says that bitmaps were taken out of rows.
	split bool
	// whole: the rows, and partWhole: the first part of ahead, cannot be made smaller any more and travel whatever their size.
	whole, partWhole bool
	// discard: drop the item as soon as the load in flight lets go of it.
	discard bool
}

// waiter is one call of Flush, Close or WaitSource.
type waiter struct {
	open int
	done chan struct{}
	err  error // set before done is closed
}

// event is a Done to call or, with w, a waiter to release.
type event struct {
	done func(Completion)
	c    Completion
	w    *waiter
}

func newQueue(measures []aggregate.Measure) *queue {
	return &queue{measures: measures, lanes: make(map[string]*lane)}
}

// newItem makes a batch ready for the queue; it looks at every row, so call it without the lock.
func newItem(b Batch, now time.Time) *item {
	it := &item{state: itemQueued, next: b.Next, rows: b.Rows, bytes: b.Bytes, size: rowsSize(b.Rows), since: now, dones: []func(Completion){b.Done}}
	if b.Ready != nil {
		it.gates = []<-chan struct{}{b.Ready}
	}
	if it.bytes <= 0 {
		for i := range b.Rows {
			it.bytes += rowMemory(&b.Rows[i])
		}
	}
	return it
}

// add takes a batch of a source in. limit bounds the encoded size up to which batches merge.
func (q *queue) add(source string, it *item, limit int64, ratio float64) {
	l := q.lanes[source]
	if l == nil {
		l = &lane{source: source}
		q.lanes[source] = l
	}
	q.seq++
	it.lane, it.seq = l, q.seq
	q.bytes += it.bytes
	if n := len(l.items); n > 0 && l.mayTake(it, limit, ratio) {
		q.merge(l.items[n-1], it)
		return
	}
	l.items = append(l.items, it)
}

// mayTake reports whether it may merge into the lane's newest item.
//
// A batch that waits for dead letters never merges into one that does not, nor into the first one that does: otherwise a steady
// trickle of dead letters could keep the source out of every load. So at most two items of a lane wait for dead letters.
func (l *lane) mayTake(it *item, limit int64, ratio float64) bool {
	n := len(l.items)
	tail := l.items[n-1]
	if tail.state != itemQueued || !fits(tail, it, limit, ratio) {
		return false
	}
	if it.ready() {
		return true
	}
	return !tail.ready() && n > 1 && !l.items[n-2].ready()
}

func fits(a, b *item, limit int64, ratio float64) bool {
	return len(a.rows) == 0 || len(b.rows) == 0 || scaled(a.size+b.size, ratio) <= limit
}

// merge moves everything of from into into, which is older.
func (q *queue) merge(into, from *item) {
	q.bytes -= into.bytes + from.bytes
	into.next = max(into.next, from.next)
	into.gates = append(into.gates, from.gates...)
	into.dones = append(into.dones, from.dones...)
	for _, w := range from.waiters {
		if slices.Contains(into.waiters, w) {
			w.open--
			continue
		}
		into.waiters = append(into.waiters, w)
	}
	q.mergeRows(into, from)
	q.bytes += into.bytes
}

func (q *queue) mergeRows(into, from *item) {
	if len(into.rows) == 0 {
		into.rows, into.index = from.rows, from.index
		into.bytes += from.bytes
		into.size = from.size
		return
	}
	if into.index == nil && len(from.rows) > 0 {
		into.index = make(map[string]int, len(into.rows)+len(from.rows))
		for i := range into.rows {
			into.index[rowKey(&into.rows[i])] = i
		}
	}
	for _, row := range from.rows {
		key := rowKey(&row)
		i, ok := into.index[key]
		if !ok {
			into.index[key] = len(into.rows)
			into.rows = append(into.rows, row)
			into.bytes += rowMemory(&row)
			into.size += rowSize(&row)
			continue
		}
		r := &into.rows[i]
		mem, size := rowMemory(r), rowSize(r)
		aggregate.MergeRow(q.measures, r, row)
		into.bytes += rowMemory(r) - mem
		into.size += rowSize(r) - size
	}
}

// rowKey is the row's place in the table within one source: day and dimensions, unambiguous whatever the dimensions contain.
func rowKey(r *aggregate.Row) string {
	n := 12
	for _, d := range r.Dims {
		n += len(d) + 4
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(strconv.Itoa(int(r.Day)))
	for _, d := range r.Dims {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(len(d)))
		b.WriteByte(':')
		b.WriteString(d)
	}
	return b.String()
}

// ready prunes gates that have closed and reports whether none is left.
func (it *item) ready() bool {
	for len(it.gates) > 0 {
		select {
		case <-it.gates[0]:
			it.gates = it.gates[1:]
		default:
			return false
		}
	}
	it.gates = nil
	return true
}

// gates are the channels whose closing may let a source go on.
func (q *queue) gates() []<-chan struct{} {
	var out []<-chan struct{}
	for _, l := range q.lanes {
		if len(l.items) > 0 && !l.items[0].ready() {
			out = append(out, l.items[0].gates[0])
		}
	}
	return out
}

// settle completes batches without rows whose turn has come and forgets lanes with nothing left. Call it after every change.
func (q *queue) settle() {
	for name, l := range q.lanes {
		for len(l.items) > 0 {
			it := l.items[0]
			if it.state != itemQueued || len(it.rows) > 0 || !it.ready() {
				break
			}
			q.complete(it, nil)
		}
		if len(l.items) == 0 && l.hidden == "" {
			for _, w := range l.waiters {
				q.release(w)
			}
			delete(q.lanes, name)
		}
	}
}

// sendable reports whether the lane's first item may be part of a load now.
func (l *lane) sendable(now time.Time) bool {
	if len(l.items) == 0 || l.hidden != "" || now.Before(l.holdUntil) {
		return false
	}
	it := l.items[0]
	return it.state != itemSending && len(it.rows) > 0 && it.ready()
}

// pick chooses the items of the next load, oldest first, and marks them; more says that others would have been ready too. Items of one source that
// could not merge earlier merge now. ahead says that the one item's next bitmap-only part is the load.
func (q *queue) pick(now time.Time, limit int64, ratio float64) (items []*item, ahead, more bool) {
	ready := q.sendable(now)
	if len(ready) == 0 {
		return nil, false, false
	}
	if first := ready[0]; len(first.ahead) > 0 {
		first.state = itemSending
		return []*item{first}, true, len(ready) > 1
	}
	total := int64(0)
	for _, it := range ready {
		if len(it.ahead) > 0 {
			more = true
			continue
		}
		q.compact(it, limit, ratio)
		size := scaled(it.size, ratio)
		if len(items) > 0 && total+size > limit {
			more = true
			continue
		}
		total += size
		it.state, it.index = itemSending, nil
		items = append(items, it)
	}
	return items, false, more
}

func (q *queue) sendable(now time.Time) []*item {
	var ready []*item
	for _, l := range q.lanes {
		if l.sendable(now) {
			ready = append(ready, l.items[0])
		}
	}
	slices.SortFunc(ready, func(a, b *item) int { return cmp.Compare(a.seq, b.seq) })
	return ready
}

// compact merges the items behind it into it while they are ready and fit.
func (q *queue) compact(it *item, limit int64, ratio float64) {
	l := it.lane
	for it.state == itemQueued && len(l.items) > 1 {
		from := l.items[1]
		if from.state != itemQueued || !from.ready() || !fits(it, from, limit, ratio) {
			return
		}
		q.merge(it, from)
		l.items = slices.Delete(l.items, 1, 2)
	}
}

// pressing reports whether a load should start without waiting for the interval: a split source goes on, or a load would be full.
func (q *queue) pressing(now time.Time, limit int64, ratio float64) bool {
	total := int64(0)
	for _, it := range q.sendable(now) {
		if it.state == itemSplit {
			return true
		}
		total += scaled(it.size, ratio)
	}
	return total >= limit
}

// putBack returns an item of a load that was not loaded; the item may be discarded on the way.
func (q *queue) putBack(it *item) {
	it.state = itemQueued
	if it.split {
		it.state = itemSplit
	}
	if it.discard {
		q.complete(it, ErrDiscarded)
	}
}

// loaded notes that a load of the item is done. visible says that readers see it.
func (q *queue) loaded(it *item, ahead bool, label string, visible bool) {
	if !visible {
		it.lane.hidden = label
	}
	if !ahead {
		q.complete(it, nil)
		return
	}
	it.ahead, it.partWhole = it.ahead[1:], false
	q.putBack(it)
}

// complete takes the item out of its lane and tells everybody who waits for it.
func (q *queue) complete(it *item, err error) {
	l := it.lane
	l.items = slices.DeleteFunc(l.items, func(x *item) bool { return x == it })
	q.bytes -= it.bytes
	c := Completion{Source: l.source, Next: it.next, Err: err}
	if err == nil && len(it.rows) > 0 {
		c.Loaded = true
		c.MaxDay = it.rows[0].Day
		for i := range it.rows {
			c.MaxDay = max(c.MaxDay, it.rows[i].Day)
		}
	}
	for _, d := range it.dones {
		if d != nil {
			q.fire = append(q.fire, event{done: d, c: c})
		}
	}
	for _, w := range it.waiters {
		q.release(w)
	}
	it.rows, it.index, it.ahead = nil, nil, nil
}

// release takes one thing a waiter waits for away; with the last one the waiter is told, after the completions before it.
func (q *queue) release(w *waiter) {
	w.open--
	if w.open == 0 {
		q.fire = append(q.fire, event{w: w})
	}
}

// await makes w wait for every batch in the queue and for everybody to be told of earlier ones. It reports whether there is anything to wait for.
func (q *queue) await(w *waiter) bool {
	for _, l := range q.lanes {
		l.await(w)
	}
	return q.awaitTold(w)
}

// awaitSource is await for one source.
func (q *queue) awaitSource(w *waiter, source string) bool {
	if l := q.lanes[source]; l != nil {
		l.await(w)
	}
	return q.awaitTold(w)
}

func (l *lane) await(w *waiter) {
	for _, it := range l.items {
		it.waiters = append(it.waiters, w)
		w.open++
	}
}

// awaitTold makes w wait for everybody to be told, if that is all there is to wait for. It reports whether there is anything.
func (q *queue) awaitTold(w *waiter) bool {
	if w.open == 0 && (q.telling != nil || len(q.fire) > 0) {
		q.fire = append(q.fire, event{w: w})
		return true
	}
	return w.open > 0
}

// awaitIdle makes w wait for the source to be idle. It reports whether there is anything to wait for.
func (q *queue) awaitIdle(w *waiter, source string) bool {
	if l := q.lanes[source]; l != nil {
		l.waiters = append(l.waiters, w)
		w.open++
	}
	return q.awaitTold(w)
}

// idle reports whether nothing of the source is left, untold completions included.
func (q *queue) idle(source string) bool {
	of := func(e event) bool { return e.w == nil && e.c.Source == source }
	return q.lanes[source] == nil && !slices.ContainsFunc(q.fire, of) && (q.telling == nil || !of(*q.telling))
}

// discard drops what is not in flight of a source and reports how many batches that were.
func (q *queue) discard(source string) int {
	l := q.lanes[source]
	if l == nil {
		return 0
	}
	n := 0
	for _, it := range slices.Clone(l.items) {
		if it.state == itemSending {
			it.discard = true
			continue
		}
		n += len(it.dones)
		q.complete(it, ErrDiscarded)
	}
	return n
}

// revealed notes that the load under label is visible.
func (q *queue) revealed(label string) {
	for _, l := range q.lanes {
		if l.hidden == label {
			l.hidden = ""
		}
	}
}

// oldest is when the oldest batch without outcome was accepted; zero if there is none.
func (q *queue) oldest() time.Time {
	var t time.Time
	for _, l := range q.lanes {
		for _, it := range l.items {
			if t.IsZero() || it.since.Before(t) {
				t = it.since
			}
		}
	}
	return t
}

// nextHold is when the first source held back may go on; zero if none is.
func (q *queue) nextHold(now time.Time) time.Time {
	var t time.Time
	for _, l := range q.lanes {
		if l.holdUntil.After(now) && (t.IsZero() || l.holdUntil.Before(t)) {
			t = l.holdUntil
		}
	}
	return t
}

// busy reports whether a batch has no outcome yet.
func (q *queue) busy() bool {
	for _, l := range q.lanes {
		if len(l.items) > 0 {
			return true
		}
	}
	return false
}

// open lists the sources with batches that have no outcome, with the next offset not reached.
func (q *queue) open() []string {
	var out []string
	for _, l := range q.lanes {
		if n := len(l.items); n > 0 {
			out = append(out, l.source+" below "+strconv.FormatInt(l.items[n-1].next, 10))
		}
	}
	slices.Sort(out)
	return out
}

// fail completes everything with err; the run is over.
func (q *queue) fail(err error) {
	for name, l := range q.lanes {
		for _, it := range slices.Clone(l.items) {
			for _, w := range it.waiters {
				w.err = err
			}
			q.complete(it, err)
		}
		for _, w := range l.waiters {
			w.err = err
			q.release(w)
		}
		delete(q.lanes, name)
	}
}
