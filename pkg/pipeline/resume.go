package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/checkpoint"
	"rollcall/pkg/source"
)

const (
	askTimeout = 15 * time.Second // one look at the group, the log and the store
	askFirst   = 250 * time.Millisecond
	askLast    = 10 * time.Second
	refusedAsk = 10 * time.Second // how often a refused partition of a running worker is asked about
)

// resumeCause is what is known besides Kafka and the store when an owner asks where to go on. The zero value is a (re)start.
type resumeCause struct {
	running    *checkpoint.Running
	diverged   bool
	divergence int64
	dataLoss   bool
}

// asking is the memory of one resume: what has been waited for and what has been said.
type asking struct {
	cause    resumeCause
	waits    *checkpoint.Waits
	commit   source.Committed // as last read; Offset -1 if there is none
	tries    int
	saidLine string
	saidErr  string
}

// resume asks where to go on until it knows, restores, and lets the source begin. It reports whether the owner should go on: not if it
// was told to end meanwhile. Nothing is counted before it has answered (DESIGN §1 rule 3).
func (o *owner) resume(ctx context.Context, cause resumeCause) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.stopping, cancel)()
	begun := time.Now()
	o.setState(stateRestoring, "")
	if o.mailbox.drop(false) {
		o.w.source.Resume(o.p, o.gen, pauseQueue)
	}
	a := &asking{cause: cause, waits: checkpoint.NewWaits(o.w.opt.Config.Load.Timeout)}
	defer func() { o.traceRestore(begun, a) }()
	for ; ctx.Err() == nil; a.tries++ {
		wait, done := o.ask(ctx, a)
		if done {
			o.w.metrics.restoreDuration.Observe(time.Since(begun).Seconds())
			return true
		}
		if !pause(ctx, wait) {
			break
		}
	}
	return false
}

// traceRestore makes the span of a resume that has ended.
func (o *owner) traceRestore(begun time.Time, a *asking) {
	if o.w.opt.Tracer == nil {
		return
	}
	v := o.view.Load()
	_, span := o.w.opt.Tracer.Start(context.Background(), "restore", trace.WithTimestamp(begun), trace.WithAttributes(
		attribute.String("messaging.destination.name", o.p.Topic), attribute.Int("messaging.destination.partition.id", int(o.p.Partition)),
		attribute.Int64("messaging.kafka.offset", v.position), attribute.Int("rollcall.restore.tries", a.tries+1), attribute.Int("rollcall.restore.keys", v.keys),
		attribute.String("rollcall.restore.state", string(v.state)),
	))
	if a.saidErr != "" {
		span.SetAttributes(attribute.String("rollcall.restore.last_error", a.saidErr))
	}
	span.End()
}

// pause waits for d, with jitter, and reports false if ctx was done first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// ask makes one attempt. wait is how long to wait before the next.
func (o *owner) ask(ctx context.Context, a *asking) (wait time.Duration, done bool) {
	cctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	inFlight := o.history.Topic != "" && !o.w.flusher.Idle(o.history.String()) // asked before T is read
	in, err := o.gather(cctx, a)
	if err != nil {
		return o.askFailed(ctx, a, err), false
	}
	now := time.Now()
	a.waits.Fill(now, &in)
	d := checkpoint.Resume(in)
	a.waits.Note(now, d)
	o.say(a, d)
	if d.DropUnsent {
		o.dropUnsent()
		if inFlight { // it may still land, and the new history would count its records again
			o.setState(stateRestoring, d.Message+": waiting for the load in flight")
			return time.Second, false
		}
	}
	switch d.Action {
	case checkpoint.Continue, checkpoint.NewHistory:
		if d.Settle {
			o.setState(stateRestoring, d.Message+": waiting until no load of the former history can land any more")
			return time.Second, false
		}
		switch err := o.begin(cctx, a, d); {
		case errors.Is(err, errMoved):
			return 0, false
		case err != nil:
			return o.askFailed(ctx, a, err), false
		}
		return 0, true
	case checkpoint.ReadAgain:
		o.setState(stateRestoring, d.Message)
		return time.Second, false
	case checkpoint.ResolveFirstStart:
		if err := o.w.resolveFirstStart(cctx, o, in.TopicID, in.StandIn); err != nil {
			return o.askFailed(ctx, a, err), false
		}
		return 0, false
	case checkpoint.AwaitFirstStart:
		o.setState(stateRestoring, d.Message)
		return askFirst, false
	case checkpoint.StopPartition:
		o.halt(errors.New(d.Message))
		return 0, true
	default: // Refuse
		return o.refused(d.Message), false
	}
}

