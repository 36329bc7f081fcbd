package starrocks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink"
)

func jsonAnswer(body string) *answer {
	return &answer{status: 200, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(body), sent: true, from: "be1:8040"}
}

// The decision table of replies, word by word.
func TestReplies(t *testing.T) {
	const counts = `,"NumberTotalRows":1,"NumberLoadedRows":1,"NumberFilteredRows":0,"NumberUnselectedRows":0`
	done := func(visible, byLabel bool) sink.Reply {
		return sink.Reply{Outcome: sink.OutcomeDone, Visible: visible, ByLabel: byLabel}
	}
	unknown := func(reason string) sink.Reply { return sink.Reply{Outcome: sink.OutcomeUnknown, Reason: reason} }
	for name, tc := range map[string]struct {
		body string
		want sink.Reply
	}{
		"success":             {`{"Label":"L","Status":"Success","Message":"OK"` + counts + `}`, done(true, false)},
		"keys in other case":  {`{"label":"L","status":"Success","MESSAGE":"OK"` + counts + `}`, done(true, false)},
		"publish timeout":     {`{"Label":"L","Status":"Publish Timeout","Message":"Publish timeout. The data will be visible after a while"` + counts + `}`, done(false, false)},
		"label finished":      {`{"Label":"L","Status":"Label Already Exists","ExistingJobStatus":"FINISHED","Message":"Label [L] has already been used."}`, done(false, true)},
		"label running":       {`{"Label":"L","Status":"Label Already Exists","ExistingJobStatus":"RUNNING"}`, unknown(ReasonLabelRunning)},
		"label, empty job":    {`{"Label":"L","Status":"Label Already Exists","ExistingJobStatus":""}`, unknown(ReasonLabelRunning)},
		"label, no job":       {`{"Label":"L","Status":"Label Already Exists"}`, unknown(ReasonLabelRunning)},
		"label, other words":  {`{"Label":"L","Status":"Label Already Exists","ExistingJobStatus":"finished"}`, unknown(ReasonLabelRunning)},
		"label, txn shape":    {`{"Status":"LABEL_ALREADY_EXISTS","ExistingJobStatus":"FINISHED"}`, unknown(ReasonGarbled)},
		"success, no counts":  {`{"Label":"L","Status":"Success","Message":"OK"}`, unknown(ReasonGarbled)},
		"timeout, no counts":  {`{"Label":"L","Status":"Publish Timeout"}`, unknown(ReasonGarbled)},
		"success, lower case": {`{"Label":"L","Status":"success"` + counts + `}`, unknown(ReasonGarbled)},
		"success, padded":     {`{"Label":"L","Status":"Success "` + counts + `}`, unknown(ReasonGarbled)},
		"transaction OK":      {`{"Label":"L","Status":"OK"` + counts + `}`, unknown(ReasonGarbled)},
		"other label":         {`{"Label":"M","Status":"Success"` + counts + `}`, unknown(ReasonGarbled)},
		"two statuses":        {`{"Label":"L","Status":"Fail","status":"Success"` + counts + `}`, unknown(ReasonGarbled)},
		"counts as text":      {`{"Label":"L","Status":"Success","NumberTotalRows":"1","NumberLoadedRows":"1","NumberFilteredRows":"0","NumberUnselectedRows":"0"}`, unknown(ReasonGarbled)},
		"counts null":         {`{"Label":"L","Status":"Success","NumberTotalRows":null,"NumberLoadedRows":null,"NumberFilteredRows":null,"NumberUnselectedRows":null}`, unknown(ReasonGarbled)},
		"fail, empty message": {`{"Label":"L","Status":"Fail","Message":""}`, sink.Reply{Outcome: sink.OutcomeFailed, Reason: ReasonOther}},
		"front end, small":    {`{"status":"FAILED","code":"1","msg":"No backend alive.","message":"No backend alive."}`, sink.Reply{Outcome: sink.OutcomeFailed, Reason: ReasonNoBackend}},
		"front end, 2.x":      {`{"status":"FAILED","msg":"unknown database, database=X"}`, sink.Reply{Outcome: sink.OutcomeFailed, Class: sink.ClassPermanent, Reason: ReasonNoTable}},
	} {
		t.Run(name, func(t *testing.T) {
			got := classify(jsonAnswer(tc.body), "L")
			if tc.want.Outcome == sink.OutcomeDone {
				require.NoError(t, got.Err)
			} else {
				require.ErrorContains(t, got.Err, "load L")
			}
			if strings.Contains(tc.body, "NumberLoadedRows\":1") && tc.want.Reason != ReasonGarbled {
				require.EqualValues(t, 1, got.Loaded)
			}
			got.Err, got.Loaded, got.Filtered = nil, 0, 0
			require.Equal(t, tc.want, got)
		})
	}
}

