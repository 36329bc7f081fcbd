package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
)

// The plan of one random run: everything is drawn before the bubble starts, so that a run is a pure function of its plan.
type plan struct {
	Ops       []planOp
	Faults    []planFault
	StateErrs []bool
	MaxBytes  int64
	ByStop    bool // ends with a cancelled Run instead of Close
}

type planOp struct {
	Kind   string
	Source int
	Keys   int // bit mask of the keys the batch touches
	IDs    int // new ids per key
	Gate   bool
	Wait   time.Duration
}

type planFault struct {
	Kind  string
	Hide  bool
	Apply bool
	Takes time.Duration
}

func drawPlan(t *rapid.T) plan {
	kinds := []string{"offer", "offer", "offer", "offer", "wait", "wait", "flush", "request", "discard", "reveal", "gates", "gates", "waitsource", "flushsource"}
	op := rapid.Custom(func(t *rapid.T) planOp {
		return planOp{
			Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			Source: rapid.IntRange(0, 2).Draw(t, "source"),
			Keys:   rapid.IntRange(0, 7).Draw(t, "keys"),
			IDs:    rapid.SampledFrom([]int{0, 1, 3, 40, 300}).Draw(t, "ids"),
			Gate:   rapid.IntRange(0, 4).Draw(t, "gate") < 2,
			Wait:   time.Duration(rapid.IntRange(1, 15000).Draw(t, "wait")) * time.Millisecond,
		}
	})
	fault := rapid.Custom(func(t *rapid.T) planFault {
		return planFault{
			Kind: rapid.SampledFrom([]string{
				"ok", "ok", "ok", "transient", "permanent", "overload", "refused", "toolarge", "lost", "late", "counts", "invalid",
			}).Draw(t, "fault"),
			Hide:  rapid.IntRange(0, 3).Draw(t, "hide") == 0,
			Apply: rapid.Bool().Draw(t, "apply"),
			Takes: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 12 * time.Second}).Draw(t, "takes"),
		}
	})
	return plan{
		Ops:       rapid.SliceOfN(op, 1, 50).Draw(t, "ops"),
		Faults:    rapid.SliceOfN(fault, 0, 25).Draw(t, "faults"),
		StateErrs: rapid.SliceOfN(rapid.Bool(), 0, 8).Draw(t, "stateErrs"),
		MaxBytes:  rapid.SampledFrom([]int64{1500, 6000, 1 << 20}).Draw(t, "max"),
		ByStop:    rapid.IntRange(0, 3).Draw(t, "stop") == 0,
	}
}

func (p plan) step(n int) step {
	if n > len(p.Faults) {
		return ok()
	}
	f := p.Faults[n-1]
	s := step{takes: f.Takes, hide: f.Hide}
	switch f.Kind {
	case "ok":
		s.apply = true
	case "transient":
		s.fail = true
	case "permanent":
		s.fail, s.class = true, ClassPermanent
	case "overload":
		s.fail, s.class = true, ClassOverload
	case "refused":
		s.fail, s.class = true, ClassRefused
	case "toolarge":
		s.fail, s.class = true, ClassTooLarge
	case "lost":
		s.lose, s.apply = true, f.Apply
	case "late":
		s.late, s.apply = 20*time.Second, f.Apply
	case "counts":
		s.apply, s.loadedDiff = true, -1
	case "invalid":
		s.apply = false
	}
	return s
}

// history is one source as the truth has it: totals per key after every batch.
type history struct {
	name      string
	at        map[int64]map[string]cell // by next offset
	last      int64
	gates     map[int64]chan struct{} // dead letters of the batch that ends there
	discarded bool
	done      int64 // greatest next offset completed without error
	failed    bool  // a completion had an error
	accepted  int
	called    int
}

// world runs one plan and collects what is wrong.
type world struct {
	mu    sync.Mutex
	bad   []string
	now   [3]*history
	all   map[string]*history
	tab   *fakeTable
	f     *Flusher
	ended bool
}

