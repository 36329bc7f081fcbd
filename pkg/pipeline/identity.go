package pipeline

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// together collects several vectors as of one moment, so that an identity between them holds at every scrape: whoever changes them does
// it within change. Without it a scrape between two counters of one chunk shows records without outcomes.
type together struct {
	mu   sync.Mutex
	vecs []prometheus.Collector
}

// change runs f while no scrape looks.
func (t *together) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// Describe implements prometheus.Collector.
func (t *together) Describe(out chan<- *prometheus.Desc) {
	for _, v := range t.vecs {
		v.Describe(out)
	}
}

// Collect implements prometheus.Collector. A metric's value is read when it is written, after Collect has returned, so the values of the
// moment are written here and handed on.
func (t *together) Collect(out chan<- prometheus.Metric) {
	for _, m := range t.snapshot() {
		out <- m
	}
}

func (t *together) snapshot() []prometheus.Metric {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []prometheus.Metric
	for _, v := range t.vecs {
		live := make(chan prometheus.Metric)
		go func() { // ends when the vector has given all its series
			defer close(live)
			v.Collect(live)
		}()
		for m := range live {
			f := frozen{desc: m.Desc()}
			f.err = m.Write(&f.value)
			all = append(all, &f)
		}
	}
	return all
}

// frozen is a metric with the value it had.
type frozen struct {
	desc  *prometheus.Desc
	value dto.Metric
	err   error
}

// Desc implements prometheus.Metric.
func (f *frozen) Desc() *prometheus.Desc { return f.desc }

// Write implements prometheus.Metric.
func (f *frozen) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Gauge = f.value.Label, f.value.Counter, f.value.Gauge
	return f.err
}
