package checkpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/pkg/aggregate"
)

// A random model of DESIGN §1: one partition, several workers (owners, zombies, a second group), a table that publishes in order per day
// only, lagging front ends, unknown outcomes, commits that lag, re-delivery, retention, truncation, re-created topics, program changes, an
// emptied table, and kills between any two steps. Histories, commit metadata, Resume, Waits and Tracker are the real ones. At the end
// every history must equal a replay of its interval, and no record may be lost or in two histories.

const (
	modelDay  = 8  // event times per day
	modelLate = 10 // allowed lateness
	modelKeys = 2  // AGGREGATE_MAX_KEYS
	modelFold = 99 // the key __other__
	modelLoad = 20 * time.Second
)

// switches are what a run is made of: things that happen (env) and rules that are off.
type switches struct{ env, off map[string]bool }

func switchesOf(env, off string) switches {
	set := func(s string) map[string]bool {
		m := map[string]bool{}
		for x := range strings.FieldsSeq(s) {
			m[x] = true
		}
		return m
	}
	return switches{set(env), set(off)}
}

// msrc is a history in numbers.
type msrc struct{ tid, epoch, start, prog int }

func (s msrc) history() History {
	return History{
		Topic: "t", TopicID: "incarnation-" + strconv.Itoa(s.tid), Start: int64(s.start), Epoch: int32(s.epoch), Program: modelProgram(s.prog),
	}
}

func modelProgram(p int) string { return fmt.Sprintf("%08x", p) }

func srcOf(h History) msrc {
	tid, err := strconv.Atoi(strings.TrimPrefix(h.TopicID, "incarnation-"))
	if err != nil {
		panic(err)
	}
	prog, err := strconv.ParseInt(h.Program, 16, 32)
	if err != nil {
		panic(err)
	}
	return msrc{tid, int(h.Epoch), int(h.Start), int(prog)}
}

type mcell struct{ day, key int }

type mkey struct {
	msrc
	mcell
}

type mrow struct {
	total, next, w int
	ids            uint64
}

type mrows map[mkey]mrow

// merge is what the table does.
func (a mrows) merge(b mrows) {
	for k, v := range b {
		o := a[k]
		a[k] = mrow{max(o.total, v.total), max(o.next, v.next), max(o.w, v.w), o.ids | v.ids}
	}
}

// mrec is a record: kind 0 counts, 1 is bad, 2 is too far in the future.
type mrec struct{ id, kind, time, key, user int }

// mtxn is a load's transaction.
type mtxn struct {
	rows                     mrows
	days                     uint64
	worker                   int
	committed, visible, gone bool
}

// mgroup is a consumer group: its commit, as the broker has it, the branch of the log it was made on, and its owner.
type mgroup struct {
	commit     *Commit
	branch     int
	owner, gen int
}

// mark is the commit's metadata if it is ours.
func (g *mgroup) mark() (Mark, bool) {
	if g.commit == nil {
		return Mark{}, false
	}
	m, ours, err := ParseMark("t", 0, g.commit.Metadata)
	return m, ours && err == nil
}

// model is one run.
type model struct {
	r *rand.Rand
	switches
	// The log: by incarnation its branches (a truncation begins one) and where they diverge.
	logs            map[int][][]mrec
	cuts            map[int][]int
	tid, epoch      int
	logStart, clock int // clock is event time
	nextID          int
	// The table: what the leader shows, what lagging front ends may show, loads committed and not visible, loads of unknown fate.
	shown    mrows
	past     []mrows
	pastLow  int // how many of past no front end shows any more
	waiting  []*mtxn
	unknown  []*mtxn
	dropped  int // greatest day that retention dropped
	reached  map[msrc]int
	letters  map[int]bool
	groups   [2]*mgroup
	workers  []*mworker
	prog     int
	now      time.Time
	resolved int // where the owner of partition 0 means the topic to begin, -1
	emptied  bool
	zombies  int
	skipped  []Range
	covered  map[int]int // incarnation: from where every record must be counted
	events   int
	program  *aggregate.Program // nil: the model's own aggregator
	trace    func(string, ...any)
}

func newModel(seed int64, sw switches, trace func(string, ...any)) *model {
	m := &model{
		r: rand.New(rand.NewPCG(uint64(seed), 0)), switches: sw, logs: map[int][][]mrec{1: {{}}}, cuts: map[int][]int{}, tid: 1, clock: 20,
		shown: mrows{}, dropped: -1, reached: map[msrc]int{}, letters: map[int]bool{}, now: time.Unix(0, 0), resolved: -1, covered: map[int]int{},
		groups: [2]*mgroup{{owner: -1}, {owner: -1}}, trace: trace,
	}
	if sw.env["aggregate"] {
		m.program = realProgram()
	}
	m.snapshot()
	m.newWorker(0)
	for range m.r.IntN(4) {
		m.produce()
	}
	if sw.env["foreign"] && m.p(.5) && len(m.log()) > 0 {
		m.groups[0].commit = &Commit{Offset: int64(m.r.IntN(len(m.log()) + 1)), Metadata: "somebody else's"}
		m.say("the group has a foreign commit at %d", m.groups[0].commit.Offset)
	}
	return m
}

