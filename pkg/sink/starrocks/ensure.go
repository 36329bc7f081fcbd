package starrocks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"
)

func (t *Table) ensure(ctx context.Context) error {
	if t.cfg.Mode == ModeNone {
		return nil
	}
	if err := t.readVersion(ctx); err != nil {
		return err
	}
	if t.cfg.Mode == ModeVerify {
		return t.check(ctx)
	}
	f, err := t.inspect(ctx)
	if err != nil {
		return t.verified(err)
	}
	if !f.table {
		if f, err = t.create(ctx, f); err != nil {
			return err
		}
	}
	items, missing := t.compare(f)
	if len(missing) > 0 && len(missing) == len(items) {
		if t.cfg.BeforeAlter != nil {
			if err := t.cfg.BeforeAlter(ctx); err != nil {
				return err
			}
		}
		if items, err = t.addColumns(ctx); err != nil {
			return err
		}
	}
	if len(items) > 0 {
		return t.verified(t.difference(items...))
	}
	return t.verified(t.ensureView(ctx))
}

func (t *Table) readVersion(ctx context.Context) error {
	rows, err := t.query(ctx, "SELECT current_version() AS version")
	if err != nil {
		return classifyStatement("read the server's version", err)
	}
	if len(rows) > 0 {
		t.mu.Lock()
		t.status.Version = rows[0]["version"]
		t.mu.Unlock()
	}
	return nil
}

// exec runs one statement that changes something, once, under the statement's deadline, and counts it.
func (t *Table) exec(ctx context.Context, op, what, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.StatementTimeout)
	defer cancel()
	err := t.db.Exec(ctx, statement)
	t.cfg.Metrics.operation(op, resultOf(err))
	if err != nil {
		return classifyStatement(what, err)
	}
	return nil
}

// create creates the database if it is missing and the table, and reads the table back. Whatever the statement's outcome, what is read
// decides: another worker may have created the table, and a statement without an answer may have worked.
func (t *Table) create(ctx context.Context, f found) (found, error) {
	if !f.database {
		if err := t.createDatabase(ctx); err != nil {
			return found{}, err
		}
	}
	failure := t.exec(ctx, opCreateTable, "create table "+t.cfg.Table, t.DDL())
	f, err := t.inspect(ctx)
	switch {
	case err != nil:
		return found{}, errors.Join(failure, err)
	case f.table:
		t.cfg.Log.Info("table created", zap.String("table", t.cfg.Database+"."+t.cfg.Table))
		return f, nil
	case failure != nil:
		return found{}, failure
	default:
		return found{}, fmt.Errorf("create table %s: accepted, but the table does not show yet", t.cfg.Table)
	}
}

func (t *Table) createDatabase(ctx context.Context) error {
	name := t.cfg.Database
	failure := t.exec(ctx, opCreateDatabase, "create database "+name, "CREATE DATABASE IF NOT EXISTS "+quote(name))
	exists, err := t.databaseExists(ctx)
	switch {
	case err != nil:
		return errors.Join(failure, err)
	case exists:
		t.cfg.Log.Info("database created", zap.String("database", name))
		return nil
	case failure != nil:
		return failure
	default:
		return fmt.Errorf("create database %s: accepted, but the database does not show yet", name)
	}
}

// addColumns adds missing measures one by one (a table runs one alter job at a time) and returns the differences that remain.
func (t *Table) addColumns(ctx context.Context) ([]DifferenceItem, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.cfg.AlterTimeout, errors.New("alter jobs take too long"))
	defer cancel()
	for {
		// A job of another worker, or of this one before a restart, may be adding the very column.
		job, err := t.settledJob(ctx)
		if err != nil {
			return nil, err
		}
		f, err := t.inspect(ctx)
		if err != nil {
			return nil, t.verified(err)
		}
		items, missing := t.compare(f)
		if len(missing) == 0 || len(missing) != len(items) {
			return items, nil
		}
		if err := t.addColumn(ctx, missing[0], job.id); err != nil {
			return nil, err
		}
	}
}

