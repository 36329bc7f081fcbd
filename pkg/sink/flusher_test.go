package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewRefusesBadConfig(t *testing.T) {
	_, err := New(Config{SealTimeout: -1}, newTable(t))
	require.ErrorContains(t, err, "interval")
	require.ErrorContains(t, err, "flush size")
	require.ErrorContains(t, err, "label prefix")
	require.ErrorContains(t, err, "negative")
}

func TestOneLoadOfAllSourcesAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t), nil).run()
		r.offer("a", 5, row(1, "x", 3, 7, 1, 2))
		r.offer("b", 9, row(1, "x", 4, 8, 3), row(2, "y", 1, 1, 4))
		r.at(9 * time.Second)
		require.Empty(t, r.tab.attempts())
		r.at(time.Second)
		require.Equal(t, []string{"w-1-1"}, r.tab.attempts())
		require.Equal(t, "a:5 b:9", r.nexts())
		require.Equal(t, Completion{Source: "b", Next: 9, Loaded: true, MaxDay: 2}, r.completions()[1])
		require.Equal(t, cell{next: 5, pv: 3, lo: 7, last: 3, loSet: true, ids: map[uint64]bool{1: true, 2: true}}, r.tab.get("a", 1, "x"))
		require.Zero(t, r.f.Bytes())
		require.True(t, r.f.Idle("a"))
		require.InDelta(t, 3, r.counter("rollcall_load_rows_total", "confirmed", "reply"), 0)
		require.InDelta(t, 1, r.counter("rollcall_loads_total", "status", "done"), 0)
		require.NoError(t, r.end())
	})
}

func TestSealIsAskedBeforeALoadButNotForAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		var seals atomic.Int64
		r = newRig(t, newTable(t), func(c *Config) {
			c.Seal = func(context.Context) {
				n := seals.Add(1)
				r.offer("a", n, row(1, "x", n, 1))
			}
		})
		r.run()
		r.at(10 * time.Second)
		require.Equal(t, "a:1", r.nexts())
		r.f.Request()
		synctest.Wait()
		require.EqualValues(t, 2, seals.Load())
		require.Equal(t, "a:1 a:2", r.nexts())
		r.offer("b", 1, row(1, "x", 1, 1))
		require.NoError(t, r.f.Flush(t.Context()))
		require.EqualValues(t, 2, seals.Load())
		require.Equal(t, "a:1 a:2 b:1", r.nexts())
		r.at(9 * time.Second)
		require.EqualValues(t, 2, seals.Load(), "a request starts the interval anew")
		r.at(time.Second)
		require.EqualValues(t, 3, seals.Load())
		require.NoError(t, r.end())
	})
}

func TestSealThatHangsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t), func(c *Config) { c.Seal = func(ctx context.Context) { <-ctx.Done() } }).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10*time.Second + 999*time.Millisecond)
		require.Empty(t, r.nexts())
		r.at(time.Millisecond)
		require.Equal(t, "a:1", r.nexts())
		require.NoError(t, r.end())
	})
}

func TestBatchesMergeWhileALoadIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, slow(30*time.Second)), nil).run()
		r.offer("a", 1, row(1, "x", 1, 9, 1))
		r.at(10 * time.Second)
		for i := int64(2); i <= 50; i++ {
			r.offer("a", i, row(1, "x", i, 10-i, uint64(i)), row(1, fmt.Sprint(i%3), i, 1))
		}
		r.at(time.Second)
		require.Len(t, r.f.Status().Queue, 1)
		require.Equal(t, 2, r.f.Status().Queue[0].Batches, "one in flight, one that merges")
		require.Less(t, r.f.Bytes(), int64(49*200), "merged batches take less memory")
		require.NoError(t, r.f.Flush(t.Context()))
		require.Len(t, r.tab.attempts(), 2)
		got := r.tab.get("a", 1, "x")
		require.Equal(t, int64(50), got.pv)
		require.Equal(t, int64(-40), got.lo)
		require.Len(t, got.ids, 50)
		require.Equal(t, int64(50), r.tab.get("a", 1, "0").next, "all rows carry the last next offset")
		require.Len(t, r.completions(), 50)
		require.Equal(t, int64(50), r.completions()[1].Next, "a merged batch completes with the last next offset")
		require.NoError(t, r.end())
	})
}

