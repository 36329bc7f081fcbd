package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"rollcall/pkg/admin"
	"rollcall/pkg/discovery"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrocks"
)

const (
	// stopMargin is what of SHUTDOWN_TIMEOUT is kept for the last commit and for leaving the group.
	stopMargin = 2 * time.Second
	// leaveTimeout bounds everything after the last load.
	leaveTimeout = 4 * time.Second
)

// Worker is one run of rollcall. Use New, then Run once; Abort may be called at any time.
type Worker struct {
	opt   limits
	parts *parts
	admin *admin.Server
	beats *admin.Heartbeats

	started   time.Time
	running   atomic.Pointer[worker] // nil during start-up
	startup   startupState
	abort     chan struct{}
	abortOnce sync.Once
}

// New checks the options and builds everything that needs no connection. The error is an *ExitError.
func New(opt Options) (*Worker, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	l := limits{opt}
	p, err := build(l)
	if err != nil {
		return nil, err
	}
	return &Worker{opt: l, parts: p, beats: &admin.Heartbeats{}, abort: make(chan struct{})}, nil
}

// Abort ends the run at once: what is not durable stays open, and Run returns an error for it.
func (r *Worker) Abort() { r.abortOnce.Do(func() { close(r.abort) }) }

// Run works until ctx is done, a bounded run is finished, or something cannot be waited for. When ctx is done it seals, loads, commits
// and leaves the group within SHUTDOWN_TIMEOUT. The error is nil or an *ExitError; see ExitCode.
func (r *Worker) Run(ctx context.Context) error {
	r.started = time.Now()
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var aux sync.WaitGroup // goroutines that live as long as base
	defer aux.Wait()
	defer cancel()
	defer func() {
		_ = r.parts.store.Close()
		_ = r.parts.db.Close()
	}()
	if err := r.listen(); err != nil {
		return err
	}
	aux.Go(func() {
		if err := r.admin.Run(base); err != nil {
			r.opt.Log.Error("HTTP server ended", zap.Error(err))
		}
	})
	snap, err := r.start(ctx)
	if errors.Is(err, errStopped) {
		r.opt.Log.Info("stopped during start-up; nothing was open")
		return nil
	}
	if err != nil {
		return err
	}
	w, err := r.parts.assemble(base, r.opt, snap)
	if err != nil {
		return err
	}
	r.running.Store(w)
	return r.work(ctx, w)
}

// listen opens the HTTP port, so that a port in use is an error of the start.
func (r *Worker) listen() error {
	addr := string(r.opt.Config.Process.HTTPAddr)
	listen := r.opt.Listen
	if listen == nil {
		listen = net.Listen
	}
	l, err := listen("tcp", addr)
	if err != nil {
		return exitf(ExitSettings, "HTTP_ADDR: cannot listen on %q: %w; free the port or choose another", addr, err)
	}
	r.admin = admin.New(admin.Config{Listener: l, Log: r.opt.Log.Named("http")}, admin.Deps{
		Live: r.live, Ready: r.ready, Status: r.status, Gatherer: r.opt.Registry,
	})
	r.opt.Log.Info("HTTP server listens", zap.String("addr", l.Addr().String()))
	return nil
}

// startupState is what a start waits for, for readiness.
type startupState struct {
	mu    sync.Mutex
	waits map[string]error
}

func (s *startupState) set(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits == nil {
		s.waits = map[string]error{}
	}
	if err == nil {
		delete(s.waits, what)
		return
	}
	s.waits[what] = err
}

func (s *startupState) all() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]error, len(s.waits))
	for k, v := range s.waits {
		out[k] = v
	}
	return out
}

var errNotYet = errors.New("has not answered yet")

