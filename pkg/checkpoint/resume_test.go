package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"
)

const (
	progA, progB = "aaaaaaaa", "bbbbbbbb"
	idA, idB     = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
	standIn      = "~cluster"
	target       = "db.dau"
)

// hist is a history of topic t, partition 3.
func hist(start int64, epoch int32) History {
	return History{Topic: "t", Partition: 3, TopicID: idA, Start: start, Epoch: epoch, Program: progA}
}

func (h History) of(id, program string) History {
	h.TopicID, h.Program = id, program
	return h
}

// rowsOf is the progress of a history up to next.
func rowsOf(h History, next int64) Progress {
	return Progress{History: h, Next: next, WatermarkMs: next * 1000, MaxDay: 20000}
}

// commitOf is a commit of ours.
func commitOf(h History, c, l int64) *Commit {
	return &Commit{Offset: c, Metadata: Mark{History: h, Table: l, Day: 20000, HasDay: l > 0, Target: target}.Format()}
}

// foreign70 is a commit that somebody else made.
var foreign70 = &Commit{Offset: 70, Metadata: "by hand"}

// input is partition 3 of a topic that has begun, with a log of [10, 1000), at start, under leader epoch 5.
func input(change ...func(*Input)) Input {
	in := Input{
		Topic: "t", Partition: 3, TopicID: idA, StandIn: standIn, Program: progA, Target: target, Epoch: 5,
		Bounds: &Bounds{Start: 10, High: 1000, Stable: 990}, AtStart: true, TopicStarted: true, Policy: Policy{Reset: ResetEarliest},
	}
	for _, c := range change {
		c(&in)
	}
	return in
}

func with(c *Commit, rows ...Progress) func(*Input) {
	return func(in *Input) { in.Commit, in.Histories = c, rows }
}

// want is what a case says of a decision; history, position and restore of Continue and NewHistory, for the others the action only.
type want struct {
	action   Action
	line     string
	history  History
	position int64
	restore  bool
}

type resumeCase struct {
	name   string
	in     Input
	want   want
	level  zapcore.Level
	says   []string
	more   func(t *testing.T, d Decision)
	settle bool
}

func runResumeCases(t *testing.T, cases []resumeCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := Resume(c.in)
			require.Equal(t, c.want, want{d.Action, d.Line, d.History, d.Position, d.Restore}, "%s: %s", d.Line, d.Message)
			require.Equal(t, c.settle, d.Settle, "settle")
			if c.level != 0 {
				require.Equal(t, c.level, d.Level)
			}
			for _, s := range c.says {
				require.Contains(t, d.Message, s)
			}
			if c.more != nil {
				c.more(t, d)
			}
			require.Equal(t, d, Resume(c.in), "a pure function")
			if d.Action != NewHistory {
				return
			}
			// "Every one commits its start with L = 0 before it counts anything", and it is live from then on.
			offset, mark, pending := d.Tracker().Pending()
			require.True(t, pending)
			require.Equal(t, d.Position, offset)
			require.Equal(t, d.History.Start, offset)
			require.Equal(t, Mark{History: d.History, Target: target}, mark)
			after := c.in
			after.Commit, after.Running, after.Diverged, after.Recreated = &Commit{Offset: offset, Metadata: mark.Format()}, nil, false, false
			after.TopicID = d.History.TopicID
			again := Resume(after)
			require.Equal(t, want{Continue, LineNothingYet, d.History, d.Position, false},
				want{again.Action, again.Line, again.History, again.Position, again.Restore}, again.Message)
		})
	}
}

