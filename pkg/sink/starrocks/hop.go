package starrocks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// errDial marks a connection that could not be opened: nothing reached the server.
var errDial = errors.New("connect")

// errSilent is the cause when a front end was given up for the next one.
var errSilent = errors.New("no answer from the front end")

// newTransport makes one connection per hop: a load is rare, and no desynchronised or stale keep-alive connection can then spoil one
// (front ends that keep a connection alive read a late body as the next request; starrocks#1467, #52516).
func newTransport(cfg Config) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			conn, err := cfg.DialContext(ctx, network, addr)
			if err != nil {
				return nil, fmt.Errorf("%w to %s: %w", errDial, addr, err)
			}
			return conn, nil
		},
		TLSClientConfig:     cfg.TLS,
		TLSHandshakeTimeout: dialTimeout,
		DisableKeepAlives:   true,
		DisableCompression:  true,
		// The body is for those only who ask for it; a server that never does runs into the attempt's deadline.
		ExpectContinueTimeout:  cfg.deadline() + time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        64 << 10,
		Protocols:              &protocols,
	}
}

// request is one HTTP exchange that may go over several hops, each made from scratch.
type request struct {
	method string
	path   string // below the front end's base URL, escaped
	query  string
	header http.Header
	body   []byte // nil for none
	// sent is set once the whole body was handed to a connection.
	sent atomic.Bool
}

// sendBody counts the body out, so that it is known whether a server can have all of it. It has no WriteTo, which would hand over
// everything unseen.
type sendBody struct {
	data bytes.Reader
	req  *request
}

func (b *sendBody) Read(p []byte) (int, error) {
	n, err := b.data.Read(p)
	if b.data.Len() == 0 {
		b.req.sent.Store(true)
	}
	return n, err
}

func (b *sendBody) Close() error { return nil }

// hosts are the host names seen as front end or redirect target. Safe for concurrent use.
type hosts struct {
	mu   sync.Mutex
	seen map[string]struct{}
}

// maxHosts bounds what redirects can add.
const maxHosts = 1024

func (h *hosts) add(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.seen) < maxHosts {
		h.seen[strings.ToLower(name)] = struct{}{}
	}
}

func (h *hosts) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.seen[strings.ToLower(name)]
	return ok
}

