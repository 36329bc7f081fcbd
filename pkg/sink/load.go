package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// stateError is the label value for a question for a label's state that nobody answered.
const stateError LabelState = "error"

const (
	firstPoll = 200 * time.Millisecond
	maxPoll   = 5 * time.Second
	// holdPoll is how often a load that waits for the table asks again.
	holdPoll = time.Second
	// minAttempt is the least time an attempt is given while closing.
	minAttempt = time.Second
	// failingAfter is how many attempts in a row fail before the sink counts as blocked for that alone.
	failingAfter = 3
)

// load is one load on its way. Its goroutine owns it, and the rows of its items, until it hands back a loadResult.
type load struct {
	items []*item
	// ahead: the load is the first bitmap-only part of the only item.
	ahead bool
	label string
	body  Body
	since time.Time
	// failures counts attempts that failed since the load began, refusals those of ClassRefused.
	failures, refusals int
	// spent: the next attempt needs a new label.
	spent  bool
	reason string
}

// loadResult is what became of a load. Not done means that nothing is known to be loaded and that its items go back to the queue.
type loadResult struct {
	done, visible bool
	// split asks for the only item to go in parts.
	split bool
	// stopped: ctx ended before the outcome was known.
	stopped bool
	// err is a panic.
	err error
}

// runLoad encodes the load and repeats it until it is done, must be composed anew, or ctx is done.
func (f *Flusher) runLoad(ctx context.Context, ld *load) loadResult {
	for {
		if res, ok := f.encode(ld); !ok {
			return res
		}
		rep, ok := f.deliver(ctx, ld)
		switch {
		case !ok:
			return loadResult{stopped: true}
		case rep.Outcome == OutcomeDone:
			f.noteDone(ld, rep)
			return loadResult{done: true, visible: rep.Visible}
		case rep.Class == ClassUnreadable:
			if !f.pause(ctx, wait(rep.Class, ld.failures, rep.RetryAfter)) {
				return loadResult{stopped: true}
			}
		case len(ld.items) == 1:
			return loadResult{split: true}
		default:
			f.shrink(ld, len(ld.items)/2)
		}
	}
}

// encode makes the body, with as many sources as the limit allows, and gives it a label. Not ok means that there is nothing to send.
func (f *Flusher) encode(ld *load) (loadResult, bool) {
	for {
		body, err := f.target.Encode(ld.parts())
		if err != nil {
			if f.holdBack(ld, err); len(ld.items) == 0 {
				return loadResult{}, false
			}
			continue
		}
		n := len(ld.items)
		size := int64(body.Size)
		f.mu.Lock()
		f.pace.encoded(ld.estimate(), size)
		limit := f.pace.limit
		f.mu.Unlock()
		if size > limit && n > 1 {
			f.shrink(ld, min(n-1, max(1, int(int64(n)*limit/size))))
			continue
		}
		if size > limit && ld.splittable() {
			return loadResult{split: true}, false
		}
		f.mu.Lock()
		ld.body = body
		f.report.inFlight = InFlightStatus{Rows: body.Rows, Bytes: len(body.Data), Since: ld.since}
		f.relabel(ld)
		f.mu.Unlock()
		return loadResult{}, true
	}
}

func (ld *load) parts() []Part {
	if ld.ahead {
		return ld.items[0].ahead[:1:1]
	}
	parts := make([]Part, len(ld.items))
	for i, it := range ld.items {
		parts[i] = Part{Source: it.lane.source, Next: it.next, Rows: it.rows}
	}
	return parts
}

func (ld *load) estimate() int64 {
	if ld.ahead {
		return rowsSize(ld.items[0].ahead[0].Rows)
	}
	n := int64(0)
	for _, it := range ld.items {
		n += it.size
	}
	return n
}

// splittable reports whether the load can still be made smaller.
func (ld *load) splittable() bool {
	it := ld.items[0]
	switch {
	case len(ld.items) > 1:
		return true
	case ld.ahead:
		return !it.partWhole
	default:
		return !it.whole
	}
}

