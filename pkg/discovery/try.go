package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// candidate is one address to ask.
type candidate struct {
	addr string // host:port
	// serverName is what a TLS certificate must be for, where addr has an address that was looked up for a name.
	serverName string
}

// dialFunc is what kgo.Dialer takes.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// asker asks single brokers. Each try has a client of its own that ends with it: nothing of a hung broker outlives its try, and no try waits
// behind another on a connection.
type asker struct {
	s *settled
	// dial is the dialer of the security options, or the client's own, which does TLS by their configuration.
	dial dialFunc
	// tls is the TLS configuration among the security options, nil if there is none.
	tls *tls.Config
	// expand says that names may be looked up here, since dial is the client's own.
	expand bool
}

func newAsker(s *settled) (*asker, error) {
	security := slices.Clone(s.Security)
	cl, err := kgo.NewClient(append(security, kgo.DialTimeout(s.RequestTimeout), kgo.DisableClientMetrics())...)
	if err != nil {
		return nil, fmt.Errorf("discovery: security: %w", err)
	}
	defer cl.Close()
	a := &asker{s: s}
	a.tls, _ = cl.OptValue(kgo.DialTLSConfig).(*tls.Config)
	dial, ok := cl.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	if !ok {
		return nil, errors.New("discovery: security: no dialer")
	}
	a.dial = dial
	// The client fills in a dialer where none was given. Only a given one excludes a TLS configuration.
	a.expand = kgo.ValidateOpts(append(slices.Clone(s.Security), kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))...) == nil
	return a, nil
}

// ask tries one broker once, within the request timeout. clusterID is the pinned one, empty for any; known are the topics a pattern found
// before: those that are not listed any more are asked for by name, since a list leaves out what we may not see.
func (a *asker) ask(ctx context.Context, c candidate, clusterID string, known []string) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.s.RequestTimeout)
	defer cancel()
	conn := &connecting{asker: a, c: c}
	opts := append(slices.Clone(a.s.Security), kgo.SeedBrokers(c.addr), kgo.ClientID(a.s.ClientID),
		kgo.DialTLSConfig(nil), kgo.Dialer(conn.dial), kgo.RequestTimeoutOverhead(a.s.RequestTimeout), kgo.DisableClientMetrics())
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, &tryError{"client", err}
	}
	defer cl.Close()
	broker := cl.SeedBrokers()[0]

	resp, err := metadata(ctx, broker, a.s.Topics)
	if err != nil {
		return nil, conn.explain(err)
	}
	ans := a.s.parse(c.addr, resp)
	if clusterID != "" && ans.clusterID != clusterID {
		return nil, fmt.Errorf("%w: %q, not %q", ErrOtherCluster, ans.clusterID, clusterID)
	}
	if a.s.Pattern == nil {
		return ans, nil
	}
	unlisted := slices.DeleteFunc(slices.Clone(known), func(t string) bool { _, ok := ans.topics[t]; return ok })
	if len(unlisted) > 0 {
		if resp, err = metadata(ctx, broker, unlisted); err != nil {
			return nil, conn.explain(err)
		}
		a.s.addTopics(ans, resp)
	}
	return ans, nil
}

// metadata asks for topics by name, all if there are none. It never creates a topic.
func metadata(ctx context.Context, b *kgo.Broker, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	kresp, err := b.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := kresp.(*kmsg.MetadataResponse)
	if !ok {
		return nil, fmt.Errorf("answer is a %T", kresp)
	}
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

// connecting is the dialer of one try. It remembers how connecting went: when time runs out, the client only says that it did.
type connecting struct {
	asker *asker
	c     candidate

	mu        sync.Mutex
	connected bool
	err       error
}

func (d *connecting) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.connect(ctx, network, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.connected = d.connected || err == nil
	d.err = err
	return conn, err
}

func (d *connecting) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.asker.tls == nil || d.c.serverName == "" {
		return d.asker.dial(ctx, network, addr)
	}
	// The address was looked up for a name, and the certificate is the name's.
	cfg := d.asker.tls.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = d.c.serverName
	}
	nd := &net.Dialer{Timeout: d.asker.s.RequestTimeout}
	return (&tls.Dialer{NetDialer: nd, Config: cfg}).DialContext(ctx, network, addr)
}

// explain says in which phase a try failed, and classifies.
func (d *connecting) explain(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	phase := "request"
	if !d.connected {
		phase = "connect"
		if d.err != nil {
			err = d.err
		}
	}
	if denied(err) {
		return fmt.Errorf("%w: %w", ErrDenied, &tryError{phase, err})
	}
	return &tryError{phase, err}
}
