package starrockstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// exchange is one HTTP request and its answer on a connection the stand-in reads itself: net/http cannot answer from
// the header block, leave the body unread and go on, as an FE does.
type exchange struct {
	conn  net.Conn
	br    *bufio.Reader
	req   *http.Request
	query url.Values
	fe    int // 0: the BE

	continued bool // 100 Continue was sent
	bodyRead  bool
	answered  bool
	closing   bool // the connection ends after this exchange
	truncate  int  // −1: all
	trickle   time.Duration
}

// errGone ends an exchange without an answer.
var errGone = errors.New("connection given up")

// serveHTTP answers requests on one connection until it ends.
func serveHTTP(ctx context.Context, conn net.Conn, fe int, handle func(ctx context.Context, x *exchange) error) {
	defer conn.Close() //nolint:errcheck // the connection is over either way
	br := bufio.NewReaderSize(conn, 64<<10)
	for {
		if _, err := br.Peek(1); err != nil {
			return
		}
		req, err := http.ReadRequest(br)
		x := &exchange{conn: conn, br: br, req: req, fe: fe, truncate: -1}
		if err != nil {
			// What netty cannot parse becomes /bad-request, which has no credentials.
			x.closing = true
			x.req = &http.Request{Method: http.MethodGet, ProtoMajor: 1, ProtoMinor: 0, Body: http.NoBody}
			x.reply(http.StatusUnauthorized, jsonType, smallShape("FAILED", "Need auth information."), "WWW-Authenticate", `Basic realm=""`) //nolint:errcheck // it ends here
			return
		}
		x.query = req.URL.Query()
		if err := handle(ctx, x); err != nil || x.closing || req.Close {
			return
		}
		if fe == 0 && !x.bodyRead && req.ContentLength != 0 {
			return // An unread body cannot be told from the next request.
		}
	}
}

const jsonType = "application/json"

// reply writes the answer once; headers come as pairs.
func (x *exchange) reply(status int, contentType, body string, headers ...string) error {
	if x.answered {
		return nil
	}
	x.answered = true
	var sb strings.Builder
	fmt.Fprintf(&sb, "HTTP/1.1 %d %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), len(body))
	if contentType != "" {
		fmt.Fprintf(&sb, "Content-Type: %s\r\n", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(&sb, "%s: %s\r\n", headers[i], headers[i+1])
	}
	if x.truncate >= 0 {
		x.closing = true
	}
	if x.closing {
		sb.WriteString("Connection: close\r\n")
	}
	sb.WriteString("\r\n")
	if x.truncate >= 0 && x.truncate < len(body) {
		body = body[:x.truncate]
	}
	if x.trickle == 0 {
		sb.WriteString(body)
		_, err := io.WriteString(x.conn, sb.String())
		return err
	}
	if _, err := io.WriteString(x.conn, sb.String()); err != nil {
		return err
	}
	for i := range len(body) {
		time.Sleep(x.trickle)
		if _, err := io.WriteString(x.conn, body[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// askBody sends 100 Continue if the client waits for it.
func (x *exchange) askBody() error {
	if !x.continued && strings.EqualFold(x.req.Header.Get("Expect"), "100-continue") {
		x.continued = true
		if _, err := io.WriteString(x.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return fmt.Errorf("send 100 Continue: %w", err)
		}
	}
	return nil
}

// body asks for the body and reads it. A body that ends early is an error.
func (x *exchange) body() ([]byte, error) {
	if err := x.askBody(); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(x.req.Body)
	x.bodyRead = true
	if err != nil {
		return b, fmt.Errorf("read body: %w", err)
	}
	return b, nil
}

// reset closes with RST where the transport has one.
func (x *exchange) reset() error {
	if t, ok := x.conn.(interface{ SetLinger(sec int) error }); ok {
		t.SetLinger(0) //nolint:errcheck // best effort on the way out
	}
	x.conn.Close() //nolint:errcheck // see above
	return errGone
}

// whileConnected returns a channel that is closed if the client goes away while nothing of it is being read; stop must
// be called before reading on.
func (x *exchange) whileConnected() (gone <-chan struct{}, stop func()) {
	ch, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		if _, err := x.br.Peek(1); err != nil && !isTimeout(err) {
			close(ch)
		}
	}()
	return ch, func() {
		x.conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // both transports support it
		<-finished
		x.conn.SetReadDeadline(time.Time{}) //nolint:errcheck // see above
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// credentials returns what Basic authentication says; malformed is set for a header that FEs choke on.
func (x *exchange) credentials() (user, password string, ok, malformed bool) {
	h := x.req.Header.Get("Authorization")
	user, password, ok = x.req.BasicAuth()
	return user, password, ok, h != "" && !ok
}

func (x *exchange) peer() string {
	host, _, err := net.SplitHostPort(x.conn.RemoteAddr().String())
	if err != nil {
		return x.conn.RemoteAddr().String()
	}
	return host
}

// label is the label of the request, wherever the path puts it.
func (x *exchange) label() string {
	if l := x.req.Header.Get("label"); l != "" {
		return l
	}
	return x.query.Get("label")
}

// route splits /api/{db}/{table}/_stream_load and its likes.
func (x *exchange) route() []string {
	return strings.Split(strings.Trim(x.req.URL.Path, "/"), "/")
}

func (x *exchange) event(at Point) event {
	user, _, _ := x.req.BasicAuth()
	ev := event{at: at, label: x.label(), path: x.req.URL.Path, user: user, fe: x.fe, table: x.req.Header.Get("table")}
	if r := x.route(); len(r) == 4 && r[3] == "_stream_load" {
		ev.table = r[2]
	}
	return ev
}
