package pipeline

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// replacing is a registerer for collectors that come back: the Kafka client's, when the client is replaced while the one before is still
// closing. The newest registration of a name counts, and the late farewell of an older one does not take it away.
type replacing struct {
	reg prometheus.Registerer

	mu   sync.Mutex
	ours map[prometheus.Collector]bool
}

// Register implements prometheus.Registerer.
func (r *replacing) Register(c prometheus.Collector) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.reg.Register(c)
	if old, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		r.reg.Unregister(old.ExistingCollector)
		delete(r.ours, old.ExistingCollector)
		err = r.reg.Register(c)
	}
	if err == nil {
		if r.ours == nil {
			r.ours = map[prometheus.Collector]bool{}
		}
		r.ours[c] = true
	}
	return err
}

// MustRegister implements prometheus.Registerer. What cannot be registered is a bug of the client's metrics and costs only them.
func (r *replacing) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = r.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (r *replacing) Unregister(c prometheus.Collector) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ours[c] {
		return false
	}
	delete(r.ours, c)
	return r.reg.Unregister(c)
}