func (m *model) p(x float64) bool { return m.r.Float64() < x }

func (m *model) say(format string, args ...any) {
	m.events++
	if m.trace != nil {
		m.trace(format, args...)
	}
}

func (m *model) log() []mrec {
	b := m.logs[m.tid]
	return b[len(b)-1]
}

func (m *model) produce() {
	m.clock += m.r.IntN(3)
	rec := mrec{time: m.clock, key: m.r.IntN(3), user: m.r.IntN(60)}
	switch x := m.r.Float64(); {
	case x < .15:
		rec.kind = 1
	case x < .2:
		rec.kind = 2
	}
	if m.p(.5) {
		rec.time = max(0, m.clock-m.r.IntN(modelLate*2))
	}
	m.nextID++
	rec.id = m.nextID
	b := m.logs[m.tid]
	b[len(b)-1] = append(b[len(b)-1], rec)
	m.say("produce o=%d kind=%d time=%d (day %d) key=%d", len(m.log())-1, rec.kind, rec.time, rec.time/modelDay, rec.key)
}

// The table.

func (m *model) snapshot() {
	m.past = append(m.past, maps.Clone(m.shown))
	if n := len(m.past) - 6; n > 0 {
		m.past = slices.Delete(m.past, 0, n)
		m.pastLow = max(0, m.pastLow-n)
	}
}

// onlyNow: no front end lags any more.
func (m *model) onlyNow() { m.pastLow = len(m.past) - 1 }

// read is what some front end shows.
func (m *model) read(fresh bool) mrows {
	n := len(m.past) - 1
	if lag := min(4, n-m.pastLow); !fresh && lag > 0 && m.p(.4) {
		n -= m.r.IntN(lag + 1)
	}
	return m.past[n]
}

func (m *model) begin(worker int, rows mrows) *mtxn {
	t := &mtxn{rows: rows, worker: worker}
	for k := range rows {
		t.days |= 1 << uint(k.day%64)
	}
	return t
}

func (m *model) commitTxn(t *mtxn) {
	if !t.committed && !t.gone {
		t.committed = true
		m.waiting = append(m.waiting, t)
	}
}

// publish makes a committed load visible unless an older one of a day it touches is not: the order holds per table partition only.
func (m *model) publish(i int) bool {
	t := m.waiting[i]
	for _, older := range m.waiting[:i] {
		if older.days&t.days != 0 {
			return false
		}
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	t.visible = true
	m.shown.merge(t.rows)
	for k, r := range t.rows {
		m.reached[k.msrc] = max(m.reached[k.msrc], r.next)
	}
	m.snapshot()
	m.say("  a load of w%d shows: %v", t.worker, t.rows)
	return true
}

func (m *model) publishAll() {
	for i := 0; i < len(m.waiting); {
		if m.publish(i) {
			i = 0
		} else {
			i++
		}
	}
}

// quiet lets more time pass than any load, label, restart of a stopped process or lagging front end takes.
func (m *model) quiet() {
	for _, z := range m.workers {
		if z.alive && z.lost {
			for range m.r.IntN(6) {
				if z.running && m.p(.3) && !z.leaving {
					m.seal(z)
				}
				m.send(z, m.p(.6))
				m.complete(z)
			}
			m.kill(z)
		}
	}
	for _, t := range m.unknown {
		if m.p(.5) {
			m.commitTxn(t)
		} else {
			t.gone = true
		}
	}
	m.unknown = nil
	m.publishAll()
	m.onlyNow()
	m.now = m.now.Add(RereadFor + modelLoad + SettleBeyond)
	m.say("time passes")
}

// progress is Store.Progress on what a front end shows.
func (m *model) progress(rows mrows) []Progress {
	found := map[msrc]*Progress{}
	for k, r := range rows {
		if r.next == 0 {
			continue
		}
		p := found[k.msrc]
		if p == nil {
			p = &Progress{History: k.history()}
			found[k.msrc] = p
		}
		p.note(int64(r.next), int64(r.w), aggregate.Day(k.day))
	}
	list := make([]Progress, 0, len(found))
	for _, p := range found {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Progress) int { return a.History.Compare(b.History) })
	return list
}
