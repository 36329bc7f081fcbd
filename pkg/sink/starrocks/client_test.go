package starrocks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"rollcall/pkg/sink"
)

// bubble runs f in virtual time with a network of its own.
func bubble(t *testing.T, f func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newNetwork(t)) })
}

func TestLoadFollowsEveryHopWithCredentials(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		check := func(r *http.Request) {
			user, password, ok := r.BasicAuth()
			require.True(t, ok, r.Host)
			require.Equal(t, "rollcall:secret", user+":"+password)
			require.Equal(t, http.MethodPut, r.Method)
			require.Equal(t, "/api/dau/daily/_stream_load", r.URL.Path)
			require.Equal(t, "100-continue", r.Header.Get("Expect"))
			require.Equal(t, "L-1", r.Header.Get("label"))
		}
		hop := func(to string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				check(r)
				require.True(t, r.Close, "front ends must not keep the connection")
				redirectTo(to)(w, r)
			}
		}
		n.http("follower:8030", hop("http://leader:8030"))
		n.http("leader:8030", hop("http://be1:8040"))
		c := newClient(t, testConfig(n, "http://follower:8030"))
		body := testBody(t, c)
		var got []byte
		var header http.Header
		n.http("be1:8040", func(w http.ResponseWriter, r *http.Request) {
			check(r)
			header = r.Header
			got, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, success("L-1", body.Rows))
		})

		rep := c.Load(t.Context(), "L-1", body)
		require.NoError(t, rep.Err)
		require.Equal(t, sink.Reply{Outcome: sink.OutcomeDone, Visible: true, Loaded: 1}, rep)
		require.Equal(t, body.Data, got)
		for k, v := range map[string]string{
			"format": "json", "strip_outer_array": "true", "strict_mode": "true", "max_filter_ratio": "0", "timeout": "20",
			"columns": "`dt`,`platform`,`order`,`rollcall_source`,`tmp_uv`,`pv`,`amount`,`lowest`,`highest`," +
				"`rollcall_next_offset`,`rollcall_last_event_ms`,`uv`=base64_to_bitmap(`tmp_uv`)",
			"Content-Length": fmt.Sprint(len(body.Data)),
		} {
			require.Equal(t, v, header.Get(k), k)
		}
		require.Equal(t, []string{"follower:8030", "leader:8030", "be1:8040"}, n.dialled())
	})
}

// An old front end keeps the connection and would read a late body as the next request (starrocks#1467, #52516).
func TestFrontEndNeverGetsTheBody(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var stray atomic.Int64
		n.raw("fe1:8030", func(c net.Conn) {
			defer func() { _ = c.Close() }()
			_, br, err := readRequest(c)
			if err != nil {
				return
			}
			// Slower than any usual ExpectContinueTimeout, and the connection stays open.
			time.Sleep(10 * time.Second)
			_, _ = io.WriteString(c, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://be1:8040/api/dau/daily/_stream_load\r\nContent-Length: 0\r\n\r\n")
			k, _ := io.Copy(io.Discard, br)
			stray.Add(k)
		})
		n.http("be1:8040", reply(success("L", 1)))
		c := newClient(t, testConfig(n, "http://fe1:8030"))
		rep := c.Load(t.Context(), "L", testBody(t, c))
		require.NoError(t, rep.Err)
		require.Equal(t, sink.OutcomeDone, rep.Outcome)
		synctest.Wait()
		require.Zero(t, stray.Load(), "bytes of the body reached the front end")
	})
}