func (w *world) Helper() {}

// Errorf collects violations; called with or without locks of others held.
func (w *world) Errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = append(w.bad, fmt.Sprintf(format, args...))
}

func (w *world) fresh(i int) {
	h := &history{name: fmt.Sprintf("s%d/%d", i, len(w.all)), at: map[int64]map[string]cell{0: {}}, gates: map[int64]chan struct{}{}}
	w.now[i], w.all[h.name] = h, h
}

// offer counts events on the touched keys and hands their absolute totals over.
func (w *world) offer(op planOp) {
	h := w.now[op.Source]
	w.tab.mu.Lock() // the table's callbacks read the truth
	next := h.last + 1 + int64(op.IDs%3)
	state := maps.Clone(h.at[h.last])
	var rows []aggregate.Row
	for k := range 3 {
		if op.Keys&(1<<k) == 0 {
			continue
		}
		key := wireRow{Source: h.name, Day: aggregate.Day(k % 2), Dims: []string{fmt.Sprint(k)}}.key()
		c := state[key]
		c.ids = maps.Clone(c.ids)
		if c.ids == nil {
			c.ids, c.lo = map[uint64]bool{}, 1<<30
		}
		c.pv, c.lo, c.last = c.pv+int64(op.IDs)+1, min(c.lo, 1000-next), next
		var ids []uint64
		for i := range op.IDs {
			id := uint64(next)<<20 + uint64(i*i*31)
			ids = append(ids, id)
			c.ids[id] = true
		}
		state[key] = c
		rows = append(rows, aggregate.Row{
			Day: aggregate.Day(k % 2), Dims: []string{fmt.Sprint(k)}, LastEventMs: next,
			Cells: []aggregate.Cell{{Set: bitmap.Of(ids...)}, {Int: c.pv}, {Int: c.lo}},
		})
	}
	h.at[next], h.last = state, next
	h.accepted++
	b := Batch{Source: h.name, Next: next, Rows: rows, Done: func(c Completion) { w.done(h, next, c) }}
	if op.Gate {
		h.gates[next] = make(chan struct{})
		b.Ready = h.gates[next]
	}
	w.tab.mu.Unlock()
	if err := w.f.Offer(b); err != nil {
		w.Errorf("offer: %v", err)
	}
}

// done checks a completion: once per batch, in order, never past a hole.
func (w *world) done(h *history, offered int64, c Completion) {
	w.tab.mu.Lock()
	defer w.tab.mu.Unlock()
	h.called++
	if c.Next < offered {
		w.Errorf("%s: batch below %d completed with %d", h.name, offered, c.Next)
	}
	if c.Err != nil {
		if !h.discarded && !w.ended {
			w.Errorf("%s below %d failed: %v", h.name, c.Next, c.Err)
		}
		h.failed = true
		return
	}
	if h.failed && !h.discarded {
		w.Errorf("%s below %d completed past a hole", h.name, c.Next)
	}
	if c.Next < h.done {
		w.Errorf("%s: %d completed after %d", h.name, c.Next, h.done)
	}
	h.done = c.Next
	for key, want := range h.at[c.Next] {
		got := w.tab.committed(key)
		if got.pv < want.pv || !covers(got.ids, want.ids) {
			w.Errorf("%s below %d completed, but %s is not in the table: %d of %d", h.name, c.Next, key, got.pv, want.pv)
		}
	}
}

func covers(a, b map[uint64]bool) bool {
	for id := range b {
		if !a[id] {
			return false
		}
	}
	return true
}

// committed is what the committed loads say of a row. f.mu is held.
func (f *fakeTable) committed(key string) cell {
	c := cell{ids: map[uint64]bool{}}
	for _, x := range f.labels {
		if x.state != LabelCommitted && x.state != LabelVisible {
			continue
		}
		for _, r := range x.rows {
			if r.key() != key {
				continue
			}
			c.pv = max(c.pv, r.Ints[1])
			for _, id := range r.Sets[0] {
				c.ids[id] = true
			}
		}
	}
	return c
}

