package pipeline

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/admin"
	"rollcall/pkg/source"
)

const (
	completeEvery = 5 * time.Second
	// completeSilent is the pause while no broker answers: each question costs a connection attempt to every leader.
	completeSilent = 30 * time.Second
)

// completeness is how far each assigned partition is durable in time. The loop writes, status and metrics read.
type completeness struct {
	mu    sync.Mutex
	until map[source.Partition]time.Time
	loss  map[string]bool // topics whose time to data loss is exported
	all   time.Time       // up to when everything assigned was complete when there last was an assignment
}

func (c *completeness) get(p source.Partition) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until[p]
}

// completenessLoop asks for the end of the logs and compares it with what is durable. Freshness moves between its rounds too, since it
// is a difference to now.
func (w *worker) completenessLoop(ctx context.Context, beats *admin.Heartbeats) {
	beat := beats.Register("completeness", liveLimit)
	defer beat.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	next := time.Time{}
	said := false
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			all := w.owners.all()
			if !now.Before(next) && (!w.member.silent() || now.Sub(next) >= completeSilent-completeEvery) {
				next = now.Add(completeEvery)
				cctx, cancel := context.WithTimeout(ctx, completeEvery)
				err := w.checkComplete(cctx, all)
				cancel()
				if err != nil && !said && ctx.Err() == nil {
					w.log.Warn("cannot see the end of some logs; freshness grows until they answer", zap.Error(err))
				}
				said = err != nil
			}
			w.complete.export(w, all)
			beat.Beat()
		}
	}
}

// checkComplete moves complete-until: to now where the end of the log was found with everything durable, else to the time of the oldest
// record that is not (DESIGN §6).
func (w *worker) checkComplete(ctx context.Context, all []*owner) error {
	if len(all) == 0 {
		return nil
	}
	ps := make([]source.Partition, len(all))
	for i, o := range all {
		ps[i] = o.p
	}
	asked := time.Now()
	bounds, err := w.source.Bounds(ctx, ps)
	for _, o := range all {
		b, ok := bounds[o.p]
		v := o.view.Load()
		oldest, durable := o.pending.oldest()
		switch {
		case v.state != stateRunning && v.state != stateFinished:
			continue // nothing moves: what was known stays, and grows old
		case oldest > 0:
			w.complete.set(o.p, time.UnixMilli(oldest))
		case ok && durable >= w.endOf(b):
			w.complete.set(o.p, asked)
		case v.lastMs > 0:
			// Everything read is durable and more is to be read: complete up to the last record read.
			w.complete.atLeast(o.p, time.UnixMilli(v.lastMs))
		}
	}
	return err
}

func (c *completeness) set(p source.Partition, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = map[source.Partition]time.Time{}
	}
	c.until[p] = t
}

func (c *completeness) atLeast(p source.Partition, t time.Time) {
	if t.After(c.get(p)) {
		c.set(p, t)
	}
}

// export writes the gauges and forgets partitions that are no longer ours. A partition that is not restored yet is complete up to its
// assignment at best. A worker whose group session is lost has no partitions, but it is not idle: it is as complete as it last was.
func (c *completeness) export(w *worker, all []*owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := make(map[source.Partition]bool, len(all))
	oldest := time.Time{}
	byTopic := map[string]time.Time{}
	for _, o := range all {
		mine[o.p] = true
		t, ok := c.until[o.p]
		if ok {
			w.metrics.complete.WithLabelValues(o.p.Topic, strconv.Itoa(int(o.p.Partition))).Set(float64(t.UnixMilli()) / 1000)
			if least, ok := byTopic[o.p.Topic]; !ok || t.Before(least) {
				byTopic[o.p.Topic] = t
			}
		} else {
			t = o.assigned
		}
		if oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	for p := range c.until {
		if !mine[p] {
			delete(c.until, p)
			w.metrics.forget(p)
		}
	}
	c.exportLoss(w, byTopic)
	_, lost := w.groupLost.get()
	switch {
	case len(all) > 0:
		c.all = oldest
	case lost == nil || c.all.IsZero():
		c.all = time.Now()
	}
	w.metrics.freshness.Set(math.Max(0, time.Since(c.all).Seconds()))
}
