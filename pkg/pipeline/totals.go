package pipeline

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/admin"
	"rollcall/pkg/aggregate"
)

const (
	totalsDays    = 7
	totalsEvery   = 15 * time.Second
	totalsTimeout = 10 * time.Second
)

// totals are the days on the status page, as the table has them. They are read only while somebody looks at the page.
type totals struct {
	looked chan struct{}

	mu   sync.Mutex
	days []admin.DayTotals
}

func newTotals() *totals { return &totals{looked: make(chan struct{}, 1)} }

// get returns what was read last and asks for it to be read again. It does not wait.
func (t *totals) get() []admin.DayTotals {
	select {
	case t.looked <- struct{}{}:
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.days
}

// totalsLoop reads the totals when somebody has looked, at most every totalsEvery.
func (w *worker) totalsLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.totals.looked:
		}
		cctx, cancel := context.WithTimeout(ctx, totalsTimeout)
		today := aggregate.Day(time.Now().In(w.program.Location()).Unix() / 86400)
		rows, err := w.table.DayTotals(cctx, today-totalsDays)
		cancel()
		if err != nil {
			w.log.Debug("totals for the status page not read", zap.Error(err))
		} else {
			days := make([]admin.DayTotals, len(rows))
			for i, r := range rows {
				days[i] = admin.DayTotals{Day: r.Day.String(), Measures: r.Values}
			}
			w.totals.mu.Lock()
			w.totals.days = days
			w.totals.mu.Unlock()
		}
		if !pause(ctx, totalsEvery) {
			return
		}
	}
}
