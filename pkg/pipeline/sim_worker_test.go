package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"rollcall/config"
)

// simWorker is one worker process.
type simWorker struct {
	s      *sim
	name   string
	port   int
	worker *Worker
	reg    *prometheus.Registry
	logs   *logBook
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
	killed bool
}

// worker makes and runs a worker with the world's settings and these ones ("NAME=value").
func (s *sim) worker(name string, extra ...string) *simWorker {
	s.t.Helper()
	s.ports++
	w := &simWorker{s: s, name: name, port: s.ports, reg: prometheus.NewRegistry(), logs: &logBook{}, done: make(chan struct{})}
	environ := slices.Clone(extra)
	for k, v := range s.settings {
		environ = append(environ, k+"="+v)
	}
	environ = append(environ, "HOSTNAME="+name, "HTTP_ADDR=localhost:"+strconv.Itoa(w.port))
	cfg, err := config.Load(environ, os.ReadFile)
	require.NoError(s.t, err)
	w.worker, err = New(Options{
		Config: cfg, Log: w.logs.logger(), Registry: w.reg, Version: "sim", ReadFile: os.ReadFile,
		Dial: s.net.dialer(name), Listen: s.net.Listen,
	})
	require.NoError(s.t, err)
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	s.workers = append(s.workers, w)
	go func() {
		w.err = w.worker.Run(ctx)
		close(w.done)
	}()
	return w
}

func (w *simWorker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// term is SIGTERM.
func (w *simWorker) term() { w.cancel() }

// wait waits for the end and returns the exit code.
func (w *simWorker) wait(limit time.Duration) int {
	w.s.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		require.FailNowf(w.s.t, "worker did not end", "%s did not end within %s", w.name, limit)
	}
	w.s.net.set(netOpen, w.name)
	return ExitCode(w.err)
}

// stop is SIGTERM and the exit code 0, or another one.
func (w *simWorker) stop(code int) {
	w.s.t.Helper()
	w.term()
	require.Equal(w.s.t, code, w.wait(40*time.Second), "%s: %v", w.name, w.err)
}

// kill ends a worker as SIGKILL does, for everybody else: from now on it can say nothing to anyone.
func (w *simWorker) kill() {
	if w.killed || w.ended() {
		return
	}
	w.killed = true
	w.s.net.set(netRefuse, w.name)
	w.cancel()
	w.worker.Abort()
	<-w.done
	w.s.net.set(netOpen, w.name)
}

func (w *simWorker) get(path string) (int, string) {
	w.s.t.Helper()
	tr := &http.Transport{DialContext: w.s.net.dialer("prober"), DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+strconv.Itoa(w.port)+path, nil)
	require.NoError(w.s.t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.s.t, err)
	return resp.StatusCode, string(body)
}

// reasons are the failing checks as "check: reason"; none for a ready worker.
func (w *simWorker) reasons() []string {
	w.s.t.Helper()
	code, body := w.get("/readyz")
	if code == 0 {
		return []string{"http: " + body}
	}
	var a struct {
		Ready   bool
		Reasons []struct{ Check, Reason string }
	}
	require.NoError(w.s.t, json.Unmarshal([]byte(body), &a), body)
	require.Equal(w.s.t, a.Ready, code == http.StatusOK)
	var out []string
	for _, r := range a.Reasons {
		out = append(out, r.Check+": "+r.Reason)
	}
	return out
}

// live checks /livez: never anything but 200.
func (w *simWorker) live() {
	w.s.t.Helper()
	code, body := w.get("/livez")
	require.Equal(w.s.t, http.StatusOK, code, body)
}

// metrics is one scrape.
func (w *simWorker) metrics() scrape {
	w.s.t.Helper()
	fams, err := w.reg.Gather()
	require.NoError(w.s.t, err)
	out := scrape{}
	for _, f := range fams {
		out[f.GetName()] = f
	}
	return out
}

// identity checks that records read = counted + late + future + bad for every partition, at one scrape.
func (w *simWorker) identity() scrape {
	w.s.t.Helper()
	m := w.metrics()
	for p := range w.s.opt.partitions {
		n := strconv.Itoa(int(p))
		require.InDelta(w.s.t, m.sum("rollcall_source_records_total", "partition", n), m.sum("rollcall_events_total", "partition", n), 0.1, "%s, partition %d", w.name, p)
	}
	return m
}

type scrape map[string]*dto.MetricFamily

// sum adds up the series of a metric with these label values.
func (s scrape) sum(name string, labels ...string) float64 {
	total := 0.0
	f := s[name]
	if f == nil {
		return 0
	}
next:
	for _, m := range f.GetMetric() {
		for i := 0; i < len(labels); i += 2 {
			if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] }) {
				continue next
			}
		}
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}

// has reports whether a series is there, whatever its value.
func (s scrape) has(name, label, value string) bool {
	return slices.ContainsFunc(s[name].GetMetric(), func(m *dto.Metric) bool {
		return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value })
	})
}

// logBook keeps a worker's log.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(bytes.TrimSpace(p)))
	return len(p), nil
}

func (b *logBook) Sync() error { return nil }

func (b *logBook) logger() *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(enc), b, zap.InfoLevel))
}

func (b *logBook) has(parts ...string) bool { return b.count(parts...) > 0 }

// count counts the lines with all the parts.
func (b *logBook) count(parts ...string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(l, p)
		}
		if all {
			n++
		}
	}
	return n
}

func (b *logBook) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[max(0, len(b.lines)-n):], "\n")
}
