package sink

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIntervalWidensAndNarrows(t *testing.T) {
	for name, tc := range map[string]struct {
		base   time.Duration
		events string // o: overloaded, d: done
		want   time.Duration
	}{
		"nothing":              {10 * time.Second, "", 10 * time.Second},
		"doubles":              {10 * time.Second, "oo", 40 * time.Second},
		"ten times at most":    {10 * time.Second, "oooooooo", 100 * time.Second},
		"five minutes at most": {time.Minute, "oooooooo", 5 * time.Minute},
		"never below base":     {10 * time.Second, "odddddd", 10 * time.Second},
		"step by step":         {10 * time.Second, "oodd", 22500 * time.Millisecond},
		"long by choice":       {10 * time.Minute, "oood", 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPace(tc.base, 1000)
			for _, e := range tc.events {
				if e == 'o' {
					p.overloaded()
				} else {
					p.done(time.Time{}, 1, 0)
				}
			}
			require.Equal(t, tc.want, p.interval)
			require.Equal(t, tc.want > tc.base, p.widened())
		})
	}
}

func TestLimitHalvesAndRecoversSlowly(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := newPace(time.Second, 64<<20)
	p.tooLarge(now, 60<<20)
	require.EqualValues(t, 30<<20, p.limit)
	p.done(now, 1<<20, 0)
	require.EqualValues(t, 30<<20, p.limit, "a small load proves nothing")
	for range 100 {
		p.done(now, p.limit, 0)
	}
	require.EqualValues(t, 60<<20*7/8, p.limit, "not up to what was refused")
	for range 100 {
		p.done(now.Add(2*time.Hour), p.limit, 0)
	}
	require.EqualValues(t, 64<<20, p.limit, "but some day it is tried again")
	for range 40 {
		p.tooLarge(now, p.limit)
	}
	require.EqualValues(t, limitFloor, p.limit)
	small := newPace(time.Second, 1000)
	small.tooLarge(now, 900)
	require.EqualValues(t, 1000, small.limit, "the floor is not above the configured limit")
}

func TestWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		class      Class
		n          int
		retryAfter time.Duration
		want       time.Duration
	}{
		"first":                      {ClassTransient, 1, 0, time.Second},
		"grows":                      {ClassTransient, 4, 0, 4 * time.Second},
		"to eight seconds":           {ClassTransient, 400, 0, 8 * time.Second},
		"overload waits longer":      {ClassOverload, 4, 0, 8 * time.Second},
		"overload at most":           {ClassOverload, 400, 0, 30 * time.Second},
		"permanent at most":          {ClassPermanent, 400, 0, 30 * time.Second},
		"refused: once more at once": {ClassRefused, 1, 0, time.Second},
		"refused: then slowly":       {ClassRefused, 2, 0, 9 * time.Second},
		"the server's own word":      {ClassTransient, 1, 20 * time.Second, 20 * time.Second},
		"but not for hours":          {ClassTransient, 1, 20 * time.Hour, 5 * time.Minute},
		"unknown class":              {Class(99), 20, 0, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				require.InEpsilon(t, float64(tc.want), float64(wait(tc.class, tc.n, tc.retryAfter)), 0.11)
			}
		})
	}
}

func TestEstimateIsLearnt(t *testing.T) {
	p := newPace(time.Second, 1000)
	for range 40 {
		p.encoded(1000, 500)
	}
	require.InDelta(t, 0.5, p.ratio, 0.01)
	p.encoded(0, 500)
	require.InDelta(t, 0.5, p.ratio, 0.01)
	for range 40 {
		p.encoded(1, 1<<20)
	}
	require.InDelta(t, 4, p.ratio, 0.01, "bounded")
}
