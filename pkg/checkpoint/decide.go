package checkpoint

import (
	"fmt"
	"math"

	"go.uber.org/zap/zapcore"
)

// The lines of DESIGN §1 that decide, as Decision.Line names them: first the Resume table from top to bottom, then the sentences below.
const (
	LineRowsNone      = "rows, commit none or foreign"
	LineRowsAhead     = "rows, T ≥ L"
	LineRowsBehind    = "rows, T < L"
	LineFirstStart    = "none, none: first start"
	LineAdded         = "none, none: partition added later"
	LineTakenOver     = "none, foreign: group taken over"
	LineNothingYet    = "none, ours, L = 0"
	LineExpired       = "none, ours, day expired"
	LineEmptied       = "none, ours, L > 0: table emptied"
	LineTarget        = "commit of another target"
	LineProgram       = "another program"
	LineNewTopic      = "rows only of other topic ids"
	LineRecreated     = "topic re-created while running"
	LineTruncated     = "log truncated"
	LineGap           = "retention removed records"
	LineDataLoss      = "data loss reported, nothing truncated"
	LineRunning       = "running"
	LineNewerFormat   = "commit of a later version"
	LineBoundsUnknown = "log bounds unknown"
)

// resumer is one evaluation of Resume: the input as DESIGN's words see it.
type resumer struct {
	in Input
	// id is the topic id that counts.
	id string
	// ours and foreign: what the commit is; neither if there is none that counts. c is its offset (C), mark its metadata.
	ours, foreign bool
	c             int64
	mark          Mark
	// live is the live history (hasLive), rows whether it has rows, t its progress (T, W).
	live    History
	hasLive bool
	rows    bool
	t       Progress
	// mine and others: there are rows of this, of other topic ids.
	mine, others bool
	// limit is the first offset that is not what was read there: the log end, or the divergence if lower.
	limit int64
}

// Resume decides how the owner of a partition goes on (DESIGN §1, Resume). It is a pure function; calling it again with the same input
// gives the same decision.
func Resume(in Input) Decision {
	r := resumer{in: in}
	d, done := r.understand()
	if !done {
		d = r.decide()
	}
	switch d.Action {
	case Continue:
		d.Overlap = Overlaps(d.History, d.Position, in.Histories)
	case NewHistory: // what it will count
		d.Overlap = Overlaps(d.History, math.MaxInt64, in.Histories)
	default:
	}
	return d
}

// understand reads the commit and finds the topic id, the live history and the limit of the log.
func (r *resumer) understand() (Decision, bool) {
	in := &r.in
	if c := in.Commit; c != nil {
		m, ours, err := ParseMark(in.Topic, in.Partition, c.Metadata)
		if err != nil {
			return r.refuse(LineNewerFormat, "%v: run that version or a later one", err), true
		}
		r.c, r.mark, r.ours, r.foreign = c.Offset, m, ours, !ours
		// Metadata that contradicts its offset was carried over by somebody who moved the offset.
		if ours && (c.Offset < m.History.Start || c.Offset < m.Table) {
			r.ours, r.foreign = false, true
		}
	}
	r.id = r.topicID()
	// "one of another topic id is no commit"
	if r.ours && r.mark.History.TopicID != r.id {
		r.ours = false
	}
	// "– | ours, other target | exit 12 naming both"
	if r.ours && r.mark.Target != in.Target {
		return r.refuse(LineTarget, "the group's commit was made for %s, this worker writes to %s: give each target its own KAFKA_GROUP",
			r.mark.Target, in.Target), true
	}
	if in.Bounds == nil {
		return r.again(LineBoundsUnknown, zapcore.WarnLevel, "the log's bounds are not known yet"), true
	}
	r.findLive()
	r.limit = in.Bounds.High
	if in.Diverged {
		r.limit = min(r.limit, in.Divergence)
	}
	return Decision{}, false
}

