package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
)

func TestRowKeyIsUnambiguous(t *testing.T) {
	keys := map[string]bool{}
	for _, r := range []aggregate.Row{
		{Day: 1, Dims: []string{"a", "b"}},
		{Day: 1, Dims: []string{"a:1:b"}},
		{Day: 1, Dims: []string{"ab", ""}},
		{Day: 1, Dims: []string{"", "ab"}},
		{Day: 11, Dims: []string{"a", "b"}},
		{Day: 1, Dims: nil},
		{Day: 1, Dims: []string{""}},
		{Day: -1, Dims: []string{"a", "b"}},
	} {
		keys[rowKey(&r)] = true
	}
	require.Len(t, keys, 8)
}

// Whatever the limit: what goes ahead and what is left are together what there was, and nothing but sets goes ahead.
func TestSplitAheadLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Int64Range(200, 20000).Draw(rt, "limit")
		again := rapid.Int64Range(200, 5000).Draw(rt, "again")
		it := &item{lane: &lane{source: "s"}, next: 5}
		want := map[string]bitmap.Set{}
		for i := range rapid.IntRange(1, 6).Draw(rt, "rows") {
			ids := rapid.SliceOfN(rapid.Uint64(), 0, 400).Draw(rt, "ids")
			r := row(i, "x", int64(i), 7, ids...)
			want[rowKey(&r)] = r.Cells[0].Set
			it.rows = append(it.rows, r)
		}
		before := rowsSize(it.rows)
		parts := splitAhead(it, testMeasures(), limit)
		var all []Part
		for _, p := range parts {
			if size := rowsSize(p.Rows); size > limit && len(p.Rows) > 1 {
				rt.Errorf("part of %d bytes over %d", size, limit)
			}
			all = append(all, splitPart(p, testMeasures(), again)...)
		}
		if len(parts) > 0 && rowsSize(it.rows) >= before {
			rt.Errorf("nothing was taken")
		}
		got := map[string]bitmap.Set{}
		for _, r := range it.rows {
			got[rowKey(&r)] = r.Cells[0].Set
			if r.Cells[1].Int != int64(r.Day) || r.Cells[2].Int != 7 || r.Cells[2].Null {
				rt.Errorf("totals changed: %+v", r)
			}
		}
		for _, p := range all {
			if !p.Ahead || p.Next != 0 || p.Source != "s" {
				rt.Errorf("part %+v", p)
			}
			for _, r := range p.Rows {
				if r.Cells[1].Int != 0 || r.Cells[1].Null || !r.Cells[2].Null || r.LastEventMs != 0 {
					rt.Errorf("not neutral: %+v", r)
				}
				got[rowKey(&r)] = bitmap.Union(got[rowKey(&r)], r.Cells[0].Set)
			}
		}
		for k, s := range want {
			if !s.Equal(got[k]) {
				rt.Errorf("%s: %d ids of %d", k, got[k].Len(), s.Len())
			}
		}
	})
}

func TestSplitAheadHasNothingToTake(t *testing.T) {
	it := &item{lane: &lane{source: "s"}, rows: []aggregate.Row{row(1, "x", 1, 1)}}
	require.Empty(t, splitAhead(it, testMeasures(), 10))
}