// say logs a decision once per change.
func (o *owner) say(a *asking, d checkpoint.Decision) {
	settled := d.Action == checkpoint.Continue || d.Action == checkpoint.NewHistory && !d.Settle
	if d.Line == a.saidLine || settled && d.Level < zap.WarnLevel { // the line that says that it goes on has it all
		return
	}
	a.saidLine = d.Line
	if d.Action == checkpoint.AwaitFirstStart && !o.w.firstStart.says(o.p.Topic) {
		return
	}
	fields := []zap.Field{zap.String("action", d.Action.String()), zap.String("rule", d.Line)}
	if d.Action == checkpoint.Continue || d.Action == checkpoint.NewHistory {
		fields = append(fields, zap.Int64("offset", d.Position), zap.String("history", d.History.String()))
	}
	if n := d.Truncated.Len(); n > 0 {
		fields = append(fields, zap.Int64("truncated_from", d.Truncated.From), zap.Int64("truncated_to", d.Truncated.To))
	}
	if n := d.Skipped.Len(); n > 0 {
		fields = append(fields, zap.Int64("skipped_from", d.Skipped.From), zap.Int64("skipped_to", d.Skipped.To))
	}
	msg := d.Message
	if msg == "" {
		msg = "resume"
	}
	o.log.Log(d.Level, msg, fields...)
}

// askFailed says what went wrong, once per change, and how long to wait.
func (o *owner) askFailed(ctx context.Context, a *asking, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	if checkpoint.IsPermanent(err) {
		return o.refused(err.Error())
	}
	if msg := innermost(err).Error(); msg != a.saidErr {
		a.saidErr = msg
		o.log.Warn("cannot resume yet; asking again", zap.Error(err))
	}
	o.setState(stateRestoring, err.Error())
	return min(askFirst<<min(a.tries, 6), askLast)
}

// refused handles a checkpoint that cannot be used: at start and in a bounded run the worker ends, otherwise the partition waits.
func (o *owner) refused(msg string) time.Duration {
	err := &ExitError{Code: ExitCheckpoint, Err: fmt.Errorf("%s: %s", o.p, msg)}
	if o.w.starting() {
		o.w.fail(err)
	}
	o.setState(stateRefused, msg)
	return refusedAsk
}

