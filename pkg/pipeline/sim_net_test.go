package pipeline

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// simNet is a network in memory whose ports can refuse or swallow connections. Each worker dials through a view of its own, so that it can
// be cut off from everything.
type simNet struct {
	kfake.VirtualNetwork
	mu    sync.Mutex
	modes map[string]netMode // by port
	conns map[net.Conn]simConn
	dials map[string]int // attempts, by port
}

type netMode int

const (
	netOpen   netMode = iota
	netRefuse         // dials fail at once, connections are cut
	netHole           // dials hang until their context ends, connections are cut
	netNoName         // names cannot be resolved, connections are cut
)

type simConn struct{ who, port string }

func newSimNet() *simNet {
	return &simNet{modes: map[string]netMode{}, conns: map[net.Conn]simConn{}, dials: map[string]int{}}
}

// dialer is the view of who.
func (n *simNet) dialer(who string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(addr)
		n.mu.Lock()
		mode := max(n.modes[port], n.modes[who])
		n.dials[port]++
		n.mu.Unlock()
		switch mode {
		case netRefuse:
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		case netNoName:
			host, _, _ := net.SplitHostPort(addr)
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
		case netHole:
			// A net.Dialer has its own limit; every client sets it to 3 s.
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		}
		c, err := n.DialContext(ctx, network, addr)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		tc := &trackedConn{Conn: c, net: n}
		n.mu.Lock()
		n.conns[tc] = simConn{who, port}
		n.mu.Unlock()
		return tc, nil
	}
}

type trackedConn struct {
	net.Conn
	net *simNet
}

func (c *trackedConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// set puts ports or names in a mode; what is open to or from them is cut unless the mode is netOpen.
func (n *simNet) set(mode netMode, names ...string) {
	n.mu.Lock()
	var cut []net.Conn
	for _, name := range names {
		n.modes[name] = mode
		for c, k := range n.conns {
			if mode != netOpen && (k.who == name || k.port == name) {
				cut = append(cut, c)
			}
		}
	}
	n.mu.Unlock()
	for _, c := range cut {
		_ = c.Close()
	}
}

// dialled is how often ports were dialled so far.
func (n *simNet) dialled(ports ...string) (total int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range ports {
		total += n.dials[p]
	}
	return total
}

func kafkaPorts() []string { return []string{"9092", "9093"} }
func rocksPorts() []string { return []string{"8030", "8031", "8040", "9030", "9031"} }
