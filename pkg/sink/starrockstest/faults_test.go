package starrockstest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

type (
	fault  = starrockstest.Fault
	action = starrockstest.Action
)

func do(a ...action) []action { return a }

// once sends one load straight to the BE and returns whatever came back.
func once(t *testing.T, c *starrockstest.Cluster, label string) (string, error) {
	t.Helper()
	r := dial(t, c.BEURL())
	r.send("%s%s", beHead(label, len(oneRow), "Connection: close\r\n"), oneRow)
	resp, err := http.ReadResponse(r.br, nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestLoadFaults(t *testing.T) {
	for _, tc := range []struct {
		name  string
		f     fault
		reply string // contained in the answer
		err   error
		state starrockstest.TxnState
	}{
		{"too many versions", fault{At: starrockstest.AtCommit, Do: do(starrockstest.Fail(starrockstest.MsgTooManyVersions))}, "because of too many versions, current/limit: 1002/1000", nil, starrockstest.StateAborted},
		{"memory", fault{At: starrockstest.AtCommit, Do: do(starrockstest.Fail(starrockstest.MsgMemory))}, "Memory of process exceed limit", nil, starrockstest.StateAborted},
		{"a word of another program", fault{At: starrockstest.AtCommit, Do: do(starrockstest.Answer("OK", "fine"))}, `"Status": "OK"`, nil, starrockstest.StateAborted},
		{"publish timeout", fault{At: starrockstest.AtCommit, Do: do(starrockstest.PublishTimeout(-1))}, `"Status": "Publish Timeout"`, nil, starrockstest.StateCommitted},
		{"commit unknown, committed", fault{At: starrockstest.AtCommit, Do: do(starrockstest.CommitUnknown(true))}, "Transaction status unknown, you can retry with same label.", nil, starrockstest.StateVisible},
		{"commit unknown, aborted", fault{At: starrockstest.AtCommit, Do: do(starrockstest.CommitUnknown(false))}, "Transaction status unknown, you can retry with same label.", nil, starrockstest.StateAborted},
		{"refused row", fault{At: starrockstest.AtCommit, Do: do(starrockstest.Filter(1))}, "too many filtered rows", nil, starrockstest.StateAborted},
		{"miscount", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.Miscount(-1))}, `"NumberLoadedRows": 0`, nil, starrockstest.StateVisible},
		{"smaller limit", fault{At: starrockstest.AtHeader, Do: do(starrockstest.LimitBody(10))}, "exceed the max size [10]  of json type data", nil, starrockstest.StateUnknown},
		{"reset before the commit", fault{At: starrockstest.AtCommit, Do: do(starrockstest.Reset())}, "", syscall.ECONNRESET, starrockstest.StateAborted},
		{"reset after the commit", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.Reset())}, "", syscall.ECONNRESET, starrockstest.StateVisible},
		{"closed after the commit", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.CloseConn())}, "", io.ErrUnexpectedEOF, starrockstest.StateVisible},
		{"reset inside the body", fault{At: starrockstest.AtBegun, Do: do(starrockstest.ReadBody(20), starrockstest.Reset())}, "", syscall.ECONNRESET, starrockstest.StateAborted},
		{"truncated", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.Truncate(40))}, `"Label": "l"`, io.ErrUnexpectedEOF, starrockstest.StateVisible},
		{"trickle", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.Trickle(time.Microsecond))}, `"Status": "Success"`, nil, starrockstest.StateVisible},
		{"html", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.Reply(200, "text/html", "<html>hello</html>"))}, "<html>", nil, starrockstest.StateVisible},
		{"empty", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.Reply(200, "", ""))}, "", nil, starrockstest.StateVisible},
		{"proxy", fault{At: starrockstest.AtHeader, Do: do(starrockstest.Reply(503, "text/plain", "busy"))}, "busy", nil, starrockstest.StateUnknown},
		{"fail although committed", fault{At: starrockstest.AtCommitted, Do: do(starrockstest.Fail("lie"))}, `"Status": "Fail"`, nil, starrockstest.StateVisible},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := seeded(t, starrockstest.Config{PublishWait: 50 * time.Millisecond})
			rule := c.Inject(tc.f)
			got, err := once(t, c, "l")
			require.ErrorIs(t, err, tc.err)
			require.Contains(t, got, tc.reply)
			require.Equal(t, 1, rule.Hits())
			require.NoError(t, c.WaitLabel(t.Context(), "dau", "l", tc.state))
			_, err = once(t, c, "next")
			require.NoError(t, err, "a fault strikes once unless told otherwise")
			require.Equal(t, 1, rule.Hits())
			require.Equal(t, starrockstest.StateVisible == tc.state || starrockstest.StateCommitted == tc.state, c.Loads()[0].Committed)
		})
	}
}

