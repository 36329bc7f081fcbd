package starrockstest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// beTxn is a transaction stream load as the BE that holds its context knows it, until prepare or commit.
type beTxn struct {
	load     *load
	table    string
	busy     bool
	columns  string // headers that must stay equal from load to load
	idle     time.Duration
	lastSeen time.Time
}

// Status words of a BE's transaction answers are names of TStatusCode. StarRocks: transaction_stream_load.cpp.
const (
	statusOK           = "OK"
	statusLabelExists  = "LABEL_ALREADY_EXISTS"
	statusTxnNotExists = "TXN_NOT_EXISTS"
	statusInProcessing = "TXN_IN_PROCESSING"
	statusInternal     = "INTERNAL_ERROR"
	statusInvalid      = "INVALID_ARGUMENT"
	statusPublish      = "PUBLISH_TIMEOUT"
)

// txnError is an answer of a transaction operation.
type txnError struct {
	status, msg string
	existing    *string
}

func (e *txnError) Error() string { return e.msg }

// beTransaction is /api/transaction/{begin,load,prepare,commit,rollback} on the BE.
func (c *Cluster) beTransaction(ctx context.Context, x *exchange, op string) error {
	out := &outcome{}
	err := c.strike(ctx, x, AtHeader, out)
	var o *ordered
	if err == nil {
		o, err = c.txnOp(ctx, x, op, out)
	}
	var fail *failure
	var te *txnError
	var used *labelUsedError
	switch {
	case err == nil:
	case errors.Is(err, errAnswered), errors.Is(err, errGone):
		return err
	case errors.As(err, &fail):
		o = feResult(orDefault(fail.status, statusInternal), fail.message)
	case errors.As(err, &used):
		o = new(ordered).set("Status", statusLabelExists).set("ExistingJobStatus", used.status).set("Message", err.Error())
	case errors.As(err, &te):
		o = new(ordered).set("Status", te.status)
		if te.existing != nil {
			o.set("ExistingJobStatus", *te.existing)
		}
		o.set("Message", te.msg)
	default:
		o = feResult(statusInternal, err.Error())
	}
	if !x.bodyRead && x.req.ContentLength > 0 {
		x.closing = true
	}
	return x.reply(http.StatusOK, c.cfg.BEContentType, o.pretty()+"\n")
}

func (c *Cluster) txnOp(ctx context.Context, x *exchange, op string, out *outcome) (*ordered, error) {
	user, err := c.beLogin(x)
	if err != nil {
		return nil, err
	}
	label := x.req.Header.Get("label")
	if label == "" {
		return nil, &txnError{status: statusInvalid, msg: "empty label"}
	}
	switch op {
	case "begin":
		return c.txnBegin(ctx, x, user, label)
	case "load", "prepare", "commit", "rollback":
	default:
		return nil, &txnError{status: statusInvalid, msg: "Unsupported operation"}
	}
	b, err := c.claim(x, label)
	if err != nil {
		return nil, err
	}
	var o *ordered
	switch op {
	case "load":
		o, err = c.txnLoad(ctx, x, b)
	case "prepare":
		o, err = c.txnPrepare(ctx, x, b)
	case "commit":
		o, err = c.txnCommit(ctx, x, b, out)
	case "rollback":
		c.dropLoad(b.load, "User Aborted")
		c.forgetTxn(label)
		o = new(ordered).set("Status", statusOK).set("Message", "").set("Label", label)
	}
	c.release(label, b, err)
	return o, err
}

