package admin

import (
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Config says where and how patiently to serve.
type Config struct {
	// Addr is host:port to listen on; the host may be empty, the port 0.
	Addr string
	// Listener is used instead of Addr if set. Run closes it.
	Listener net.Listener
	// AnswerTimeout is how long a question of Deps may take; 0 means 150 ms.
	AnswerTimeout time.Duration
	// StopTimeout is how long requests may take once Run's context has ended;
	// 0 means 2 s.
	StopTimeout time.Duration
	// Log may be nil.
	Log *zap.Logger
}

func (c Config) withDefaults() Config {
	if c.AnswerTimeout <= 0 {
		c.AnswerTimeout = 150 * time.Millisecond
	}
	if c.StopTimeout <= 0 {
		c.StopTimeout = 2 * time.Second
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Deps are the questions the server asks. Each is called from a goroutine of
// the server, one call of each at a time, with a context that ends after
// Config.AnswerTimeout; each must be safe beside everything else the worker
// does. A nil question counts as answered: live, ready, an empty status, no
// metrics. What they return belongs to the server afterwards.
type Deps struct {
	// Live names the loops that have not turned for too long; Heartbeats.Stale
	// is one. It must not look at anything outside the process.
	Live func() []Stale
	// Ready names the checks that fail; none means ready.
	Ready func(ctx context.Context) []Reason
	// Status describes the worker. Ready, Reasons, Headline and Now are filled
	// in by the server.
	Status func(ctx context.Context) (Status, error)
	// Gatherer is what /metrics shows.
	Gatherer prometheus.Gatherer
}
