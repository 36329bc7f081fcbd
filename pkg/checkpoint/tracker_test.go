package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rollcall/pkg/aggregate"
)

func TestTrackerForwardOnly(t *testing.T) {
	h := hist(10, 4)
	start := Mark{History: h, Target: target}
	tr := NewTracker(10, start, true)
	require.Equal(t, h, tr.History())

	off, mark, ok := tr.Pending()
	require.True(t, ok, "the start is committed before anything is counted")
	require.Equal(t, int64(10), off)
	require.Equal(t, start, mark)
	tr.Committed(off, mark)
	_, _, ok = tr.Pending()
	require.False(t, ok)

	tr.Note(20, false, 0)
	off, mark, ok = tr.Pending()
	require.True(t, ok)
	require.Equal(t, int64(20), off)
	require.Equal(t, start, mark, "nothing of the history is in the table yet")

	tr.Note(30, true, 20000)
	tr.Committed(off, mark)
	off, mark, ok = tr.Pending()
	require.True(t, ok, "what came while the commit was under way stays pending")
	require.Equal(t, int64(30), off)
	loaded := Mark{History: h, Table: 30, Day: 20000, HasDay: true, Target: target}
	require.Equal(t, loaded, mark)

	tr.Note(25, true, 20001)
	tr.Note(30, true, 20001)
	off, mark, _ = tr.Pending()
	require.Equal(t, int64(30), off)
	require.Equal(t, loaded, mark, "only forward")

	tr.Note(40, false, 0)
	off, mark, _ = tr.Pending()
	require.Equal(t, int64(40), off)
	require.Equal(t, loaded, mark, "L stays where rows are")
	tr.Committed(off, mark)
	tr.Committed(20, start)
	_, _, ok = tr.Pending()
	require.False(t, ok)
	require.Equal(t, int64(40), tr.Durable())

	tr.Note(50, false, 0)
	off, mark, _ = tr.Pending()
	tr.Note(50, true, 20001)
	tr.Committed(off, mark)
	_, mark, ok = tr.Pending()
	require.True(t, ok, "the same offset, known loaded meanwhile")
	require.Equal(t, int64(50), mark.Table)
}

// TestTrackerBehind: after "T < L | at T" completions below C move nothing until they pass it.
func TestTrackerBehind(t *testing.T) {
	h := hist(10, 4)
	tr := Resume(input(with(commitOf(h, 60, 55), rowsOf(h, 50)))).Tracker()
	tr.Note(52, true, 20001)
	tr.Note(58, true, 20001)
	tr.Note(60, false, 0)
	_, mark, ok := tr.Pending()
	require.False(t, ok)
	require.Equal(t, int64(58), mark.Table)
	tr.Note(61, true, 20001)
	off, mark, ok := tr.Pending()
	require.True(t, ok)
	require.Equal(t, int64(61), off)
	require.Equal(t, int64(61), mark.Table)
}

// TestTrackerProperties: whatever is noted, offset and L never go back, L ≤ offset, and nothing is pending once committed.
func TestTrackerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := NewTracker(rapid.Int64Range(0, 50).Draw(t, "start"), Mark{History: hist(0, 1), Target: target}, true)
		last, lastL := int64(-1), int64(-1)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			tr.Note(rapid.Int64Range(0, 100).Draw(t, "next"), rapid.Bool().Draw(t, "loaded"), aggregate.Day(rapid.Int32Range(20000, 20003).Draw(t, "day")))
			off, mark, ok := tr.Pending()
			require.GreaterOrEqual(t, off, last)
			require.GreaterOrEqual(t, mark.Table, lastL)
			require.LessOrEqual(t, mark.Table, off)
			require.Equal(t, mark.Table > 0, mark.HasDay)
			last, lastL = off, mark.Table
			if ok && rapid.Bool().Draw(t, "commit") {
				tr.Committed(off, mark)
				_, _, ok = tr.Pending()
				require.False(t, ok)
			}
		}
	})
}

func TestWaitsSettle(t *testing.T) {
	w := NewWaits(20 * time.Second)
	now := time.Unix(1_000_000, 0)
	rows := []Progress{rowsOf(hist(10, 4), 50)}
	in := input(with(foreign70, Progress{History: hist(10, 4)}))
	ask := func() Decision {
		in.Histories = rows
		w.Fill(now, &in)
		d := Resume(in)
		w.Note(now, d)
		return d
	}
	in.Policy.ProgramContinue, in.Program = true, progB
	require.True(t, ask().Settle)
	now = now.Add(49 * time.Second)
	require.True(t, ask().Settle)
	rows = []Progress{rowsOf(hist(10, 4), 51)}
	require.True(t, ask().Settle, "T moved")
	now = now.Add(49 * time.Second)
	require.True(t, ask().Settle)
	rows = []Progress{rowsOf(hist(10, 4), 50)}
	require.True(t, ask().Settle, "a lagging answer is not the end of the wait")
	rows = []Progress{rowsOf(hist(10, 4), 51)}
	require.True(t, ask().Settle)
	now = now.Add(50 * time.Second)
	d := ask()
	require.False(t, d.Settle)
	require.Equal(t, int64(51), d.Position)

	in.Program = progA
	require.Equal(t, Continue, ask().Action)
	in.Program = progB
	require.True(t, ask().Settle, "another wait begins anew")
}

func TestWaitsReread(t *testing.T) {
	w := NewWaits(20 * time.Second)
	now := time.Unix(1_000_000, 0)
	in := input(with(commitOf(hist(10, 4), 60, 55)))
	in.Policy.AllowEmpty = true
	bounds := in.Bounds
	ask := func() Decision {
		w.Fill(now, &in)
		d := Resume(in)
		w.Note(now, d)
		return d
	}
	require.Equal(t, ReadAgain, ask().Action)
	now = now.Add(RereadFor - time.Second)
	require.Equal(t, ReadAgain, ask().Action)
	in.Bounds = nil
	require.Equal(t, ReadAgain, ask().Action)
	in.Bounds = bounds
	now = now.Add(time.Second)
	d := ask()
	require.Equal(t, NewHistory, d.Action)
	require.True(t, d.Settle)
	now = now.Add(50 * time.Second)
	d = ask()
	require.Equal(t, NewHistory, d.Action, "what went missing is not waited for again while settling")
	require.False(t, d.Settle)
}
