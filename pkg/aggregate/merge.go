package aggregate

import "rollcall/pkg/bitmap"

// MergeRow merges from into the row of the same source, day and dimensions, as the table does (StarRocks: MAX, MIN, BITMAP_UNION):
// the greater of counts, sums, maxima and last event times, the smaller of minima, the union of sets. A null cell is neutral. The
// result is the same in any order and however often a row comes. Both rows must have one cell per measure; into is changed in place,
// and the result may share the memory of from's sets, which are immutable.
func MergeRow(measures []Measure, into *Row, from Row) {
	for i := range measures {
		mergeCell(measures[i].Kind, &into.Cells[i], from.Cells[i])
	}
	into.LastEventMs = max(into.LastEventMs, from.LastEventMs)
}

func mergeCell(k Kind, into *Cell, from Cell) {
	switch {
	case k.IsSet():
		into.Set = bitmap.Union(into.Set, from.Set)
	case from.Null:
	case into.Null:
		into.Null, into.Int = false, from.Int
	case k == Min:
		into.Int = min(into.Int, from.Int)
	default:
		into.Int = max(into.Int, from.Int)
	}
}
