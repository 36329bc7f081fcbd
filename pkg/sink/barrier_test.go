package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func TestCloseWithNothingOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := newRig(t, newTable(t), nil)
		require.NoError(t, idle.f.Close(t.Context()), "never run")
		require.NoError(t, idle.f.Run(t.Context()), "nothing to run for")
		require.ErrorIs(t, idle.f.Run(t.Context()), errRunning)

		r := newRig(t, newTable(t), nil).run()
		start := time.Now()
		require.NoError(t, r.f.Close(t.Context()))
		require.Zero(t, time.Since(start), "001-40")
		require.NoError(t, <-r.err, "Close joins Run")
		require.NoError(t, r.f.Close(t.Context()))
		require.ErrorIs(t, r.f.Offer(Batch{Source: "a"}), ErrClosed)
	})
}

// 001-01 and 001-41: the last batch fails for ever, at once or slowly. Nine batches are in, the tenth is not, and everybody is told.
func TestLastBatchFailsForEver(t *testing.T) {
	for name, bad := range map[string]step{
		"at once": fails(ClassTransient), "slowly": {fail: true, takes: 8 * time.Second}, "permanently": fails(ClassPermanent), "refused": fails(ClassRefused),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable(t)
				r := newRig(t, tab, nil).run()
				for i := int64(1); i <= 9; i++ {
					r.offer("a", i, row(1, "x", i, 1))
					require.NoError(t, r.f.Flush(t.Context()))
				}
				tab.setScript(func(int, []wireRow, int) step { return bad })
				r.offer("a", 10, row(1, "x", 10, 1))
				ctx, cancel := within(20 * time.Second)
				defer cancel()
				start := time.Now()
				err := r.f.Close(ctx)
				require.LessOrEqual(t, time.Since(start), 20*time.Second)
				require.ErrorIs(t, err, ErrNotDurable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "a below 10")
				require.ErrorContains(t, err, tab.attempts()[len(tab.attempts())-1], "with the label")
				require.ErrorContains(t, err, "server says", "and the server's words")
				var open *NotDurableError
				require.ErrorAs(t, err, &open)
				require.Len(t, open.Sources, 1)
				require.Len(t, open.Labels, 1)
				require.Equal(t, int64(9), tab.get("a", 1, "x").next)
				err = r.end()
				require.ErrorIs(t, err, ErrNotDurable)
				require.Equal(t, "a:1 a:2 a:3 a:4 a:5 a:6 a:7 a:8 a:9 a:10!", r.nexts())
				require.InDelta(t, 9, r.counter("rollcall_load_rows_total", "confirmed", "reply"), 0, "001-35")
			})
		})
	}
}

// 001-02: slow is not failed.
func TestCloseWaitsForASlowLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, slow(20*time.Second)), nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		ctx, cancel := within(25 * time.Second)
		defer cancel()
		start := time.Now()
		require.NoError(t, r.f.Close(ctx))
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Equal(t, "a:1", r.nexts())
		require.NoError(t, <-r.err)
	})
}

// 001-04: an earlier batch fails while a later one of the same source is queued; other sources are not held up for longer than the load.
func TestNothingIsAcknowledgedPastAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		tab.script = func(n int, _ []wireRow, _ int) step {
			if n > 4 {
				return fails(ClassPermanent)
			}
			return ok()
		}
		r := newRig(t, tab, nil).run()
		for i := int64(1); i <= 4; i++ {
			r.offer("a", i, row(1, "x", i, 1))
			require.NoError(t, r.f.Flush(t.Context()))
		}
		r.offer("a", 5, row(1, "x", 5, 1))
		r.at(10 * time.Second)
		r.offer("a", 6, row(1, "y", 6, 1))
		r.offer("a", 7)
		ctx, cancel := within(time.Minute)
		defer cancel()
		require.ErrorIs(t, r.f.Close(ctx), ErrNotDurable)
		require.ErrorIs(t, r.end(), ErrNotDurable)
		require.Equal(t, "a:1 a:2 a:3 a:4 a:5! a:7! a:7!", r.nexts(), "in offset order")
		require.Zero(t, tab.get("a", 1, "y").pv)
	})
}

