package starrockstest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// TxnState is the state of a load transaction, spelt as get_load_state answers it.
type TxnState string

// The states of StarRocks' TransactionStatus. StateUnknown means that no transaction has the label: never begun, or
// forgotten.
const (
	StateUnknown   TxnState = "UNKNOWN"
	StatePrepare   TxnState = "PREPARE"
	StatePrepared  TxnState = "PREPARED"
	StateCommitted TxnState = "COMMITTED"
	StateVisible   TxnState = "VISIBLE"
	StateAborted   TxnState = "ABORTED"
)

func (s TxnState) final() bool { return s == StateVisible || s == StateAborted }

// txn is one load transaction.
type txn struct {
	id        int64
	db, label string
	state     TxnState
	reason    string
	user      string
	timeout   time.Duration
	begun     time.Time
	prepared  time.Time
	committed time.Time
	ended     time.Time
	publishAt time.Time // not visible before; zero with held = never by itself
	held      bool
	staged    []*staged
}

// staged are the rows of one load into one table, waiting for the publish.
type staged struct {
	table *table
	cols  []column
	parts map[string][][]any
	rows  int
}

var (
	labelPattern = regexp.MustCompile(`^[-\w]{1,128}$`)

	errLabelUsed = errors.New("label used")
)

// labelUsedError is LabelAlreadyUsedException: a transaction of that label exists and was not aborted.
type labelUsedError struct {
	label  string
	status string // RUNNING or FINISHED
	txn    int64
}

func (e *labelUsedError) Error() string {
	return fmt.Sprintf("Label [%s] has already been used.", e.label)
}
func (e *labelUsedError) Unwrap() error { return errLabelUsed }

// begin takes the label. StarRocks: DatabaseTransactionMgr.beginTransaction.
func (e *engine) begin(db, label, user string, timeout time.Duration, now time.Time) (*txn, error) {
	if label == "" {
		return nil, errors.New("empty label in begin request")
	}
	if _, ok := e.dbs[db]; !ok {
		return nil, fmt.Errorf("unknown database, database=%s", db)
	}
	if !labelPattern.MatchString(label) {
		return nil, fmt.Errorf(`Label format error. regex: ^[-\w]{1,128}$, label: %s`, label)
	}
	if t := e.txnByLabel(db, label); t != nil && t.state != StateAborted {
		status := "RUNNING"
		if t.state == StateCommitted || t.state == StateVisible {
			status = "FINISHED"
		}
		return nil, &labelUsedError{label, status, t.id}
	}
	if n := e.running(db); n >= e.cfg.MaxRunningTxns {
		return nil, fmt.Errorf("current running txns on db %d is %d, larger than limit %d", e.dbs[db].id, n, e.cfg.MaxRunningTxns)
	}
	t := &txn{id: e.id(), db: db, label: label, state: StatePrepare, user: user, timeout: timeout, begun: now}
	e.addTxn(t)
	return t, nil
}

func (e *engine) addTxn(t *txn) {
	e.txns[t.id] = t
	if e.byLabel[t.db] == nil {
		e.byLabel[t.db] = map[string][]*txn{}
	}
	e.byLabel[t.db][t.label] = append(e.byLabel[t.db][t.label], t)
	e.touch()
}

