package starrocks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"

	"rollcall/pkg/sink"
)

// The statuses that a load may end with, exactly as the server writes them (be stream_load_context.cpp; FAILED: fe TransactionResult,
// RestBaseResult). No other word means anything.
const (
	statusSuccess        = "Success"
	statusPublishTimeout = "Publish Timeout"
	statusLabelExists    = "Label Already Exists"
	statusFail           = "Fail"
	statusFailed         = "FAILED"
	// jobFinished is ExistingJobStatus for a label whose transaction is COMMITTED or VISIBLE (fe LabelAlreadyUsedException).
	jobFinished = "FINISHED"
)

// answer is what came back over HTTP for one hop.
type answer struct {
	status int
	header http.Header
	body   []byte
	// readErr says that the body is not whole.
	readErr error
	// sent says that the whole load body was handed over before the answer.
	sent bool
	// from is the address that answered, for messages; front is the front end that the way there began at.
	from  string
	front int
}

// classify says what an answer to load label means. Row counts are handed on as the server gave them: a load that it calls done is
// committed, whatever was in it, and its label is spent; whether all rows are in is for the caller to compare.
func classify(a *answer, label string) sink.Reply {
	if a.status != http.StatusOK {
		return classifyHTTP(a)
	}
	r, err := decodeAnswer(a)
	if err != nil {
		return sink.Reply{
			Outcome: sink.OutcomeUnknown, Reason: ReasonGarbled,
			Err: fmt.Errorf("load %s: reply of %s not understood (%w): %s", label, a.from, err, excerpt(string(a.body))),
		}
	}
	if r.Label != "" && r.Label != label {
		return sink.Reply{
			Outcome: sink.OutcomeUnknown, Reason: ReasonGarbled,
			Err: fmt.Errorf("load %s: %s replied for label %s", label, a.from, excerpt(r.Label)),
		}
	}
	reply := classifyStatus(r, a, label)
	reply.Loaded, reply.Filtered = r.Loaded, r.Filtered
	if reply.Outcome != sink.OutcomeDone && reply.RetryAfter == 0 {
		reply.RetryAfter = retryAfter(a.header)
	}
	return reply
}

// decodeAnswer refuses what is not whole or is not offered as text; front ends label JSON as text/html (fe BaseAction), old back ends
// leave it to libevent, which does the same.
func decodeAnswer(a *answer) (loadReply, error) {
	if a.readErr != nil {
		return loadReply{}, a.readErr
	}
	if ct := a.header.Get("Content-Type"); ct != "" {
		kind, _, err := mime.ParseMediaType(ct)
		if err != nil || (kind != "application/json" && kind != "text/html" && kind != "text/plain") {
			return loadReply{}, fmt.Errorf("content type %q", excerpt(ct))
		}
	}
	return decodeReply(a.body)
}

func classifyStatus(r loadReply, a *answer, label string) sink.Reply {
	where := fmt.Sprintf("load %s: %s says %q", label, a.from, r.Status)
	if r.ExistingJobStatus != "" {
		where += fmt.Sprintf(" (%q)", r.ExistingJobStatus)
	}
	said := fmt.Errorf("%s: %s", where, excerpt(r.Message))
	switch r.Status {
	case statusSuccess, statusPublishTimeout:
		if !r.Counted {
			return sink.Reply{Outcome: sink.OutcomeUnknown, Reason: ReasonGarbled, Err: fmt.Errorf("%s without row counts", where)}
		}
		return sink.Reply{Outcome: sink.OutcomeDone, Visible: r.Status == statusSuccess}
	case statusLabelExists:
		if r.ExistingJobStatus == jobFinished {
			return sink.Reply{Outcome: sink.OutcomeDone, ByLabel: true}
		}
		// Anything but FINISHED, an absent field included, may still go either way: the label's state decides.
		return sink.Reply{Outcome: sink.OutcomeUnknown, Reason: ReasonLabelRunning, Err: said}
	case statusFail, statusFailed:
		v := classifyMessage(r.Message)
		return sink.Reply{Outcome: v.outcome, Class: v.class, Reason: v.reason, Err: said}
	default:
		return sink.Reply{Outcome: sink.OutcomeUnknown, Reason: ReasonGarbled, Err: said}
	}
}