// shrink keeps the first n items and puts the others back: they go into the next load.
func (f *Flusher) shrink(ld *load, n int) {
	f.mu.Lock()
	for _, it := range ld.items[n:] {
		f.q.putBack(it)
	}
	f.more = true
	f.mu.Unlock()
	ld.items = ld.items[:n]
	f.signal()
}

// holdBack takes the sources that cannot be encoded out of the load, so that the others go on; they are tried again later.
func (f *Flusher) holdBack(ld *load, err error) {
	bad := map[*item]error{ld.items[0]: err}
	if len(ld.items) > 1 {
		clear(bad)
		for _, it := range ld.items {
			one := &load{items: []*item{it}}
			if _, err := f.target.Encode(one.parts()); err != nil {
				bad[it] = err
			}
		}
		if len(bad) == 0 { // only together: never two sources' fault, so take them one by one
			f.shrink(ld, 1)
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var good []*item
	for _, it := range ld.items {
		err, isBad := bad[it]
		if !isBad {
			good = append(good, it)
			continue
		}
		if it.lane.held == nil {
			f.log.Error("rows cannot be encoded, source held back", zap.String("source", it.lane.source), zap.Error(err))
		}
		it.lane.held, it.lane.holdUntil = err, time.Now().Add(jitter(permanentMax))
		f.q.putBack(it)
	}
	ld.items = good
	f.signal()
}

// deliver repeats the load under its label until it is done, or must be composed or encoded anew. Not ok means that ctx is done.
func (f *Flusher) deliver(ctx context.Context, ld *load) (Reply, bool) {
	for {
		if !f.fits(ctx, ld) || !f.permit(ctx) {
			return Reply{}, false
		}
		start := time.Now()
		actx, span := f.span(ctx, "attempt", start)
		rep := f.attempt(actx, ld)
		traceAttempt(span, ld.label, rep)
		f.metrics.duration.Observe(time.Since(start).Seconds())
		if rep.Outcome == OutcomeDone && f.countsMatch(ld, &rep) {
			f.mu.Lock()
			f.pace.done(time.Now(), int64(ld.body.Size), time.Since(start))
			f.mu.Unlock()
			return rep, true
		}
		if ctx.Err() != nil {
			f.metrics.loads.WithLabelValues(status(rep)).Inc()
			return Reply{}, false
		}
		if f.noteFailure(ld, rep) {
			return rep, true
		}
		if !f.pause(ctx, wait(rep.Class, ld.step(rep.Class), rep.RetryAfter)) {
			return Reply{}, false
		}
	}
}

// fits waits while the table is not as expected. False means that ctx is done.
func (f *Flusher) fits(ctx context.Context, ld *load) bool {
	if f.cfg.Hold == nil {
		return ctx.Err() == nil
	}
	for {
		err := f.cfg.Hold()
		if err == nil {
			return ctx.Err() == nil
		}
		now := time.Now()
		f.mu.Lock()
		f.report.lastErr, f.report.lastErrAt = err, now
		f.block(now, BlockTable, Reply{Err: err}, []zap.Field{
			zap.String("label", ld.label), zap.Int("rows", ld.body.Rows), zap.Int("bytes", len(ld.body.Data)), zap.Error(err),
		})
		f.mu.Unlock()
		if !f.pause(ctx, holdPoll) {
			return false
		}
	}
}

// step is the n of the back-off: refusals count for themselves, since the first one is followed by a quick second try.
func (ld *load) step(c Class) int {
	if c == ClassRefused {
		return ld.refusals
	}
	return ld.failures
}

// attempt makes one attempt and, if its outcome is unknown, asks for the label's state.
func (f *Flusher) attempt(ctx context.Context, ld *load) Reply {
	f.mu.Lock()
	if ld.spent {
		f.relabel(ld)
	}
	f.report.inFlight.Attempts++
	f.mu.Unlock()
	rep := f.target.Load(ctx, ld.label, ld.body)
	switch rep.Outcome {
	case OutcomeDone, OutcomeFailed:
		return rep
	default:
		rep.Outcome = OutcomeUnknown
		return f.resolve(ctx, ld.label, rep)
	}
}

// resolve asks what became of an attempt without an answer. What cannot be told stays unknown: the body is then sent again under its label.
func (f *Flusher) resolve(ctx context.Context, label string, rep Reply) Reply {
	since := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		state, err := f.ask(ctx, label)
		switch {
		case err != nil:
			rep.Err = errors.Join(rep.Err, fmt.Errorf("label state: %w", err))
			return rep
		case state == LabelCommitted || state == LabelVisible:
			return Reply{Outcome: OutcomeDone, Visible: state == LabelVisible, ByLabel: true}
		case state == LabelAborted:
			rep.Outcome = OutcomeFailed
			return rep
		case state == LabelPrepare || state == LabelPrepared:
			if time.Since(since) >= f.cfg.PollLimit {
				rep.Err = errors.Join(rep.Err, fmt.Errorf("label %s is still %s after %v", label, state, f.cfg.PollLimit))
				return rep
			}
			if !sleep(ctx, nil, pollWait(n)) {
				return rep
			}
		default: // never begun, or forgotten by the server
			if rep.Class == ClassTooLarge {
				rep.Outcome = OutcomeFailed
			}
			return rep
		}
	}
	return rep
}

// ask asks for a label's state and counts the answer.
func (f *Flusher) ask(ctx context.Context, label string) (LabelState, error) {
	ctx, span := f.span(ctx, "label state", time.Now())
	state, err := f.target.State(ctx, label)
	traceState(span, state, err)
	if err != nil {
		f.metrics.states.WithLabelValues(string(stateError)).Inc()
		return "", err
	}
	switch state {
	case LabelPrepare, LabelPrepared, LabelCommitted, LabelVisible, LabelAborted:
	default:
		state = LabelUnknown
	}
	f.metrics.states.WithLabelValues(string(state)).Inc()
	return state, nil
}

// countsMatch checks the server's own counts of a done load and counts its rows. If they differ from what was sent, the table is not as
// expected, and the reply becomes a refusal.
func (f *Flusher) countsMatch(ld *load, rep *Reply) bool {
	if rep.ByLabel {
		f.confirmed("label", int64(ld.body.Rows))
		return true
	}
	f.confirmed("reply", rep.Loaded)
	if rep.Loaded == int64(ld.body.Rows) && rep.Filtered == 0 {
		return true
	}
	*rep = Reply{
		Outcome: OutcomeFailed, Class: ClassRefused, Reason: reasonRowCount, RejectedRows: rep.RejectedRows,
		Err: fmt.Errorf("label %s: %d rows sent, %d loaded, %d filtered", ld.label, ld.body.Rows, rep.Loaded, rep.Filtered),
	}
	return false
}

// confirmed counts rows by what confirmed them.
func (f *Flusher) confirmed(by string, rows int64) {
	rows = max(0, rows)
	f.metrics.rows.WithLabelValues(by).Add(float64(rows))
	f.mu.Lock()
	f.report.rows += rows
	f.mu.Unlock()
}

// permit waits until an attempt may start: while closing, only if it is likely to end in time. False means that ctx is done.
func (f *Flusher) permit(ctx context.Context) bool {
	for {
		f.mu.Lock()
		need := min(f.cfg.AttemptTimeout, max(minAttempt, 2*f.pace.lastDuration))
		ok := !f.closing || f.closeBy.IsZero() || time.Until(f.closeBy) >= need
		f.mu.Unlock()
		if ok {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-f.kick:
		}
	}
}

// pause waits before the next attempt; the beginning of Close cuts it short, once. False means that ctx is done.
func (f *Flusher) pause(ctx context.Context, d time.Duration) bool {
	f.mu.Lock()
	if f.closing {
		d = min(d, closingMax)
	}
	f.mu.Unlock()
	return sleep(ctx, f.kick, d)
}

// sleep waits for d or a kick; false means that ctx is done.
func sleep(ctx context.Context, kick <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-kick:
	}
	return true
}

