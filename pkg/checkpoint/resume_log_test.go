package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"
)

func high(o int64) func(*Input) { return func(in *Input) { in.Bounds.High, in.Bounds.Stable = o, -1 } }

func logStart(o int64, reset OffsetReset) func(*Input) {
	return func(in *Input) { in.Bounds.Start, in.Policy.Reset = o, reset }
}

func diverged(o int64) func(*Input) { return func(in *Input) { in.Diverged, in.Divergence = true, o } }

func running(h History, position int64) func(*Input) {
	return func(in *Input) { in.AtStart, in.Running = false, &Running{h, position} }
}

// TestResumeTruncated has "T, C or the position in memory is beyond the log end or above a divergence D: the log was truncated; drop the
// partition's memory and unsent batches, new history at min(D, max(T, C)), ERROR with the range".
func TestResumeTruncated(t *testing.T) {
	h := hist(10, 4)
	truncated := func(from, to int64) func(*testing.T, Decision) {
		return func(t *testing.T, d Decision) {
			require.Equal(t, Range{from, to}, d.Truncated)
			require.True(t, d.DropUnsent)
		}
	}
	runResumeCases(t, []resumeCase{
		{
			name: "T beyond the log end", in: input(with(nil, rowsOf(h, 50)), high(40)), level: zapcore.ErrorLevel, says: []string{"40", "50"},
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true, more: truncated(40, 50),
		},
		{
			name: "C beyond the log end, T below: at T's side of it", in: input(with(commitOf(h, 60, 30), rowsOf(h, 30)), high(40)),
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true, more: truncated(40, 60),
		},
		{
			name: "T, C at the log end is not beyond it", in: input(with(commitOf(h, 60, 60), rowsOf(h, 60)), high(60)),
			want: want{Continue, LineRowsAhead, h, 60, true},
		},
		{
			name: "C above a divergence", in: input(with(commitOf(h, 60, 30), rowsOf(h, 30)), diverged(40)),
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true, more: truncated(40, 60),
		},
		{
			name: "T above a divergence", in: input(with(commitOf(h, 20, 20), rowsOf(h, 50)), diverged(40)),
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true,
		},
		{
			name: "T below a divergence, only the commit without rows above", in: input(with(commitOf(h, 60, 0)), diverged(40)),
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true,
		},
		{
			name: "a divergence above everything is none", in: input(with(commitOf(h, 60, 30), rowsOf(h, 30)), diverged(60)),
			want: want{Continue, LineRowsAhead, h, 60, true},
		},
		{
			name: "the position in memory above a divergence: at max(T, C) below it", in: input(with(commitOf(h, 60, 30), rowsOf(h, 30)), diverged(70), running(h, 80)),
			want: want{NewHistory, LineTruncated, hist(60, 5), 60, false}, settle: true, more: truncated(70, 80),
		},
		{
			name: "the position in memory beyond the log end", in: input(with(commitOf(h, 60, 30), rowsOf(h, 30)), high(75), running(h, 80)),
			want: want{NewHistory, LineTruncated, hist(60, 5), 60, false}, settle: true, more: truncated(75, 80),
		},
		{
			name: "the epoch is new even if the leader's is not known to be", in: input(with(nil, rowsOf(h, 50)), high(40), func(in *Input) { in.Epoch = 4 }),
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true,
		},
		{
			name: "the epoch is new where epochs began again", in: input(with(nil, rowsOf(hist(10, 9), 50)), high(40), func(in *Input) { in.Epoch = 0 }),
			want: want{NewHistory, LineTruncated, hist(40, 10), 40, false}, settle: true,
		},
		{
			name: "the epoch is new where brokers say none", in: input(with(nil, rowsOf(hist(10, -1), 50)), high(40), func(in *Input) { in.Epoch = -1 }),
			want: want{NewHistory, LineTruncated, hist(40, 0), 40, false}, settle: true,
		},
		{
			name: "a foreign commit without rows beyond the log end", in: input(with(foreign70), high(40)),
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true,
		},
		{
			name: "a foreign commit that does not count is not truncated", in: input(with(foreign70, rowsOf(h, 30)), high(40)),
			want: want{Continue, LineRowsNone, h, 30, true},
		},
		{
			name: "the last load does not show yet: wait, and drop what is in memory at once", in: input(with(commitOf(h, 60, 55), rowsOf(h, 30)), high(50)),
			want: want{action: ReadAgain, line: LineTruncated}, more: truncated(50, 60),
		},
		{
			name: "truncated and of another program", in: input(with(nil, rowsOf(h.of(idA, progB), 50)), high(40), func(in *Input) { in.Policy.ProgramContinue = true }),
			want: want{NewHistory, LineTruncated, hist(40, 5), 40, false}, settle: true,
		},
		{
			name: "without a known divergence and with everything below the log end: go on, WARN",
			in:   input(with(commitOf(h, 60, 30), rowsOf(h, 30)), running(h, 80), func(in *Input) { in.DataLoss = true }), level: zapcore.WarnLevel,
			want: want{Continue, LineDataLoss, h, 80, false},
			more: func(t *testing.T, d Decision) { require.True(t, d.Keep) },
		},
	})
}