// Counts are handed on, also for a load that lost rows: it is committed and its label spent.
func TestCountsAreTheServers(t *testing.T) {
	got := classify(jsonAnswer(`{"Label":"L","Status":"Success","NumberTotalRows":10,"NumberLoadedRows":7,"NumberFilteredRows":3,"NumberUnselectedRows":0}`), "L")
	require.Equal(t, sink.Reply{Outcome: sink.OutcomeDone, Visible: true, Loaded: 7, Filtered: 3}, got)
}

// Answers that say nothing are unknown, whatever words are somewhere inside.
func TestGarbledReplies(t *testing.T) {
	ok := success("L", 1)
	for name, a := range map[string]*answer{
		"missing status":     jsonAnswer(`{"Label":"L","Message":"OK"}`),
		"null status":        jsonAnswer(`{"Label":"L","Status":null,"Message":"OK"}`),
		"unknown status":     jsonAnswer(`{"Label":"L","Status":"Fine","Message":"OK"}`),
		"status of a number": jsonAnswer(`{"Label":"L","Status":1}`),
		"empty body":         jsonAnswer(``),
		"HTML page":          {status: 200, header: http.Header{"Content-Type": {"text/html"}}, body: []byte("<html>Success</html>"), sent: true},
		"truncated JSON":     jsonAnswer(ok[:len(ok)-3]),
		"wrong content type": {status: 200, header: http.Header{"Content-Type": {"image/png"}}, body: []byte(ok), sent: true},
		"an array":           jsonAnswer(`[` + ok + `]`),
		"text after":         jsonAnswer(ok + `x`),
		"two objects":        jsonAnswer(ok + ok),
		"body not whole":     {status: 200, header: http.Header{}, body: []byte(ok), sent: true, readErr: errTest},
		"not UTF-8":          jsonAnswer("\xff\xfe{}"),
	} {
		t.Run(name, func(t *testing.T) {
			got := classify(a, "L")
			require.Equal(t, sink.OutcomeUnknown, got.Outcome)
			require.Equal(t, ReasonGarbled, got.Reason)
			require.Error(t, got.Err)
			// The same answer before the body was sent is no better.
			early := *a
			early.sent = false
			require.Equal(t, sink.OutcomeUnknown, classify(&early, "L").Outcome)
		})
	}
	for _, ct := range []string{"application/json", "application/json; charset=utf-8", "text/html", "text/html; charset=ISO-8859-1", "text/plain", ""} {
		a := jsonAnswer(ok)
		a.header.Set("Content-Type", ct)
		require.Equal(t, sink.OutcomeDone, classify(a, "L").Outcome, ct)
	}
}