// gather reads everything a decision needs: the commit, the histories in the store, the log's bounds and divergence.
func (o *owner) gather(ctx context.Context, a *asking) (checkpoint.Input, error) {
	w := o.w
	id, standIn, recreated, err := w.topicID(o.p.Topic)
	if err != nil {
		return checkpoint.Input{}, err
	}
	commits, err := w.source.Committed(ctx, o.p.Topic, w.partitionsOf(o.p))
	if err != nil {
		return checkpoint.Input{}, fmt.Errorf("read committed offsets: %w", err)
	}
	histories, err := w.store.Progress(ctx, o.p.Topic, o.p.Partition)
	if err != nil {
		return checkpoint.Input{}, fmt.Errorf("read progress: %w", err)
	}
	in := checkpoint.Input{
		Topic: o.p.Topic, Partition: o.p.Partition, TopicID: id, StandIn: standIn,
		Program: w.program.ID(), Target: w.opt.target(), Epoch: -1,
		Histories: histories,
		Running:   a.cause.running, Diverged: a.cause.diverged, Divergence: a.cause.divergence, DataLoss: a.cause.dataLoss,
		AtStart: w.starting(), Recreated: recreated,
		Policy: w.opt.policy(),
	}
	in.OldestDay, in.Retention = w.opt.oldestDay(time.Now())
	bounds, err := w.source.Bounds(ctx, []source.Partition{o.p})
	if err != nil {
		return checkpoint.Input{}, fmt.Errorf("read log bounds: %w", err)
	}
	b := bounds[o.p]
	in.Bounds, in.Epoch = &checkpoint.Bounds{Start: b.Start, High: b.High, Stable: b.Stable}, b.LeaderEpoch
	own, has := commits[o.p.Partition]
	a.commit = source.Committed{Offset: -1, LeaderEpoch: -1}
	if has {
		a.commit = own
		in.Commit = &checkpoint.Commit{Offset: own.Offset, Metadata: own.Metadata}
		if err := o.checkDivergence(ctx, own, &in); err != nil {
			return checkpoint.Input{}, err
		}
	}
	if !has && len(histories) == 0 {
		all := make(map[int32]checkpoint.Commit, len(commits))
		for p, c := range commits {
			all[p] = checkpoint.Commit{Offset: c.Offset, Metadata: c.Metadata}
		}
		rows, err := w.store.TopicProgress(ctx, o.p.Topic)
		if err != nil {
			return checkpoint.Input{}, fmt.Errorf("read progress of the topic: %w", err)
		}
		in.TopicStarted = checkpoint.Started(o.p.Topic, id, standIn, all, rows)
	} else {
		in.TopicStarted = true
	}
	return in, o.stopOffset(ctx, b)
}

// checkDivergence asks the log whether it still has what the commit was made from.
func (o *owner) checkDivergence(ctx context.Context, c source.Committed, in *checkpoint.Input) error {
	if c.LeaderEpoch < 0 || in.Diverged {
		return nil
	}
	if m, ours, err := checkpoint.ParseMark(o.p.Topic, o.p.Partition, c.Metadata); err != nil || !ours || m.History.TopicID != in.TopicID {
		return nil //nolint:nilerr // Resume says what is wrong with the commit
	}
	at, diverged, err := o.w.source.Divergence(ctx, o.p, c.LeaderEpoch, c.Offset)
	if err != nil {
		return fmt.Errorf("compare leader epochs: %w", err)
	}
	if diverged {
		in.Diverged, in.Divergence = true, at
	}
	return nil
}

// dropUnsent forgets what was counted from records that are not in the log any more and has not been sent.
func (o *owner) dropUnsent() {
	if o.agg == nil {
		return
	}
	n := o.w.flusher.Discard(o.history.String())
	o.log.Warn("dropped what was counted from records that are not in the log any more", zap.String("history", o.history.String()), zap.Int("batches", n))
	o.agg, o.firstMs, o.gate = nil, 0, newGate()
}