// classifyHTTP judges an answer that is not 200 OK. A server or proxy that had the whole body may have passed it on before it failed.
func classifyHTTP(a *answer) sink.Reply {
	detail := excerpt(string(a.body))
	if r, err := decodeReply(a.body); err == nil && r.Message != "" {
		detail = excerpt(r.Message)
	}
	err := fmt.Errorf("%s answered HTTP %d: %s", a.from, a.status, detail)
	reply := sink.Reply{Outcome: sink.OutcomeFailed, Err: err, RetryAfter: retryAfter(a.header)}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		reply.Class, reply.Reason = sink.ClassPermanent, ReasonUnauthorized
		reply.Err = fmt.Errorf("%w (are user and password right, and does the user have INSERT on the table? "+
			"GRANT INSERT ON TABLE … TO USER …)", err)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		reply.Class, reply.Reason = sink.ClassPermanent, ReasonNotFound
		reply.Err = fmt.Errorf("%w (is this the HTTP address of a StarRocks front end?)", err)
	case http.StatusExpectationFailed:
		reply.Class, reply.Reason = sink.ClassPermanent, ReasonBadRequest
		reply.Err = fmt.Errorf("%w (Stream Load needs Expect: 100-continue, does a proxy forbid it?)", err)
	case http.StatusRequestEntityTooLarge:
		reply.Class, reply.Reason = sink.ClassTooLarge, ReasonTooLarge
	case http.StatusTooManyRequests:
		reply.Class, reply.Reason = sink.ClassOverload, ReasonThrottled
	default:
		reply.Reason = ReasonHTTP
		if a.sent {
			reply.Outcome = sink.OutcomeUnknown
		}
	}
	return reply
}

// retryAfter reads the header in its seconds form, bounded so that no server can put a worker to sleep.
func retryAfter(h http.Header) time.Duration {
	const limit = 300
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n <= 0 {
		return 0
	}
	return time.Duration(min(n, limit)) * time.Second
}

// Errors of a hop that never came to an answer.
var (
	errAttemptDeadline = errors.New("no reply in time")
	errRedirectLoop    = errors.New("too many redirects")
	errBadRedirect     = errors.New("redirect without a usable Location")
	errPlainRedirect   = errors.New("redirected from https to plain http, which would show the password and the data on the network")
)

// classifyError judges an attempt without an answer. sent: the whole body was handed over at least once; then a commit may have
// happened. ctx is the caller's: its end is never an answer.
func classifyError(ctx context.Context, err error, label string, sent bool) sink.Reply {
	reply := sink.Reply{Outcome: sink.OutcomeFailed, Err: fmt.Errorf("load %s: %w", label, err)}
	var cert *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		reply.Outcome, reply.Reason = sink.OutcomeUnknown, ReasonCancelled
		return reply
	case errors.Is(err, errPlainRedirect):
		reply.Class, reply.Reason = sink.ClassPermanent, ReasonPlainRedirect
	case errors.Is(err, errRedirectLoop), errors.Is(err, errBadRedirect):
		reply.Reason = ReasonRedirect
	case errors.As(err, &cert):
		reply.Class, reply.Reason = sink.ClassPermanent, ReasonTLS
	case errors.Is(err, errDial):
		reply.Reason = ReasonConnect
	case errors.Is(err, errAttemptDeadline), errors.Is(err, context.DeadlineExceeded):
		reply.Reason = ReasonTimeout
	default:
		reply.Reason = ReasonNoReply
	}
	if sent {
		reply.Outcome, reply.Class = sink.OutcomeUnknown, sink.ClassTransient
	}
	return reply
}
