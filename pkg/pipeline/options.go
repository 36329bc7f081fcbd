package pipeline

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"rollcall/config"
	"rollcall/pkg/aggregate"
	"rollcall/pkg/checkpoint"
)

// Options is what a Worker needs besides its settings.
type Options struct {
	// Config is checked settings. Required.
	Config *config.Config
	// Log is required.
	Log *zap.Logger
	// Registry receives all metrics and is served at /metrics. Required.
	Registry *prometheus.Registry
	// Version is shown on the status page.
	Version string
	// ReadFile reads TLS files; os.ReadFile.
	ReadFile func(string) ([]byte, error)
	// Dial connects to Kafka and StarRocks; nil: a plain net.Dialer. For tests on a virtual network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Tracer makes spans of loads and restores; nil while traces are off.
	Tracer trace.Tracer
	// Listen opens the HTTP port; nil: net.Listen.
	Listen func(network, addr string) (net.Listener, error)
}

func (o Options) validate() error {
	if o.Config == nil || o.Log == nil || o.Registry == nil || o.ReadFile == nil {
		return errors.New("pipeline: config, log, registry and file reader are required")
	}
	return nil
}

// limits are the numbers that owners and loops use.
type limits struct {
	Options
}

func (l limits) bufferMax() int64    { return int64(l.Config.Load.BufferMaxBytes) }
func (l limits) flushMax() int64     { return int64(l.Config.Load.FlushMaxBytes) }
func (l limits) maxBad() float64     { return l.Config.DeadLetter.MaxRatio }
func (l limits) bounded() bool       { return l.Config.Kafka.Stop.Mode != config.ModeNone }
func (l limits) target() string      { return l.Config.StarRocks.Database + "." + l.Config.StarRocks.Table }
func (l limits) readCommitted() bool { return l.Config.Kafka.Isolation != "read_uncommitted" }

// oldestDay is the first day the table still keeps, if it drops days at all.
func (l limits) oldestDay(now time.Time) (aggregate.Day, bool) {
	n := l.Config.Table.RetentionDays
	if n == 0 {
		return 0, false
	}
	local := now.In(l.Config.Aggregate.TimeZone.Location)
	today := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400
	return aggregate.Day(today - int64(n)), true
}

// policy is what the operator chose for resuming.
func (l limits) policy() checkpoint.Policy {
	p := checkpoint.Policy{
		AllowEmpty:      l.Config.Checkpoint.AllowEmpty,
		ProgramContinue: l.Config.Checkpoint.ProgramChange == "continue",
		NewTopicAdd:     l.Config.Kafka.NewTopic == "add",
	}
	switch l.Config.Kafka.OffsetReset {
	case "earliest":
		p.Reset = checkpoint.ResetEarliest
	case "latest":
		p.Reset = checkpoint.ResetLatest
	default:
		p.Reset = checkpoint.ResetFail
	}
	return p
}