func TestFaultMatching(t *testing.T) {
	c := seeded(t, starrockstest.Config{FEs: 2})
	rule := c.Inject(fault{At: starrockstest.AtCommit, Label: "^w-", Table: "^daily$", Skip: 1, Times: 2, Do: do(starrockstest.Fail("no"))})
	var got []string
	for _, label := range []string{"x-1", "w-1", "w-2", "x-2", "w-3", "w-4"} {
		body, err := once(t, c, label)
		require.NoError(t, err)
		if strings.Contains(body, `"Fail"`) {
			got = append(got, label)
		}
	}
	require.Equal(t, []string{"w-2", "w-3"}, got)
	require.Equal(t, 2, rule.Hits())

	c.Inject(fault{At: starrockstest.AtFE, FE: 2, Path: "_stream_load$", Times: starrockstest.Forever, Do: do(starrockstest.Reply(503, "text/plain", "no"))})
	code, _ := put(t, c.FEURL(2)+loadPath, "a", oneRow, jsonHeaders(columns))
	require.Equal(t, 503, code)
	code, _ = put(t, c.FEURL(1)+loadPath, "a", oneRow, jsonHeaders(columns))
	require.Equal(t, 200, code)
	code, _, _ = get(t, c.FEURL(2)+"/api/dau/get_load_state?label=a", "root", "")
	require.Equal(t, 307, code, "another path is not struck")
	c.Heal()
	code, _ = put(t, c.FEURL(2)+loadPath, "b", oneRow, jsonHeaders(columns))
	require.Equal(t, 200, code)

	require.Panics(t, func() { c.Inject(fault{At: "nowhere"}) })
	require.Panics(t, func() { c.Inject(fault{At: starrockstest.AtSQL, Do: do(starrockstest.Truncate(1))}) })
	require.Panics(t, func() { c.Inject(fault{At: starrockstest.AtFE, Label: "("}) })
}

func TestFERedirectFaults(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	hop := func() (int, string) {
		r := dial(t, c.FEURL(1))
		r.send("PUT %s HTTP/1.1\r\nHost: x\r\n%sExpect: 100-continue\r\nContent-Length: 10\r\n\r\n", loadPath, auth("root", ""))
		resp, _ := r.read()
		return resp.StatusCode, resp.Header.Get("Location")
	}
	for _, tc := range []struct {
		a    action
		want string
	}{
		{starrockstest.Redirect(""), ""},
		{starrockstest.Redirect("127.0.0.1:1"), "http://127.0.0.1:1" + loadPath},
		{starrockstest.Redirect("http://elsewhere/x"), "http://elsewhere/x"},
		{starrockstest.RedirectToSelf(), c.FEURL(1) + loadPath},
	} {
		c.Inject(fault{At: starrockstest.AtFE, Do: do(tc.a)})
		code, location := hop()
		require.Equal(t, 307, code)
		require.Equal(t, tc.want, location)
	}
	c.Inject(fault{At: starrockstest.AtFE, Do: do(starrockstest.Fail("class X: current fe is not master"))})
	_, body := put(t, c.FEURL(1)+loadPath, "a", oneRow, jsonHeaders(columns))
	require.Equal(t, "{\n    \"Status\": \"FAILED\",\n    \"Message\": \"class X: current fe is not master\"\n}", body)
}

func TestStateFaults(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	require.NoError(t, c.SeedTxn("dau", "l", starrockstest.StatePrepare))
	r := load(t, c, "daily", "l", oneRow, jsonHeaders(columns))
	require.Equal(t, "RUNNING", r.ExistingJobStatus)
	for _, next := range []starrockstest.TxnState{starrockstest.StateCommitted, starrockstest.StateVisible} {
		require.NoError(t, c.SetTxn("dau", "l", next))
		require.Equal(t, next, c.LabelState("dau", "l"))
	}
	require.NoError(t, c.SetTxn("dau", "l", starrockstest.StateUnknown))
	require.Equal(t, starrockstest.StateUnknown, c.LabelState("dau", "l"))
	require.Error(t, c.SetTxn("dau", "l", starrockstest.StateVisible))

	c.Inject(fault{At: starrockstest.AtState, Do: do(starrockstest.State(starrockstest.StatePrepare))})
	c.Inject(fault{At: starrockstest.AtState, Do: do(starrockstest.Reply(500, "text/html", "oops"))})
	_, body, _ := get(t, c.FEURL(1)+"/api/dau/get_load_state?label=l", "root", "")
	require.Contains(t, body, `"state":"PREPARE"`)
	code, _, _ := get(t, c.FEURL(1)+"/api/dau/get_load_state?label=l", "root", "")
	require.Equal(t, 500, code)
	_, body, _ = get(t, c.FEURL(1)+"/api/dau/get_load_state?label=l", "root", "")
	require.Contains(t, body, `"state":"UNKNOWN"`)
}

func TestServersDownAndBack(t *testing.T) {
	c := seeded(t, starrockstest.Config{FEs: 2})
	addr := strings.TrimPrefix(c.FEURL(1), "http://")
	c.StopFE(1)
	_, err := net.DialTimeout("tcp", addr, time.Second)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, c.StartFE(1))
	require.Equal(t, "Success", load(t, c, "daily", "a", oneRow, jsonHeaders(columns)).Status)

	require.NoError(t, c.BlackholeFE(1))
	_, err = net.DialTimeout("tcp", addr, 150*time.Millisecond)
	var ne net.Error
	require.True(t, errors.As(err, &ne) && ne.Timeout(), "%v", err)
	require.NoError(t, c.StartFE(1))
	require.Equal(t, "Success", load(t, c, "daily", "b", oneRow, jsonHeaders(columns)).Status)

	c.StopBE()
	_, err = net.DialTimeout("tcp", strings.TrimPrefix(c.BEURL(), "http://"), time.Second)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, c.StartBE())
	require.Equal(t, "Success", load(t, c, "daily", "c", oneRow, jsonHeaders(columns)).Status)
}

