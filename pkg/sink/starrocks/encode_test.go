package starrocks

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
	"rollcall/pkg/sink"
)

func testLayout() *layout {
	l := newLayout(testDims(), testMeasures())
	return &l
}

func TestEncodeExactly(t *testing.T) {
	l := testLayout()
	row := testRow(19723, 1, 2, 3) // 2024-01-01
	empty := aggregate.Row{Day: 19723, Dims: []string{"", `"\` + "\n\x00é\u2028"}, Cells: []aggregate.Cell{{}, {}, {}, {Int: -1}, {Null: true}}}
	body, err := l.encode([]sink.Part{
		{Source: "events/0/AAAAAAAAAAAAAAAAAAAAAA/0.1-0a1b2c3d", Next: 42, Rows: []aggregate.Row{row, empty}},
		{Source: "events/1/x/7.0-0a1b2c3d", Next: 9, Ahead: true, Rows: []aggregate.Row{row}},
	})
	require.NoError(t, err)
	require.Equal(t, 3, body.Rows)
	require.Equal(t, `[{"dt":"2024-01-01","platform":"ios","order":"a","rollcall_source":"events/0/AAAAAAAAAAAAAAAAAAAAAA/0.1-0a1b2c3d",`+
		`"tmp_uv":"AjowAAABAAAAAAACABAAAAABAAIAAwA=","pv":7,"amount":1250,"lowest":null,"highest":-3,`+
		`"rollcall_next_offset":42,"rollcall_last_event_ms":1700000000123},`+
		`{"dt":"2024-01-01","platform":"","order":"\"\\\u000a\u0000é`+"\u2028"+`","rollcall_source":"events/0/AAAAAAAAAAAAAAAAAAAAAA/0.1-0a1b2c3d",`+
		`"tmp_uv":"AA==","pv":0,"amount":0,"lowest":-1,"highest":null,"rollcall_next_offset":42,"rollcall_last_event_ms":0},`+
		`{"dt":"2024-01-01","platform":"ios","order":"a","rollcall_source":"events/1/x/7.0-0a1b2c3d",`+
		`"tmp_uv":"AjowAAABAAAAAAACABAAAAABAAIAAwA=","pv":0,"amount":0,"lowest":null,"highest":null,`+
		`"rollcall_next_offset":0,"rollcall_last_event_ms":0}]`, string(body.Data))
}

// A cell above StarRocks' limit becomes several rows of one key; totals and next offset are repeated, which merges to themselves.
func TestBigBitmapsBecomeSeveralRows(t *testing.T) {
	measures := []aggregate.Measure{
		{Name: "a", Kind: aggregate.Distinct},
		{Name: "n", Kind: aggregate.Count},
		{Name: "b", Kind: aggregate.DistinctHash},
		{Name: "c", Kind: aggregate.Distinct},
	}
	l := newLayout(nil, measures)
	big, small := make([]uint64, 80_000), []uint64{5}
	for i := range big {
		big[i] = uint64(i) * 0x9e3779b97f4a7c15 // spread over 64 bits: about 22 bytes each
	}
	slices.Sort(big)
	medium := big[:50_000]
	rows := []aggregate.Row{
		{Day: 1, Cells: []aggregate.Cell{{Set: bitmap.FromSorted(big)}, {Int: 11}, {Set: bitmap.FromSorted(medium)}, {Set: bitmap.FromSorted(small)}}},
		{Day: 1, Cells: []aggregate.Cell{{Set: bitmap.FromSorted(small)}, {Int: 12}, {}, {}}},
	}
	body, err := l.encode([]sink.Part{{Source: "s", Next: 3, Rows: rows}})
	require.NoError(t, err)

	var out []map[string]any
	require.NoError(t, json.Unmarshal(body.Data, &out))
	require.Len(t, out, body.Rows)
	require.Greater(t, body.Rows, 3)
	got := map[string][]uint64{}
	for i, row := range out {
		last := i == len(out)-1
		want := 11.0
		if last {
			want = 12
		}
		require.InDelta(t, want, row["n"], 0)
		require.InDelta(t, 3.0, row["rollcall_next_offset"], 0)
		for _, name := range []string{"tmp_a", "tmp_b", "tmp_c"} {
			cell, _ := row[name].(string)
			require.LessOrEqual(t, len(cell), 1_048_576)
			raw, err := base64.StdEncoding.DecodeString(cell)
			require.NoError(t, err)
			set, err := bitmap.Decode(raw)
			require.NoError(t, err)
			if !last {
				got[name] = append(got[name], slices.Collect(set.All())...)
			}
		}
	}
	require.True(t, slices.Equal(big, sortedIDs(got["tmp_a"])))
	require.True(t, slices.Equal(medium, sortedIDs(got["tmp_b"])))
	require.Equal(t, small, got["tmp_c"])
}

func sortedIDs(ids []uint64) []uint64 {
	slices.Sort(ids)
	return ids
}

func TestEncodeRefuses(t *testing.T) {
	l := testLayout()
	_, err := l.encode(nil)
	require.ErrorContains(t, err, "no rows")
	_, err = l.encode([]sink.Part{{Source: "s", Next: 1}})
	require.ErrorContains(t, err, "no rows")
	bad := testRow(1)
	bad.Dims = bad.Dims[:1]
	_, err = l.encode([]sink.Part{{Source: "the/source", Rows: []aggregate.Row{testRow(1), bad}}})
	require.ErrorContains(t, err, "row 1 of the/source")
	bad = testRow(1)
	bad.Cells = nil
	_, err = l.encode([]sink.Part{{Source: "s", Rows: []aggregate.Row{bad}}})
	require.ErrorContains(t, err, "0 cells")
}

func TestTemporaryNameIsNoColumn(t *testing.T) {
	l := newLayout([]aggregate.Dimension{{Name: "TMP_uv"}}, []aggregate.Measure{
		{Name: "uv", Kind: aggregate.Distinct}, {Name: "tmp_tmp_uv", Kind: aggregate.Count},
	})
	require.Equal(t, "`dt`,`TMP_uv`,`rollcall_source`,`tmp_tmp_tmp_uv`,`tmp_tmp_uv`,`rollcall_next_offset`,`rollcall_last_event_ms`,"+
		"`uv`=base64_to_bitmap(`tmp_tmp_tmp_uv`)", l.columns)
}

// Whatever the strings and numbers, a JSON reader gets back what went in.
func TestEncodeReadsBack(t *testing.T) {
	l := testLayout()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		n := rapid.IntRange(1, 5).Draw(t, "rows")
		part := sink.Part{Source: text.Draw(t, "source"), Next: rapid.Int64().Draw(t, "next")}
		for range n {
			part.Rows = append(part.Rows, aggregate.Row{
				Day: aggregate.Day(rapid.IntRange(0, 40_000).Draw(t, "day")), LastEventMs: rapid.Int64().Draw(t, "last"),
				Dims: []string{text.Draw(t, "dim"), text.Draw(t, "dim")},
				Cells: []aggregate.Cell{
					{Set: bitmap.Of(rapid.SliceOf(rapid.Uint64()).Draw(t, "ids")...)},
					{Int: rapid.Int64().Draw(t, "pv")},
					{Int: rapid.Int64().Draw(t, "sum")},
					{Null: rapid.Bool().Draw(t, "null"), Int: 1},
					{Int: 2},
				},
			})
		}
		body, err := l.encode([]sink.Part{part})
		require.NoError(t, err)
		require.Equal(t, n, body.Rows)
		var out []struct {
			Dt, Platform, Order string
			Source              string `json:"rollcall_source"`
			UV                  []byte `json:"tmp_uv"`
			PV, Amount          int64
			Lowest, Highest     *int64
			Next                int64 `json:"rollcall_next_offset"`
			Last                int64 `json:"rollcall_last_event_ms"`
		}
		require.NoError(t, json.Unmarshal(body.Data, &out))
		require.Len(t, out, n)
		clean := func(s string) string { return string([]rune(s)) } // every invalid byte becomes U+FFFD
		for i, row := range part.Rows {
			o := out[i]
			require.Equal(t, row.Day.String(), o.Dt)
			require.Equal(t, []string{clean(row.Dims[0]), clean(row.Dims[1]), clean(part.Source)}, []string{o.Platform, o.Order, o.Source})
			set, err := bitmap.Decode(o.UV)
			require.NoError(t, err)
			require.True(t, set.Equal(row.Cells[0].Set))
			require.Equal(t, []int64{row.Cells[1].Int, row.Cells[2].Int, 2, part.Next, row.LastEventMs}, []int64{o.PV, o.Amount, *o.Highest, o.Next, o.Last})
			require.Equal(t, row.Cells[3].Null, o.Lowest == nil)
		}
	})
}

func FuzzJSONString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\x00\x1f\x7f", "é\u2028\U0001F600", "\xff\xc3", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := appendJSON([]byte("keep"), s)
		require.True(t, strings.HasPrefix(string(got), "keep"))
		var back string
		require.NoError(t, json.Unmarshal(got[4:], &back))
		want, err := json.Marshal(s)
		require.NoError(t, err)
		var wantBack string
		require.NoError(t, json.Unmarshal(want, &wantBack))
		require.Equal(t, wantBack, back)
	})
}

func benchmarkParts(keys, ids int) []sink.Part {
	part := sink.Part{Source: "events/11/AAAAAAAAAAAAAAAAAAAAAA/1234567.12-0a1b2c3d", Next: 123456789}
	set := make([]uint64, ids)
	for k := range keys {
		for i := range set {
			set[i] = uint64(i*7 + k)
		}
		part.Rows = append(part.Rows, aggregate.Row{
			Day: 19723, Dims: []string{fmt.Sprint("platform-", k), "channel"}, LastEventMs: 1700000000123,
			Cells: []aggregate.Cell{{Set: bitmap.Of(set...)}, {Int: 7}, {Int: 1250}, {Int: 3}, {Int: 9}},
		})
	}
	return []sink.Part{part}
}

func BenchmarkEncode(b *testing.B) {
	for _, size := range []struct{ keys, ids int }{{10_000, 1}, {1000, 100}, {100, 10_000}} {
		b.Run(fmt.Sprintf("keys=%d/ids=%d", size.keys, size.ids), func(b *testing.B) {
			l := testLayout()
			parts := benchmarkParts(size.keys, size.ids)
			b.ReportAllocs()
			for b.Loop() {
				body, err := l.encode(parts)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(body.Data)))
			}
		})
	}
}