func (c *Cluster) txnBegin(ctx context.Context, x *exchange, user User, label string) (*ordered, error) {
	h := x.req.Header
	spec, err := parseSpec(h, 0, c.cfg)
	if err != nil {
		return nil, err
	}
	spec.db, spec.table, spec.label = h.Get("db"), h.Get("table"), label
	empty := ""
	l := &load{start: time.Now(), spec: spec, user: user, rec: &LoadRecord{
		At: time.Now(), Label: label, DB: spec.db, Table: spec.table, User: user.Name, Transaction: true,
	}}
	c.engine.locked(func() {
		if _, alive := c.beTxns[label]; alive {
			err = &txnError{status: statusLabelExists, msg: "", existing: &empty}
			return
		}
		if _, err = c.engine.lookup(spec.db, spec.table); err != nil {
			return
		}
		if l.txn, err = c.engine.begin(spec.db, label, user.Name, spec.timeout, time.Now()); err != nil {
			return
		}
		c.engine.loads = append(c.engine.loads, l.rec)
		b := &beTxn{load: l, table: spec.table, lastSeen: time.Now()}
		if n, _ := time.ParseDuration(h.Get("idle_transaction_timeout") + "s"); n > 0 {
			b.idle = n
		}
		c.beTxns[label] = b
	})
	if err != nil {
		return nil, err
	}
	if err := c.strike(ctx, x, AtBegun, &l.out); err != nil {
		c.dropLoad(l, err.Error())
		c.forgetTxn(label)
		return nil, err
	}
	return new(ordered).set("Status", statusOK).set("Message", "").set("Label", label).set("TxnId", l.txn.id).
		set("BeginTxnTimeMs", 0), nil
}

