package starrockstest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// serveBE answers one request of the BE.
func (c *Cluster) serveBE(ctx context.Context, x *exchange) error {
	r := x.route()
	switch {
	case len(r) == 4 && r[0] == "api" && r[3] == "_stream_load" && x.req.Method == http.MethodPut:
		return c.beStreamLoad(ctx, x)
	case len(r) == 3 && r[0] == "api" && r[1] == "transaction" && (x.req.Method == http.MethodPost || x.req.Method == http.MethodPut):
		return c.beTransaction(ctx, x, r[2])
	case len(r) == 2 && r[1] == "_load_error_log" && x.req.Method == http.MethodGet:
		return c.beErrorLog(x)
	case len(r) == 2 && r[1] == "health":
		return x.reply(http.StatusOK, jsonType, `{"status": "OK","msg": "To Be Added"}`)
	}
	return x.reply(http.StatusNotFound, "text/html", "")
}

// load is one plain stream load on its way through the BE. StarRocks: stream_load_context.cpp.
type load struct {
	spec     loadSpec
	user     User
	txn      *txn
	result   loadResult
	bytes    int64
	sum      string
	start    time.Time
	errorURL string
	out      outcome
	rec      *LoadRecord // guarded by the engine's mutex
}

func (c *Cluster) beStreamLoad(ctx context.Context, x *exchange) error {
	l := &load{start: time.Now(), rec: &LoadRecord{At: time.Now()}}
	c.engine.locked(func() { c.engine.loads = append(c.engine.loads, l.rec) })
	err := c.receive(ctx, x, l)
	if err == nil {
		return c.finishLoad(ctx, x, l)
	}
	if errors.Is(err, errAnswered) || errors.Is(err, errGone) {
		c.dropLoad(l, "Cancelled")
		return err
	}
	return c.refuse(x, l, err)
}

// receive is everything before the commit: headers, label, plan, body, rows.
func (c *Cluster) receive(ctx context.Context, x *exchange, l *load) error {
	r := x.route()
	l.spec.label = x.req.Header.Get("label")
	if l.spec.label == "" {
		l.spec.label = newUUID()
	}
	if err := c.strike(ctx, x, AtHeader, &l.out); err != nil {
		return err
	}
	user, err := c.beLogin(x)
	if err != nil {
		return err
	}
	label := l.spec.label
	c.engine.locked(func() { l.rec.Label, l.rec.DB, l.rec.Table, l.rec.User = label, r[1], r[2], user.Name })
	l.spec, err = parseSpec(x.req.Header, x.req.ContentLength, c.limited(l.out))
	l.spec.label, l.spec.db, l.spec.table = label, r[1], r[2]
	if err != nil {
		return err
	}
	var pl *loadPlan
	c.engine.locked(func() { pl, err = c.beginLoad(l, user) })
	if err != nil {
		return err
	}
	if err := c.strike(ctx, x, AtBegun, &l.out); err != nil {
		return err
	}
	body, err := x.body()
	if err != nil {
		x.closing = true
		return errors.New("receive body don't equal with body bytes")
	}
	l.bytes = int64(len(body))
	l.note(body)
	if err := l.spec.checkJSONSize(l.bytes, c.limited(l.out)); err != nil && l.spec.length >= 0 {
		return err
	}
	return c.computeRows(l, pl, body)
}

func (l *load) note(body []byte) {
	sum := sha256.Sum256(body)
	l.sum = hex.EncodeToString(sum[:])
}

// limited is the configuration under a LimitBody fault.
func (c *Cluster) limited(out outcome) Config {
	cfg := c.cfg
	if out.limit > 0 {
		cfg.MaxJSONBytes = out.limit
	}
	return cfg
}

// beLogin is what the BE and then the FE behind it make of the credentials.
func (c *Cluster) beLogin(x *exchange) (User, error) {
	name, password, given, _ := x.credentials()
	if !given {
		return User{}, errors.New("no valid Basic authorization")
	}
	u, ok := c.user(name)
	if !ok || u.Password != password {
		return User{}, fmt.Errorf("Access denied for %s@%s", name, x.peer())
	}
	if !u.may(Insert) {
		return User{}, errors.New("Access denied; you need (at least one of) the INSERT privilege(s) for this operation")
	}
	return u, nil
}