func TestDeadFrontEndsArePassedOver(t *testing.T) {
	for name, tc := range map[string]struct {
		kill func(n *network, addr string)
		cost time.Duration
	}{
		"refused":              {func(n *network, addr string) { n.raw(addr, nil) }, 0},
		"black hole":           {func(n *network, addr string) { n.hole(addr) }, dialTimeout},
		"accepts, then silent": {func(n *network, addr string) { n.raw(addr, silent) }, firstHopTimeout},
		"closes at once":       {func(n *network, addr string) { n.raw(addr, func(c net.Conn) { _ = c.Close() }) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				n.http("be1:8040", reply(success("L", 1)))
				tc.kill(n, "fe1:8030")
				n.http("fe2:8030", redirectTo("http://be1:8040"))
				n.http("fe3:8030", redirectTo("http://be1:8040"))
				core, logs := observer.New(zapcore.InfoLevel)
				cfg := testConfig(n, "http://fe1:8030", "http://fe2:8030", "http://fe3:8030")
				cfg.Log = zap.New(core)
				c := newClient(t, cfg)
				body := testBody(t, c)
				start := time.Now()
				require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", body).Outcome)
				require.Equal(t, tc.cost, time.Since(start))
				// From then on it costs nothing, and is said once.
				for range 3 {
					start = time.Now()
					require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", body).Outcome)
					require.Zero(t, time.Since(start))
				}
				require.Equal(t, 1, logs.FilterMessageSnippet("does not answer").Len())
			})
		})
	}
}

func TestAllFrontEndsDead(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.hole("fe1:8030")
		n.hole("fe3:8030")
		core, logs := observer.New(zapcore.InfoLevel)
		cfg := testConfig(n, "http://fe1:8030", "http://fe2:8030", "http://fe3:8030")
		cfg.Log = zap.New(core)
		c := newClient(t, cfg)
		body := testBody(t, c)
		start := time.Now()
		rep := c.Load(t.Context(), "L", body)
		require.Equal(t, 2*dialTimeout, time.Since(start))
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
		require.Equal(t, sink.ClassTransient, rep.Class)
		require.Equal(t, ReasonConnect, rep.Reason)
		for _, fe := range []string{"fe1:8030", "fe2:8030", "fe3:8030", "connection refused"} {
			require.ErrorContains(t, rep.Err, fe)
		}
		_, err := c.State(t.Context(), "L")
		require.Error(t, err)
		// Still tried, although all are down; and the first one back is used.
		n.http("be1:8040", reply(success("L", 1)))
		n.http("fe2:8030", redirectTo("http://be1:8040"))
		require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", body).Outcome)
		require.Equal(t, 1, logs.FilterMessageSnippet("answers again").Len())
	})
}

// A front end that is the only one left may be slow: there is nobody else to ask.
func TestOnlyFrontEndMayBeSlow(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.http("be1:8040", reply(success("L", 1)))
		n.http("fe1:8030", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(firstHopTimeout + 5*time.Second)
			redirectTo("http://be1:8040")(w, r)
		})
		c := newClient(t, testConfig(n, "http://fe1:8030"))
		require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", testBody(t, c)).Outcome)
	})
}

// A back end behind a list may take its time too: the limit of silence is the first hop's, until it asks for the body.
func TestDirectBackEndMayWork(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.http("be1:8040", func(w http.ResponseWriter, r *http.Request) {
			_, _ = discard(r)
			time.Sleep(15 * time.Second)
			_, _ = io.WriteString(w, success("L", 1))
		})
		c := newClient(t, testConfig(n, "http://be1:8040", "http://fe2:8030"))
		require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", testBody(t, c)).Outcome)
		require.Equal(t, []string{"be1:8040"}, n.dialled())
	})
}

// Whoever got the whole body may have loaded it: no other front end is asked within the attempt.
func TestLostBodyEndsTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.http("be1:8040", func(w http.ResponseWriter, r *http.Request) {
			_, _ = discard(r)
			panic(http.ErrAbortHandler)
		})
		n.http("fe2:8030", reply(success("L", 1)))
		c := newClient(t, testConfig(n, "http://be1:8040", "http://fe2:8030"))
		body := testBody(t, c)
		rep := c.Load(t.Context(), "L", body)
		require.Equal(t, sink.OutcomeUnknown, rep.Outcome)
		require.Equal(t, ReasonNoReply, rep.Reason)
		require.Equal(t, []string{"be1:8040"}, n.dialled())
		requireDone(t, c.Load(t.Context(), "L", body))
	})
}

func TestDeadBackEndIsLeftToTheNextAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.http("be2:8040", reply(success("L", 1)))
		n.http("fe1:8030", redirectTo("http://be1:8040"))
		n.http("fe2:8030", redirectTo("http://be2:8040"))
		c := newClient(t, testConfig(n, "http://fe1:8030", "http://fe2:8030"))
		body := testBody(t, c)
		rep := c.Load(t.Context(), "L", body)
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
		require.Equal(t, sink.ClassTransient, rep.Class)
		require.Equal(t, ReasonConnect, rep.Reason)
		require.ErrorContains(t, rep.Err, "be1:8040")
		require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", body).Outcome)
	})
}

// What is known of a load that broke off depends on whether the server can have all of the body.
func TestBrokenOff(t *testing.T) {
	const deadline = 25 * time.Second // 20 s and a quarter of it
	readHeader := func(c net.Conn) io.Reader {
		_, br, _ := readRequest(c)
		return br
	}
	ask := func(c net.Conn) io.Reader {
		br := readHeader(c)
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		return br
	}
	const big = 1 << 20
	for name, tc := range map[string]struct {
		be      func(c net.Conn)
		outcome sink.Outcome
		reason  string
		takes   time.Duration
	}{
		"before the header": {func(net.Conn) {}, sink.OutcomeFailed, ReasonNoReply, 0},
		"after the header":  {func(c net.Conn) { readHeader(c) }, sink.OutcomeFailed, ReasonNoReply, 0},
		"never asks for the body": {
			func(c net.Conn) { _, _ = io.Copy(io.Discard, readHeader(c)) },
			sink.OutcomeFailed, ReasonTimeout, deadline,
		},
		"in the body": {func(c net.Conn) { _, _ = io.CopyN(io.Discard, ask(c), big/2) }, sink.OutcomeFailed, ReasonNoReply, 0},
		"body stuck": {
			func(c net.Conn) { _, _ = io.CopyN(io.Discard, ask(c), big/2); time.Sleep(time.Hour) },
			sink.OutcomeFailed, ReasonTimeout, deadline,
		},
		"after the body": {func(c net.Conn) { _, _ = io.CopyN(io.Discard, ask(c), big) }, sink.OutcomeUnknown, ReasonNoReply, 0},
		"no reply":       {func(c net.Conn) { _, _ = io.Copy(io.Discard, ask(c)) }, sink.OutcomeUnknown, ReasonTimeout, deadline},
		"in the reply's header": {func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, ask(c), big)
			_, _ = io.WriteString(c, "HTTP/1.1 200 O")
		}, sink.OutcomeUnknown, ReasonNoReply, 0},
		"in the reply's body": {func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, ask(c), big)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"+success("L", 1))
		}, sink.OutcomeUnknown, ReasonGarbled, 0},
		"reply header trickles": {func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, ask(c), big)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Slow: ")
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
			}
		}, sink.OutcomeUnknown, ReasonTimeout, deadline},
		"reply body trickles": {func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, ask(c), big)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n{")
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(c, " "); err != nil {
					return
				}
			}
		}, sink.OutcomeUnknown, ReasonGarbled, deadline},
		"reply and then blanks": {func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, ask(c), big)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+success("L", 1)+strings.Repeat(" ", 2*defaultMaxResponse))
		}, sink.OutcomeUnknown, ReasonGarbled, 0},
		"reply without end": {func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, ask(c), big)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := io.WriteString(c, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		}, sink.OutcomeUnknown, ReasonGarbled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				n.http("fe1:8030", redirectTo("http://be1:8040"))
				n.raw("be1:8040", func(c net.Conn) {
					defer func() { _ = c.Close() }()
					tc.be(c)
				})
				c := newClient(t, testConfig(n, "http://fe1:8030"))
				start := time.Now()
				rep := c.Load(t.Context(), "L", sink.Body{Data: bytes.Repeat([]byte("x"), big), Rows: 1})
				require.Equal(t, tc.takes, time.Since(start))
				require.Error(t, rep.Err)
				require.Equal(t, tc.outcome, rep.Outcome, rep.Err)
				require.Equal(t, tc.reason, rep.Reason, rep.Err)
				require.Equal(t, sink.ClassTransient, rep.Class)
			})
		})
	}
}

func TestCancelledLoadIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.http("fe1:8030", redirectTo("http://be1:8040"))
		n.raw("be1:8040", silent)
		c := newClient(t, testConfig(n, "http://fe1:8030"))
		body := testBody(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		rep := c.Load(ctx, "L", body)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, sink.OutcomeUnknown, rep.Outcome)
		require.Equal(t, ReasonCancelled, rep.Reason)
		// Not even begun: nothing is in doubt.
		dials := len(n.dialled())
		rep = c.Load(ctx, "L", body)
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
		require.ErrorIs(t, rep.Err, context.DeadlineExceeded)
		require.Len(t, n.dialled(), dials)
	})
}

func TestRedirects(t *testing.T) {
	bare := func(location string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if location != "" {
				w.Header()["Location"] = []string{location}
			}
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	}
	for name, tc := range map[string]struct {
		fe     http.HandlerFunc
		reason string
	}{
		"without location":  {bare(""), ReasonRedirect},
		"to another scheme": {bare("ftp://be1/x"), ReasonRedirect},
		"not a URL":         {bare("http://[::1"), ReasonRedirect},
		"no host":           {bare("http:///x"), ReasonRedirect},
		"loop":              {redirectTo("http://fe1:8030"), ReasonRedirect},
		"bare 401":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, ReasonUnauthorized},
		"bare 503":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, ReasonHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				n.http("fe1:8030", tc.fe)
				c := newClient(t, testConfig(n, "http://fe1:8030"))
				rep := c.Load(t.Context(), "L", testBody(t, c))
				require.Equal(t, sink.OutcomeFailed, rep.Outcome)
				require.Equal(t, tc.reason, rep.Reason)
				require.ErrorContains(t, rep.Err, "fe1:8030")
				require.LessOrEqual(t, len(n.dialled()), maxRedirects+1)
			})
		})
	}
	t.Run("relative and permanent", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			n.http("fe1:8030", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/sr/api/dau/daily/_stream_load" {
					w.Header().Set("Location", "/moved"+r.URL.Path)
					w.WriteHeader(http.StatusPermanentRedirect)
					return
				}
				reply(success("L", 1))(w, r)
			})
			c := newClient(t, testConfig(n, "http://fe1:8030/sr/"))
			require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", testBody(t, c)).Outcome)
		})
	})
	t.Run("user in location is not used", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			n.http("fe1:8030", redirectTo("http://other:pw@be1:8040"))
			n.http("be1:8040", func(w http.ResponseWriter, r *http.Request) {
				user, _, _ := r.BasicAuth()
				if user != "rollcall" {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				reply(success("L", 1))(w, r)
			})
			c := newClient(t, testConfig(n, "http://fe1:8030"))
			require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", testBody(t, c)).Outcome)
		})
	})
	t.Run("IPv6", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			n.http("[::1]:8030", redirectTo("http://[fe80::2]:8040"))
			n.http("[fe80::2]:8040", reply(success("L", 1)))
			c := newClient(t, testConfig(n, "http://[::1]:8030"))
			require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", testBody(t, c)).Outcome)
		})
	})
}