// claim finds the context of a label and marks it busy.
func (c *Cluster) claim(x *exchange, label string) (b *beTxn, err error) {
	db, tab := x.req.Header.Get("db"), x.req.Header.Get("table")
	c.engine.locked(func() {
		b = c.beTxns[label]
		switch {
		case b == nil:
			err = &txnError{status: statusTxnNotExists, msg: fmt.Sprintf("transaction with label %s not exists", label)}
		case b.busy:
			err = &txnError{status: statusInProcessing, msg: "Transaction is in processing"}
		case db != "" && db != b.load.spec.db:
			err = &txnError{status: statusInvalid, msg: fmt.Sprintf("request db %s transaction db %s not match", db, b.load.spec.db)}
		case tab != "" && tab != b.table:
			err = &txnError{status: statusInvalid, msg: fmt.Sprintf("Request table %s not equal transaction table %s", tab, b.table)}
		case b.load.txn.state == StateAborted:
			err = &txnError{status: statusInternal, msg: "current transaction is aborted"}
		default:
			b.busy = true
		}
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// release ends an operation; any error of load, prepare or commit rolls the transaction back.
func (c *Cluster) release(label string, b *beTxn, err error) {
	c.engine.locked(func() {
		b.busy, b.lastSeen = false, time.Now()
		if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errAnswered) {
			c.engine.abort(b.load.txn, err.Error(), time.Now())
			delete(c.beTxns, label)
		}
	})
}

func (c *Cluster) forgetTxn(label string) {
	c.engine.locked(func() { delete(c.beTxns, label) })
}

// txnLoad adds one body to the transaction. body_bytes accumulates, so the JSON limit is one of the whole transaction.
func (c *Cluster) txnLoad(ctx context.Context, x *exchange, b *beTxn) (*ordered, error) {
	l := b.load
	spec, err := parseSpec(x.req.Header, x.req.ContentLength, c.cfg)
	if err != nil {
		return nil, err
	}
	spec.db, spec.table, spec.label, spec.timeout = l.spec.db, b.table, l.spec.label, l.spec.timeout
	if err := spec.checkJSONSize(l.bytes+max(spec.length, 0), c.cfg); err != nil {
		return nil, err
	}
	same := fmt.Sprint(spec.format, spec.columns, spec.jsonPaths, spec.stripOuter, spec.strict)
	if b.columns != "" && b.columns != same {
		return nil, &txnError{status: statusInternal, msg: "load request not equal last."}
	}
	b.columns = same
	var pl *loadPlan
	c.engine.locked(func() {
		var t *table
		if t, err = c.engine.lookup(spec.db, spec.table); err == nil {
			pl, err = spec.plan(t, c.cfg.MaxValueBytes)
		}
	})
	if err != nil {
		return nil, err
	}
	body, err := x.body()
	if err != nil {
		x.closing = true
		return nil, errors.New("receive body don't equal with body bytes")
	}
	res, err := pl.run(body)
	if err != nil {
		return nil, err
	}
	l.bytes += int64(len(body))
	l.note(body)
	l.spec = spec
	l.result.add(res)
	if err := c.strike(ctx, x, AtCommit, &outcome{}); err != nil {
		return nil, err
	}
	return new(ordered).set("Status", statusOK).set("Message", "").set("Label", spec.label).set("TxnId", l.txn.id).
		set("LoadBytes", l.bytes).set("StreamLoadPlanTimeMs", 0).set("ReceivedDataTimeMs", 0), nil
}

// add joins the rows of another load of the same transaction.
func (r *loadResult) add(o *loadResult) {
	if r.staged == nil {
		*r = *o
		return
	}
	r.total += o.total
	r.loaded += o.loaded
	r.filtered += o.filtered
	r.unselected += o.unselected
	r.errors = append(r.errors, o.errors...)
	r.staged.rows += o.staged.rows
	for name, rows := range o.staged.parts {
		r.staged.parts[name] = append(r.staged.parts[name], rows...)
	}
}

// idleSlack is what the BE's sweeper adds to idle_transaction_timeout.
const idleSlack = 30 * time.Second

// sweepTxns forgets contexts whose transaction ended on the FE, and aborts those that were idle for too long; under the
// lock.
func (c *Cluster) sweepTxns(now time.Time) (next time.Time) {
	for label, b := range c.beTxns {
		due := b.lastSeen.Add(b.idle + idleSlack)
		switch {
		case b.busy:
		case b.load.txn.state.final():
			delete(c.beTxns, label)
		case b.idle > 0 && !due.After(now):
			c.engine.abort(b.load.txn, fmt.Sprintf("transaction is aborted by idle timeout %d seconds.", int(b.idle.Seconds())), now)
			delete(c.beTxns, label)
		case b.idle > 0 && (next.IsZero() || due.Before(next)):
			next = due
		}
	}
	return next
}

var errNoData = errors.New("transaction hasn't send any data yet")

func (c *Cluster) checkData(b *beTxn) error {
	if b.load.result.staged == nil {
		return &txnError{status: statusInternal, msg: fmt.Sprintf("%d %s", b.load.txn.id, errNoData)}
	}
	var err error
	c.engine.locked(func() { err = c.settle(b.load) })
	return err
}

// txnPrepare hands the transaction over to the FE; the BE forgets it.
func (c *Cluster) txnPrepare(_ context.Context, _ *exchange, b *beTxn) (*ordered, error) {
	if err := c.checkData(b); err != nil {
		return nil, err
	}
	l := b.load
	var err error
	c.engine.locked(func() {
		now := time.Now()
		if l.txn.state != StatePrepare {
			err = errors.New(orDefault(l.txn.reason, "transaction is "+string(l.txn.state)))
			return
		}
		l.txn.staged = []*staged{l.result.staged}
		l.txn.state, l.txn.prepared = StatePrepared, now
		l.record("", "")
		delete(c.beTxns, l.spec.label)
		c.engine.touch()
	})
	if err != nil {
		return nil, err
	}
	return l.txnReply(statusOK, "", time.Now()), nil
}

// txnCommit is the one-phase commit of a transaction that is still in PREPARE.
func (c *Cluster) txnCommit(ctx context.Context, x *exchange, b *beTxn, out *outcome) (*ordered, error) {
	if err := c.checkData(b); err != nil {
		return nil, err
	}
	l := b.load
	l.out = *out
	if err := c.strike(ctx, x, AtCommit, &l.out); err != nil {
		return nil, err
	}
	status, msg := c.commitLoad(ctx, l)
	c.forgetTxn(l.spec.label)
	if err := c.strike(ctx, x, AtCommitted, &l.out); err != nil {
		return nil, err
	}
	word := map[string]string{"Success": statusOK, "Publish Timeout": statusPublish}[status]
	if word == "" {
		return nil, errors.New(msg)
	}
	if word == statusOK {
		msg = ""
	}
	return l.txnReply(word, msg, time.Now()), nil
}

func (l *load) txnReply(status, msg string, now time.Time) *ordered {
	r, ms := l.result, now.Sub(l.start).Milliseconds()
	o := new(ordered).set("Status", status).set("Message", msg).set("Label", l.spec.label).set("TxnId", l.txn.id).
		set("NumberTotalRows", r.total).set("NumberLoadedRows", r.loaded).set("NumberFilteredRows", r.filtered).
		set("NumberUnselectedRows", r.unselected).set("LoadBytes", l.bytes).set("LoadTimeMs", ms).set("StreamLoadPlanTimeMs", 0).
		set("ReceivedDataTimeMs", 0).set("WriteDataTimeMs", ms).set("CommitAndPublishTimeMs", 0)
	if l.errorURL != "" {
		o.set("ErrorURL", l.errorURL)
	}
	return o
}
