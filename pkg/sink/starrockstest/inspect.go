package starrockstest

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"time"
)

// LoadRecord is one load the BE saw: a plain stream load, or a whole transaction.
type LoadRecord struct {
	At                     time.Time
	DB, Table, Label, User string
	TxnID                  int64 // 0: no transaction was begun
	Bytes                  int64
	Compression            string // as the BE understood the headers; empty for none
	SHA256                 string // of the body as sent, hexadecimal; empty if it never came completely
	Rows                   int    // NumberTotalRows
	Loaded, Filtered       int
	Committed              bool
	Status, Message        string // of the answer; empty if there was none
	Transaction            bool   // by /api/transaction
}

// StatementRecord is one SQL statement an FE got.
type StatementRecord struct {
	At   time.Time
	FE   int
	User string
	SQL  string
	Done bool // false: it has not been answered yet
	Err  string
	Rows int
}

// record brings the log entry up to date; under the engine's lock.
func (l *load) record(status, msg string) {
	r := l.rec
	if l.txn != nil {
		r.TxnID = l.txn.id
		r.Committed = l.txn.state != StatePrepare && l.txn.state != StateAborted
	}
	r.Compression = l.spec.compression
	r.Bytes, r.SHA256, r.Rows, r.Loaded, r.Filtered = l.bytes, l.sum, l.result.total, l.result.loaded, l.result.filtered
	r.Status, r.Message = status, msg
}

// Row is a visible row by column name: int64, *big.Int (LARGEINT), float64, string (also DATE as 2006-01-02 and
// DATETIME), []uint64 (BITMAP, ascending), int64 (HLL: its number of hashes), or nil for NULL.
type Row map[string]any

// Rows returns the visible rows of a table, ordered by partition and key.
func (c *Cluster) Rows(db, name string) ([]Row, error) {
	var out []Row
	var err error
	c.engine.locked(func() {
		var t *table
		if t, err = c.engine.lookup(db, name); err != nil {
			return
		}
		cols, rows := t.scan(nil)
		for _, r := range rows {
			m := Row{}
			for i, col := range cols {
				m[col.name] = exported(r.vals[i])
			}
			out = append(out, m)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("rows of %s.%s: %w", db, name, err)
	}
	return out, nil
}

func exported(v any) any {
	switch x := v.(type) {
	case *bitmap:
		return x.ids()
	case *hll:
		return x.count()
	case date:
		return string(x)
	case datetime:
		return string(x)
	case *big.Int:
		return new(big.Int).Set(x)
	}
	return v
}

// Query runs a SELECT (or any statement) as root-equivalent superuser on the leader, without faults and without log.
func (c *Cluster) Query(sql string) (columns []string, rows [][]any, err error) {
	c.engine.locked(func() {
		p, perr := newParser(sql)
		if perr != nil {
			err = perr
			return
		}
		s := &session{user: "stand-in", version: c.cfg.Version, now: time.Now}
		rel, xerr := c.engine.exec(&statement{p: p, session: s, user: User{}, q: &querier{e: c.engine, session: s}})
		if xerr != nil {
			err = xerr
			return
		}
		if rel == nil {
			return
		}
		for _, col := range rel.cols {
			columns = append(columns, col.name)
		}
		for _, r := range rel.rows {
			vals := make([]any, len(r))
			for i, v := range r {
				vals[i] = exported(v)
			}
			rows = append(rows, vals)
		}
	})
	return columns, rows, err
}

// Exec runs statements like Query and drops their results.
func (c *Cluster) Exec(statements ...string) error {
	for _, s := range statements {
		if _, _, err := c.Query(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// Loads returns the load log in the order in which the loads arrived.
func (c *Cluster) Loads() []LoadRecord {
	var out []LoadRecord
	c.engine.locked(func() {
		for _, l := range c.engine.loads {
			out = append(out, *l)
		}
	})
	return out
}

// Committed returns the loads of the log that were committed, and the sum of their loaded rows.
func (c *Cluster) Committed() (loads []LoadRecord, rows int) {
	for _, l := range c.Loads() {
		if l.Committed {
			loads = append(loads, l)
			rows += l.Loaded
		}
	}
	return loads, rows
}

// Statements returns the SQL log of all FEs.
func (c *Cluster) Statements() []StatementRecord {
	var out []StatementRecord
	c.engine.locked(func() {
		for _, s := range c.engine.stmts {
			out = append(out, *s)
		}
	})
	return out
}

// Connections returns how many connections were accepted so far: keys "fe", "be", "mysql".
func (c *Cluster) Connections() map[string]int {
	var out map[string]int
	c.engine.locked(func() { out = maps.Clone(c.engine.conns) })
	return out
}

// LabelState is what get_load_state would answer, without faults.
func (c *Cluster) LabelState(db, label string) TxnState {
	state := StateUnknown
	c.engine.locked(func() {
		if t := c.engine.txnByLabel(db, label); t != nil {
			state = t.state
		}
	})
	return state
}

// Labels returns every label that is remembered in a database with its state.
func (c *Cluster) Labels(db string) map[string]TxnState {
	out := map[string]TxnState{}
	c.engine.locked(func() {
		for label := range c.engine.byLabel[db] {
			out[label] = c.engine.txnByLabel(db, label).state
		}
	})
	return out
}

// WaitLabel blocks until a label is in one of the states.
func (c *Cluster) WaitLabel(ctx context.Context, db, label string, states ...TxnState) error {
	return c.engine.waitFor(ctx, func() bool {
		t := c.engine.txnByLabel(db, label)
		for _, s := range states {
			if t == nil && s == StateUnknown || t != nil && t.state == s {
				return true
			}
		}
		return false
	})
}

// WaitLoads blocks until n loads are committed.
func (c *Cluster) WaitLoads(ctx context.Context, n int) error {
	return c.engine.waitFor(ctx, func() bool {
		k := 0
		for _, l := range c.engine.loads {
			if l.Committed {
				k++
			}
		}
		return k >= n
	})
}

// WaitStatement blocks until a statement that match accepts has been logged.
func (c *Cluster) WaitStatement(ctx context.Context, match func(StatementRecord) bool) error {
	return c.engine.waitFor(ctx, func() bool {
		for _, s := range c.engine.stmts {
			if match(*s) {
				return true
			}
		}
		return false
	})
}
