package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get asks the handler directly, without a connection.
func get(s *Server, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func decode(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	require.Equal(t, "application/json; charset=utf-8", w.Header().Get("Content-Type"))
	var v map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
	return v
}

func TestLive(t *testing.T) {
	var stale []Stale
	s := New(Config{}, Deps{
		Live:  func() []Stale { return stale },
		Ready: func(context.Context) []Reason { return []Reason{{Check: "sink", Reason: "StarRocks is away"}} },
	})
	w := get(s, "/livez")
	require.Equal(t, 200, w.Code, "an outage elsewhere is no reason")
	require.Equal(t, map[string]any{"live": true}, decode(t, w))

	stale = []Stale{{Name: "poll", For: 90 * time.Second, Limit: time.Minute}}
	w = get(s, "/livez")
	require.Equal(t, 503, w.Code)
	require.Equal(t, map[string]any{"live": false, "stale": []any{
		map[string]any{"loop": "poll", "seconds_since_last_turn": 90.0, "limit_seconds": 60.0},
	}}, decode(t, w))
}

func TestReady(t *testing.T) {
	var reasons []Reason
	s := New(Config{}, Deps{Ready: func(context.Context) []Reason { return reasons }})
	w := get(s, "/readyz")
	require.Equal(t, 200, w.Code)
	require.Equal(t, map[string]any{"ready": true, "reasons": []any{}}, decode(t, w))

	reasons = []Reason{
		{Check: "sink", Reason: "no FE answers", Since: time.Date(2026, 1, 30, 14, 3, 10, 0, time.UTC)},
		{Check: "table", Reason: "unknown"},
	}
	w = get(s, "/readyz")
	require.Equal(t, 503, w.Code)
	require.Equal(t, map[string]any{"ready": false, "reasons": []any{
		map[string]any{"check": "sink", "reason": "no FE answers", "since": "2026-01-30T14:03:10Z"},
		map[string]any{"check": "table", "reason": "unknown"},
	}}, decode(t, w))
}

func TestWithoutDepsAllIsWell(t *testing.T) {
	s := New(Config{}, Deps{})
	for _, path := range []string{"/livez", "/readyz", "/status", "/", "/page.js", "/page.css"} {
		require.Equal(t, 200, get(s, path).Code, path)
	}
	require.Equal(t, 404, get(s, "/metrics").Code)
	require.Equal(t, 404, get(s, "/nothing").Code)
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/livez", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

func TestStatus(t *testing.T) {
	s := New(Config{}, Deps{
		Status: func(context.Context) (Status, error) {
			return Status{
				Worker: "w", TimeZone: "Asia/Shanghai",
				Partitions: []Partition{{Topic: "b", Partition: 2}, {Topic: "b", Partition: 10}, {Topic: "a", Partition: 3}},
				Totals:     []DayTotals{{Day: "2026-01-02"}, {Day: "2026-01-01", Measures: map[string]int64{"uv": 3}}},
			}, nil
		},
		Ready: func(context.Context) []Reason { return []Reason{{Check: "sink", Reason: "away"}} },
	})
	w := get(s, "/status")
	require.Equal(t, 200, w.Code, "the status of a worker that is not ready is still its status")
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var got Status
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	require.False(t, got.Ready)
	require.Equal(t, []Reason{{Check: "sink", Reason: "away"}}, got.Reasons)
	require.Equal(t, []string{"a/3", "b/2", "b/10"}, names(got))
	require.Equal(t, "2026-01-01", got.Totals[0].Day)
	require.WithinDuration(t, time.Now(), got.Now, time.Minute)
	v := decode(t, w)
	require.NotContains(t, v, "complete_until", "a time that is not known is absent")
	require.Equal(t, []any{}, v["partitions"].([]any)[0].(map[string]any)["paused"], "lists are never null")
}

func names(s Status) []string {
	var all []string
	for _, p := range s.Partitions {
		all = append(all, fmt.Sprintf("%s/%d", p.Topic, p.Partition))
	}
	return all
}

func TestHeadline(t *testing.T) {
	now := time.Date(2026, 1, 30, 20, 0, 0, 0, time.UTC) // 04:00 on the 31st in Shanghai
	at := func(h, m, s int) time.Time { return time.Date(2026, 1, 30, h, m, s, 0, time.UTC) }
	one := []Partition{{}}
	for _, c := range []struct {
		status  Status
		reasons []Reason
		want    string
	}{
		{Status{}, nil, "Idle: no partition is assigned to this worker"},
		{Status{Partitions: one}, nil, "Nothing is known to be complete yet"},
		{Status{Partitions: one, CompleteUntil: at(14, 3, 10), PartitionsBehind: 2}, nil, "Today's DAU is complete up to 14:03:10; 2 partitions behind"},
		{Status{Partitions: []Partition{{State: "running", Problem: "x"}, {State: "running"}}, CompleteUntil: at(14, 3, 10)}, nil, "Today's DAU is complete up to 14:03:10; 1 partition held up"},
		{Status{Partitions: []Partition{{State: "running", Problem: "x"}}, CompleteUntil: at(14, 3, 10), PartitionsBehind: 1}, nil, "Today's DAU is complete up to 14:03:10; 1 partition behind; 1 partition held up"},
		{Status{Partitions: one, CompleteUntil: at(14, 3, 10), PartitionsBehind: 1}, nil, "Today's DAU is complete up to 14:03:10; 1 partition behind"},
		{Status{Partitions: one, CompleteUntil: at(19, 59, 58)}, nil, "Today's DAU is complete up to 19:59:58; no partition is behind"},
		{Status{Partitions: one, CompleteUntil: at(19, 59, 58), TimeZone: "Asia/Shanghai"}, nil, "Today's DAU is complete up to 03:59:58; no partition is behind"},
		{Status{Partitions: one, CompleteUntil: at(14, 3, 10), TimeZone: "Asia/Shanghai"}, nil, "DAU is complete up to 2026-01-30 22:03:10 only; no partition is behind"},
		{Status{Partitions: one, CompleteUntil: at(14, 3, 10), TimeZone: "Mars/Olympus"}, nil, "Today's DAU is complete up to 14:03:10; no partition is behind"},
		{Status{Partitions: one}, []Reason{{Check: "sink", Reason: "no FE answers"}}, "Nothing is known to be complete yet. Not ready: sink"},
		{Status{}, []Reason{{Check: "sink"}, {Check: "restore"}, {Check: "sink"}}, "Idle: no partition is assigned to this worker. Not ready: sink, restore"},
	} {
		require.Equal(t, c.want, c.status.finish(now, c.reasons).Headline)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_x_total", Help: "X."})
	reg.MustRegister(c)
	c.Inc()
	w := get(New(Config{}, Deps{Gatherer: reg}), "/metrics")
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Body.String(), "rollcall_x_total 1")
}

// TestPageLoadsNothingFromElsewhere: the policy forbids it, so the page must
// not need it.
func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	s := New(Config{}, Deps{})
	html := get(s, "/").Body.String()
	require.Contains(t, html, `<script src="page.js" defer></script>`)
	require.NotContains(t, html, "http")
	require.NotContains(t, html, "style=")
	require.NotContains(t, html, " on")
	script := get(s, "/page.js")
	require.Equal(t, "text/javascript; charset=utf-8", script.Header().Get("Content-Type"))
	require.NotContains(t, script.Body.String(), "innerHTML")
	for _, path := range []string{"/", "/page.js", "/page.css"} {
		require.Contains(t, get(s, path).Header().Get("Content-Security-Policy"), "default-src 'none'")
	}
}

// TestHangingWorker: whatever hangs, an answer comes after AnswerTimeout, and
// however often it is asked, one call is under way.
func TestHangingWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		hang := func() { calls.Add(1); <-release }
		core, logs := observer.New(zap.InfoLevel)
		s := New(Config{Log: zap.New(core)}, Deps{
			Live:   func() []Stale { hang(); return nil },
			Ready:  func(context.Context) []Reason { hang(); return nil },
			Status: func(context.Context) (Status, error) { hang(); return Status{}, nil },
		})
		for range 3 {
			for path, want := range map[string]string{"/livez": "live: no answer in time (150ms)", "/readyz": "ready: no answer in time", "/status": "status: no answer in time"} {
				start := time.Now()
				w := get(s, path)
				require.Equal(t, 150*time.Millisecond, time.Since(start), path)
				require.Equal(t, 503, w.Code)
				require.Contains(t, w.Body.String(), want)
			}
		}
		require.EqualValues(t, 3, calls.Load())
		require.Equal(t, 3, logs.FilterMessage("no answer for the admin server").Len(), "one line per change")

		close(release)
		synctest.Wait()
		require.Equal(t, 200, get(s, "/livez").Code)
		require.Equal(t, 200, get(s, "/readyz").Code)
		require.Equal(t, 200, get(s, "/status").Code)
		require.Equal(t, 3, logs.FilterMessage("answers for the admin server are back").Len())
	})
}

