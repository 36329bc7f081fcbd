package deadletter

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts confirmed dead letters.
type Metrics struct {
	records *prometheus.CounterVec
	retries prometheus.Counter
}

// NewMetrics registers the package's metrics with reg (nil: unregistered, for tests). Every reason given gets a series with value 0.
func NewMetrics(reg prometheus.Registerer, reasons []string) *Metrics {
	m := &Metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_deadletter_records_total",
			Help: "Records confirmed by the dead-letter topic, by reason. Without a dead-letter topic: bad records counted and logged only.",
		}, []string{"reason"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_deadletter_retries_total",
			Help: "Attempts to write a dead letter that the topic refused or did not answer.",
		}),
	}
	for _, r := range reasons {
		m.records.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.records, m.retries)
	}
	return m
}

// Confirmed counts one record as dealt with; for owners without a dead-letter topic. Safe for concurrent use.
func (m *Metrics) Confirmed(reason string) { m.records.WithLabelValues(reason).Inc() }
