package starrocks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/sink"
)

// Client loads bodies into one table by Stream Load. Safe for concurrent use. It holds no goroutines and no connections between calls.
type Client struct {
	cfg       Config
	layout    layout
	fronts    []*url.URL
	rotation  *rotation
	hosts     hosts
	transport *http.Transport
	plainSaid atomic.Bool
	packer    packer
	base      string // /api/<database>, escaped
	load      string // path of a load
}

var _ sink.Target = (*Client)(nil)

// New checks cfg and returns a client that has not connected to anything. All problems are reported at once.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	fronts, err := cfg.frontURLs()
	names := CheckNames(cfg.Database, cfg.Table, "", cfg.Dimensions, cfg.Measures)
	var user error
	if cfg.User == "" || strings.Contains(cfg.User, ":") {
		user = fmt.Errorf("user %q: must not be empty or have a colon (HTTP basic authentication)", cfg.User)
	}
	if err := errors.Join(err, names, user, cfg.Compression.check()); err != nil {
		return nil, err
	}
	c := &Client{
		cfg:       cfg,
		layout:    newLayout(cfg.Dimensions, cfg.Measures),
		fronts:    fronts,
		rotation:  newRotation(len(fronts)),
		hosts:     hosts{seen: make(map[string]struct{})},
		transport: newTransport(cfg),
		packer:    packer{how: cfg.Compression},
		base:      "/api/" + url.PathEscape(cfg.Database),
	}
	c.load = c.base + "/" + url.PathEscape(cfg.Table) + "/_stream_load"
	for _, u := range fronts {
		c.hosts.add(u.Hostname())
	}
	return c, nil
}

// Load makes one attempt to load body under label (sink.Target). It returns by its own deadline, LoadTimeout plus a quarter of it
// (1 s to 5 s), or when ctx is done. Front ends that cannot be reached or stay silent are passed over within the attempt; a node behind
// a front end that cannot is left to the next attempt.
func (c *Client) Load(ctx context.Context, label string, body sink.Body) sink.Reply {
	if err := ctx.Err(); err != nil {
		return sink.Reply{Outcome: sink.OutcomeFailed, Reason: ReasonCancelled, Err: fmt.Errorf("load %s: not begun: %w", label, err)}
	}
	attempt, cancel := context.WithTimeoutCause(ctx, c.cfg.deadline(), errAttemptDeadline)
	defer cancel()
	req := &request{method: http.MethodPut, path: c.load, header: c.loadHeader(label, body.Encoding), body: body.Data}
	a, err := c.exchange(attempt, req)
	if err != nil {
		return classifyError(ctx, err, label, req.sent.Load())
	}
	reply := classify(a, label)
	if body.Encoding != "" && notRead(reply) {
		reply = c.goPlain(label, body, reply)
	}
	if reply.Outcome != sink.OutcomeDone {
		// Another front end may see more living nodes, or send the next attempt to another one.
		c.rotation.advance(a.front)
	}
	if reply.Outcome == sink.OutcomeFailed || reply.Filtered > 0 {
		c.addRejectedRows(attempt, a, &reply)
	}
	return reply
}

// notRead reports whether the server may not have read a row of a compressed body. Releases that do not know compression say what the first
// byte should have been, or take the body for an empty one (be json_scanner.cpp of 2.3 and later).
func notRead(reply sink.Reply) bool {
	switch {
	case reply.Reason == ReasonUnreadable:
		return true
	case reply.Outcome == sink.OutcomeDone:
		return !reply.ByLabel && reply.Loaded == 0
	default:
		return reply.Reason == ReasonRowsRefused && reply.Loaded == 0
	}
}

// goPlain has the rows of a body that was not read sent as they are. If that was not the cause, the server will say so of these.
func (c *Client) goPlain(label string, body sink.Body, reply sink.Reply) sink.Reply {
	if reply.Err == nil {
		reply.Err = fmt.Errorf("load %s: none of %d rows was loaded", label, body.Rows)
	}
	c.cfg.Log.Warn("the server did not read a compressed load (StarRocks 3.2.7 and later can); loads go uncompressed for a while",
		zap.String("compression", body.Encoding), zap.Duration("while", plainFor), zap.Error(reply.Err))
	c.packer.refused(time.Now())
	reply.Outcome, reply.Class, reply.Reason = sink.OutcomeFailed, sink.ClassUnreadable, ReasonUnreadable
	return reply
}

// loadHeader: StarRocks STREAM_LOAD.md, be stream_load.cpp. ignore_json_size is not set: bodies are kept below the limit (100 MB), and
// one above it should be refused by name rather than cost a back end its memory.
func (c *Client) loadHeader(label, compression string) http.Header {
	h := make(http.Header)
	for _, kv := range [][2]string{
		{"Label", label},
		{"Format", "json"},
		{"Strip_outer_array", "true"},
		{"Strict_mode", "true"},
		{"Max_filter_ratio", "0"},
		{"Timeout", strconv.FormatInt(c.cfg.seconds(), 10)},
		{"Columns", c.layout.columns},
	} {
		h.Set(kv[0], kv[1])
	}
	if compression != "" {
		h.Set("Compression", compression)
	}
	return h
}

func (c *Client) addRejectedRows(ctx context.Context, a *answer, reply *sink.Reply) {
	r, err := decodeReply(a.body)
	if err != nil || r.ErrorURL == "" {
		return
	}
	rows, err := c.errorLog(ctx, r.ErrorURL)
	if err != nil {
		c.cfg.Log.Debug("rejected rows not fetched", zap.Error(err))
		return
	}
	reply.RejectedRows = rows
}

// State asks the front ends for the label's state (sink.Target), at most 10 s long. UNKNOWN means that no transaction of the label is
// known: it never began, or it was forgotten. An error means that nobody could be asked.
func (c *Client) State(ctx context.Context, label string) (sink.LabelState, error) {
	attempt, cancel := context.WithTimeoutCause(ctx, min(stateTimeout, c.cfg.deadline()), errAttemptDeadline)
	defer cancel()
	req := &request{
		method: http.MethodGet,
		path:   c.base + "/get_load_state",
		query:  url.Values{"label": {label}}.Encode(),
		header: make(http.Header),
	}
	a, err := c.exchange(attempt, req)
	if err != nil {
		return "", fmt.Errorf("state of label %s: %w", label, err)
	}
	state, err := stateOf(a)
	if err != nil {
		c.rotation.advance(a.front)
		return "", fmt.Errorf("state of label %s: %w", label, err)
	}
	return state, nil
}

func stateOf(a *answer) (sink.LabelState, error) {
	switch {
	case a.status != http.StatusOK:
		return "", classifyHTTP(a).Err
	case a.readErr != nil:
		return "", fmt.Errorf("reply of %s: %w", a.from, a.readErr)
	}
	state, err := decodeState(a.body)
	if err != nil {
		return "", fmt.Errorf("%s: %w", a.from, err)
	}
	return state, nil
}
