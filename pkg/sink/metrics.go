package sink

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label status of rollcall_loads_total: what is known of one attempt, after the label's state was asked if it was needed.
const (
	statusDone    = "done"
	statusFailed  = "failed"
	statusUnknown = "unknown"
	statusRefused = "refused"
)

// reasonRowCount is the value of the label reason for loads whose row counts are not those of the body.
const reasonRowCount = "row_count"

// Metrics are the flusher's. Made by NewMetrics; used by one Flusher.
type Metrics struct {
	interval prometheus.Gauge
	loads    *prometheus.CounterVec
	duration prometheus.Histogram
	rows     *prometheus.CounterVec
	bytes    prometheus.Counter
	retries  *prometheus.CounterVec
	states   *prometheus.CounterVec
	blocked  *prometheus.GaugeVec
	// oldest is the acceptance time of the oldest batch without outcome, Unix ns; 0 if there is none.
	oldest atomic.Int64
}

// NewMetrics makes the metrics and registers them with reg; nil leaves them unregistered. reasons are the values of Reply.Reason that the target may
// give, so that their counters start at 0.
func NewMetrics(reg prometheus.Registerer, reasons ...string) *Metrics {
	m := &Metrics{
		interval: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_flush_interval_seconds",
			Help: "Current time between the starts of two loads; wider than FLUSH_INTERVAL while StarRocks is overloaded.",
		}),
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_loads_total",
			Help: "Load attempts by what StarRocks said of them: done, failed, refused (rows rejected or row counts that differ), unknown (sent again).",
		}, []string{"status"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rollcall_load_duration_seconds",
			Help:    "Duration of load attempts, until their outcome was known.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60},
		}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_load_rows_total",
			Help: "Rows StarRocks confirmed: by its reply's own count, or rows sent where only the label's state confirmed the load.",
		}, []string{"confirmed"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_load_bytes_total",
			Help: "Bytes sent of confirmed loads; compressed with LOAD_COMPRESSION.",
		}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_load_retries_total",
			Help: "Attempts that must be repeated, by reason.",
		}, []string{"reason"}),
		states: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_label_state_checks_total",
			Help: "Answers to questions for a label's state; error means that nobody could be asked.",
		}, []string{"state"}),
		blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_sink_blocked",
			Help: "1 while loads do not get through for this reason.",
		}, []string{"reason"}),
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_load_oldest_unfinished_seconds",
		Help: "Age of the oldest batch handed to the sink whose outcome is not known yet; 0 if there is none.",
	}, m.oldestAge)
	for _, s := range []string{statusDone, statusFailed, statusUnknown, statusRefused} {
		m.loads.WithLabelValues(s)
	}
	for _, c := range []string{"reply", "label"} {
		m.rows.WithLabelValues(c)
	}
	for _, s := range []LabelState{LabelUnknown, LabelPrepare, LabelPrepared, LabelCommitted, LabelVisible, LabelAborted, stateError} {
		m.states.WithLabelValues(string(s))
	}
	for _, b := range blockReasons() {
		m.blocked.WithLabelValues(string(b))
	}
	for _, r := range append(reasons, reasonRowCount) {
		m.retries.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.interval, m.loads, m.duration, m.rows, m.bytes, m.retries, m.states, m.blocked, oldest)
	}
	return m
}

func (m *Metrics) oldestAge() float64 {
	ns := m.oldest.Load()
	if ns == 0 {
		return 0
	}
	return time.Since(time.Unix(0, ns)).Seconds()
}

// setOldest takes the zero time for none.
func (m *Metrics) setOldest(t time.Time) {
	if t.IsZero() {
		m.oldest.Store(0)
		return
	}
	m.oldest.Store(t.UnixNano())
}

// setBlocked shows at most one reason; "" for none.
func (m *Metrics) setBlocked(reason BlockReason) {
	for _, b := range blockReasons() {
		v := 0.0
		if b == reason {
			v = 1
		}
		m.blocked.WithLabelValues(string(b)).Set(v)
	}
}
