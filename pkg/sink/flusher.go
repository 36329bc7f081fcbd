package sink

import (
	"context"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Flusher collects batches into loads; the package comment has its contract. Make it with New, run it with Run; every other method may be called
// from any goroutine, before, during and after Run.
type Flusher struct {
	cfg     Config
	target  Target
	log     *zap.Logger
	metrics *Metrics

	wake  chan struct{} // to Run: something changed
	kick  chan struct{} // to the load in flight: closing began or its deadline moved
	ended chan struct{} // closed when Run has returned, as far as others can tell

	mu      sync.Mutex // guards everything below; never held while calling anybody
	q       *queue
	pace    *pace
	phase   phase
	endErr  error // what Run returned
	closing bool
	closeBy time.Time // no attempt starts that cannot end by then; zero: no limit
	// requested: Request was called since the last load was composed.
	requested bool
	// urgent counts the calls of Flush and WaitSource that wait.
	urgent int
	// more: the last load left out sources for want of room.
	more   bool
	labels uint64 // counter for labels
	report report // what Status tells
}

type phase uint8

const (
	phaseNew phase = iota
	phaseRunning
	phaseEnded
)

// New checks cfg and makes a Flusher; it starts nothing.
func New(cfg Config, target Target) (*Flusher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := &Flusher{
		cfg: cfg, target: target, log: cfg.Log, metrics: cfg.Metrics,
		wake: make(chan struct{}, 1), kick: make(chan struct{}, 1), ended: make(chan struct{}),
		q: newQueue(cfg.Measures), pace: newPace(cfg.Interval, cfg.MaxBytes),
	}
	f.metrics.interval.Set(cfg.Interval.Seconds())
	return f, nil
}

// Run owns the loop and everything it starts. It returns when ctx is done: then no work starts any more, the load in flight is cut off, and every
// batch not known durable gets its Done with an error. It also returns when Close has begun and every batch has its outcome. It returns
// nil if nothing was left open, a NotDurableError if something was, and a PanicError after a panic; whoever waits gets the same.
func (f *Flusher) Run(ctx context.Context) error {
	f.mu.Lock()
	if f.phase != phaseNew {
		f.mu.Unlock()
		return errRunning
	}
	f.phase = phaseRunning
	f.mu.Unlock()

	work, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &runner{Flusher: f, loads: make(chan loadResult, 1), polls: make(chan pollResult, 1)}
	err := guard(func() error { return r.loop(work) })
	cancel()
	if jerr := r.join(); err == nil {
		err = jerr
	}
	return f.end(err, context.Cause(ctx))
}

// end gives everything still open its outcome.
func (f *Flusher) end(bug, cause error) error {
	f.mu.Lock()
	err := bug
	if open := f.q.open(); err == nil && len(open) > 0 {
		err = f.notDurable(cause)
	}
	f.phase, f.closing, f.endErr = phaseEnded, true, err
	batchErr := err
	if batchErr == nil {
		batchErr = ErrClosed // only for waiters on visibility; no batch is open
	}
	f.q.fail(batchErr)
	f.mu.Unlock()
	for more := true; more; {
		if perr := guard(func() error { more = f.fireOne(); return nil }); perr != nil && err == nil {
			err = perr
		}
	}
	f.mu.Lock()
	f.endErr = err
	f.mu.Unlock()
	f.metrics.setOldest(time.Time{})
	close(f.ended)
	return err
}

// fireOne calls the next Done or releases the next waiter; false if there is none.
func (f *Flusher) fireOne() bool {
	f.mu.Lock()
	if len(f.q.fire) == 0 {
		f.q.fire = nil
		f.mu.Unlock()
		return false
	}
	e := f.q.fire[0]
	f.q.fire[0] = event{}
	f.q.fire = f.q.fire[1:]
	f.q.telling = &e
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.q.telling = nil
		f.mu.Unlock()
	}()
	if e.w != nil {
		close(e.w.done)
		return true
	}
	e.done(e.c)
	return true
}