// TestResumeGap has "the next readable record is beyond the position because retention removed some: a gap is never inside a history; by
// KAFKA_OFFSET_RESET stop the partition (fail), or new history at the log start (earliest) or end (latest)".
func TestResumeGap(t *testing.T) {
	h := hist(10, 4)
	skipped := func(from, to int64) func(*testing.T, Decision) {
		return func(t *testing.T, d Decision) {
			require.Equal(t, Range{from, to}, d.Skipped)
			require.Equal(t, zapcore.ErrorLevel, d.Level)
			require.False(t, d.DropUnsent)
		}
	}
	runResumeCases(t, []resumeCase{
		{
			name: "fail", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), logStart(100, ResetFail)),
			want: want{StopPartition, LineGap, History{}, 100, false}, says: []string{"60", "100", "KAFKA_OFFSET_RESET"}, more: skipped(60, 100),
		},
		{
			name: "earliest", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), logStart(100, ResetEarliest)),
			want: want{NewHistory, LineGap, hist(100, 5), 100, false}, settle: true, more: skipped(60, 100),
		},
		{
			name: "latest: the end for a reader of committed records", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), logStart(100, ResetLatest)),
			want: want{NewHistory, LineGap, hist(990, 5), 990, false}, settle: true, more: skipped(60, 990),
		},
		{
			name: "at the log start there is no gap", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), logStart(60, ResetFail)),
			want: want{Continue, LineRowsAhead, h, 60, true},
		},
		{
			name: "nothing counted yet", in: input(with(commitOf(h, 60, 0)), logStart(100, ResetEarliest)),
			want: want{NewHistory, LineGap, hist(100, 5), 100, false}, settle: true, more: skipped(60, 100),
		},
		{
			name: "while running: what is in memory is loaded first", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), logStart(100, ResetEarliest), running(h, 80)),
			want: want{NewHistory, LineGap, hist(100, 5), 100, false}, settle: true, more: skipped(80, 100),
		},
		{
			name: "a new history has no gap at its start either", in: input(with(foreign70), logStart(100, ResetEarliest)),
			want: want{NewHistory, LineTakenOver, hist(100, 5), 100, false}, settle: true, more: skipped(70, 100), says: []string{"not ours"},
		},
		{
			name: "a new history below the log start, fail", in: input(with(foreign70), logStart(100, ResetFail)),
			want: want{StopPartition, LineTakenOver, History{}, 100, false}, more: skipped(70, 100),
		},
		{
			name: "the last load does not show yet", in: input(with(commitOf(h, 120, 110), rowsOf(h, 50)), logStart(100, ResetEarliest)),
			want: want{action: ReadAgain, line: LineRowsBehind},
		},
		{
			name: "the last load never shows", in: input(with(commitOf(h, 120, 110), rowsOf(h, 50)), logStart(100, ResetEarliest), func(in *Input) { in.Reread = true }),
			want: want{action: Refuse, line: LineRowsBehind},
		},
		{
			name: "truncated to below the log start", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), logStart(65, ResetEarliest), high(70), running(h, 80)),
			want: want{NewHistory, LineTruncated, hist(65, 5), 65, false}, settle: true,
			more: func(t *testing.T, d Decision) {
				require.Equal(t, Range{60, 65}, d.Skipped)
				require.Equal(t, Range{70, 80}, d.Truncated)
				require.True(t, d.DropUnsent)
			},
		},
	})
}

