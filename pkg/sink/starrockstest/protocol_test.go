package starrockstest_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

const oneRow = `[{"dt":"2024-03-01","platform":"ios","rollcall_source":"a","b_uv":"AQUAAAA=","pv":7,"rollcall_next_offset":3}]`

func seeded(t *testing.T, cfg starrockstest.Config) *starrockstest.Cluster {
	t.Helper()
	c := start(t, cfg)
	require.NoError(t, c.Exec("CREATE DATABASE dau", ddl))
	return c
}

func auth(user, password string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\r\n"
}

// raw is one socket on which a test speaks byte by byte.
type raw struct {
	t    *testing.T
	conn net.Conn
	br   *bufio.Reader
}

func dial(t *testing.T, url string) *raw {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 5*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return &raw{t, conn, bufio.NewReader(conn)}
}

func (r *raw) send(format string, args ...any) {
	r.t.Helper()
	_, err := fmt.Fprintf(r.conn, format, args...)
	require.NoError(r.t, err)
}

func (r *raw) read() (*http.Response, string) {
	r.t.Helper()
	resp, err := http.ReadResponse(r.br, nil)
	require.NoError(r.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp, string(body)
}

func (r *raw) atEOF() {
	r.t.Helper()
	_, err := r.br.ReadByte()
	require.ErrorIs(r.t, err, io.EOF)
}

const loadPath = "/api/dau/daily/_stream_load"

func TestFEAnswersFromTheHeaders(t *testing.T) {
	c := seeded(t, starrockstest.Config{Users: []starrockstest.User{
		{Name: "root"}, {Name: "reader", Password: "x", Privileges: []starrockstest.Privilege{starrockstest.Select}},
	}})
	expect := "Expect: 100-continue\r\nContent-Length: 10\r\n"
	for name, tc := range map[string]struct {
		proto, headers string
		status         int
		body           string
	}{
		"redirect":                  {"1.1", auth("root", "") + expect, 307, ""},
		"no credentials":            {"1.1", expect, 401, `{"status":"FAILED","code":"1","msg":"Need auth information.","message":"Need auth information."}`},
		"wrong password":            {"1.1", auth("root", "no") + expect, 401, `{"status":"FAILED","code":"1","msg":"Access denied for root@127.0.0.1","message":"Access denied for root@127.0.0.1"}`},
		"no INSERT privilege":       {"1.1", auth("reader", "x") + expect, 401, "need (at least one of) the INSERT privilege"},
		"no Expect":                 {"1.1", auth("root", "") + "Content-Length: 10\r\n", 200, "{\n    \"Status\": \"FAILED\",\n    \"Message\": \"class com.starrocks.common.DdlException: There is no 100-continue header\"\n}"},
		"no Expect needed with 1.0": {"1.0", auth("root", "") + "Content-Length: 10\r\n", 307, ""},
		"credentials come first":    {"1.1", "Content-Length: 10\r\n", 401, "Need auth information."},
	} {
		t.Run(name, func(t *testing.T) {
			r := dial(t, c.FEURL(1))
			r.send("PUT %s?a=b HTTP/%s\r\nHost: x\r\n%s\r\n", loadPath, tc.proto, tc.headers)
			resp, body := r.read()
			require.Equal(t, tc.status, resp.StatusCode)
			require.Contains(t, body, tc.body)
			require.True(t, resp.Close, "a newer FE closes after every answer")
			r.atEOF()
			switch tc.status {
			case 307:
				require.Equal(t, c.BEURL()+loadPath+"?a=b", resp.Header.Get("Location"))
				require.True(t, strings.HasPrefix(c.BEURL(), "http://127.0.0.1:"))
				require.True(t, strings.HasPrefix(c.FEURL(1), "http://localhost:"), "the names differ, or lost credentials stay hidden")
				require.Empty(t, body)
			case 401:
				require.Equal(t, `Basic realm=""`, resp.Header.Get("WWW-Authenticate"))
			}
		})
	}
	t.Run("malformed Authorization ends in nothing", func(t *testing.T) {
		r := dial(t, c.FEURL(1))
		r.send("PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Basic ???\r\n%s\r\n", loadPath, expect)
		r.atEOF()
	})
	t.Run("only PUT", func(t *testing.T) {
		r := dial(t, c.FEURL(1))
		r.send("POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: 0\r\n\r\n", loadPath, auth("root", ""))
		_, body := r.read()
		require.Contains(t, body, "Not implemented")
	})
	require.Empty(t, c.Loads(), "no request reached the BE")
}

// An old FE keeps the connection and takes what the client sends of the body for a request.
func TestOldFEParsesTheBody(t *testing.T) {
	c := seeded(t, starrockstest.Config{FEKeepAlive: true})
	head := fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n", loadPath, auth("root", ""), len(oneRow))
	r := dial(t, c.FEURL(1))
	r.send("%s", head)
	resp, _ := r.read()
	require.Equal(t, 307, resp.StatusCode)
	require.False(t, resp.Close)
	r.send("%s", head) // without a body the connection stays in step
	resp, _ = r.read()
	require.Equal(t, 307, resp.StatusCode)
	r.send("%s\r\n", oneRow)
	resp, body := r.read()
	require.Equal(t, 401, resp.StatusCode)
	require.Contains(t, body, "Need auth information.")
	r.atEOF()
}

// The redirect of Go's own client loses the credentials, because the host name changes.
func TestGoRedirectLosesCredentials(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	req, err := http.NewRequest(http.MethodPut, c.FEURL(1)+loadPath, strings.NewReader(oneRow))
	require.NoError(t, err)
	req.SetBasicAuth("root", "")
	req.Header.Set("Expect", "100-continue")
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Contains(t, string(body), `"Status": "Fail"`)
	require.Contains(t, string(body), `"Message": "no valid Basic authorization"`)
	require.Contains(t, string(body), `"TxnId": -1`)
}

func beHead(label string, length int, extra string) string {
	return fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: x\r\n%slabel: %s\r\nformat: json\r\nstrip_outer_array: true\r\ncolumns: %s\r\nContent-Length: %d\r\n%s\r\n",
		loadPath, auth("root", ""), label, columns, length, extra)
}

