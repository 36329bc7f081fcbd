package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/oracle"
)

func TestWorkloadIsTheSameForEveryProcess(t *testing.T) {
	now := time.Date(2026, 3, 5, 14, 0, 0, 0, time.UTC)
	for _, kind := range []string{speedEvents, memoryIDs, memoryHashes, startKeys} {
		w := newWorkload(kind, 2000, 500, now)
		var a, b []oracle.Event
		w.each(func(e oracle.Event) bool { a = append(a, e); return true })
		w.each(func(e oracle.Event) bool { b = append(b, e); return len(b) < 100 })
		require.Len(t, a, 2000)
		require.Equal(t, a[:100], b, "ends when told to")
		seen := map[int32]bool{}
		for _, e := range a {
			require.False(t, e.At.After(now), "nothing is in the future")
			p := w.partitionOf(e)
			require.True(t, p >= 0 && p < w.partitions())
			seen[p] = true
		}
		require.Len(t, seen, int(w.partitions()))
	}
}

func TestMemoryWorkloadHasEveryUserInOneOf100Keys(t *testing.T) {
	w := newWorkload(memoryIDs, 2000, 1000, time.Date(2026, 3, 5, 0, 0, 1, 0, time.UTC))
	users := map[uint64]oracle.Key{}
	keys := map[oracle.Key]bool{}
	w.each(func(e oracle.Event) bool {
		k := oracle.Key{Day: e.At.UTC().Format(time.DateOnly), Platform: e.Platform, Channel: e.Channel}
		if had, ok := users[e.User]; ok {
			require.Equal(t, had, k)
		}
		users[e.User], keys[k] = k, true
		return true
	})
	require.Len(t, users, 1000)
	require.Len(t, keys, 100)
	var uv int64
	for _, r := range w.truth().Rows() {
		require.Equal(t, "2026-03-04", r.Day)
		uv += r.UV
	}
	require.EqualValues(t, 1000, uv)
	require.Contains(t, newWorkload(memoryHashes, 1, 1, time.Now()).settings()["AGGREGATE_MEASURES"], "uv=distinct_hash(user_id),pv=count")
}

func TestSpanCountsFromItsBeginning(t *testing.T) {
	t0 := time.Unix(1000, 0)
	var s span
	s.seen(99, t0)
	require.False(t, s.over(99))
	s.begin(150, t0.Add(time.Second))
	s.seen(150, t0.Add(time.Second))
	require.Zero(t, s.rate())
	s.begin(400, t0.Add(2*time.Second))
	s.seen(600, t0.Add(2*time.Second))
	require.False(t, s.over(1000))
	s.seen(1000, t0.Add(3*time.Second))
	require.True(t, s.over(1000))
	require.InDelta(t, 425, s.rate(), 1e-9)
}

func TestStatistics(t *testing.T) {
	runs := []run{{rssMiB: 3}, {rssMiB: 1}, {rssMiB: 10}}
	require.Equal(t, 10.0, best(runs, rss))
	require.Equal(t, 1.0, least(runs, rss))
	require.Equal(t, 3.0, median(runs, rss))
	require.Equal(t, 2.0, median(runs[:2], rss))
	require.Equal(t, "1,234,567", thousands(1234567))
	require.Equal(t, "999", thousands(999))
}

func TestSumOfSeries(t *testing.T) {
	page := `# HELP rollcall_source_records_total Records.
rollcall_source_records_total{topic="e v",partition="0"} 12
rollcall_source_records_total{topic="e v",partition="1"} 1.5e+06
rollcall_source_records_total_other 7
rollcall_source_bytes_total 99
rollcall_source_paused{reason="queue"} 4
rollcall_source_paused{reason="restoring"} 3
`
	got, err := sum(strings.NewReader(page), "rollcall_source_records_total", "rollcall_source_bytes_total", `rollcall_source_paused{reason="restoring"}`)
	require.NoError(t, err)
	require.Equal(t, []float64{1500012, 99, 3}, got)
	_, err = sum(strings.NewReader("x abc\n"), "x")
	require.Error(t, err)
}

