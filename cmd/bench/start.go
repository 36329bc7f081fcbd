package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/oracle"
	"rollcall/pkg/workerproc"
)

const (
	// idleAfter is how long a worker has had nothing to do when its memory is read: garbage of the start is gone by then.
	idleAfter = 20 * time.Second
	// startPoll is how often a starting worker's metrics are read; answering costs it time.
	startPoll = 25 * time.Millisecond
	// startLimit is when a start that does not come to its first record is given up.
	startLimit = time.Minute
)

// startResult is how long workers took from exec to records counted, and what an idle one needs.
type startResult struct {
	keys   int
	starts []start
	// emptyMiB is the resident memory of an idle worker that has counted nothing yet, idleMiB of one that has restored the keys.
	emptyMiB, idleMiB float64
}

// start is one start of a worker whose keys are in the table, with one new record in each partition.
type start struct {
	first, all time.Duration // from exec until the first and until all of the new records were counted
	peakMiB    float64
	share      share
}

func firstOf(s start) float64 { return s.first.Seconds() }
func allOf(s start) float64   { return s.all.Seconds() }
func peakOf(s start) float64  { return s.peakMiB }
func otherOf(s start) float64 { return s.share.others }

// starting measures starts that restore keys, and idle workers. The table must be the truth in the end.
func starting(ctx context.Context, f flags) (startResult, error) {
	out := startResult{keys: f.startKeys}
	w := newWorkload(startKeys, 2*f.startKeys, f.startKeys, time.Now())
	st, err := newStage(ctx, f, w, "none")
	if err != nil {
		return out, err
	}
	defer st.broker.end()
	into, err := startRocks(ctx)
	if err != nil {
		return out, err
	}
	defer into.end()
	log, err := os.CreateTemp("", "rollcall-bench-*.log")
	if err != nil {
		return out, err
	}
	defer log.Close()
	if err := st.starts(ctx, into, log, &out); err != nil {
		return out, fmt.Errorf("%w; end of the worker's log (%s):\n%s", err, log.Name(), tail(log, 4<<10))
	}
	diff, err := into.differences(ctx, st.truth)
	if err == nil && len(diff) > 0 {
		err = fmt.Errorf("the table is not the truth, %d rows differ, the first: %s; the worker's log: %s", len(diff), diff[0], log.Name())
	}
	if err == nil && !f.keep {
		_ = os.Remove(log.Name())
	}
	return out, err
}

func (st *stage) starts(ctx context.Context, into *rocks, log *os.File, out *startResult) error {
	say("loading %d keys of %d partitions", st.flags.startKeys, st.workload.partitions())
	if _, err := st.runWorker(ctx, "start", into, log); err != nil {
		return err
	}
	prod, err := producer([]string{st.addr})
	if err != nil {
		return err
	}
	defer prod.Close()
	for i := range st.flags.runs {
		s, idle, err := st.oneStart(ctx, into, log, prod, i == st.flags.runs-1)
		if err != nil {
			return err
		}
		say("first record after %.2f s, all after %.2f s, peak %.0f MiB  %s", s.first.Seconds(), s.all.Seconds(), s.peakMiB, s.share)
		out.starts = append(out.starts, s)
		out.idleMiB = idle
	}
	say("idle with the keys: %.0f MiB", out.idleMiB)
	if out.emptyMiB, err = st.idle(ctx, log); err != nil {
		return err
	}
	say("idle without: %.0f MiB", out.emptyMiB)
	return nil
}

