package source

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// The group protocols.
const (
	// ProtocolClassic is the group protocol every broker speaks, with the cooperative-sticky balancer.
	ProtocolClassic = "classic"
	// ProtocolConsumer is KIP-848, where the broker assigns. Brokers before 4.3 may refuse commits during a rebalance (KIP-1251).
	ProtocolConsumer = "consumer"
)

// The isolation levels.
const (
	IsolationReadCommitted   = "read_committed"
	IsolationReadUncommitted = "read_uncommitted"
)

// Config is what a Source needs. The zero value of a field means its default, where one is named.
type Config struct {
	// Seeds are broker addresses, those that discovery found first.
	Seeds []string
	// Group is the consumer group.
	Group string
	// Topics are the topics by name. Either these or Pattern.
	Topics []string
	// Pattern selects topics by name, un-anchored as regexp.MatchString; internal topics never match.
	Pattern *regexp.Regexp
	// Exclude are regular expressions, un-anchored, for topics that Pattern must not select; without a Pattern they do nothing.
	Exclude []string
	// Protocol is ProtocolClassic (default) or ProtocolConsumer.
	Protocol string
	// SessionTimeout is how long a worker that vanished keeps its partitions; 12 s by default.
	SessionTimeout time.Duration
	// InstanceID makes the member static: it does not leave the group when it stops, and its partitions wait for it. Only where names are
	// stable.
	InstanceID string
	// Isolation is IsolationReadCommitted (default) or IsolationReadUncommitted.
	Isolation string
	// ClientID is what brokers log; "rollcall" by default.
	ClientID string
	// Security are the options from SecurityOptions, or a dialer.
	Security []kgo.Opt
	// Principal is who we log in as, for the message when that is refused.
	Principal string
	// MaxPollRecords bounds one hand-over over all partitions; 10000 by default.
	MaxPollRecords int
	// FetchMaxBytes and FetchMaxPartitionBytes bound one fetch of one broker, as far as batches grow no more than lately when they are unpacked;
	// 4 MiB and 512 KiB by default. A fetch is unpacked whole, so these decide how much memory reading takes.
	FetchMaxBytes, FetchMaxPartitionBytes int32
	// FetchMaxWait is how long a broker may wait for records; 1 s by default. Resuming a partition may take as long.
	FetchMaxWait time.Duration
	// MaxConcurrentFetches bounds the fetches not yet handed over; by default one per broker.
	MaxConcurrentFetches int
	// Pace, if set, is called between two polls, when rebalances may go on, and may hold the next one back for a moment (≤ 50 ms) while the
	// handler has enough to do. It is cheaper than Pause, which throws away what was fetched already.
	Pace func(ctx context.Context)
	// RevokeTimeout bounds Handler.Revoked; 3 s by default.
	RevokeTimeout time.Duration
	// CloseTimeout bounds leaving the group and closing the client, RevokeTimeout included; 8 s by default.
	CloseTimeout time.Duration
	// CommitTimeout bounds one Commit, whatever its context says; 10 s by default.
	CommitTimeout time.Duration
	// StallTimeout is how long a partition with records to read may deliver none before the client is replaced; 60 s by default.
	StallTimeout time.Duration
	// Log gets one line per transition; none by default.
	Log *zap.Logger
	// Metrics by default are unregistered.
	Metrics *Metrics
	// Hooks makes the hooks of one client, for kprom; it is called for each client anew, since the one before may still be closing.
	Hooks func() []kgo.Hook
}

const mib = 1 << 20

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// withDefaults fills what is not set.
func (c Config) withDefaults() Config {
	orDefault(&c.Protocol, ProtocolClassic)
	orDefault(&c.SessionTimeout, 12*time.Second)
	orDefault(&c.Isolation, IsolationReadCommitted)
	orDefault(&c.ClientID, "rollcall")
	orDefault(&c.MaxPollRecords, 10000)
	orDefault(&c.FetchMaxBytes, 4*mib)
	orDefault(&c.FetchMaxPartitionBytes, mib/2)
	orDefault(&c.FetchMaxWait, time.Second)
	orDefault(&c.RevokeTimeout, 3*time.Second)
	orDefault(&c.CloseTimeout, 8*time.Second)
	orDefault(&c.CommitTimeout, 10*time.Second)
	orDefault(&c.StallTimeout, time.Minute)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c
}

// validate says everything that is wrong with c at once. It is called after withDefaults.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Seeds) == 0 {
		bad("no seed brokers")
	}
	if c.Group == "" {
		bad("no consumer group")
	}
	if (len(c.Topics) > 0) == (c.Pattern != nil) {
		bad("topics: either names or one pattern")
	}
	for _, e := range c.Exclude {
		if _, err := regexp.Compile(e); err != nil {
			bad("topics to exclude: %w", err)
		}
	}
	if c.Protocol != ProtocolClassic && c.Protocol != ProtocolConsumer {
		bad("group protocol %q: want %s or %s", c.Protocol, ProtocolClassic, ProtocolConsumer)
	}
	if c.Isolation != IsolationReadCommitted && c.Isolation != IsolationReadUncommitted {
		bad("isolation %q: want %s or %s", c.Isolation, IsolationReadCommitted, IsolationReadUncommitted)
	}
	if c.RevokeTimeout >= c.CloseTimeout {
		bad("revoke timeout %s must be shorter than the close timeout %s", c.RevokeTimeout, c.CloseTimeout)
	}
	return errors.Join(errs...)
}

// readCommitted reports whether the last stable offset is the end.
func (c Config) readCommitted() bool { return c.Isolation == IsolationReadCommitted }

// isolationLevel is the level as requests carry it.
func (c Config) isolationLevel() int8 {
	if c.readCommitted() {
		return 1
	}
	return 0
}
