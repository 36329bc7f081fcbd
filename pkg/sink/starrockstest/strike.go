package starrockstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// errAnswered stops the handling of a request whose answer a fault has already written.
var errAnswered = errors.New("answered by a fault")

// failure is an answer a fault asks the server at hand to give in its own shape.
type failure struct{ status, message string }

func (f *failure) Error() string { return f.message }

// outcome collects what faults change about a load without ending it.
type outcome struct {
	publishDelay  time.Duration
	publishSays   bool // Publish Timeout although nobody waited
	commitUnknown bool
	commits       bool // with commitUnknown: the truth
	filter        int
	miscount      int
	limit         int64
	state         TxnState
}

// strike lets the faults at a point happen. A nil error means: go on, as out says.
func (c *Cluster) strike(ctx context.Context, x *exchange, at Point, out *outcome) error {
	h, actions := c.faults.strike(x.event(at))
	for _, a := range actions {
		if err := c.act(ctx, x, at, h, a, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) act(ctx context.Context, x *exchange, at Point, h hit, a Action, out *outcome) error {
	switch a.kind {
	case actHang, actSleep:
		return c.pause(ctx, x, at, h, a)
	case actReset:
		return x.reset()
	case actClose:
		return errGone
	case actReply:
		x.closing = x.closing || !x.bodyRead && x.req.ContentLength != 0
		if err := x.reply(a.code, a.contentType, a.text); err != nil {
			return err
		}
		return errAnswered
	case actAnswer:
		return &failure{a.status, a.text}
	case actRedirect:
		x.closing = true
		var headers []string
		if a.yes {
			a.text = fmt.Sprintf("http://%s%s", c.fes[x.fe-1].http.advertised, x.req.URL.RequestURI())
		}
		if a.text != "" && !strings.Contains(a.text, "://") {
			a.text = "http://" + a.text + x.req.URL.RequestURI()
		}
		if a.text != "" {
			headers = []string{"Location", a.text}
		}
		if err := x.reply(http.StatusTemporaryRedirect, "text/html", "", headers...); err != nil {
			return err
		}
		return errAnswered
	case actReadBody:
		if err := x.askBody(); err != nil {
			return errGone
		}
		x.bodyRead = true
		if _, err := io.CopyN(io.Discard, x.req.Body, int64(a.n)); err != nil {
			return errGone
		}
		x.closing = true
	case actTruncate:
		x.truncate = a.n
	case actTrickle:
		x.trickle = a.wait
	case actPublishTimeout:
		out.publishSays, out.publishDelay = true, a.wait
	case actCommitUnknown:
		out.commitUnknown, out.commits = true, a.yes
	case actFilter:
		out.filter = a.n
	case actMiscount:
		out.miscount = a.n
	case actLimitBody:
		out.limit = int64(a.n)
	case actState:
		out.state = TxnState(a.text)
	}
	return nil
}

// pause hangs or sleeps. Before the body is read a client that goes away ends it, and the request.
func (c *Cluster) pause(ctx context.Context, x *exchange, at Point, h hit, a Action) error {
	var gone <-chan struct{}
	if !x.bodyRead && (at == AtFE || at == AtHeader || at == AtBegun) {
		ch, stop := x.whileConnected()
		defer stop()
		gone = ch
	}
	if a.kind == actHang {
		h.hang(ctx, gone)
	} else {
		timer := time.NewTimer(a.wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-gone:
		case <-ctx.Done():
		}
	}
	select {
	case <-gone:
		return errGone
	case <-ctx.Done():
		return errGone
	default:
		return nil
	}
}
