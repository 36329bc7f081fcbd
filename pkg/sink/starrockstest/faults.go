package starrockstest

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"
)

// Point is a moment at which a Fault can strike.
type Point string

// The points, in the order in which one load passes them.
const (
	// AtFE: an FE has the header block of a request (any path), before it looks at it.
	AtFE Point = "fe"
	// AtHeader: the BE has the header block of a load or transaction request; no label is taken yet.
	AtHeader Point = "header"
	// AtBegun: the label is taken (PREPARE) and the body has not been asked for.
	AtBegun Point = "begun"
	// AtCommit: the body is complete and its rows are computed; the commit comes next.
	AtCommit Point = "commit"
	// AtCommitted: the transaction is committed (and visible, or the wait for that is over); the reply comes next.
	AtCommitted Point = "committed"
	// AtState: an FE is about to answer get_load_state.
	AtState Point = "state"
	// AtSQL: a statement has arrived and is not executed yet.
	AtSQL Point = "sql"
	// AtSQLDone: a statement has been executed; its answer comes next.
	AtSQLDone Point = "sql-done"
)

// Forever as Fault.Times lets a fault strike at every match.
const Forever = -1

// Fault is a rule: at At, for what matches, do Do.
type Fault struct {
	At Point
	// Label, Table, Path and Statement are regular expressions; empty matches everything. Path is the URL path.
	Label, Table, Path, Statement string
	// User restricts the fault to one login, FE (counted from 1) to one frontend.
	User string
	FE   int
	// Skip lets that many matches pass first. Times is how often the fault strikes then: 0 means once, Forever always.
	Skip, Times int
	Do          []Action
}

// Action is what a fault does; see the functions that make one. Actions run in order until one ends the request.
type Action struct {
	kind        actionKind
	wait        time.Duration
	code        int
	contentType string
	text        string
	status      string
	n           int
	yes         bool
}

type actionKind int

const (
	actHang actionKind = iota + 1
	actSleep
	actReset
	actClose
	actReply
	actAnswer
	actRedirect
	actTruncate
	actTrickle
	actPublishTimeout
	actCommitUnknown
	actFilter
	actMiscount
	actLimitBody
	actState
	actSQLError
	actReadBody
)

// Hang waits until Rule.Release, the cluster's Close, or (before the body) the client's going away; then it goes on.
func Hang() Action { return Action{kind: actHang} }

// Sleep waits for d and goes on.
func Sleep(d time.Duration) Action { return Action{kind: actSleep, wait: d} }

// Reset aborts the connection (RST where the network has one).
func Reset() Action { return Action{kind: actReset} }

// CloseConn closes the connection without an answer.
func CloseConn() Action { return Action{kind: actClose} }

// Reply answers with exactly this, whatever was done before.
func Reply(status int, contentType, body string) Action {
	return Action{kind: actReply, code: status, contentType: contentType, text: body}
}

// Fail answers in the shape of the server at hand: Status "Fail" on a BE, "FAILED" on an FE. A transaction that is not
// committed yet is aborted with the message.
func Fail(message string) Action { return Action{kind: actAnswer, text: message} }

// Answer is Fail with a Status word of your own.
func Answer(status, message string) Action {
	return Action{kind: actAnswer, status: status, text: message}
}

// ReadBody lets the client send and takes n bytes of the body, so that what follows strikes in the middle of it. At
// AtBegun.
func ReadBody(n int) Action { return Action{kind: actReadBody, n: n} }

// Redirect answers 307 with this Location: a URL, or host:port to keep path and query; empty leaves the header out.
// At AtFE.
func Redirect(location string) Action { return Action{kind: actRedirect, text: location} }

// RedirectToSelf answers 307 to the same FE, again and again for a rule that strikes Forever.
func RedirectToSelf() Action { return Action{kind: actRedirect, yes: true} }

// Truncate sends only the first n bytes of the answer's body and closes the connection.
func Truncate(n int) Action { return Action{kind: actTruncate, n: n} }

// Trickle sends the answer's body one byte at a time, d apart.
func Trickle(d time.Duration) Action { return Action{kind: actTrickle, wait: d} }

// PublishTimeout commits, says "Publish Timeout" at once, and makes the load visible after d; a negative d leaves it
// COMMITTED until Cluster.Publish. At AtCommit.
func PublishTimeout(d time.Duration) Action { return Action{kind: actPublishTimeout, wait: d} }

// CommitUnknown answers that the commit's outcome is unknown while the load is committed (true) or aborted (false).
// At AtCommit.
func CommitUnknown(committed bool) Action { return Action{kind: actCommitUnknown, yes: committed} }

// Filter refuses the last n rows of the load, as if the table did not take them. At AtCommit.
func Filter(n int) Action { return Action{kind: actFilter, n: n} }

// Miscount adds delta to NumberLoadedRows and NumberTotalRows of the answer. At AtCommitted.
func Miscount(delta int) Action { return Action{kind: actMiscount, n: delta} }

// LimitBody refuses JSON bodies longer than n bytes, as a smaller streaming_load_max_batch_size_mb. At AtHeader.
func LimitBody(n int) Action { return Action{kind: actLimitBody, n: n} }

// State answers get_load_state with this state instead of the true one. At AtState.
func State(s TxnState) Action { return Action{kind: actState, text: string(s)} }