// addColumn adds one column; last is the newest alter job before.
func (t *Table) addColumn(ctx context.Context, s columnSpec, last int64) error {
	what := fmt.Sprintf("add column %s to table %s", s.name, t.cfg.Table)
	failure := t.exec(ctx, opAddColumn, what, t.addColumnDDL(s))
	for ; ; t.pause(ctx, t.cfg.AlterPoll) {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, errors.Join(failure, context.Cause(ctx)))
		}
		job, err := t.settledJob(ctx)
		if err != nil {
			return errors.Join(failure, err)
		}
		if job.id > last && job.state == jobCancelled {
			return fmt.Errorf("%s: the job was cancelled: %s", what, excerpt(job.message))
		}
		there, err := t.hasColumn(ctx, s.name)
		switch {
		case err != nil:
			return errors.Join(failure, err)
		case there:
			t.cfg.Log.Info("column added", zap.String("table", t.cfg.Database+"."+t.cfg.Table), zap.String("column", s.name))
			return nil
		case failure != nil && job.id <= last:
			// Refused, and nothing is under way. An unknown outcome that shows only later is found by the next attempt.
			return failure
		}
	}
}

func (t *Table) hasColumn(ctx context.Context, name string) (bool, error) {
	f, err := t.inspect(ctx)
	if err != nil {
		return false, err
	}
	_, missing := t.compare(f)
	for _, s := range missing {
		if s.name == name {
			return false, nil
		}
	}
	return true, nil
}

// Alter job states (StarRocks: SHOW_ALTER.md); all others are on the way to one of these.
const (
	jobStateFinished = "FINISHED"
	jobCancelled     = "CANCELLED"
)

// alterJob is the newest alter job of the table; id 0 means that there was none.
type alterJob struct {
	id             int64
	state, message string
}

func (t *Table) newestJob(ctx context.Context) (alterJob, error) {
	rows, err := t.query(ctx, "SHOW ALTER TABLE COLUMN FROM "+quote(t.cfg.Database)+
		" WHERE TableName = ? ORDER BY JobId DESC LIMIT 1", t.cfg.Table)
	if err != nil {
		return alterJob{}, classifyStatement("look for alter jobs of table "+t.cfg.Table, err)
	}
	if len(rows) == 0 {
		return alterJob{}, nil
	}
	id, err := strconv.ParseInt(rows[0]["jobid"], 10, 64)
	if err != nil {
		return alterJob{}, fmt.Errorf("alter job of table %s: job id: %w", t.cfg.Table, err)
	}
	return alterJob{id: id, state: rows[0]["state"], message: rows[0]["msg"]}, nil
}

// settledJob waits until no alter job of the table is under way and returns the newest. A few failures to look are not the job's.
func (t *Table) settledJob(ctx context.Context) (alterJob, error) {
	const tolerated = 3
	failures := 0
	var last alterJob
	for ; ; t.pause(ctx, t.cfg.AlterPoll) {
		job, err := t.newestJob(ctx)
		switch {
		case ctx.Err() != nil:
			return alterJob{}, fmt.Errorf("waiting for alter job %d (%s) of table %s: %w", last.id, last.state, t.cfg.Table, context.Cause(ctx))
		case err != nil && (IsPermanent(err) || failures == tolerated):
			return alterJob{}, err
		case err != nil:
			failures++
		case job.id == 0 || job.state == jobStateFinished || job.state == jobCancelled:
			return job, nil
		default:
			failures, last = 0, job
		}
	}
}

// pause waits for d; false means that ctx was done first.
func (t *Table) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ensureView creates or replaces the view and reads its columns back. Without the right to do so an existing view with the right
// columns is fine.
func (t *Table) ensureView(ctx context.Context) error {
	if t.cfg.View == "" {
		return nil
	}
	failure := t.exec(ctx, opCreateView, "create view "+t.cfg.View, t.ViewDDL())
	err := t.checkView(ctx)
	switch {
	case err != nil && failure != nil:
		if IsPermanent(failure) {
			return &permanentError{fmt.Errorf("%w (or set the view to %q): %w", failure, NoView, err)}
		}
		// The view is not there because it could not be made, which may change; the difference alone would be permanent.
		return failure
	case err != nil:
		return err
	case failure != nil && !isDenied(failure):
		return failure
	case failure != nil:
		t.sayDenied(failure)
	}
	return nil
}

func (t *Table) sayDenied(err error) {
	t.mu.Lock()
	said := t.denied
	t.denied = true
	t.mu.Unlock()
	if !said {
		t.cfg.Log.Info("no rights to change the table or view, and none are needed: they are as expected", zap.Error(err))
	}
}
