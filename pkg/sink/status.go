package sink

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// BlockReason says why loads do not get through. The strings are label values of rollcall_sink_blocked.
type BlockReason string

const (
	// BlockRefused means: the server refuses rows, or loads other numbers of rows than were sent: the table is not as expected.
	BlockRefused BlockReason = "refused"
	// BlockPermanent means: somebody has to change something (rights, table, settings).
	BlockPermanent BlockReason = "permanent"
	// BlockTooLarge means: the totals of one source are over the server's limit and cannot be split.
	BlockTooLarge BlockReason = "too_large"
	// BlockUnencodable means: a source has a row that cannot be represented; other sources go on.
	BlockUnencodable BlockReason = "unencodable"
	// BlockTable means: Config.Hold says that the table is not as expected; nothing is loaded into it.
	BlockTable BlockReason = "table"
	// BlockFailing means: several attempts in a row failed or stayed unknown; the target is away or overloaded.
	BlockFailing BlockReason = "failing"
)

func blockReasons() []BlockReason {
	return []BlockReason{BlockRefused, BlockPermanent, BlockTooLarge, BlockUnencodable, BlockTable, BlockFailing}
}

// Status is a snapshot of the flusher for readiness and the status page.
type Status struct {
	// Interval is the current time between loads; Limit the learnt bound of a body in bytes.
	Interval time.Duration `json:"interval"`
	Limit    int64         `json:"limit"`
	// Labels is what all labels of this flusher begin with.
	Labels string `json:"labels"`
	// Done counts the loads that were done since the start, Rows what rollcall_load_rows_total counts; Last is the last load done.
	Done int64      `json:"done"`
	Rows int64      `json:"rows"`
	Last LoadStatus `json:"last"`
	// InFlight is the load under way; its Label is empty if there is none.
	InFlight InFlightStatus `json:"in_flight"`
	// Blocked is empty unless loads do not get through; the worker is not ready while it is set.
	Blocked       BlockReason `json:"blocked,omitempty"`
	BlockedSince  time.Time   `json:"blocked_since,omitzero"`
	BlockedDetail string      `json:"blocked_detail,omitempty"`
	// LastError is the innermost cause of the last failed attempt, whether or not it was overcome.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// Queue has one entry per source that is not idle, by name.
	Queue []SourceStatus `json:"queue"`
	// OldestUnfinished is when the oldest batch without outcome was accepted; zero if there is none.
	OldestUnfinished time.Time `json:"oldest_unfinished,omitzero"`
	// Bytes estimates the memory of everything not completed.
	Bytes int64 `json:"bytes"`
}

// LoadStatus describes a load that was done.
type LoadStatus struct {
	Label    string        `json:"label,omitempty"`
	Rows     int           `json:"rows"`
	Bytes    int           `json:"bytes"`
	At       time.Time     `json:"at,omitzero"`
	Duration time.Duration `json:"duration"`
}

// InFlightStatus describes the load under way.
type InFlightStatus struct {
	Label    string    `json:"label,omitempty"`
	Rows     int       `json:"rows"`
	Bytes    int       `json:"bytes"`
	Since    time.Time `json:"since,omitzero"`
	Attempts int       `json:"attempts"`
}

// SourceStatus describes one source's queue.
type SourceStatus struct {
	Source  string `json:"source"`
	Batches int    `json:"batches"`
	Bytes   int64  `json:"bytes"`
	// WaitsFor is "dead letters", "visibility", "load", "time" (held back after an encoding error) or "turn".
	WaitsFor string `json:"waits_for"`
}

// report is what the flusher remembers for Status; guarded by Flusher.mu.
type report struct {
	done      int64
	rows      int64
	last      LoadStatus
	inFlight  InFlightStatus
	lastErr   error
	lastErrAt time.Time
	// loadBlock is why the load in flight does not get through; "" if it does.
	loadBlock       BlockReason
	loadBlockDetail string
	// shown is what Status and the metric say: loadBlock, or a source that is held back.
	shown       BlockReason
	shownSince  time.Time
	shownDetail string
}

// block notes why the load in flight does not get through, and says so once. f.mu must be held.
func (f *Flusher) block(now time.Time, reason BlockReason, rep Reply, fields []zap.Field) {
	if f.report.loadBlock != reason {
		if rep.RejectedRows != "" {
			fields = append(fields, zap.String("rejected_rows", rep.RejectedRows))
		}
		f.log.Error("sink blocked", append(fields, zap.String("blocked", string(reason)))...)
	}
	f.report.loadBlock, f.report.loadBlockDetail = reason, innermost(rep.Err).Error()
	f.refreshBlocked(now)
}

// unblock notes that a load got through. f.mu must be held.
func (f *Flusher) unblock(now time.Time) {
	if f.report.loadBlock != "" {
		f.log.Info("sink goes on", zap.String("blocked", string(f.report.loadBlock)), zap.Duration("after", now.Sub(f.report.shownSince)))
	}
	f.report.loadBlock, f.report.loadBlockDetail = "", ""
	f.refreshBlocked(now)
}

// refreshBlocked brings what is shown up to date. f.mu must be held.
func (f *Flusher) refreshBlocked(now time.Time) {
	reason, detail := f.report.loadBlock, f.report.loadBlockDetail
	if reason == "" {
		if source, err := f.q.held(); err != nil {
			reason, detail = BlockUnencodable, source+": "+innermost(err).Error()
		}
	}
	if f.report.shown != reason {
		f.report.shown, f.report.shownSince = reason, now
		f.metrics.setBlocked(reason)
	}
	f.report.shownDetail = detail
}

// Status returns a snapshot. Safe from any goroutine; it never waits for the target.
func (f *Flusher) Status() Status {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshBlocked(now)
	s := Status{
		Interval: f.pace.interval, Limit: f.pace.limit, Labels: f.cfg.LabelPrefix, Done: f.report.done, Rows: f.report.rows, Last: f.report.last, InFlight: f.report.inFlight,
		OldestUnfinished: f.q.oldest(), Bytes: f.q.bytes, Queue: f.q.status(now), LastErrorAt: f.report.lastErrAt,
	}
	if f.report.shown != "" {
		s.Blocked, s.BlockedSince, s.BlockedDetail = f.report.shown, f.report.shownSince, f.report.shownDetail
	}
	if f.report.lastErr != nil {
		s.LastError = innermost(f.report.lastErr).Error()
	}
	return s
}

// status describes every source that is not idle, by name.
func (q *queue) status(now time.Time) []SourceStatus {
	out := make([]SourceStatus, 0, len(q.lanes))
	for _, l := range q.lanes {
		s := SourceStatus{Source: l.source, Batches: len(l.items), WaitsFor: l.waitsFor(now)}
		for _, it := range l.items {
			s.Bytes += it.bytes
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SourceStatus) int { return strings.Compare(a.Source, b.Source) })
	return out
}

func (l *lane) waitsFor(now time.Time) string {
	switch {
	case len(l.items) > 0 && l.items[0].state == itemSending:
		return "load"
	case l.hidden != "":
		return "visibility"
	case len(l.items) > 0 && !l.items[0].ready():
		return "dead letters"
	case now.Before(l.holdUntil):
		return "time"
	default:
		return "turn"
	}
}

// held is a source held back after an encoding error; err nil if there is none.
func (q *queue) held() (source string, err error) {
	for _, l := range q.lanes {
		if l.held != nil && (err == nil || l.source < source) {
			source, err = l.source, l.held
		}
	}
	return source, err
}
