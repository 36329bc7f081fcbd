package aggregate

// Seal hands over every row that changed since the last Seal: absolute totals, and the ids seen since then. If nothing was counted
// there are no rows, but Next is current. Days that cannot change any more leave memory.
func (a *Aggregator) Seal() Delta {
	d := Delta{Next: a.next}
	if len(a.dirty) > 0 {
		d.Rows = make([]Row, len(a.dirty))
	}
	for i, r := range a.dirty {
		d.Rows[i] = a.sealRow(r)
		d.Bytes += a.p.rowBytes(r)
		for j := range d.Rows[i].Cells {
			d.Bytes += d.Rows[i].Cells[j].Set.Bytes()
		}
	}
	clear(a.dirty)
	a.dirty = a.dirty[:0]
	a.bytes = 0
	if a.hasWM {
		a.dropBefore(a.p.OpenFrom(a.wm))
	}
	return d
}

// sealRow makes a Row with memory of its own for each, since rows of one delta are merged into batches of different lives.
func (a *Aggregator) sealRow(r *row) Row {
	out := Row{Day: r.day, Dims: unpackDims(r.key, len(a.p.dims)), Cells: make([]Cell, len(a.p.plan)), LastEventMs: r.lastMs}
	for i := range a.p.plan {
		s, c := &a.p.plan[i], &out.Cells[i]
		switch s.kind {
		case Distinct, DistinctHash:
			c.Set = r.sets[s.cell].Take()
		case Min, Max:
			c.Int, c.Null = r.ints[s.cell], r.seen>>s.cell&1 == 0
		default:
			c.Int = r.ints[s.cell]
		}
	}
	r.dirty, r.sets = false, nil
	return out
}

// dropBefore forgets the days before first. All their rows were just sealed.
func (a *Aggregator) dropBefore(first Day) {
	dropped := false
	for day, d := range a.days {
		if day >= first {
			continue
		}
		a.keys -= len(d.rows)
		if d.folded != nil {
			a.keys--
		}
		delete(a.days, day)
		dropped = true
	}
	if dropped {
		clear(a.segs[:])
	}
}

// The sizes of a Row, a dimension in it and a Cell.
const (
	rowSize  = 64
	dimSize  = 16
	cellSize = 48
)

// rowBytes estimates the memory of a sealed row without its sets.
func (p *Program) rowBytes(r *row) int64 {
	return int64(rowSize + dimSize*len(p.dims) + cellSize*len(p.plan) + len(r.key))
}
