package aggregate

import "fmt"

// Restore replaces the whole state by st: what was counted since the last Seal is gone. Rows of days that cannot change any more are
// left out. The error says that st does not fit the program and wraps ErrState; the aggregator must not be used then.
func (a *Aggregator) Restore(st State) error {
	fresh := a.p.NewAggregator()
	fresh.stats = a.stats
	fresh.next, fresh.wm, fresh.hasWM = st.Next, st.WatermarkMs, st.HasWatermark
	if len(st.Rows) > 0 && !st.HasWatermark {
		return fmt.Errorf("%w: rows without a watermark", ErrState)
	}
	if st.Next < 0 {
		return fmt.Errorf("%w: next offset %d", ErrState, st.Next)
	}
	for i := range st.Rows {
		if err := fresh.restoreRow(&st.Rows[i]); err != nil {
			return fmt.Errorf("%w: row of %s %q: %w", ErrState, st.Rows[i].Day, st.Rows[i].Dims, err)
		}
	}
	*a = *fresh
	return nil
}

func (a *Aggregator) restoreRow(in *Row) error {
	if in.Day < a.p.OpenFrom(a.wm) {
		return nil
	}
	if len(in.Dims) != len(a.p.dims) || len(in.Cells) != len(a.p.plan) {
		return fmt.Errorf("%d dimensions and %d cells, the program has %d and %d", len(in.Dims), len(in.Cells), len(a.p.dims), len(a.p.plan))
	}
	key := ""
	for _, dim := range in.Dims {
		if len(dim) > maxDimBytes {
			return fmt.Errorf("a dimension of %d bytes, at most %d are ours", len(dim), maxDimBytes)
		}
		key += packDim(dim)
	}
	d := a.dayState(in.Day)
	r := d.rows[key]
	switch {
	case key == a.p.folded:
		if d.folded == nil {
			d.folded = a.newRow(d, key)
		}
		r = d.folded
	case r == nil:
		r = a.newRow(d, key)
		d.rows[key] = r
	}
	for i := range a.p.plan {
		s, c := &a.p.plan[i], &in.Cells[i]
		if s.kind.IsSet() || c.Null {
			continue
		}
		sofar := Cell{Int: r.ints[s.cell], Null: r.seen>>s.cell&1 == 0}
		mergeCell(s.kind, &sofar, *c) // rows of one key that were not merged yet
		r.ints[s.cell] = sofar.Int
		r.seen |= 1 << s.cell
	}
	r.lastMs = max(r.lastMs, in.LastEventMs)
	return nil
}