// TestContextOfAQuestionEnds: a question that heeds its context leaves nothing
// behind.
func TestContextOfAQuestionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{AnswerTimeout: time.Second}, Deps{Status: func(ctx context.Context) (Status, error) {
			<-ctx.Done()
			return Status{}, context.Cause(ctx)
		}})
		start := time.Now()
		require.Equal(t, 503, get(s, "/status").Code)
		require.Equal(t, time.Second, time.Since(start))
		synctest.Wait()
	})
}

func TestPanicInAQuestion(t *testing.T) {
	s := New(Config{}, Deps{
		Ready:  func(context.Context) []Reason { panic("boom") },
		Status: func(context.Context) (Status, error) { return Status{}, errors.New("restoring") },
	})
	w := get(s, "/readyz")
	require.Equal(t, 503, w.Code)
	require.Contains(t, w.Body.String(), "ready: panic: boom")
	w = get(s, "/status")
	require.Equal(t, 503, w.Code)
	require.Contains(t, w.Body.String(), "restoring")
}

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Heartbeats
		require.Empty(t, h.Stale())
		poll, owner := h.Register("poll", 10*time.Second), h.Register("owner", time.Minute)
		time.Sleep(10 * time.Second)
		require.Empty(t, h.Stale(), "at the limit is not over it")
		time.Sleep(time.Second)
		require.Equal(t, []Stale{{Name: "poll", For: 11 * time.Second, Limit: 10 * time.Second}}, h.Stale())
		poll.Beat()
		require.Empty(t, h.Stale())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"owner", "poll"}, []string{h.Stale()[0].Name, h.Stale()[1].Name}, "the longest first")
		owner.Stop()
		poll.Stop()
		require.Empty(t, h.Stale(), "a loop that ended is not stale")
		var none *Heartbeat
		none.Beat()
		none.Stop()
	})
}