// topicID is the id under which the partition is counted. "Brokers without topic ids: ~<cluster id> stands in, and stays for as long as
// its rows exist": that is, until something exists under the real id.
func (r *resumer) topicID() string {
	in := &r.in
	if in.TopicID == "" {
		return in.StandIn
	}
	if in.Recreated || in.StandIn == "" || r.known(in.TopicID) || !r.known(in.StandIn) {
		return in.TopicID
	}
	return in.StandIn
}

// known reports whether the partition has rows or a commit under the topic id.
func (r *resumer) known(id string) bool {
	if r.ours && r.mark.History.TopicID == id {
		return true
	}
	for i := range r.in.Histories {
		if r.in.Histories[i].History.TopicID == id {
			return true
		}
	}
	return false
}

// findLive: "the live history is the greatest (epoch, start) among the table's and the commit's; rows, T, W and L below mean that
// history's, and a commit of a lesser one is no commit."
func (r *resumer) findLive() {
	for _, p := range r.in.Histories {
		if p.Next <= 0 {
			continue // rows with next offset 0 are not rows
		}
		if p.History.TopicID != r.id {
			r.others = true
			continue
		}
		r.mine = true
		if !r.hasLive || r.live.Less(p.History) {
			r.live, r.hasLive, r.rows, r.t = p.History, true, true, p
		}
	}
	if !r.ours {
		return
	}
	switch h := r.mark.History; {
	case !r.hasLive || r.live.Less(h):
		r.live, r.hasLive, r.rows, r.t = h, true, false, Progress{}
	case h.Less(r.live):
		r.ours = false
	}
}

// place is where the table's lines say to go on, before the log has been looked at.
type place struct {
	line string
	at   int64
	// fresh: a new history whatever the log says. lag: the table does not show yet what the commit knows to be loaded.
	fresh, lag bool
	level      zapcore.Level
	message    string
}

func (r *resumer) decide() Decision {
	if d, ok := r.keep(); ok {
		return d
	}
	if !r.mine && !r.ours {
		if d, ok := r.unknownTopic(); ok {
			return d
		}
	}
	if !r.hasLive && !r.foreign {
		return r.firstStart()
	}
	// "rows, or a commit of ours, of another program | exit 12 naming what changed"
	if r.hasLive && r.live.Program != r.in.Program && !r.in.Policy.ProgramContinue {
		return r.refuse(LineProgram, "history %s was counted by program %s, this is %s: one of AGGREGATE_*, EVENT_TIME_*, ALLOWED_LATENESS, "+
			"MAX_FUTURE_SKEW or KAFKA_ISOLATION changed (or the version's decoder); PROGRAM_CHANGE=continue begins a new history", r.live, r.live.Program, r.in.Program)
	}
	p, d, done := r.place()
	if done {
		return d
	}
	return r.atLog(p)
}

// keep: a running partition goes on with its memory unless the log, the live history or the topic is not what it was.
func (r *resumer) keep() (Decision, bool) {
	run := r.in.Running
	if run == nil || run.History.TopicID != r.id || run.Position < r.in.Bounds.Start || run.Position > r.limit || r.beyond() > r.limit ||
		r.hasLive && run.History.Less(r.live) {
		return Decision{}, false
	}
	d := Decision{Action: Continue, Line: LineRunning, History: run.History, Position: run.Position, Keep: true, Level: zapcore.DebugLevel}
	if r.in.DataLoss {
		d.Line, d.Level = LineDataLoss, zapcore.WarnLevel
		d.Message = "the client reported lost data, but everything read is below the log end and no divergence is known: going on"
	}
	return d, true
}

