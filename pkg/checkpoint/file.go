package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
)

const (
	defaultKeep   = 3
	fileExt       = ".ckpt"
	tmpExt        = ".tmp"
	fileCloseWait = 5 * time.Second
)

// FileConfig is what File needs. It is copied.
type FileConfig struct {
	// Dir must exist: a directory that is not there is a volume that is not mounted, never an empty checkpoint.
	Dir string
	// Target is the <database>.<table> that the totals are loaded into; files of another target are refused.
	Target string
	// Dimensions is their number.
	Dimensions int
	Measures   []aggregate.Measure
	// Lateness and Location are the program's: days before day(W − Lateness) cannot change any more and leave the files.
	Lateness time.Duration
	Location *time.Location
	// Keep is how many files of a history stay, 0 means 3.
	Keep int
	Log  *zap.Logger
}

// File is the Store for targets that the worker may not read, and for tests: totals in files below a directory, one folder per history,
// named as the history, and one file per cut, named by its next offset.
//
// A file is written beside its place, synced, renamed and the directory synced; a write that failed in any way is never repeated in
// place but made anew. The newest file that can be read counts; damaged ones are passed over with an ERROR line each. If a history has
// files and none can be read, the store refuses.
//
// Limit: a batch that was loaded but not saved, because the worker died in between, is counted again by a new history, since the
// directory does not know of it. Within a history it is merged as ever.
//
// Safe for concurrent use. Operations take turns and run on a goroutine of their own, so that a call returns when ctx is done even if the
// file system does not answer.
type File struct {
	cfg  FileConfig
	log  *zap.Logger
	turn chan struct{} // holds the right to touch what follows and the directory
	open map[History]*fileState
	said map[string]bool
}

// fileState is what a history's totals are.
type fileState struct {
	progress Progress
	rows     map[string]aggregate.Row
}

// NewFile makes the store. It touches nothing.
func NewFile(cfg FileConfig) *File {
	if cfg.Keep <= 0 {
		cfg.Keep = defaultKeep
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Location == nil {
		cfg.Location = time.UTC
	}
	return &File{cfg: cfg, log: cfg.Log, turn: make(chan struct{}, 1), open: map[History]*fileState{}, said: map[string]bool{}}
}

// take runs fn when it is f's turn and waits for it or for ctx, whichever is first.
func take[T any](ctx context.Context, f *File, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("checkpoint directory %s is busy: %w", f.cfg.Dir, context.Cause(ctx))
	}
	done := make(chan result, 1)
	go func() { // ends with the file system's answer
		v, err := fn()
		<-f.turn
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("checkpoint directory %s does not answer: %w", f.cfg.Dir, context.Cause(ctx))
	}
}

// Progress lists the partition's histories.
func (f *File) Progress(ctx context.Context, topic string, partition int32) ([]Progress, error) {
	return take(ctx, f, func() ([]Progress, error) {
		if err := f.mounted(); err != nil {
			return nil, err
		}
		return f.partition(topic, strconv.FormatInt(int64(partition), 10))
	})
}

