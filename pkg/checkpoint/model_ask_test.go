package checkpoint

import (
	"math"
	"slices"

	"rollcall/pkg/aggregate"
)

// ask is one step of a worker that does not count yet: reading and deciding, restoring, or carrying out.
func (m *model) ask(w *mworker, fresh bool) {
	if w.decided != nil {
		m.restore(w, fresh)
		return
	}
	rows := m.read(fresh)
	in := m.gather(w, rows)
	w.waits.Fill(m.now, &in)
	d := m.bend(&in, m.resume(in))
	w.waits.Note(m.now, d)
	m.say("w%d: %s at %d by %q of commit %v, T %v", w.id, d.Action, d.Position, d.Line, in.Commit, in.Histories)
	switch {
	case d.Action == Refuse:
		w.refused = d.Line
	case d.Action == ReadAgain, d.Settle:
		if fresh || m.p(.5) {
			m.quiet()
		}
	case d.Action == ResolveFirstStart:
		m.resolveFirst(w)
	case d.Action == Continue && d.Restore:
		w.decided, w.asked, w.before = &d, in, rows
	case d.Action == Continue, d.Action == NewHistory:
		m.carryOut(w, d, mrows{}, -1)
	default:
		panic(d.Action.String())
	}
}

// gather is everything a decision needs, as the worker can know it.
func (m *model) gather(w *mworker, rows mrows) Input {
	g := m.groups[w.group]
	w.branch = len(m.cuts[m.tid])
	in := w.cause
	in.Topic, in.TopicID, in.StandIn = "t", msrc{tid: m.tid}.history().TopicID, standIn
	in.Program, in.Target, in.Epoch = modelProgram(w.prog), target, int32(m.epoch)
	in.Commit, in.Histories = g.commit, m.progress(rows)
	in.Bounds = &Bounds{int64(m.logStart), int64(len(m.log())), -1}
	in.AtStart = in.Running == nil && !in.Recreated
	in.TopicStarted = m.env["added"]
	in.Retention, in.OldestDay = m.dropped >= 0, aggregate.Day(m.dropped+1)
	in.Policy = Policy{AllowEmpty: m.env["allowempty"], ProgramContinue: m.env["progcont"], NewTopicAdd: m.env["ntadd"], Reset: ResetEarliest}
	// OffsetForLeaderEpoch of the commit's epoch.
	if mark, ours := g.mark(); ours && srcOf(mark.History).tid == m.tid {
		for i, d := range m.cuts[m.tid] {
			if i >= g.branch && int64(d) < g.commit.Offset && (!in.Diverged || int64(d) < in.Divergence) {
				in.Diverged, in.Divergence = true, int64(d)
			}
		}
	}
	return in
}

// resume is Resume, with rules of its table switched off by bending what it is told.
func (m *model) resume(in Input) Decision {
	mark, ours := Mark{}, false
	if in.Commit != nil {
		mark, ours, _ = ParseMark("t", 0, in.Commit.Metadata)
	}
	say := func(change func(*Mark)) {
		change(&mark)
		in.Commit = &Commit{in.Commit.Offset, mark.Format()}
	}
	live := slices.IndexFunc(in.Histories, func(p Progress) bool { return ours && p.History == mark.History })
	switch {
	case m.off["tidcommit"] && ours && mark.History.TopicID != in.TopicID:
		say(func(k *Mark) { k.History.TopicID = in.TopicID })
	case m.off["TltL"] && live >= 0 && in.Histories[live].Next < mark.Table:
		say(func(k *Mark) { k.Table = in.Histories[live].Next })
	case m.off["emptied"] && ours && live < 0:
		say(func(k *Mark) { k.Table, k.HasDay = 0, false })
	case m.off["foreign"] && in.Commit != nil && !ours:
		mark = FirstMark("t", 0, in.TopicID, 0, in.Program, target, in.Commit.Offset)
		say(func(*Mark) {})
	}
	if m.off["settle"] {
		in.Settled = true
	}
	if m.off["truncated"] {
		in.Diverged = false
		in.Bounds = &Bounds{in.Bounds.Start, math.MaxInt64, -1}
	}
	if m.off["newtopic"] {
		in.Histories = slices.DeleteFunc(slices.Clone(in.Histories), func(p Progress) bool { return p.History.TopicID != in.TopicID })
	}
	d := Resume(in)
	switch {
	case m.off["program"] && d.Line == LineProgram:
		// Go on with the old program's history.
		in.Program = modelProgram(1 - int(in.Program[len(in.Program)-1]-'0'))
		d = Resume(in)
	case m.off["progwait"] && d.Line == LineProgram:
		in.Settled, in.Reread, in.Policy.AllowEmpty = true, true, true
		d = Resume(in)
	}
	return d
}

