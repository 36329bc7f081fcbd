package aggregate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rollcall/pkg/bitmap"
)

func allKinds() []Measure {
	return []Measure{
		{Name: "uv", Kind: Distinct, Field: "user"},
		{Name: "pv", Kind: Count},
		{Name: "revenue", Kind: Sum, Field: "amount", Scale: 2},
		{Name: "least", Kind: Min, Field: "amount", Scale: 2},
		{Name: "most", Kind: Max, Field: "amount", Scale: 2},
		{Name: "devices", Kind: DistinctHash, Field: "device.id"},
	}
}

func cloneRow(r Row) Row {
	r.Cells = append([]Cell(nil), r.Cells...)
	return r
}

func merged(measures []Measure, a, b Row) Row {
	out := cloneRow(a)
	MergeRow(measures, &out, b)
	return out
}

func drawRow(t *rapid.T, label string, measures []Measure) Row {
	r := Row{Day: 7, Dims: []string{"x"}, LastEventMs: rapid.Int64Range(0, 5).Draw(t, label)}
	for _, m := range measures {
		c := Cell{}
		switch {
		case m.Kind.IsSet():
			c.Set = bitmap.Of(rapid.SliceOfN(rapid.Uint64Range(0, 20), 0, 10).Draw(t, m.Name)...)
		case m.Kind == Min || m.Kind == Max:
			if c.Null = rapid.Bool().Draw(t, m.Name+" null"); !c.Null {
				c.Int = rapid.Int64Range(-5, 5).Draw(t, m.Name)
			}
		default:
			c.Int = rapid.Int64Range(0, 5).Draw(t, m.Name)
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func TestMergeRowIsASemilattice(t *testing.T) {
	measures := allKinds()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawRow(t, "a", measures), drawRow(t, "b", measures), drawRow(t, "c", measures)
		ab := merged(measures, a, b)
		require.Equal(t, ab, merged(measures, b, a), "commutative")
		require.Equal(t, merged(measures, ab, c), merged(measures, a, merged(measures, b, c)), "associative")
		require.Equal(t, ab, merged(measures, ab, b), "idempotent")
		require.Equal(t, a, merged(measures, a, a), "idempotent")
	})
}

func TestMergeRow(t *testing.T) {
	measures := allKinds()
	into := Row{LastEventMs: 5, Cells: []Cell{{Set: bitmap.Of(1, 2)}, {Int: 3}, {Int: 10}, {Int: -4}, {Null: true}, {}}}
	from := Row{LastEventMs: 4, Cells: []Cell{{Set: bitmap.Of(2, 3)}, {Int: 2}, {Int: 11}, {Int: -5}, {Int: -9}, {Set: bitmap.Of(8)}}}
	MergeRow(measures, &into, from)
	require.Equal(t, Row{LastEventMs: 5, Cells: []Cell{
		{Set: bitmap.Of(1, 2, 3)}, {Int: 3}, {Int: 11}, {Int: -5}, {Int: -9}, {Set: bitmap.Of(8)},
	}}, into)
}
