package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/checkpoint"
	"rollcall/pkg/sink"
	"rollcall/pkg/source"
)

const (
	commitEvery   = time.Second // completions within this time share one request
	commitTimeout = 5 * time.Second
	commitRetry   = 30 * time.Second // the longest back-off
)

// committer mirrors what is durable into the checkpoint store and the group's committed offsets, in this order. Completions come from the flusher's goroutine, assignments from
// the source's; one goroutine (Run) commits, and now during a revoke, never two at a time. A failing commit never stops data: the table
// is the checkpoint.
type committer struct {
	src   kafkaCommits
	store checkpointSaver // nil if the table is the checkpoint
	log   *zap.Logger

	mu     sync.Mutex
	parts  map[source.Partition]*commitEntry
	wake   chan struct{}
	busy   chan struct{} // holds one token: who has it may send a commit request
	failed error         // why the last commit failed, nil after one that did not
}

// kafkaCommits is what the committer needs of the source; safe for concurrent use.
type kafkaCommits interface {
	// Commit sends one request. The error joins a source.PartitionError for each partition that is not committed; any other error means
	// that nothing is known to be.
	Commit(ctx context.Context, commits []source.Commit) error
}

// checkpointSaver is the part of a checkpoint.Store that is told of durable batches; safe for concurrent use.
type checkpointSaver interface {
	Save(ctx context.Context, h checkpoint.History, next int64, rows []aggregate.Row) error
}

type commitEntry struct {
	gen     uint64
	history checkpoint.History
	source  string // history.String()
	epoch   int32
	tracker *checkpoint.Tracker
	unsaved []durable
	// committed is the offset of the last confirmed commit of this assignment, -1 before the first.
	committed int64
}

// durable is a completed batch: what the store is told of and then the tracker.
type durable struct {
	done   sink.Completion
	epoch  int32
	totals []aggregate.Row // without sets; only if there is a saver
}

func newCommitter(src kafkaCommits, store checkpointSaver, log *zap.Logger) *committer {
	c := &committer{src: src, store: store, log: log, parts: map[source.Partition]*commitEntry{}, wake: make(chan struct{}, 1), busy: make(chan struct{}, 1)}
	c.busy <- struct{}{}
	return c
}

// begin opens an assignment; nothing is committed for it before track.
func (c *committer) begin(p source.Partition, gen uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[p] = &commitEntry{gen: gen, epoch: -1, committed: -1}
}

// track sets the history whose completions count from now on.
func (c *committer) track(p source.Partition, gen uint64, h checkpoint.History, t *checkpoint.Tracker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.parts[p]; e != nil && e.gen == gen {
		e.history, e.source, e.tracker, e.unsaved = h, h.String(), t, nil
	}
}

// end closes an assignment: completions that come later (a batch that loads after the partition has gone) move nothing.
func (c *committer) end(p source.Partition, gen uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.parts[p]; e != nil && e.gen == gen {
		delete(c.parts, p)
	}
}

