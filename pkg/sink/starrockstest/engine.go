package starrockstest

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// engine is the state of the whole stand-in: databases, transactions, jobs. It has no goroutine and no socket; time
// enters through advance. All fields are guarded by mu.
type engine struct {
	cfg Config

	mu       sync.Mutex
	nextID   int64
	dbs      map[string]*database
	txns     map[int64]*txn
	byLabel  map[string]map[string][]*txn // database → label → transactions, ascending ids
	finished []*txn                       // VISIBLE and ABORTED in the order they ended, for eviction
	backends int
	changed  chan struct{} // closed and renewed on every change of state
	kick     chan struct{} // wakes the cluster's clock goroutine; capacity 1

	loads  []*LoadRecord
	stmts  []*StatementRecord
	alters []AlterScript // for the jobs to come
	ttlDue time.Time     // when partitions are looked at next
	sweep  func(now time.Time) (next time.Time)
	conns  map[string]int // connections accepted per listener
}

type database struct {
	id     int64
	name   string
	tables map[string]*table
	views  map[string]*view
}

type view struct {
	id       int64
	db, name string
	text     string // the SELECT as SHOW CREATE VIEW prints it
	columns  []string
	comment  string
}

func newEngine(cfg Config) *engine {
	return &engine{
		cfg: cfg, nextID: 10000, dbs: map[string]*database{}, txns: map[int64]*txn{},
		byLabel: map[string]map[string][]*txn{}, backends: cfg.Backends, changed: make(chan struct{}),
		kick: make(chan struct{}, 1), conns: map[string]int{},
	}
}

func (e *engine) id() int64 {
	e.nextID++
	return e.nextID
}

// touch announces a change to waiters and to the clock.
func (e *engine) touch() {
	close(e.changed)
	e.changed = make(chan struct{})
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// locked runs f under the lock with every due publish, expiry and job step done first, so that what f sees does not
// depend on when the clock goroutine ran.
func (e *engine) locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advance(time.Now())
	f()
}

// waitFor blocks until cond, called under the lock, holds.
func (e *engine) waitFor(ctx context.Context, cond func() bool) error {
	for {
		e.mu.Lock()
		e.advance(time.Now())
		ok, changed := cond(), e.changed
		e.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// clock moves the state forward whenever something is due; it returns when ctx ends.
func (e *engine) clock(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e.mu.Lock()
		next := e.advance(time.Now())
		e.mu.Unlock()
		wait := time.Hour
		if !next.IsZero() {
			wait = max(time.Until(next), 0)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-e.kick:
		case <-ctx.Done():
			return
		}
	}
}

// advance does what is due at now and says when to look again (zero: only after the next change).
func (e *engine) advance(now time.Time) (next time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	sooner(e.expireTxns(now))
	sooner(e.publishDue(now))
	sooner(e.advanceJobs(now))
	sooner(e.dropExpired(now))
	if e.sweep != nil {
		sooner(e.sweep(now))
	}
	e.evict(now)
	return next
}

// lookup finds a table; the error texts are those of a load.
func (e *engine) lookup(db, name string) (*table, error) {
	d, ok := e.dbs[db]
	if !ok {
		return nil, fmt.Errorf("unknown database, database=%s", db)
	}
	t, ok := d.tables[name]
	if !ok {
		return nil, fmt.Errorf("unknown table \"%s.%s\"", db, name)
	}
	return t, nil
}