// bend switches off a rule that is in the decision itself.
func (m *model) bend(in *Input, d Decision) Decision {
	if m.off["rowsforeign"] && d.Line == LineRowsNone && in.Commit != nil {
		d.Position = in.Commit.Offset
	}
	return d
}

// restore is the second step: one read of the history's rows decides, unless it is staler than the first (rule 3: nothing is counted
// before).
func (m *model) restore(w *mworker, fresh bool) {
	d := *w.decided
	w.decided = nil
	rows := m.read(fresh)
	at := slices.IndexFunc(w.asked.Histories, func(p Progress) bool { return p.History == d.History })
	now := m.progress(rows)
	seen := slices.IndexFunc(now, func(p Progress) bool { return p.History == d.History })
	switch {
	case m.off["twostep"]: // T and W of the first read, rows of the second
	case seen < 0 || now[seen].Next < d.Table || now[seen].WatermarkMs < d.Watermark:
		m.say("w%d: a staler front end answered", w.id)
		if m.p(.7) {
			w.decided = &d
		}
		return
	default:
		w.asked.Histories = slices.Clone(w.asked.Histories)
		w.asked.Histories[at] = now[seen]
		again := m.bend(&w.asked, m.resume(w.asked))
		if again.Action != Continue || again.History != d.History {
			return
		}
		d = again
	}
	m.carryOut(w, d, rows, int(d.Watermark))
}

// carryOut begins to count, after the start of a new history was committed.
func (m *model) carryOut(w *mworker, d Decision, rows mrows, watermark int) {
	w.src, w.pos, w.tracker = srcOf(d.History), int(d.Position), d.Tracker()
	w.tid = w.src.tid
	if d.Action == NewHistory && m.off["commitstart"] {
		m.began(d)
	} else if d.Action == NewHistory {
		if m.groups[w.group].gen == w.gen {
			m.began(d)
		}
		if !m.commit(w) {
			return // refused, or its reply was lost: ask again
		}
	} else {
		m.cover(int(d.Position))
	}
	w.cause, w.running = Input{}, true
	first := firstDay(watermark)
	if m.off["rule5"] {
		first = max(0, watermark) / modelDay
	}
	if m.program != nil {
		w.count = &realCount{m.program.NewAggregator()}
	} else {
		w.count = newSmallCount(m.off, w.prog)
	}
	w.count.restore(w.src, rows, first, watermark, w.pos)
	m.say("w%d counts %s from %d, W %d", w.id, d.History, d.Position, watermark)
}

// began remembers, for the judgement, where counting had to begin and what retention took.
func (m *model) began(d Decision) {
	if d.Skipped.Len() > 0 {
		from := d.Skipped.From
		if d.Line == LineGap {
			from = 0 // batches that a killed process had read are gone with their records
		}
		m.skipped = append(m.skipped, Range{from, d.Skipped.To})
	}
	switch d.Line {
	case LineTakenOver, LineEmptied:
		m.covered[m.tid] = int(d.Position)
	default:
		m.cover(int(d.Position))
	}
}

// cover: from here on every record of the incarnation is counted, if nothing was said before.
func (m *model) cover(at int) {
	if _, ok := m.covered[m.tid]; !ok {
		m.covered[m.tid] = at
	}
}

// resolveFirst is the owner of partition 0: it fixes where the topic begins once, and commits that; before each try it reads the commits.
func (m *model) resolveFirst(w *mworker) {
	g := m.groups[w.group]
	if m.resolved < 0 {
		m.resolved = m.logStart
		if m.env["latest"] {
			m.resolved = len(m.log())
		}
		m.say("w%d resolves the first start: %d", w.id, m.resolved)
		return
	}
	if w.gen != g.gen || g.commit != nil && Counts("t", 0, *g.commit, msrc{tid: m.tid}.history().TopicID, standIn) {
		m.resolved = -1
		return
	}
	mark := FirstMark("t", 0, msrc{tid: m.tid}.history().TopicID, int32(m.epoch), modelProgram(w.prog), target, int64(m.resolved))
	g.commit, g.branch = &Commit{int64(m.resolved), mark.Format()}, len(m.cuts[m.tid])
	m.say("w%d commits the first start: %d", w.id, m.resolved)
	m.cover(m.resolved)
	m.resolved = -1
}
