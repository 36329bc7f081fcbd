package sink_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrocks"
	. "rollcall/pkg/sink/starrockstest"
)

// pipes is a network in memory, so that the stand-in runs in a bubble.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) listen(_, addr string) (net.Listener, error) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners[addr] = l
	return l, nil
}

func (p *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	p.mu.Lock()
	l := p.listeners[addr]
	p.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func measures() []aggregate.Measure {
	return []aggregate.Measure{
		{Name: "uv", Kind: aggregate.Distinct, Field: "u"}, {Name: "pv", Kind: aggregate.Count}, {Name: "lo", Kind: aggregate.Min, Field: "x"},
	}
}

const ddl = "CREATE TABLE dau.daily (dt DATE NOT NULL, platform VARCHAR(1024) NOT NULL, rollcall_source VARCHAR(1024) NOT NULL, " +
	"uv BITMAP BITMAP_UNION NOT NULL, pv BIGINT MAX NOT NULL, lo BIGINT MIN, rollcall_next_offset BIGINT MAX NOT NULL, " +
	"rollcall_last_event_ms BIGINT MAX NOT NULL) AGGREGATE KEY(dt, platform, rollcall_source) " +
	"PARTITION BY date_trunc('day', dt) DISTRIBUTED BY HASH(platform, rollcall_source)"

// The flusher, the real client and the stand-in together: whatever goes wrong, the table ends up as the truth, and the counters say what the
// server says.
func TestFlusherOnTheStandIn(t *testing.T) {
	do := func(at Point, times int, a ...Action) Fault { return Fault{At: at, Skip: 1, Times: times, Do: a} }
	for name, tc := range map[string]struct {
		fault  Fault
		within time.Duration
	}{
		"healthy":                    {do(AtFE, 0, Sleep(0)), time.Second},
		"reply lost after commit":    {do(AtCommitted, 1, Reset()), 3 * time.Second},
		"reply hangs after commit":   {do(AtCommitted, 1, Hang()), 40 * time.Second},
		"cut in the body":            {do(AtBegun, 1, ReadBody(10), Reset()), 40 * time.Second},
		"commit in doubt, committed": {do(AtCommit, 1, CommitUnknown(true)), 5 * time.Second},
		"commit in doubt, aborted":   {do(AtCommit, 1, CommitUnknown(false)), 5 * time.Second},
		"publish timeout":            {do(AtCommit, 2, PublishTimeout(8*time.Second)), 30 * time.Second},
		"too many versions":          {do(AtCommit, 5, Fail(MsgTooManyVersions)), 60 * time.Second},
		"running transactions":       {do(AtHeader, 3, Fail(MsgRunningTxns)), 60 * time.Second},
		"no backend":                 {do(AtFE, 3, Fail(MsgNoBackend)), 30 * time.Second},
		"rows refused":               {do(AtCommit, 3, Filter(1)), 40 * time.Second},
		"counts differ":              {do(AtCommitted, 3, Miscount(-1)), 40 * time.Second},
		"body limit":                 {do(AtHeader, 200, LimitBody(700)), 60 * time.Second},
		"HTML":                       {do(AtCommitted, 2, Reply(200, "text/html", "<html>")), 30 * time.Second},
		"unauthorized":               {do(AtFE, 2, Reply(401, "", "")), 60 * time.Second},
		"cut reply":                  {do(AtCommitted, 2, Truncate(20)), 30 * time.Second},
	} {
		for _, how := range []starrocks.Compression{starrocks.CompressionNone, starrocks.CompressionZstd} {
			t.Run(name+", "+string(how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					used := map[string]bool{}
					for _, l := range onStandIn(t, Config{}, how, tc.fault, tc.within, name == "counts differ") {
						if l.Committed {
							used[l.Compression] = true
						}
					}
					want := map[starrocks.Compression]string{starrocks.CompressionNone: "", starrocks.CompressionZstd: "zstd"}
					require.Equal(t, map[string]bool{want[how]: true}, used, "no fault makes a server look like one that reads no compressed loads")
				})
			})
		}
	}
}