// guard turns a panic of fn into a PanicError.
func guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// locked runs fn with f.mu held, and lets go of it also when fn panics: whoever waits must be told.
func (f *Flusher) locked(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// signal tells Run that something changed.
func (f *Flusher) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// nextLabel makes a label nobody has used. f.mu must be held.
func (f *Flusher) nextLabel() string {
	f.labels++
	return f.cfg.LabelPrefix + "-" + strconv.FormatUint(f.labels, 10)
}

// runner is the state of Run's goroutine.
type runner struct {
	*Flusher
	load     *load // in flight, nil if none
	loads    chan loadResult
	polling  bool
	polls    chan pollResult
	hidden   []*hiddenLoad
	nextTick time.Time
}

func (r *runner) loop(ctx context.Context) error {
	r.nextTick = time.Now().Add(r.cfg.Interval)
	for {
		r.settle()
		if ctx.Err() != nil || r.finished() {
			return nil //nolint:nilerr // the end of ctx is how the loop ends; Run says what is open
		}
		r.start(ctx)
		r.startPoll(ctx)
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

// settle completes what needs no load, tells everybody and brings the gauges up to date.
func (r *runner) settle() {
	r.locked(r.q.settle)
	for r.fireOne() {
	}
	r.locked(func() {
		r.metrics.setOldest(r.q.oldest())
		r.metrics.interval.Set(r.pace.interval.Seconds())
		r.refreshBlocked(time.Now())
	})
}

// finished reports whether Close has begun and nothing is left to do.
func (r *runner) finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing && r.load == nil && len(r.q.fire) == 0 && !r.q.busy()
}

// start begins a load if none is in flight and it is time for one.
func (r *runner) start(ctx context.Context) {
	if r.load != nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	calm := !r.pace.widened()
	due := !now.Before(r.nextTick) || (r.requested && calm)
	hurry := r.closing || r.urgent > 0 || (calm && (r.more || r.q.pressing(now, r.pace.limit, r.pace.ratio)))
	seal := due && !r.closing && r.cfg.Seal != nil
	if due {
		r.requested = false
		r.nextTick = now.Add(r.pace.interval)
	}
	r.mu.Unlock()
	if !due && !hurry {
		return
	}
	var sealed time.Time
	if seal {
		sealed = now
		sctx, cancel := context.WithTimeout(ctx, r.cfg.SealTimeout)
		r.cfg.Seal(sctx)
		cancel()
	}
	r.compose(ctx, sealed)
}

// compose makes a load of what may be sent and starts it. sealed is when the seal before it began, zero if there was none.
func (r *runner) compose(ctx context.Context, sealed time.Time) {
	now := time.Now()
	ld := &load{since: now}
	r.locked(func() {
		ld.items, ld.ahead, r.more = r.q.pick(now, r.pace.limit, r.pace.ratio)
		if len(ld.items) > 0 {
			r.report.inFlight = InFlightStatus{Since: now}
		}
	})
	if len(ld.items) == 0 {
		return
	}
	r.load = ld
	go func() {
		res := loadResult{err: errExited}
		defer func() { r.loads <- res }()
		begun := sealed
		if begun.IsZero() {
			begun = now
		}
		ctx, span := r.span(ctx, "load", begun)
		r.traceSeal(ctx, sealed, now)
		defer func() { traceLoad(span, ld, res) }()
		if err := guard(func() error { res = r.runLoad(ctx, ld); return nil }); err != nil {
			res = loadResult{err: err}
		}
	}()
}

// wait sleeps until something happens.
func (r *runner) wait(ctx context.Context) error {
	now := time.Now()
	timer := time.NewTimer(r.untilNext(now))
	defer timer.Stop()
	r.mu.Lock()
	gates := r.q.gates()
	r.mu.Unlock()
	cases := []reflect.SelectCase{
		receive(ctx.Done()), receive(r.wake), receive(timer.C), receive(r.loads), receive(r.polls),
	}
	for _, g := range gates {
		cases = append(cases, receive(g))
	}
	switch i, v, _ := reflect.Select(cases); i {
	case 3:
		return r.loadEnded(v.Interface().(loadResult))
	case 4:
		return r.pollEnded(v.Interface().(pollResult))
	}
	return nil
}

func receive(ch any) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)}
}