// exchange tries the front ends in turn until one answers and follows its redirects. A load goes to another front end only if this one
// got nothing of the body; a question may be put to each. Errors carry every front end's own cause.
func (c *Client) exchange(ctx context.Context, req *request) (*answer, error) {
	var errs []error
	order := c.rotation.order(time.Now())
	for k, i := range order {
		front := c.fronts[i]
		a, hops, err := c.follow(ctx, front, req, k < len(order)-1)
		if err == nil {
			c.frontWorked(i)
			a.front = i
			return a, nil
		}
		errs = append(errs, err)
		if hops == 0 && ctx.Err() == nil && !req.sent.Load() {
			c.frontFailed(i, err)
			continue
		}
		c.rotation.advance(i)
		if ctx.Err() != nil || req.body != nil {
			// Either the time is up, or the front end answered and a node behind it did not: the next attempt asks another one.
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (c *Client) frontWorked(i int) {
	if c.rotation.worked(i) {
		c.cfg.Log.Info("StarRocks front end answers again", zap.String("fe", c.fronts[i].Host))
	}
}

func (c *Client) frontFailed(i int, err error) {
	if c.rotation.failed(i, time.Now()) {
		c.cfg.Log.Warn("StarRocks front end does not answer", zap.String("fe", c.fronts[i].Host), zap.Error(err))
	}
}

// follow makes the hops from one front end on and returns the first answer that is no redirect. hops is the number of redirects
// followed before the end.
func (c *Client) follow(ctx context.Context, front *url.URL, req *request, others bool) (a *answer, hops int, err error) {
	target, err := url.Parse(strings.TrimSuffix(front.String(), "/") + req.path)
	if err != nil {
		return nil, 0, err
	}
	target.RawQuery = req.query
	for hops = 0; ; hops++ {
		limit := time.Duration(0)
		if hops == 0 && others {
			limit = firstHopTimeout
		}
		a, err = c.hop(ctx, target, req, limit)
		if err != nil {
			return nil, hops, err
		}
		if !isRedirect(a.status) {
			return a, hops, nil
		}
		if hops == maxRedirects {
			return nil, hops + 1, fmt.Errorf("%w, the last one by %s", errRedirectLoop, a.from)
		}
		if target, err = c.redirect(target, a); err != nil {
			return nil, hops + 1, err
		}
	}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirect is the next hop's address.
func (c *Client) redirect(from *url.URL, a *answer) (*url.URL, error) {
	location := a.header.Get("Location")
	next, err := from.Parse(location)
	if location == "" || err != nil || next.Hostname() == "" || (next.Scheme != "http" && next.Scheme != "https") {
		return nil, fmt.Errorf("%w: %s answered HTTP %d, Location %q", errBadRedirect, a.from, a.status, excerpt(location))
	}
	next.User, next.Fragment = nil, ""
	if from.Scheme == "https" && next.Scheme == "http" {
		if !c.cfg.AllowPlainRedirect {
			return nil, fmt.Errorf("%w: %s sent the load to %s", errPlainRedirect, a.from, next.Host)
		}
		if c.plainSaid.CompareAndSwap(false, true) {
			c.cfg.Log.Warn("StarRocks redirects from https to plain http; password and data are readable on the network",
				zap.String("fe", from.Host), zap.String("node", next.Host))
		}
	}
	c.hosts.add(next.Hostname())
	return next, nil
}

// hop makes one request on a connection of its own. A limit above 0 bounds the server's silence until it asks for the body or answers.
func (c *Client) hop(ctx context.Context, u *url.URL, req *request, limit time.Duration) (a *answer, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if limit > 0 {
		silence := time.AfterFunc(limit, func() { cancel(errSilent) })
		defer silence.Stop()
		// The first byte may be that of "100 Continue".
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { silence.Stop() }})
	}
	r, err := http.NewRequestWithContext(ctx, req.method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header = req.header.Clone()
	r.SetBasicAuth(c.cfg.User, c.cfg.Password)
	r.Header.Set("User-Agent", "rollcall")
	r.Close = true
	if req.body != nil {
		body := &sendBody{req: req}
		body.data.Reset(req.body)
		r.Body, r.ContentLength = body, int64(len(req.body))
		r.Header.Set("Expect", "100-continue")
	}
	span := startHop(ctx, r)
	defer func() { endHop(span, a, err) }()
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, fmt.Errorf("%s %s: %w", req.method, u.Host, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing more is wanted of it
	a = &answer{status: resp.StatusCode, header: resp.Header, from: u.Host, sent: req.sent.Load()}
	a.body, a.readErr = io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxResponse+1))
	if int64(len(a.body)) > c.cfg.MaxResponse {
		a.readErr = fmt.Errorf("longer than %d bytes", c.cfg.MaxResponse)
	}
	return a, nil
}

// errorLog fetches an excerpt of the rows that a load refused (be /api/_load_error_log, plain text, no credentials needed). Only a host
// of this cluster is asked, and it is told nothing.
func (c *Client) errorLog(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("error log address: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || !c.hosts.has(u.Hostname()) || !strings.HasSuffix(u.Path, "/_load_error_log") {
		return "", fmt.Errorf("error log at %s is not asked: no host of this cluster", excerpt(address))
	}
	u.User = nil
	ctx, cancel := context.WithTimeout(ctx, errorLogTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return "", fmt.Errorf("error log: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing more is wanted of it
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("error log: %s answered HTTP %d", u.Host, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, errorLogBytes))
	if err != nil && len(body) == 0 {
		return "", fmt.Errorf("error log: %w", err)
	}
	return strings.ToValidUTF8(string(body), "\ufffd"), nil
}
