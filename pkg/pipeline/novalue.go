package pipeline

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
)

const (
	// noValueAfter is how many counted events may lack a measure's field before the log says so: fewer may well be chance.
	noValueAfter = 1000
	// noValueEvery is how often it is said again.
	noValueEvery = 10 * time.Minute
)

// noValues notices measures for which no event has had a value since the start, which looks like a field that is named wrongly: such a measure
// is 0 or NULL for ever, and only a counter would tell. Safe for concurrent use.
type noValues struct {
	log *zap.Logger

	mu     sync.Mutex
	events []int64     // counted, by measure; -1 once one of them had a value
	next   []time.Time // when it may be said again
}

func newNoValues(log *zap.Logger, measures []aggregate.Measure) *noValues {
	n := &noValues{log: log, events: make([]int64, len(measures)), next: make([]time.Time, len(measures))}
	for i, m := range measures {
		if m.Field == "" {
			n.events[i] = -1
		}
	}
	return n
}

// note takes what became of a chunk: so many events were counted, without of them had no value, by measure.
func (n *noValues) note(measures []aggregate.Measure, counted int64, without []int64) {
	if counted == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, seen := range n.events {
		switch {
		case seen < 0:
			continue
		case without[i] < counted:
			n.events[i] = -1
			continue
		}
		n.events[i] += counted
		if now := time.Now(); n.events[i] >= noValueAfter && !now.Before(n.next[i]) {
			n.next[i] = now.Add(noValueEvery)
			n.log.Warn("no event so far has a value for a measure", zap.String("measure", measures[i].Name), zap.String("field", measures[i].Field),
				zap.Int64("events", n.events[i]))
		}
	}
}
