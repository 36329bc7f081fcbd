package checkpoint

import (
	"fmt"
	"slices"
)

// runModel makes one random run and says what is wrong with its end, "" if nothing.
func runModel(seed int64, sw switches, trace func(string, ...any)) (string, *model) {
	m := newModel(seed, sw, trace)
	for range 10 + m.r.IntN(120) {
		m.step()
	}
	for range 2 {
		if refused := m.finish(); refused != "" {
			return m.judgeRefusal(refused), m
		}
		if wrong := m.judge(); wrong != "" {
			return wrong, m
		}
		// Once more after a restart.
		for g := range m.groups {
			if o := m.owner(g); o != nil {
				m.kill(o)
				m.newWorker(g)
			}
		}
		for range 3 {
			m.produce()
		}
	}
	return "", m
}

// finish lets every group read to the end and everything load. It gives the line by which a worker refused to go on.
func (m *model) finish() string {
	m.quiet()
	for g := range m.groups {
		o := m.owner(g)
		if o == nil {
			continue
		}
		if !o.alive {
			o = m.newWorker(g)
		}
		if refused := m.finishOne(o); refused != "" {
			return refused
		}
	}
	m.publishAll()
	return ""
}

func (m *model) finishOne(o *mworker) string {
	for range 400 {
		switch {
		case o.refused != "":
			return o.refused
		case !o.running:
			m.ask(o, true)
			m.publishAll()
		case !m.notices(o):
		case o.pos < len(m.log()):
			m.poll(o)
		default:
			m.seal(o)
			for range 100 {
				if len(o.queue) == 0 {
					break
				}
				m.send(o, true)
				m.publishAll()
				m.complete(o)
			}
			if len(o.queue) > 0 {
				return "stuck"
			}
			m.commit(o)
			return ""
		}
	}
	return "stuck"
}

// judgeRefusal: some runs have to end with a refusal.
func (m *model) judgeRefusal(line string) string {
	switch {
	case line == LineEmptied && m.emptied && !m.env["allowempty"]:
		return ""
	case line == LineProgram && m.prog == 1 && !m.env["progcont"]:
		return ""
	case line == LineNewTopic && m.tid > 1 && !m.env["ntadd"]:
		return ""
	}
	return "refused: " + line
}

// interval is a history in the table and the branches of the log it is a replay of.
type interval struct {
	src      msrc
	to       int
	branches [][]mrec
}

// record is the record a history counted at an offset; ok is false if it could be one of several.
func (v interval) record(o int) (rec mrec, ok bool) {
	for i, b := range v.branches {
		if i > 0 && b[o].id != rec.id {
			return mrec{}, false
		}
		rec = b[o]
	}
	return rec, true
}

// judge holds the table against the log.
func (m *model) judge() string {
	var found []interval
	for src, to := range m.reached {
		if to == 0 {
			continue
		}
		v := interval{src: src, to: to}
		why := "no log is that long"
		for _, b := range m.logs[src.tid] {
			if to > len(b) {
				continue
			}
			if wrong := m.replay(b, src, to); wrong != "" {
				why = wrong
			} else {
				v.branches = append(v.branches, b)
			}
		}
		if len(v.branches) == 0 {
			return fmt.Sprintf("wrong: %v up to %d: %s", src, to, why)
		}
		found = append(found, v)
	}
	times, unsure := map[int]int{}, map[int]bool{}
	for _, v := range found {
		for o := v.src.start; o < v.to; o++ {
			if rec, ok := v.record(o); ok {
				times[rec.id]++
				if times[rec.id] > 1 && rec.kind == 0 && rec.time/modelDay > m.dropped {
					return fmt.Sprintf("overlap: record %d counts in two histories: %v", o, found)
				}
				continue
			}
			for _, b := range v.branches {
				unsure[b[o].id] = true
			}
		}
	}
	return m.judgeLost(times, unsure)
}

// judgeLost: no record of the log as it is, from where counting had to begin, may be missing, nor a bad one's letter.
func (m *model) judgeLost(times map[int]int, unsure map[int]bool) string {
	log := m.log()
	from, ok := m.covered[m.tid]
	if !ok {
		return ""
	}
	for o := from; o < len(log); o++ {
		skip := slices.ContainsFunc(m.skipped, func(r Range) bool { return int64(o) >= r.From && int64(o) < r.To })
		if skip || unsure[log[o].id] {
			continue
		}
		if log[o].kind == 0 && times[log[o].id] == 0 && !m.mayBeLate(log, o) {
			return fmt.Sprintf("lost: record %d counts in no history (from %d)", o, from)
		}
		if log[o].kind == 1 && !m.letters[log[o].id] {
			return fmt.Sprintf("dead letter of record %d is lost", o)
		}
	}
	return ""
}

// mayBeLate: a record at the end that counts nothing does not move T.
func (m *model) mayBeLate(log []mrec, o int) bool {
	w := -1
	for _, rec := range log[:o] {
		if rec.kind == 0 {
			w = max(w, rec.time)
		}
	}
	return filtered(log[o], m.prog) || log[o].time/modelDay <= m.dropped || w >= 0 && log[o].time < w-modelLate
}

// replay counts a history's interval from its start and says how the table differs.
func (m *model) replay(log []mrec, src msrc, to int) string {
	c := newCounter()
	want := map[mcell]mrow{}
	for _, rec := range log[src.start:to] {
		if cell, ok := c.apply(rec, src.prog); ok {
			r := want[cell]
			r.total = c.totals[cell]
			r.ids |= 1 << uint(rec.user)
			want[cell] = r
		}
	}
	for cell, r := range want {
		if cell.day <= m.dropped {
			continue
		}
		got := m.shown[mkey{src, cell}]
		if got.total != r.total {
			return fmt.Sprintf("day %d key %d: total %d, want %d", cell.day, cell.key, got.total, r.total)
		}
		if got.ids&r.ids != r.ids {
			return fmt.Sprintf("day %d key %d: ids lost", cell.day, cell.key)
		}
	}
	for k, got := range m.shown {
		if k.msrc == src && k.day > m.dropped && got.total != want[k.mcell].total {
			return fmt.Sprintf("day %d key %d: total %d, want %d", k.day, k.key, got.total, want[k.mcell].total)
		}
	}
	return ""
}
