package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/checkpoint"
	"rollcall/pkg/deadletter"
	"rollcall/pkg/discovery"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrocks"
	"rollcall/pkg/source"
)

// worker is what the owners and loops of one run share. Its fields are set before any of them starts and not changed afterwards.
type worker struct {
	opt           limits
	log           *zap.Logger
	program       *aggregate.Program
	metrics       *Metrics
	source        *source.Source
	member        membership
	discovery     *discovery.Discoverer
	flusher       *sink.Flusher
	store         checkpoint.Store
	table         *starrocks.Table
	letters       *deadletter.Publisher // nil without a dead-letter topic
	letterMetrics *deadletter.Metrics
	commits       *committer
	owners        *owners
	firstStart    firstStarts
	bounded       *bounded // nil unless KAFKA_STOP is set
	recreated     recreations
	complete      completeness
	retention     retention
	totals        *totals
	noValues      *noValues
	backlog       *backlog
	background    context.Context // ends with the run
	found         *discovery.Metrics
	started       time.Time

	failOnce  sync.Once
	failed    chan struct{} // closed by fail
	failure   error         // set before failed is closed
	ready     atomic.Bool   // has been ready once: start-up is over
	denied    clientTrouble // Kafka refuses us
	groupLost clientTrouble // the group session is over; the client rejoins by itself
}

// fail ends the run with err: for what cannot be waited for. The first one counts.
func (w *worker) fail(err error) {
	w.failOnce.Do(func() {
		w.failure = err
		close(w.failed)
	})
}

// completion makes the callback of a batch: it tells the committer and the completeness of the owner's partition. A store that is not
// the table itself is told the totals.
func (w *worker) completion(o *owner, rows []aggregate.Row) func(sink.Completion) {
	p, gen, epoch := o.p, o.gen, o.epoch
	var totals []aggregate.Row
	if w.commits.store != nil {
		totals = totalsOf(rows)
	}
	return func(c sink.Completion) {
		if c.Err == nil {
			o.pending.done(c.Next)
			w.commits.note(p, gen, durable{done: c, epoch: epoch, totals: totals})
		}
	}
}

// totalsOf copies rows without their sets, which a checkpoint does not need.
func totalsOf(rows []aggregate.Row) []aggregate.Row {
	out := make([]aggregate.Row, len(rows))
	for i, r := range rows {
		out[i] = aggregate.Row{Day: r.Day, Dims: r.Dims, LastEventMs: r.LastEventMs, Cells: make([]aggregate.Cell, len(r.Cells))}
		for j, c := range r.Cells {
			out[i].Cells[j] = aggregate.Cell{Int: c.Int, Null: c.Null}
		}
	}
	return out
}

// clientEvent handles what concerns the whole Kafka client.
func (w *worker) clientEvent(e source.Event) {
	switch e.Kind {
	case source.EventDenied:
		w.denied.set(e.Err)
		if w.opt.bounded() || !w.ready.Load() {
			w.fail(&ExitError{Code: ExitSource, Err: fmt.Errorf("kafka refuses the worker: %w", e.Err)})
		}
	case source.EventGroupLost:
		w.groupLost.set(e.Err)
	case source.EventRecovered:
		w.denied.set(nil)
		w.groupLost.set(nil)
	case source.EventLeader:
		w.discovery.Kick()
	default:
	}
}

// clientTrouble remembers what is wrong with the Kafka client as a whole, and since when, for readiness.
type clientTrouble struct {
	mu    sync.Mutex
	err   error
	since time.Time
}

func (d *clientTrouble) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.since = time.Now()
	}
	d.err = err
}

func (d *clientTrouble) get() (since time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since, d.err
}
