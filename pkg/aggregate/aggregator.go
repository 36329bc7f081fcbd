package aggregate

import (
	"fmt"
	"runtime/debug"

	"github.com/zeebo/xxh3"

	"rollcall/pkg/bitmap"
)

// maxDimBytes is the longest dimension value; longer ones are cut. A packed key has one byte for the length.
const maxDimBytes = 255

// Stats says what happened to counted records since the last TakeStats.
type Stats struct {
	// WithoutValue has, per measure, the events that contributed nothing to it: field absent, null or an empty string.
	WithoutValue []int64
	// Cut is the number of dimension values cut to 255 bytes.
	Cut int64
	// ReplacedUTF8 is the number of dimension values and ids in which invalid UTF-8 was replaced.
	ReplacedUTF8 int64
	// Folded is the number of events counted under FoldedKey because their day had MaxKeys keys already.
	Folded int64
	// Saturated is the number of times a count or sum stayed at 2^63−1.
	Saturated int64
	// Panic is the last panic contained in Apply (ReasonPanic) with its stack; empty if there was none.
	Panic string
}

// Aggregator is the running state of one source. It has one owner and is not safe for concurrent use. After Seal it shares nothing
// with what it handed over but immutable strings.
type Aggregator struct {
	p   *Program
	dec decoder

	next  int64 // next offset to apply
	wm    int64 // greatest accepted event time, Unix ms
	hasWM bool

	days  map[Day]*dayState
	keys  int
	dirty []*row // rows changed since the last Seal, in the order of their first change
	bytes int64  // estimate of what Seal would hand over
	stats Stats

	segs [8]daySegment // days seen lately, so that the hot path needs no calendar
	seg  int           // the one used last
	old  int           // the next one to replace

	in input
}

// input is what one record says, once it is known to be good.
type input struct {
	vals     []value
	key      []byte // packed dimensions
	parts    []part // per measure
	timeMs   int64
	cut      int64
	replaced int64
}

// part is one measure's share of a record: an id, or a scaled number as its two's complement.
type part struct {
	present bool
	bits    uint64
}

type daySegment struct {
	segment
	state *dayState
}

// dayState holds the rows of one day.
type dayState struct {
	day    Day
	rows   map[string]*row // by packed dimensions
	folded *row            // the row of FoldedKey, which is no key
}

// row is the running total of one day × dimensions.
type row struct {
	key    string
	ints   []int64
	sets   []bitmap.Collector // since the last Seal; nil while the row is not dirty, as most rows of a day are
	lastMs int64
	seen   uint64 // bit per int cell: an event contributed
	day    Day
	dirty  bool
}

// NewAggregator returns an empty aggregator at offset 0.
func (p *Program) NewAggregator() *Aggregator {
	a := &Aggregator{
		p:    p,
		dec:  &jsonDecoder{root: p.root},
		days: map[Day]*dayState{},
		in:   input{vals: make([]value, p.slots), parts: make([]part, len(p.plan))},
	}
	a.stats.WithoutValue = make([]int64, len(p.plan))
	return a
}

// Next is the next offset to apply.
func (a *Aggregator) Next() int64 { return a.next }

// Watermark is the greatest accepted event time, Unix ms, if there is one.
func (a *Aggregator) Watermark() (ms int64, ok bool) { return a.wm, a.hasWM }

// DeltaBytes estimates the memory Seal would hand over now.
func (a *Aggregator) DeltaBytes() int64 { return a.bytes }

// Keys is the number of rows in memory, over all days that can still change.
func (a *Aggregator) Keys() int { return a.keys }

// TakeStats returns the counts since the last call.
func (a *Aggregator) TakeStats() Stats {
	s := a.stats
	a.stats = Stats{WithoutValue: make([]int64, len(a.p.plan))}
	return s
}

// Skip moves the position to next over offsets that hold no record for us (compacted, aborted, control). It never moves back.
func (a *Aggregator) Skip(next int64) { a.next = max(a.next, next) }

