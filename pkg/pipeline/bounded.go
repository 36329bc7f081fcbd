package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"rollcall/config"
	"rollcall/pkg/source"
)

const boundedEvery = 500 * time.Millisecond

// bounded is what a bounded run (KAFKA_STOP) knows of its end: one offset per partition, fixed when the partition is first seen.
type bounded struct {
	mu   sync.Mutex
	ends map[source.Partition]int64
}

// stopOffset fixes where the owner's partition ends, if the run is bounded. b is the partition's bounds of now.
func (o *owner) stopOffset(ctx context.Context, b source.Bounds) error {
	if o.w.bounded == nil || o.stopAt >= 0 {
		return nil
	}
	end, err := o.w.bounded.end(ctx, o.w, o.p, &b)
	if err != nil {
		return err
	}
	o.stopAt = end
	return nil
}

// end is the first offset of p that is not part of the run. at is the bounds of now, asked for if nil.
func (s *bounded) end(ctx context.Context, w *worker, p source.Partition, at *source.Bounds) (int64, error) {
	s.mu.Lock()
	end, ok := s.ends[p]
	s.mu.Unlock()
	if ok {
		return end, nil
	}
	one := []source.Partition{p}
	if at == nil {
		bs, err := w.source.Bounds(ctx, one)
		if err != nil {
			return 0, fmt.Errorf("where the run ends: %w", err)
		}
		b := bs[p]
		at = &b
	}
	end = w.endOf(*at)
	if stop := w.opt.Config.Kafka.Stop; stop.Mode == config.ModeTimestamp {
		found, err := w.source.OffsetAt(ctx, one, stop.At)
		if err != nil {
			return 0, fmt.Errorf("where the run ends: %w", err)
		}
		end = min(end, found[p])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.ends[p]; ok {
		return first, nil
	}
	s.ends[p] = end
	return end, nil
}

// boundedLoop watches a bounded run and returns nil when every partition of the topics is durable up to its end, whoever of the group
// did the work, or ctx's error.
func (w *worker) boundedLoop(ctx context.Context) error {
	tick := time.NewTicker(boundedEvery)
	defer tick.Stop()
	said := ""
	var ended time.Time // since when everything this worker owns has been read
	limit := w.opt.Config.Process.ShutdownTimeout
	for {
		if !w.ownersFinished() {
			ended = time.Time{}
		} else if ended.IsZero() {
			ended = time.Now()
		}
		cctx, cancel := context.WithTimeout(ctx, askTimeout)
		open, err := w.unfinished(cctx)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if msg := innermost(err).Error(); msg != said {
				said = msg
				w.log.Warn("cannot tell whether the bounded run is done", zap.Error(err))
			}
		case open == 0:
			return nil
		}
		if !ended.IsZero() && time.Since(ended) > limit && !w.flusher.Status().OldestUnfinished.IsZero() {
			w.fail(exitf(ExitNotDurable, "rows are not durable %s after the input of the bounded run ended", limit))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ownersFinished reports whether this worker has read all it owns.
func (w *worker) ownersFinished() bool {
	if !w.owners.hasJoined() {
		return false
	}
	for _, o := range w.owners.all() {
		if o.view.Load().state != stateFinished {
			return false
		}
	}
	return true
}

// unfinished counts the partitions that are not durable up to their end: by this worker's own completions, or by the group's commits for
// those that others own.
func (w *worker) unfinished(ctx context.Context) (int, error) {
	if !w.owners.hasJoined() {
		return 1, nil
	}
	mine := map[source.Partition]*owner{}
	for _, o := range w.owners.all() {
		mine[o.p] = o
	}
	open := 0
	for topic, ps := range w.topics() {
		var others []int32
		for _, n := range ps {
			p := source.Partition{Topic: topic, Partition: n}
			if o := mine[p]; o != nil {
				if !o.durableToEnd() {
					open++
				}
				continue
			}
			others = append(others, n)
		}
		if len(others) == 0 || open > 0 {
			continue // there is no need to ask what others do while this worker is not done
		}
		n, err := w.unfinishedOthers(ctx, topic, others)
		if err != nil {
			return 0, err
		}
		open += n
	}
	return open, nil
}

// unfinishedOthers counts the partitions of others whose committed offset is below the end of the run.
func (w *worker) unfinishedOthers(ctx context.Context, topic string, ps []int32) (int, error) {
	commits, err := w.source.Committed(ctx, topic, ps)
	if err != nil {
		return 0, fmt.Errorf("read committed offsets: %w", err)
	}
	open := 0
	for _, n := range ps {
		end, err := w.bounded.end(ctx, w, source.Partition{Topic: topic, Partition: n}, nil)
		if err != nil {
			return 0, err
		}
		if c, ok := commits[n]; !ok || c.Offset < end {
			open++
		}
	}
	return open, nil
}

// durableToEnd reports whether the owner has read to the end of the run and everything is durable and committed.
func (o *owner) durableToEnd() bool {
	v := o.view.Load()
	if v.state != stateFinished {
		return false
	}
	_, durable := o.pending.oldest()
	return durable >= v.stopAt
}
