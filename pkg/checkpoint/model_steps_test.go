package checkpoint

import (
	"maps"
	"math"
)

// step makes one thing happen.
func (m *model) step() {
	switch x := m.r.IntN(100); {
	case x < 14:
		if len(m.log()) < 30 {
			m.produce()
		}
	case x < 20:
		if len(m.waiting) > 0 {
			m.publish(m.r.IntN(len(m.waiting)))
		}
	case x < 24:
		m.fate()
	case x < 76:
		m.work()
	case x < 79:
		if o := m.owner(0); o != nil {
			m.say("w%d crashes", o.id)
			m.kill(o)
			m.newWorker(0)
		}
	case x < 82:
		m.rebalance()
	case x < 84:
		for _, z := range m.workers {
			if z.alive && z.lost && !z.detached && m.p(.5) {
				m.say("w%d (zombie) dies", z.id)
				m.kill(z)
				break
			}
		}
	case x < 86:
		m.secondGroup()
	case x < 88:
		for _, w := range m.workers {
			w.refused = "" // the process that ended is started again
		}
	default:
		m.outside(x)
	}
}

// fate decides a load whose outcome nobody saw.
func (m *model) fate() {
	if len(m.unknown) == 0 {
		return
	}
	i := m.r.IntN(len(m.unknown))
	t := m.unknown[i]
	m.unknown = append(m.unknown[:i:i], m.unknown[i+1:]...)
	if m.p(.6) {
		m.say("unknown load of w%d lands", t.worker)
		m.commitTxn(t)
	} else {
		t.gone = true
	}
}

// work is one step of one worker.
func (m *model) work() {
	var live []*mworker
	for _, w := range m.workers {
		if w.alive {
			live = append(live, w)
		}
	}
	if len(live) == 0 {
		return
	}
	w := live[m.r.IntN(len(live))]
	if !w.running {
		if !w.lost && w.refused == "" {
			m.ask(w, false)
		}
		return
	}
	switch y := m.r.IntN(10); {
	case y < 4:
		if !w.leaving && m.notices(w) {
			m.poll(w)
		}
	case y < 6:
		if !w.leaving {
			m.seal(w)
		}
	case y < 9:
		m.send(w, false)
		m.complete(w)
	default:
		m.complete(w)
		if w.tracker != nil {
			m.commit(w)
		}
	}
}

// notices: a running owner learns that its topic was created again, or that its log was truncated. It reports whether it goes on.
func (m *model) notices(w *mworker) bool {
	if w.lost {
		if w.branch < len(m.cuts[m.tid]) && w.tid == m.tid {
			m.kill(w)
		}
		return w.alive
	}
	if w.tid != m.tid {
		m.say("w%d sees that the topic was created again", w.id)
		m.detach(w)
		w.reset()
		w.cause = Input{Recreated: true}
		return false
	}
	if w.branch == len(m.cuts[m.tid]) {
		return true
	}
	cause := Input{Running: &Running{w.src.history(), int64(w.pos)}, Diverged: true, Divergence: math.MaxInt64}
	for _, d := range m.cuts[m.tid][w.branch:] {
		cause.Divergence = min(cause.Divergence, int64(d))
	}
	w.cause = cause
	in := m.gather(w, m.read(false))
	if d := Resume(in); d.Keep {
		m.say("w%d: the log was truncated above %d", w.id, w.pos)
		w.cause = Input{}
		return true
	}
	m.say("w%d: the log was truncated at %d, drops its memory", w.id, cause.Divergence)
	w.reset()
	return false
}

func (m *model) rebalance() {
	o := m.owner(0)
	if o == nil || !o.alive {
		return
	}
	switch m.r.IntN(3) {
	case 0:
		if o.running {
			m.seal(o)
			m.send(o, false)
			m.complete(o)
			m.commit(o)
		}
		o.lost, o.leaving = true, true
		m.say("w%d is revoked; its batches may still load", o.id)
	case 1:
		m.say("w%d has lost the partition and drops it", o.id)
		m.kill(o)
	default:
		if !m.env["zombie"] || m.zombies >= 2 {
			return
		}
		m.zombies++
		o.lost = true
		m.say("w%d becomes a zombie", o.id)
	}
	m.newWorker(0)
}

func (m *model) secondGroup() {
	if !m.env["group2"] {
		return
	}
	if o := m.owner(1); o != nil {
		m.say("w%d crashes", o.id)
		m.kill(o)
	} else {
		m.say("a second group starts")
	}
	m.newWorker(1)
}

