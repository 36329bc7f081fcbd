package starrocks

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
)

// DB gives connections to whichever front end answers. Every use opens a connection of its own and closes it: statements are rare, and
// a pooled connection that the server has closed meanwhile cannot then be met. Safe for concurrent use; Close when nobody uses it.
type DB struct {
	addrs    []string
	pools    []*sql.DB
	rotation *rotation
	slots    chan struct{}
	log      *zap.Logger
}

// OpenDB checks cfg and prepares a DB; it connects to nothing.
func OpenDB(cfg DBConfig) (*DB, error) {
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("no MySQL address of a front end")
	}
	if cfg.DialContext == nil {
		cfg.DialContext = (&net.Dialer{}).DialContext
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	d := &DB{addrs: cfg.Addrs, rotation: newRotation(len(cfg.Addrs)), slots: make(chan struct{}, maxConnections), log: cfg.Log}
	var errs []error
	var connectors []driver.Connector
	for _, addr := range cfg.Addrs {
		c, err := newConnector(cfg, addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		connectors = append(connectors, c)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, c := range connectors {
		pool := sql.OpenDB(c)
		pool.SetMaxIdleConns(-1)
		d.pools = append(d.pools, pool)
	}
	return d, nil
}

func newConnector(cfg DBConfig, addr string) (driver.Connector, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return nil, fmt.Errorf("MySQL address %q: want host:port", addr)
	}
	m := mysql.NewConfig()
	m.Net, m.Addr = "tcp", addr
	m.User, m.Passwd = cfg.User, cfg.Password
	// Arguments are put into the text here: prepared statements are not needed and not supported for DDL.
	m.InterpolateParams = true
	m.DialFunc = cfg.DialContext
	m.Logger = &mysql.NopLogger{}
	if cfg.TLS != nil {
		m.TLS = tlsFor(cfg.TLS, host)
	}
	c, err := mysql.NewConnector(m)
	if err != nil {
		return nil, fmt.Errorf("MySQL address %q: %w", addr, err)
	}
	return c, nil
}

func tlsFor(cfg *tls.Config, host string) *tls.Config {
	cfg = cfg.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	return cfg
}

// Close releases everything. No call may follow or be under way.
func (d *DB) Close() error {
	var errs []error
	for _, p := range d.pools {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Query runs f on one connection of one front end and returns f's error. If the connection breaks, f runs again from its start on the
// next front end, each at most once; f must therefore only read, and keep nothing of a run that failed. f bounds its statements with
// the context it closes over; connecting is bounded here (3 s for each front end).
func (d *DB) Query(ctx context.Context, f func(conn *sql.Conn) error) error {
	return d.each(ctx, true, f)
}

// Exec runs one statement once. Front ends that cannot be connected to are passed over; a statement that was sent is never sent again.
// Unless the error is the server's own, the outcome is unknown.
func (d *DB) Exec(ctx context.Context, query string, args ...any) error {
	return d.each(ctx, false, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, query, args...)
		return err
	})
}

func (d *DB) each(ctx context.Context, again bool, f func(conn *sql.Conn) error) error {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var errs []error
	for _, i := range d.rotation.order(time.Now()) {
		connected, err := d.on(ctx, i, f)
		if !isConnection(err) {
			if connected {
				d.worked(i)
			}
			return err
		}
		errs = append(errs, fmt.Errorf("%s: %w", d.addrs[i], err))
		if ctx.Err() != nil {
			// Silent until the caller's time was up: begin elsewhere next time.
			d.rotation.advance(i)
			break
		}
		if d.rotation.failed(i, time.Now()) {
			d.log.Warn("StarRocks front end does not answer over MySQL", zap.String("fe", d.addrs[i]), zap.Error(err))
		}
		if connected && !again {
			break
		}
	}
	return errors.Join(errs...)
}

func (d *DB) worked(i int) {
	if d.rotation.worked(i) {
		d.log.Info("StarRocks front end answers again over MySQL", zap.String("fe", d.addrs[i]))
	}
}

// on runs f on one connection of front end i; connected says that f ran.
func (d *DB) on(ctx context.Context, i int, f func(conn *sql.Conn) error) (connected bool, err error) {
	// The dial and the handshake together: a server that accepts and says nothing costs no more than a black hole.
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := d.pools[i].Conn(dial)
	cancel()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // whatever it says, f is over
	return true, f(conn)
}
