package source

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the source's own. Records and bytes are counted by the pipeline, when a chunk has been applied.
type Metrics struct {
	lag      *prometheus.GaugeVec
	assigned prometheus.Gauge
	paused   *prometheus.GaugeVec
	commits  *prometheus.CounterVec
}

// Results of a commit, per partition.
const (
	commitOK      = "ok"
	commitFailed  = "failed"
	commitRefused = "refused"
)

// NewMetrics registers the source's metrics with reg; a nil reg leaves them unregistered, for tests. reasons are those for which callers will
// pause partitions: they begin at 0, as the source's own do.
func NewMetrics(reg prometheus.Registerer, reasons ...string) *Metrics {
	m := &Metrics{
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_source_lag_records",
			Help: "Records between the position of an assigned partition and the end that may be read, as of the last answer of its leader.",
		}, []string{"topic", "partition"}),
		assigned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_source_assigned_partitions",
			Help: "Partitions this worker owns.",
		}),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_source_paused",
			Help: "Assigned partitions that are not fetched, by reason; one with several reasons counts for each.",
		}, []string{"reason"}),
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_source_commits_total",
			Help: "Offsets committed, per partition, by result; refused ones were not sent since the assignment was over or they were behind.",
		}, []string{"result"}),
	}
	for _, r := range []string{commitOK, commitFailed, commitRefused} {
		m.commits.WithLabelValues(r)
	}
	for _, r := range append([]string{reasonRestoring, reasonPosition, reasonRetry}, reasons...) {
		m.paused.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.lag, m.assigned, m.paused, m.commits)
	}
	return m
}

func (m *Metrics) lagOf(p Partition) prometheus.Gauge {
	return m.lag.WithLabelValues(p.Topic, strconv.Itoa(int(p.Partition)))
}

func (m *Metrics) forget(p Partition) {
	m.lag.DeleteLabelValues(p.Topic, strconv.Itoa(int(p.Partition)))
}