func TestKernelFiles(t *testing.T) {
	n, err := field([]byte("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1 kB\n"), "VmHWM:")
	require.NoError(t, err)
	require.EqualValues(t, 2<<20, n)
	_, err = field([]byte("Name: x\n"), "VmHWM:")
	require.Error(t, err)
	n, err = userAndSystem([]byte("7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 9 0 100 1 1"))
	require.NoError(t, err)
	require.EqualValues(t, 42, n)
	_, err = userAndSystem([]byte("7 (x) S 1"))
	require.Error(t, err)
}

func TestShareBetweenTwoMoments(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	all := []ticks{
		{at: at(0)},
		{at: at(1), total: 200, idle: 200},
		{at: at(2), total: 400, idle: 250, client: 100, servers: 20},
		{at: at(3), total: 600, idle: 300, client: 200, servers: 40},
		{at: at(4), total: 800, idle: 500, client: 200, servers: 40},
	}
	s := between(all, time.Unix(1, 1), at(3))
	require.InDelta(t, 0.5, s.client, 1e-9)
	require.InDelta(t, 0.1, s.servers, 1e-9)
	require.InDelta(t, 0.25, s.idle, 1e-9)
	require.InDelta(t, 0.15, s.others, 1e-9)
	require.Zero(t, between(nil, at(1), at(2)))
}

func TestReportShowsWhatWasMeasured(t *testing.T) {
	r := report{
		flags:   flags{events: 1000, users: 10, runs: 1, batch: 1 << 16, memoryUsers: 1000, markdown: true},
		machine: machine{cpu: "test", goVersion: "go1", load: "0.1", cores: 2, at: time.Unix(0, 0)},
		speeds: []speedResult{{
			compression: "none",
			raw:         []run{{events: 1000, bytes: 240000, span: span{From: time.Unix(0, 0), To: time.Unix(1, 0), Read: 900}, cpuSeconds: 0.001}},
			worker:      []run{{events: 1000, bytes: 240000, span: span{From: time.Unix(0, 0), To: time.Unix(2, 0), Read: 900}, cpuSeconds: 0.002, rssMiB: 77}},
		}},
		starts: &startResult{
			keys: 100_000, starts: []start{{first: time.Second, all: 1100 * time.Millisecond, peakMiB: 90}, {first: 1200 * time.Millisecond, all: 2 * time.Second, peakMiB: 92}},
			emptyMiB: 33, idleMiB: 70,
		},
		memories: []memoryResult{{kind: memoryHashes, compression: "zstd", users: 1000, run: run{events: 1, rssMiB: 123}}},
	}
	var page, table bytes.Buffer
	r.print(&page)
	require.Contains(t, page.String(), "| none | worker | 450 |")
	require.Contains(t, page.String(), "| 0.50 |")
	require.Contains(t, page.String(), "| zstd | 1,000 × 100 | distinct_hash | 123 |")
	require.Contains(t, page.String(), "whose 100,000 keys are in the table starts with one new record in each of 64 partitions, 2 times")
	require.Contains(t, page.String(), "| exec to first record counted | 1.00 s | 1.10 s |")
	require.NoError(t, r.starts.check(flags{maxStart: 1100 * time.Millisecond, maxIdle: 33}))
	require.ErrorContains(t, r.starts.check(flags{maxStart: time.Second}), "start: 1.10 s")
	require.ErrorContains(t, r.starts.check(flags{maxIdle: 32}), "idle: the worker needs 33 MiB")
	r.flags.markdown = false
	r.print(&table)
	require.Contains(t, table.String(), "none: the worker reaches 0.50 of the raw consumer")
}

func TestFlagsAreChecked(t *testing.T) {
	good := flags{worker: "bench_test.go", events: 1, users: 1, runs: 1, memoryUsers: 1, startKeys: 64, scenario: "all", compression: "none,zstd"}
	require.NoError(t, good.prepare())
	for name, spoil := range map[string]func(*flags){
		"compression": func(f *flags) { f.compression = "none,rar" },
		"scenario":    func(f *flags) { f.scenario = "x" },
		"events":      func(f *flags) { f.events = 0 },
		"worker":      func(f *flags) { f.worker = "not there" },
	} {
		f := good
		spoil(&f)
		require.Error(t, f.prepare(), name)
	}
}
