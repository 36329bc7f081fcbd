package starrocks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
)

// DialFunc opens a connection; it is net.Dialer.DialContext unless tests put a virtual network in its place.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Defaults and bounds that no setting changes.
const (
	// dialTimeout bounds one TCP connect, so a black hole costs no more than this before the next front end is tried.
	dialTimeout = 3 * time.Second
	// firstHopTimeout bounds the silence of a front end while others have not been tried. A front end answers a load from the header
	// alone, so silence means that it is in trouble (StarRocks: fe LoadAction.java).
	firstHopTimeout = 4 * time.Second
	// downTime is how long a front end that failed is tried only after all others.
	downTime = 30 * time.Second
	// maxRedirects is follower → leader → back end, with room for a proxy or two.
	maxRedirects = 5
	// stateTimeout bounds one State call.
	stateTimeout = 10 * time.Second
	// errorLogTimeout and errorLogBytes bound the excerpt of an error log.
	errorLogTimeout = 2 * time.Second
	errorLogBytes   = 2 << 10
	// defaultMaxResponse is far above any reply StarRocks makes (about 1 KiB).
	defaultMaxResponse = 1 << 20

	defaultLoadTimeout      = 20 * time.Second
	defaultStatementTimeout = 10 * time.Second
	defaultAlterTimeout     = 10 * time.Minute
	defaultAlterPoll        = time.Second
	defaultCompareInterval  = time.Minute
	// recheckInterval is how soon a wrong or unreachable table is looked at again.
	recheckInterval = 5 * time.Second
	// maxConnections bounds the open MySQL connections of one DB; further callers wait.
	maxConnections = 8
)

// Config is what Client needs. It is copied by New.
type Config struct {
	// HTTP lists the front ends' base URLs, http:// or https://, such as http://fe1:8030. Required.
	HTTP []string
	// User and Password are sent with every hop; the password may be empty.
	User, Password string
	// Database and Table name the target.
	Database, Table string
	// Dimensions and Measures are the table's columns, in the order of aggregate.Row.
	Dimensions []aggregate.Dimension
	Measures   []aggregate.Measure
	// LoadTimeout is the server's limit for one load, sent as the timeout header in whole seconds (rounded up); the client's own
	// deadline is a little above it. Default 20 s.
	LoadTimeout time.Duration
	// Compression is how bodies are sent; empty means CompressionNone. A server that cannot read it gets them as they are.
	Compression Compression
	// TLS is used for https front ends and back ends; nil means the system's roots.
	TLS *tls.Config
	// AllowPlainRedirect lets a load go on from an https front end to a plain http node. StarRocks front ends redirect to http
	// whatever the client came by (fe RestBaseAction.redirectTo), so the password and the data then travel in clear text; without
	// it such a redirect is a permanent error.
	AllowPlainRedirect bool
	// MaxResponse is the greatest reply read, in bytes. Default 1 MiB.
	MaxResponse int64
	// DialContext defaults to a net.Dialer.
	DialContext DialFunc
	Log         *zap.Logger
}

func (c Config) withDefaults() Config {
	if c.LoadTimeout <= 0 {
		c.LoadTimeout = defaultLoadTimeout
	}
	if c.MaxResponse <= 0 {
		c.MaxResponse = defaultMaxResponse
	}
	if c.DialContext == nil {
		c.DialContext = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// frontURLs checks the front ends' addresses and names every bad one.
func (c Config) frontURLs() ([]*url.URL, error) {
	if len(c.HTTP) == 0 {
		return nil, errors.New("no HTTP address of a front end")
	}
	var urls []*url.URL
	var errs []error
	for _, s := range c.HTTP {
		u, err := url.Parse(s)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("address %q: %w", s, err))
		case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
			errs = append(errs, fmt.Errorf("address %q: want http://host:port or https://host:port", s))
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			errs = append(errs, fmt.Errorf("address of host %q: user, query and fragment do not belong here", u.Hostname()))
		default:
			urls = append(urls, u)
		}
	}
	return urls, errors.Join(errs...)
}

// seconds is the value of the timeout header.
func (c Config) seconds() int64 { return int64((c.LoadTimeout + time.Second - 1) / time.Second) }

// deadline is the client's limit for one attempt, above the server's so that the server's own verdict can still arrive.
func (c Config) deadline() time.Duration {
	slack := min(max(c.LoadTimeout/4, time.Second), 5*time.Second)
	return time.Duration(c.seconds())*time.Second + slack
}

// Mode says how far Table may go.
type Mode string

// The modes (setting TABLE_MODE).
const (
	// ModeCreate creates what is missing and verifies the rest.
	ModeCreate Mode = "create"
	// ModeVerify changes nothing.
	ModeVerify Mode = "verify"
	// ModeNone does not look.
	ModeNone Mode = "none"
)

// NoView as the name of the view means that there is none.
const NoView = "none"

// TableConfig is what Table needs. It is copied by NewTable.
type TableConfig struct {
	// Mode defaults to ModeCreate.
	Mode Mode
	// Database, Table and View are names, not quoted. An empty View or NoView means no view.
	Database, Table, View string
	Dimensions            []aggregate.Dimension
	Measures              []aggregate.Measure
	// Buckets, Replication and RetentionDays shape a table that is created; 0 leaves the choice to the server.
	Buckets, Replication, RetentionDays int
	// BeforeAlter is asked before columns are added; its error ends the attempt with the table as it was. Nil allows it.
	BeforeAlter func(ctx context.Context) error
	// StatementTimeout bounds every statement. Default 10 s.
	StatementTimeout time.Duration
	// AlterTimeout bounds the wait for one alter job, AlterPoll is how often it is looked at. Defaults 10 min and 1 s.
	AlterTimeout, AlterPoll time.Duration
	// CompareInterval is how often Run compares the table with what is expected. Default 1 min.
	CompareInterval time.Duration
	Log             *zap.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

func (c TableConfig) withDefaults() TableConfig {
	if c.Mode == "" {
		c.Mode = ModeCreate
	}
	if c.View == NoView {
		c.View = ""
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.StatementTimeout, defaultStatementTimeout},
		{&c.AlterTimeout, defaultAlterTimeout},
		{&c.AlterPoll, defaultAlterPoll},
		{&c.CompareInterval, defaultCompareInterval},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c
}

func (c TableConfig) validate() error {
	var errs []error
	if c.Mode != ModeCreate && c.Mode != ModeVerify && c.Mode != ModeNone {
		errs = append(errs, fmt.Errorf("table mode %q: want create, verify or none", c.Mode))
	}
	errs = append(errs, CheckNames(c.Database, c.Table, c.View, c.Dimensions, c.Measures))
	if c.Buckets < 0 || c.Replication < 0 || c.RetentionDays < 0 {
		errs = append(errs, errors.New("buckets, replication and retention must not be negative"))
	}
	return errors.Join(errs...)
}

// DBConfig is what DB needs. It is copied by OpenDB.
type DBConfig struct {
	// Addrs lists the front ends' MySQL addresses, host:port. Required.
	Addrs          []string
	User, Password string
	// TLS nil means plain.
	TLS *tls.Config
	// DialContext defaults to a net.Dialer.
	DialContext DialFunc
	Log         *zap.Logger
}