// beginLoad takes the label and plans, under the lock; a plan that fails aborts the transaction.
func (c *Cluster) beginLoad(l *load, user User) (*loadPlan, error) {
	now := time.Now()
	t, err := c.engine.begin(l.spec.db, l.spec.label, user.Name, l.spec.timeout, now)
	if err != nil {
		return nil, err
	}
	l.txn, l.user = t, user
	tab, err := c.engine.lookup(l.spec.db, l.spec.table)
	if err != nil {
		return nil, err
	}
	return l.spec.plan(tab, c.cfg.MaxValueBytes)
}

// computeRows runs the plan and applies the ratio rule. StarRocks: stream_load_executor / fragment end.
func (c *Cluster) computeRows(l *load, pl *loadPlan, body []byte) error {
	res, err := pl.run(body)
	if err != nil {
		return err
	}
	l.result = *res
	return nil
}

// settle applies the ratio rule and the limit on new partitions; it runs after AtCommit has had its say.
func (c *Cluster) settle(l *load) error {
	r := &l.result
	if n := min(l.out.filter, r.loaded); n > 0 {
		r.dropLast(n)
	}
	if len(r.errors) > 0 {
		l.errorURL = c.saveErrors(r.errors)
	}
	if seen := r.total - r.unselected; seen > 0 && float64(r.filtered)/float64(seen) > l.spec.ratio {
		return errors.New(MsgFilteredRows)
	}
	if n := r.staged.newPartitions(); n > c.cfg.MaxNewPartitions {
		return fmt.Errorf("The number of automatic partitions exceeds the limit: %d > auto_partition_max_creation_number_per_load %d", n, c.cfg.MaxNewPartitions)
	}
	return nil
}

// dropLast refuses rows after the fact, for the Filter fault.
func (r *loadResult) dropLast(n int) {
	for _, name := range sortedNames(r.staged.parts) {
		rows := r.staged.parts[name]
		k := min(n, len(rows))
		for range k {
			r.reject("the stand-in refuses this row", fmt.Sprint(rows[len(rows)-1]))
			rows = rows[:len(rows)-1]
		}
		r.staged.parts[name] = rows
		if len(rows) == 0 {
			delete(r.staged.parts, name)
		}
		n -= k
		r.loaded -= k
		r.staged.rows -= k
	}
}

// finishLoad commits and answers. Once the body is complete the client may go away: the BE commits all the same.
func (c *Cluster) finishLoad(ctx context.Context, x *exchange, l *load) error {
	err := c.strike(ctx, x, AtCommit, &l.out)
	if err == nil {
		c.engine.locked(func() { err = c.settle(l) })
	}
	var fail *failure
	if errors.Is(err, errAnswered) || errors.Is(err, errGone) {
		c.dropLoad(l, "Cancelled")
		return err
	}
	if errors.As(err, &fail) {
		l.result = loadResult{} // The fragment did not end well: no counters.
	}
	if err != nil {
		return c.refuse(x, l, err)
	}
	status, msg := c.commitLoad(ctx, l)
	err = c.strike(ctx, x, AtCommitted, &l.out)
	switch {
	case errors.As(err, &fail):
		status, msg = orDefault(fail.status, "Fail"), fail.message
	case err != nil:
		return err
	}
	return c.answerLoad(x, l, status, msg, "")
}

// commitLoad commits and waits for the publish; the status word and message are those of the reply.
func (c *Cluster) commitLoad(ctx context.Context, l *load) (status, msg string) {
	if l.out.commitUnknown && !l.out.commits {
		c.dropLoad(l, MsgCommitUnknown)
		return "Fail", MsgCommitUnknown
	}
	var err error
	c.engine.locked(func() {
		now := time.Now()
		l.txn.staged = []*staged{l.result.staged}
		if err = c.engine.commit(l.txn, now); err != nil {
			return
		}
		switch {
		case l.out.publishSays && l.out.publishDelay < 0:
			l.txn.held = true
		case l.out.publishSays:
			l.txn.publishAt = now.Add(l.out.publishDelay)
		}
		l.record("", "")
		c.engine.advance(now)
	})
	switch {
	case err != nil:
		return "Fail", err.Error()
	case l.out.commitUnknown:
		return "Fail", MsgCommitUnknown
	case l.out.publishSays, !c.awaitVisible(ctx, l.txn, l.publishWait(c.cfg)):
		return "Publish Timeout", "Publish timeout. The data will be visible after a while"
	}
	return "Success", "OK"
}

