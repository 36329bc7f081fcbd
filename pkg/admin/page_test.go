package admin

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
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
	s := New(Config{AnswerTimeout: 5 * time.Second}, Deps{
		Ready: func(context.Context) []Reason {
			return []Reason{{Check: "sink", Reason: hostile}, {Check: "discovery", Reason: "breaker open"}}
		},
		Status: func(context.Context) (Status, error) {
			return Status{
				Worker: "pod-1", TimeZone: "UTC", PartitionsBehind: 1,
				Partitions: []Partition{
					{Topic: "events", Partition: 7, State: "paused", Paused: []string{"buffer"}, Lag: 12345, Since: time.Now().Add(-time.Hour)},
					{Topic: "events", Partition: 3, State: "running", Lag: -1},
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
	dom, err := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--virtual-time-budget=5000", "--dump-dom", server.URL).Output()
	require.NoError(t, err)
	shown := string(dom)
	for _, want := range []string{
		"Nothing is known to be complete yet. Not ready: sink, discovery", "sink: &lt;img src=x", "discovery: breaker open",
		"paused for 60 min: buffer", "12,345", "1 running, 1 paused, 1 stopped", "stopped for 60 min: retention took records", `data-label="Log end"`, "2026-01-30: 4,711", "90.0 MiB of 100 MiB (90 %)", "uv is BIGINT", "connection refused",
		"✗ rollcall pod-1",
	} {
		require.Contains(t, shown, want)
	}
	require.NotContains(t, shown, "<img", "what the worker says is text")
	require.NotContains(t, shown, "owned</title>")
}
