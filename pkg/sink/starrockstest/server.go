package starrockstest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// server accepts on one address and can be taken down and brought back on the same port.
type server struct {
	host   string // what the listener is bound to and advertised as
	port   int    // 0 until the first start
	listen func(network, address string) (net.Listener, error)
	serve  func(conn net.Conn) // returns when the connection is over
	count  func()

	mu         sync.Mutex
	ln         net.Listener
	hole       []io.Closer // a listener that never accepts and what fills its queue
	conns      map[net.Conn]struct{}
	wg         sync.WaitGroup
	advertised string
}

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ln != nil {
		return nil
	}
	s.closeHole()
	ln, err := s.listen("tcp", fmt.Sprintf("%s:%d", s.host, s.port))
	if err != nil {
		return fmt.Errorf("listen on %s:%d: %w", s.host, s.port, err)
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		s.port = a.Port
	}
	if s.advertised == "" { // Later starts keep it: others read it without the lock.
		s.advertised = fmt.Sprintf("%s:%d", s.host, s.port)
	}
	s.ln, s.conns = ln, map[net.Conn]struct{}{}
	s.wg.Go(func() { s.accept(ln) })
	return nil
}

func (s *server) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.ln != ln {
			s.mu.Unlock()
			conn.Close() //nolint:errcheck // refused
			return
		}
		s.conns[conn] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		if s.count != nil {
			s.count()
		}
		go func() {
			defer s.wg.Done()
			s.serve(conn)
			conn.Close() //nolint:errcheck // usually closed already
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		}()
	}
}

// cut closes the open connections only.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		conn.Close() //nolint:errcheck // nothing to do about it
	}
}

// blackhole keeps the port and answers nothing on it.
func (s *server) blackhole() error {
	s.stop()
	ln, err := s.listen("tcp", fmt.Sprintf("%s:%d", s.host, s.port))
	if err != nil {
		return fmt.Errorf("black hole on %s:%d: %w", s.host, s.port, err)
	}
	hole := []io.Closer{ln}
	filler, err := narrow(ln)
	if filler != nil {
		hole = append(hole, filler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hole = hole
	return err
}

func (s *server) closeHole() {
	for _, c := range s.hole {
		c.Close() //nolint:errcheck // it only took up the port
	}
	s.hole = nil
}

// stop closes the listener and every connection and waits for their goroutines.
func (s *server) stop() {
	s.mu.Lock()
	ln := s.ln
	s.ln = nil
	s.closeHole()
	if ln != nil {
		ln.Close() //nolint:errcheck // nothing to do about it
	}
	for conn := range s.conns {
		conn.Close() //nolint:errcheck // see above
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// url is the base address; a virtual network's listener keeps the configured port.
func (s *server) url() string { return "http://" + strings.TrimSpace(s.advertised) }
