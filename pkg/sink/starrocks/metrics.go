package starrocks

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Operations and results of rollcall_table_operations_total.
const (
	opCreateDatabase = "create_database"
	opCreateTable    = "create_table"
	opAddColumn      = "add_column"
	opCreateView     = "create_view"
	opVerify         = "verify"

	resultOK     = "ok"
	resultFailed = "failed"
	resultDenied = "denied"
	// resultUnknown is a statement without an answer; the table is read again.
	resultUnknown = "unknown"
)

// Metrics are the package's counters. One set per process.
type Metrics struct {
	tableOperations *prometheus.CounterVec
}

// NewMetrics registers the counters with reg; a nil reg leaves them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		tableOperations: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_table_operations_total",
			Help: "Work on the StarRocks table and view, by operation and result.",
		}, []string{"op", "result"}),
	}
	for _, op := range []string{opCreateDatabase, opCreateTable, opAddColumn, opCreateView, opVerify} {
		for _, result := range []string{resultOK, resultFailed, resultDenied, resultUnknown} {
			m.tableOperations.WithLabelValues(op, result)
		}
	}
	return m
}

func (m *Metrics) operation(op, result string) { m.tableOperations.WithLabelValues(op, result).Inc() }
