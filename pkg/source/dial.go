package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dialFunc is what kgo.Dialer takes.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer keeps one broker that says nothing from holding up what only happens to ask it. The client's requests to a broker wait for each
// other, each dials again for the whole dial timeout, and the metadata loop waits among them (franz-go 1.22.3: broker.handleReqs): after a
// dial that ran into its timeout the next ones fail at once for a moment. A leader that let a fetch run into its deadline is silent on its
// other connections as well: they are closed, so that nothing waits there for a deadline of its own. It is one client's.
type dialer struct {
	dial dialFunc

	mu     sync.Mutex
	failed map[string]slowDial   // by address
	open   map[string][]net.Conn // by address
}

type slowDial struct {
	until time.Time
	err   error
}

const (
	dialTimeout = 3 * time.Second
	// slowDialAfter tells a dial that cost others time from one that was refused.
	slowDialAfter = 500 * time.Millisecond
	// dialPause is short: a broker that comes back is found as late as that.
	dialPause = 2 * time.Second
)

func newDialer(dial dialFunc) *dialer {
	return &dialer{dial: dial, failed: make(map[string]slowDial), open: make(map[string][]net.Conn)}
}

// dialOf takes the dialer that the security options have, or that the client makes from their TLS configuration.
func dialOf(security []kgo.Opt) (dialFunc, error) {
	cl, err := kgo.NewClient(append(slices.Clone(security), kgo.DialTimeout(dialTimeout), kgo.DisableClientMetrics())...)
	if err != nil {
		return nil, fmt.Errorf("security: %w", err)
	}
	defer cl.Close()
	dial, ok := cl.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	if !ok {
		return nil, errors.New("security: no dialer")
	}
	return dial, nil
}

// options replace what the security options say of dialling.
func (d *dialer) options() []kgo.Opt {
	return []kgo.Opt{kgo.DialTLSConfig(nil), kgo.Dialer(d.DialContext), kgo.WithHooks(d)}
}

// DialContext dials, or fails with what the last dial failed with.
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	begun := time.Now()
	d.mu.Lock()
	last, ok := d.failed[addr]
	d.mu.Unlock()
	if ok && begun.Before(last.until) {
		return nil, fmt.Errorf("dialled a moment ago: %w", last.err)
	}
	conn, err := d.dial(ctx, network, addr)
	err = retriable(err)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.failed, addr)
	if err != nil && !errors.Is(err, context.Canceled) && now.Sub(begun) > slowDialAfter {
		d.failed[addr] = slowDial{now.Add(dialPause), err}
	}
	if err == nil {
		d.open[addr] = append(d.open[addr], conn)
	}
	return conn, err
}

// retriable makes every dial that failed look like one that timed out. The client asks again after those only; after others it asks one more
// broker for a group's coordinator and then gives the group up, at once if a name is unknown, which a pod's is while it restarts: two dead
// brokers that it happens to ask in a row would cost the group's session (franz-go 1.22.3: isRetryableBrokerErr, isPermanentDialErr).
func retriable(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "dial" || op.Timeout() || errors.Is(err, context.Canceled) {
		return err
	}
	like := *op
	like.Err = likeTimeout{op.Err}
	return &like
}

// likeTimeout is an error that says that it is a timeout. What it wraps is not found by errors.As, which the client would heed.
type likeTimeout struct{ cause error }

func (e likeTimeout) Error() string { return e.cause.Error() }
func (likeTimeout) Timeout() bool   { return true }
func (likeTimeout) Temporary() bool { return true }

// OnBrokerDisconnect implements kgo.HookBrokerDisconnect.
func (d *dialer) OnBrokerDisconnect(meta kgo.BrokerMetadata, conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	addr := address(meta)
	d.open[addr] = slices.DeleteFunc(d.open[addr], func(c net.Conn) bool { return c == conn })
	if len(d.open[addr]) == 0 {
		delete(d.open, addr)
	}
}

// cut closes the connections to a broker; the client notices by itself.
func (d *dialer) cut(addr string) {
	d.mu.Lock()
	conns := d.open[addr]
	delete(d.open, addr)
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // broken anyway
	}
}
