package starrocks

import (
	"slices"
	"strings"

	"rollcall/pkg/sink"
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
	ReasonUnreadable     = "unreadable_body"
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
		ReasonRowsRefused, ReasonNoTable, ReasonSchema, ReasonBadRequest, ReasonUnreadable, ReasonNoBackend, ReasonReplica,
		ReasonAborted, ReasonOther,
	}
}

// verdict is what a failure message means.
type verdict struct {
	outcome sink.Outcome
	class   sink.Class
	reason  string
}

func failed(class sink.Class, reason string) verdict {
	return verdict{sink.OutcomeFailed, class, reason}
}
func transient(reason string) verdict { return failed(sink.ClassTransient, reason) }
func permanent(reason string) verdict { return failed(sink.ClassPermanent, reason) }
func overload(reason string) verdict  { return failed(sink.ClassOverload, reason) }
func inDoubt(reason string) verdict   { return verdict{sink.OutcomeUnknown, sink.ClassTransient, reason} }

// messageRule matches a failure message that contains every part, in lower case.
type messageRule struct {
	parts   []string
	verdict verdict
}

// messageRules are looked at in order; the first match decides. Sources: be stream_load.cpp, stream_load_executor.cpp, tablets_channel,
// olap/tablet; fe FrontendServiceImpl, DatabaseTransactionMgr, LoadAction; docs faq/loading/Loading_faq.md.
func messageRules() []messageRule {
	return slices.Concat(doubtRules(), overloadRules(), sizeRules(), rowRules(), bodyRules(), requestRules(), clusterRules())
}

// doubtRules: the commit's own outcome is in doubt.
func doubtRules() []messageRule {
	return []messageRule{
		{[]string{"transaction status unknown"}, inDoubt(ReasonCommitUnknown)},
		{[]string{"commit transaction fail cause"}, inDoubt(ReasonCommitUnknown)},
		{[]string{"publish timeout"}, inDoubt(ReasonCommitUnknown)},
		{[]string{"transaction commit successfully"}, inDoubt(ReasonCommitUnknown)},
		{[]string{"has already committed"}, inDoubt(ReasonCommitUnknown)},
		{[]string{"transaction not found"}, inDoubt(ReasonCommitUnknown)},
		{[]string{"label [", "has already been used"}, inDoubt(ReasonLabelRunning)},
	}
}

// overloadRules: the server asks for fewer or later loads. Before the wrappers (close index channel failed) that carry these.
func overloadRules() []messageRule {
	return []messageRule{
		{[]string{"too many versions"}, overload(ReasonTooManyVersion)},
		{[]string{"too large compaction score"}, overload(ReasonCompaction)},
		{[]string{"current running txns on db"}, overload(ReasonRunningTxns)},
		{[]string{"txn num per be exceeds limit"}, overload(ReasonRunningTxns)},
		{[]string{"exceed http cuncurrent limit"}, overload(ReasonBusy)},
		{[]string{"exceed http concurrent limit"}, overload(ReasonBusy)},
	}
}

// sizeRules: a size is over a limit; loads that are too large before the memory texts, which say "exceed limit" too.
func sizeRules() []messageRule {
	return []messageRule{
		{[]string{"exceed the max size"}, failed(sink.ClassTooLarge, ReasonTooLarge)},
		{[]string{"body size", "exceed limit"}, failed(sink.ClassTooLarge, ReasonTooLarge)},
		{[]string{"memory of", "exceed limit"}, overload(ReasonMemory)},
		{[]string{"mem usage has exceed"}, overload(ReasonMemory)},
		{[]string{"memory", "exceed"}, overload(ReasonMemory)},
		{[]string{"data size exceeds quota"}, permanent(ReasonQuota)},
	}
}

// rowRules: the table did not take the rows.
func rowRules() []messageRule {
	refused := failed(sink.ClassRefused, ReasonRowsRefused)
	return []messageRule{
		{[]string{"too many filtered rows"}, refused},
		{[]string{"all partitions have no load data"}, refused},
		{[]string{"beyond the capacity"}, refused},
		{[]string{"no corresponding partition"}, refused},
		{[]string{"receive body don't equal"}, transient(ReasonNoReply)},
	}
}

// bodyRules: the body is not what its headers say. Releases before 3.2.7 do not know that one may be compressed and look at its first byte.
// Sources: be json_scanner.cpp, json_parser.cpp, stream_decompressor.cpp; fe StreamLoadInfo.
func bodyRules() []messageRule {
	return []messageRule{
		{[]string{"illegal json"}, permanent(ReasonUnreadable)},
		{[]string{"unrecognized json format"}, permanent(ReasonUnreadable)},
		{[]string{"the value should be array type"}, permanent(ReasonUnreadable)},
		{[]string{"failed to parse json"}, permanent(ReasonUnreadable)},
		{[]string{"unsupported compression"}, permanent(ReasonUnreadable)},
		{[]string{"decompress"}, permanent(ReasonUnreadable)},
		{[]string{"failed to inflate"}, permanent(ReasonUnreadable)},
		{[]string{"lz4f_getframeinfo"}, permanent(ReasonUnreadable)},
	}
}

// requestRules: rights, names, headers, columns. Somebody has to change something.
func requestRules() []messageRule {
	return []messageRule{
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
	}
}

// clusterRules: the cluster is not well, or the load was stopped.
func clusterRules() []messageRule {
	return []messageRule{
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

// classifyMessage reads the server's text of a load that it calls failed. What matches nothing is transient: a merge may be sent again.
func classifyMessage(message string) verdict {
	message = strings.ToLower(message)
	for _, rule := range messageRules() {
		if !slices.ContainsFunc(rule.parts, func(part string) bool { return !strings.Contains(message, part) }) {
			return rule.verdict
		}
	}
	return transient(ReasonOther)
}