// TopicProgress lists the histories of all partitions of the topic.
func (f *File) TopicProgress(ctx context.Context, topic string) ([]Progress, error) {
	return take(ctx, f, func() ([]Progress, error) {
		if err := f.mounted(); err != nil {
			return nil, err
		}
		partitions, err := f.folders(topic)
		if err != nil {
			return nil, err
		}
		var all []Progress
		for _, p := range partitions {
			found, err := f.partition(topic, p)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	})
}

// partition reads the newest cut of every history of a partition.
func (f *File) partition(topic, partition string) ([]Progress, error) {
	ids, err := f.folders(topic, partition)
	if err != nil {
		return nil, err
	}
	var found []Progress
	for _, id := range ids {
		intervals, err := f.folders(topic, partition, id)
		if err != nil {
			return nil, err
		}
		for _, interval := range intervals {
			h, err := ParseHistory(topic + "/" + partition + "/" + id + "/" + interval)
			if err != nil {
				f.foreign(filepath.Join(f.cfg.Dir, topic, partition, id, interval))
				continue
			}
			m, err := f.newest(h)
			if err != nil {
				return nil, err
			}
			if m != nil {
				found = append(found, m.progress)
			}
		}
	}
	return found, nil
}

// Restore reads a history's totals from its newest file that can be read.
func (f *File) Restore(ctx context.Context, h History, from aggregate.Day) (aggregate.State, Progress, error) {
	type both struct {
		state    aggregate.State
		progress Progress
	}
	b, err := take(ctx, f, func() (both, error) {
		if err := f.mounted(); err != nil {
			return both{}, err
		}
		st, err := f.load(h)
		if err != nil {
			return both{}, err
		}
		f.hold(h, st)
		s := aggregate.State{Next: st.progress.Next, WatermarkMs: st.progress.WatermarkMs, HasWatermark: len(st.rows) > 0}
		for _, r := range st.rows {
			if r.Day >= from {
				s.Rows = append(s.Rows, copyTotals(r))
			}
		}
		return both{s, st.progress}, nil
	})
	return b.state, b.progress, err
}

// Save merges the rows, whose cut is next, into the history's totals and writes them. After an error the totals are kept, and the next
// Save writes them as well.
func (f *File) Save(ctx context.Context, h History, next int64, rows []aggregate.Row) error {
	for _, r := range rows {
		if len(r.Dims) != f.cfg.Dimensions || len(r.Cells) != len(f.cfg.Measures) {
			return fmt.Errorf("save totals of %s: a row has %d dimensions and %d measures, want %d and %d",
				h, len(r.Dims), len(r.Cells), f.cfg.Dimensions, len(f.cfg.Measures))
		}
	}
	if len(rows) == 0 {
		return nil // what counted nothing moves no total
	}
	_, err := take(ctx, f, func() (struct{}, error) {
		if err := f.mounted(); err != nil {
			return struct{}{}, err
		}
		st := f.open[h]
		if st == nil {
			var err error
			if st, err = f.load(h); err != nil {
				return struct{}{}, err
			}
			f.hold(h, st)
		}
		f.merge(st, next, rows)
		if err := f.write(st); err != nil {
			return struct{}{}, fmt.Errorf("save totals of %s: %w", h, err)
		}
		f.prune(h, st.progress.Next)
		return struct{}{}, nil
	})
	return err
}

// hold keeps a history's totals in memory, in place of those of another history of the partition.
func (f *File) hold(h History, st *fileState) {
	maps.DeleteFunc(f.open, func(o History, _ *fileState) bool { return o.Topic == h.Topic && o.Partition == h.Partition })
	f.open[h] = st
}

// load makes a state of a history's newest file, or an empty one.
func (f *File) load(h History) (*fileState, error) {
	m, err := f.newest(h)
	if err != nil {
		return nil, err
	}
	st := &fileState{progress: Progress{History: h}, rows: map[string]aggregate.Row{}}
	if m == nil {
		return st, nil
	}
	if m.dims != f.cfg.Dimensions || !slices.EqualFunc(m.kinds, f.cfg.Measures, func(k aggregate.Kind, m aggregate.Measure) bool { return k == m.Kind }) {
		return nil, &UnusableError{What: "the files of " + h.String(), Err: errors.New("other dimensions or measures"), Remedy: "a program's histories have one form; the files were changed"}
	}
	st.progress = m.progress
	for _, r := range m.rows {
		st.rows[rowKey(r)] = r
	}
	return st, nil
}

func (f *File) merge(st *fileState, next int64, rows []aggregate.Row) {
	for _, r := range rows {
		key := rowKey(r)
		r = copyTotals(r)
		if old, ok := st.rows[key]; ok {
			aggregate.MergeRow(f.cfg.Measures, &r, old)
		}
		st.rows[key] = r
		st.progress.note(next, r.LastEventMs, r.Day)
	}
	first := dayOf(st.progress.WatermarkMs-f.cfg.Lateness.Milliseconds(), f.cfg.Location)
	maps.DeleteFunc(st.rows, func(_ string, r aggregate.Row) bool { return r.Day < first })
}

// copyTotals is the row without its sets.
func copyTotals(r aggregate.Row) aggregate.Row {
	r.Dims = slices.Clone(r.Dims)
	cells := make([]aggregate.Cell, len(r.Cells))
	for i, c := range r.Cells {
		cells[i] = aggregate.Cell{Int: c.Int, Null: c.Null}
	}
	r.Cells = cells
	return r
}

func rowKey(r aggregate.Row) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(r.Day))
	for _, d := range r.Dims {
		b = appendText(b, d)
	}
	return string(b)
}

// Close waits for what is under way.
func (f *File) Close() error {
	t := time.NewTimer(fileCloseWait)
	defer t.Stop()
	select {
	case f.turn <- struct{}{}: // kept: no call may follow
		return nil
	case <-t.C:
		return fmt.Errorf("checkpoint directory %s does not answer", f.cfg.Dir)
	}
}

// mounted reports whether the directory is there.
func (f *File) mounted() error {
	info, err := os.Stat(f.cfg.Dir)
	switch {
	case err != nil:
		return f.classify("the checkpoint directory", err)
	case !info.IsDir():
		return &UnusableError{What: f.cfg.Dir, Err: errors.New("not a directory")}
	}
	return nil
}

// classify makes refused access permanent and leaves everything else worth another try.
func (f *File) classify(what string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &UnusableError{What: what, Err: err, Remedy: "the worker's user must be able to read and write it"}
	}
	return fmt.Errorf("%s: %w", what, err)
}
