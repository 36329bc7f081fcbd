package discovery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
)

// Results of a round, the label of rollcall_discovery_rounds_total.
const (
	resultOK         = "ok"         // an answer taken at its word
	resultSuspicious = "suspicious" // an answer that has to be confirmed
	resultFailed     = "failed"     // no broker gave a good answer within the budget
	resultDenied     = "denied"     // brokers answered and refused
	resultSkipped    = "skipped"    // the breaker was open
)

// Metrics of discovery, see the metrics list for their meaning.
type Metrics struct {
	rounds      *prometheus.CounterVec
	duration    prometheus.Histogram
	breaker     *prometheus.GaugeVec
	partitions  *prometheus.GaugeVec
	lastSuccess prometheus.Gauge
}

// NewMetrics registers the metrics; a nil registerer leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_discovery_rounds_total", Help: "Discovery rounds by result.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rollcall_discovery_duration_seconds", Help: "Duration of discovery rounds, whatever their result.",
			Buckets: []float64{.005, .02, .1, .25, .5, 1, 2, 3, 5, 10, 20},
		}),
		breaker: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_discovery_breaker_state", Help: "1 for the state the discovery breaker is in.",
		}, []string{"state"}),
		partitions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_discovery_partitions",
			Help: "Partitions: known to exist, of these leaderless or missing from the last answers, gone for good, assigned to this worker.",
		}, []string{"state"}),
		lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_discovery_last_success_timestamp_seconds", Help: "Unix time of the last good discovery round, 0 before the first.",
		}),
	}
	for _, r := range []string{resultOK, resultSuspicious, resultFailed, resultDenied, resultSkipped} {
		m.rounds.WithLabelValues(r)
	}
	for _, s := range []string{"assigned", "known", "leaderless", "missing", "gone"} {
		m.partitions.WithLabelValues(s)
	}
	m.setBreaker(gobreaker.StateClosed)
	if reg != nil {
		reg.MustRegister(m.rounds, m.duration, m.breaker, m.partitions, m.lastSuccess)
	}
	return m
}

// SetAssigned sets the partitions this worker was assigned, which only the source knows. May be called at any time.
func (m *Metrics) SetAssigned(n int) { m.partitions.WithLabelValues("assigned").Set(float64(n)) }

func (m *Metrics) setBreaker(now gobreaker.State) {
	for _, s := range []gobreaker.State{gobreaker.StateClosed, gobreaker.StateHalfOpen, gobreaker.StateOpen} {
		v := 0.0
		if s == now {
			v = 1
		}
		m.breaker.WithLabelValues(breakerName(s)).Set(v)
	}
}

func breakerName(s gobreaker.State) string {
	if s == gobreaker.StateHalfOpen {
		return "half_open"
	}
	return s.String()
}

func (m *Metrics) round(result string, elapsed time.Duration) {
	m.rounds.WithLabelValues(result).Inc()
	m.duration.Observe(elapsed.Seconds())
}

func (m *Metrics) setPartitions(p PartitionCounts) {
	m.partitions.WithLabelValues("known").Set(float64(p.Known))
	m.partitions.WithLabelValues("leaderless").Set(float64(p.Leaderless))
	m.partitions.WithLabelValues("missing").Set(float64(p.Missing))
	m.partitions.WithLabelValues("gone").Set(float64(p.Gone))
}