// oneStart starts the worker, times it and ends it; the worker of the last run first idles until its memory is read.
func (st *stage) oneStart(ctx context.Context, into *rocks, log *os.File, prod *kgo.Client, idles bool) (s start, idleMiB float64, err error) {
	fresh, err := st.oneRecordEach(ctx, prod)
	if err != nil {
		return s, 0, err
	}
	p, err := st.unbounded("start", into, log)
	if err != nil {
		return s, 0, err
	}
	begun := time.Now()
	if err := p.Start(); err != nil {
		return s, 0, err
	}
	defer p.Kill()
	stop := shares(ctx, p.PID(), st.broker.cmd.Process.Pid, into.cmd.Process.Pid)
	watch := newWatcher(p.Addr(), p.PID(), st.workload)
	defer watch.client.CloseIdleConnections()
	err = watch.counted(ctx, p, fresh, func(n int) {
		if s.first == 0 && n > 0 {
			s.first = time.Since(begun)
		}
		s.all = time.Since(begun)
	})
	shareOf := stop()
	if err != nil {
		return s, 0, err
	}
	s.share = shareOf(begun, begun.Add(s.all))
	peak, err := peakRSS(p.PID())
	if err != nil {
		return s, 0, err
	}
	s.peakMiB = mib(peak)
	if idles {
		if idleMiB, err = settledRSS(ctx, p); err != nil {
			return s, 0, err
		}
	}
	return s, idleMiB, end(p)
}

// idle is the memory of a worker with every partition and nothing in them to read.
func (st *stage) idle(ctx context.Context, log *os.File) (float64, error) {
	into, err := startRocks(ctx)
	if err != nil {
		return 0, err
	}
	defer into.end()
	p, err := st.unbounded("idle", into, log)
	if err != nil {
		return 0, err
	}
	if err := p.Start("KAFKA_START=latest"); err != nil {
		return 0, err
	}
	defer p.Kill()
	rctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := p.Ready(rctx); err != nil {
		return 0, err
	}
	m, err := settledRSS(ctx, p)
	if err != nil {
		return 0, err
	}
	return m, end(p)
}

// unbounded is a worker that runs until it is told to end.
func (st *stage) unbounded(group string, into *rocks, log *os.File) (*workerproc.Process, error) {
	bin, err := filepath.Abs(st.flags.worker)
	if err != nil {
		return nil, err
	}
	return workerproc.New(workerproc.Config{Binary: bin, Env: st.settings(group, "", into.at), Log: log})
}

// oneRecordEach puts an event into every partition and returns how many.
func (st *stage) oneRecordEach(ctx context.Context, prod *kgo.Client) (int, error) {
	left := map[int32]bool{}
	for p := range st.workload.partitions() {
		left[p] = true
	}
	var records []*kgo.Record
	st.workload.each(func(e oracle.Event) bool {
		if p := st.workload.partitionOf(e); left[p] {
			delete(left, p)
			st.truth.Add(e)
			records = append(records, &kgo.Record{Partition: p, Value: e.AppendJSON(nil)})
		}
		return len(left) > 0
	})
	if err := prod.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return 0, fmt.Errorf("produce: %w", err)
	}
	return len(records), nil
}

// counted returns when the worker's metrics show n records, and tells each count on the way.
func (w *watcher) counted(ctx context.Context, p *workerproc.Process, n int, tell func(int)) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		got, _ := w.read(ctx)
		if got > 0 {
			tell(got)
		}
		if got >= n {
			return nil
		}
		if err := p.Alive(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d records: %w", got, n, ctx.Err())
		case <-time.After(startPoll):
		}
	}
}

// settledRSS is what the worker needs after it had nothing to do for a while.
func settledRSS(ctx context.Context, p *workerproc.Process) (float64, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(idleAfter):
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	rss, err := field(status, "VmRSS:")
	return mib(rss), err
}

// end stops the worker, which must say that everything is durable.
func end(p *workerproc.Process) error {
	code, err := p.Stop(30 * time.Second)
	if err == nil && code != 0 {
		err = fmt.Errorf("the worker exited %d, want 0", code)
	}
	return err
}

// check says what of the result is worse than it may be.
func (s startResult) check(f flags) error {
	var errs []error
	if m := median(s.starts, firstOf); f.maxStart > 0 && m > f.maxStart.Seconds() {
		errs = append(errs, fmt.Errorf("start: %.2f s to the first record with %d keys to restore, want at most %s", m, s.keys, f.maxStart))
	}
	if f.maxIdle > 0 && s.emptyMiB > f.maxIdle {
		errs = append(errs, fmt.Errorf("idle: the worker needs %.0f MiB, want at most %.0f", s.emptyMiB, f.maxIdle))
	}
	return errors.Join(errs...)
}