// onLoad: no load carries a next offset past dead letters that are not confirmed (rule 6).
func (w *world) onLoad(rows []wireRow) {
	for _, r := range rows {
		for at, gate := range w.all[r.Source].gates {
			if at > r.Next {
				continue
			}
			select {
			case <-gate:
			default:
				w.Errorf("%s below %d sent before its dead letters below %d", r.Source, r.Next, at)
			}
		}
	}
}

// onShow: at any moment the greatest next offset T of a source in the table is the cut of all its totals (rules 1 and 2).
func (w *world) onShow(rows []wireRow) {
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.Source] {
			seen[r.Source] = true
			w.checkCut(w.all[r.Source])
		}
	}
}

func (w *world) checkCut(h *history) {
	cut := int64(0)
	for key, c := range w.tab.rows {
		if strings.HasPrefix(key, h.name+"|") {
			cut = max(cut, c.next)
		}
	}
	truth, known := h.at[cut]
	if !known {
		w.Errorf("%s shows %d, which no batch has", h.name, cut)
		return
	}
	for key, want := range truth {
		got := w.tab.rows[key]
		if got == nil {
			got = &cell{}
		}
		if got.pv != want.pv || got.lo != want.lo || got.last != want.last || !covers(got.ids, want.ids) {
			w.Errorf("%s at %d: %s is %d/%d/%d with %d ids, want %d/%d/%d with %d", h.name, cut, key,
				got.pv, got.lo, got.last, len(got.ids), want.pv, want.lo, want.last, len(want.ids))
		}
	}
}

// openGates confirms the oldest dead letters of a source; with -1 all.
func (w *world) openGates(source int) {
	w.tab.mu.Lock()
	defer w.tab.mu.Unlock()
	for _, h := range w.all {
		if source >= 0 && h != w.now[source] {
			continue
		}
		for _, at := range slices.Sorted(maps.Keys(h.gates)) {
			select {
			case <-h.gates[at]:
				continue
			default:
				close(h.gates[at])
			}
			if source >= 0 {
				return
			}
		}
	}
}

// uncalled lists batches accepted and not completed.
func (w *world) uncalled() (out []string) {
	w.tab.mu.Lock()
	defer w.tab.mu.Unlock()
	for _, h := range w.all {
		if h.called != h.accepted {
			out = append(out, fmt.Sprintf("%s: %d of %d", h.name, h.called, h.accepted))
		}
	}
	return out
}

func (w *world) do(op planOp) {
	switch op.Kind {
	case "offer":
		w.offer(op)
	case "wait":
		time.Sleep(op.Wait)
		synctest.Wait()
	case "flushsource":
		ctx, cancel := within(op.Wait)
		defer cancel()
		h := w.now[op.Source]
		if err := w.f.FlushSource(ctx, h.name); err == nil {
			w.tab.mu.Lock()
			if h.called != h.accepted {
				w.Errorf("%s is flushed with %d of %d", h.name, h.called, h.accepted)
			}
			w.tab.mu.Unlock()
		}
	case "flush":
		ctx, cancel := within(op.Wait)
		defer cancel()
		if err := w.f.Flush(ctx); err == nil {
			if open := w.uncalled(); len(open) > 0 {
				w.Errorf("flushed, but open: %v", open)
			}
		} else if !errors.Is(err, ErrNotDurable) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("flush: %v", err)
		}
	case "waitsource":
		ctx, cancel := within(op.Wait)
		defer cancel()
		h := w.now[op.Source]
		if err := w.f.WaitSource(ctx, h.name); err == nil {
			w.tab.mu.Lock()
			if h.called != h.accepted || !h.sameTotals(w.tab.shown(h.name), h.last) {
				w.Errorf("%s is idle with %d of %d, shows %d of %d", h.name, h.called, h.accepted, w.tab.shown(h.name), h.last)
			}
			w.tab.mu.Unlock()
		}
	case "request":
		w.f.Request()
	case "discard":
		w.tab.mu.Lock()
		h := w.now[op.Source]
		h.discarded = true
		w.fresh(op.Source)
		w.tab.mu.Unlock()
		w.f.Discard(h.name)
	case "reveal":
		w.tab.reveal()
	case "gates":
		w.openGates(op.Source)
	}
}