// unknownTopic: "rows only of other topic ids | none of this id | at start exit 12, unless KAFKA_NEW_TOPIC=add; a re-creation confirmed
// while running: new history at its beginning, whatever the start mode". With add, a foreign commit says where (the next lines).
func (r *resumer) unknownTopic() (Decision, bool) {
	switch {
	case r.in.Recreated:
		return r.begin(place{
			line: LineRecreated, at: r.in.Bounds.Start, level: zapcore.WarnLevel,
			message: "the topic was created again: its records are counted beside the old ones",
		}), true
	case !r.others:
		return Decision{}, false
	case !r.in.Policy.NewTopicAdd:
		return r.refuse(LineNewTopic, "the table has rows of this topic under another topic id only, none under %s: a migrated or mirrored "+
			"topic would count twice; KAFKA_NEW_TOPIC=add counts it as new", r.id), true
	case r.foreign:
		return Decision{}, false
	}
	return r.begin(place{
		line: LineNewTopic, at: r.in.Bounds.Start, level: zapcore.WarnLevel,
		message: "the topic has a new id: its records are counted beside those of the old one",
	}), true
}

// firstStart: "none | none | first start: at the start mode; a partition added later: at its beginning", and §4: "the member that owns
// partition 0 resolves all its partitions and commits them before anyone counts, the others wait for that".
func (r *resumer) firstStart() Decision {
	d := Decision{Line: LineFirstStart, Level: zapcore.InfoLevel}
	switch {
	case r.in.TopicStarted:
		d = r.begin(place{line: LineAdded, at: r.in.Bounds.Start, level: zapcore.InfoLevel, message: "a partition added later: from its beginning"})
		d.Settle = false
	case r.in.Partition == 0:
		d.Action, d.Message = ResolveFirstStart, "first start of the topic: resolving where every partition begins"
	default:
		d.Action, d.Message = AwaitFirstStart, "first start of the topic: waiting for the owner of partition 0 to commit where all begin"
	}
	return d
}

// place is the Resume table for a partition with rows or a commit.
func (r *resumer) place() (place, Decision, bool) {
	switch {
	case r.rows:
		return r.withRows(), Decision{}, false
	case !r.hasLive: // and the commit is foreign
		return place{
			line: LineTakenOver, at: r.c, fresh: true, level: zapcore.WarnLevel,
			message: fmt.Sprintf("the group has a commit at %d that is not ours: taking over there, the first day is partial", r.c),
		}, Decision{}, false
	case r.mark.Table > 0 && !r.expired():
		return r.emptied()
	}
	// "none | ours, L = 0 or day expired | at C, same history"
	p := place{line: LineNothingYet, at: r.c, level: zapcore.InfoLevel, message: "nothing of the history is in the table yet: going on at the commit"}
	if r.mark.Table > 0 {
		p.line, p.message = LineExpired, "the history's rows were of days the table no longer keeps: going on at the commit"
	}
	return r.programmed(p), Decision{}, false
}

// withRows are the first three lines of the table.
func (r *resumer) withRows() place {
	t, l := r.t.Next, r.mark.Table
	switch {
	case !r.ours:
		// "rows | none or foreign | at T (say so)"
		p := place{line: LineRowsNone, at: t, level: zapcore.InfoLevel, message: "the table has rows and the group no commit of this history: going on at the table's offset"}
		if r.foreign {
			p.level, p.message = zapcore.WarnLevel, fmt.Sprintf("the group's commit at %d is not ours and does not count: going on at the table's offset", r.c)
		}
		return r.programmed(p)
	case t >= l:
		// "rows, T ≥ L | ours | at max(T, C)"
		return r.programmed(place{line: LineRowsAhead, at: max(t, r.c), level: zapcore.InfoLevel, message: "going on"})
	}
	// "rows, T < L | ours | at T"
	return r.programmed(place{
		line: LineRowsBehind, at: t, lag: !r.expired(), level: zapcore.WarnLevel,
		message: fmt.Sprintf("the table shows offset %d, but rows up to %d are known loaded: going on at the table's offset, reading again is harmless", t, l),
	})
}

// programmed: "PROGRAM_CHANGE=continue: new history at T (C without rows)".
func (r *resumer) programmed(p place) place {
	if r.live.Program == r.in.Program {
		return p
	}
	p.line, p.fresh, p.level = LineProgram, true, zapcore.WarnLevel
	p.at, p.message = r.c, fmt.Sprintf("the program changed from %s to %s", r.live.Program, r.in.Program)
	if r.rows {
		p.at = r.t.Next
	}
	return p
}