// 001-03, 001-15, 001-17, 001-19, 001-20, 001-32 and what else an attempt may end with: the batch gets through, its bytes and label stay.
func TestEveryOutcomeIsRepeatedUntilDone(t *testing.T) {
	unknown := func(apply bool, st LabelState) step { return step{apply: apply, lose: true, state: st} }
	for name, tc := range map[string]struct {
		steps    []step
		attempts int
		labels   int
		within   time.Duration
		byLabel  bool
		status   map[string]float64
	}{
		"done":                    {steps: []step{ok()}, attempts: 1, labels: 1, within: 0},
		"transient twice":         {steps: []step{fails(0), fails(0)}, attempts: 3, labels: 1, within: 3300 * time.Millisecond, status: map[string]float64{"failed": 2, "done": 1}},
		"permanent":               {steps: []step{fails(ClassPermanent)}, attempts: 2, labels: 1, within: 3300 * time.Millisecond},
		"overload":                {steps: []step{fails(ClassOverload), fails(ClassOverload)}, attempts: 3, labels: 1, within: 6600 * time.Millisecond},
		"too large, one row":      {steps: []step{fails(ClassTooLarge)}, attempts: 3, labels: 3, within: 4 * time.Second},
		"reply lost after commit": {steps: []step{unknown(true, "")}, attempts: 1, labels: 1, byLabel: true, status: map[string]float64{"unknown": 0, "done": 1}},
		"lost, never began":       {steps: []step{unknown(false, "")}, attempts: 2, labels: 1, within: 1100 * time.Millisecond, status: map[string]float64{"unknown": 1, "done": 1}},
		"lost, aborted":           {steps: []step{unknown(false, LabelAborted)}, attempts: 2, labels: 1, within: 1100 * time.Millisecond, status: map[string]float64{"failed": 1, "done": 1}},
		"invalid outcome":         {steps: []step{{}}, attempts: 2, labels: 1, within: 1100 * time.Millisecond},
		"refused once":            {steps: []step{fails(ClassRefused)}, attempts: 2, labels: 2, within: 1100 * time.Millisecond, status: map[string]float64{"refused": 1, "done": 1}},
		"counts differ once":      {steps: []step{{apply: true, loadedDiff: -1}}, attempts: 2, labels: 2, within: 1100 * time.Millisecond, status: map[string]float64{"refused": 1, "done": 1}},
		"too large behind a proxy that gave no outcome": {steps: []step{{lose: true, class: ClassTooLarge}}, attempts: 3, labels: 3, within: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, newTable(t, tc.steps...), nil).run()
				r.offer("a", 7, row(1, "x", 5, 5, 42))
				start := time.Now()
				require.NoError(t, r.f.Flush(t.Context()))
				require.LessOrEqual(t, time.Since(start), tc.within)
				got := r.tab.attempts()
				require.Len(t, got, tc.attempts)
				labels := map[string]bool{}
				for _, l := range got {
					labels[l] = true
				}
				require.Len(t, labels, tc.labels)
				require.Equal(t, "a:7", r.nexts())
				require.Equal(t, cell{next: 7, pv: 5, lo: 5, last: 5, loSet: true, ids: map[uint64]bool{42: true}}, r.tab.get("a", 1, "x"))
				if tc.byLabel {
					require.InDelta(t, 1, r.counter("rollcall_load_rows_total", "confirmed", "label"), 0)
					require.InDelta(t, 1, r.counter("rollcall_label_state_checks_total", "state", "VISIBLE"), 0)
				}
				for s, n := range tc.status {
					require.InDelta(t, n, r.counter("rollcall_loads_total", "status", s), 0, s)
				}
				require.Empty(t, r.f.Status().Blocked)
				require.NoError(t, r.end())
			})
		})
	}
}

func TestLabelInPreparationIsPolledAndThenSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t, step{lose: true, state: LabelPrepare})
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		go func() {
			r.at(4 * time.Second)
			tab.mu.Lock()
			tab.labels["w-1-1"].state = LabelVisible
			tab.mu.Unlock()
		}()
		require.NoError(t, r.f.Flush(t.Context()))
		require.Len(t, tab.attempts(), 1, "it ended by itself")

		tab.setScript(func(n int, _ []wireRow, _ int) step {
			if n == 2 {
				return step{lose: true, state: LabelPrepared}
			}
			return ok()
		})
		r.offer("a", 2, row(1, "x", 2, 1))
		start := time.Now()
		require.NoError(t, r.f.Flush(t.Context()))
		require.Equal(t, []string{"w-1-1", "w-1-2", "w-1-2"}, tab.attempts(), "running for ever: sent again under its label")
		require.InDelta(t, 33, time.Since(start).Seconds(), 4)
		require.Less(t, tab.states, 40, "with back-off")
		require.NoError(t, r.end())
	})
}

// 001-18: nobody can be asked; unknown stays unknown.
func TestStateErrorsAreNotAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t, step{lose: true}, step{lose: true}, step{lose: true})
		tab.stateErr = func(n int) error {
			if n <= 3 {
				return errors.New("http 500")
			}
			return nil
		}
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		require.Empty(t, r.nexts())
		require.Equal(t, 1, len(tab.attempts()))
		require.NoError(t, r.f.Flush(t.Context()))
		require.Len(t, tab.attempts(), 4)
		require.InDelta(t, 3, r.counter("rollcall_label_state_checks_total", "state", "error"), 0)
		require.NoError(t, r.end())
	})
}

func TestCancelledWhileUnknownIsNotSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, step{lose: true, state: LabelPrepare}), nil).run()
		r.offer("a", 3, row(1, "x", 1, 1))
		r.at(11 * time.Second)
		err := r.end()
		require.ErrorIs(t, err, ErrNotDurable)
		require.ErrorContains(t, err, "a below 3")
		require.ErrorContains(t, err, "test over")
		require.Equal(t, "a:3!", r.nexts())
		require.Equal(t, err, r.f.Flush(t.Context()), "the same answer")
		require.Equal(t, err, r.f.Close(t.Context()), "as often as asked")
		require.ErrorIs(t, r.f.Offer(Batch{Source: "a", Next: 4}), ErrClosed)
	})
}

// 001-22: committed is durable, but only visible lets the source go on.
func TestCommittedButHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t, step{apply: true, hide: true})
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		require.Equal(t, "a:1", r.nexts(), "offsets may be committed")
		require.NoError(t, r.f.Flush(t.Context()), "and a flush is done")
		require.False(t, r.f.Idle("a"))
		r.offer("a", 2, row(1, "x", 2, 1))
		r.offer("b", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		require.Equal(t, "a:1 b:1", r.nexts(), "the other source goes on")
		require.Equal(t, "visibility", r.f.Status().Queue[0].WaitsFor)
		tab.reveal()
		require.NoError(t, r.f.WaitSource(t.Context(), "a"))
		require.Equal(t, "a:1 b:1 a:2", r.nexts())
		require.True(t, r.f.Idle("a"))
		require.NoError(t, r.end())
	})
}

func TestForgottenLabelOfACommittedLoadCountsAsVisibleAfterABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t, step{apply: true, hide: true})
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		tab.mu.Lock()
		x := tab.labels["w-1-1"]
		tab.show(x)
		x.state = LabelUnknown
		tab.mu.Unlock()
		start := time.Now()
		require.NoError(t, r.f.WaitSource(t.Context(), "a"))
		require.GreaterOrEqual(t, time.Since(start), 30*time.Second)
		require.Less(t, time.Since(start), 40*time.Second)
		require.Len(t, r.logs.FilterMessageSnippet("no longer known").All(), 1)
		require.NoError(t, r.end())
	})
}

