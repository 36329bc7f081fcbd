package sink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
)

// 500 loads of which every single one fails at least once in a random way: exact, no hang, bounded time.
func TestEveryLoadFailsAtLeastOnce(t *testing.T) {
	const loads = 500
	ways := []step{
		fails(ClassTransient), fails(ClassPermanent), fails(ClassOverload), fails(ClassRefused), fails(ClassTooLarge),
		{lose: true},
		{lose: true, state: LabelAborted},
		{lose: true, apply: true},
		{lose: true, apply: true, hide: true},
		{apply: true, hide: true, loadedDiff: -1},
		{apply: true, loadedDiff: 1},
		{},
		{late: 3 * time.Second},
		{late: 3 * time.Second, apply: true},
		{fail: true, takes: 5 * time.Second},
	}
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(7, 11))
		tab := newTable(t)
		tab.showOnAsk = true
		failed := map[string]bool{}
		failures := 0
		tab.script = func(_ int, rows []wireRow, _ int) step {
			key := fmt.Sprint(rows[0].Source, rows[0].Next)
			if failed[key] && rnd.IntN(3) > 0 {
				return step{apply: true, hide: rnd.IntN(4) == 0}
			}
			failed[key] = true
			failures++
			return ways[rnd.IntN(len(ways))]
		}
		r := newRig(t, tab, nil).run()
		start := time.Now()
		for i := int64(1); i <= loads; i++ {
			r.offer("a", i, row(1, "x", i, -i, uint64(i)), row(2, fmt.Sprint(i%7), i, 1, uint64(i)))
			require.NoError(t, r.f.Flush(t.Context()))
		}
		require.NoError(t, r.f.WaitSource(t.Context(), "a"))
		require.Less(t, time.Since(start), 4*time.Hour)
		require.GreaterOrEqual(t, failures, loads)
		require.Len(t, r.completions(), loads)
		got := tab.get("a", 1, "x")
		require.Equal(t, []int64{loads, loads, -loads}, []int64{got.next, got.pv, got.lo})
		require.Len(t, got.ids, loads)
		require.Empty(t, r.f.Status().Blocked)
		require.NoError(t, r.f.Close(t.Context()))
		require.NoError(t, <-r.err)
		time.Sleep(time.Minute)
	})
}

func TestDiscardWhileBitmapsGoAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		tab.script = func(int, []wireRow, int) step { return slow(5 * time.Second) }
		r := newRig(t, tab, func(c *Config) { c.MaxBytes = 1000 }).run()
		var ids []uint64
		for i := range uint64(600) {
			ids = append(ids, i*i*7919)
		}
		r.offer("a", 5, row(1, "x", 5, 5, ids...))
		r.at(12 * time.Second)
		require.GreaterOrEqual(t, len(tab.attempts()), 2, "ahead")
		require.Zero(t, r.f.Discard("a"), "in flight")
		r.at(5 * time.Second)
		require.Equal(t, "a:5!", r.nexts(), "the rest is dropped when the load lets go of it")
		require.ErrorIs(t, r.completions()[0].Err, ErrDiscarded)
		require.True(t, r.f.Idle("a"))
		require.Zero(t, tab.get("a", 1, "x").next)
		n := len(tab.attempts())
		r.at(time.Minute)
		require.Len(t, tab.attempts(), n)
		require.NoError(t, r.end())
	})
}

func TestFlushSourceWaitsForDurabilityOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t, step{apply: true, hide: true}, step{apply: true, takes: time.Hour})
		r := newRig(t, tab, nil).run()
		require.NoError(t, r.f.FlushSource(t.Context(), "a"))
		r.offer("a", 1, row(1, "x", 1, 1))
		start := time.Now()
		require.NoError(t, r.f.FlushSource(t.Context(), "a"))
		require.Zero(t, time.Since(start))
		require.False(t, r.f.Idle("a"))
		r.offer("b", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		require.NoError(t, r.f.FlushSource(t.Context(), "a"), "whatever the others do")
		ctx, cancel := within(time.Second)
		defer cancel()
		require.ErrorIs(t, r.f.FlushSource(ctx, "b"), ErrNotDurable)
		err := r.end()
		require.ErrorIs(t, err, ErrNotDurable)
		require.ErrorContains(t, err, "w-1-2", "with the label that was cut off")
	})
}

// A batch that does not fit its measures is a bug of the owner; it must not lock everybody else out.
func TestPanicInAMergeLeavesNoLockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t), nil).run()
		bad := row(1, "x", 1, 1)
		bad.Cells = bad.Cells[:1]
		r.offer("a", 1, row(1, "x", 1, 1))
		require.Panics(t, func() { _ = r.f.Offer(Batch{Source: "a", Next: 2, Rows: []aggregate.Row{bad}}) })
		require.NotEmpty(t, r.f.Status().Queue)
		require.NoError(t, r.f.Flush(t.Context()))
		require.NoError(t, r.end())
	})
}

func TestTargetThatExitsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		tab.encErr = func([]Part) error { runtime.Goexit(); return nil }
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		require.ErrorIs(t, r.f.Flush(t.Context()), errExited)
		require.ErrorIs(t, <-r.err, errExited)
		r.stop(nil)
	})
}

func TestMetricsStartAtZero(t *testing.T) {
	r := newRig(t, newTable(t), nil)
	m := NewMetrics(nil, "too_many_versions")
	require.NotNil(t, m)
	for name, values := range map[string][]string{
		"rollcall_loads_total":              {"done", "failed", "unknown", "refused"},
		"rollcall_load_rows_total":          {"reply", "label"},
		"rollcall_label_state_checks_total": {"UNKNOWN", "PREPARE", "PREPARED", "COMMITTED", "VISIBLE", "ABORTED", "error"},
		"rollcall_sink_blocked":             {"refused", "permanent", "too_large", "unencodable", "failing"},
		"rollcall_load_retries_total":       {"row_count"},
	} {
		for _, v := range values {
			require.Zero(t, r.counter(name, "x", v), "%s %s", name, v)
		}
	}
	require.InDelta(t, 10, r.counter("rollcall_flush_interval_seconds", "", ""), 0)
	require.Zero(t, r.counter("rollcall_load_oldest_unfinished_seconds", "", ""))
	require.Zero(t, r.counter("rollcall_load_bytes_total", "", ""))
}

// A lock-step owner: Seal asks it, it offers, and it waits in Flush at the same time. Neither may wait for the other for longer than SealTimeout.
func TestOwnerThatFlushesWhileItIsAskedToSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := make(chan chan struct{})
		r := newRig(t, newTable(t), func(c *Config) {
			c.Seal = func(ctx context.Context) {
				reply := make(chan struct{})
				select {
				case ask <- reply:
					<-reply
				case <-ctx.Done():
				}
			}
		}).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second) // Run is in Seal, nobody answers
		start := time.Now()
		require.NoError(t, r.f.FlushSource(t.Context(), "a"))
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, r.end())
	})
}