// begin carries out Continue and NewHistory: it restores, commits the start of a new history and positions the source.
func (o *owner) begin(ctx context.Context, a *asking, d checkpoint.Decision) error {
	if d.Keep {
		if err := o.w.source.Start(o.p, o.gen, d.Position, -1); err != nil {
			return fmt.Errorf("position the source: %w", err)
		}
		o.running(d)
		return nil
	}
	state := aggregate.State{Next: d.Position}
	if d.Restore {
		s, seen, err := checkpoint.Restore(ctx, o.w.store, checkpoint.RestoreRequest{
			History: d.History, Table: d.Table, Watermark: d.Watermark,
			Lateness: o.w.opt.Config.Aggregate.AllowedLateness, Location: o.w.program.Location(),
		})
		if err != nil {
			return fmt.Errorf("restore %s: %w", d.History, err)
		}
		if seen.Next != d.Table {
			return errMoved
		}
		state = s
		state.Next = d.Position
	}
	agg := o.w.program.NewAggregator()
	if err := agg.Restore(state); err != nil {
		return &checkpoint.UnusableError{What: "the rows of " + d.History.String(), Remedy: "they were not written by this version of rollcall; see docs/runbook.md", Err: err}
	}
	o.w.commits.track(o.p, o.gen, d.History, d.Tracker())
	// Positioned first: the source lets an offset go back only for a history that begins anew. What it delivers waits in the mailbox.
	epoch := int32(-1)
	if d.Position == a.commit.Offset { // with it the client itself notices a truncation that happens from here on
		epoch = a.commit.LeaderEpoch
	}
	if err := o.w.source.Start(o.p, o.gen, d.Position, epoch); err != nil {
		return fmt.Errorf("position the source: %w", err)
	}
	if d.Action == checkpoint.NewHistory {
		if err := o.w.commits.now(ctx, []source.Partition{o.p}); err != nil {
			return fmt.Errorf("commit the start of %s: %w", d.History, err)
		}
	}
	if n := d.Skipped.Len(); n > 0 {
		o.counters.skipped.Add(float64(n))
	}
	o.w.metrics.setOverlap(o.p, len(d.Overlap) > 0)
	o.history, o.epoch = d.History, -1
	o.agg = agg
	o.gate, o.firstMs, o.sealedNext = newGate(), 0, d.Position
	o.pending.restart(d.Position)
	o.running(d)
	return nil
}

// errMoved says that a load became visible between a decision and its restore, so that the decision is out of date.
var errMoved = errors.New("the table moved on while its totals were read")

// running makes the owner count.
func (o *owner) running(d checkpoint.Decision) {
	o.setState(stateRunning, "")
	o.publish(0)
	o.log.Info("partition resumed", zap.Int64("offset", d.Position), zap.String("history", o.history.String()), zap.String("rule", d.Line),
		zap.Bool("restored", d.Restore), zap.Int("keys", o.agg.Keys()), zap.Duration("since_assigned", time.Since(o.assigned)))
	if o.stopAt >= 0 && d.Position >= o.stopAt {
		o.finish()
	}
}

// handle acts on an event of the source. It reports whether the owner should go on.
func (o *owner) handle(ctx context.Context, e source.Event) bool {
	if o.agg == nil || o.stopped != nil {
		return true
	}
	cause := resumeCause{running: &checkpoint.Running{History: o.history, Position: o.agg.Next()}}
	switch e.Kind {
	case source.EventGap:
		o.seal()
		return o.resume(ctx, cause)
	case source.EventTruncated:
		cause.diverged, cause.divergence = e.Divergence >= 0, e.Divergence
		cause.dataLoss = e.Divergence < 0
		return o.resume(ctx, cause)
	case source.EventStuck:
		o.log.Error("a batch cannot be read; the partition makes no progress", zap.Int64("offset", e.From), zap.Error(e.Err))
		o.trouble(e.Err)
	case source.EventDenied, source.EventUnknownTopicID:
		o.trouble(e.Err)
	case source.EventRecovered:
		o.trouble(nil)
	default:
	}
	return true
}

// trouble sets or clears why a running partition makes no progress.
func (o *owner) trouble(err error) {
	if o.stopped != nil {
		return
	}
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	o.setState(stateRunning, reason)
}

// innermost follows Unwrap to the cause that wraps nothing further; of several joined causes the first.
func innermost(err error) error {
	for {
		switch x := err.(type) { //nolint:errorlint // walks the chain itself
		case interface{ Unwrap() error }:
			if x.Unwrap() == nil {
				return err
			}
			err = x.Unwrap()
		case interface{ Unwrap() []error }:
			all := x.Unwrap()
			if len(all) == 0 || all[0] == nil {
				return err
			}
			err = all[0]
		default:
			return err
		}
	}
}