// TestResumeRunning: an owner is left alone unless its log, its history or its topic is not what it was.
func TestResumeRunning(t *testing.T) {
	h := hist(10, 4)
	kept := func(t *testing.T, d Decision) { require.True(t, d.Keep) }
	runResumeCases(t, []resumeCase{
		{
			name: "nothing happened", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), running(h, 80)),
			want: want{Continue, LineRunning, h, 80, false}, more: kept,
		},
		{
			name: "at the log end", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50)), running(h, 1000)),
			want: want{Continue, LineRunning, h, 1000, false}, more: kept,
		},
		{
			name: "a stale read changes nothing", in: input(running(h, 80)),
			want: want{Continue, LineRunning, h, 80, false}, more: kept,
		},
		{
			name: "the re-creation was seen to, and is still reported",
			in:   input(with(commitOf(h, 60, 50), rowsOf(h, 50), rowsOf(h.of(idB, progA), 500)), running(h, 80), func(in *Input) { in.Recreated = true }),
			want: want{Continue, LineRunning, h, 80, false}, more: kept,
		},
		{
			name: "a greater history lives: resume anew", in: input(with(nil, rowsOf(h, 50), rowsOf(hist(70, 4), 75)), running(h, 80)),
			want: want{Continue, LineRowsNone, hist(70, 4), 75, true},
			more: func(t *testing.T, d Decision) { require.Equal(t, []History(nil), d.Overlap) },
		},
	})
}

// TestResumeOverlap: "two live writers of overlapping histories of one epoch are said".
func TestResumeOverlap(t *testing.T) {
	h := hist(40, 4)
	for name, c := range map[string]struct {
		other Progress
		want  []History
	}{
		"the other counts beyond our start":  {rowsOf(hist(10, 4), 41), []History{hist(10, 4)}},
		"the other ends where we begin":      {rowsOf(hist(10, 4), 40), nil},
		"an older epoch was truncated":       {rowsOf(hist(10, 3), 45), nil},
		"another incarnation":                {rowsOf(hist(10, 4).of(idB, progA), 45), nil},
		"the same start by another program":  {rowsOf(hist(40, 4).of(idA, "00000000"), 45), []History{hist(40, 4).of(idA, "00000000")}},
		"bitmaps went ahead, nothing counts": {Progress{History: hist(10, 4)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := Resume(input(with(nil, c.other, rowsOf(h, 50))))
			require.Equal(t, Continue, d.Action)
			require.Equal(t, h, d.History)
			require.Equal(t, c.want, d.Overlap)
		})
	}
	d := Resume(input(with(&Commit{45, "x"}, rowsOf(hist(10, 5).of(idB, progA), 100)), func(in *Input) { in.Policy.NewTopicAdd = true }))
	require.Equal(t, NewHistory, d.Action)
	require.Empty(t, d.Overlap)
}

func TestStarted(t *testing.T) {
	other := hist(10, 4).of(idB, progA)
	ours := map[int32]Commit{3: *commitOf(hist(10, 4), 10, 0)}
	require.False(t, Started("t", idA, standIn, nil, nil))
	require.True(t, Started("t", idA, standIn, ours, nil))
	require.True(t, Started("t", idA, standIn, map[int32]Commit{1: {Offset: 7}}, nil), "a foreign commit is one")
	require.False(t, Started("t", idA, standIn, map[int32]Commit{3: *commitOf(other, 10, 0)}, nil), "of another topic id is none")
	require.True(t, Started("t", idA, standIn, map[int32]Commit{3: *commitOf(other.of(standIn, progA), 10, 0)}, nil))
	require.True(t, Started("t", idA, standIn, nil, []Progress{rowsOf(hist(10, 4), 20)}))
	require.False(t, Started("t", idA, standIn, nil, []Progress{rowsOf(other, 20)}))
	require.True(t, Started("t", "", standIn, nil, []Progress{rowsOf(other.of(standIn, progA), 20)}))
}
