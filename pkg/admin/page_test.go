package admin

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPageInChromium lets a browser run the page and reads what it shows.
func TestPageInChromium(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("ROLLCALL_REQUIRE_CHROMIUM") == "1" {
			t.Fatal("ROLLCALL_REQUIRE_CHROMIUM=1 and there is no chromium: apt-get install chromium")
		}
		t.Skip("no chromium in PATH; apt-get install chromium to run this test")
	}
	if testing.Short() {
		t.Skip("starts a browser")
	}
	const hostile = `<img src=x onerror="document.title='owned'">`
	var asked atomic.Int32
	s := New(Config{AnswerTimeout: 5 * time.Second}, Deps{
		Ready: func(context.Context) []Reason {
			return []Reason{{Check: "sink", Reason: hostile}, {Check: "discovery", Reason: "breaker open"}}
		},
		Status: func(context.Context) (Status, error) {
			if asked.Add(1) == 1 { // what the page shows first, and must not show for long
				return Status{Worker: "pod-1", Partitions: []Partition{{Topic: "bygone", State: "restoring"}}, Table: Table{Name: "dw.bygone"}}, nil
			}
			return Status{
				Worker: "pod-1", TimeZone: "UTC", PartitionsBehind: 1,
				Partitions: []Partition{
					{Topic: "events", Partition: 7, State: "paused", Paused: []string{"buffer"}, Lag: 12345, Since: time.Now().Add(-time.Hour)},
					{Topic: "events", Partition: 3, State: "running", Lag: -1, Paused: []string{"queue"}},
					{Topic: "events", Partition: 4, State: "running", Problem: "its leader does not answer", Since: time.Now().Add(-time.Hour)},
					{Topic: "events", Partition: 5, State: "running", Paused: []string{"share"}, PausedSince: time.Now().Add(-time.Minute), Since: time.Now().Add(-time.Hour)},
					{Topic: "events", Partition: 9, State: "stopped", Paused: []string{"stopped"}, Problem: "retention took records", Since: time.Now().Add(-time.Hour)},
				},
				Loads:    Loads{LastError: "connection refused", BufferBytes: 90 << 20, BufferLimit: 100 << 20},
				Table:    Table{Name: "dw.dau", State: "different", Difference: "uv is BIGINT"},
				Measures: []string{"uv", "pv"},
				Totals:   []DayTotals{{Day: "2026-01-30", Measures: map[string]int64{"uv": 4711, "pv": 1}}},
			}, nil
		},
	})
	server := httptest.NewServer(s.http.Handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	browser := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--virtual-time-budget=9000", "--dump-dom",
		"--enable-logging=stderr", server.URL)
	var said bytes.Buffer
	browser.Stderr = &said
	dom, err := browser.Output()
	require.NoError(t, err, said.String())
	require.NotContains(t, said.String(), "CONSOLE", "the page has no error and breaks no policy")
	require.Greater(t, asked.Load(), int32(1), "the page asks again by itself")
	shown := string(dom)
	for _, want := range []string{
		"Nothing is known to be complete yet. Not ready: sink, discovery", "sink: &lt;img src=x", "discovery: breaker open",
		"paused for 60 min: buffer", "12,345", "1 running, 1 held up, 2 paused, 1 stopped", "held up: its leader does not answer", "paused for 60 s: share", "stopped for 60 min: retention took records", `data-label="Log end"`, "2026-01-30: 4,711", "90.0 MiB of 100 MiB (90 %)", "uv is BIGINT", "connection refused",
		"✗ rollcall pod-1",
	} {
		require.Contains(t, shown, want)
	}
	require.NotContains(t, shown, "bygone", "it shows the last answer and nothing of the one before")
	require.NotContains(t, shown, "<img", "what the worker says is text")
	require.NotContains(t, shown, "owned</title>")
}
