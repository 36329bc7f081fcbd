package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/checkpoint"
	"rollcall/pkg/sink"
	"rollcall/pkg/source"
)

// Reasons for which a partition is paused, the label values of rollcall_source_paused.
const (
	pauseQueue       = "queue"       // the owner has chunks to apply
	pauseBuffer      = "buffer"      // BUFFER_MAX_BYTES is reached
	pauseShare       = "share"       // the partition holds its share of the buffer
	pauseDeadLetters = "deadletters" // dead letters wait for their topic
	pauseStopped     = "stopped"     // the partition was stopped (ratio of bad records, retention gap) or has reached KAFKA_STOP
)

// pauseReasons lists them, for metrics that begin at 0.
func pauseReasons() []string {
	return []string{pauseQueue, pauseBuffer, pauseShare, pauseDeadLetters, pauseStopped}
}

// owner is one assigned partition: a goroutine that restores its totals, applies its chunks and seals batches. The aggregator and
// everything under "goroutine" is touched by that goroutine only.
type owner struct {
	w        *worker
	p        source.Partition
	gen      uint64
	log      *zap.Logger
	counters partitionCounters
	assigned time.Time

	sealReq chan chan struct{}
	done    chan struct{} // closed when the goroutine has ended
	cancel  context.CancelFunc
	// stopping is done when the owner was told to seal what there is and end.
	stopping context.Context
	stop     context.CancelFunc

	mailbox mailbox
	view    atomic.Pointer[ownerView]
	pending pendingTimes
	letters openLetters

	// goroutine
	agg        *aggregate.Aggregator
	history    checkpoint.History
	epoch      int32 // leader epoch of the last record applied
	sealedNext int64
	gate       *gate
	window     ratioWindow
	lastBad    string // why the last bad or future record was
	stopAt     int64  // KAFKA_STOP as an offset; records from here on are not ours
	stopped    error  // why the partition takes no more records
	logs       outcomeLog
	now        int64 // the wall clock when the chunk's turn came, Unix ms
	firstMs    int64 // record time of the oldest record applied and not sealed, 0 if none
}

// ownerState says what an owner does. The strings are shown on the status page.
type ownerState string

const (
	stateRestoring ownerState = "restoring"
	stateRunning   ownerState = "running"
	stateStopped   ownerState = "stopped"  // takes no more records until the next start
	stateFinished  ownerState = "finished" // has reached KAFKA_STOP
	stateRefused   ownerState = "refused"  // the checkpoint cannot be used; asked again
)

// ownerView is what others may know of an owner: an immutable copy, made after every chunk, seal and change of state.
type ownerView struct {
	state      ownerState
	reason     string
	since      time.Time
	history    string
	position   int64
	watermark  int64 // Unix ms, 0 if none
	deltaBytes int64
	keys       int
	lastMs     int64 // record time of the last record applied
	stopAt     int64
}

func newOwner(w *worker, gen uint64, p source.Partition) *owner {
	o := &owner{
		w: w, p: p, gen: gen,
		log:      w.log.With(zap.String("topic", p.Topic), zap.Int32("partition", p.Partition)),
		counters: w.metrics.partition(p),
		assigned: time.Now(),
		epoch:    -1,
		sealReq:  make(chan chan struct{}),
		done:     make(chan struct{}),
		mailbox:  mailbox{wake: make(chan struct{}, 1), all: w.backlog},
		gate:     newGate(),
		stopAt:   -1,
	}
	o.stopping, o.stop = context.WithCancel(context.Background())
	o.setState(stateRestoring, "")
	return o
}

// deliver queues a chunk. Called by the source's poll goroutine; never blocks.
func (o *owner) deliver(c source.Chunk) {
	if o.mailbox.put(mail{chunk: c}) {
		o.w.source.Pause(o.p, o.gen, pauseQueue)
	}
}

// notify queues an event of the source behind the chunks that came before it. Never blocks.
func (o *owner) notify(e source.Event) { o.mailbox.put(mail{event: &e}) }