// Apply takes one record and says what became of it; nowMs is the wall clock, Unix ms. The position moves behind the record whatever
// the outcome, except that a record below it is Reread and changes nothing. A bad, late or future record changes no row and not the
// watermark. In steady state Apply allocates nothing.
func (a *Aggregator) Apply(rec Record, nowMs int64) Result {
	if rec.Offset < a.next {
		return Result{Outcome: Reread}
	}
	a.next = rec.Offset + 1
	if reason := a.read(rec); reason != "" {
		return Result{Outcome: Bad, Reason: reason}
	}
	t := a.in.timeMs
	if a.hasWM && t < a.wm-a.p.latenessMs {
		return Result{Outcome: Late}
	}
	limit := nowMs
	if rec.TimestampMs >= year2000Ms {
		limit = min(limit, rec.TimestampMs)
	}
	if t-a.p.skewMs > limit || t >= year9999Ms {
		return Result{Outcome: Future}
	}
	a.count()
	return Result{Outcome: Counted}
}

// read decodes the record into a.in. A panic in here is the record's fault as far as the source is concerned: it is contained, and
// nothing but scratch space has changed.
func (a *Aggregator) read(rec Record) (reason Reason) {
	defer func() {
		if cause := recover(); cause != nil {
			a.stats.Panic = fmt.Sprintf("%v\n%s", cause, debug.Stack())
			reason = ReasonPanic
		}
		clear(a.in.vals) // holds no memory of the record's
	}()
	if rec.Value == nil {
		return ReasonTombstone
	}
	if reason := a.dec.decode(rec.Value, a.in.vals); reason != "" {
		return reason
	}
	a.in.cut, a.in.replaced = 0, 0
	if reason := a.readDims(); reason != "" {
		return reason
	}
	for i := range a.p.plan {
		if reason := a.readPart(&a.p.plan[i], &a.in.parts[i]); reason != "" {
			return reason
		}
	}
	return a.readTime(rec)
}

func (a *Aggregator) readDims() Reason {
	key := a.in.key[:0]
	for _, slot := range a.p.dims {
		v := &a.in.vals[slot]
		if v.kind == kindComposite {
			return ReasonWrongType
		}
		text := v.text
		if len(text) > maxDimBytes {
			text = cut(text)
			a.in.cut++
		}
		if v.replaced {
			a.in.replaced++
		}
		key = append(append(key, byte(len(text))), text...)
	}
	a.in.key = key
	return ""
}

func (a *Aggregator) readPart(s *step, out *part) Reason {
	*out = part{}
	if s.kind == Count {
		*out = part{present: true, bits: 1}
		return ""
	}
	if s.same >= 0 {
		*out = a.in.parts[s.same]
		if s.kind == Sum && int64(out.bits) < 0 {
			return ReasonNegativeSum
		}
		return ""
	}
	v := &a.in.vals[s.slot]
	switch v.kind {
	case kindNone:
		return ""
	case kindBool, kindComposite:
		return ReasonWrongType
	case kindString:
		if len(v.text) == 0 {
			return ""
		}
	case kindNumber:
	}
	out.present = true
	switch s.kind {
	case Distinct:
		id, ok := parseID(v.text)
		if !ok {
			return ReasonWrongType
		}
		out.bits = id
	case DistinctHash:
		out.bits = xxh3.Hash(v.text)
		if v.replaced {
			a.in.replaced++
		}
	default:
		if n, ok := plain(v.text, s.scale); ok {
			out.bits = uint64(n)
			return ""
		}
		d, ok := parseDecimal(v.text)
		if !ok {
			return ReasonWrongType
		}
		n, exact, fits := d.scaled(s.scale)
		switch {
		case s.kind == Sum && d.neg:
			return ReasonNegativeSum
		case !exact:
			return ReasonScale
		case !fits:
			return ReasonWrongType
		}
		out.bits = uint64(n)
	}
	return ""
}

