package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
)

func testMeasures() []aggregate.Measure {
	return []aggregate.Measure{
		{Name: "uv", Kind: aggregate.Distinct, Field: "u"},
		{Name: "pv", Kind: aggregate.Count},
		{Name: "lo", Kind: aggregate.Min, Field: "x"},
	}
}

// row is a row of the test measures.
func row(day int, dim string, pv, lo int64, ids ...uint64) aggregate.Row {
	return aggregate.Row{
		Day: aggregate.Day(day), Dims: []string{dim}, LastEventMs: pv,
		Cells: []aggregate.Cell{{Set: bitmap.Of(ids...)}, {Int: pv}, {Int: lo}},
	}
}

// wireRow is how the fake target encodes a row.
type wireRow struct {
	Source string
	Next   int64
	Day    aggregate.Day
	Dims   []string
	Ints   []int64
	Nulls  []bool
	Sets   [][]uint64
	Last   int64
}

func (w wireRow) key() string { return fmt.Sprintf("%s|%d|%q", w.Source, w.Day, w.Dims) }

// cell is a row of the table: everything merged.
type cell struct {
	next, pv, lo, last int64
	loSet              bool
	ids                map[uint64]bool
}

// step says what happens to one attempt.
type step struct {
	// apply: the transaction commits.
	apply bool
	// hide: it is not visible before reveal.
	hide bool
	// lose: the reply is lost.
	lose bool
	// prepare: what State says about a label that did not commit, UNKNOWN if empty.
	state LabelState
	class Class
	// fail makes it a known failure.
	fail   bool
	reason string
	// loadedDiff is added to the row count of the reply.
	loadedDiff int64
	takes      time.Duration
	panics     any
	// late: the transaction of a lost reply goes on, and ends after this time: committed with apply, else aborted.
	late time.Duration
}

func ok() step                  { return step{apply: true} }
func fails(c Class) step        { return step{fail: true, class: c} }
func slow(d time.Duration) step { return step{apply: true, takes: d} }

type txn struct {
	data    string
	state   LabelState
	rows    []wireRow
	sources []string
}

// fakeTable is a table that merges, behind a scripted target. It checks the order rules on every load.
type fakeTable struct {
	t interface {
		Errorf(format string, args ...any)
		Helper()
	}
	mu       sync.Mutex
	script   func(n int, rows []wireRow, size int) step // n counts from 1
	stateErr func(n int) error
	encErr   func(parts []Part) error
	labels   map[string]*txn
	order    []string // labels of attempts
	at       []time.Time
	states   int
	rows     map[string]*cell
	inLoad   bool
	accepted int64 // rows committed
	later    []*time.Timer
	// onLoad and onShow look at every load that arrives or becomes visible; f.mu is held.
	onLoad, onShow func(rows []wireRow)
	// showOnAsk makes a committed load visible when its state is asked for.
	showOnAsk bool
}

func newTable(t *testing.T, steps ...step) *fakeTable {
	return &fakeTable{t: t, labels: map[string]*txn{}, rows: map[string]*cell{}, script: func(n int, _ []wireRow, _ int) step {
		if n <= len(steps) {
			return steps[n-1]
		}
		return ok()
	}}
}

func (f *fakeTable) Encode(parts []Part) (Body, error) {
	if f.encErr != nil {
		if err := f.encErr(parts); err != nil {
			return Body{}, err
		}
	}
	var rows []wireRow
	for _, p := range parts {
		for _, r := range p.Rows {
			w := wireRow{Source: p.Source, Next: p.Next, Day: r.Day, Dims: r.Dims, Last: r.LastEventMs}
			for _, c := range r.Cells {
				w.Ints, w.Nulls, w.Sets = append(w.Ints, c.Int), append(w.Nulls, c.Null), append(w.Sets, slices.Collect(c.Set.All()))
			}
			if p.Ahead && (w.Next != 0 || w.Ints[1] != 0 || !w.Nulls[2] || w.Last != 0) {
				f.t.Errorf("a part ahead is not neutral: %+v", w)
			}
			if !p.Ahead && w.Next <= 0 {
				f.t.Errorf("a part without next offset: %+v", w)
			}
			rows = append(rows, w)
		}
	}
	if len(rows) == 0 {
		return Body{}, errors.New("no rows")
	}
	data, err := json.Marshal(rows)
	return Body{Data: data, Size: len(data), Rows: len(rows)}, err
}

func (f *fakeTable) Load(ctx context.Context, label string, body Body) Reply {
	f.mu.Lock()
	if f.inLoad {
		f.t.Errorf("two loads at a time")
	}
	f.inLoad = true
	f.order, f.at = append(f.order, label), append(f.at, time.Now())
	var rows []wireRow
	if err := json.Unmarshal(body.Data, &rows); err != nil {
		f.t.Errorf("body: %v", err)
	}
	s := f.script(len(f.order), rows, len(body.Data))
	x := f.begin(label, body, rows)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.inLoad = false
		f.mu.Unlock()
	}()
	if s.takes > 0 {
		timer := time.NewTimer(s.takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return Reply{Outcome: OutcomeUnknown, Reason: "cancelled", Err: ctx.Err()}
		}
	}
	if s.panics != nil {
		panic(s.panics)
	}
	return f.conclude(x, s, body)
}