func TestRun(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	entered, release := make(chan struct{}), make(chan struct{})
	s := New(Config{Listener: l, AnswerTimeout: 10 * time.Second, StopTimeout: 10 * time.Second}, Deps{Ready: func(context.Context) []Reason {
		close(entered)
		<-release
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answer := make(chan int, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+s.Addr()+"/readyz", nil)
		res, err := client.Do(req)
		if err != nil {
			answer <- 0
			return
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		answer <- res.StatusCode
	}()
	<-entered
	cancel()
	select {
	case err := <-done:
		t.Fatalf("ended with a request under way: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	require.Equal(t, 200, <-answer, "a request under way is answered")
	require.NoError(t, <-done)
}

// TestRunLeavesAHangingCallBehind: the end of the process does not wait for it.
func TestRunLeavesAHangingCallBehind(t *testing.T) {
	release := make(chan struct{})
	core, logs := observer.New(zap.WarnLevel)
	s := New(Config{Addr: "127.0.0.1:0", StopTimeout: 20 * time.Millisecond, Log: zap.New(core)}, Deps{Live: func() []Stale { <-release; return nil }})
	require.Empty(t, s.Addr())
	require.NoError(t, s.Listen(t.Context()))
	require.NotEmpty(t, s.Addr())
	require.Equal(t, 503, get(s, "/livez").Code)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Run(ctx))
	require.Equal(t, 1, logs.FilterMessage("admin server leaves a call behind").Len())
	close(release)
	require.NoError(t, s.live.wait(t.Context()))
}

func TestPortInUse(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	s := New(Config{Addr: l.Addr().String()}, Deps{})
	require.ErrorContains(t, s.Listen(t.Context()), "address already in use")
	require.ErrorContains(t, s.Run(t.Context()), "admin server: ")
	require.Empty(t, s.Addr())
}