// 001-07: an empty queue is not an empty flusher.
func TestFlushWaitsForTheLoadInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, slow(5*time.Second)), nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(10 * time.Second)
		start := time.Now()
		require.NoError(t, r.f.Flush(t.Context()))
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, "a:1", r.nexts())
		require.NoError(t, r.end())
	})
}

func TestFlushCoversOnlyWhatWasAcceptedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, slow(5*time.Second), slow(time.Hour)), nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		done := make(chan error, 1)
		go func() { done <- r.f.Flush(t.Context()) }()
		r.at(time.Second)
		r.offer("a", 2, row(1, "x", 2, 1))
		r.at(4 * time.Second)
		require.NoError(t, <-done)
		require.ErrorIs(t, r.end(), ErrNotDurable)
	})
}

// 001-11: while closing no attempt starts that is not likely to end in time; a later Close with more time goes on.
func TestCloseStartsNothingThatCannotEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t, slow(4*time.Second))
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		require.NoError(t, r.f.Flush(t.Context()))
		tab.setScript(func(int, []wireRow, int) step { return step{fail: true, takes: 4 * time.Second} })
		r.offer("a", 2, row(1, "x", 2, 1))
		start := time.Now()
		ctx, cancel := within(20 * time.Second)
		defer cancel()
		require.ErrorIs(t, r.f.Close(ctx), ErrNotDurable)
		for _, at := range tab.times()[1:] {
			require.LessOrEqual(t, at.Sub(start), 12*time.Second, "loads take 4 s, twice that is left to each")
		}
		n := len(tab.attempts())
		r.at(time.Hour)
		require.Len(t, tab.attempts(), n)
		tab.setScript(func(int, []wireRow, int) step { return ok() })
		require.NoError(t, r.f.Close(t.Context()), "more time")
		require.NoError(t, <-r.err)
		require.Equal(t, "a:1 a:2", r.nexts())
	})
}

// The beginning of Close cuts a long back-off short: it may have been the last thing in the way.
func TestCloseTriesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(t)
		tab.script = func(int, []wireRow, int) step { return fails(ClassPermanent) }
		r := newRig(t, tab, nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		r.at(5 * time.Minute)
		tab.setScript(func(int, []wireRow, int) step { return ok() })
		start := time.Now()
		require.NoError(t, r.f.Close(t.Context()))
		require.Zero(t, time.Since(start))
		require.NoError(t, <-r.err)
	})
}

// 001-12: a second signal ends the run at once, still not durable.
func TestEndOfRunCutsTheLoadOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newTable(t, slow(time.Hour)), nil).run()
		r.offer("a", 1, row(1, "x", 1, 1))
		closed := make(chan error, 3)
		for range 3 {
			go func() { closed <- r.f.Close(t.Context()) }()
		}
		go func() { closed <- r.f.Flush(t.Context()) }()
		r.at(time.Second)
		start := time.Now()
		err := r.end()
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, err, ErrNotDurable)
		for range 4 {
			require.Equal(t, err, <-closed)
		}
		require.Equal(t, "a:1!", r.nexts())
	})
}