// DESIGN §1 rule 6.
func TestSourceWaitsForItsDeadLettersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t), nil).run()
		gate := make(chan struct{})
		require.NoError(t, r.f.Offer(r.batch("a", 1, gate, row(1, "x", 1, 1))))
		r.offer("b", 1, row(1, "x", 1, 1))
		r.at(30 * time.Second)
		require.Equal(t, "b:1", r.nexts())
		require.Equal(t, "dead letters", r.f.Status().Queue[0].WaitsFor)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.ErrorIs(t, r.f.Flush(ctx), ErrNotDurable)
		cancel()
		flushed := make(chan error, 1)
		go func() { flushed <- r.f.Flush(t.Context()) }()
		synctest.Wait()
		close(gate)
		synctest.Wait()
		require.NoError(t, <-flushed)
		require.Equal(t, "b:1 a:1", r.nexts())
		require.NoError(t, r.end())
	})
}

func TestMergedBatchWaitsForAllItsDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t), nil).run()
		var gates [3]chan struct{}
		for i := range gates {
			gates[i] = make(chan struct{})
			require.NoError(t, r.f.Offer(r.batch("a", int64(i+1), gates[i], row(1, "x", int64(i+1), 1))))
		}
		require.Equal(t, 2, r.f.Status().Queue[0].Batches)
		close(gates[1])
		r.at(20 * time.Second)
		require.Empty(t, r.nexts())
		close(gates[0])
		r.at(20 * time.Second)
		require.Equal(t, "a:1", r.nexts())
		close(gates[2])
		r.at(20 * time.Second)
		require.Equal(t, "a:1 a:3 a:3", r.nexts())
		require.NoError(t, r.end())
	})
}

// A steady trickle of dead letters, each confirmed only after the next batch came, must not keep a source out for ever.
func TestDeadLettersDoNotStarveASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t), nil).run()
		for i := int64(1); i <= 20; i++ {
			gate := make(chan struct{})
			require.NoError(t, r.f.Offer(r.batch("a", i, gate, row(1, "x", i, 1))))
			time.AfterFunc(25*time.Second, func() { close(gate) })
			r.at(10 * time.Second)
		}
		require.GreaterOrEqual(t, len(r.completions()), 10)
		require.LessOrEqual(t, r.f.Status().Queue[0].Batches, 3)
		require.NoError(t, r.f.Flush(t.Context()))
		require.Len(t, r.completions(), 20)
		require.NoError(t, r.end())
	})
}

func TestBatchWithoutRowsCompletesAfterItsPredecessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, slow(5*time.Second)), nil).run()
		r.offer("a", 1)
		synctest.Wait()
		require.Equal(t, []Completion{{Source: "a", Next: 1}}, r.completions())
		r.offer("a", 2, row(1, "x", 1, 1))
		r.at(12 * time.Second)
		r.offer("a", 3)
		synctest.Wait()
		require.Equal(t, "a:1", r.nexts())
		r.at(4 * time.Second)
		require.Equal(t, "a:1 a:2 a:3", r.nexts())
		require.False(t, r.completions()[2].Loaded)
		gate := make(chan struct{})
		require.NoError(t, r.f.Offer(r.batch("a", 4, gate)))
		r.at(time.Minute)
		require.Equal(t, "a:1 a:2 a:3", r.nexts())
		close(gate)
		synctest.Wait()
		require.Equal(t, "a:1 a:2 a:3 a:4", r.nexts())
		require.Len(t, r.tab.attempts(), 1)
		require.NoError(t, r.end())
	})
}

func TestDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, slow(5*time.Second)), nil).run()
		require.Zero(t, r.f.Discard("a"))
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		r.offer("a", 2, row(1, "x", 2, 1))
		r.offer("a", 3, row(1, "x", 3, 1))
		r.offer("b", 1, row(1, "x", 1, 1))
		require.Equal(t, 2, r.f.Discard("a"), "the one in flight runs out")
		require.NoError(t, r.f.WaitSource(t.Context(), "a"))
		require.True(t, strings.HasPrefix(r.nexts(), "a:3! a:3! a:1"), r.nexts())
		require.ErrorIs(t, r.completions()[0].Err, ErrDiscarded)
		require.NoError(t, r.f.Flush(t.Context()), "what was discarded is no failure of the others")
		require.Equal(t, int64(1), r.tab.get("a", 1, "x").pv)
		require.NoError(t, r.end())
	})
}

// 001-27 and a table altered by hand: refused rows block with the reason, and it goes on by itself.
func TestRefusedRowsBlockUntilTheTableIsMended(t *testing.T) {
	for name, bad := range map[string]step{
		"refused":       fails(ClassRefused),
		"counts differ": {apply: true, loadedDiff: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable(t)
				start := time.Now()
				tab.script = func(int, []wireRow, int) step {
					if time.Since(start) < 20*time.Second {
						return bad
					}
					return ok()
				}
				r := newRig(t, tab, nil).run()
				r.offer("a", 1, row(1, "x", 1, 1))
				r.f.Request()
				r.at(time.Millisecond)
				require.Empty(t, r.f.Status().Blocked, "resent once first")
				r.at(2 * time.Second)
				s := r.f.Status()
				require.Equal(t, BlockRefused, s.Blocked)
				require.NotEmpty(t, s.BlockedDetail)
				require.InDelta(t, 1, r.counter("rollcall_sink_blocked", "reason", "refused"), 0)
				r.at(17 * time.Second)
				require.LessOrEqual(t, len(tab.attempts()), 4)
				require.Len(t, r.logs.FilterMessage("sink blocked").All(), 1)
				require.Empty(t, r.nexts())
				r.at(11 * time.Second)
				require.Equal(t, "a:1", r.nexts())
				require.Empty(t, r.f.Status().Blocked)
				require.InDelta(t, 0, r.counter("rollcall_sink_blocked", "reason", "refused"), 0)
				require.Len(t, r.logs.FilterMessage("sink goes on").All(), 1)
				require.NoError(t, r.end())
			})
		})
	}
}

func TestLoadsWaitForTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		start := time.Now()
		r := newRig(t, tab, func(c *Config) {
			c.Hold = func() error {
				if time.Since(start) < time.Minute {
					return errors.New("column pv is missing")
				}
				return nil
			}
		}).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.f.Request()
		r.at(30 * time.Second)
		r.offer("a", 2, row(1, "x", 2, 1)) // merges meanwhile
		r.at(28 * time.Second)
		require.Empty(t, tab.attempts())
		require.Empty(t, r.nexts())
		s := r.f.Status()
		require.Equal(t, BlockTable, s.Blocked)
		require.Equal(t, "column pv is missing", s.BlockedDetail)
		require.Len(t, r.logs.FilterMessage("sink blocked").All(), 1)
		r.at(30 * time.Second)
		require.Equal(t, "a:1 a:2", r.nexts())
		require.Empty(t, r.f.Status().Blocked)
		require.NoError(t, r.end())
	})
}

func TestPermanentFailureIsRetriedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		tab.script = func(int, []wireRow, int) step { return fails(ClassPermanent) }
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		require.Equal(t, BlockPermanent, r.f.Status().Blocked)
		require.Equal(t, "server says  permanent", r.f.Status().BlockedDetail)
		r.at(10 * time.Minute)
		n := len(tab.attempts())
		require.Less(t, n, 35)
		at := tab.times()
		require.LessOrEqual(t, at[n-1].Sub(at[n-2]), 33*time.Second)
		require.Len(t, r.logs.FilterMessage("load not done, it will be repeated").All(), 1)
		require.ErrorIs(t, r.end(), ErrNotDurable)
	})
}