func TestBETakesTheLabelBeforeTheBody(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	r := dial(t, c.BEURL())
	r.send("%s", beHead("l-1", len(oneRow), "Expect: 100-continue\r\n"))
	line, err := r.br.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	require.Equal(t, starrockstest.StatePrepare, c.LabelState("dau", "l-1"))
	_, err = r.br.ReadString('\n')
	require.NoError(t, err)

	other := dial(t, c.BEURL())
	other.send("%s", beHead("l-1", len(oneRow), "Expect: 100-continue\r\n"))
	resp, body := other.read()
	require.Equal(t, 200, resp.StatusCode, "answered before the body, without 100 Continue")
	require.Equal(t, `{
    "TxnId": -1,
    "Label": "l-1",
    "Status": "Label Already Exists",
    "ExistingJobStatus": "RUNNING",
    "Message": "Label [l-1] has already been used.",
    "NumberTotalRows": 0,
    "NumberLoadedRows": 0,
    "NumberFilteredRows": 0,
    "NumberUnselectedRows": 0,
    "LoadBytes": 0,
    "LoadTimeMs": 0,
    "BeginTxnTimeMs": 0,
    "StreamLoadPlanTimeMs": 0,
    "ReadDataTimeMs": 0,
    "WriteDataTimeMs": 0,
    "CommitAndPublishTimeMs": 0
}
`, regexp.MustCompile(`Ms": \d+`).ReplaceAllString(body, `Ms": 0`))
	other.atEOF()

	r.send("%s", oneRow)
	_, body = r.read()
	require.Contains(t, body, `"Status": "Success"`)
	require.Equal(t, starrockstest.StateVisible, c.LabelState("dau", "l-1"))

	again := dial(t, c.BEURL())
	again.send("%s", beHead("l-1", len(oneRow), "Expect: 100-continue\r\n"))
	_, body = again.read()
	require.Contains(t, body, `"ExistingJobStatus": "FINISHED"`)
}

func TestBodyCutShort(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	r := dial(t, c.BEURL())
	r.send("%s", beHead("cut", len(oneRow)+10, ""))
	r.send("%s", oneRow)
	require.NoError(t, r.conn.(*net.TCPConn).CloseWrite())
	_, body := r.read()
	require.Contains(t, body, `"Status": "Fail"`)
	require.Contains(t, body, "receive body don't equal with body bytes")
	require.Equal(t, starrockstest.StateAborted, c.LabelState("dau", "cut"))

	r = dial(t, c.BEURL())
	r.send("%s", strings.Replace(beHead("cut", 0, ""), "Content-Length: 0", "Transfer-Encoding: chunked", 1))
	r.send("%x\r\n%s\r\n0\r\n\r\n", len(oneRow), oneRow)
	_, body = r.read()
	require.Contains(t, body, `"Status": "Success"`, "an aborted label can be used again; chunked bodies are taken")
}

