package pipeline

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/source"
)

// Metrics are the metrics of what happens between source and sink.
type Metrics struct {
	read            *together // records and events
	records, bytes  *prometheus.CounterVec
	events          *prometheus.CounterVec
	reread          prometheus.Counter
	skipped         *prometheus.CounterVec
	withoutValue    *prometheus.CounterVec
	dimensions      *prometheus.CounterVec
	saturated       prometheus.Counter
	folded          prometheus.Counter
	keys            prometheus.Gauge
	sealDuration    prometheus.Histogram
	restoreDuration prometheus.Histogram
	buffer          prometheus.Gauge
	overlap         *prometheus.GaugeVec
	complete        *prometheus.GaugeVec
	freshness       prometheus.Gauge
	loss, retention *prometheus.GaugeVec
}

// NewMetrics registers the package's metrics with reg (nil: unregistered, for tests).
func NewMetrics(reg prometheus.Registerer, measures []aggregate.Measure) *Metrics {
	byPartition := []string{"topic", "partition"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		records: counter("rollcall_source_records_total", "Records read: counted when the chunk they came in has been applied. Equals the sum of rollcall_events_total over outcomes.", byPartition...),
		bytes:   counter("rollcall_source_bytes_total", "Bytes of keys and values of records read."),
		events:  counter("rollcall_events_total", "What became of records read: counted, late, future or bad.", "topic", "partition", "outcome"),
		reread: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_source_reread_total",
			Help: "Records that were delivered again below the position and dropped. Not among the records read.",
		}),
		skipped:      counter("rollcall_source_skipped_offsets_total", "Offsets that were gone before they were read (retention).", byPartition...),
		withoutValue: counter("rollcall_events_without_value_total", "Counted events without a value for a measure.", "measure"),
		dimensions:   counter("rollcall_dimension_values_changed_total", "Dimension values that were cut at 255 bytes or had invalid UTF-8 replaced.", "change"),
		saturated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_aggregate_saturated_total",
			Help: "Additions to a total that is at its greatest value, 2^63-1.",
		}),
		folded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_aggregate_keys_folded_total",
			Help: "Events of keys beyond AGGREGATE_MAX_KEYS, counted under __other__.",
		}),
		keys: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_aggregate_keys",
			Help: "Day x dimension keys held in memory, over all assigned partitions.",
		}),
		sealDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rollcall_seal_duration_seconds",
			Help: "How long a partition stood still to seal a batch.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}),
		restoreDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rollcall_restore_duration_seconds",
			Help: "From the assignment of a partition to its first fetch.", Buckets: prometheus.ExponentialBuckets(0.01, 3, 10),
		}),
		buffer: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_buffer_bytes",
			Help: "Memory held by everything read and not yet durable. Reading pauses at BUFFER_MAX_BYTES.",
		}),
		overlap: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_checkpoint_overlap",
			Help: "1 if two histories of the partition overlap in the table: some records may be counted twice.",
		}, byPartition),
		complete: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_complete_until_timestamp_seconds",
			Help: "Every record up to this time is durable: the last check that found the end of the log with everything durable, else the time of the oldest record that is not.",
		}, byPartition),
		freshness: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollcall_freshness_seconds",
			Help: "Now minus the smallest complete-until of the assigned partitions; 0 without partitions, unless the group session is lost: then it grows on.",
		}),
		loss: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_time_to_data_loss_seconds",
			Help: "How long the oldest record of the assigned partitions that is not durable will still be in its topic, by its time and retention.ms. Absent if records stay for ever or retention may not be read. Retention by size may take it sooner.",
		}, []string{"topic"}),
		retention: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_topic_retention_seconds",
			Help: "For how long a topic keeps its records (retention.ms); absent as rollcall_time_to_data_loss_seconds.",
		}, []string{"topic"}),
	}
	for _, me := range measures {
		if me.Field != "" {
			m.withoutValue.WithLabelValues(me.Name)
		}
	}
	m.dimensions.WithLabelValues("cut")
	m.dimensions.WithLabelValues("replaced_utf8")
	m.bytes.WithLabelValues()
	m.read = &together{vecs: []prometheus.Collector{m.records, m.events}}
	if reg != nil {
		reg.MustRegister(m.read, m.bytes, m.reread, m.skipped, m.withoutValue, m.dimensions, m.saturated, m.folded, m.keys,
			m.sealDuration, m.restoreDuration, m.buffer, m.overlap, m.complete, m.freshness, m.loss, m.retention)
	}
	return m
}

// partitionCounters are the counters of one partition, looked up once. Counters stay when a partition moves away: they are totals of
// this process.
type partitionCounters struct {
	records, skipped prometheus.Counter
	outcomes         [aggregate.Bad + 1]prometheus.Counter
}

func (m *Metrics) partition(p source.Partition) partitionCounters {
	n := strconv.Itoa(int(p.Partition))
	c := partitionCounters{records: m.records.WithLabelValues(p.Topic, n), skipped: m.skipped.WithLabelValues(p.Topic, n)}
	for o := aggregate.Counted; o <= aggregate.Bad; o++ {
		c.outcomes[o] = m.events.WithLabelValues(p.Topic, n, o.String())
	}
	return c
}

// forget removes the gauges of a partition that is no longer ours.
func (m *Metrics) forget(p source.Partition) {
	n := strconv.Itoa(int(p.Partition))
	m.complete.DeleteLabelValues(p.Topic, n)
	m.overlap.DeleteLabelValues(p.Topic, n)
}

// setOverlap says whether two histories of the partition overlap.
func (m *Metrics) setOverlap(p source.Partition, on bool) {
	v := 0.0
	if on {
		v = 1
	}
	m.overlap.WithLabelValues(p.Topic, strconv.Itoa(int(p.Partition))).Set(v)
}

// countStats moves the counters of what the aggregator noticed.
func (m *Metrics) countStats(p *aggregate.Program, s aggregate.Stats) {
	for i, n := range s.WithoutValue {
		if n > 0 {
			m.withoutValue.WithLabelValues(p.Measures()[i].Name).Add(float64(n))
		}
	}
	m.dimensions.WithLabelValues("cut").Add(float64(s.Cut))
	m.dimensions.WithLabelValues("replaced_utf8").Add(float64(s.ReplacedUTF8))
	m.folded.Add(float64(s.Folded))
	m.saturated.Add(float64(s.Saturated))
}