// start waits for the first discovery round and for the table, side by side. A permanent error ends it at once, STARTUP_TIMEOUT in any
// case; without one it waits for ever. It returns errStopped if it was told to stop before.
func (r *Worker) start(ctx context.Context) (*discovery.Snapshot, error) {
	begun, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if t := r.opt.Config.Process.StartupTimeout; t > 0 {
		defer time.AfterFunc(t, func() {
			if err := r.startTimedOut(); err != nil {
				stop(err)
			}
		}).Stop()
	}
	r.startup.set("kafka", errNotYet)
	r.startup.set("table", errNotYet)
	var snap *discovery.Snapshot
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := r.parts.discovery.First(begun)
		if err != nil {
			who := ""
			if as := principal(r.opt.Config.KafkaSASL); as != "" && errors.Is(err, discovery.ErrDenied) {
				who = " as " + as
			}
			stop(&ExitError{Code: ExitSource, Err: fmt.Errorf("kafka%s: %w", who, err)})
			return
		}
		snap = s
		r.startup.set("kafka", nil)
	})
	wg.Go(func() {
		if err := r.ensureTable(begun); err != nil {
			stop(r.tableExit(err))
			return
		}
		r.startup.set("table", nil)
	})
	defer r.onAbort(func() { stop(errStopped) })()
	wg.Wait()
	switch err := context.Cause(begun); {
	case err == nil:
		return snap, nil
	case errors.Is(err, errStopped) || errors.Is(err, context.Canceled):
		return nil, errStopped
	default:
		return nil, err
	}
}

// startTimedOut says what a start that took too long still waits for, nil if nothing.
func (r *Worker) startTimedOut() error {
	waits := r.startup.all()
	if err := waits["kafka"]; err != nil {
		if last := r.parts.discovery.Status().LastError; last != "" {
			err = errors.New(last)
		}
		return exitf(ExitSource, "kafka: nothing found within STARTUP_TIMEOUT: %w", err)
	}
	if err := waits["table"]; err != nil {
		return exitf(ExitTable, "table %s: not there within STARTUP_TIMEOUT: %w", r.opt.target(), err)
	}
	return nil
}

// tableExit is the end of a start whose table cannot be used.
func (r *Worker) tableExit(err error) error {
	if _, ok := errors.AsType[*ExitError](err); ok {
		return err
	}
	if d, ok := errors.AsType[*starrocks.Difference](err); ok { // it names the table
		return &ExitError{Code: ExitTable, Err: d}
	}
	return &ExitError{Code: ExitTable, Err: fmt.Errorf("table %s: %w", r.opt.target(), err)}
}

// onAbort calls f once Abort is called; the function returned ends the watch and waits for it.
func (r *Worker) onAbort(f func()) (end func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-r.abort:
			f()
		case <-over:
		}
	})
	return func() { close(over); wg.Wait() }
}

// errStopped says that a start was told to stop.
var errStopped = errors.New("stopped during start-up")

// ensureTable repeats table work with a back-off while waiting can help.
func (r *Worker) ensureTable(ctx context.Context) error {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 500*time.Millisecond, 10*time.Second
	said := ""
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		last = r.parts.table.Ensure(ctx)
		switch {
		case last == nil:
			return struct{}{}, nil
		case starrocks.IsPermanent(last), ExitCode(last) == ExitCheckpoint:
			return struct{}{}, backoff.Permanent(last)
		}
		r.startup.set("table", last)
		if msg := innermost(last).Error(); msg != said && ctx.Err() == nil {
			said = msg
			r.opt.Log.Error("ddl_failed: the table is not ready; trying again", zap.String("table", r.opt.target()), zap.Error(last))
		}
		return struct{}{}, last
	}, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0))
	if err != nil && last != nil && !errors.Is(err, last) {
		return fmt.Errorf("%w; last: %w", err, last)
	}
	return err
}

