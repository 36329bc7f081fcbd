package starrocks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
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

// Reasons, the label values of rollcall_load_retries_total.
const (
	ReasonCancelled      = "cancelled"
	ReasonConnect        = "connect"
	ReasonNoReply        = "no_reply"
	ReasonTimeout        = "timeout"
	ReasonGarbled        = "garbled_reply"
	ReasonLabelRunning   = "label_running"
	ReasonCommitUnknown  = "commit_unknown"
	ReasonRedirect       = "redirect"
	ReasonPlainRedirect  = "plain_redirect"
	ReasonTLS            = "tls"
	ReasonUnauthorized   = "unauthorized"
	ReasonDenied         = "access_denied"
	ReasonNotFound       = "not_found"
	ReasonHTTP           = "http_error"
	ReasonThrottled      = "throttled"
	ReasonTooLarge       = "too_large"
	ReasonTooManyVersion = "too_many_versions"
	ReasonCompaction     = "compaction_score"
	ReasonRunningTxns    = "running_transactions"
	ReasonMemory         = "memory"
	ReasonBusy           = "busy"
	ReasonQuota          = "quota"
	ReasonRowsRefused    = "rows_refused"
	ReasonNoTable        = "no_table"
	ReasonSchema         = "schema"
	ReasonBadRequest     = "bad_request"
	ReasonNoBackend      = "no_backend"
	ReasonReplica        = "replica"
	ReasonAborted        = "aborted"
	ReasonOther          = "other"
)

// Reasons lists every value of Reply.Reason, so that counters can start at 0.
func Reasons() []string {
	return []string{
		ReasonCancelled, ReasonConnect, ReasonNoReply, ReasonTimeout, ReasonGarbled, ReasonLabelRunning, ReasonCommitUnknown,
		ReasonRedirect, ReasonPlainRedirect, ReasonTLS, ReasonUnauthorized, ReasonDenied, ReasonNotFound, ReasonHTTP, ReasonThrottled,
		ReasonTooLarge, ReasonTooManyVersion, ReasonCompaction, ReasonRunningTxns, ReasonMemory, ReasonBusy, ReasonQuota,
		ReasonRowsRefused, ReasonNoTable, ReasonSchema, ReasonBadRequest, ReasonNoBackend, ReasonReplica, ReasonAborted,
		ReasonOther,
	}
}

// verdict is what a failure message means.
type verdict struct {
	outcome sink.Outcome
	class   sink.Class
	reason  string
}

// messageRule matches a failure message that contains every part, in lower case.
type messageRule struct {
	parts   []string
	verdict verdict
}