func openDB(t *testing.T, c *starrockstest.Cluster, fe int, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/dau%s", c.MySQLAddr(fe), params))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestSQLFaults(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	db := openDB(t, c, 1, "")
	ctx := t.Context()
	create := strings.Replace(ddl, "`daily`", "late", 1)

	rule := c.Inject(fault{At: starrockstest.AtSQL, Statement: `(?i)^create table`, Times: 2, Do: do(starrockstest.SQLError(1064, "fail to create tablet: timed out"))})
	for range 2 {
		_, err := db.ExecContext(ctx, create)
		var me *mysql.MySQLError
		require.ErrorAs(t, err, &me)
		require.EqualValues(t, 1064, me.Number)
		require.Equal(t, "fail to create tablet: timed out", me.Message)
	}
	require.Error(t, c.Exec("DESC dau.late"), "not executed")
	_, err := db.ExecContext(ctx, create)
	require.NoError(t, err)
	require.Equal(t, 2, rule.Hits())

	c.Inject(fault{At: starrockstest.AtSQLDone, Statement: `late`, Do: do(starrockstest.SQLError(1064, "timed out, though done"))})
	_, err = db.ExecContext(ctx, "DROP TABLE late")
	require.ErrorContains(t, err, "timed out, though done")
	require.Error(t, c.Exec("DESC dau.late"), "executed")

	c.Inject(fault{At: starrockstest.AtSQL, Statement: "SELECT 1", Do: do(starrockstest.CloseConn())})
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, "SELECT 1")
	require.Error(t, err)
	conn.Close()

	hang := c.Inject(fault{At: starrockstest.AtSQL, Statement: "CREATE DATABASE slow", Do: do(starrockstest.Hang())})
	short, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { _, err := db.ExecContext(short, "CREATE DATABASE slow"); done <- err }()
	require.NoError(t, hang.WaitHits(ctx, 1))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Error(t, c.Exec("USE slow"))
	hang.Release()
	require.NoError(t, c.WaitStatement(ctx, func(s starrockstest.StatementRecord) bool { return s.SQL == "CREATE DATABASE slow" && s.Done }))
	require.NoError(t, c.Exec("USE slow"), "the server finishes what its client gave up")

	require.NoError(t, db.PingContext(ctx))
	c.CutMySQL(1)
	c.StopMySQL(1)
	require.Error(t, db.PingContext(ctx))
	require.NoError(t, c.StartFE(1))
	require.NoError(t, db.PingContext(ctx))
}

func TestLaggingFE(t *testing.T) {
	c := seeded(t, starrockstest.Config{FEs: 2, History: 10})
	h := jsonHeaders(columns)
	next := func(n int) string {
		return strings.Replace(oneRow, `"rollcall_next_offset":3`, fmt.Sprintf(`"rollcall_next_offset":%d`, n), 1)
	}
	at := func(fe int) (n sql.NullInt64) {
		require.NoError(t, openDB(t, c, fe, "").QueryRow("SELECT MAX(rollcall_next_offset) FROM daily").Scan(&n))
		return n
	}
	for i := 1; i <= 3; i++ {
		require.Equal(t, "Success", load(t, c, "daily", fmt.Sprint(i), next(i), h).Status)
	}
	c.LagFE(2, 1, 0)
	require.EqualValues(t, 3, at(1).Int64)
	require.EqualValues(t, 2, at(2).Int64)
	c.LagFE(2, 3, 0)
	require.False(t, at(2).Valid, "before the first load there was no row")
	c.LagFE(2, 0, time.Hour)
	require.False(t, at(2).Valid)
	c.LagFE(2, 0, 0)
	c.FreezeFE(2)
	require.Equal(t, "Success", load(t, c, "daily", "4", next(4), h).Status)
	require.EqualValues(t, 3, at(2).Int64)
	require.EqualValues(t, 4, at(1).Int64)
	c.ThawFE(2)
	require.EqualValues(t, 4, at(2).Int64)
	require.Panics(t, func() { start(t, starrockstest.Config{}).FreezeFE(1) })
}

func TestCloseLetsGo(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	rule := c.Inject(fault{At: starrockstest.AtCommit, Do: do(starrockstest.Hang())})
	r := dial(t, c.BEURL())
	r.send("%s%s", beHead("l", len(oneRow), ""), oneRow)
	require.NoError(t, rule.WaitHits(t.Context(), 1))
	c.Close()
	c.Close()
	require.Zero(t, rule.Hanging())
	starrockstest.New(starrockstest.Config{}).Close()
	require.Error(t, c.Start(), "a closed cluster stays closed")
}