func (a *Aggregator) readTime(rec Record) Reason {
	if a.p.time < 0 {
		a.in.timeMs = rec.TimestampMs
		if rec.TimestampMs < 0 {
			return ReasonNoTime // Kafka: −1 is no timestamp
		}
	} else {
		ms, reason := a.p.format.parse(&a.in.vals[a.p.time], a.p.cfg.Location)
		if reason != "" {
			return reason
		}
		a.in.timeMs = ms
	}
	if a.in.timeMs < year2000Ms {
		return ReasonOldTime
	}
	return ""
}

// count applies a.in to its row.
func (a *Aggregator) count() {
	t := a.in.timeMs
	r := a.row(a.dayAt(t))
	if !r.dirty {
		r.dirty = true
		r.sets = make([]bitmap.Collector, a.p.sets)
		a.dirty = append(a.dirty, r)
		a.bytes += a.p.rowBytes(r)
	}
	r.lastMs = max(r.lastMs, t)
	for i := range a.p.plan {
		s, p := &a.p.plan[i], &a.in.parts[i]
		if !p.present {
			a.stats.WithoutValue[i]++
			continue
		}
		if s.kind.IsSet() {
			a.bytes += r.sets[s.cell].Add(p.bits)
			continue
		}
		a.add(r, s, int64(p.bits))
	}
	a.stats.Cut += a.in.cut
	a.stats.ReplacedUTF8 += a.in.replaced
	if !a.hasWM || t > a.wm {
		a.wm, a.hasWM = t, true
	}
}

func (a *Aggregator) add(r *row, s *step, n int64) {
	total, bit := &r.ints[s.cell], uint64(1)<<s.cell
	switch {
	case s.kind == Count || s.kind == Sum:
		var saturated bool
		if *total, saturated = addSaturating(*total, n); saturated {
			a.stats.Saturated++
		}
	case r.seen&bit == 0:
		*total = n
	case s.kind == Min:
		*total = min(*total, n)
	default:
		*total = max(*total, n)
	}
	r.seen |= bit
}

// row finds or makes the row of a.in.key. Beyond MaxKeys keys of a day it is the row of FoldedKey. Which keys fold depends on nothing
// but the records: a key is known from its first event on, and a restore knows the same ones.
func (a *Aggregator) row(d *dayState) *row {
	if r := d.rows[string(a.in.key)]; r != nil {
		return r
	}
	if d.folded != nil && string(a.in.key) == a.p.folded {
		return d.folded
	}
	if len(d.rows) < a.p.cfg.MaxKeys && string(a.in.key) != a.p.folded {
		r := a.newRow(d, string(a.in.key))
		d.rows[r.key] = r
		return r
	}
	if string(a.in.key) != a.p.folded {
		a.stats.Folded++
	}
	if d.folded == nil {
		d.folded = a.newRow(d, a.p.folded)
	}
	return d.folded
}

func (a *Aggregator) newRow(d *dayState, key string) *row {
	a.keys++
	return &row{key: key, day: d.day, ints: make([]int64, a.p.ints)}
}

// dayAt finds or makes the state of the day that contains t.
func (a *Aggregator) dayAt(t int64) *dayState {
	if s := &a.segs[a.seg]; t >= s.start && t < s.end {
		return s.state
	}
	for i := range a.segs {
		if s := &a.segs[i]; t >= s.start && t < s.end {
			a.seg = i
			return s.state
		}
	}
	s := segmentAt(a.p.cfg.Location, t)
	a.seg = a.old
	a.old = (a.old + 1) % len(a.segs)
	a.segs[a.seg] = daySegment{segment: s, state: a.dayState(s.day)}
	return a.segs[a.seg].state
}

func (a *Aggregator) dayState(day Day) *dayState {
	d := a.days[day]
	if d == nil {
		d = &dayState{day: day, rows: map[string]*row{}}
		a.days[day] = d
	}
	return d
}
