package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"rollcall/pkg/aggregate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a running flusher in a bubble.
type rig struct {
	t    *testing.T
	f    *Flusher
	tab  *fakeTable
	m    *Metrics
	reg  *prometheus.Registry
	logs *observer.ObservedLogs
	stop context.CancelCauseFunc
	err  chan error
	mu   sync.Mutex
	done []Completion
}

func newRig(t *testing.T, tab *fakeTable, edit func(*Config)) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	reg := prometheus.NewRegistry()
	r := &rig{t: t, tab: tab, reg: reg, m: NewMetrics(reg), logs: logs, err: make(chan error, 1)}
	cfg := Config{
		Interval: 10 * time.Second, MaxBytes: 1 << 20, LabelPrefix: "w-1", Measures: testMeasures(),
		Log: zap.New(core), Metrics: r.m,
	}
	if edit != nil {
		edit(&cfg)
	}
	f, err := New(cfg, tab)
	require.NoError(t, err)
	r.f = f
	return r
}

// run starts Run; the test must end it with end or Close.
func (r *rig) run() *rig {
	ctx, cancel := context.WithCancelCause(r.t.Context())
	r.stop = cancel
	go func() { r.err <- r.f.Run(ctx) }()
	synctest.Wait()
	return r
}

func (r *rig) end() error {
	r.stop(errors.New("test over"))
	return <-r.err
}

// offer hands a batch over whose completion the rig remembers.
func (r *rig) offer(source string, next int64, rows ...aggregate.Row) {
	r.t.Helper()
	require.NoError(r.t, r.f.Offer(r.batch(source, next, nil, rows...)))
}

func (r *rig) batch(source string, next int64, ready <-chan struct{}, rows ...aggregate.Row) Batch {
	return Batch{Source: source, Next: next, Rows: rows, Bytes: int64(100 * len(rows)), Ready: ready, Done: func(c Completion) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done = append(r.done, c)
	}}
}

func (r *rig) completions() []Completion {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Completion(nil), r.done...)
}

// nexts is the completions as "source:next", failed ones with a "!".
func (r *rig) nexts() string {
	var out []string
	for _, c := range r.completions() {
		s := fmt.Sprintf("%s:%d", c.Source, c.Next)
		if c.Err != nil {
			s += "!"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (r *rig) at(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) counter(name, label, value string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	require.NoError(r.t, err)
	for _, fam := range families {
		if fam.GetName() != name {
			continue
		}
		for _, m := range fam.GetMetric() {
			if label == "" || (len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == value) {
				if m.GetGauge() != nil {
					return m.GetGauge().GetValue()
				}
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}
