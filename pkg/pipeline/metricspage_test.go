package pipeline

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

func TestMetricsPage(t *testing.T) {
	const path = "../../docs/metrics.md"
	var b bytes.Buffer
	require.NoError(t, WriteMetricsMarkdown(&b))
	if *update {
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "run: go test ./pkg/pipeline -run TestMetricsPage -update")
}

// The names that other people's dashboards depend on (DESIGN §6).
func TestMetricNamesAreThere(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteMetricsMarkdown(&b))
	for _, name := range strings.Fields(`source_records_total source_bytes_total source_lag_records source_assigned_partitions source_paused
		source_reread_total source_commits_total source_skipped_offsets_total discovery_rounds_total discovery_duration_seconds
		discovery_breaker_state discovery_partitions discovery_last_success_timestamp_seconds events_total deadletter_records_total
		events_without_value_total checkpoint_overlap aggregate_keys aggregate_keys_folded_total seal_duration_seconds buffer_bytes
		flush_interval_seconds loads_total load_duration_seconds load_rows_total load_bytes_total load_retries_total
		load_oldest_unfinished_seconds label_state_checks_total sink_blocked table_operations_total restore_duration_seconds
		complete_until_timestamp_seconds freshness_seconds`) {
		require.Contains(t, b.String(), "| `rollcall_"+name+"` |")
	}
}

func TestRatioWindow(t *testing.T) {
	var w ratioWindow
	for i := range 999 {
		w.add(true)
		require.False(t, w.exceeds(0.5), i)
	}
	w.add(true)
	require.True(t, w.exceeds(0.5))
	require.False(t, w.exceeds(1), "1 turns it off")
	for range 500 {
		w.add(false)
	}
	require.False(t, w.exceeds(0.5), "500 of the last 1000 are not more than half")
	require.True(t, w.exceeds(0.49))
	for range 500 {
		w.add(false)
	}
	require.False(t, w.exceeds(0))
	w.add(true)
	require.True(t, w.exceeds(0))
}

func TestGate(t *testing.T) {
	g := newGate()
	require.Nil(t, g.seal(), "without dead letters a batch is ready at once")
	g = newGate()
	g.add()
	g.add()
	g.confirmed(nil)
	ready := g.seal()
	require.NotNil(t, ready)
	g.confirmed(os.ErrClosed)
	select {
	case <-ready:
		t.Fatal("a letter that was not confirmed opened the gate")
	default:
	}
	g.confirmed(nil)
	<-ready
}
