package pipeline

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/admin"
)

const (
	retentionEvery   = 10 * time.Minute
	retentionRetry   = time.Minute
	retentionTimeout = 10 * time.Second
)

// retention is for how long the topics of the assigned partitions keep their records. Its loop writes, the completeness loop reads.
type retention struct {
	mu sync.Mutex
	of map[string]time.Duration // only topics that do not keep them for ever
}

func (r *retention) get(topic string) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.of[topic]
	return d, ok
}

func (r *retention) set(of map[string]time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = of
}

// retentionLoop asks for retention when topics come, and from time to time, since it can be changed. Not being allowed to ask costs the time to
// data loss and nothing else.
func (w *worker) retentionLoop(ctx context.Context, beats *admin.Heartbeats) {
	beat := beats.Register("retention", liveLimit)
	defer beat.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var asked []string
	next, said := time.Time{}, ""
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			beat.Beat()
			topics := w.owners.topics()
			if len(topics) == 0 || now.Before(next) && slices.Equal(topics, asked) {
				continue
			}
			asked = topics
			cctx, cancel := context.WithTimeout(ctx, retentionTimeout)
			of, err := w.source.Retention(cctx, topics)
			cancel()
			next = now.Add(retentionEvery)
			if err != nil {
				next = now.Add(retentionRetry)
				if msg := innermost(err).Error(); msg != said && ctx.Err() == nil {
					said = msg
					w.log.Info("retention of topics cannot be read, so the time to data loss is not known", zap.Error(err))
				}
			} else {
				said = ""
			}
			if of != nil {
				w.retention.set(of)
			}
		}
	}
}

// topics are those of the assigned partitions, sorted.
func (s *owners) topics() []string {
	set := map[string]bool{}
	for _, o := range s.all() {
		set[o.p.Topic] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// exportLoss sets how long the oldest record that is not durable will still be in its topic, for topics whose records do not stay for ever.
// oldest is complete-until by topic, the least of its partitions.
// c.mu is held.
func (c *completeness) exportLoss(w *worker, oldest map[string]time.Time) {
	now := make(map[string]bool, len(oldest))
	for topic, at := range oldest {
		if keep, ok := w.retention.get(topic); ok {
			now[topic] = true
			w.metrics.retention.WithLabelValues(topic).Set(keep.Seconds())
			w.metrics.loss.WithLabelValues(topic).Set(max(0, time.Until(at.Add(keep)).Seconds()))
		}
	}
	for topic := range c.loss {
		if !now[topic] {
			w.metrics.retention.DeleteLabelValues(topic)
			w.metrics.loss.DeleteLabelValues(topic)
		}
	}
	c.loss = now
}