func (l *load) publishWait(cfg Config) time.Duration { return min(cfg.PublishWait, l.spec.timeout) }

// awaitVisible reports whether the transaction became visible in time.
func (c *Cluster) awaitVisible(ctx context.Context, t *txn, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.engine.waitFor(ctx, func() bool { return t.state == StateVisible }) == nil
}

// dropLoad aborts what was begun.
func (c *Cluster) dropLoad(l *load, reason string) {
	if l.txn == nil {
		return
	}
	c.engine.locked(func() { c.engine.abort(l.txn, reason, time.Now()) })
}

// refuse answers a load that failed: a used label has a Status word of its own.
func (c *Cluster) refuse(x *exchange, l *load, err error) error {
	c.dropLoad(l, err.Error())
	var fail *failure
	var used *labelUsedError
	switch {
	case errors.As(err, &fail):
		return c.answerLoad(x, l, orDefault(fail.status, "Fail"), fail.message, "")
	case errors.As(err, &used):
		return c.answerLoad(x, l, "Label Already Exists", err.Error(), used.status)
	}
	return c.answerLoad(x, l, "Fail", err.Error(), "")
}

// answerLoad writes the reply; existing is ExistingJobStatus.
func (c *Cluster) answerLoad(x *exchange, l *load, status, msg, existing string) error {
	if !x.bodyRead && x.req.ContentLength != 0 {
		x.closing = true
	}
	c.engine.locked(func() { l.record(status, msg) })
	return x.reply(http.StatusOK, c.cfg.BEContentType, l.reply(status, msg, existing, time.Now()).pretty()+"\n")
}

// reply is StreamLoadContext::to_json; the order of the keys is the server's.
func (l *load) reply(status, msg, existing string, now time.Time) *ordered {
	id := int64(-1)
	if l.txn != nil {
		id = l.txn.id
	}
	r := l.result
	ms := now.Sub(l.start).Milliseconds()
	o := new(ordered).set("TxnId", id).set("Label", l.spec.label).set("Status", status)
	if status == "Label Already Exists" {
		o.set("ExistingJobStatus", existing)
	}
	o.set("Message", msg).set("NumberTotalRows", r.total+l.out.miscount).set("NumberLoadedRows", r.loaded+l.out.miscount).
		set("NumberFilteredRows", r.filtered).set("NumberUnselectedRows", r.unselected)
	o.set("LoadBytes", l.bytes).set("LoadTimeMs", ms).set("BeginTxnTimeMs", 0).set("StreamLoadPlanTimeMs", 0).
		set("ReadDataTimeMs", 0).set("WriteDataTimeMs", ms).set("CommitAndPublishTimeMs", 0)
	if l.errorURL != "" {
		o.set("ErrorURL", l.errorURL)
	}
	return o
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// saveErrors keeps the lines for ErrorURL.
func (c *Cluster) saveErrors(lines []string) string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	name := fmt.Sprintf("error_log_%x_%x", b[:8], b[8:])
	c.errorLogs[name] = strings.Join(lines, "\n") + "\n"
	return fmt.Sprintf("http://%s/api/_load_error_log?file=%s", c.be.advertised, name)
}

func (c *Cluster) beErrorLog(x *exchange) error {
	var text string
	var ok bool
	c.engine.locked(func() { text, ok = c.errorLogs[x.query.Get("file")] })
	if !ok {
		return x.reply(http.StatusNotFound, "text/plain", "file not found")
	}
	return x.reply(http.StatusOK, "text/plain", text)
}
