package starrockstest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// feTransaction is /api/transaction/* on an FE: to the leader, then to the node that holds the label, or answered here
// once the transaction has left the BE. StarRocks: TransactionLoadAction.java.
func (c *Cluster) feTransaction(x *exchange, op string) error {
	if done, err := c.toLeader(x); done {
		return err
	}
	if _, ok, err := c.login(x); !ok {
		return err
	}
	switch op {
	case "begin", "load", "prepare", "commit", "rollback":
	default:
		return x.reply(http.StatusOK, jsonType, smallShape("FAILED", "Not implemented"))
	}
	label, db := x.req.Header.Get("label"), x.req.Header.Get("db")
	if label == "" {
		return x.reply(http.StatusOK, jsonType, feResult("FAILED", "Empty label.").pretty())
	}
	if op == "begin" {
		return c.toBackend(x)
	}
	var o *ordered
	var wait *txn
	c.engine.locked(func() {
		if _, known := c.engine.dbs[db]; !known && db != "" {
			o = feResult("FAILED", ddlException+"unknown database, database="+db)
			return
		}
		t := c.engine.txnByLabel(db, label)
		if t == nil && op != "load" {
			o = feResult("FAILED", "class com.starrocks.common.UserException: No transaction found by label "+label)
			return
		}
		if t == nil || t.state == StatePrepare || op == "load" || op == "prepare" {
			return // the BE decides
		}
		o, wait = c.feDecide(t, op)
	})
	if o == nil {
		return c.toBackend(x)
	}
	if wait != nil {
		d := 20 * time.Second
		if n, err := strconv.Atoi(x.req.Header.Get("timeout")); err == nil && n > 0 {
			d = time.Duration(n) * time.Second
		}
		if !c.awaitVisible(context.Background(), wait, d) {
			o = feResult("FAILED", fmt.Sprintf("class com.starrocks.common.UserException: publish timeout: %d", d.Milliseconds()))
		}
	}
	return x.reply(http.StatusOK, jsonType, o.pretty())
}

// feDecide answers commit and rollback of what is PREPARED or over; wait is a transaction whose publish to wait for.
func (c *Cluster) feDecide(t *txn, op string) (o *ordered, wait *txn) {
	ok := func(msg string) *ordered {
		return new(ordered).set("Status", "OK").set("Message", msg).set("Label", t.label).set("TxnId", t.id)
	}
	now := time.Now()
	switch t.state {
	case StatePrepared:
		if op == "rollback" {
			c.engine.abort(t, "User Aborted", now)
			return ok(""), nil
		}
		if err := c.engine.commit(t, now); err != nil {
			return feResult("FAILED", "class com.starrocks.common.UserException: "+err.Error()), nil
		}
		c.engine.advance(now)
		return ok(""), t
	case StateAborted:
		if op == "rollback" {
			return ok(fmt.Sprintf("Transaction %d has already aborted, label is %s", t.id, t.label)), nil
		}
		return feResult("FAILED", fmt.Sprintf("class com.starrocks.common.UserException: Can not commit ABORTED transaction %d, label is %s", t.id, t.label)), nil
	}
	if op == "rollback" {
		return feResult("FAILED", fmt.Sprintf("class com.starrocks.common.UserException: Can not abort %s transaction %d, label is %s", t.state, t.id, t.label)), nil
	}
	return ok(fmt.Sprintf("Transaction %d has already committed, label is %s", t.id, t.label)), nil
}