// Every failure text of the servers' sources, with what it asks for.
func TestFailureMessages(t *testing.T) {
	type want struct {
		outcome sink.Outcome
		class   sink.Class
		reason  string
	}
	failed := func(c sink.Class, reason string) want { return want{sink.OutcomeFailed, c, reason} }
	unknown := func(reason string) want { return want{sink.OutcomeUnknown, sink.ClassTransient, reason} }
	for message, w := range map[string]want{
		// refused rows
		"too many filtered rows":                                           failed(sink.ClassRefused, ReasonRowsRefused),
		"all partitions have no load data":                                 failed(sink.ClassRefused, ReasonRowsRefused),
		"Value length is beyond the capacity. column=uv, capacity=1048576": failed(sink.ClassRefused, ReasonRowsRefused),
		"there is no corresponding partition for this key":                 failed(sink.ClassRefused, ReasonRowsRefused),
		// permanent
		"unknown database, database=X": failed(sink.ClassPermanent, ReasonNoTable),
		`unknown table "db.tbl"`:       failed(sink.ClassPermanent, ReasonNoTable),
		"empty label in begin request": failed(sink.ClassPermanent, ReasonBadRequest),
		"Access denied; you need (at least one of) the INSERT privilege(s) for this operation": failed(sink.ClassPermanent, ReasonDenied),
		"no valid Basic authorization":                                                 failed(sink.ClassPermanent, ReasonUnauthorized),
		"Need auth information.":                                                       failed(sink.ClassPermanent, ReasonUnauthorized),
		"Only primary key table support partial update":                                failed(sink.ClassPermanent, ReasonSchema),
		"primary key size exceed the limit.":                                           failed(sink.ClassPermanent, ReasonSchema),
		"Database[X] data size exceeds quota[1GB]":                                     failed(sink.ClassPermanent, ReasonQuota),
		"class com.starrocks.common.DdlException: There is no 100-continue header":     failed(sink.ClassPermanent, ReasonBadRequest),
		"Label format error. regex: ^[-\\w]{1,128}$, label: a b":                       failed(sink.ClassPermanent, ReasonBadRequest),
		"unknown data format, format=X":                                                failed(sink.ClassPermanent, ReasonBadRequest),
		"Invalid strict mode format. Must be bool type":                                failed(sink.ClassPermanent, ReasonBadRequest),
		"Invalid timeout format":                                                       failed(sink.ClassPermanent, ReasonBadRequest),
		"Invalid parameter enable_merge_commit. The value must be bool type, but is X": failed(sink.ClassPermanent, ReasonBadRequest),
		"Can not specify both partitions and temporary partitions":                     failed(sink.ClassPermanent, ReasonBadRequest),
		"Only one of http header content-encoding and compression can be set":          failed(sink.ClassPermanent, ReasonBadRequest),
		"log_rejected_record_num must be equal or greater than -1":                     failed(sink.ClassPermanent, ReasonBadRequest),
		"exec_mem_limit must be greater than 0":                                        failed(sink.ClassPermanent, ReasonBadRequest),
		"Failed to parse json as array. error: INCORRECT_TYPE":                         failed(sink.ClassPermanent, ReasonUnreadable),
		"illegal json started with (":                                                  failed(sink.ClassPermanent, ReasonUnreadable),
		"Unrecognized json format, stop json loader.":                                  failed(sink.ClassPermanent, ReasonUnreadable),
		"the value should be array type with strip_outer_array=true":                   failed(sink.ClassPermanent, ReasonUnreadable),
		"Unsupported compression type: zstd":                                           failed(sink.ClassPermanent, ReasonUnreadable),
		"ZSTD decompress failed. error: Unknown frame descriptor":                      failed(sink.ClassPermanent, ReasonUnreadable),
		"Decompression error: ERROR_frameType_unknown":                                 failed(sink.ClassPermanent, ReasonUnreadable),
		"Failed to inflate. status code: -3":                                           failed(sink.ClassPermanent, ReasonUnreadable),
		"LZ4F_getFrameInfo error: ERROR_frameType_unknown":                             failed(sink.ClassPermanent, ReasonUnreadable),
		"Getting analyzing error. Detail message: Column 'x' cannot be resolved.":      failed(sink.ClassPermanent, ReasonSchema),
		"Unknown column 'pv2' in 'daily'":                                              failed(sink.ClassPermanent, ReasonSchema),
		"Column has no default value, column=lost":                                     failed(sink.ClassPermanent, ReasonSchema),
		// too large
		"body size 9 exceed limit: 8, id=1. You can increase the limit by setting streaming_load_max_mb in be.conf.":                                                                         failed(sink.ClassTooLarge, ReasonTooLarge),
		"The size of this batch exceed the max size [104857600]  of json type data  data [ 104857601 ]. Set ignore_json_size to skip the check, although it may lead huge memory consuming.": failed(sink.ClassTooLarge, ReasonTooLarge),
		// overload
		"Failed to load data into tablet 1, because of too many versions, current/limit: 1002/1000. You can reduce the loading job concurrency": failed(sink.ClassOverload, ReasonTooManyVersion),
		"Too many versions. tablet_id: 1, version_count: 1230, limit: 1000, replica_state: 0":                                                   failed(sink.ClassOverload, ReasonTooManyVersion),
		"close index channel failed, load_id=x, cause: too many versions":                                                                       failed(sink.ClassOverload, ReasonTooManyVersion),
		"Failed to load data into partition 1, because of too large compaction score, current/limit: 101/100":                                   failed(sink.ClassOverload, ReasonCompaction),
		"current running txns on db 10005 is 100, larger than limit 100":                                                                        failed(sink.ClassOverload, ReasonRunningTxns),
		"streamload txn num per be exceeds limit, be: X, txn_num: 10, limit: 10":                                                                failed(sink.ClassOverload, ReasonRunningTxns),
		"Stream Load exceed http cuncurrent limit 47, please try again later":                                                                   failed(sink.ClassOverload, ReasonBusy),
		"Memory of process exceed limit. Start. Used: 1, Limit: 1. Mem usage has exceed the limit of BE":                                        failed(sink.ClassOverload, ReasonMemory),
		"Memory of Fragment 1 exceed limit":                                                                                                     failed(sink.ClassOverload, ReasonMemory),
		// transient
		"Failed to commit txn 1. Tablet [1] success replica num 0 is less then quorum replica num 1 while error backends 1": failed(sink.ClassTransient, ReasonReplica),
		"close index channel failed, load_id=x":                      failed(sink.ClassTransient, ReasonReplica),
		"class com.starrocks.common.DdlException: No backend alive.": failed(sink.ClassTransient, ReasonNoBackend),
		"No backend or compute node alive.":                          failed(sink.ClassTransient, ReasonNoBackend),
		"current fe is not master":                                   failed(sink.ClassTransient, ReasonBusy),
		"Service is shutting down, please retry later!":              failed(sink.ClassTransient, ReasonBusy),
		"receive body don't equal with body bytes":                   failed(sink.ClassTransient, ReasonNoReply),
		"Cancelled because of runtime state is cancelled":            failed(sink.ClassTransient, ReasonAborted),
		"cancelled":                        failed(sink.ClassTransient, ReasonAborted),
		"timeout by txn manager":           failed(sink.ClassTransient, ReasonTimeout),
		"something nobody has seen before": failed(sink.ClassTransient, ReasonOther),
		"":                                 failed(sink.ClassTransient, ReasonOther),
		// unknown
		"Commit transaction fail cause rpc failed, Transaction status unknown, you can retry with same label.": unknown(ReasonCommitUnknown),
		"transaction commit successfully, BUT data will be visible later":                                      unknown(ReasonCommitUnknown),
		"transaction not found": unknown(ReasonCommitUnknown),
		"Publish timeout. The data will be visible after a while, txn 1": unknown(ReasonCommitUnknown),
		"Label [L] has already been used.":                               unknown(ReasonLabelRunning),
	} {
		t.Run(message, func(t *testing.T) {
			for _, status := range []string{"Fail", "FAILED"} {
				got := classify(jsonAnswer(fmt.Sprintf(`{"Status":%q,"Message":%q}`, status, message)), "L")
				require.Equal(t, w, want{got.Outcome, got.Class, got.Reason})
				require.ErrorContains(t, got.Err, excerpt(message))
				require.Contains(t, Reasons(), got.Reason)
			}
		})
	}
}