// run is the owner's goroutine. It ends when ctx is done (the partition is lost: everything unsealed is dropped and will be read
// again), or when it was told to stop (what was counted is sealed and handed over).
func (o *owner) run(ctx context.Context) {
	defer close(o.done)
	defer o.stop()
	defer o.mailbox.drop(true)
	defer func() {
		if r := recover(); r != nil {
			o.w.fail(&ExitError{Code: ExitBug, Err: fmt.Errorf("panic in the owner of %s/%d: %v\n%s", o.p.Topic, o.p.Partition, r, stack())})
		}
	}()
	if !o.resume(ctx, resumeCause{}) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.stopping.Done():
			o.seal()
			return
		case reply := <-o.sealReq:
			o.seal()
			close(reply)
			continue
		default:
		}
		it, ok := o.mailbox.next()
		switch {
		case ok && it.event != nil:
			if !o.handle(ctx, *it.event) {
				return
			}
		case ok:
			o.apply(&it.chunk)
			if o.mailbox.applied(&it.chunk) {
				o.w.source.Resume(o.p, o.gen, pauseQueue)
			}
		default:
			select {
			case <-ctx.Done():
				return
			case <-o.stopping.Done():
				o.seal()
				return
			case reply := <-o.sealReq:
				o.seal()
				close(reply)
			case <-o.mailbox.wake:
			}
		}
	}
}

// end tells the owner to seal and end, or, if lost, to end at once. It does not wait; done is closed when it has.
func (o *owner) end(lost bool) {
	o.stop()
	if lost {
		o.cancel()
	}
}

// requestSeal asks the owner to seal and returns when it has or ctx is done.
func (o *owner) requestSeal(ctx context.Context) {
	reply := make(chan struct{})
	select {
	case o.sealReq <- reply:
	case <-o.done:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-reply:
	case <-o.done:
	case <-ctx.Done():
	}
}

// yieldEvery is after how many records an owner lets others go first. A chunk takes milliseconds, and with as many owners busy as there are
// cores, what is short and others wait for would come last: the request for the next fetch, heartbeats, an answer to a probe.
const yieldEvery = 256

// apply counts the records of a chunk.
func (o *owner) apply(c *source.Chunk) {
	if o.stopped != nil || o.misses(c) {
		return
	}
	o.now = time.Now().UnixMilli()
	var t tally
	for i, r := range c.Records {
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched()
		}
		if o.stopAt >= 0 && r.Offset >= o.stopAt {
			t.reached = true
			break
		}
		if r.Attrs.IsControl() {
			o.agg.Skip(r.Offset + 1)
			continue
		}
		o.applyRecord(r, &t)
		if o.window.exceeds(o.w.opt.maxBad()) {
			o.haltOnRatio()
			break
		}
	}
	if !t.reached && o.stopped == nil {
		next := c.Next
		if o.stopAt >= 0 {
			next = min(next, o.stopAt)
		}
		o.agg.Skip(next)
	}
	o.count(&t)
	if o.stopAt >= 0 && (t.reached || o.agg.Next() >= o.stopAt) {
		o.finish()
	}
	o.publish(t.lastMs)
}

// tally is what became of one chunk.
type tally struct {
	outcomes [aggregate.Reread + 1]int
	bytes    int64
	lastMs   int64 // record time of the last record applied
	reached  bool  // the end of a bounded run is in the chunk
}

// applyRecord counts one record.
func (o *owner) applyRecord(r *kgo.Record, t *tally) {
	ts := r.Timestamp.UnixMilli()
	res := o.agg.Apply(aggregate.Record{Offset: r.Offset, TimestampMs: ts, Value: r.Value}, o.now)
	t.outcomes[res.Outcome]++
	if res.Outcome == aggregate.Reread {
		return
	}
	if o.firstMs == 0 {
		o.firstMs = ts
	}
	o.epoch, t.lastMs = r.LeaderEpoch, ts
	t.bytes += int64(len(r.Key) + len(r.Value))
	bad := res.Outcome == aggregate.Bad
	if bad {
		o.lastBad = string(res.Reason)
		o.deadLetter(r, res.Reason)
	} else if res.Outcome == aggregate.Future {
		o.lastBad = "in the future"
	}
	if res.Outcome != aggregate.Counted {
		o.logs.note(o, r, res)
	}
	o.window.add(bad || res.Outcome == aggregate.Future)
}

// misses reports whether records are missing between the position and the chunk. It cannot be as long as source and owner agree; if it
// is, counting on would lose them silently, so the partition is positioned anew.
func (o *owner) misses(c *source.Chunk) bool {
	at := o.agg.Next()
	if c.From <= at {
		return false
	}
	o.log.Error("records are missing between the position and what was delivered; positioning anew", zap.Int64("offset", at), zap.Int64("delivered_from", c.From))
	if o.mailbox.drop(false) {
		o.w.source.Resume(o.p, o.gen, pauseQueue)
	}
	if err := o.w.source.Start(o.p, o.gen, at, o.epoch); err != nil {
		o.log.Warn("cannot position the source", zap.Error(err))
	}
	return true
}

