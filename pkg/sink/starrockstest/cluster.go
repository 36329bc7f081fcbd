package starrockstest

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Cluster is a stand-in StarRocks. All methods may be called from any goroutine.
type Cluster struct {
	cfg    Config
	engine *engine
	faults *faultBook
	fes    []*frontend
	be     *server

	beTxns    map[string]*beTxn // guarded by engine.mu
	errorLogs map[string]string // guarded by engine.mu

	mu     sync.Mutex
	leader int
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New returns a cluster that is not started. It opens nothing.
func New(cfg Config) *Cluster {
	cfg = cfg.withDefaults()
	c := &Cluster{
		cfg: cfg, engine: newEngine(cfg), faults: &faultBook{}, beTxns: map[string]*beTxn{}, errorLogs: map[string]string{}, leader: 1,
	}
	c.engine.sweep = c.sweepTxns
	count := func(name string) func() {
		return func() { c.engine.locked(func() { c.engine.conns[name]++ }) }
	}
	port := func(base, i int) int {
		if base == 0 {
			return 0
		}
		return base + i
	}
	c.be = &server{host: "127.0.0.1", port: cfg.BEPort, listen: cfg.Listen, count: count("be")}
	for i := range cfg.FEs {
		c.fes = append(c.fes, &frontend{
			number: i + 1,
			http:   &server{host: "localhost", port: port(cfg.HTTPPort, i), listen: cfg.Listen, count: count("fe")},
			mysql:  &server{host: "localhost", port: port(cfg.MySQLPort, i), listen: cfg.Listen, count: count("mysql")},
		})
	}
	return c
}

// Start opens the listeners and the clock. After an error nothing is left open.
func (c *Cluster) Start() error {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	if c.cancel != nil {
		c.mu.Unlock()
		cancel()
		return errors.New("starrockstest: the cluster is started already")
	}
	c.cancel = cancel
	c.mu.Unlock()

	c.be.serve = func(conn net.Conn) { serveHTTP(ctx, conn, 0, c.serveBE) }
	for _, f := range c.fes {
		f.http.serve = func(conn net.Conn) { serveHTTP(ctx, conn, f.number, c.serveFE) }
		f.mysql.serve = c.mysqlServe(ctx, f)
	}
	for _, s := range c.servers() {
		if err := s.start(); err != nil {
			c.Close()
			return err
		}
	}
	c.wg.Go(func() { c.engine.clock(ctx) })
	return nil
}

// Close closes every listener and connection, lets what hangs go, and returns when all goroutines have ended. It may be
// called more than once, also on a cluster that was never started.
func (c *Cluster) Close() {
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	for _, s := range c.servers() {
		s.stop()
	}
	c.wg.Wait()
}

func (c *Cluster) servers() []*server {
	all := []*server{c.be}
	for _, f := range c.fes {
		all = append(all, f.http, f.mysql)
	}
	return all
}

// Leader is the number of the leading FE, from 1.
func (c *Cluster) Leader() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}
