package pipeline

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/pkg/deadletter"
	"rollcall/pkg/discovery"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrocks"
	"rollcall/pkg/source"
)

// WriteMetricsMarkdown writes docs/metrics.md: every metric of the worker's own, from the code that registers it.
func WriteMetricsMarkdown(out io.Writer) error {
	c := &catalogue{}
	NewMetrics(c, nil)
	source.NewMetrics(c, pauseReasons()...)
	discovery.NewMetrics(c)
	sink.NewMetrics(c)
	starrocks.NewMetrics(c)
	deadletter.NewMetrics(c, nil)
	slices.SortFunc(c.list, func(a, b metricInfo) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString(metricsIntro)
	for _, m := range c.list {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, strings.ReplaceAll(m.help, "|", `\|`))
	}
	b.WriteString(metricsOutro)
	_, err := io.WriteString(out, b.String())
	return err
}

const metricsIntro = `# Metrics

Generated from the code; do not edit. Served at ` + "`/metrics`" + `.

**Is DAU right up to now?** ` + "`rollcall_freshness_seconds`" + ` is now minus the smallest ` + "`rollcall_complete_until_timestamp_seconds`" + ` of the
partitions this worker owns. Complete-until of a partition is the time of the last check that found the end of its log with everything
durable in StarRocks, else the record time of the oldest record that is not durable. Both come from confirmed loads only; an idle topic is
fresh. Over all workers take ` + "`max(rollcall_freshness_seconds)`" + `.

**Is anything missing?** For each partition, ` + "`rollcall_source_records_total`" + ` equals the sum of ` + "`rollcall_events_total`" + ` over outcomes, at every scrape.

| name | kind | labels | meaning |
|---|---|---|---|
`

const metricsOutro = `
The Kafka client's own metrics are there under ` + "`rollcall_kafka_*`" + ` (connections, bytes and errors per broker), and those of the Go runtime and the
process under ` + "`go_*`" + ` and ` + "`process_*`" + `.
`

type metricInfo struct{ name, kind, labels, help string }

// catalogue is a registerer that only takes notes.
type catalogue struct{ list []metricInfo }

var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: (".*"), constLabels: \{.*\}, variableLabels: \{(.*)\}\}$`) //nolint:gochecknoglobals // a constant

// Register implements prometheus.Registerer.
func (c *catalogue) Register(col prometheus.Collector) error {
	if t, ok := col.(*together); ok {
		for _, v := range t.vecs {
			if err := c.Register(v); err != nil {
				return err
			}
		}
		return nil
	}
	descs := make(chan *prometheus.Desc, 64)
	col.Describe(descs)
	close(descs)
	for d := range descs {
		m := descText.FindStringSubmatch(d.String())
		if m == nil {
			return fmt.Errorf("metric %s is not described as expected", d)
		}
		var help string
		if _, err := fmt.Sscanf(m[2], "%q", &help); err != nil {
			return fmt.Errorf("help of %s: %w", m[1], err)
		}
		labels := "–"
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		c.list = append(c.list, metricInfo{name: m[1], kind: kindOf(col), labels: labels, help: help})
	}
	return nil
}

func kindOf(col prometheus.Collector) string {
	switch col.(type) {
	case prometheus.Gauge, *prometheus.GaugeVec:
		return "gauge"
	case prometheus.Histogram, *prometheus.HistogramVec:
		return "histogram"
	case prometheus.Counter, *prometheus.CounterVec:
		return "counter"
	default:
		return "gauge"
	}
}

// MustRegister implements prometheus.Registerer.
func (c *catalogue) MustRegister(cols ...prometheus.Collector) {
	for _, col := range cols {
		if err := c.Register(col); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (c *catalogue) Unregister(prometheus.Collector) bool { return false }
