package pipeline

import (
	"context"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/checkpoint"
	"rollcall/pkg/source"
)

const overlapEvery = time.Minute

// overlapLoop looks for two live writers of overlapping histories and says so; counting goes on (DESIGN §1, New history).
func (w *worker) overlapLoop(ctx context.Context) {
	tick := time.NewTicker(overlapEvery)
	defer tick.Stop()
	said := map[source.Partition]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			cctx, cancel := context.WithTimeout(ctx, askTimeout)
			w.lookForOverlaps(cctx, said)
			cancel()
		}
	}
}

// lookForOverlaps asks the store once per topic. A store that does not answer says nothing about overlaps.
func (w *worker) lookForOverlaps(ctx context.Context, said map[source.Partition]bool) {
	byTopic := map[string][]*owner{}
	for _, o := range w.owners.all() {
		byTopic[o.p.Topic] = append(byTopic[o.p.Topic], o)
	}
	for topic, owners := range byTopic {
		all, err := w.store.TopicProgress(ctx, topic)
		if err != nil {
			w.log.Debug("cannot look for overlapping histories", zap.String("topic", topic), zap.Error(err))
			continue
		}
		for _, o := range owners {
			v := o.view.Load()
			h, err := checkpoint.ParseHistory(v.history)
			if err != nil {
				continue // not restored yet
			}
			var same []checkpoint.Progress
			for _, p := range all {
				if p.History.Partition == h.Partition {
					same = append(same, p)
				}
			}
			found := checkpoint.Overlaps(h, v.position, same)
			w.metrics.setOverlap(o.p, len(found) > 0)
			if len(found) > 0 && !said[o.p] {
				o.log.Error("another history counts the same offsets: two writers are at work, some records may count twice",
					zap.String("history", v.history), zap.String("other", found[0].String()))
			}
			said[o.p] = len(found) > 0
		}
	}
}