func TestPanicsReachEveryWaiter(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		edit  func(*Config)
		table func(*fakeTable)
		batch func(*Batch)
	}{
		"load":   {table: func(f *fakeTable) { f.script = func(int, []wireRow, int) step { return step{panics: boom} } }},
		"encode": {table: func(f *fakeTable) { f.encErr = func([]Part) error { panic(boom) } }},
		"state": {table: func(f *fakeTable) {
			f.script = func(int, []wireRow, int) step { return step{lose: true} }
			f.stateErr = func(int) error { panic(boom) }
		}},
		"visibility": {table: func(f *fakeTable) {
			f.script = func(n int, _ []wireRow, _ int) step { return step{apply: true, hide: true} }
			f.stateErr = func(int) error { panic(boom) }
		}},
		"done": {batch: func(b *Batch) { b.Done = func(Completion) { panic(boom) } }},
		"seal": {edit: func(c *Config) { c.Seal = func(context.Context) { panic(boom) } }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable(t)
				if tc.table != nil {
					tc.table(tab)
				}
				r := newRig(t, tab, tc.edit)
				var calls atomic.Int64
				b := Batch{Source: "a", Next: 1, Rows: nil, Done: func(Completion) { calls.Add(1) }}
				b.Rows = append(b.Rows, row(1, "x", 1, 1))
				if tc.batch != nil {
					tc.batch(&b)
				}
				require.NoError(t, r.f.Offer(b))
				r.offer("a", 2, row(2, "y", 2, 1))
				gate := make(chan struct{})
				require.NoError(t, r.f.Offer(r.batch("held", 5, gate, row(1, "x", 1, 1))))
				waiters := make(chan error, 4)
				go func() { waiters <- r.f.Flush(t.Context()) }()
				go func() { waiters <- r.f.WaitSource(t.Context(), "held") }()
				if name != "seal" { // a closing flusher does not ask for seals
					go func() { waiters <- r.f.Close(t.Context()) }()
				} else {
					go func() { waiters <- r.f.Flush(t.Context()) }()
				}
				synctest.Wait()
				r.run()
				if name == "seal" {
					r.at(10 * time.Second)
				}
				err := <-r.err
				var p *PanicError
				require.ErrorAs(t, err, &p)
				require.ErrorIs(t, err, boom)
				require.NotEmpty(t, p.Stack)
				for range 3 {
					require.ErrorIs(t, <-waiters, boom)
				}
				require.ErrorIs(t, r.f.Flush(t.Context()), boom)
				if tc.batch == nil {
					require.EqualValues(t, 1, calls.Load())
				}
				require.Len(t, r.completions(), 2, "every Done is called, also after one that panicked")
				r.stop(nil)
			})
		})
	}
}

// 001-09: flush and close from many goroutines, on real threads, a thousand times: each row once, Done once, no deadlock.
func TestFlushAndCloseFromManyGoroutines(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	for round := range rounds {
		tab := newTable(t)
		tab.showOnAsk = true
		tab.script = func(int, []wireRow, int) step { return step{apply: true, hide: round%100 == 0} }
		f, err := New(Config{Interval: time.Millisecond, MaxBytes: 1000, LabelPrefix: "w", Measures: testMeasures()}, tab)
		require.NoError(t, err)
		ctx, cancel := within(30 * time.Second)
		ran := make(chan error, 1)
		go func() { ran <- f.Run(ctx) }()
		var accepted, done atomic.Int64
		var last [8]atomic.Int64
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				source := fmt.Sprint("s", g)
				rnd := rand.New(rand.NewPCG(uint64(round), uint64(g)))
				for i := int64(1); i <= 5; i++ {
					b := Batch{Source: source, Next: i, Done: func(c Completion) {
						if c.Err != nil {
							t.Errorf("%s below %d: %v", source, i, c.Err)
						}
						done.Add(1)
					}}
					b.Rows = append(b.Rows, row(1, "x", i, 1, uint64(i)))
					if f.Offer(b) == nil {
						accepted.Add(1)
						last[g].Store(i)
					}
					switch rnd.IntN(6) {
					case 0:
						if err := f.Flush(ctx); err != nil {
							t.Errorf("flush: %v", err)
						}
						if n := tab.committedNext(source); n < last[g].Load() {
							t.Errorf("flushed, but %s is at %d, not %d", source, n, last[g].Load())
						}
					case 1:
						runtime.Gosched()
					case 2:
						f.Request()
					case 3:
						if i > 2 {
							if err := f.Close(ctx); err != nil {
								t.Errorf("close: %v", err)
							}
						}
					}
				}
				if err := f.Close(ctx); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		wg.Wait()
		require.NoError(t, <-ran)
		cancel()
		require.Equal(t, accepted.Load(), done.Load())
		for g := range 8 {
			require.Equal(t, last[g].Load(), tab.committedNext(fmt.Sprint("s", g)))
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}