// untilNext is the time to the next thing the clock decides.
func (r *runner) untilNext(now time.Time) time.Duration {
	d := time.Hour
	if r.load == nil {
		d = min(d, r.nextTick.Sub(now))
		r.mu.Lock()
		if t := r.q.nextHold(now); !t.IsZero() {
			d = min(d, t.Sub(now))
		}
		r.mu.Unlock()
	}
	if !r.polling {
		for _, h := range r.hidden {
			d = min(d, h.next.Sub(now))
		}
	}
	return max(d, 0)
}

// loadEnded takes the load in flight back.
func (r *runner) loadEnded(res loadResult) error {
	ld := r.load
	r.load = nil
	if res.err != nil {
		return res.err
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !res.stopped {
		r.report.inFlight = InFlightStatus{}
	}
	switch {
	case res.done:
		for _, it := range ld.items {
			it.lane.held, it.lane.holdUntil = nil, time.Time{}
			r.q.loaded(it, ld.ahead, ld.label, res.visible)
		}
		if !res.visible {
			r.hidden = append(r.hidden, &hiddenLoad{label: ld.label, since: now, next: now.Add(jitter(firstPoll))})
		}
	default:
		for _, it := range ld.items {
			if res.split {
				r.split(it, ld.ahead)
			}
			r.q.putBack(it)
		}
	}
	if r.pace.widened() {
		r.nextTick = now.Add(r.pace.interval)
	}
	return nil
}

// split prepares the only item of a load that was too large to go in parts. f.mu must be held.
func (r *runner) split(it *item, ahead bool) {
	limit := int64(float64(r.pace.limit) / r.pace.ratio)
	if ahead {
		part := it.ahead[0]
		parts := splitPart(part, r.cfg.Measures, min(limit, rowsSize(part.Rows)/2))
		it.partWhole = len(parts) < 2
		it.ahead = append(parts, it.ahead[1:]...)
		return
	}
	it.split, it.index = true, nil
	it.ahead = splitAhead(it, r.cfg.Measures, limit)
	it.whole = len(it.ahead) == 0
	it.size = rowsSize(it.rows)
	r.log.Info("source over the load limit: bitmaps go ahead", zap.String("source", it.lane.source),
		zap.Int("loads", len(it.ahead)+1), zap.Int64("limit", r.pace.limit))
}

// join waits for the goroutines Run started and takes over what they found out. Their ctx is done.
func (r *runner) join() error {
	var err error
	if r.load != nil {
		err = guard(func() error { return r.loadEnded(<-r.loads) })
	}
	if r.polling {
		res := <-r.polls
		if err == nil && res.err != nil {
			err = res.panicked()
		}
	}
	return err
}

// notDurable describes what is open. f.mu must be held.
func (f *Flusher) notDurable(cause error) *NotDurableError {
	e := &NotDurableError{Sources: f.q.open(), Last: f.report.lastErr, Cause: cause}
	if f.report.inFlight.Label != "" {
		e.Labels = []string{f.report.inFlight.Label}
	}
	return e
}

// forget takes a waiter that gave up out of the queue. f.mu must be held.
func (f *Flusher) forget(w *waiter) {
	drop := func(ws []*waiter) []*waiter {
		return slices.DeleteFunc(ws, func(x *waiter) bool { return x == w })
	}
	for _, l := range f.q.lanes {
		l.waiters = drop(l.waiters)
		for _, it := range l.items {
			it.waiters = drop(it.waiters)
		}
	}
}