// work runs the assembled worker: everything is started here, and stopped here in the order that loses nothing.
func (r *Worker) work(ctx context.Context, w *worker) error {
	var fromStart, loads, kafka sync.WaitGroup
	aux, stopAux := context.WithCancel(w.background)
	loadCtx, stopLoads := context.WithCancel(w.background)
	kafkaCtx, stopKafka := context.WithCancel(w.background)
	defer func() {
		stopKafka()
		stopLoads()
		stopAux()
		kafka.Wait()
		loads.Wait()
		fromStart.Wait()
	}()

	if w.letters != nil {
		loads.Go(func() { _ = w.letters.Run(loadCtx) })
	}
	loads.Go(func() {
		if err := w.flusher.Run(loadCtx); err != nil && loadCtx.Err() == nil {
			w.fail(&ExitError{Code: ExitBug, Err: err})
		}
	})
	loads.Go(func() { w.commits.Run(loadCtx) })
	fromStart.Go(func() { w.pressureLoop(aux, r.beats) })
	fromStart.Go(func() { w.completenessLoop(aux, r.beats) })
	fromStart.Go(func() { w.retentionLoop(aux, r.beats) })
	fromStart.Go(func() { r.readyLoop(aux) })
	if reason := w.nothingMatches(); reason != "" {
		w.log.Warn("no topic matches the pattern; waiting for one", zap.String("reason", reason))
	}
	fromStart.Go(func() { w.overlapLoop(aux) })
	fromStart.Go(func() { w.totalsLoop(aux) })
	fromStart.Go(func() { _ = w.table.Run(aux) })
	fromStart.Go(func() {
		if err := w.discovery.Run(aux, w.changed); err != nil && aux.Err() == nil {
			w.log.Error("discovery ended; partitions that appear from now on are found by the client alone", zap.Error(err))
		}
	})
	kafka.Go(func() {
		if err := w.source.Run(kafkaCtx); err != nil && kafkaCtx.Err() == nil {
			w.fail(&ExitError{Code: ExitSource, Err: err})
		}
	})
	finished := make(chan struct{})
	if w.bounded != nil {
		fromStart.Go(func() {
			if w.boundedLoop(aux) == nil {
				close(finished)
			}
		})
	}
	limit := r.waitForEnd(ctx, w, finished)
	return r.stop(w, limit, stopKafka, &kafka)
}

// waitForEnd returns when the run should end, and how long the end may take.
func (r *Worker) waitForEnd(ctx context.Context, w *worker, finished <-chan struct{}) time.Duration {
	limit := r.opt.Config.Process.ShutdownTimeout
	startup := make(<-chan time.Time)
	if t := r.opt.Config.Process.StartupTimeout; t > 0 {
		timer := time.NewTimer(max(time.Millisecond, t-time.Since(r.started)))
		defer timer.Stop()
		startup = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			w.log.Info("stopping", zap.Duration("limit", limit))
		case <-finished:
			w.log.Info("bounded run: everything is durable")
		case <-w.failed:
			w.log.Error("stopping: this cannot be waited for", zap.Error(w.failure))
			if ExitCode(w.failure) == ExitNotDurable { // it has had its time
				return stopMargin
			}
		case <-r.abort:
		case <-startup:
			if w.starting() && !w.ready.Load() {
				w.fail(r.startupTimedOut(w))
				continue
			}
			startup = nil
			continue
		}
		return limit
	}
}

// stop ends the run: owners seal, the flusher loads what there is, offsets are committed, the client leaves the group.
func (r *Worker) stop(w *worker, limit time.Duration, stopKafka context.CancelFunc, kafka *sync.WaitGroup) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(w.background, max(limit-stopMargin, stopMargin/2))
	defer cancel()
	defer r.onAbort(cancel)()
	w.owners.drain(ctx)
	closeErr := w.flusher.Close(ctx)
	commitCtx, cancelCommit := context.WithTimeout(w.background, stopMargin/2)
	commitErr := w.commits.now(commitCtx, nil)
	cancelCommit()
	stopKafka()
	waitFor(kafka, leaveTimeout)
	if commitErr != nil {
		w.log.Warn("last offsets not committed; the next start resumes from the table", zap.Error(commitErr))
	}
	switch {
	case closeErr != nil && w.failure == nil:
		w.log.Error("rows were not durable when the time was up; they are read again at the next start", append(w.loaded(), zap.Strings("open", open(closeErr)), zap.Error(closeErr))...)
		return &ExitError{Code: ExitNotDurable, Err: closeErr}
	case w.failure != nil:
		return errors.Join(w.failure, closeErr)
	}
	w.log.Info("stopped: everything that was read is durable", append(w.loaded(), zap.Duration("took", time.Since(begun)))...)
	return nil
}

// open lists the sources that were not durable, all of them.
func open(err error) []string {
	if e, ok := errors.AsType[*sink.NotDurableError](err); ok {
		return e.Sources
	}
	return nil
}

// loaded says what the run has loaded, for its last line: what was loaded after the last scrape shows nowhere else.
func (w *worker) loaded() []zap.Field {
	s := w.flusher.Status()
	return []zap.Field{zap.String("labels", s.Labels), zap.Int64("loads", s.Done), zap.Int64("rows", s.Rows)}
}

// waitFor waits for wg, at most for limit; what runs on is left to the end of the process.
func waitFor(wg *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