// TestResumeTable has every line of DESIGN §1's Resume table.
func TestResumeTable(t *testing.T) {
	h := hist(10, 4)
	runResumeCases(t, []resumeCase{
		{
			name: "rows | none | at T (say so)", in: input(with(nil, rowsOf(h, 50))),
			want: want{Continue, LineRowsNone, h, 50, true}, says: []string{"table"},
			more: func(t *testing.T, d Decision) {
				off, mark, pending := d.Tracker().Pending()
				require.True(t, pending, "the mirror is set right")
				require.Equal(t, int64(50), off)
				require.Equal(t, Mark{History: h, Table: 50, Day: 20000, HasDay: true, Target: target}, mark)
				require.Equal(t, int64(50_000), d.Watermark)
				require.Equal(t, int64(50), d.Table)
			},
		},
		{
			name: "rows | foreign | at T (say so)", in: input(with(foreign70, rowsOf(h, 50))), level: zapcore.WarnLevel,
			want: want{Continue, LineRowsNone, h, 50, true}, says: []string{"70", "not ours"},
		},
		{
			name: "rows, T ≥ L | ours | at max(T, C): C", in: input(with(commitOf(h, 60, 50), rowsOf(h, 50))),
			want: want{Continue, LineRowsAhead, h, 60, true},
			more: func(t *testing.T, d Decision) {
				_, _, pending := d.Tracker().Pending()
				require.False(t, pending)
			},
		},
		{
			name: "rows, T ≥ L | ours | at max(T, C): T", in: input(with(commitOf(h, 40, 30), rowsOf(h, 50))),
			want: want{Continue, LineRowsAhead, h, 50, true},
		},
		{
			name: "rows, T < L | ours | at T", in: input(with(commitOf(h, 60, 55), rowsOf(h, 50))), level: zapcore.WarnLevel,
			want: want{Continue, LineRowsBehind, h, 50, true}, says: []string{"50", "55"},
			more: func(t *testing.T, d Decision) {
				off, mark, pending := d.Tracker().Pending()
				require.False(t, pending, "commits go only forward")
				require.Equal(t, int64(60), off)
				require.Equal(t, int64(55), mark.Table, "what is known loaded stays known")
			},
		},
		{
			name: "none | none | first start, partition 0", in: input(func(in *Input) { in.Partition, in.TopicStarted = 0, false }),
			want: want{action: ResolveFirstStart, line: LineFirstStart},
		},
		{
			name: "none | none | first start, other partitions wait", in: input(func(in *Input) { in.TopicStarted = false }),
			want: want{action: AwaitFirstStart, line: LineFirstStart},
		},
		{
			name: "none | none | a partition added later: at its beginning", in: input(),
			want: want{NewHistory, LineAdded, hist(10, 5), 10, false},
		},
		{
			name: "none | foreign | new history at C, say that the first day is partial", in: input(with(foreign70)), level: zapcore.WarnLevel,
			want: want{NewHistory, LineTakenOver, hist(70, 5), 70, false}, settle: true, says: []string{"70", "partial"},
		},
		{
			name: "none | ours, L = 0 | at C, same history", in: input(with(commitOf(h, 60, 0))),
			want: want{Continue, LineNothingYet, h, 60, false},
		},
		{
			name: "none | ours, day expired | at C, same history",
			in:   input(with(commitOf(h, 60, 55)), func(in *Input) { in.Retention, in.OldestDay = true, 20001 }),
			want: want{Continue, LineExpired, h, 60, false},
			more: func(t *testing.T, d Decision) {
				off, mark, pending := d.Tracker().Pending()
				require.False(t, pending)
				require.Equal(t, int64(60), off)
				require.Equal(t, int64(55), mark.Table)
			},
		},
		{
			name: "none | ours, L > 0 | re-read for 2 min", in: input(with(commitOf(h, 60, 55)), func(in *Input) { in.Retention, in.OldestDay = true, 20000 }),
			want: want{action: ReadAgain, line: LineEmptied}, level: zapcore.WarnLevel,
			more: func(t *testing.T, d Decision) { require.True(t, d.Missing) },
		},
		{
			name: "none | ours, L > 0 | then at start exit 12", in: input(with(commitOf(h, 60, 55)), func(in *Input) { in.Reread = true }),
			want: want{action: Refuse, line: LineEmptied}, level: zapcore.ErrorLevel, says: []string{"emptied", "CHECKPOINT_ALLOW_EMPTY", target, h.String()},
		},
		{
			name: "none | ours, L > 0 | while running go on re-reading",
			in:   input(with(commitOf(h, 60, 55)), func(in *Input) { in.Reread, in.AtStart = true, false }),
			want: want{action: ReadAgain, line: LineEmptied}, level: zapcore.ErrorLevel,
		},
		{
			name: "none | ours, L > 0 | CHECKPOINT_ALLOW_EMPTY: new history at C",
			in:   input(with(commitOf(h, 60, 55)), func(in *Input) { in.Reread, in.Policy.AllowEmpty = true, true }),
			want: want{NewHistory, LineEmptied, hist(60, 5), 60, false}, settle: true,
		},
		{
			name: "– | ours, other target | exit 12 naming both",
			in:   input(with(commitOf(h, 60, 55), rowsOf(h, 55)), func(in *Input) { in.Target = "db.other" }),
			want: want{action: Refuse, line: LineTarget}, level: zapcore.ErrorLevel, says: []string{"db.dau", "db.other", "KAFKA_GROUP"},
		},
		{
			name: "rows of another program | – | exit 12 naming what changed", in: input(with(nil, rowsOf(h.of(idA, progB), 50))),
			want: want{action: Refuse, line: LineProgram}, says: []string{progA, progB, "PROGRAM_CHANGE=continue"},
		},
		{
			name: "a commit of ours of another program | exit 12", in: input(with(commitOf(h.of(idA, progB), 50, 0))),
			want: want{action: Refuse, line: LineProgram},
		},
		{
			name: "another program, PROGRAM_CHANGE=continue: new history at T",
			in:   input(with(commitOf(h.of(idA, progB), 60, 50), rowsOf(h.of(idA, progB), 50)), func(in *Input) { in.Policy.ProgramContinue = true }),
			want: want{NewHistory, LineProgram, hist(50, 5), 50, false}, settle: true, says: []string{progA, progB},
		},
		{
			name: "another program, PROGRAM_CHANGE=continue: C without rows",
			in:   input(with(commitOf(h.of(idA, progB), 60, 0)), func(in *Input) { in.Policy.ProgramContinue = true }),
			want: want{NewHistory, LineProgram, hist(60, 5), 60, false}, settle: true,
		},
		{
			name: "rows only of other topic ids | none of this id | at start exit 12", in: input(with(nil, rowsOf(h.of(idB, progA), 50))),
			want: want{action: Refuse, line: LineNewTopic}, says: []string{"KAFKA_NEW_TOPIC=add", idA},
		},
		{
			name: "rows only of other topic ids | a commit of that id | exit 12", in: input(with(commitOf(h.of(idB, progA), 50, 50), rowsOf(h.of(idB, progA), 50))),
			want: want{action: Refuse, line: LineNewTopic},
		},
		{
			name: "rows only of other topic ids | foreign | exit 12", in: input(with(foreign70, rowsOf(h.of(idB, progA), 50))),
			want: want{action: Refuse, line: LineNewTopic},
		},
		{
			name: "rows only of other topic ids, KAFKA_NEW_TOPIC=add: new history at its beginning",
			in:   input(with(nil, rowsOf(h.of(idB, progA), 50)), func(in *Input) { in.Policy.NewTopicAdd, in.TopicStarted = true, false }),
			want: want{NewHistory, LineNewTopic, hist(10, 5), 10, false}, settle: true,
		},
		{
			name: "rows only of other topic ids, KAFKA_NEW_TOPIC=add, foreign: where somebody set it",
			in:   input(with(foreign70, rowsOf(h.of(idB, progA), 50)), func(in *Input) { in.Policy.NewTopicAdd = true }),
			want: want{NewHistory, LineTakenOver, hist(70, 5), 70, false}, settle: true,
		},
		{
			name: "a re-creation confirmed while running: new history at its beginning, whatever the start mode",
			in: input(with(commitOf(h.of(idB, progA), 500, 500), rowsOf(h.of(idB, progA), 500)), func(in *Input) {
				in.AtStart, in.Recreated, in.TopicStarted, in.Running = false, true, false, &Running{h.of(idB, progA), 510}
			}),
			want: want{NewHistory, LineRecreated, hist(10, 5), 10, false}, settle: true,
			more: func(t *testing.T, d Decision) {
				require.False(t, d.DropUnsent, "the old incarnation's records stay counted")
			},
		},
	})
}

