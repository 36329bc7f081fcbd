package starrockstest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// frontend is one FE: an HTTP and a MySQL listener over the shared state.
type frontend struct {
	number int // from 1
	http   *server
	mysql  *server

	// lag is how this FE's reads trail the leader; guarded by the engine's mutex.
	lagVersions int
	lagTime     time.Duration
	frozen      map[*table]int64
}

// serveFE answers one request of an FE. Everything is decided from the header block; a body is never read.
func (c *Cluster) serveFE(ctx context.Context, x *exchange) error {
	x.closing = !c.cfg.FEKeepAlive
	err := c.strike(ctx, x, AtFE, &outcome{})
	var fail *failure
	switch {
	case errors.As(err, &fail):
		return x.reply(http.StatusOK, jsonType, feResult(orDefault(fail.status, "FAILED"), fail.message).pretty())
	case errors.Is(err, errAnswered):
		return nil
	case err != nil:
		return err
	}
	r := x.route()
	switch {
	case len(r) == 4 && r[0] == "api" && r[3] == "_stream_load" && x.req.Method == http.MethodPut:
		return c.feStreamLoad(x)
	case len(r) == 3 && r[0] == "api" && r[2] == "get_load_state" && x.req.Method == http.MethodGet:
		return c.feLoadState(ctx, x, r[1])
	case len(r) == 4 && r[0] == "api" && r[3] == "_cancel" && x.req.Method == http.MethodPost:
		return c.feCancel(x, r[1])
	case len(r) == 3 && r[0] == "api" && r[1] == "transaction" && (x.req.Method == http.MethodPost || x.req.Method == http.MethodPut):
		return c.feTransaction(x, r[2])
	case len(r) == 2 && r[0] == "api" && r[1] == "health":
		return x.reply(http.StatusOK, jsonType, `{"total_backend_num":3,"online_backend_num":3,"status":"OK"}`)
	case x.req.Method == http.MethodPost:
		return x.reply(http.StatusOK, jsonType, smallShape("FAILED", "Not implemented"))
	}
	return x.reply(http.StatusNotFound, "text/html", "")
}

func orDefault(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

// login checks Basic credentials the way BaseAction does and answers 401 itself; ok is false then.
func (c *Cluster) login(x *exchange) (u User, ok bool, err error) {
	name, password, given, malformed := x.credentials()
	if malformed {
		return User{}, false, errGone // starrocks#47636: an exception in parsing, and an empty reply
	}
	if !given {
		return User{}, false, c.unauthorized(x, "Need auth information.")
	}
	u, known := c.user(name)
	if !known || u.Password != password {
		return User{}, false, c.unauthorized(x, fmt.Sprintf("Access denied for %s@%s", name, x.peer()))
	}
	return u, true, nil
}

func (c *Cluster) unauthorized(x *exchange, msg string) error {
	return x.reply(http.StatusUnauthorized, jsonType, smallShape("FAILED", msg), "WWW-Authenticate", `Basic realm=""`)
}

func (c *Cluster) user(name string) (User, bool) {
	for _, u := range c.cfg.Users {
		if u.Name == name {
			return u, true
		}
	}
	return User{}, false
}

const ddlException = "class com.starrocks.common.DdlException: "

func (c *Cluster) feStreamLoad(x *exchange) error {
	u, ok, err := c.login(x)
	if !ok {
		return err
	}
	if !c.cfg.FEKeepAlive && x.req.ProtoAtLeast(1, 1) && !strings.EqualFold(x.req.Header.Get("Expect"), "100-continue") {
		return x.reply(http.StatusOK, jsonType, feResult("FAILED", ddlException+"There is no 100-continue header").pretty())
	}
	if !u.may(Insert) {
		return c.unauthorized(x, accessDenied(Insert, "TABLE "+x.route()[2]))
	}
	return c.toBackend(x)
}

// toBackend redirects to the BE: the same path and query, no credentials, always plain http.
func (c *Cluster) toBackend(x *exchange) error {
	var alive int
	c.engine.locked(func() { alive = c.engine.backends })
	if alive == 0 {
		return x.reply(http.StatusOK, jsonType, feResult("FAILED", MsgNoBackend).pretty())
	}
	return c.redirect(x, c.be.advertised)
}

func (c *Cluster) redirect(x *exchange, host string) error {
	return x.reply(http.StatusTemporaryRedirect, "text/html", "", "Location", "http://"+host+x.req.URL.RequestURI())
}

// toLeader redirects a follower's request to the leader; done is true if it did.
func (c *Cluster) toLeader(x *exchange) (done bool, err error) {
	leader := c.Leader()
	if x.fe == leader {
		return false, nil
	}
	return true, c.redirect(x, c.fes[leader-1].http.advertised)
}

// feLoadState answers get_load_state. StarRocks: GetStreamLoadState.java.
func (c *Cluster) feLoadState(ctx context.Context, x *exchange, db string) error {
	if done, err := c.toLeader(x); done {
		return err
	}
	if _, ok, err := c.login(x); !ok {
		return err
	}
	label := x.query.Get("label")
	if label == "" {
		return x.reply(http.StatusOK, jsonType, smallShape("FAILED", "No label selected."))
	}
	out := &outcome{}
	err := c.strike(ctx, x, AtState, out)
	var fail *failure
	switch {
	case errors.As(err, &fail):
		return x.reply(http.StatusOK, jsonType, smallShape(orDefault(fail.status, "FAILED"), fail.message))
	case errors.Is(err, errAnswered):
		return nil
	case err != nil:
		return err
	}
	state, reason, known := StateUnknown, any(nil), false
	c.engine.locked(func() {
		_, known = c.engine.dbs[db]
		if t := c.engine.txnByLabel(db, label); t != nil {
			state, reason = t.state, t.reason
		}
	})
	if !known {
		return x.reply(http.StatusOK, jsonType, smallShape("FAILED", "unknown database, database="+db))
	}
	if out.state != "" {
		state = out.state
	}
	type answer struct {
		State   TxnState `json:"state"`
		Reason  any      `json:"reason,omitempty"`
		Status  string   `json:"status"`
		Code    string   `json:"code"`
		Msg     string   `json:"msg"`
		Message string   `json:"message"`
	}
	body, err := marshalPlain(answer{state, reason, "OK", "0", "Success", "OK"})
	if err != nil {
		return err
	}
	return x.reply(http.StatusOK, jsonType, body)
}

// feCancel is POST /api/{db}/{table}/_cancel?label=L, the escape for a PREPARE whose BE is gone.
func (c *Cluster) feCancel(x *exchange, db string) error {
	if _, ok, err := c.login(x); !ok {
		return err
	}
	status, msg := "OK", "OK"
	c.engine.locked(func() {
		t := c.engine.txnByLabel(db, x.query.Get("label"))
		switch {
		case t == nil:
			status, msg = "FAILED", "transaction not found"
		case t.state == StateCommitted || t.state == StateVisible:
			status, msg = "FAILED", "transaction's state is already "+string(t.state)+", could not abort"
		default:
			c.engine.abort(t, "user cancel", time.Now())
		}
	})
	return x.reply(http.StatusOK, jsonType, smallShape(status, msg))
}