func TestHTTPStatuses(t *testing.T) {
	type want struct {
		early, sent sink.Outcome
		class       sink.Class
		reason      string
	}
	const f, u = sink.OutcomeFailed, sink.OutcomeUnknown
	for status, w := range map[int]want{
		401: {f, f, sink.ClassPermanent, ReasonUnauthorized},
		403: {f, f, sink.ClassPermanent, ReasonUnauthorized},
		404: {f, f, sink.ClassPermanent, ReasonNotFound},
		405: {f, f, sink.ClassPermanent, ReasonNotFound},
		413: {f, f, sink.ClassTooLarge, ReasonTooLarge},
		417: {f, f, sink.ClassPermanent, ReasonBadRequest},
		429: {f, f, sink.ClassOverload, ReasonThrottled},
		400: {f, u, sink.ClassTransient, ReasonHTTP},
		204: {f, u, sink.ClassTransient, ReasonHTTP},
		303: {f, u, sink.ClassTransient, ReasonHTTP},
		500: {f, u, sink.ClassTransient, ReasonHTTP},
		502: {f, u, sink.ClassTransient, ReasonHTTP},
		503: {f, u, sink.ClassTransient, ReasonHTTP},
		504: {f, u, sink.ClassTransient, ReasonHTTP},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			a := &answer{status: status, header: http.Header{"Retry-After": {"7"}}, body: []byte(`{"status":"FAILED","msg":"why it was"}`), from: "fe1:8030"}
			got := classify(a, "L")
			require.Equal(t, w.early, got.Outcome)
			require.Equal(t, w.class, got.Class)
			require.Equal(t, w.reason, got.Reason)
			require.Equal(t, 7*time.Second, got.RetryAfter)
			require.ErrorContains(t, got.Err, "fe1:8030")
			require.ErrorContains(t, got.Err, "why it was")
			require.Contains(t, Reasons(), got.Reason)
			a.sent = true
			require.Equal(t, w.sent, classify(a, "L").Outcome)
		})
	}
	require.ErrorContains(t, classify(&answer{status: 401, header: http.Header{}}, "L").Err, "GRANT INSERT")
}

