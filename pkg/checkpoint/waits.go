package checkpoint

import (
	"maps"
	"time"
)

const (
	// RereadFor is how long rows that are known loaded are waited for before the table counts as emptied.
	RereadFor = 2 * time.Minute
	// SettleBeyond is added to LOAD_TIMEOUT: after both no load of an owner that is gone can show any more.
	SettleBeyond = 30 * time.Second
)

// Waits times what Resume decides but cannot measure: how long rows have been missing and how long T has not moved. One per partition
// and assignment, used by one goroutine: Fill before every Resume, Note after it.
type Waits struct {
	settleFor    time.Duration
	settleSince  time.Time // zero: not settling
	missingSince time.Time // zero: nothing missing
	seen         map[History]int64
}

// NewWaits makes a Waits for a sink with the given LOAD_TIMEOUT.
func NewWaits(loadTimeout time.Duration) *Waits { return &Waits{settleFor: loadTimeout + SettleBeyond} }

// Fill sets Reread and Settled for the histories in the input, as read at now.
func (w *Waits) Fill(now time.Time, in *Input) {
	seen := make(map[History]int64, len(in.Histories))
	for _, p := range in.Histories {
		seen[p.History] = p.Next
	}
	if !maps.Equal(seen, w.seen) {
		w.seen = seen
		if !w.settleSince.IsZero() {
			w.settleSince = now // T moved: the wait begins again
		}
	}
	in.Settled = !w.settleSince.IsZero() && now.Sub(w.settleSince) >= w.settleFor
	in.Reread = !w.missingSince.IsZero() && now.Sub(w.missingSince) >= RereadFor
}

// Note takes the decision that followed.
func (w *Waits) Note(now time.Time, d Decision) {
	switch {
	case d.Action != NewHistory:
		w.settleSince = time.Time{}
	case w.settleSince.IsZero():
		w.settleSince = now
	}
	switch {
	case d.Action == ReadAgain && !d.Missing:
	case !d.Missing:
		// A new history that only waits to settle must not have its rows go missing anew.
		if d.Action != NewHistory {
			w.missingSince = time.Time{}
		}
	case w.missingSince.IsZero():
		w.missingSince = now
	}
}
