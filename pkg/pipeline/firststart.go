package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"rollcall/config"
	"rollcall/pkg/checkpoint"
	"rollcall/pkg/source"
)

// firstStarts serialises the resolving of first starts within this worker; between workers only the owner of partition 0 does it.
type firstStarts struct {
	mu   sync.Mutex
	said sync.Map // topics whose wait is in the log: one line for all partitions
}

// says reports whether nobody has said of the topic that its first start is waited for.
func (f *firstStarts) says(topic string) bool {
	_, before := f.said.LoadOrStore(topic, true)
	return !before
}

// resolveFirstStart fixes where every partition of a topic that nobody has begun starts, and commits that before anyone counts
// (DESIGN §4). o owns partition 0. A partition that has a commit is never resolved again, whatever became of an earlier try.
func (w *worker) resolveFirstStart(ctx context.Context, o *owner, topicID, standIn string) error {
	w.firstStart.mu.Lock()
	defer w.firstStart.mu.Unlock()
	all := w.partitionsOf(o.p)
	have, err := w.source.Committed(ctx, o.p.Topic, all)
	if err != nil {
		return fmt.Errorf("read committed offsets: %w", err)
	}
	var open []source.Partition
	for _, p := range all {
		// A commit of another incarnation of the topic is none.
		if c, ok := have[p]; !ok || !checkpoint.Counts(o.p.Topic, p, checkpoint.Commit{Offset: c.Offset, Metadata: c.Metadata}, topicID, standIn) {
			open = append(open, source.Partition{Topic: o.p.Topic, Partition: p})
		}
	}
	if len(open) == 0 {
		return nil
	}
	if topicID == "" {
		topicID = standIn
	}
	bounds, err := w.source.Bounds(ctx, open)
	if w.fromTheBeginning() && len(bounds) > 0 {
		// A partition without a leader need not hold up the others: without a commit, in a topic that has any, it counts as added later and
		// starts at its beginning as well.
		open = slices.DeleteFunc(open, func(p source.Partition) bool { _, ok := bounds[p]; return !ok })
	} else if err != nil {
		return fmt.Errorf("resolve the start of %s: %w", o.p.Topic, err)
	}
	starts, err := w.startOffsets(ctx, open, bounds)
	if err != nil {
		return fmt.Errorf("resolve the start of %s: %w", o.p.Topic, err)
	}
	commits := make([]source.Commit, 0, len(open))
	for _, p := range open {
		m := checkpoint.FirstMark(p.Topic, p.Partition, topicID, bounds[p].LeaderEpoch, w.program.ID(), w.opt.target(), starts[p])
		commits = append(commits, source.Commit{Partition: p, Offset: starts[p], LeaderEpoch: -1, Metadata: m.Format()})
	}
	if err := w.source.Commit(ctx, commits); err != nil {
		return fmt.Errorf("commit the start of %s: %w", o.p.Topic, err)
	}
	w.log.Info("first start of the topic: start of every partition committed", zap.String("topic", o.p.Topic),
		zap.String("mode", w.opt.Config.Kafka.Start.Mode), zap.Int("partitions", len(commits)))
	return nil
}

// fromTheBeginning reports whether KAFKA_START begins every partition at its beginning. Other starts must be fixed for all partitions at once.
func (w *worker) fromTheBeginning() bool {
	mode := w.opt.Config.Kafka.Start.Mode
	return mode == config.ModeEarliest || mode == config.ModeGroup
}

// startOffsets applies KAFKA_START to partitions without commit and rows.
func (w *worker) startOffsets(ctx context.Context, ps []source.Partition, bounds map[source.Partition]source.Bounds) (map[source.Partition]int64, error) {
	start := w.opt.Config.Kafka.Start
	if start.Mode == config.ModeTimestamp {
		at, err := w.source.OffsetAt(ctx, ps, start.At)
		if err != nil {
			return nil, fmt.Errorf("offsets at %s: %w", start.At, err)
		}
		return at, nil
	}
	out := make(map[source.Partition]int64, len(ps))
	for _, p := range ps {
		b := bounds[p]
		out[p] = b.Start // earliest, and group without a commit
		switch start.Mode {
		case config.ModeLatest:
			out[p] = w.endOf(b)
		case config.ModeOffsets:
			if o, ok := start.Offsets[p.Topic][p.Partition]; ok {
				out[p] = min(max(o, b.Start), b.High) // outside the log nothing was lost: nobody had read it
			}
		}
	}
	return out, nil
}

// endOf is the end of the log for what this worker may read.
func (w *worker) endOf(b source.Bounds) int64 {
	if w.opt.readCommitted() {
		return b.Stable
	}
	return b.High
}