// emptied: "none | ours, L > 0 | re-read for 2 min (publish may lag), then not ready, at start exit 12: the table was emptied; while
// running go on re-reading. CHECKPOINT_ALLOW_EMPTY=true: new history at C".
func (r *resumer) emptied() (place, Decision, bool) {
	if d, wait := r.missing(LineEmptied, fmt.Sprintf("rows up to offset %d are known loaded into %s, but it has none of history %s", r.mark.Table, r.in.Target, r.live)); wait {
		return place{}, d, true
	}
	p := place{line: LineEmptied, at: r.c, fresh: true, level: zapcore.WarnLevel, message: "the table was emptied and CHECKPOINT_ALLOW_EMPTY is set: counting anew from the commit"}
	if r.live.Program != r.in.Program {
		p.message += fmt.Sprintf("; the program changed from %s to %s", r.live.Program, r.in.Program)
	}
	return p, Decision{}, false
}

// missing waits for rows that are known loaded and not seen, for as long as DESIGN allows.
func (r *resumer) missing(line, what string) (Decision, bool) {
	switch {
	case !r.in.Reread:
		return r.again(line, zapcore.WarnLevel, what+": reading again, the last load may not be visible yet"), true
	case r.in.Policy.AllowEmpty:
		return Decision{}, false
	case r.in.AtStart:
		return r.refuse(line, "%s: the table was emptied; restore its rows, or set CHECKPOINT_ALLOW_EMPTY=true to count on without them", what), true
	}
	return r.again(line, zapcore.ErrorLevel, what+": the table was emptied; waiting for its rows, or for CHECKPOINT_ALLOW_EMPTY=true at a restart"), true
}

// expired: the table no longer keeps the day of the rows that carry L.
func (r *resumer) expired() bool {
	return r.in.Retention && r.mark.HasDay && r.mark.Day < r.in.OldestDay
}

// beyond is the greatest offset that the log must still have had: T, C, and the position in memory.
func (r *resumer) beyond() int64 {
	var o int64
	if r.rows {
		o = r.t.Next
	}
	if r.ours || r.foreign && !r.rows {
		o = max(o, r.c)
	}
	if run := r.in.Running; run != nil && run.History.TopicID == r.id {
		o = max(o, run.Position)
	}
	return o
}

// atLog holds the place against the log: truncation first, then gaps, then what the table said.
func (r *resumer) atLog(p place) Decision {
	truncated := Range{r.limit, r.beyond()}
	if truncated.Len() > 0 {
		// "T, C or the position in memory is beyond the log end or above a divergence D: the log was truncated; drop the partition's
		// memory and unsent batches, new history at min(D, max(T, C)), ERROR with the range"
		p.at, p.line, p.fresh, p.level = min(r.limit, p.at), LineTruncated, true, zapcore.ErrorLevel
		p.message = fmt.Sprintf("the log was truncated: offsets %d to %d were read and are not in it any more", truncated.From, truncated.To)
	}
	var d Decision
	switch {
	case p.fresh || p.at < r.in.Bounds.Start:
		var wait bool
		if p.lag {
			// A history that ends before its last load shows would have the load's records counted twice.
			d, wait = r.missing(p.line, fmt.Sprintf("rows up to offset %d are known loaded, the table shows %d of history %s",
				r.mark.Table, r.t.Next, r.live))
		}
		if !wait {
			d = r.begin(p)
		}
	default:
		d = r.goOn(p)
	}
	if truncated.Len() > 0 {
		d.Truncated, d.DropUnsent = truncated, true
	}
	return d
}

// goOn continues the live history.
func (r *resumer) goOn(p place) Decision {
	d := Decision{Action: Continue, Line: p.line, History: r.live, Position: p.at, Level: p.level, Message: p.message}
	d.mark, d.tracked = r.mark, r.c
	if !r.rows {
		return d
	}
	d.Restore, d.Table, d.Watermark = true, r.t.Next, r.t.WatermarkMs
	if !r.ours || r.t.Next >= r.mark.Table {
		d.mark = Mark{History: r.live, Table: r.t.Next, Day: r.t.MaxDay, HasDay: true, Target: r.in.Target}
		d.tracked, d.pending = p.at, !r.ours || p.at > r.c
	}
	return d
}

