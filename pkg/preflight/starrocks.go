package preflight

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"rollcall/pkg/sink/starrocks"
)

// TryStarRocks tries everything of StarRocks and returns one result for each.
func TryStarRocks(ctx context.Context, cfg StarRocksConfig) []Result {
	t := &rocksTry{cfg: cfg, lines: lines{part: StarRocks}}
	if t.logins(ctx) {
		t.database(ctx)
	}
	t.fronts(ctx)
	return t.all
}

type rocksTry struct {
	lines
	cfg StarRocksConfig
	// addrs are the MySQL addresses that work.
	addrs []string
	// exists says that the table is there.
	exists bool
	// toCome says that the database is missing and the first start creates it.
	toCome bool
}

func (t *rocksTry) open(addrs ...string) (*starrocks.DB, error) {
	return starrocks.OpenDB(starrocks.DBConfig{
		Addrs: addrs, User: t.cfg.User, Password: t.cfg.Password, TLS: t.cfg.MySQLTLS, DialContext: t.cfg.Dial,
	})
}

// ask runs one query on the given front ends and returns the first value of the first row, "" without one.
func (t *rocksTry) ask(ctx context.Context, addrs []string, query string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	db, err := t.open(addrs...)
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }() // nothing is open in it
	var value sql.NullString
	err = db.Query(ctx, func(conn *sql.Conn) error {
		err := conn.QueryRowContext(ctx, query, args...).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return value.String, err
}

// logins logs in at every front end over MySQL and reports whether one works.
func (t *rocksTry) logins(ctx context.Context) bool {
	tries := each(t.cfg.MySQL, func(addr string) attempt {
		a := attempt{name: "StarRocks MySQL " + addr}
		version, err := t.ask(ctx, []string{addr}, "SELECT current_version()")
		if err != nil {
			f := t.cfg.sql(err)
			a.fault = &f
		}
		a.detail = "logged in, version " + version
		return a
	})
	for i, a := range tries {
		if a.fault == nil {
			t.addrs = append(t.addrs, t.cfg.MySQL[i])
		}
	}
	return t.equals(tries) > 0
}

func (t *rocksTry) database(ctx context.Context) {
	line := "database " + t.cfg.Database
	name, err := t.ask(ctx, t.addrs, "SELECT SCHEMA_NAME FROM information_schema.schemata WHERE SCHEMA_NAME = ?", t.cfg.Database)
	switch {
	case err != nil:
		t.fail(line, t.cfg.sql(err))
	case name == "" && t.cfg.Mode == starrocks.ModeCreate:
		t.toCome = true
		t.add(Warn, line, fault{
			cause:  "it does not exist (or this user may not see it); the first start creates it, the table and the view, for which the user needs CREATE DATABASE on the catalog",
			remedy: "CREATE DATABASE " + t.cfg.Database + " yourself if the user may not, or correct STARROCKS_DATABASE",
		})
	case name == "":
		t.fail(line, fault{cause: "it does not exist (or this user may not see it)", remedy: "CREATE DATABASE " + t.cfg.Database + ", correct STARROCKS_DATABASE, or " + t.cfg.grant()})
	default:
		t.ok(line, "there")
		t.table(ctx)
	}
}

// table compares the table and the view.
func (t *rocksTry) table(ctx context.Context) {
	line := "table " + t.cfg.Database + "." + t.cfg.Table
	if t.cfg.Mode == starrocks.ModeNone {
		t.exists = true
		t.ok(line, "not looked at (TABLE_MODE=none)")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*tryTimeout)
	defer cancel()
	err := t.cfg.Shape(ctx)
	var diff *starrocks.Difference
	switch {
	case err == nil:
		t.exists = true
		t.ok(line, "as expected, and the view")
	case errors.As(err, &diff):
		t.difference(line, diff)
	default:
		t.fail(line, t.cfg.sql(err))
		return
	}
	if t.exists && t.cfg.Restores {
		t.readable(ctx, line)
	}
}

// difference says what differs, and whether the first start mends it by itself.
func (t *rocksTry) difference(line string, diff *starrocks.Difference) {
	create := t.cfg.Mode == starrocks.ModeCreate
	kinds := map[string]bool{}
	for _, i := range diff.Items {
		kinds[i.Kind] = true
	}
	only := func(kind string) bool { return len(kinds) == 1 && kinds[kind] }
	t.exists = !kinds[starrocks.DiffMissingTable]
	switch {
	case only(starrocks.DiffMissingTable) && create:
		t.ok(line, "not there yet; the first start creates it and the view, for which the user needs CREATE TABLE and CREATE VIEW on the database")
	case only(starrocks.DiffMissingTable):
		t.fail(line, fault{cause: "it does not exist (or this user may not see it)", remedy: "run the statements that `rollcall table` prints, set TABLE_MODE=create, or " + t.cfg.grant()})
	case only(starrocks.DiffView) && create:
		t.ok(line, "as expected; the start makes the view anew, for which the user needs CREATE VIEW on the database")
	case only(starrocks.DiffView):
		t.fail(line, fault{cause: diff.Error(), remedy: "run the second statement that `rollcall table` prints, or set STARROCKS_VIEW=none"})
	case only(starrocks.DiffMissing) && create && measuresOnly(diff):
		t.ok(line, "lacks columns that the start adds, for which the user needs ALTER: %s", diff.Error())
	default:
		t.fail(line, fault{cause: diff.Error(), remedy: "name another table in STARROCKS_TABLE, or rebuild this one by the statement that `rollcall table` prints"})
	}
}

// measuresOnly: key columns and the worker's own cannot be added to a table.
func measuresOnly(diff *starrocks.Difference) bool {
	for _, i := range diff.Items {
		if strings.HasPrefix(i.Column, "rollcall_") {
			return false
		}
	}
	return true
}

// readable reads a row of the table, as restoring totals does.
func (t *rocksTry) readable(ctx context.Context, line string) {
	query := fmt.Sprintf("SELECT rollcall_next_offset FROM `%s`.`%s` LIMIT 1", t.cfg.Database, t.cfg.Table)
	if _, err := t.ask(ctx, t.addrs, query); err != nil {
		t.fail(line+" (reading)", t.cfg.sql(err))
		return
	}
	t.ok(line+" (reading)", "allowed")
}

// fronts asks every front end where it would send a load, and reaches that node.
func (t *rocksTry) fronts(ctx context.Context) {
	t.equals(each(t.cfg.HTTP, func(front string) attempt {
		a := attempt{name: "StarRocks HTTP " + front}
		ctx, cancel := context.WithTimeout(ctx, 3*tryTimeout)
		defer cancel()
		node, f := t.redirect(ctx, front)
		a.detail = "sends loads to " + node + ", which answers; knows labels"
		if f != nil && f.ungranted && !t.exists && t.cfg.Mode == starrocks.ModeCreate {
			f, a.detail = nil, "logged in; whether it takes loads shows when the table is there"
		}
		switch {
		case f == nil && t.toCome:
			a.detail = "sends loads to " + node + ", which answers; whether it knows labels shows when the database is there"
		case f == nil:
			f = t.labels(ctx, front)
		}
		a.fault = f
		return a
	}))
}

// labels asks a front end for a label that never was, with the worker's own client.
func (t *rocksTry) labels(ctx context.Context, front string) *fault {
	client, err := t.cfg.Client(front)
	if err != nil {
		return &fault{cause: err.Error(), remedy: "correct STARROCKS_HTTP"}
	}
	if _, err = client.State(ctx, label()); err != nil {
		f := web(err)
		f.cause = "the state of a label cannot be asked for: " + f.cause
		return &f
	}
	return nil
}

func label() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "rollcall-check-" + hex.EncodeToString(b[:])
}