// killAll ends every process, and lets the loads on their way come to an end.
func (m *model) killAll() {
	for _, w := range m.workers {
		m.kill(w)
	}
	for _, t := range m.unknown {
		t.gone = true
	}
	m.unknown = nil
	m.publishAll()
	m.onlyNow()
}

// outside is what operators, brokers and time do.
func (m *model) outside(x int) {
	g := m.groups[0]
	mark, ours := g.mark()
	switch x {
	case 88, 89:
		if m.env["retention"] {
			m.retention()
		}
	case 90:
		if m.env["logstart"] && ours && srcOf(mark.History).tid == m.tid && int(g.commit.Offset) > m.logStart && m.groups[1].owner < 0 {
			m.logStart = int(g.commit.Offset)
			m.say("log start moves to %d", m.logStart)
		}
		if m.env["unread"] && m.logStart < len(m.log())-1 && m.p(.5) {
			m.logStart += 1 + m.r.IntN(len(m.log())-1-m.logStart)
			m.say("log start moves to %d, whatever was read", m.logStart)
		}
	case 91:
		if m.env["foreign"] {
			g.commit = &Commit{int64(m.logStart + m.r.IntN(len(m.log())-m.logStart+1)), "reset by hand"}
			m.say("the commit is reset to %d", g.commit.Offset)
		}
	case 92:
		if m.env["empty"] && !m.emptied {
			m.killAll()
			m.shown, m.past, m.pastLow, m.reached, m.emptied = mrows{}, nil, 0, map[msrc]int{}, true
			m.snapshot()
			m.say("all workers stop, the table is emptied")
			m.newWorker(0)
		}
	case 93:
		if m.env["prog"] && m.prog == 0 {
			m.prog = 1
			m.say("the program changes, all workers restart")
			for _, w := range m.workers {
				m.kill(w)
			}
			m.newWorker(0)
		}
	case 94:
		m.newTopic(g)
	case 95, 96:
		if m.env["truncate"] && len(m.cuts[m.tid]) < 2 && len(m.log()) > 1 {
			m.truncate()
		}
	}
}

func (m *model) retention() {
	if m.p(.4) {
		m.clock += modelDay * 4
		m.onlyNow() // no front end lags for days
	}
	if d := m.clock/modelDay - 3; d > m.dropped {
		m.dropped = d
		maps.DeleteFunc(m.shown, func(k mkey, _ mrow) bool { return k.day <= d })
		m.snapshot()
		m.onlyNow()
		m.say("retention drops days up to %d", d)
	}
}

// newTopic creates the topic again, or moves the worker to a copy of it in another cluster.
func (m *model) newTopic(g *mgroup) {
	switch {
	case m.tid >= 3 || len(m.log()) == 0:
	case m.env["recreate"]:
		m.tid++
		m.logs[m.tid], m.logStart = [][]mrec{{}}, 0
		if m.p(.5) {
			g.commit = nil // brokers forget a deleted topic's commits, sooner or later
		}
		m.say("the topic is created again: %d", m.tid)
	case m.env["mirror"]:
		old := m.log()
		m.killAll()
		m.tid++
		m.logs[m.tid] = [][]mrec{append([]mrec(nil), old...)}
		if m.p(.5) {
			g.commit = nil
		}
		m.say("the workers move to a mirrored topic: %d", m.tid)
		m.newWorker(0)
	}
}

// truncate is an unclean leader election. What was on its way lands or is given up before, and stopped processes do not wake up: beyond
// that DESIGN promises nothing.
func (m *model) truncate() {
	d := m.logStart + m.r.IntN(len(m.log())-m.logStart+1)
	if d >= len(m.log()) {
		return
	}
	for _, t := range m.unknown {
		t.gone = true
	}
	m.unknown = nil
	m.publishAll()
	m.onlyNow()
	// Nor does it for a truncation below T that the commit, lagging behind T, cannot tell of.
	for src, to := range m.reached {
		if src.tid == m.tid && to > d && (m.groups[0].commit == nil || m.groups[0].commit.Offset <= int64(d)) {
			return
		}
	}
	for _, w := range m.workers {
		if w.alive && w.lost {
			m.kill(w)
		}
	}
	m.logs[m.tid] = append(m.logs[m.tid], append([]mrec(nil), m.log()[:d]...))
	m.cuts[m.tid] = append(m.cuts[m.tid], d)
	m.epoch++
	m.say("the log is truncated at %d", d)
	// Owners look at once: their connections were to the old leader. One that is starting looks when it asks.
	for g := range m.groups {
		if o := m.owner(g); o != nil && o.alive && o.running {
			m.notices(o)
		}
	}
}
