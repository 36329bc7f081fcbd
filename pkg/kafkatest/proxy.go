package kafkatest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Mode is how a [Proxy] treats its connections.
type Mode int

// The modes of a proxy.
const (
	// Pass forwards.
	Pass Mode = iota + 1
	// Refuse answers new connections with RST and resets live ones: the process behind the address has ended.
	Refuse
	// Drop lets SYNs of new connections go unanswered and freezes live ones: the host is gone.
	Drop
	// Silent accepts new connections and says nothing, and freezes live ones: the process hangs.
	Silent
)

// String is the mode's name in messages.
func (m Mode) String() string {
	switch m {
	case Pass:
		return "pass"
	case Refuse:
		return "refuse"
	case Drop:
		return "drop"
	case Silent:
		return "silent"
	default:
		return "mode " + strconv.Itoa(int(m))
	}
}

// Proxy is a TCP proxy on a loopback port of its own, which it holds in every mode. Frozen connections that were not closed go on where they
// were when the mode becomes Pass again. Only IPv4 loopback.
type Proxy struct {
	port   int
	target string

	mu     sync.Mutex
	mode   Mode
	ln     net.Listener  // in Pass and Silent
	hold   *boundSocket  // in Refuse and Drop
	thawed chan struct{} // closed while the mode is Pass
	links  map[*link]struct{}
	closed bool
	dials  int

	wg sync.WaitGroup // accept loops and links
}

// link is one proxied connection.
type link struct {
	client net.Conn
	mu     sync.Mutex
	server net.Conn // nil until dialled
	closed chan struct{}
	once   sync.Once
}

// portPatience is far above the time between a fork and its exec.
const portPatience = 2 * time.Second

// NewProxy opens a proxy in mode Pass in front of a TCP address, which need not listen yet.
func NewProxy(target string) (*Proxy, error) {
	for tries := 0; ; tries++ {
		ports, err := freePorts(1)
		if err != nil {
			return nil, err
		}
		p := &Proxy{port: ports[0], target: target, thawed: make(chan struct{}), links: map[*link]struct{}{}}
		err = p.Set(Pass)
		if err == nil {
			return p, nil
		}
		if tries == 20 || !errors.Is(err, syscall.EADDRINUSE) { // another process may take a port between the look and the bind
			return nil, err
		}
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr is the host:port clients connect to.
func (p *Proxy) Addr() string { return loopback(p.port) }

// Accepted is the number of connections accepted so far, in all modes that accept.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// Set changes the mode. When it returns, new connections are treated the new way; what was already on its way through the proxy may
// still arrive.
func (p *Proxy) Set(m Mode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if p.mode == m {
		return nil
	}
	if err := p.listen(m); err != nil {
		return fmt.Errorf("proxy %s: %s: %w", p.Addr(), m, err)
	}
	switch {
	case m == Pass:
		close(p.thawed)
	case p.mode == Pass:
		p.thawed = make(chan struct{})
	}
	p.mode = m
	if m == Refuse {
		p.cut()
	}
	return nil
}

// listen gives the port the socket that the mode needs.
func (p *Proxy) listen(m Mode) error {
	if accepts(m) && p.ln != nil {
		return nil
	}
	p.release()
	// A process that is being started holds copies of this one's sockets until its exec, also of the one just released.
	for end := time.Now().Add(portPatience); ; time.Sleep(time.Millisecond) {
		err := p.bind(m)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return err
		}
	}
}

func accepts(m Mode) bool { return m == Pass || m == Silent }

func (p *Proxy) bind(m Mode) (err error) {
	switch {
	case accepts(m):
		if p.ln, err = net.Listen("tcp", p.Addr()); err == nil {
			ln := p.ln
			p.wg.Go(func() { p.accept(ln) })
		}
	case m == Refuse:
		p.hold, err = refuseOn(p.port)
	default:
		p.hold, err = dropOn(p.port)
	}
	return err
}

// release gives up the socket of the current mode.
func (p *Proxy) release() {
	if p.ln != nil {
		_ = p.ln.Close()
		p.ln = nil
	}
	if p.hold != nil {
		_ = p.hold.Close()
		p.hold = nil
	}
}

// Cut resets all live connections, in any mode.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	for l := range p.links {
		l.reset()
	}
}

// Close gives up the port, resets all connections and waits for the proxy's goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.release()
	p.cut()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return // closed
		}
		l := &link{client: conn, closed: make(chan struct{})}
		p.mu.Lock()
		if p.closed || p.ln != ln {
			p.mu.Unlock()
			l.reset()
			return
		}
		p.dials++
		p.links[l] = struct{}{}
		p.wg.Go(func() { p.serve(l) })
		p.mu.Unlock()
	}
}

// serve connects a link and copies both ways until either side ends.
func (p *Proxy) serve(l *link) {
	defer func() {
		l.reset()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	if !p.gate(l) {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil || !l.connect(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(l, server, l.client) })
	wg.Go(func() { p.copy(l, l.client, server) })
	wg.Wait()
}

// gate blocks while the proxy is frozen; false means the link was closed meanwhile.
func (p *Proxy) gate(l *link) bool {
	p.mu.Lock()
	thawed := p.thawed
	p.mu.Unlock()
	select {
	case <-l.closed:
		return false
	case <-thawed:
		return true
	}
}

// copy forwards one direction. Its end ends the whole link: Kafka clients and brokers never close only one half.
func (p *Proxy) copy(l *link, dst io.Writer, src io.Reader) {
	defer l.close()
	buf := make([]byte, 64<<10)
	for {
		n, rerr := src.Read(buf)
		if !p.gate(l) {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil || rerr != nil {
			return
		}
	}
}

// connect gives the link its other side; false means the link was closed meanwhile.
func (l *link) connect(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		_ = server.Close()
		return false
	default:
		l.server = server
		return true
	}
}

// close closes both sides in order: what was written before still arrives.
func (l *link) close() { l.end(-1) }

// reset closes both sides with RST.
func (l *link) reset() { l.end(0) }

func (l *link) end(linger int) {
	l.once.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.closed)
		for _, c := range []net.Conn{l.client, l.server} {
			if c == nil {
				continue
			}
			if tcp, ok := c.(*net.TCPConn); ok && linger >= 0 {
				_ = tcp.SetLinger(linger)
			}
			_ = c.Close()
		}
	})
}