// maxHops is follower → leader → back end, with room for a proxy.
const maxHops = 4

// redirect walks from a front end to the node that would take a load. A front end answers from the header alone, by a redirect (StarRocks:
// fe LoadAction.java); the node itself is asked for its health only, so nothing is loaded and no transaction begun.
func (t *rocksTry) redirect(ctx context.Context, front string) (node string, f *fault) {
	base, err := url.Parse(front)
	if err != nil {
		return "", &fault{cause: err.Error(), remedy: "correct STARROCKS_HTTP"}
	}
	target := base.JoinPath("api", t.cfg.Database, t.cfg.Table, "_stream_load")
	for range maxHops {
		a, err := t.request(ctx, http.MethodPut, target)
		if err != nil {
			f := web(err)
			return "", &f
		}
		if a.status != http.StatusTemporaryRedirect && a.status != http.StatusFound && a.status != http.StatusMovedPermanently {
			f := t.refused(target.Host, a.status, a.body)
			return "", &f
		}
		next, err := target.Parse(a.location)
		if err != nil || next.Host == "" {
			return "", &fault{cause: fmt.Sprintf("%s redirects to %q", target.Host, a.location), remedy: "see the front end's log"}
		}
		if target.Scheme == "https" && next.Scheme == "http" && !t.cfg.PlainRedirect {
			return "", &fault{cause: "it sends loads on to " + next.Host + " without TLS, and the worker does not follow", remedy: "put a proxy with TLS before the back ends, or accept clear text from there on: STARROCKS_TLS_ALLOW_PLAIN_REDIRECT=true"}
		}
		next.User = nil
		front, f := t.health(ctx, next)
		if f != nil {
			return "", f
		}
		if !front {
			return next.Host, nil
		}
		target = next
	}
	return "", &fault{cause: "its redirects go round", remedy: "see the front ends' logs"}
}

