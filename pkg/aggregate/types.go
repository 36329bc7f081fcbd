package aggregate

import (
	"time"

	"rollcall/pkg/bitmap"
)

// Kind says how a measure folds events into one value. Every kind is a join-semilattice over what one source has counted: merging
// two values of it is commutative, associative and idempotent, and within one history values only grow (min: only shrink).
type Kind uint8

// The kinds of measures. The zero value is invalid on purpose.
const (
	// Count counts events.
	Count Kind = iota + 1
	// Distinct collects integer ids 0…2^64−1 exactly.
	Distinct
	// DistinctHash collects the XXH3-64 (seed 0) of a string or number, as StarRocks' bitmap_hash64 does.
	DistinctHash
	// Sum adds non-negative decimals scaled by 10^Scale.
	Sum
	// Min keeps the smallest scaled decimal.
	Min
	// Max keeps the greatest scaled decimal.
	Max
)

// String is the kind's name in AGGREGATE_MEASURES.
func (k Kind) String() string {
	switch k {
	case Count:
		return "count"
	case Distinct:
		return "distinct"
	case DistinctHash:
		return "distinct_hash"
	case Sum:
		return "sum"
	case Min:
		return "min"
	case Max:
		return "max"
	default:
		return "invalid"
	}
}

// IsSet reports whether values of the kind are id sets (Cell.Set) rather than integers (Cell.Int).
func (k Kind) IsSet() bool { return k == Distinct || k == DistinctHash }

// Measure is one configured measure. Immutable after New.
type Measure struct {
	// Name is the column in the table.
	Name string
	Kind Kind
	// Field is the dotted path in the event; empty for Count.
	Field string
	// Scale is the number of decimal digits kept as integer digits (sum, min, max), 0…9.
	Scale int
}

// Dimension is one configured dimension. Immutable after New.
type Dimension struct {
	// Name is the key column in the table.
	Name string
	// Path is the dotted path in the event.
	Path string
}

// Config is what maps a record to rows; everything in it is part of the program's identity (Program.ID).
type Config struct {
	// TimeField is the dotted path of the event time; empty: the record's timestamp.
	TimeField string
	// TimeFormat is unix_ms, unix_s, unix_us, rfc3339 or a Go layout.
	TimeFormat string
	Dimensions []Dimension
	Measures   []Measure
	// Location decides which calendar day an event belongs to. Required.
	Location *time.Location
	// Lateness is how far behind the watermark an event may be and still count.
	Lateness time.Duration
	// FutureSkew is how far ahead of the record's timestamp (or the wall clock) an event may be.
	FutureSkew time.Duration
	// MaxKeys is the number of dimension combinations per day after which further ones fold into FoldedKey.
	MaxKeys int
	// Isolation is the consumer's isolation level; part of the identity only.
	Isolation string
}

// FoldedKey stands in every dimension of the row that takes events of keys beyond MaxKeys.
const FoldedKey = "__other__"

// Day is a calendar day as days since 1970-01-01.
type Day int32

// String formats the day as YYYY-MM-DD.
func (d Day) String() string { return time.Unix(int64(d)*86400, 0).UTC().Format(time.DateOnly) }

// ParseDay is the inverse of Day.String; it also takes "YYYY-MM-DD hh:mm:ss" as some drivers print a DATE.
func ParseDay(s string) (Day, error) {
	if len(s) > len(time.DateOnly) {
		s = s[:len(time.DateOnly)]
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return 0, err
	}
	return Day(t.Unix() / 86400), nil
}

// Cell is one measure's value in a row. For set kinds Set is used (ids seen since the last seal) and Int is 0; for the others Int is
// the running total or extreme of the source, and Null says that no event contributed yet (min and max only).
type Cell struct {
	Int  int64
	Null bool
	Set  bitmap.Set
}

// Row is one day × dimensions of one source. Rows are values: after a hand-over the receiver owns them and the sender must not
// touch them again.
type Row struct {
	Day Day
	// Dims has one string per configured dimension, in order.
	Dims []string
	// Cells has one cell per configured measure, in order.
	Cells []Cell
	// LastEventMs is the greatest accepted event time of the row, Unix ms.
	LastEventMs int64
}

// Delta is what Seal hands over: every row that changed since the last Seal, with absolute totals, all of one cut: a row reflects
// the record at offset o iff o < Next.
type Delta struct {
	// Next is the next offset to read.
	Next int64
	Rows []Row
	// Bytes estimates the memory held by Rows.
	Bytes int64
}

// State is what Restore starts from: totals of one source at one cut.
type State struct {
	// Next is the next offset to apply.
	Next int64
	// WatermarkMs is the greatest accepted event time of the source, Unix ms; HasWatermark is false for a source without rows.
	WatermarkMs  int64
	HasWatermark bool
	// Rows carry totals in Cells[i].Int; their sets are empty (any superset of what is new may be loaded again).
	Rows []Row
}

// Record is one Kafka record as Apply wants it. Value is only read during the call; nil is a tombstone.
type Record struct {
	Offset int64
	// TimestampMs is the record's timestamp, Unix ms.
	TimestampMs int64
	Value       []byte
}

// Outcome is what became of a record.
type Outcome uint8

// The outcomes. Every record read has exactly one of the first four, and records re-delivered below the position are Reread.
const (
	Counted Outcome = iota + 1
	Late
	Future
	Bad
	Reread
)

// String is the outcome's label value in metrics.
func (o Outcome) String() string {
	switch o {
	case Counted:
		return "counted"
	case Late:
		return "late"
	case Future:
		return "future"
	case Bad:
		return "bad"
	case Reread:
		return "reread"
	default:
		return "invalid"
	}
}

// Result is the outcome of one Apply; Reason is set for Bad and is one of Reasons.
type Result struct {
	Outcome Outcome
	Reason  Reason
}

// Reason says why a record is bad. The strings are label values and header values; they never change.
type Reason string

// The reasons of bad records.
const (
	ReasonTombstone   Reason = "tombstone"
	ReasonUnparsable  Reason = "unparsable"
	ReasonNotObject   Reason = "not_an_object"
	ReasonWrongType   Reason = "wrong_type"
	ReasonNoTime      Reason = "missing_time"
	ReasonBadTime     Reason = "bad_time"
	ReasonOldTime     Reason = "time_before_2000"
	ReasonScale       Reason = "too_many_decimals"
	ReasonNegativeSum Reason = "negative_sum"
	// ReasonPanic is for a record on which the decoder panicked; it is contained and counted as bad.
	ReasonPanic Reason = "panic"
)

// Reasons lists every reason there is, for metrics that begin at 0.
func Reasons() []Reason {
	return []Reason{
		ReasonTombstone, ReasonUnparsable, ReasonNotObject, ReasonWrongType, ReasonNoTime, ReasonBadTime, ReasonOldTime,
		ReasonScale, ReasonNegativeSum, ReasonPanic,
	}
}
