package sink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
)

// 001-32: overload widens the interval and success narrows it again.
func TestOverloadWidensTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t, fails(ClassOverload), fails(ClassOverload), fails(ClassOverload), fails(ClassOverload), fails(ClassOverload))
		n := int64(0)
		var r *rig
		r = newRig(t, tab, func(c *Config) {
			c.Seal = func(context.Context) {
				n++
				r.offer("a", n, row(1, "x", n, 1))
			}
		})
		r.run()
		r.at(15 * time.Second)
		require.Equal(t, 40*time.Second, r.f.Status().Interval)
		r.at(45 * time.Second)
		require.Len(t, tab.attempts(), 6)
		require.Equal(t, 75*time.Second, r.f.Status().Interval, "100 s at most, narrowed by the first success")
		require.InDelta(t, 75, r.counter("rollcall_flush_interval_seconds", "", ""), 0)
		r.f.Request()
		r.at(time.Second)
		require.Len(t, tab.attempts(), 6, "requests wait while the server is overloaded")
		r.at(10 * time.Minute)
		require.Equal(t, 10*time.Second, r.f.Status().Interval, "back to normal by itself")
		labels := map[string]bool{}
		for _, l := range tab.attempts()[:6] {
			labels[l] = true
		}
		require.Len(t, labels, 1, "no new label per attempt")
		require.NoError(t, r.end())
	})
}

// 001-37: a server limit far below ours is learnt; loads split between sources.
func TestLimitIsLearntAndLoadsSplitBetweenSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 9000
		refused := 0
		tab := newTable(t)
		tab.script = func(_ int, _ []wireRow, size int) step {
			if size > limit {
				refused++
				return fails(ClassTooLarge)
			}
			return ok()
		}
		r := newRig(t, tab, nil).run()
		for i := range 400 {
			r.offer(fmt.Sprintf("s%03d", i), 1, row(1, "x", int64(i), 1, 1, 2, 3))
		}
		start := time.Now()
		require.NoError(t, r.f.Flush(t.Context()))
		require.Less(t, time.Since(start), 20*time.Second)
		require.Len(t, r.completions(), 400)
		require.LessOrEqual(t, refused, 4, "the limit is learnt")
		require.Less(t, r.f.Status().Limit, int64(limit*2))
		require.Less(t, len(r.tab.attempts()), 16, "and used")
		for i := range 400 {
			require.Equal(t, int64(i), r.tab.get(fmt.Sprintf("s%03d", i), 1, "x").pv)
		}
		require.NoError(t, r.end())
	})
}

func TestBodiesStayBelowFlushMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		tab.script = func(_ int, _ []wireRow, size int) step {
			if size > 2000 {
				t.Errorf("body of %d bytes", size)
			}
			return ok()
		}
		r := newRig(t, tab, func(c *Config) { c.MaxBytes = 2000 }).run()
		for i := range 60 {
			r.offer(fmt.Sprintf("s%02d", i), 1, row(1, "x", int64(i), 1, 1, 2, 3))
		}
		synctest.Wait()
		require.NotEmpty(t, r.completions(), "a full load does not wait for the interval")
		require.NoError(t, r.f.Flush(t.Context()))
		require.Len(t, r.completions(), 60)
		require.NoError(t, r.end())
	})
}

// DESIGN §1 rule 1: of one source only bitmaps go ahead, visible before the totals follow.
func TestOneSourceOverTheLimitSendsBitmapsAhead(t *testing.T) {
	for name, hide := range map[string]bool{"visible at once": false, "publish timeouts": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable(t)
				totals := 0
				tab.script = func(_ int, rows []wireRow, size int) step {
					if size > 3000 {
						t.Errorf("body of %d bytes", size)
					}
					if rows[0].Next != 0 {
						totals++
					}
					return step{apply: true, hide: hide}
				}
				r := newRig(t, tab, func(c *Config) { c.MaxBytes = 3000 }).run()
				var big []uint64
				for i := range uint64(1500) {
					big = append(big, i*i*7919)
				}
				r.offer("a", 9, row(1, "x", 5, 4, big[:700]...), row(1, "y", 6, 3, big...), row(2, "x", 7, 2, 1))
				stop := make(chan struct{})
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(3 * time.Second):
							tab.reveal()
						}
					}
				}()
				require.NoError(t, r.f.Flush(t.Context()))
				require.NoError(t, r.f.WaitSource(t.Context(), "a"))
				close(stop)
				require.Equal(t, 1, totals, "the totals travel whole, in one load")
				require.Greater(t, len(tab.attempts()), 3)
				require.Equal(t, "a:9", r.nexts())
				require.Equal(t, aggregate.Day(2), r.completions()[0].MaxDay)
				x, y := tab.get("a", 1, "x"), tab.get("a", 1, "y")
				require.Len(t, x.ids, 700)
				require.Len(t, y.ids, 1500)
				require.Equal(t, []int64{9, 5, 4, 9, 6, 3}, []int64{x.next, x.pv, x.lo, y.next, y.pv, y.lo})
				require.NoError(t, r.end())
			})
		})
	}
}

func TestTotalsThatCannotBeSplitBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		var limit atomic.Int64
		limit.Store(2000)
		tab.script = func(_ int, _ []wireRow, size int) step {
			if int64(size) > limit.Load() {
				return fails(ClassTooLarge)
			}
			return ok()
		}
		r := newRig(t, tab, nil).run()
		var rows []aggregate.Row
		for i := range 50 {
			rows = append(rows, row(1, fmt.Sprint(i), int64(i), 1, uint64(i)))
		}
		r.offer("a", 1, rows...)
		r.at(time.Minute)
		require.Equal(t, BlockTooLarge, r.f.Status().Blocked)
		require.Less(t, len(tab.attempts()), 30, "retried slowly")
		limit.Store(1 << 20)
		r.at(time.Minute)
		require.Equal(t, "a:1", r.nexts())
		require.Empty(t, r.f.Status().Blocked)
		require.NoError(t, r.end())
	})
}

func TestRowThatCannotBeEncodedHoldsOnlyItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		var mended atomic.Bool
		tab.encErr = func(parts []Part) error {
			for _, p := range parts {
				if p.Source == "b" && !mended.Load() {
					return errors.New("row 0 of b: no")
				}
			}
			return nil
		}
		r := newRig(t, tab, nil).run()
		for _, s := range []string{"a", "b", "c"} {
			r.offer(s, 1, row(1, "x", 1, 1))
		}
		r.at(time.Minute)
		require.Equal(t, "a:1 c:1", r.nexts())
		require.Equal(t, BlockUnencodable, r.f.Status().Blocked)
		require.Equal(t, "b: row 0 of b: no", r.f.Status().BlockedDetail)
		require.Len(t, r.logs.FilterMessageSnippet("cannot be encoded").All(), 1)
		mended.Store(true)
		r.at(time.Minute)
		require.Equal(t, "a:1 c:1 b:1", r.nexts())
		require.Empty(t, r.f.Status().Blocked)
		require.NoError(t, r.end())
	})
}

// 001-38: while the target is away everything merges, and few loads catch up.
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		start := time.Now()
		tab.script = func(int, []wireRow, int) step {
			if time.Since(start) < 10*time.Minute {
				return fails(ClassTransient)
			}
			return ok()
		}
		r := newRig(t, tab, nil).run()
		for i := int64(1); i <= 600; i++ {
			r.offer("a", i, row(1, "x", i, -i, uint64(i%50)))
			r.offer("b", i, row(1, "x", i, -i, uint64(i%50)))
			r.at(time.Second)
			require.Less(t, r.f.Bytes(), int64(4000))
		}
		require.Equal(t, BlockFailing, r.f.Status().Blocked)
		require.InDelta(t, 590, r.counter("rollcall_load_oldest_unfinished_seconds", "", ""), 15)
		failed := len(tab.attempts())
		require.Less(t, failed, 80, "with back-off")
		r.at(25 * time.Second)
		require.LessOrEqual(t, len(tab.attempts())-failed, 3, "few loads catch up")
		require.Equal(t, int64(600), tab.get("a", 1, "x").pv)
		require.Equal(t, int64(600), tab.get("b", 1, "x").next)
		require.Len(t, tab.get("b", 1, "x").ids, 50)
		require.Len(t, r.completions(), 1200)
		require.Empty(t, r.f.Status().Blocked)
		require.InDelta(t, 0, r.counter("rollcall_load_oldest_unfinished_seconds", "", ""), 0)
		require.NoError(t, r.end())
	})
}
