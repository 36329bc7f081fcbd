package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// Fixed by design, not by setting.
const (
	// hedge is how long one try may take before the next broker is asked as well.
	hedge = 250 * time.Millisecond
	// firstHedge is the same at start-up, when nothing is known about any broker and somebody waits for the answer.
	firstHedge = 100 * time.Millisecond
	// maxInFlight bounds the tries of one round at the same time.
	maxInFlight = 16
	// confirmAfter is the delay of a round that may confirm a suspicion, and the least time between rounds that were asked for; both at
	// most the interval.
	confirmAfter = 2 * time.Second
	// jitter is the share by which delays vary, so that workers do not ask in step.
	jitter = 0.2
)

// Config of a [Discoverer]. Seeds and one of Topics and Pattern are required; the zero value of everything else is a default.
type Config struct {
	// Seeds are the configured brokers, host:port; 9092 is the default port. Names are resolved again every round and each of their addresses is
	// a candidate of its own, unless Security brings a dialer, whose business names then are.
	Seeds []string
	// Topics are the names to look for. All must exist at start-up.
	Topics []string
	// Pattern selects topics by name instead, unanchored as in Go. Internal topics never match.
	Pattern *regexp.Regexp
	// Exclude takes topics away from either; names, or expressions between slashes, unanchored.
	Exclude []string

	// Interval is the time between rounds, ± 20 %; 30 s.
	Interval time.Duration
	// Timeout bounds a whole round; 10 s. It must be longer than RequestTimeout.
	Timeout time.Duration
	// RequestTimeout bounds the try of one broker, connecting and asking together; 3 s. At least 100 ms.
	RequestTimeout time.Duration
	// BreakerFailures is how many failed rounds in a row open the breaker; 3.
	BreakerFailures int
	// BreakerCooldown is how long an open breaker waits before one round probes again; 30 s.
	BreakerCooldown time.Duration
	// GoneConfirmations is how many rounds must agree before something is believed gone or re-created, and how many must refuse before
	// start-up gives up; 3.
	GoneConfirmations int

	// ClusterID is the only cluster to believe. Empty: the cluster of the first good answer.
	ClusterID string
	// Security are the client options that reach a broker: TLS, SASL, a dialer. They are used by several clients at once, one after the other.
	Security []kgo.Opt
	// ClientID is sent with requests; "rollcall-discovery".
	ClientID string
	// Resolve looks up the addresses of a host name; the system's resolver if nil. Called from several goroutines at once.
	Resolve func(ctx context.Context, host string) ([]string, error)

	Log     *zap.Logger // nil: no logs
	Metrics *Metrics    // nil: unregistered
}

// settled is a Config with its defaults filled in, checked, and its parsed parts.
type settled struct {
	Config
	seeds   []hostPort
	exclude []func(topic string) bool
}

type hostPort struct {
	host string
	port string
}

func (hp hostPort) addr() string { return net.JoinHostPort(hp.host, hp.port) }

// settle returns all problems of the configuration at once.
func (c Config) settle() (*settled, error) {
	s := &settled{Config: c.withDefaults()}
	errs := s.checkTimes()
	if len(c.Seeds) == 0 {
		errs = append(errs, errors.New("no seed brokers"))
	}
	for _, seed := range c.Seeds {
		hp, err := parseSeed(seed)
		if err != nil {
			errs = append(errs, fmt.Errorf("seed broker %q: %w", seed, err))
			continue
		}
		if !slices.Contains(s.seeds, hp) {
			s.seeds = append(s.seeds, hp)
		}
	}
	for _, x := range c.Exclude {
		f, err := parseExclude(x)
		if err != nil {
			errs = append(errs, fmt.Errorf("exclude %q: %w", x, err))
			continue
		}
		s.exclude = append(s.exclude, f)
	}
	s.Topics = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(c.Topics))), s.excluded)
	switch {
	case c.Pattern != nil && len(c.Topics) > 0:
		errs = append(errs, errors.New("topics and a pattern exclude each other"))
	case c.Pattern == nil && len(c.Topics) == 0:
		errs = append(errs, errors.New("neither topics nor a pattern"))
	case c.Pattern == nil && len(s.Topics) == 0:
		errs = append(errs, errors.New("all topics are excluded"))
	}
	if err := kgo.ValidateOpts(c.Security...); err != nil {
		errs = append(errs, fmt.Errorf("security: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return s, nil
}

func (c Config) withDefaults() Config {
	setDefault(&c.Interval, 30*time.Second)
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.RequestTimeout, 3*time.Second)
	setDefault(&c.BreakerFailures, 3)
	setDefault(&c.BreakerCooldown, 30*time.Second)
	setDefault(&c.GoneConfirmations, 3)
	setDefault(&c.ClientID, "rollcall-discovery")
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupHost
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (s *settled) checkTimes() []error {
	var errs []error
	for name, d := range map[string]time.Duration{
		"interval": s.Interval, "timeout": s.Timeout, "request timeout": s.RequestTimeout, "breaker cooldown": s.BreakerCooldown,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s %s is negative", name, d))
		}
	}
	if s.RequestTimeout < 100*time.Millisecond || s.RequestTimeout > 15*time.Minute { // kgo's own bounds
		errs = append(errs, fmt.Errorf("request timeout %s is not between 100ms and 15m", s.RequestTimeout))
	}
	if s.Timeout <= s.RequestTimeout {
		errs = append(errs, fmt.Errorf("timeout %s must be longer than request timeout %s", s.Timeout, s.RequestTimeout))
	}
	if s.BreakerFailures < 0 || s.GoneConfirmations < 0 {
		errs = append(errs, errors.New("breaker failures and confirmations must be positive"))
	}
	return errs
}

// parseSeed accepts host, host:port, [v6] and [v6]:port.
func parseSeed(seed string) (hostPort, error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		host, port = strings.Trim(seed, "[]"), "9092"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return hostPort{}, fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	if host == "" || strings.ContainsAny(host, " /") || (strings.Contains(host, ":") && net.ParseIP(host) == nil) {
		return hostPort{}, errors.New("want host:port")
	}
	return hostPort{host: host, port: port}, nil
}

func parseExclude(x string) (func(string) bool, error) {
	if len(x) < 2 || x[0] != '/' || x[len(x)-1] != '/' {
		return func(topic string) bool { return topic == x }, nil
	}
	re, err := regexp.Compile(x[1 : len(x)-1])
	if err != nil {
		return nil, err
	}
	return re.MatchString, nil
}

func (s *settled) excluded(topic string) bool {
	return slices.ContainsFunc(s.exclude, func(f func(string) bool) bool { return f(topic) })
}

// wants says whether a topic of an answer is ours.
func (s *settled) wants(topic string, internal bool) bool {
	if internal || s.excluded(topic) {
		return false
	}
	if s.Pattern != nil {
		return s.Pattern.MatchString(topic)
	}
	return slices.Contains(s.Topics, topic)
}
