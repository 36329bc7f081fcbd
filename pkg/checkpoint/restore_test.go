package checkpoint

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rollcall/pkg/aggregate"
)

// answers is a store whose restores answer one after the other, the last one for ever.
type answers struct {
	from  []aggregate.Day
	calls []func() (Progress, error)
}

func (a *answers) Restore(_ context.Context, h History, from aggregate.Day) (aggregate.State, Progress, error) {
	a.from = append(a.from, from)
	next := a.calls[min(len(a.from), len(a.calls))-1]
	p, err := next()
	p.History = h
	return aggregate.State{Next: p.Next, WatermarkMs: p.WatermarkMs, HasWatermark: true}, p, err
}

func read(next, w int64) func() (Progress, error) {
	return func() (Progress, error) { return Progress{Next: next, WatermarkMs: w}, nil }
}

func failed(err error) func() (Progress, error) {
	return func() (Progress, error) { return Progress{}, err }
}

func request() RestoreRequest {
	loc := time.FixedZone("", 8*3600)
	w := time.Date(2026, 7, 18, 1, 0, 0, 0, loc).UnixMilli()
	return RestoreRequest{History: hist(10, 4), Table: 50, Watermark: w, Lateness: 2 * time.Hour, Location: loc}
}

// TestRestoreTwoSteps: the second read decides, and a staler one is repeated, as is a refusal of the planner.
func TestRestoreTwoSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := request()
		planner := errors.New("schema of table had been updated frequently during the plan generation")
		a := &answers{calls: []func() (Progress, error){failed(planner), read(49, req.Watermark), read(0, 0), read(60, req.Watermark-1), read(55, req.Watermark+5)}}
		var retried []error
		req.OnRetry = func(err error, wait time.Duration) {
			require.Positive(t, wait)
			retried = append(retried, err)
		}
		begun := time.Now()
		state, p, err := Restore(t.Context(), a, req)
		require.NoError(t, err)
		require.Equal(t, int64(55), p.Next)
		require.Equal(t, int64(55), state.Next)
		require.Len(t, retried, 4)
		require.ErrorIs(t, retried[0], planner)
		for _, err := range retried[1:] {
			require.ErrorIs(t, err, ErrStale)
		}
		require.Positive(t, time.Since(begun))
		day, err := aggregate.ParseDay("2026-07-17")
		require.NoError(t, err)
		for _, from := range a.from {
			require.Equal(t, day, from, "day(W − lateness) in the program's zone")
		}
	})
}

func TestRestoreGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		away := errors.New("away")
		begun := time.Now()
		_, _, err := Restore(ctx, &answers{calls: []func() (Progress, error){failed(away)}}, request())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, away)
		require.Equal(t, time.Minute, time.Since(begun))
		require.False(t, IsPermanent(err))
	})
}

// TestRestoreRowsGone: retention may drop the rows that T or W were known from; the first step is then due again.
func TestRestoreRowsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{calls: []func() (Progress, error){read(0, 0)}}
		_, _, err := Restore(t.Context(), a, request())
		require.ErrorIs(t, err, ErrStale)
		require.False(t, IsPermanent(err))
		require.Len(t, a.from, restoreStale)
	})
}

func TestRestorePermanent(t *testing.T) {
	broken := &UnusableError{What: "a file"}
	a := &answers{calls: []func() (Progress, error){failed(broken)}}
	_, _, err := Restore(t.Context(), a, request())
	require.True(t, IsPermanent(err))
	require.Len(t, a.from, 1)
	require.ErrorContains(t, err, hist(10, 4).String())
}

func TestDayOf(t *testing.T) {
	for _, zone := range []string{"UTC", "Asia/Shanghai", "Europe/Berlin", "Africa/Cairo", "Asia/Kathmandu", "America/St_Johns"} {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			ms := rapid.Int64Range(-1e12, 4e12).Draw(t, "ms")
			require.Equal(t, time.UnixMilli(ms).In(loc).Format(time.DateOnly), dayOf(ms, loc).String())
		})
	}
}