func TestErrorsWithoutAnswer(t *testing.T) {
	cert := &tls.CertificateVerificationError{Err: errTest}
	for name, tc := range map[string]struct {
		err    error
		class  sink.Class
		reason string
	}{
		"dial":         {fmt.Errorf("%w to x: %w", errDial, errTest), sink.ClassTransient, ReasonConnect},
		"deadline":     {fmt.Errorf("x: %w", errAttemptDeadline), sink.ClassTransient, ReasonTimeout},
		"loop":         {errRedirectLoop, sink.ClassTransient, ReasonRedirect},
		"bad redirect": {errBadRedirect, sink.ClassTransient, ReasonRedirect},
		"plain":        {errPlainRedirect, sink.ClassPermanent, ReasonPlainRedirect},
		"certificate":  {fmt.Errorf("x: %w", cert), sink.ClassPermanent, ReasonTLS},
		"reset":        {errors.New("connection reset by peer"), sink.ClassTransient, ReasonNoReply},
	} {
		t.Run(name, func(t *testing.T) {
			got := classifyError(context.Background(), tc.err, "L", false)
			require.Equal(t, sink.OutcomeFailed, got.Outcome)
			require.Equal(t, tc.class, got.Class)
			require.Equal(t, tc.reason, got.Reason)
			require.ErrorIs(t, got.Err, tc.err)
			require.Contains(t, Reasons(), got.Reason)
			sent := classifyError(context.Background(), tc.err, "L", true)
			require.Equal(t, sink.OutcomeUnknown, sent.Outcome)
			require.Equal(t, tc.reason, sent.Reason)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	got := classifyError(ctx, errTest, "L", false)
	require.Equal(t, sink.OutcomeUnknown, got.Outcome)
	require.Equal(t, ReasonCancelled, got.Reason)
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-1": 0, "x": 0, "99999999": 300 * time.Second, "Wed, 21 Oct 2015 07:28:00 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(http.Header{"Retry-After": {value}}), value)
	}
}

func TestReasonsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons() {
		require.False(t, seen[r], r)
		seen[r] = true
		require.Regexp(t, `^[a-z_]+$`, r)
	}
}