// messageRules are looked at in order; the first match decides. Sources: be stream_load.cpp, stream_load_executor.cpp, tablets_channel,
// olap/tablet; fe FrontendServiceImpl, DatabaseTransactionMgr, LoadAction; docs faq/loading/Loading_faq.md. What matches nothing is
// transient: a merge may be sent again.
func messageRules() []messageRule {
	unknown := func(reason string) verdict { return verdict{sink.OutcomeUnknown, sink.ClassTransient, reason} }
	failed := func(class sink.Class, reason string) verdict { return verdict{sink.OutcomeFailed, class, reason} }
	overload := func(reason string) verdict { return failed(sink.ClassOverload, reason) }
	permanent := func(reason string) verdict { return failed(sink.ClassPermanent, reason) }
	transient := func(reason string) verdict { return failed(sink.ClassTransient, reason) }
	refused := func(reason string) verdict { return failed(sink.ClassRefused, reason) }
	tooLarge := failed(sink.ClassTooLarge, ReasonTooLarge)
	return []messageRule{
		// The commit's own outcome is in doubt.
		{[]string{"transaction status unknown"}, unknown(ReasonCommitUnknown)},
		{[]string{"commit transaction fail cause"}, unknown(ReasonCommitUnknown)},
		{[]string{"publish timeout"}, unknown(ReasonCommitUnknown)},
		{[]string{"transaction commit successfully"}, unknown(ReasonCommitUnknown)},
		{[]string{"has already committed"}, unknown(ReasonCommitUnknown)},
		{[]string{"transaction not found"}, unknown(ReasonCommitUnknown)},
		{[]string{"label [", "has already been used"}, unknown(ReasonLabelRunning)},

		// The server asks for fewer or later loads. Before the wrappers (close index channel failed) that carry these.
		{[]string{"too many versions"}, overload(ReasonTooManyVersion)},
		{[]string{"too large compaction score"}, overload(ReasonCompaction)},
		{[]string{"current running txns on db"}, overload(ReasonRunningTxns)},
		{[]string{"txn num per be exceeds limit"}, overload(ReasonRunningTxns)},
		{[]string{"exceed http cuncurrent limit"}, overload(ReasonBusy)},
		{[]string{"exceed http concurrent limit"}, overload(ReasonBusy)},

		// Sizes, before the memory texts that also say "exceed limit".
		{[]string{"exceed the max size"}, tooLarge},
		{[]string{"body size", "exceed limit"}, tooLarge},
		{[]string{"memory of", "exceed limit"}, overload(ReasonMemory)},
		{[]string{"mem usage has exceed"}, overload(ReasonMemory)},
		{[]string{"memory", "exceed"}, overload(ReasonMemory)},
		{[]string{"data size exceeds quota"}, permanent(ReasonQuota)},

		// Rows.
		{[]string{"too many filtered rows"}, refused(ReasonRowsRefused)},
		{[]string{"all partitions have no load data"}, refused(ReasonRowsRefused)},
		{[]string{"beyond the capacity"}, refused(ReasonRowsRefused)},
		{[]string{"no corresponding partition"}, refused(ReasonRowsRefused)},
		{[]string{"receive body don't equal"}, transient(ReasonNoReply)},

		// Rights, names, shape.
		{[]string{"access denied"}, permanent(ReasonDenied)},
		{[]string{"no valid basic authorization"}, permanent(ReasonUnauthorized)},
		{[]string{"need auth information"}, permanent(ReasonUnauthorized)},
		{[]string{"unknown database"}, permanent(ReasonNoTable)},
		{[]string{"unknown table"}, permanent(ReasonNoTable)},
		{[]string{"no 100-continue header"}, permanent(ReasonBadRequest)},
		{[]string{"label format error"}, permanent(ReasonBadRequest)},
		{[]string{"empty label"}, permanent(ReasonBadRequest)},
		{[]string{"unknown data format"}, permanent(ReasonBadRequest)},
		{[]string{"invalid", "format"}, permanent(ReasonBadRequest)},
		{[]string{"can not specify both"}, permanent(ReasonBadRequest)},
		{[]string{"only one of http header"}, permanent(ReasonBadRequest)},
		{[]string{"must be equal or greater than"}, permanent(ReasonBadRequest)},
		{[]string{"must be greater than 0"}, permanent(ReasonBadRequest)},
		{[]string{"invalid parameter"}, permanent(ReasonBadRequest)},
		{[]string{"failed to parse json as array"}, permanent(ReasonBadRequest)},
		{[]string{"only primary key table"}, permanent(ReasonSchema)},
		{[]string{"primary key size exceed"}, permanent(ReasonSchema)},
		{[]string{"unknown column"}, permanent(ReasonSchema)},
		{[]string{"column", "not found"}, permanent(ReasonSchema)},
		{[]string{"column", "cannot be resolved"}, permanent(ReasonSchema)},
		{[]string{"column", "doesn't exist"}, permanent(ReasonSchema)},
		{[]string{"column", "does not exist"}, permanent(ReasonSchema)},
		{[]string{"column", "no default value"}, permanent(ReasonSchema)},
		{[]string{"column", "not null"}, permanent(ReasonSchema)},
		{[]string{"getting analyzing error"}, permanent(ReasonSchema)},

		// The cluster is not well, or the load was stopped.
		{[]string{"no backend"}, transient(ReasonNoBackend)},
		{[]string{"no alive"}, transient(ReasonNoBackend)},
		{[]string{"compute node alive"}, transient(ReasonNoBackend)},
		{[]string{"is not alive"}, transient(ReasonNoBackend)},
		{[]string{"fe is not master"}, transient(ReasonBusy)},
		{[]string{"fe is not leader"}, transient(ReasonBusy)},
		{[]string{"shutting down"}, transient(ReasonBusy)},
		{[]string{"success replica num"}, transient(ReasonReplica)},
		{[]string{"quorum replica"}, transient(ReasonReplica)},
		{[]string{"close index channel failed"}, transient(ReasonReplica)},
		{[]string{"tablet writer"}, transient(ReasonReplica)},
		{[]string{"timeout"}, transient(ReasonTimeout)},
		{[]string{"timed out"}, transient(ReasonTimeout)},
		{[]string{"cancelled"}, transient(ReasonAborted)},
		{[]string{"aborted"}, transient(ReasonAborted)},
	}
}

// classifyMessage reads the server's text of a load that it calls failed.
func classifyMessage(message string) verdict {
	message = strings.ToLower(message)
rules:
	for _, rule := range messageRules() {
		for _, part := range rule.parts {
			if !strings.Contains(message, part) {
				continue rules
			}
		}
		return rule.verdict
	}
	return verdict{sink.OutcomeFailed, sink.ClassTransient, ReasonOther}
}

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
		return sink.Reply{Outcome: sink.OutcomeUnknown, Reason: ReasonGarbled,
			Err: fmt.Errorf("load %s: reply of %s not understood (%w): %s", label, a.from, err, excerpt(string(a.body)))}
	}
	if r.Label != "" && r.Label != label {
		return sink.Reply{Outcome: sink.OutcomeUnknown, Reason: ReasonGarbled,
			Err: fmt.Errorf("load %s: %s replied for label %s", label, a.from, excerpt(r.Label))}
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