// SQLError answers a statement with this error. At AtSQL the statement is not executed, at AtSQLDone it was.
func SQLError(code int, message string) Action {
	return Action{kind: actSQLError, code: code, text: message}
}

// Rule is an injected fault. Its methods may be called from any goroutine.
type Rule struct {
	f                             Fault
	label, table, path, statement *regexp.Regexp

	mu       sync.Mutex
	matches  int
	hits     int
	waiting  int
	removed  bool
	released chan struct{}
	changed  chan struct{}
}

// Hits is how often the fault has struck.
func (r *Rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits
}

// Hanging is how many requests its Hang holds now.
func (r *Rule) Hanging() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// Remove takes the rule back; what hangs keeps hanging until Release.
func (r *Rule) Remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = true
}

// Release lets everything go on that hangs now; later matches hang anew.
func (r *Rule) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.released)
	r.released = make(chan struct{})
}

// WaitHits blocks until the fault has struck n times.
func (r *Rule) WaitHits(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		hits, changed := r.hits, r.changed
		r.mu.Unlock()
		if hits >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d hits of the fault at %s: %w", hits, n, r.f.At, context.Cause(ctx))
		}
	}
}

func (r *Rule) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// event is what a rule is matched against.
type event struct {
	at                            Point
	label, table, path, statement string
	user                          string
	fe                            int
}

// hit is one strike of a rule. released is taken together with the count of hits: who waited for the hit may call Release
// before the hit has come to its Hang.
type hit struct {
	rule     *Rule
	released <-chan struct{}
}

// take reports whether the rule strikes at this event.
func (r *Rule) take(ev event) (hit, bool) {
	match := r.f.At == ev.at && (r.f.FE == 0 || r.f.FE == ev.fe) && (r.f.User == "" || r.f.User == ev.user) &&
		(r.label == nil || r.label.MatchString(ev.label)) && (r.table == nil || r.table.MatchString(ev.table)) &&
		(r.path == nil || r.path.MatchString(ev.path)) && (r.statement == nil || r.statement.MatchString(ev.statement))
	if !match {
		return hit{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	times := r.f.Times
	if times == 0 {
		times = 1
	}
	if r.removed || times > 0 && r.hits >= times {
		return hit{}, false
	}
	r.matches++
	if r.matches <= r.f.Skip {
		return hit{}, false
	}
	r.hits++
	r.notify()
	return hit{r, r.released}, true
}

// faultBook holds the rules in the order of their injection; the first that takes an event decides it.
type faultBook struct {
	mu    sync.Mutex
	rules []*Rule
}

func (b *faultBook) strike(ev event) (hit, []Action) {
	b.mu.Lock()
	rules := b.rules
	b.mu.Unlock()
	for _, r := range rules {
		if h, ok := r.take(ev); ok {
			return h, r.f.Do
		}
	}
	return hit{}, nil
}

// Inject adds a rule. It panics if a pattern does not compile or the point is unknown: a test that injects nothing
// would pass for the wrong reason.
func (c *Cluster) Inject(f Fault) *Rule {
	switch f.At {
	case AtFE, AtHeader, AtBegun, AtCommit, AtCommitted, AtState, AtSQL, AtSQLDone:
	default:
		panic(fmt.Sprintf("starrockstest: unknown fault point %q", f.At))
	}
	for _, a := range f.Do {
		if !a.fits(f.At) {
			panic(fmt.Sprintf("starrockstest: action %d does nothing at %s", a.kind, f.At))
		}
	}
	pattern := func(s string) *regexp.Regexp {
		if s == "" {
			return nil
		}
		return regexp.MustCompile(s)
	}
	r := &Rule{
		f: f, label: pattern(f.Label), table: pattern(f.Table), path: pattern(f.Path), statement: pattern(f.Statement),
		released: make(chan struct{}), changed: make(chan struct{}),
	}
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.rules = append(c.faults.rules[:len(c.faults.rules):len(c.faults.rules)], r)
	return r
}

// Heal removes every rule and releases what hangs.
func (c *Cluster) Heal() {
	c.faults.mu.Lock()
	rules := c.faults.rules
	c.faults.rules = nil
	c.faults.mu.Unlock()
	for _, r := range rules {
		r.Remove()
		r.Release()
	}
}

func (a Action) fits(at Point) bool {
	sql := at == AtSQL || at == AtSQLDone
	switch a.kind {
	case actHang, actSleep, actReset, actClose:
		return true
	case actReply, actAnswer, actTruncate, actTrickle:
		return !sql
	case actRedirect:
		return at == AtFE
	case actPublishTimeout, actCommitUnknown, actFilter:
		return at == AtCommit
	case actMiscount:
		return at == AtCommitted
	case actLimitBody:
		return at == AtHeader
	case actReadBody:
		return at == AtBegun
	case actState:
		return at == AtState
	case actSQLError:
		return sql
	}
	return false
}

// hang waits for Release, or for the cluster's end or the client's going away.
func (h hit) hang(ctx context.Context, gone <-chan struct{}) {
	h.rule.count(1)
	defer h.rule.count(-1)
	select {
	case <-h.released:
	case <-ctx.Done():
	case <-gone:
	}
}

func (r *Rule) count(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting += n
}
