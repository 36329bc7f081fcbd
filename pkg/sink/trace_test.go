package sink

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// While traces are off nothing is made for them.
func TestNoSpansCostNothing(t *testing.T) {
	f, ld, now := &Flusher{}, &load{}, time.Now()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ctx, span := f.span(t.Context(), "load", now)
		f.traceSeal(ctx, now, now)
		_, attempt := f.span(ctx, "attempt", now)
		traceAttempt(attempt, "label", Reply{Outcome: OutcomeUnknown})
		_, state := f.span(ctx, "label state", now)
		traceState(state, LabelVisible, nil)
		traceLoad(span, ld, loadResult{})
	}))
}