func TestErrorLogIsAskedOnlyOfTheCluster(t *testing.T) {
	const failed = `{"Label":"L","Status":"Fail","Message":"too many filtered rows","NumberTotalRows":1,"NumberLoadedRows":0,"NumberFilteredRows":1,"NumberUnselectedRows":0,"ErrorURL":%q}`
	for name, tc := range map[string]struct {
		url   string
		asked bool
	}{
		"the back end":       {"http://be1:8040/api/_load_error_log?file=error_log_a_b", true},
		"other port":         {"http://be1:9999/api/_load_error_log?file=x", true},
		"a stranger":         {"http://stranger:8040/api/_load_error_log?file=x", false},
		"another path":       {"http://be1:8040/api/show_proc?path=/", false},
		"another scheme":     {"file://be1/api/_load_error_log", false},
		"with a user":        {"http://u:p@be1:8040/api/_load_error_log?file=x", true},
		"not a URL":          {"::", false},
		"a name that begins": {"http://be1.stranger/api/_load_error_log", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				asked := 0
				serve := func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPut {
						reply(fmt.Sprintf(failed, tc.url))(w, r)
						return
					}
					asked++
					require.Empty(t, r.Header.Get("Authorization"))
					_, _ = io.WriteString(w, "Error: NULL value in NOT NULL column. Row: x\n"+strings.Repeat("y", 10_000))
				}
				n.http("fe1:8030", redirectTo("http://be1:8040"))
				for _, addr := range []string{"be1:8040", "be1:9999", "stranger:8040", "be1.stranger:80"} {
					n.http(addr, serve)
				}
				c := newClient(t, testConfig(n, "http://fe1:8030"))
				rep := c.Load(t.Context(), "L", testBody(t, c))
				require.Equal(t, sink.ClassRefused, rep.Class)
				require.EqualValues(t, 1, rep.Filtered)
				if tc.asked {
					require.Equal(t, 1, asked)
					require.Contains(t, rep.RejectedRows, "NULL value in NOT NULL")
					require.Len(t, rep.RejectedRows, errorLogBytes)
				} else {
					require.Zero(t, asked)
					require.Empty(t, rep.RejectedRows)
				}
			})
		})
	}
	t.Run("slow", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			n.http("fe1:8030", func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					<-r.Context().Done()
					return
				}
				reply(fmt.Sprintf(failed, "http://fe1:8030/api/_load_error_log"))(w, r)
			})
			c := newClient(t, testConfig(n, "http://fe1:8030"))
			start := time.Now()
			require.Equal(t, sink.ClassRefused, c.Load(t.Context(), "L", testBody(t, c)).Class)
			require.Equal(t, errorLogTimeout, time.Since(start))
		})
	})
}

func TestHTTPSFrontEndRedirectsToHTTP(t *testing.T) {
	// The network does no TLS: the redirect rule is looked at by itself.
	from := &answer{status: 307, header: http.Header{"Location": {"http://be1:8040/api/dau/daily/_stream_load"}}, from: "fe1:8443"}
	core, logs := observer.New(zapcore.WarnLevel)
	cfg := testConfig(newNetwork(t), "https://fe1:8443")
	cfg.Log = zap.New(core)
	c := newClient(t, cfg)
	_, err := c.redirect(c.fronts[0], from)
	require.ErrorIs(t, err, errPlainRedirect)
	require.ErrorContains(t, err, "be1:8040")

	cfg.AllowPlainRedirect = true
	c = newClient(t, cfg)
	for range 2 {
		next, err := c.redirect(c.fronts[0], from)
		require.NoError(t, err)
		require.Equal(t, "http://be1:8040/api/dau/daily/_stream_load", next.String())
	}
	require.Equal(t, 1, logs.Len(), "said once")
}

func TestState(t *testing.T) {
	type answerOf struct {
		status int
		body   string
	}
	ok := func(state string) answerOf {
		return answerOf{200, `{"state":"` + state + `","reason":"","status":"OK","code":"0","msg":"Success","message":"OK"}`}
	}
	for name, tc := range map[string]struct {
		answer answerOf
		want   sink.LabelState
	}{
		"visible":      {ok("VISIBLE"), sink.LabelVisible},
		"committed":    {ok("COMMITTED"), sink.LabelCommitted},
		"prepare":      {ok("PREPARE"), sink.LabelPrepare},
		"prepared":     {ok("PREPARED"), sink.LabelPrepared},
		"aborted":      {ok("ABORTED"), sink.LabelAborted},
		"unknown":      {ok("UNKNOWN"), sink.LabelUnknown},
		"new word":     {ok("COMMITTING"), sink.LabelUnknown},
		"lower case":   {ok("visible"), sink.LabelUnknown},
		"no state":     {answerOf{200, `{"status":"OK","msg":"Success"}`}, ""},
		"failed":       {answerOf{200, `{"status":"FAILED","msg":"unknown database, database=X","state":"VISIBLE"}`}, ""},
		"state number": {answerOf{200, `{"status":"OK","state":1}`}, ""},
		"HTML":         {answerOf{200, `<html>VISIBLE</html>`}, ""},
		"empty":        {answerOf{200, ``}, ""},
		"500":          {answerOf{500, ok("VISIBLE").body}, ""},
		"401":          {answerOf{401, `{"status":"FAILED","msg":"Access denied"}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				n.http("follower:8030", redirectTo("http://leader:8030"))
				n.http("leader:8030", func(w http.ResponseWriter, r *http.Request) {
					_, _, auth := r.BasicAuth()
					require.True(t, auth)
					require.Equal(t, "/api/dau/get_load_state", r.URL.Path)
					require.Equal(t, "L-1", r.URL.Query().Get("label"))
					require.Empty(t, r.Header.Get("Expect"))
					w.WriteHeader(tc.answer.status)
					_, _ = io.WriteString(w, tc.answer.body)
				})
				c := newClient(t, testConfig(n, "http://follower:8030"))
				state, err := c.State(t.Context(), "L-1")
				require.Equal(t, tc.want, state)
				if tc.want == "" {
					require.ErrorContains(t, err, "L-1")
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

func TestStateAsksEveryFrontEnd(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.http("fe1:8030", redirectTo("http://dead-leader:8030"))
		n.hole("fe2:8030")
		n.raw("fe3:8030", silent)
		n.http("fe4:8030", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"state":"VISIBLE","status":"OK"}`)
		})
		c := newClient(t, testConfig(n, "http://fe1:8030", "http://fe2:8030", "http://fe3:8030", "http://fe4:8030"))
		start := time.Now()
		state, err := c.State(t.Context(), "L")
		require.NoError(t, err)
		require.Equal(t, sink.LabelVisible, state)
		require.Equal(t, dialTimeout+firstHopTimeout, time.Since(start))
	})
}

func TestStateIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.raw("fe1:8030", silent)
		c := newClient(t, testConfig(n, "http://fe1:8030"))
		start := time.Now()
		_, err := c.State(t.Context(), "L")
		require.ErrorIs(t, err, errAttemptDeadline)
		require.Equal(t, stateTimeout, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		state, err := c.State(ctx, "L")
		require.Error(t, err)
		require.Empty(t, state, "cancellation is no state")
	})
}

func TestNewNamesEveryProblem(t *testing.T) {
	_, err := New(Config{
		HTTP: []string{"fe1:8030", "ftp://fe1", "http://u:p@fe1:8030", "http://"}, Database: "1x", Table: "a`b",
	})
	for _, want := range []string{"fe1:8030", "ftp://fe1", "do not belong here", `"http://"`, `database "1x"`, "table \"a`b\"", "no measure", "user"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "u:p@", "a password in an address is not repeated")
	_, err = New(Config{})
	require.ErrorContains(t, err, "no HTTP address")
}

func TestDeadlineIsAboveTheTimeoutHeader(t *testing.T) {
	for timeout, want := range map[time.Duration]struct {
		seconds  int64
		deadline time.Duration
	}{
		20 * time.Second:        {20, 25 * time.Second},
		5 * time.Second:         {5, 6250 * time.Millisecond},
		1500 * time.Millisecond: {2, 3 * time.Second},
		time.Millisecond:        {1, 2 * time.Second},
		10 * time.Minute:        {600, 605 * time.Second},
	} {
		c := Config{LoadTimeout: timeout}
		require.Equal(t, want.seconds, c.seconds())
		require.Equal(t, want.deadline, c.deadline())
	}
}

// A front end that cannot send the load on is not asked first again: another one may know a living node.
func TestFailedLoadMovesToAnotherFrontEnd(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.http("fe1:8030", reply(`{"Status":"FAILED","Message":"class com.starrocks.common.DdlException: No backend alive."}`))
		n.http("fe2:8030", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, "<html>")
				return
			}
			redirectTo("http://be1:8040")(w, r)
		})
		n.http("be1:8040", reply(success("L", 1)))
		c := newClient(t, testConfig(n, "http://fe1:8030", "http://fe2:8030"))
		body := testBody(t, c)
		rep := c.Load(t.Context(), "L", body)
		require.Equal(t, ReasonNoBackend, rep.Reason)
		require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "L", body).Outcome)
		_, err := c.State(t.Context(), "L")
		require.Error(t, err)
		rep = c.Load(t.Context(), "L", body)
		require.Equal(t, ReasonNoBackend, rep.Reason, "back at the first one")
	})
}