// txnByLabel returns the transaction with the largest id among those of the label, or nil.
func (e *engine) txnByLabel(db, label string) *txn {
	all := e.byLabel[db][label]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func (e *engine) running(db string) (n int) {
	for _, t := range e.txns {
		if t.db == db && (t.state == StatePrepare || t.state == StatePrepared) {
			n++
		}
	}
	return n
}

// commit decides a transaction; its rows become visible by publishDue.
func (e *engine) commit(t *txn, now time.Time) error {
	switch t.state {
	case StateAborted:
		return errors.New(t.reason)
	case StateCommitted, StateVisible:
		return nil
	}
	if _, ok := e.txns[t.id]; !ok {
		return errors.New("transaction not found")
	}
	rows := 0
	for _, s := range t.staged {
		rows += s.rows
	}
	if rows == 0 && !e.cfg.AllowEmptyLoad {
		err := errors.New("all partitions have no load data")
		e.abort(t, err.Error(), now)
		return err
	}
	t.state, t.committed, t.publishAt = StateCommitted, now, now
	for _, s := range t.staged {
		for name := range s.parts {
			p := s.table.partition(name)
			p.pending = append(p.pending, t)
			if at := now.Add(e.publishDelay(s.table, name)); at.After(t.publishAt) {
				t.publishAt = at
			}
		}
	}
	e.touch()
	return nil
}

func (e *engine) publishDelay(t *table, part string) time.Duration {
	if e.cfg.PublishDelay == nil {
		return 0
	}
	return e.cfg.PublishDelay(t.name, part)
}

func (e *engine) abort(t *txn, reason string, now time.Time) {
	if t.state == StateVisible || t.state == StateCommitted || t.state == StateAborted {
		return
	}
	t.state, t.reason, t.ended, t.staged = StateAborted, reason, now, nil
	e.finished = append(e.finished, t)
	e.touch()
}

// publishDue makes visible every committed transaction that is ready and first in line in all its partitions:
// StarRocks publishes versions of one partition in order and knows no order between partitions.
func (e *engine) publishDue(now time.Time) (next time.Time) {
	for again := true; again; {
		again = false
		next = time.Time{}
		for _, t := range e.committedTxns() {
			if t.held || !e.firstInLine(t) {
				continue
			}
			if t.publishAt.After(now) {
				if next.IsZero() || t.publishAt.Before(next) {
					next = t.publishAt
				}
				continue
			}
			e.publish(t, now)
			again = true
		}
	}
	return next
}

func (e *engine) committedTxns() []*txn {
	var out []*txn
	for _, t := range e.txns {
		if t.state == StateCommitted {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *txn) int { return int(a.id - b.id) })
	return out
}

func (e *engine) firstInLine(t *txn) bool {
	for _, s := range t.staged {
		for name := range s.parts {
			if p, ok := s.table.partitions[name]; ok && len(p.pending) > 0 && p.pending[0] != t {
				return false
			}
		}
	}
	return true
}

func (e *engine) publish(t *txn, now time.Time) {
	for _, s := range t.staged {
		s.publish(t, now, e.cfg.History)
	}
	t.state, t.ended, t.staged = StateVisible, now, nil
	e.finished = append(e.finished, t)
	e.touch()
}

func (s *staged) publish(t *txn, now time.Time, history int) {
	tab := s.table
	tab.version++
	var u *undo
	if history > 0 {
		u = &undo{version: tab.version, at: now, cols: tab.cols, old: map[string]map[string]*row{}}
	}
	shape := s.shape(tab)
	for name, rows := range s.parts {
		p, ok := tab.partitions[name]
		if !ok {
			continue // dropped since
		}
		for _, vals := range rows {
			tab.merge(p, shape(vals), u)
		}
		p.version++
		if len(p.pending) > 0 && p.pending[0] == t {
			p.pending = p.pending[1:]
		}
	}
	if u != nil {
		tab.history = append(tab.history, *u)
		if n := len(tab.history) - history; n > 0 {
			tab.history = slices.Delete(tab.history, 0, n)
		}
	}
}

// shape maps rows staged under an older schema to the table's present columns.
func (s *staged) shape(tab *table) func([]any) []any {
	if slices.EqualFunc(s.cols, tab.cols, func(a, b column) bool { return a.name == b.name && a.typ == b.typ }) {
		return func(vals []any) []any { return vals }
	}
	from := make([]int, len(tab.cols))
	for i, c := range tab.cols {
		from[i] = slices.IndexFunc(s.cols, func(o column) bool { return o.name == c.name })
	}
	return func(vals []any) []any {
		out := make([]any, len(tab.cols))
		for i, f := range from {
			if f < 0 {
				out[i], _ = tab.cols[i].defaultValue()
				continue
			}
			out[i], _ = convert(vals[f], tab.cols[i].typ)
		}
		return out
	}
}

// expireTxns aborts what was begun and not finished within its timeout.
func (e *engine) expireTxns(now time.Time) (next time.Time) {
	for _, t := range e.txns {
		limit := t.timeout
		from := t.begun
		switch t.state {
		case StatePrepare:
		case StatePrepared:
			limit, from = e.cfg.PreparedTimeout, t.prepared
		default:
			continue
		}
		if due := from.Add(limit); !due.After(now) {
			e.abort(t, "timeout by txn manager", now)
		} else if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

// evict forgets finished transactions by age and by count per database, as label_keep_max does.
func (e *engine) evict(now time.Time) {
	perDB := map[string]int{}
	for _, t := range e.txns {
		perDB[t.db]++
	}
	keep := e.finished[:0:0]
	for _, t := range e.finished {
		if now.Sub(t.ended) > e.cfg.LabelKeep || perDB[t.db] > e.cfg.LabelKeepNum {
			perDB[t.db]--
			e.forget(t)
			continue
		}
		keep = append(keep, t)
	}
	e.finished = keep
}

func (e *engine) forget(t *txn) {
	delete(e.txns, t.id)
	labels := e.byLabel[t.db]
	labels[t.label] = slices.DeleteFunc(labels[t.label], func(o *txn) bool { return o == t })
	if len(labels[t.label]) == 0 {
		delete(labels, t.label)
	}
}