// begin is a new history at the place, or after the gap that lies there: "a gap is never inside a history; by KAFKA_OFFSET_RESET stop the
// partition, or new history at the log start or end".
func (r *resumer) begin(p place) Decision {
	d := Decision{Action: NewHistory, Line: p.line, Position: p.at, Settle: !r.in.Settled, Level: p.level, Message: p.message}
	if p.at < r.in.Bounds.Start {
		r.gap(p, &d)
	}
	if d.Action == StopPartition {
		return d
	}
	d.History = r.name(d.Position, p.line == LineTruncated)
	d.mark, d.tracked, d.pending = Mark{History: d.History, Target: r.in.Target}, d.Position, true
	return d
}

// gap moves a beginning below the log start to where the policy says.
func (r *resumer) gap(p place, d *Decision) {
	b := r.in.Bounds
	d.Skipped = Range{p.at, b.Start}
	if run := r.in.Running; run != nil && p.line != LineTruncated {
		d.Skipped.From = max(p.at, run.Position) // what is in memory is sealed and loaded
	}
	what := fmt.Sprintf("retention removed offsets from %d to before %d unread", d.Skipped.From, b.Start)
	if p.fresh {
		what = p.message + "; " + what
	} else {
		d.Line = LineGap
	}
	switch r.in.Policy.Reset {
	case ResetEarliest:
		d.Message = what + ": counting on from the log start"
	case ResetLatest:
		d.Skipped.To = max(b.Start, b.end())
		d.Message = fmt.Sprintf("%s: counting on from the log end, skipping to %d", what, d.Skipped.To)
	default:
		d.Action, d.Settle = StopPartition, false
		d.Message = what + ": the partition stops; KAFKA_OFFSET_RESET=earliest or latest goes on without them"
	}
	d.Level, d.Position = zapcore.ErrorLevel, d.Skipped.To
}

// end is the log end for a reader of committed records.
func (b *Bounds) end() int64 {
	if b.Stable >= 0 && b.Stable < b.High {
		return b.Stable
	}
	return b.High
}

// name gives a new history its name: greater than the live one by (epoch, start), or it would never be live. The leader epoch alone does
// not ensure that: after a truncation the start is lower, and an epoch can be old news or start again with a new cluster.
func (r *resumer) name(start int64, truncated bool) History {
	h := History{Topic: r.in.Topic, Partition: r.in.Partition, TopicID: r.id, Start: start, Epoch: r.in.Epoch, Program: r.in.Program}
	if !r.hasLive {
		return h
	}
	h.Epoch = max(h.Epoch, r.live.Epoch)
	if h.Epoch == r.live.Epoch && (truncated || start <= r.live.Start) {
		h.Epoch++
	}
	return h
}

// Overlaps finds histories that count, under the same epoch, offsets that h has counted up to end: two writers are at work (DESIGN §1:
// checkpoint_overlap). It is also for looking again while running, with what Store.Progress says then.
func Overlaps(h History, end int64, histories []Progress) []History {
	var found []History
	for _, p := range histories {
		if o := p.History; o != h && o.TopicID == h.TopicID && o.Epoch == h.Epoch && p.Next > h.Start && o.Start < end {
			found = append(found, o)
		}
	}
	return found
}

func (r *resumer) refuse(line, format string, args ...any) Decision {
	return Decision{
		Action: Refuse, Line: line, Level: zapcore.ErrorLevel,
		Message: fmt.Sprintf(format, args...),
	}
}

func (r *resumer) again(line string, level zapcore.Level, message string) Decision {
	return Decision{Action: ReadAgain, Line: line, Level: level, Message: message, Missing: line != LineBoundsUnknown}
}