// TestResumeWords has the sentences of DESIGN §1 around the table.
func TestResumeWords(t *testing.T) {
	h := hist(10, 4)
	runResumeCases(t, []resumeCase{
		{
			name: "one of another topic id is no commit", in: input(with(commitOf(h.of(idB, progA), 60, 55), rowsOf(h, 50))),
			want: want{Continue, LineRowsNone, h, 50, true},
		},
		{
			name: "one of another topic id is no commit, even of another target",
			in:   input(with(&Commit{60, Mark{History: h.of(idB, progA), Target: "db.x"}.Format()}, rowsOf(h, 50))),
			want: want{Continue, LineRowsNone, h, 50, true},
		},
		{
			name: "the live history is the greatest (epoch, start): by epoch", in: input(with(nil, rowsOf(hist(90, 3), 100), rowsOf(h, 50))),
			want: want{Continue, LineRowsNone, h, 50, true},
		},
		{
			name: "the live history is the greatest (epoch, start): by start", in: input(with(nil, rowsOf(hist(60, 4), 70), rowsOf(h, 50))),
			want: want{Continue, LineRowsNone, hist(60, 4), 70, true},
		},
		{
			name: "the live history may be the commit's: its rows and T are meant", in: input(with(commitOf(hist(80, 4), 80, 0), rowsOf(h, 50))),
			want: want{Continue, LineNothingYet, hist(80, 4), 80, false},
		},
		{
			name: "a commit of a lesser history is no commit", in: input(with(commitOf(h, 60, 55), rowsOf(hist(20, 5), 30))),
			want: want{Continue, LineRowsNone, hist(20, 5), 30, true},
		},
		{
			name: "the program of the live history counts, not that of older ones", in: input(with(nil, rowsOf(h.of(idA, progB), 50), rowsOf(hist(50, 4), 70))),
			want: want{Continue, LineRowsNone, hist(50, 4), 70, true},
		},
		{
			name: "rows with next offset 0 are not rows", in: input(with(commitOf(h, 10, 0), Progress{History: h})),
			want: want{Continue, LineNothingYet, h, 10, false},
		},
		{
			name: "rows of one history with another topic id beside it", in: input(with(nil, rowsOf(h.of(idB, progB), 500), rowsOf(h, 50))),
			want: want{Continue, LineRowsNone, h, 50, true},
		},
		{
			name: "metadata of a later version is not guessed", in: input(with(&Commit{60, "rollcall/2 whatever"}, rowsOf(h, 50))),
			want: want{action: Refuse, line: LineNewerFormat}, says: []string{"format 2"},
		},
		{
			name: "metadata that contradicts its offset was carried over: foreign", in: input(with(&Commit{30, commitOf(h, 60, 55).Metadata}, rowsOf(h, 55))),
			want: want{Continue, LineRowsNone, h, 55, true},
		},
		{
			name: "unknown bounds are asked for again", in: input(with(commitOf(h, 60, 55), rowsOf(h, 55)), func(in *Input) { in.Bounds = nil }),
			want: want{action: ReadAgain, line: LineBoundsUnknown},
			more: func(t *testing.T, d Decision) { require.False(t, d.Missing) },
		},
		{
			name: "new history: settled", in: input(with(foreign70), func(in *Input) { in.Settled = true }),
			want: want{NewHistory, LineTakenOver, hist(70, 5), 70, false},
		},
		{
			name: "brokers without topic ids: ~<cluster id> stands in",
			in:   input(with(nil, rowsOf(h.of(standIn, progA), 50)), func(in *Input) { in.TopicID = "" }),
			want: want{Continue, LineRowsNone, h.of(standIn, progA), 50, true},
		},
		{
			name: "~<cluster id> stays for as long as its rows exist", in: input(with(commitOf(h.of(standIn, progA), 60, 50), rowsOf(h.of(standIn, progA), 50))),
			want: want{Continue, LineRowsAhead, h.of(standIn, progA), 60, true},
		},
		{
			name: "~<cluster id> and L = 0", in: input(with(commitOf(h.of(standIn, progA), 60, 0))),
			want: want{Continue, LineNothingYet, h.of(standIn, progA), 60, false},
		},
		{
			name: "~<cluster id> is over when the topic was created again", in: input(with(nil, rowsOf(h.of(standIn, progA), 500), rowsOf(h, 50))),
			want: want{Continue, LineRowsNone, h, 50, true},
		},
		{
			name: "another program waits for the last load that is known loaded, or its records would count twice",
			in:   input(with(commitOf(h.of(idA, progB), 60, 55), rowsOf(h.of(idA, progB), 50)), func(in *Input) { in.Policy.ProgramContinue = true }),
			want: want{action: ReadAgain, line: LineProgram},
		},
		{
			name: "another program before anything was counted: a greater epoch, or the new history would not live",
			in:   input(with(commitOf(hist(60, 5).of(idA, progB), 60, 0)), func(in *Input) { in.Policy.ProgramContinue = true }),
			want: want{NewHistory, LineProgram, hist(60, 6), 60, false}, settle: true,
		},
		{
			name: "another program and an emptied table: the table first",
			in:   input(with(commitOf(h.of(idA, progB), 60, 55)), func(in *Input) { in.Policy.ProgramContinue, in.Reread = true, true }),
			want: want{action: Refuse, line: LineEmptied},
		},
	})
}
