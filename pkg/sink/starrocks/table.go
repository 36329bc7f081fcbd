package starrocks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Table creates, verifies and watches the target table and its view. Safe for concurrent use: one piece of work is under way at a
// time, and everybody who asks for it meanwhile gets its result. Nothing is remembered of work that failed.
type Table struct {
	db    *DB
	cfg   TableConfig
	specs []columnSpec

	mu     sync.Mutex
	flight *flight // nil when nothing is under way
	status Status
	denied bool // said once that DDL is denied
	unfit  error
}

// Status is the last that is known of the table, for a status page.
type Status struct {
	Mode Mode
	// Table and View are qualified names.
	Table, View string
	// Ready: the last look found the table as expected. CheckedAt is its time, zero if there was none.
	Ready     bool
	CheckedAt time.Time
	// Version is the server's, empty until the first successful look.
	Version string
	// Err is why the last work failed, nil if it did not.
	Err error
}

// flight is work under way and, once done is closed, its result.
type flight struct {
	op   string
	done chan struct{}
	err  error
	// abandoned: the caller who did the work gave up; the others have to do it themselves.
	abandoned bool
}

// NewTable checks cfg. It connects to nothing. The DB stays the caller's.
func NewTable(db *DB, cfg TableConfig) (*Table, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Table{db: db, cfg: cfg, specs: columnSpecs(cfg.Dimensions, cfg.Measures)}
	t.status = Status{Mode: cfg.Mode, Table: cfg.Database + "." + cfg.Table}
	if cfg.View != "" {
		t.status.View = cfg.Database + "." + cfg.View
	}
	return t, nil
}

// Status returns the last that is known.
func (t *Table) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// Unfit is the difference found by the last look that could be finished, nil if there was none or only the view's. While there is one a
// load must wait: it might lose what it carries without failing, since StarRocks takes a column that a load names and the table lacks for
// a temporary one (fe Load.initColumns).
func (t *Table) Unfit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unfit
}

// Ensure makes one attempt to bring the table to what is expected, as far as the mode allows, and reads it back. nil means that the
// table is as expected now. Every statement has its deadline; a wait for alter jobs ends with ctx or AlterTimeout. The caller repeats
// with back-off while the error is not IsPermanent. A *Difference says what is wrong with a table that may not be changed.
func (t *Table) Ensure(ctx context.Context) error { return t.share(ctx, "ensure", t.ensure) }

// Check compares the table with what is expected and changes nothing. Results as for Ensure.
func (t *Table) Check(ctx context.Context) error { return t.share(ctx, "check", t.check) }

// Run compares the table every CompareInterval until ctx is done, more often while something is wrong, and logs when it becomes wrong
// or right. It returns nil.
func (t *Table) Run(ctx context.Context) error {
	if t.cfg.Mode == ModeNone {
		<-ctx.Done()
		return nil
	}
	for {
		before := t.Status().Err
		interval := t.cfg.CompareInterval
		if before != nil {
			interval = min(interval, recheckInterval)
		}
		if !t.pause(ctx, interval) {
			return nil
		}
		if now := t.Check(ctx); ctx.Err() == nil {
			t.sayChange(before, now)
		}
	}
}

// sayChange logs what the periodic look found, if it is news.
func (t *Table) sayChange(before, now error) {
	table := zap.String("table", t.cfg.Database+"."+t.cfg.Table)
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		t.cfg.Log.Error("StarRocks table check failed", table, zap.Error(now))
	case now == nil && before != nil:
		t.cfg.Log.Info("StarRocks table is as expected again", table)
	}
}

// share runs work, or waits for the same work of another caller and returns its result. Other work is waited for first.
func (t *Table) share(ctx context.Context, op string, work func(context.Context) error) error {
	for {
		t.mu.Lock()
		f := t.flight
		if f == nil {
			f = &flight{op: op, done: make(chan struct{})}
			t.flight = f
			t.mu.Unlock()
			return t.lead(ctx, f, work)
		}
		t.mu.Unlock()
		select {
		case <-f.done:
			if f.op == op && !f.abandoned {
				return f.err
			}
		case <-ctx.Done():
			return fmt.Errorf("waiting for work on table %s: %w", t.cfg.Table, context.Cause(ctx))
		}
	}
}

func (t *Table) lead(ctx context.Context, f *flight, work func(context.Context) error) error {
	f.err = errors.New("work on the table ended in a panic")
	defer func() {
		f.abandoned = ctx.Err() != nil && f.err != nil
		t.mu.Lock()
		t.flight = nil
		if t.cfg.Mode != ModeNone && !f.abandoned {
			t.status.Err, t.status.Ready, t.status.CheckedAt = f.err, f.err == nil, time.Now()
			t.noteFit(f.err)
		}
		t.mu.Unlock()
		close(f.done)
	}()
	f.err = work(ctx)
	return f.err
}

// noteFit remembers whether loads fit. A look that failed says nothing about it. t.mu must be held.
func (t *Table) noteFit(err error) {
	var d *Difference
	switch {
	case err == nil, errors.As(err, &d) && d.onlyView():
		t.unfit = nil
	case d != nil:
		t.unfit = d
	}
}

func (t *Table) check(ctx context.Context) error {
	if t.cfg.Mode == ModeNone {
		return nil
	}
	f, err := t.inspect(ctx)
	if err != nil {
		return t.verified(err)
	}
	if !f.table {
		return t.verified(t.difference(DifferenceItem{Kind: DiffMissingTable, Want: "the table", Found: "none"}))
	}
	if items, _ := t.compare(f); len(items) > 0 {
		return t.verified(t.difference(items...))
	}
	return t.verified(t.checkView(ctx))
}

// verified counts a look at the table by its result.
func (t *Table) verified(err error) error {
	result := resultOK
	if err != nil {
		result = resultOf(err)
	}
	t.cfg.Metrics.operation(opVerify, result)
	return err
}

func resultOf(err error) string {
	var d *Difference
	switch {
	case err == nil:
		return resultOK
	case isDenied(err):
		return resultDenied
	case isAnswer(err), errors.As(err, &d):
		return resultFailed
	default:
		return resultUnknown
	}
}

func (t *Table) difference(items ...DifferenceItem) error {
	return &Difference{Table: t.cfg.Database + "." + t.cfg.Table, Items: items}
}

// checkView compares the view's columns; its text is the server's own rendering and cannot be compared.
func (t *Table) checkView(ctx context.Context) error {
	if t.cfg.View == "" {
		return nil
	}
	columns, err := t.describe(ctx, t.cfg.View)
	if err != nil && !isUnknownObject(err) {
		return err
	}
	want := []string{columnDay}
	for _, d := range t.cfg.Dimensions {
		want = append(want, d.Name)
	}
	for _, m := range t.cfg.Measures {
		want = append(want, m.Name)
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	if !strings.EqualFold(strings.Join(want, ","), strings.Join(names, ",")) {
		return t.difference(DifferenceItem{Kind: DiffView, Column: t.cfg.View, Want: quoteAll(want), Found: orNone(quoteAll(names))})
	}
	return nil
}