// health reaches the node of a redirect and says whether it is a front end (the leader) rather than a back end: only a front end counts
// back ends in its health (StarRocks: fe HealthAction.java, be health_action.cpp).
func (t *rocksTry) health(ctx context.Context, node *url.URL) (front bool, f *fault) {
	u := &url.URL{Scheme: node.Scheme, Host: node.Host, Path: "/api/health"}
	a, err := t.request(ctx, http.MethodGet, u)
	if err != nil {
		cause := web(err)
		return false, &fault{cause: "it sends loads on to " + node.Host + ", which cannot be reached: " + cause.cause, remedy: "let the worker reach every back end's http_port (8040) by the name or address that the cluster knows it by (SHOW BACKENDS): name server, NetworkPolicy, firewall", outage: cause.outage}
	}
	return strings.Contains(a.body, "online_backend_num"), nil
}

// answer is what is wanted of a response.
type answer struct {
	status         int
	location, body string
}

// request makes one request without following redirects. A PUT announces a body that it never sends, since only who answers "continue"
// would get it, and a front end never does.
func (t *rocksTry) request(ctx context.Context, method string, u *url.URL) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var body io.Reader
	if method == http.MethodPut {
		body = neverSent{}
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return answer{}, err
	}
	req.SetBasicAuth(t.cfg.User, t.cfg.Password)
	req.Close = true
	if body != nil {
		req.ContentLength = 2
		req.Header.Set("Expect", "100-continue")
		req.Header.Set("Label", label())
		req.Header.Set("Format", "json")
	}
	var conn listened
	transport := t.transport(&conn)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil && conn.spokeFirst.Load() {
		return answer{}, errSpokeFirst
	}
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // nothing more is wanted of it
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	return answer{status: resp.StatusCode, location: resp.Header.Get("Location"), body: string(text)}, err
}

func (t *rocksTry) transport(conn *listened) *http.Transport {
	var plain http.Protocols
	plain.SetHTTP1(true)
	var conf *tls.Config
	if t.cfg.HTTPTLS != nil {
		conf = t.cfg.HTTPTLS.Clone()
	}
	dial := orDialer(t.cfg.Dial)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			conn.Conn = c
			return conn, nil
		},
		TLSClientConfig: conf, DisableKeepAlives: true, ExpectContinueTimeout: 2 * tryTimeout, Protocols: &plain,
	}
}

// errSpokeFirst says that a server sent something before it was asked, which none of HTTP does. net/http has three texts for it, depending on
// which of its goroutines sees it first.
var errSpokeFirst = errors.New("it speaks before it is asked, as MySQL does")

// listened is the one connection of a request; it notices a server that speaks first.
type listened struct {
	net.Conn
	asked, spokeFirst atomic.Bool
}

func (c *listened) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.asked.Load() {
		c.spokeFirst.Store(true)
	}
	return n, err
}

func (c *listened) Write(b []byte) (int, error) {
	c.asked.Store(true)
	return c.Conn.Write(b)
}

// neverSent is the body that nobody asks for; a server that did would see the connection end.
type neverSent struct{}

var errAsked = errors.New("the server asks for a body where a front end redirects")

func (neverSent) Read([]byte) (int, error) { return 0, errAsked }

// refused explains an answer that is no redirect.
func (t *rocksTry) refused(host string, status int, body string) fault {
	var reply struct{ Msg, Message string }
	_ = json.Unmarshal([]byte(body), &reply) // else the text itself
	text := reply.Message
	if text == "" {
		text = reply.Msg
	}
	if text == "" {
		text = strings.ToValidUTF8(body[:min(len(body), 200)], "")
	}
	low := strings.ToLower(text)
	switch {
	case strings.Contains(low, "privilege"):
		return fault{cause: "the user may not load into this table: " + text, remedy: t.cfg.grant(), ungranted: true}
	case status == http.StatusUnauthorized:
		return fault{cause: "it refuses the user or the password: " + text, remedy: "correct STARROCKS_USER and STARROCKS_PASSWORD (or the file of STARROCKS_PASSWORD_FILE)"}
	case strings.Contains(low, "no backend"), strings.Contains(low, "alive"):
		return fault{cause: "no back end is alive: " + text, remedy: "bring the back ends back (SHOW BACKENDS)", outage: true}
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return fault{cause: fmt.Sprintf("%s answers HTTP %d to a load: it is no front end", host, status), remedy: "use the front end's http_port (8030) in STARROCKS_HTTP"}
	}
	return fault{cause: fmt.Sprintf("%s answers HTTP %d: %s", host, status, text), remedy: "see the front end's log", outage: status >= http.StatusInternalServerError}
}