// Once the body is complete the BE commits, whether the client is there or not.
func TestCommitsWithoutTheClient(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	rule := c.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Do: []starrockstest.Action{starrockstest.Hang()}})
	r := dial(t, c.BEURL())
	r.send("%s%s", beHead("gone", len(oneRow), ""), oneRow)
	require.NoError(t, rule.WaitHits(t.Context(), 1))
	r.conn.Close()
	rule.Release()
	require.NoError(t, c.WaitLabel(t.Context(), "dau", "gone", starrockstest.StateVisible))

	rule = c.Inject(starrockstest.Fault{At: starrockstest.AtBegun, Do: []starrockstest.Action{starrockstest.Hang()}})
	r = dial(t, c.BEURL())
	r.send("%s", beHead("early", len(oneRow), "Expect: 100-continue\r\n"))
	require.NoError(t, rule.WaitHits(t.Context(), 1))
	r.conn.Close()
	require.NoError(t, c.WaitLabel(t.Context(), "dau", "early", starrockstest.StateAborted), "a client that dies before the body leaves an aborted label")
}

func TestBEKeepsAlive(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	r := dial(t, c.BEURL())
	for i := range 3 {
		r.send("%s%s", beHead(fmt.Sprintf("k-%d", i), len(oneRow), ""), oneRow)
		resp, body := r.read()
		require.Contains(t, body, `"Status": "Success"`)
		require.Equal(t, "text/html; charset=ISO-8859-1", resp.Header.Get("Content-Type"))
	}
	require.Equal(t, 1, c.Connections()["be"])
}

func get(t *testing.T, url, user, password string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	req.SetBasicAuth(user, password)
	req.Close = true
	resp, err := (&http.Transport{}).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body), resp.Header
}

func TestLoadState(t *testing.T) {
	c := seeded(t, starrockstest.Config{FEs: 3})
	for _, s := range []starrockstest.TxnState{starrockstest.StatePrepare, starrockstest.StatePrepared, starrockstest.StateCommitted, starrockstest.StateVisible} {
		require.NoError(t, c.SeedTxn("dau", "l-"+string(s), s))
		_, body, _ := get(t, c.FEURL(1)+"/api/dau/get_load_state?label=l-"+string(s), "root", "")
		require.Equal(t, `{"state":"`+string(s)+`","reason":"","status":"OK","code":"0","msg":"Success","message":"OK"}`, body)
	}
	require.NoError(t, c.SeedTxn("dau", "ab", starrockstest.StateAborted))
	_, body, _ := get(t, c.FEURL(1)+"/api/dau/get_load_state?label=ab", "root", "")
	require.Contains(t, body, `{"state":"ABORTED","reason":"User Aborted"`)
	_, body, _ = get(t, c.FEURL(1)+"/api/dau/get_load_state?label=never", "root", "")
	require.Equal(t, `{"state":"UNKNOWN","status":"OK","code":"0","msg":"Success","message":"OK"}`, body, "no reason without a transaction")
	_, body, _ = get(t, c.FEURL(1)+"/api/dau/get_load_state", "root", "")
	require.Contains(t, body, "No label selected.")
	_, body, _ = get(t, c.FEURL(1)+"/api/nodb/get_load_state?label=x", "root", "")
	require.Contains(t, body, "unknown database, database=nodb")
	code, _, _ := get(t, c.FEURL(1)+"/api/dau/get_load_state?label=x", "root", "wrong")
	require.Equal(t, 401, code)

	require.NoError(t, c.SeedTxn("dau", "ab", starrockstest.StateVisible), "an aborted label is free")
	_, body, _ = get(t, c.FEURL(1)+"/api/dau/get_load_state?label=ab", "root", "")
	require.Contains(t, body, `"state":"VISIBLE"`, "the transaction with the largest id answers")

	code, _, h := get(t, c.FEURL(2)+"/api/dau/get_load_state?label=ab", "root", "")
	require.Equal(t, 307, code, "followers send to the leader")
	require.Equal(t, c.FEURL(1)+"/api/dau/get_load_state?label=ab", h.Get("Location"))
	c.SetLeader(2)
	code, _, _ = get(t, c.FEURL(2)+"/api/dau/get_load_state?label=ab", "root", "")
	require.Equal(t, 200, code)
	status, reply := put(t, c.FEURL(3)+loadPath, "any-fe", oneRow, jsonHeaders(columns))
	require.Equal(t, 200, status, "a plain load is not sent to the leader first")
	require.Contains(t, reply, `"Status": "Success"`)
}
