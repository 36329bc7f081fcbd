package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dialFunc is what kgo.Dialer takes.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer keeps brokers that say nothing from holding up what only happens to ask them. The client's requests to a broker wait for each
// other, each opens the connection again and waits the whole limit for the dial or for the first answer, and the metadata loop waits among
// them (franz-go 1.22.3: broker.handleReqs). So after such a failure the next dials fail at once for a moment, those after it have to be
// answered sooner, and all connections to a broker are closed when one of them waited in vain and none has heard anything lately. It is one
// client's; safe for concurrent use.
type dialer struct {
	dial dialFunc

	mu    sync.Mutex
	peers map[string]*peer // by address
}

// peer is what is known of an address. dialer.mu guards it but for heard.
type peer struct {
	heard atomic.Int64 // when it last said anything, Unix ns
	conns map[*watchedConn]struct{}
	// failures counts those since the last first answer; lastly at failed with err, and until then it is not dialled.
	failures      int
	failed, until time.Time
	err           error
}

const (
	dialTimeout = 3 * time.Second
	// patience tells waiting that cost others time from a dial that was refused or a read that was called off.
	patience = 500 * time.Millisecond
	// silentFor is for how long a broker said nothing at all when a read in vain is taken for more than one request that takes long.
	silentFor = 3 * time.Second
	// dialPause is short: a broker that comes back is found as late as that.
	dialPause = 2 * time.Second
	// suspectLimit is for the dial and the first answer of a broker that was silent within suspectTime. Every suspectTurn-th attempt
	// has the usual limits, so that one that is only slow is found in the end.
	suspectLimit = 1500 * time.Millisecond
	suspectTime  = 30 * time.Second
	suspectTurn  = 4
)

func newDialer(dial dialFunc) *dialer { return &dialer{dial: dial, peers: make(map[string]*peer)} }

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
	return []kgo.Opt{kgo.DialTLSConfig(nil), kgo.Dialer(d.DialContext)}
}

// DialContext dials, or fails with what the last dial failed with.
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	begun := time.Now()
	p, limit, err := d.peer(addr, begun)
	if err != nil {
		return nil, err
	}
	limited := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	conn, err := d.dial(limited, network, addr)
	if err != nil {
		err = retriable(err)
		if ctx.Err() == nil && time.Since(begun) > patience {
			d.silent(p, dialPause, err)
		}
		return nil, err
	}
	c := &watchedConn{Conn: conn, dialer: d, peer: p}
	if limit > 0 {
		c.answerBy = begun.Add(limit)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.conns[c] = struct{}{}
	return c, nil
}

// peer is an address with the time it has for the dial and its first answer, 0 for the usual limits; an error means not to dial now.
func (d *dialer) peer(addr string, now time.Time) (*peer, time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers[addr]
	if p == nil {
		p = &peer{conns: make(map[*watchedConn]struct{})}
		d.peers[addr] = p
	}
	switch {
	case now.Before(p.until):
		return p, 0, fmt.Errorf("silent a moment ago: %w", p.err)
	case p.failures%suspectTurn == 0 || now.Sub(p.failed) > suspectTime:
		return p, 0, nil
	default:
		return p, suspectLimit, nil
	}
}

// silent closes the connections to a broker that said nothing, and keeps it from being dialled for a pause; the client notices by itself.
func (d *dialer) silent(p *peer, pause time.Duration, err error) {
	d.mu.Lock()
	now := time.Now()
	p.failed, p.until, p.err = now, now.Add(pause), err
	p.failures++
	conns := slices.Collect(maps.Keys(p.conns))
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // broken anyway
	}
}

// cutWaiting closes the connections that have waited for an answer for so long.
func (d *dialer) cutWaiting(long time.Duration) {
	before := time.Now().Add(-long).UnixNano()
	var conns []*watchedConn
	d.mu.Lock()
	for _, p := range d.peers {
		for c := range p.conns {
			if since := c.waits.Load(); since > 0 && since < before {
				conns = append(conns, c)
			}
		}
	}
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// watchedConn is a connection that notices whether the broker answers. The client reads from one goroutine at a time and sets a deadline before.
type watchedConn struct {
	net.Conn
	dialer   *dialer
	peer     *peer
	answerBy time.Time // for the first answer; zero is no limit
	answered atomic.Bool
	waits    atomic.Int64 // since when an answer is waited for, Unix ns; 0 if not, or if the client has called the read off
}

// SetReadDeadline implements net.Conn. The client interrupts a read by a deadline that has passed.
func (c *watchedConn) SetReadDeadline(t time.Time) error {
	now := time.Now()
	if t.Sub(now) > patience {
		c.waits.Store(now.UnixNano())
	} else {
		c.waits.Store(0)
	}
	if !c.answered.Load() && !c.answerBy.IsZero() && t.After(c.answerBy) {
		t = c.answerBy
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	now := time.Now()
	if n > 0 {
		c.peer.heard.Store(now.UnixNano())
		if c.answered.CompareAndSwap(false, true) {
			c.dialer.mu.Lock()
			c.peer.failures = 0
			c.dialer.mu.Unlock()
		}
	}
	if c.waits.Load() > 0 && errors.Is(err, os.ErrDeadlineExceeded) && now.Sub(time.Unix(0, c.peer.heard.Load())) > silentFor {
		pause := dialPause
		if c.answered.Load() {
			pause = 0 // it may be the requests of this connection only: the next first answer tells
		}
		c.dialer.silent(c.peer, pause, err)
	}
	return n, err
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.peer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
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
