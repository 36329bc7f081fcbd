package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
)

// Defaults of Config.
const (
	defaultSealTimeout    = time.Second
	defaultAttemptTimeout = 25 * time.Second
	defaultPollLimit      = 30 * time.Second
)

// Config is what a Flusher needs besides its Target.
type Config struct {
	// Interval is the time from the start of one load to the start of the next (FLUSH_INTERVAL). Overload widens it, up to ten times or
	// five minutes. Required.
	Interval time.Duration
	// MaxBytes bounds the encoded body of a load (FLUSH_MAX_BYTES). Only the totals of a single source may exceed it. Required.
	MaxBytes int64
	// LabelPrefix is unique to this start of this worker ("<worker>-<random per start>"); labels are the prefix, "-" and a counter. Required.
	LabelPrefix string
	// Measures are those of the rows, in order; they say how rows merge.
	Measures []aggregate.Measure
	// Seal asks all owners to seal and Offer now and returns when they did or ctx is done. It is called from Run's goroutine before a
	// load is composed at an interval or for a Request, never for a Flush or Close. Nil means nobody.
	Seal func(ctx context.Context)
	// SealTimeout bounds one call of Seal; 1 s if 0.
	SealTimeout time.Duration
	// Hold is asked before every attempt: an error means that the table is not as expected and nothing may be loaded into it now. The load
	// waits and the error is shown (BlockTable). It must not block. Nil means never.
	Hold func() error
	// AttemptTimeout is the longest a Target.Load takes (a little above LOAD_TIMEOUT); 25 s if 0.
	AttemptTimeout time.Duration
	// PollLimit is how long a label may stay PREPARE or PREPARED before its body is sent again; about the load timeout, 30 s if 0.
	PollLimit time.Duration
	// Log is required in production; nil is silent.
	Log *zap.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// Tracer makes a span per load; nil while traces are off.
	Tracer trace.Tracer
}

// validate reports every problem at once and fills the defaults in.
func (c *Config) validate() error {
	var errs []error
	if c.Interval <= 0 {
		errs = append(errs, fmt.Errorf("flush interval %v: must be above 0", c.Interval))
	}
	if c.MaxBytes <= 0 {
		errs = append(errs, fmt.Errorf("flush size %d: must be above 0", c.MaxBytes))
	}
	if c.LabelPrefix == "" {
		errs = append(errs, errors.New("label prefix: must not be empty, or labels of two workers collide"))
	}
	if c.SealTimeout == 0 {
		c.SealTimeout = defaultSealTimeout
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = defaultAttemptTimeout
	}
	if c.PollLimit == 0 {
		c.PollLimit = defaultPollLimit
	}
	if c.SealTimeout < 0 || c.AttemptTimeout < 0 || c.PollLimit < 0 {
		errs = append(errs, errors.New("seal, attempt and poll time limits: must not be negative"))
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if len(errs) > 0 {
		return fmt.Errorf("flusher: %w", errors.Join(errs...))
	}
	return nil
}
