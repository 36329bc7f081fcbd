package starrocks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
	"rollcall/pkg/sink"
)

// network is an in-memory network for synctest bubbles: what is not served refuses, and hosts can be black holes.
type network struct {
	mu      sync.Mutex
	serve   map[string]func(net.Conn)
	holes   map[string]bool
	dials   []string
	servers []*http.Server
	wg      sync.WaitGroup
}

func newNetwork(t *testing.T) *network {
	n := &network{serve: map[string]func(net.Conn){}, holes: map[string]bool{}}
	t.Cleanup(func() {
		for _, s := range n.servers {
			_ = s.Close()
		}
		n.wg.Wait()
	})
	return n
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, addr)
	hole, handler := n.holes[addr], n.serve[addr]
	n.mu.Unlock()
	if hole {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if handler == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	client, server := net.Pipe()
	n.wg.Go(func() { handler(server) })
	return client, nil
}

func (n *network) dialled() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.dials...)
}

// raw serves addr with a function per connection; nil makes it refuse again.
func (n *network) raw(addr string, f func(net.Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.serve, addr)
	delete(n.holes, addr)
	if f != nil {
		n.serve[addr] = f
	}
}

func (n *network) hole(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.holes[addr] = true
}

// http serves addr with a handler.
func (n *network) http(addr string, h http.HandlerFunc) {
	l, _ := n.listen("tcp", addr)
	s := &http.Server{Handler: h}
	n.servers = append(n.servers, s)
	n.wg.Go(func() { _ = s.Serve(l) })
}

// listen is net.Listen on this network.
func (n *network) listen(_, addr string) (net.Listener, error) {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.onClose = func() { n.raw(addr, nil) }
	n.raw(addr, func(c net.Conn) {
		select {
		case l.conns <- c:
		case <-l.closed:
			_ = c.Close()
		}
	})
	return l, nil
}

type pipeListener struct {
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	onClose func()
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.onClose()
	})
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// silent accepts, reads and never answers.
func silent(c net.Conn) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// readRequest reads one request's header from a raw connection.
func readRequest(c net.Conn) (*http.Request, *bufio.Reader, error) {
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	return r, br, err
}

func redirectTo(url string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", url+r.URL.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

func success(label string, rows int) string {
	return fmt.Sprintf(`{
    "TxnId": 1003,
    "Label": %q,
    "Status": "Success",
    "Message": "OK",
    "NumberTotalRows": %d,
    "NumberLoadedRows": %d,
    "NumberFilteredRows": 0,
    "NumberUnselectedRows": 0,
    "LoadBytes": 1,
    "LoadTimeMs": 1
}`, label, rows, rows)
}

func reply(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = discard(r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

func discard(r *http.Request) (int, error) {
	buf := make([]byte, 32<<10)
	n := 0
	for {
		k, err := r.Body.Read(buf)
		n += k
		if err != nil {
			return n, err
		}
	}
}

func testDims() []aggregate.Dimension {
	return []aggregate.Dimension{{Name: "platform", Path: "platform"}, {Name: "order", Path: "order"}}
}

func testMeasures() []aggregate.Measure {
	return []aggregate.Measure{
		{Name: "uv", Kind: aggregate.Distinct, Field: "user_id"},
		{Name: "pv", Kind: aggregate.Count},
		{Name: "amount", Kind: aggregate.Sum, Field: "amount", Scale: 2},
		{Name: "lowest", Kind: aggregate.Min, Field: "amount"},
		{Name: "highest", Kind: aggregate.Max, Field: "amount"},
	}
}

func testConfig(n *network, fes ...string) Config {
	return Config{
		HTTP: fes, User: "rollcall", Password: "secret", Database: "dau", Table: "daily",
		Dimensions: testDims(), Measures: testMeasures(), DialContext: n.dial,
	}
}

func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	require.NoError(t, err)
	return c
}

func testRow(day aggregate.Day, ids ...uint64) aggregate.Row {
	return aggregate.Row{
		Day: day, Dims: []string{"ios", "a"}, LastEventMs: 1700000000123,
		Cells: []aggregate.Cell{{Set: bitmap.Of(ids...)}, {Int: 7}, {Int: 1250}, {Null: true}, {Int: -3}},
	}
}

func testBody(t testing.TB, c *Client) sink.Body {
	t.Helper()
	b, err := c.Encode([]sink.Part{{Source: "events/0/x/0.1-00000000", Next: 42, Rows: []aggregate.Row{testRow(19000, 1, 2, 3)}}})
	require.NoError(t, err)
	return b
}

var errTest = errors.New("test")