// note takes a completed batch of the assignment. It does not block.
func (c *committer) note(p source.Partition, gen uint64, d durable) {
	c.mu.Lock()
	if e := c.parts[p]; e != nil && e.gen == gen && e.tracker != nil && e.source == d.done.Source {
		if c.store == nil {
			e.take(d)
		} else {
			e.unsaved = append(e.unsaved, d)
		}
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (e *commitEntry) take(d durable) {
	e.tracker.Note(d.done.Next, d.done.Loaded, d.done.MaxDay)
	e.epoch = d.epoch
}

// save tells the store of what is durable, in order; an offset moves only after its totals are saved. Called with the busy token.
func (c *committer) save(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	c.mu.Lock()
	todo := make(map[*commitEntry][]durable)
	for _, e := range c.parts {
		if len(e.unsaved) > 0 {
			todo[e], e.unsaved = e.unsaved, nil
		}
	}
	c.mu.Unlock()
	var errs []error
	for e, list := range todo {
		for i, d := range list {
			if err := c.store.Save(ctx, e.history, d.done.Next, d.totals); err != nil {
				errs = append(errs, fmt.Errorf("save checkpoint of %s: %w", e.source, err))
				c.mu.Lock()
				e.unsaved = append(list[i:len(list):len(list)], e.unsaved...)
				c.mu.Unlock()
				break
			}
			c.mu.Lock()
			e.take(d)
			c.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// pending lists what can be committed now; only is nil for all partitions.
func (c *committer) pending(only []source.Partition) (out []source.Commit, marks []checkpoint.Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(p source.Partition, e *commitEntry) {
		if e == nil || e.tracker == nil {
			return
		}
		if off, mark, ok := e.tracker.Pending(); ok {
			out = append(out, source.Commit{Partition: p, Generation: e.gen, Offset: off, LeaderEpoch: e.epoch, Metadata: mark.Format()})
			marks = append(marks, mark)
		}
	}
	if only == nil {
		for p, e := range c.parts {
			add(p, e)
		}
		return out, marks
	}
	for _, p := range only {
		add(p, c.parts[p])
	}
	return out, marks
}

// now commits what is pending for ps (nil: everything), with ctx as the limit.
func (c *committer) now(ctx context.Context, ps []source.Partition) error {
	select {
	case <-c.busy:
	case <-ctx.Done():
		return fmt.Errorf("commit: another one is under way: %w", context.Cause(ctx))
	}
	defer func() { c.busy <- struct{}{} }()
	saveErr := c.save(ctx)
	todo, marks := c.pending(ps)
	if len(todo) == 0 {
		return saveErr
	}
	err := c.src.Commit(ctx, todo)
	failed, whole := refusedPartitions(err)
	if whole {
		return errors.Join(saveErr, fmt.Errorf("commit offsets: %w", err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range todo {
		if e := c.parts[t.Partition]; failed[t.Partition] == nil && e != nil && e.gen == t.Generation && e.tracker != nil {
			e.tracker.Committed(t.Offset, marks[i])
			e.committed = t.Offset
		}
	}
	if err != nil {
		err = fmt.Errorf("commit offsets: %w", err)
	}
	return errors.Join(saveErr, err)
}

// refusedPartitions sorts the error of a Commit: the partitions it names, or the whole request.
func refusedPartitions(err error) (failed map[source.Partition]error, whole bool) {
	if err == nil {
		return nil, false
	}
	all := []error{err}
	if j, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the joined errors one by one
		all = j.Unwrap()
	}
	failed = make(map[source.Partition]error, len(all))
	for _, e := range all {
		pe, ok := errors.AsType[*source.PartitionError](e)
		if !ok {
			return nil, true
		}
		failed[pe.Partition] = pe.Err
	}
	return failed, false
}

// Run commits about every second while there is something, with a back-off while commits fail. It ends when ctx is done.
func (c *committer) Run(ctx context.Context) {
	timer := time.NewTimer(commitEvery)
	defer timer.Stop()
	fails := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		wait := commitEvery
		if fails > 0 {
			wait = min(commitEvery<<min(fails, 5), commitRetry)
			wait = time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64()))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		cctx, cancel := context.WithTimeout(ctx, commitTimeout)
		err := c.now(cctx, nil)
		cancel()
		if ctx.Err() != nil {
			return
		}
		c.report(err)
		if err != nil {
			fails++
			select { // try again though nothing new completes
			case c.wake <- struct{}{}:
			default:
			}
			continue
		}
		fails = 0
	}
}

// report logs the transition between working and failing commits.
func (c *committer) report(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	was := c.failed
	c.failed = err
	c.mu.Unlock()
	switch {
	case err != nil && was == nil:
		c.log.Error("offset commits fail; data goes on, the table is the checkpoint", zap.Error(err))
	case err == nil && was != nil:
		c.log.Info("offset commits work again")
	}
}

// committed is the offset of the last commit that was confirmed for the assignment, -1 if none was.
func (c *committer) committed(p source.Partition) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.parts[p]; e != nil {
		return e.committed
	}
	return -1
}