// begin checks the rules of a load that arrives. f.mu is held.
func (f *fakeTable) begin(label string, body Body, rows []wireRow) *txn {
	x := f.labels[label]
	if x == nil {
		x = &txn{data: string(body.Data), rows: rows}
		f.labels[label] = x
	}
	if x.data != string(body.Data) {
		f.t.Errorf("label %s names two bodies", label)
	}
	for _, r := range rows {
		if !slices.Contains(x.sources, r.Source) {
			x.sources = append(x.sources, r.Source)
		}
	}
	for other, y := range f.labels {
		if y.state != LabelCommitted {
			continue
		}
		for _, s := range y.sources {
			before, now := y.next(s), x.next(s)
			early := now > before && f.shown(s) < before && !x.contains(y, s)
			if before == 0 { // bitmaps ahead
				early = now > 0 && !f.covered(y)
			}
			if early {
				f.t.Errorf("%s of %s below %d sent while %s below %d is committed and not visible", label, s, now, other, before)
			}
		}
	}
	if f.onLoad != nil {
		f.onLoad(rows)
	}
	return x
}

// next is the next offset of a source in the load; 0 if it is not in it or only ahead.
func (x *txn) next(source string) int64 {
	n := int64(0)
	for _, r := range x.rows {
		if r.Source == source {
			n = max(n, r.Next)
		}
	}
	return n
}

// contains reports whether every row of a source in y is in x too: then y's batch was not loaded whole and goes again, merged.
func (x *txn) contains(y *txn, source string) bool {
	keys := map[string]bool{}
	for _, r := range x.rows {
		keys[r.key()] = true
	}
	for _, r := range y.rows {
		if r.Source == source && !keys[r.key()] {
			return false
		}
	}
	return true
}

// covered reports whether readers see all ids of a load, from whatever load. f.mu is held.
func (f *fakeTable) covered(x *txn) bool {
	for _, r := range x.rows {
		c := f.rows[r.key()]
		for _, id := range r.Sets[0] {
			if c == nil || !c.ids[id] {
				return false
			}
		}
	}
	return true
}

func (f *fakeTable) conclude(x *txn, s step, body Body) Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x.state == LabelCommitted || x.state == LabelVisible {
		return Reply{Outcome: OutcomeDone, ByLabel: true}
	}
	if x.state == LabelPrepare {
		return Reply{Outcome: OutcomeUnknown, Reason: "label_running", Err: errors.New("label exists: RUNNING")}
	}
	if s.late > 0 {
		x.state = LabelPrepare
		f.later = append(f.later, time.AfterFunc(s.late, func() { f.endLate(x, s, body) }))
		return Reply{Outcome: OutcomeUnknown, Reason: "no_reply", Err: errors.New("cut off")}
	}
	if s.apply {
		x.state = LabelCommitted
		f.accepted += int64(body.Rows)
		if !s.hide {
			f.show(x)
		}
	} else {
		x.state = s.state
	}
	why := fmt.Errorf("load: %w", errors.New("server says "+s.reason+" "+s.class.String()))
	switch {
	case s.lose:
		return Reply{Outcome: OutcomeUnknown, Class: s.class, Reason: "no_reply", Err: why}
	case s.fail:
		return Reply{Outcome: OutcomeFailed, Class: s.class, Reason: s.reason, Err: why, RejectedRows: "row 1: no"}
	case !s.apply:
		return Reply{Err: why} // invalid outcome
	}
	return Reply{Outcome: OutcomeDone, Visible: !s.hide, Loaded: int64(body.Rows) + s.loadedDiff}
}

func (f *fakeTable) endLate(x *txn, s step, body Body) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.state = LabelAborted
	if s.apply {
		x.state = LabelCommitted
		f.accepted += int64(body.Rows)
		if !s.hide {
			f.show(x)
		}
	}
}

// show makes a committed transaction visible. f.mu is held.
func (f *fakeTable) show(x *txn) {
	x.state = LabelVisible
	for _, r := range x.rows {
		c := f.rows[r.key()]
		if c == nil {
			c = &cell{ids: map[uint64]bool{}}
			f.rows[r.key()] = c
		}
		c.next, c.pv, c.last = max(c.next, r.Next), max(c.pv, r.Ints[1]), max(c.last, r.Last)
		if !r.Nulls[2] && (!c.loSet || r.Ints[2] < c.lo) {
			c.lo, c.loSet = r.Ints[2], true
		}
		for _, id := range r.Sets[0] {
			c.ids[id] = true
		}
	}
	if f.onShow != nil {
		f.onShow(x.rows)
	}
}

func (f *fakeTable) reveal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.labels {
		if x.state == LabelCommitted {
			f.show(x)
		}
	}
}

func (f *fakeTable) setScript(s func(n int, rows []wireRow, size int) step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = s
}

func (f *fakeTable) State(_ context.Context, label string) (LabelState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states++
	if f.stateErr != nil {
		if err := f.stateErr(f.states); err != nil {
			return "", err
		}
	}
	x := f.labels[label]
	if x == nil || x.state == "" {
		return LabelUnknown, nil
	}
	if f.showOnAsk && x.state == LabelCommitted {
		f.show(x)
	}
	return x.state, nil
}

func (f *fakeTable) attempts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.order)
}

func (f *fakeTable) times() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.at)
}

// get is a row of the table; the zero cell if there is none.
func (f *fakeTable) get(source string, day int, dim string) cell {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.rows[wireRow{Source: source, Day: aggregate.Day(day), Dims: []string{dim}}.key()]
	if c == nil {
		return cell{}
	}
	return *c
}

// committedNext is the greatest next offset of a source in committed loads.
func (f *fakeTable) committedNext(source string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := int64(0)
	for _, x := range f.labels {
		if x.state != LabelCommitted && x.state != LabelVisible {
			continue
		}
		for _, r := range x.rows {
			if r.Source == source {
				n = max(n, r.Next)
			}
		}
	}
	return n
}