// A release that cannot read compressed loads refuses one of them, and gets its rows and all others as they are.
func TestFlusherOnAnOldRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads := onStandIn(t, Config{NoCompression: true}, starrocks.CompressionZstd, Fault{At: AtFE, Do: []Action{Sleep(0)}}, 2*time.Second, false)
		require.False(t, loads[0].Committed)
		for _, l := range loads[1:] {
			require.True(t, l.Committed)
		}
	})
}

func onStandIn(t *testing.T, cfg Config, how starrocks.Compression, fault Fault, within time.Duration, lies bool) []LoadRecord {
	n := &pipes{listeners: map[string]*pipeListener{}}
	cfg.Listen = n.listen
	c := New(cfg)
	require.NoError(t, c.Start())
	t.Cleanup(c.Close)
	require.NoError(t, c.Exec("CREATE DATABASE dau", ddl))
	client, err := starrocks.New(starrocks.Config{
		HTTP: c.FEURLs(), User: "root", Database: "dau", Table: "daily", LoadTimeout: 5 * time.Second, DialContext: n.dial, Compression: how,
		Dimensions: []aggregate.Dimension{{Name: "platform", Path: "p"}}, Measures: measures(),
	})
	require.NoError(t, err)
	reg := prometheus.NewRegistry()
	f, err := sink.New(sink.Config{
		Interval: 2 * time.Second, MaxBytes: 1 << 20, LabelPrefix: "w-1", Measures: measures(), PollLimit: 6 * time.Second,
		Metrics: sink.NewMetrics(reg, starrocks.Reasons()...),
	}, client)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	c.Inject(fault)

	start := time.Now()
	const batches = 20
	done := 0
	for i := int64(1); i <= batches; i++ {
		for s := range 4 {
			b := sink.Batch{Source: "s" + strconv.Itoa(s), Next: i, Done: func(c sink.Completion) {
				if c.Err == nil {
					done++
				}
			}}
			b.Rows = []aggregate.Row{{Day: 20000, Dims: []string{"ios"}, LastEventMs: i, Cells: []aggregate.Cell{
				{Set: bitmap.Of(uint64(i), uint64(i)<<40)}, {Int: 10 * i}, {Int: 100 - i},
			}}}
			require.NoError(t, f.Offer(b))
		}
		if i%5 == 0 {
			time.Sleep(time.Second)
			require.NoError(t, f.Flush(t.Context()))
		}
	}
	for s := range 4 {
		require.NoError(t, f.WaitSource(t.Context(), "s"+strconv.Itoa(s)))
	}
	require.LessOrEqual(t, time.Since(start), within+4*time.Second)
	require.NoError(t, f.Close(t.Context()))
	require.NoError(t, <-ran)
	cancel()
	require.Equal(t, 4*batches, done)

	_, rows, err := c.Query("SELECT BITMAP_UNION_COUNT(uv), SUM(pv), MIN(lo), MIN(rollcall_next_offset), COUNT(*) FROM dau.daily")
	require.NoError(t, err)
	var got []string
	for _, v := range rows[0] {
		got = append(got, text(v))
	}
	require.Equal(t, []string{"40", "800", "80", "20", "4"}, got)

	said := 0.0 // what the server's own answers said; Miscount makes it lie
	for _, l := range c.Loads() {
		if l.Committed {
			said += float64(l.Loaded)
		}
	}
	if lies {
		said -= 3
	}
	require.InDelta(t, said, loadedRows(t, reg), 0.1, "load_rows_total is what the server says")
	c.Heal()
	return c.Loads()
}

func text(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case interface{ String() string }:
		return v.String()
	default:
		return "?"
	}
}

func loadedRows(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, fam := range families {
		if fam.GetName() == "rollcall_load_rows_total" {
			for _, m := range fam.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
