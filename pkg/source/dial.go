package source

import (
	"context"
	"encoding/binary"
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
	"github.com/twmb/franz-go/pkg/kmsg"
)

// dialFunc is what kgo.Dialer takes.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer keeps brokers that say nothing from holding up what only happens to ask them. The client's requests to a broker wait for each
// other, each opens the connection again and waits the whole limit for the dial or for the first answer, and the metadata loop waits among
// them (franz-go 1.22.3: broker.handleReqs). So after such a failure the next dials fail at once for a moment, and those after it have to be
// answered sooner. All connections to a broker are closed when one of them waited in vain and none has heard anything lately; a dial that
// failed closes none, since that may be the fault of a resolver or of a full backlog. It is one client's; safe for concurrent use.
type dialer struct {
	dial dialFunc

	mu    sync.Mutex
	peers map[string]*peer // by address
}

// peer is what is known of an address. dialer.mu guards it but for heard.
type peer struct {
	heard atomic.Int64 // when it last said anything, Unix ns
	conns map[*watchedConn]struct{}
	// failures counts the connections that came to nothing since the last first answer on one; lastly at failed with err, and until then it is
	// not dialled.
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
	// hurried is how long a client that closes waits for an answer that it needs to leave the group; patience for any other.
	hurried = 2 * time.Second
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
			d.mu.Lock()
			p.fail(dialPause, err)
			d.mu.Unlock()
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
		maps.DeleteFunc(d.peers, func(_ string, p *peer) bool { return len(p.conns) == 0 && now.Sub(p.failed) > suspectTime })
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

// fail notes a failure. dialer.mu must be held.
func (p *peer) fail(pause time.Duration, err error) {
	now := time.Now()
	p.failed, p.until, p.err = now, now.Add(pause), err
	p.failures++
}

// inVain notes that a connection waited for an answer, first: for its first one, and closes all of the broker's if it says nothing at all;
// the client notices by itself.
func (d *dialer) inVain(p *peer, first bool, err error) {
	silent := time.Since(time.Unix(0, p.heard.Load())) > silentFor
	var conns []*watchedConn
	d.mu.Lock()
	switch {
	case first:
		p.fail(dialPause, err)
	case silent:
		p.fail(0, err) // it may be the requests of this connection only: the next first answer tells
	}
	if silent {
		conns = slices.Collect(maps.Keys(p.conns))
	}
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // broken anyway
	}
}

// hurry closes the connections that wait too long for a client that closes. Requests to a broker wait for each other, so that leaving the
// group may wait behind one that is not answered and not needed any more; the client sends it again.
func (d *dialer) hurry() {
	var conns []*watchedConn
	d.mu.Lock()
	for _, p := range d.peers {
		for c := range p.conns {
			if c.late(time.Now()) {
				conns = append(conns, c)
			}
		}
	}
	d.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// watchedConn is a connection that notices whether the broker answers. The client writes each request as a whole, sets a deadline before it
// reads the answer to each, in their order, and takes it away after (franz-go 1.22.3: brokerCxn.writeConn, readConn).
type watchedConn struct {
	net.Conn
	dialer   *dialer
	peer     *peer
	answerBy time.Time // for the first answer; zero is no limit
	answered atomic.Bool

	// mu guards the rest, a leaf lock. waits is since when the answer to a request of kind key is waited for; zero if none is, or if the
	// client has called the read off. sent are the requests behind it.
	mu    sync.Mutex
	waits time.Time
	key   kmsg.Key
	sent  []kmsg.Key
}

// Write implements net.Conn. The key of a request follows its size (Kafka protocol guide, Request Header).
func (c *watchedConn) Write(b []byte) (int, error) {
	if len(b) >= 6 {
		c.mu.Lock()
		c.sent = append(c.sent, kmsg.Key(binary.BigEndian.Uint16(b[4:]))) //nolint:gosec // keys are below 100
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// SetReadDeadline implements net.Conn. The client interrupts a read by a deadline that has passed.
func (c *watchedConn) SetReadDeadline(t time.Time) error {
	now := time.Now()
	c.mu.Lock()
	c.waits = time.Time{}
	if t.Sub(now) > patience {
		c.waits = now
		if len(c.sent) > 0 {
			c.key, c.sent = c.sent[0], c.sent[1:]
		}
	}
	c.mu.Unlock()
	if !c.answered.Load() && !c.answerBy.IsZero() && t.After(c.answerBy) {
		t = c.answerBy
	}
	return c.Conn.SetReadDeadline(t)
}

// waiting reports since when an answer is waited for and to what kind of request.
func (c *watchedConn) waiting() (time.Time, kmsg.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits, c.key
}

// late reports whether an answer is waited for longer than a client that closes may.
func (c *watchedConn) late(now time.Time) bool {
	since, key := c.waiting()
	limit := patience
	switch key { //nolint:exhaustive // what leaving needs answered, and what opens a connection for it
	case kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate, kmsg.FindCoordinator, kmsg.Heartbeat, kmsg.OffsetCommit,
		kmsg.LeaveGroup, kmsg.ConsumerGroupHeartbeat:
		limit = hurried
	}
	return !since.IsZero() && now.Sub(since) > limit
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.peer.heard.Store(time.Now().UnixNano())
		if c.answered.CompareAndSwap(false, true) {
			c.dialer.mu.Lock()
			c.peer.failures = 0
			c.dialer.mu.Unlock()
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if since, _ := c.waiting(); !since.IsZero() {
			c.dialer.inVain(c.peer, !c.answered.Load(), err)
		}
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