// count moves the counters once for the whole chunk, so that "read" and its outcomes agree at every scrape.
func (o *owner) count(t *tally) {
	o.w.metrics.read.change(func() {
		read := 0
		for out := aggregate.Counted; out <= aggregate.Bad; out++ {
			if n := t.outcomes[out]; n > 0 {
				o.counters.outcomes[out].Add(float64(n))
				read += n
			}
		}
		o.counters.records.Add(float64(read))
	})
	o.w.metrics.bytes.WithLabelValues().Add(float64(t.bytes))
	o.w.metrics.reread.Add(float64(t.outcomes[aggregate.Reread]))
	stats := o.agg.TakeStats()
	o.w.metrics.countStats(o.w.program, stats)
	o.w.noValues.note(o.w.program.Measures(), int64(t.outcomes[aggregate.Counted]), stats.WithoutValue)
	if stats.Panic != "" {
		o.log.Error("a record made the decoder panic; it is counted as bad: please report this bug", zap.String("panic", stats.Panic))
	}
}

// haltOnRatio stops a partition whose records are mostly unreadable. What was not sealed yet is dropped, so that a restart with the right
// settings reads those records again; stepping past them would lose what is no poison but a misunderstanding.
func (o *owner) haltOnRatio() {
	o.sealedNext, o.firstMs, o.gate = o.agg.Next(), 0, newGate()
	o.halt(fmt.Errorf("more than %.0f %% of the last %d records are bad or in the future (DEADLETTER_MAX_RATIO), the last one: %s. "+
		"The settings do not fit the events or the producer is broken; mend that and restart: the partition re-reads from its committed offset "+
		"(changed aggregation settings also need PROGRAM_CHANGE=continue)", o.w.opt.maxBad()*100, ratioSize, o.lastBad))
}

// halt stops the partition for good: nothing more is read from it, what was counted stays and is loaded.
func (o *owner) halt(err error) {
	o.stopped = err
	o.w.source.Pause(o.p, o.gen, pauseStopped)
	at := int64(-1) // not known if it stops before it has begun
	if o.agg != nil {
		at = o.agg.Next()
	}
	o.log.Error("partition stopped", zap.Error(err), zap.Int64("offset", at))
	o.setState(stateStopped, err.Error())
	if o.w.opt.bounded() {
		o.w.fail(&ExitError{Code: ExitSource, Err: fmt.Errorf("%s/%d: %w", o.p.Topic, o.p.Partition, err)})
	}
}

var errFinished = errors.New("reached KAFKA_STOP")

// finish says that a bounded run has read the partition to its end.
func (o *owner) finish() {
	if o.stopped != nil {
		return
	}
	o.stopped = errFinished
	o.w.source.Pause(o.p, o.gen, pauseStopped)
	o.seal()
	o.setState(stateFinished, "")
	o.w.flusher.Request()
}

// seal hands what was counted since the last seal to the flusher. Running totals stay; nothing is shared afterwards.
func (o *owner) seal() {
	if o.agg == nil || o.agg.Next() == o.sealedNext {
		return
	}
	start := time.Now()
	d := o.agg.Seal()
	o.w.metrics.sealDuration.Observe(time.Since(start).Seconds())
	g := o.gate
	o.gate = newGate()
	o.sealedNext = d.Next
	o.pending.push(d.Next, o.firstMs)
	o.firstMs = 0
	err := o.w.flusher.Offer(sink.Batch{
		Source: o.history.String(),
		Next:   d.Next,
		Rows:   d.Rows,
		Bytes:  d.Bytes,
		Ready:  g.seal(),
		Done:   o.w.completion(o, d.Rows),
	})
	if err != nil {
		// The flusher is closed: the batch is not durable, its offset never moves, and Close has already said so or will.
		o.log.Warn("batch not accepted: the sink is closed", zap.Int64("offset", d.Next), zap.Error(err))
	}
	o.publish(0)
}

// publish makes the owner's view of now.
func (o *owner) publish(lastMs int64) {
	v := *o.view.Load()
	if o.agg != nil {
		v.position, v.deltaBytes, v.keys = o.agg.Next(), o.agg.DeltaBytes(), o.agg.Keys()
		if w, ok := o.agg.Watermark(); ok {
			v.watermark = w
		}
		v.history = o.history.String()
	}
	if lastMs != 0 {
		v.lastMs = lastMs
	}
	v.stopAt = o.stopAt
	o.view.Store(&v)
	o.pending.reading(o.firstMs)
}

func (o *owner) setState(s ownerState, reason string) {
	var v ownerView
	if old := o.view.Load(); old != nil {
		v = *old
	}
	if v.state != s || v.since.IsZero() {
		v.since = time.Now()
	}
	v.state, v.reason = s, reason
	o.view.Store(&v)
}
