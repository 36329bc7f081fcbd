package sink

import (
	"context"
	"time"

	"rollcall/pkg/aggregate"
)

// Batch is one sealed delta of one source on its way to the table. Offer moves it: afterwards the flusher owns it.
type Batch struct {
	// Source is the value of the rollcall_source column, the name of the history.
	Source string
	// Next is the batch's next offset: every row reflects record o of the source iff o < Next.
	Next int64
	// Rows may be empty (records that counted nothing); such a batch completes without a load, after its predecessors.
	Rows []aggregate.Row
	// Bytes estimates the memory held by Rows.
	Bytes int64
	// Ready is closed when every dead letter below Next is confirmed by its topic; nil means ready now. Until then the source stays
	// out of loads (DESIGN §1 rule 6); other sources go on.
	Ready <-chan struct{}
	// Done is called exactly once, from the flusher's goroutine, with the batch's outcome; it must not block. A batch merged into
	// another has its own Done called with the merged outcome. May be nil.
	Done func(Completion)
}

// Completion is the known outcome of a batch. Err nil means that the target has confirmed everything up to Next: offsets up to Next
// may be committed now. Err non-nil means nothing is known to be durable and the offset must not move.
type Completion struct {
	Source string
	// Next is the next offset now durable; of a merged batch the last one.
	Next int64
	// Loaded says that rows carrying Next are in the table (or committed and about to show); false for a batch without rows.
	Loaded bool
	// MaxDay is the greatest day among the rows that carry Next; only when Loaded.
	MaxDay aggregate.Day
	Err    error
}

// Part is one source's share of a load: rows that all carry Next. A part with Ahead set carries only bitmaps: totals are neutral
// (0 for count and sum, NULL for min and max) and the next offset is 0, which any superset of ids makes harmless (DESIGN §1 rule 1).
type Part struct {
	Source string
	Next   int64
	Ahead  bool
	Rows   []aggregate.Row
}

// Body is one encoded load. Its bytes never change: a label names exactly one body.
type Body struct {
	Data []byte
	// Encoding says how Data is compressed, in the target's own words; empty means that it is not.
	Encoding string
	// Size is the length before compression, which is what limits are about.
	Size int
	// Rows is the number of rows the server must acknowledge; a row of the batch may become several (big bitmaps).
	Rows int
}

// Outcome is what is known of a load attempt. The zero value is invalid on purpose.
type Outcome uint8

const (
	// OutcomeDone means: the server said that the load is committed.
	OutcomeDone Outcome = iota + 1
	// OutcomeFailed means: the server said that nothing was loaded.
	OutcomeFailed
	// OutcomeUnknown means: no answer, or none that says either. Ask for the label's state, or resend the same body under the same label.
	OutcomeUnknown
)

// Class says what a failed attempt asks for.
type Class uint8

const (
	// ClassTransient means: try again; the zero value, since what is not classified is retried.
	ClassTransient Class = iota
	// ClassPermanent means: somebody has to change something (rights, table, settings); retried slowly while running.
	ClassPermanent
	// ClassOverload means: the server asks for fewer or later loads (too many versions, running-transaction limit, memory).
	ClassOverload
	// ClassRefused means: the server refused rows of the load (filtered rows, row counts that differ): the table is not as expected.
	ClassRefused
	// ClassTooLarge means: the body is over a limit of the server or of a proxy; smaller loads may pass.
	ClassTooLarge
	// ClassUnreadable means: the target cannot read the body as it was compressed; Encode makes the next one in another way.
	ClassUnreadable
)

// Reply is the outcome of one attempt to load a body.
type Reply struct {
	Outcome Outcome
	Class   Class
	// Visible says that readers see the load (Status Success, or state VISIBLE). With OutcomeDone and Visible false the next load of
	// the same sources waits for LabelVisible (DESIGN §1 rule 1).
	Visible bool
	// Reason is a short label value for rollcall_load_retries_total, such as "too_many_versions"; empty when done.
	Reason string
	// Err is the wrapped cause when not done; its message carries the server's own words.
	Err error
	// Loaded and Filtered are the server's row counts; ByLabel says that only the label's state confirmed the load and there are none.
	Loaded, Filtered int64
	ByLabel          bool
	// RejectedRows is an excerpt of the server's error log for refused rows, for the log.
	RejectedRows string
	// RetryAfter is a lower bound for the next attempt, 0 if the server gave none.
	RetryAfter time.Duration
}

// LabelState is a load transaction's state as the server reports it by label.
type LabelState string

// The label states (StarRocks: fe GetStreamLoadState). Anything else is treated as LabelUnknown.
const (
	LabelUnknown   LabelState = "UNKNOWN"
	LabelPrepare   LabelState = "PREPARE"
	LabelPrepared  LabelState = "PREPARED"
	LabelCommitted LabelState = "COMMITTED"
	LabelVisible   LabelState = "VISIBLE"
	LabelAborted   LabelState = "ABORTED"
)

// Target is the table as the flusher sees it. Implemented by starrocks.Client. All methods are called from flusher goroutines, at most
// one Load at a time; State may run beside it. Every call returns by its own deadline or when ctx is done, whichever is first.
type Target interface {
	// Encode turns parts into one body. Errors are permanent (a row that cannot be represented) and name the row.
	Encode(parts []Part) (Body, error)
	// Load makes one attempt to load body under label and says what is known of it. A done ctx gives OutcomeUnknown once the
	// request was under way.
	Load(ctx context.Context, label string, body Body) Reply
	// State asks for the label's state; an error means that nobody could be asked.
	State(ctx context.Context, label string) (LabelState, error)
}
