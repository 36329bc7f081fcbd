package discovery

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// Dashboards depend on the names, and alerts on series that exist before anything has happened.
func TestMetricNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	m.SetAssigned(3)
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string][]string{}
	for _, f := range families {
		got[f.GetName()] = nil
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				got[f.GetName()] = append(got[f.GetName()], l.GetName()+"="+l.GetValue())
			}
		}
	}
	require.Equal(t, map[string][]string{
		"rollcall_discovery_rounds_total":                   {"result=denied", "result=failed", "result=ok", "result=skipped", "result=suspicious"},
		"rollcall_discovery_duration_seconds":               nil,
		"rollcall_discovery_breaker_state":                  {"state=closed", "state=half_open", "state=open"},
		"rollcall_discovery_partitions":                     {"state=assigned", "state=gone", "state=known", "state=leaderless", "state=missing"},
		"rollcall_discovery_last_success_timestamp_seconds": nil,
	}, got)
	require.InDelta(t, 1, valueOf(m.breaker.WithLabelValues("closed")), 0)
	require.InDelta(t, 3, valueOf(m.partitions.WithLabelValues("assigned")), 0)
}