// pollWait is the time between two questions for a label's state.
func pollWait(n int) time.Duration { return jitter(min(firstPoll<<min(n, 10), maxPoll)) }

// noteFailure counts, remembers and logs a failed attempt, once per kind of failure. It reports whether the load must be made smaller or be
// encoded anew.
func (f *Flusher) noteFailure(ld *load, rep Reply) (anew bool) {
	reason := rep.Reason
	if reason == "" {
		reason = rep.Class.String()
	}
	if rep.Err == nil {
		rep.Err = fmt.Errorf("load %s without a cause", status(rep))
	}
	f.metrics.loads.WithLabelValues(status(rep)).Inc()
	f.metrics.retries.WithLabelValues(reason).Inc()
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	ld.failures++
	if rep.Class == ClassRefused && rep.Outcome == OutcomeFailed {
		// The label may be spent: a load whose counts differ is committed, and asking for its label again would only hear that it is
		// finished. So a refused body goes again under a new one.
		ld.refusals++
		ld.spent = true
	}
	f.report.lastErr, f.report.lastErrAt = rep.Err, now
	fields := []zap.Field{
		zap.String("label", ld.label), zap.Int("rows", ld.body.Rows), zap.Int("bytes", len(ld.body.Data)), zap.String("reason", reason),
		zap.NamedError("cause", innermost(rep.Err)), zap.Error(rep.Err),
	}
	if ld.reason != reason {
		f.log.Warn("load not done, it will be repeated", fields...)
	}
	ld.reason = reason
	switch rep.Class {
	case ClassOverload:
		f.pace.overloaded()
	case ClassTooLarge:
		if rep.Outcome == OutcomeFailed {
			f.pace.tooLarge(now, int64(ld.body.Size))
			if ld.splittable() {
				return true
			}
		}
		f.block(now, BlockTooLarge, rep, fields)
	case ClassRefused:
		if ld.refusals > 1 || rep.Outcome != OutcomeFailed {
			f.block(now, BlockRefused, rep, fields)
		}
	case ClassPermanent:
		f.block(now, BlockPermanent, rep, fields)
	case ClassUnreadable:
		if rep.Outcome == OutcomeFailed {
			return true
		}
	case ClassTransient:
	}
	if ld.failures >= failingAfter && f.report.loadBlock == "" {
		f.block(now, BlockFailing, rep, fields)
	}
	return false
}