// shown is the greatest next offset of a source in the table. f.mu is held.
func (f *fakeTable) shown(source string) int64 {
	n := int64(0)
	for key, c := range f.rows {
		if strings.HasPrefix(key, source+"|") {
			n = max(n, c.next)
		}
	}
	return n
}

// sameTotals reports whether nothing was counted between two next offsets.
func (h *history) sameTotals(a, b int64) bool {
	return maps.EqualFunc(h.at[a], h.at[b], func(x, y cell) bool { return x.pv == y.pv })
}

func runPlan(t *testing.T, p plan) []string {
	w := &world{all: map[string]*history{}}
	synctest.Test(t, func(t *testing.T) {
		w.tab = newTable(t)
		w.tab.t, w.tab.onLoad, w.tab.onShow = w, w.onLoad, w.onShow
		w.tab.script = func(n int, _ []wireRow, _ int) step { return p.step(n) }
		w.tab.stateErr = func(n int) error {
			if n <= len(p.StateErrs) && p.StateErrs[n-1] {
				return errors.New("nobody there")
			}
			return nil
		}
		for i := range w.now {
			w.fresh(i)
		}
		f, err := New(Config{Interval: 5 * time.Second, MaxBytes: p.MaxBytes, LabelPrefix: "w", Measures: testMeasures()}, w.tab)
		if err != nil {
			w.Errorf("%v", err)
			return
		}
		w.f = f
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- f.Run(ctx) }()
		for _, op := range p.Ops {
			w.do(op)
		}
		w.finish(p, cancel, ran)
		cancel()
	})
	return w.bad
}

// finish ends the run either way and compares the table with the truth.
func (w *world) finish(p plan, cancel context.CancelFunc, ran chan error) {
	if p.ByStop {
		w.tab.mu.Lock()
		w.ended = true
		w.tab.mu.Unlock()
		open := len(w.uncalled()) > 0
		cancel()
		if err := <-ran; err != nil && (!errors.Is(err, ErrNotDurable) || !open) {
			w.Errorf("run: %v", err)
		}
		time.Sleep(time.Minute) // late transactions end
	} else {
		w.openGates(-1)
		w.tab.mu.Lock()
		w.tab.showOnAsk = true
		w.tab.mu.Unlock()
		start := time.Now()
		if err := w.f.Close(context.Background()); err != nil {
			w.Errorf("close: %v", err)
		}
		if d := time.Since(start); d > 20*time.Minute {
			w.Errorf("close took %v", d)
		}
		if err := <-ran; err != nil {
			w.Errorf("run: %v", err)
		}
		time.Sleep(time.Minute)
		w.tab.reveal()
		for _, h := range w.now {
			w.tab.mu.Lock()
			w.checkEnd(h)
			w.tab.mu.Unlock()
		}
	}
	if open := w.uncalled(); len(open) > 0 {
		w.Errorf("without outcome at the end: %v", open)
	}
}

// checkEnd: the table is the truth, exactly.
func (w *world) checkEnd(h *history) {
	for key, want := range h.at[h.last] {
		got := w.tab.rows[key]
		if got == nil || got.pv != want.pv || got.lo != want.lo || !maps.Equal(got.ids, want.ids) {
			w.Errorf("%s ends wrong: %+v, want %+v", key, got, want)
		}
	}
}

func TestRandomRunsEndInTheTruth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		if bad := runPlan(t, p); len(bad) > 0 {
			rt.Fatalf("%s", strings.Join(bad, "\n"))
		}
	})
}