// relabel gives the load's body a new label. f.mu must be held.
func (f *Flusher) relabel(ld *load) {
	ld.label, ld.spent = f.nextLabel(), false
	f.report.inFlight.Label = ld.label
}

// noteDone counts, remembers and logs a load that was done.
func (f *Flusher) noteDone(ld *load, rep Reply) {
	f.metrics.loads.WithLabelValues(statusDone).Inc()
	f.metrics.bytes.Add(float64(len(ld.body.Data)))
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.done++
	f.report.last = LoadStatus{Label: ld.label, Rows: ld.body.Rows, Bytes: len(ld.body.Data), At: now, Duration: now.Sub(ld.since)}
	if ld.failures > 0 {
		f.log.Info("load done after repeating it", zap.String("label", ld.label), zap.Int("rows", ld.body.Rows),
			zap.Int("failures", ld.failures), zap.Duration("took", now.Sub(ld.since)), zap.Bool("by_label", rep.ByLabel))
	}
	f.unblock(now)
}

// status is the label value of rollcall_loads_total for an attempt.
func status(rep Reply) string {
	switch {
	case rep.Outcome == OutcomeDone:
		return statusDone
	case rep.Outcome == OutcomeUnknown:
		return statusUnknown
	case rep.Class == ClassRefused:
		return statusRefused
	default:
		return statusFailed
	}
}
