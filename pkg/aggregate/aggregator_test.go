package aggregate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"rollcall/pkg/bitmap"
)

// noon is 2026-09-21T12:00:00Z.
const noon = int64(1_789_992_000_000)

const hourMs = int64(3_600_000)

func testConfig() Config {
	return Config{
		TimeField:  "ts",
		TimeFormat: "unix_ms",
		Dimensions: []Dimension{{Name: "platform", Path: "platform"}, {Name: "os", Path: "device.os"}},
		Measures:   allKinds(),
		Location:   time.UTC,
		Lateness:   72 * time.Hour,
		FutureSkew: time.Hour,
		MaxKeys:    1000,
		Isolation:  "read_committed",
	}
}

func newTestAggregator(t testing.TB, change func(*Config)) *Aggregator {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	require.NoError(t, err)
	return p.NewAggregator()
}

// apply feeds a document as the next record, produced and read at noon.
func apply(a *Aggregator, doc string) Result {
	return a.Apply(Record{Offset: a.Next(), TimestampMs: noon, Value: []byte(doc)}, noon)
}

func event(at int64, rest string) string {
	if rest != "" {
		rest = "," + rest
	}
	return fmt.Sprintf(`{"ts":%d%s}`, at, rest)
}

func TestApplyCountsEveryMeasure(t *testing.T) {
	a := newTestAggregator(t, nil)
	for _, doc := range []string{
		`{"ts":1789992000000,"platform":"ios","device":{"os":"17","id":"abc"},"user":7,"amount":1.5}`,
		`{"ts":1789992000000,"platform":"ios","device":{"os":"17","id":"abc"},"user":"7","amount":"0.25"}`,
		`{"ts":1789992000001,"platform":"ios","device":{"os":"17","id":12.0},"user":18446744073709551615,"amount":2e1}`,
		`{"ts":1789992000000,"platform":true,"device":{"os":4.50}}`,
	} {
		require.Equal(t, Result{Outcome: Counted}, apply(a, doc), doc)
	}
	require.Equal(t, 2, a.Keys())
	require.Positive(t, a.DeltaBytes())
	d := a.Seal()
	require.Equal(t, int64(4), d.Next)
	require.Positive(t, d.Bytes)
	require.Zero(t, a.DeltaBytes())
	require.Equal(t, []Row{
		{Day: 20717, Dims: []string{"ios", "17"}, LastEventMs: noon + 1, Cells: []Cell{
			{Set: bitmap.Of(7, math.MaxUint64)}, {Int: 3}, {Int: 2175}, {Int: 25}, {Int: 2000}, {Set: bitmap.Of(xxh3.HashString("abc"), xxh3.HashString("12.0"))},
		}},
		{Day: 20717, Dims: []string{"true", "4.50"}, LastEventMs: noon, Cells: []Cell{{}, {Int: 1}, {Int: 0}, {Null: true}, {Null: true}, {}}},
	}, d.Rows)
	require.Equal(t, Stats{WithoutValue: []int64{1, 0, 1, 1, 1, 1}}, a.TakeStats())
	require.Equal(t, Stats{WithoutValue: make([]int64, 6)}, a.TakeStats())
}

func TestHashIsStarRocks(t *testing.T) {
	// StarRocks: bitmap_hash64('user-1'); facts known from outside, not computed here.
	a := newTestAggregator(t, nil)
	apply(a, event(noon, `"device":{"id":"user-1"}`))
	apply(a, event(noon, `"device":{"id":"abc"}`))
	require.True(t, bitmap.Of(8968379626967066057, 8696274497037089104).Equal(a.Seal().Rows[0].Cells[5].Set))
}

func TestSealMovesAndTotalsStay(t *testing.T) {
	a := newTestAggregator(t, nil)
	apply(a, event(noon, `"user":1,"amount":5`))
	first := a.Seal()
	require.Len(t, first.Rows, 1)
	require.Equal(t, Delta{Next: 1}, a.Seal(), "nothing changed")
	apply(a, `nonsense`)
	require.Equal(t, Delta{Next: 2}, a.Seal(), "the position moved, no row did")
	apply(a, event(noon, `"user":2,"amount":3`))
	second := a.Seal()
	require.Equal(t, []Cell{{Set: bitmap.Of(2)}, {Int: 2}, {Int: 800}, {Int: 300}, {Int: 500}, {}}, second.Rows[0].Cells)
	require.Equal(t, []Cell{{Set: bitmap.Of(1)}, {Int: 1}, {Int: 500}, {Int: 500}, {Int: 500}, {}}, first.Rows[0].Cells, "what was handed over does not change")
}

func TestBadRecords(t *testing.T) {
	long := `"` + strings.Repeat("x", 300) + `"`
	for _, tt := range []struct {
		doc  string
		want Reason
	}{
		{``, ReasonUnparsable},
		{`{"ts":1}}`, ReasonUnparsable},
		{`[]`, ReasonNotObject},
		{event(noon, `"platform":{}`), ReasonWrongType},
		{event(noon, `"platform":[]`), ReasonWrongType},
		{event(noon, `"user":5.0`), ReasonWrongType},
		{event(noon, `"user":1e3`), ReasonWrongType},
		{event(noon, `"user":-1`), ReasonWrongType},
		{event(noon, `"user":"+5"`), ReasonWrongType},
		{event(noon, `"user":"five"`), ReasonWrongType},
		{event(noon, `"user":true`), ReasonWrongType},
		{event(noon, `"user":[1]`), ReasonWrongType},
		{event(noon, `"user":18446744073709551616`), ReasonWrongType},
		{event(noon, `"amount":false`), ReasonWrongType},
		{event(noon, `"amount":"1,5"`), ReasonWrongType},
		{event(noon, `"amount":1e30`), ReasonWrongType},
		{event(noon, `"amount":1.005`), ReasonScale},
		{event(noon, `"amount":-0.01`), ReasonNegativeSum},
		{event(noon, `"amount":-0.001`), ReasonNegativeSum},
		{event(noon, `"amount":-1e30`), ReasonNegativeSum},
		{event(noon, `"device":{"id":false}`), ReasonWrongType},
		{event(noon, `"device":{"id":{}}`), ReasonWrongType},
		{`{}`, ReasonNoTime},
		{`{"ts":null}`, ReasonNoTime},
		{`{"ts":""}`, ReasonNoTime},
		{`{"ts":"x"}`, ReasonBadTime},
		{`{"ts":true}`, ReasonBadTime},
		{`{"ts":{}}`, ReasonBadTime},
		{`{"ts":1e30}`, ReasonBadTime},
		{`{"ts":946684799999}`, ReasonOldTime},
		{`{"ts":-1}`, ReasonOldTime},
		{`{"platform":[],"user":-1}`, ReasonWrongType}, // fields before time
		{event(noon, `"platform":`+long+`,"user":-1`), ReasonWrongType},
	} {
		a := newTestAggregator(t, nil)
		require.Equal(t, Result{Outcome: Bad, Reason: tt.want}, apply(a, tt.doc), tt.doc)
		require.Equal(t, Delta{Next: 1}, a.Seal(), "a bad record leaves nothing")
		require.Zero(t, a.Keys())
		_, ok := a.Watermark()
		require.False(t, ok)
		require.Equal(t, Stats{WithoutValue: make([]int64, 6)}, a.TakeStats())
	}
	a := newTestAggregator(t, nil)
	require.Equal(t, Result{Outcome: Bad, Reason: ReasonTombstone}, a.Apply(Record{TimestampMs: noon}, noon))
}

func TestGoodOddRecords(t *testing.T) {
	for _, rest := range []string{
		`"amount":-0`, `"amount":-0.000`, `"amount":""`, `"user":""`, `"user":null`, `"device":5`, `"device":[]`, `"device":{"id":""}`, `"user":"007"`, `"amount":"00.50"`,
	} {
		require.Equal(t, Result{Outcome: Counted}, apply(newTestAggregator(t, nil), event(noon, rest)), rest)
	}
	a := newTestAggregator(t, nil)
	require.Equal(t, Result{Outcome: Counted}, apply(a, `{"ts":946684800000}`), "2000-01-01 itself")
}

func TestMinAndMaxMayBeNegative(t *testing.T) {
	a := newTestAggregator(t, func(c *Config) {
		c.Measures = []Measure{{Name: "lo", Kind: Min, Field: "x", Scale: 1}, {Name: "hi", Kind: Max, Field: "x", Scale: 1}}
	})
	for _, x := range []string{"-2.5", "-1", "-922337203685477580.8"} {
		require.Equal(t, Result{Outcome: Counted}, apply(a, event(noon, `"x":`+x)))
	}
	require.Equal(t, []Cell{{Int: math.MinInt64}, {Int: -10}}, a.Seal().Rows[0].Cells)
}

func TestSaturation(t *testing.T) {
	a := newTestAggregator(t, nil)
	for range 3 {
		require.Equal(t, Result{Outcome: Counted}, apply(a, event(noon, `"amount":92233720368547758.07`)))
	}
	require.Equal(t, int64(math.MaxInt64), a.Seal().Rows[0].Cells[2].Int)
	require.Equal(t, int64(2), a.TakeStats().Saturated)
}

func TestPositions(t *testing.T) {
	a := newTestAggregator(t, nil)
	at := func(offset int64) Outcome {
		return a.Apply(Record{Offset: offset, TimestampMs: noon, Value: []byte(event(noon, ""))}, noon).Outcome
	}
	require.Equal(t, Counted, at(10))
	require.Equal(t, int64(11), a.Next())
	require.Equal(t, Reread, at(10))
	require.Equal(t, Reread, at(3))
	require.Equal(t, int64(11), a.Next())
	a.Skip(20)
	require.Equal(t, int64(20), a.Next())
	a.Skip(15)
	require.Equal(t, int64(20), a.Next(), "never back")
	require.Equal(t, Reread, at(19))
	require.Equal(t, Counted, at(20))
	require.Equal(t, int64(2), a.Seal().Rows[0].Cells[1].Int)
}

func TestLateAndFuture(t *testing.T) {
	lateness := 72 * hourMs
	a := newTestAggregator(t, nil)
	at := func(event_, record, now int64) Outcome {
		return a.Apply(Record{Offset: a.Next(), TimestampMs: record, Value: []byte(event(event_, ""))}, now).Outcome
	}
	require.Equal(t, Counted, at(noon-lateness-5, noon, noon), "no watermark, nothing is late")
	require.Equal(t, Counted, at(noon, noon, noon))
	require.Equal(t, Counted, at(noon-lateness, noon, noon))
	require.Equal(t, Late, at(noon-lateness-1, noon, noon))

	require.Equal(t, Future, at(noon+hourMs+1, noon, noon+10*hourMs), "ahead of the record")
	require.Equal(t, Future, at(noon+hourMs+1, noon+10*hourMs, noon), "ahead of the clock")
	ms, _ := a.Watermark()
	require.Equal(t, noon, ms, "a refused event does not move the watermark")
	require.Equal(t, Future, at(noon+hourMs+1, -1, noon), "a record without a time: only the clock counts")
	require.Equal(t, Counted, at(noon+hourMs-1, -1, noon))
	require.Equal(t, Counted, at(noon+hourMs, year2000Ms-1, noon), "a record time before 2000 does not count")
	ms, ok := a.Watermark()
	require.True(t, ok)
	require.Equal(t, noon+hourMs, ms)
	require.Equal(t, Late, at(noon+hourMs-lateness-1, year2000Ms, noon), "late comes before future")
	require.Equal(t, Future, at(year9999Ms, math.MaxInt64, math.MaxInt64), "no DATE can hold it")
	require.Equal(t, Future, at(math.MaxInt64, math.MaxInt64, math.MaxInt64))
}

func TestRecordTimestampAsEventTime(t *testing.T) {
	a := newTestAggregator(t, func(c *Config) { c.TimeField = "" })
	at := func(record, now int64) Result {
		return a.Apply(Record{Offset: a.Next(), TimestampMs: record, Value: []byte(`{"ts":1}`)}, now)
	}
	require.Equal(t, Result{Outcome: Counted}, at(noon, noon))
	require.Equal(t, Result{Outcome: Bad, Reason: ReasonNoTime}, at(-1, noon))
	require.Equal(t, Result{Outcome: Bad, Reason: ReasonOldTime}, at(0, noon))
	require.Equal(t, Result{Outcome: Future}, at(noon+hourMs+1, noon))
	require.Equal(t, noon, a.Seal().Rows[0].LastEventMs)
}

func TestDaysThatCannotChangeLeaveMemory(t *testing.T) {
	a := newTestAggregator(t, func(c *Config) { c.Lateness = 24 * time.Hour })
	at := func(ms int64) Outcome {
		return a.Apply(Record{Offset: a.Next(), TimestampMs: ms, Value: []byte(event(ms, `"user":1`))}, ms).Outcome
	}
	for day := range int64(5) {
		require.Equal(t, Counted, at(noon+day*dayMs))
	}
	require.Equal(t, 5, a.Keys(), "they are sealed first")
	require.Len(t, a.Seal().Rows, 5)
	require.Equal(t, 2, a.Keys())
	require.Equal(t, Counted, at(noon+3*dayMs), "a day that is half open")
	require.Equal(t, Late, at(noon+2*dayMs))
	d := a.Seal()
	require.Len(t, d.Rows, 1)
	require.Equal(t, int64(2), d.Rows[0].Cells[1].Int, "its total was kept")
}

func TestFolding(t *testing.T) {
	change := func(c *Config) { c.MaxKeys = 2 }
	a := newTestAggregator(t, change)
	feed := func(a *Aggregator, platforms ...string) {
		for _, p := range platforms {
			require.Equal(t, Result{Outcome: Counted}, apply(a, event(noon, `"platform":"`+p+`"`)))
		}
	}
	feed(a, "a", "b", "c", "a", "d", "c")
	require.Equal(t, Result{Outcome: Counted}, apply(a, event(noon-dayMs, `"platform":"c"`)), "another day has keys of its own")
	rows := a.Seal().Rows
	counts := map[string]int64{}
	for _, r := range rows {
		counts[r.Day.String()+" "+strings.Join(r.Dims, "/")] = r.Cells[1].Int
	}
	require.Equal(t, map[string]int64{"2026-09-21 a/": 2, "2026-09-21 b/": 1, "2026-09-21 __other__/__other__": 3, "2026-09-20 c/": 1}, counts)
	require.Equal(t, int64(3), a.TakeStats().Folded)
	require.Equal(t, 4, a.Keys())

	b := newTestAggregator(t, change)
	w, _ := a.Watermark()
	require.NoError(t, b.Restore(State{Next: a.Next(), WatermarkMs: w, HasWatermark: true, Rows: rows}))
	require.Equal(t, 4, b.Keys())
	feed(a, "c", "b", "e")
	feed(b, "c", "b", "e")
	require.Equal(t, a.Seal(), b.Seal(), "the same keys fold after a restore")
}

func TestAnEventThatIsNamedAsTheFoldedKey(t *testing.T) {
	a := newTestAggregator(t, func(c *Config) { c.MaxKeys = 1 })
	folded := event(noon, `"platform":"__other__","device":{"os":"__other__"}`)
	apply(a, folded)
	apply(a, event(noon, `"platform":"a"`))
	apply(a, folded)
	apply(a, event(noon, `"platform":"b"`))
	d := a.Seal()
	require.Len(t, d.Rows, 2)
	require.Equal(t, []string{"__other__", "__other__"}, d.Rows[0].Dims)
	require.Equal(t, int64(3), d.Rows[0].Cells[1].Int)
	require.Equal(t, int64(1), a.TakeStats().Folded)
}

func TestNoDimensions(t *testing.T) {
	a := newTestAggregator(t, func(c *Config) { c.Dimensions, c.MaxKeys = nil, 1 })
	apply(a, event(noon, ""))
	d := a.Seal()
	require.NoError(t, a.Restore(State{Next: 1, WatermarkMs: noon, HasWatermark: true, Rows: d.Rows}))
	apply(a, event(noon, ""))
	d = a.Seal()
	require.Len(t, d.Rows, 1)
	require.Empty(t, d.Rows[0].Dims)
	require.Equal(t, int64(2), d.Rows[0].Cells[1].Int)
	require.Equal(t, 1, a.Keys())
	require.Zero(t, a.TakeStats().Folded)
}

func TestDimensionsAreCutAndCleaned(t *testing.T) {
	a := newTestAggregator(t, nil)
	x254 := strings.Repeat("x", 254)
	for _, p := range []string{x254 + "yz", x254 + "é", x254 + "\xff\xfe", "\xff", "k\ufffd", "k\xff", "k\xff\xff", `k\u0000`} {
		require.Equal(t, Result{Outcome: Counted}, apply(a, event(noon, `"platform":"`+p+`"`)))
	}
	var dims []string
	for _, r := range a.Seal().Rows {
		dims = append(dims, r.Dims[0])
	}
	require.Equal(t, []string{x254 + "y", x254, "\ufffd", "k\ufffd", "k\x00"}, dims)
	s := a.TakeStats()
	require.Equal(t, int64(3), s.Cut)
	require.Equal(t, int64(4), s.ReplacedUTF8)
}

func TestDimensionsCannotRunTogether(t *testing.T) {
	a := newTestAggregator(t, nil)
	apply(a, event(noon, `"platform":"ab","device":{"os":"c"}`))
	apply(a, event(noon, `"platform":"a","device":{"os":"bc"}`))
	apply(a, event(noon, `"platform":"a\u0000","device":{"os":"b"}`))
	require.Equal(t, 3, a.Keys())
}

type panicky struct{}

func (panicky) decode([]byte, []value) Reason { panic("decoder") }

func TestAPanicIsTheRecords(t *testing.T) {
	a := newTestAggregator(t, nil)
	good := a.dec
	a.dec = panicky{}
	require.Equal(t, Result{Outcome: Bad, Reason: ReasonPanic}, apply(a, event(noon, "")))
	require.Contains(t, a.TakeStats().Panic, "panicky")
	require.Empty(t, a.TakeStats().Panic)
	a.dec = good
	require.Equal(t, Delta{Next: 1}, a.Seal())
	require.Equal(t, Result{Outcome: Counted}, apply(a, event(noon, "")))
}

func TestRestore(t *testing.T) {
	row := func(day Day, n int64) Row {
		return Row{Day: day, Dims: []string{"ios", ""}, LastEventMs: noon, Cells: []Cell{{}, {Int: n}, {Int: 10 * n}, {Int: 7}, {Null: true}, {}}}
	}
	a := newTestAggregator(t, nil)
	apply(a, event(noon, `"platform":"gone"`))
	today := Day(20717)
	require.NoError(t, a.Restore(State{Next: 100, WatermarkMs: noon, HasWatermark: true, Rows: []Row{row(today, 5), row(today-3, 3), row(today-4, 9)}}))
	require.Equal(t, int64(100), a.Next())
	ms, ok := a.Watermark()
	require.True(t, ok)
	require.Equal(t, noon, ms)
	require.Equal(t, 2, a.Keys(), "a day that cannot change is not kept")
	require.Equal(t, Delta{Next: 100}, a.Seal(), "nothing is dirty")
	require.Equal(t, Result{Outcome: Late}, apply(a, event(noon-72*hourMs-1, "")))
	require.Equal(t, Result{Outcome: Counted}, apply(a, event(noon-1, `"platform":"ios","amount":9`)))
	sealed := a.Seal().Rows[0]
	require.Equal(t, []Cell{{}, {Int: 6}, {Int: 950}, {Int: 7}, {Int: 900}, {}}, sealed.Cells)
	require.Equal(t, noon, sealed.LastEventMs, "times do not go back, either")

	require.ErrorIs(t, a.Restore(State{Rows: []Row{row(today, 1)}}), ErrState)
	require.ErrorIs(t, a.Restore(State{Next: -1}), ErrState)
	for _, change := range []func(*Row){
		func(r *Row) { r.Dims = r.Dims[:1] },
		func(r *Row) { r.Cells = r.Cells[:1] },
		func(r *Row) { r.Dims[0] = strings.Repeat("x", 256) },
	} {
		r := row(today, 1)
		change(&r)
		require.ErrorIs(t, a.Restore(State{HasWatermark: true, WatermarkMs: noon, Rows: []Row{r}}), ErrState)
	}
	require.Equal(t, int64(102), a.Next(), "a refused state changes nothing")
}

func TestApplyDoesNotAllocate(t *testing.T) {
	a := newTestAggregator(t, nil)
	docs := [][]byte{
		[]byte(event(noon, `"platform":"ios","device":{"os":"17","id":"abc"},"user":7,"amount":1.5`)),
		[]byte(event(noon-dayMs, `"platform":"andr\u00f6id","device":{"os":"17","id":"`+"\xff"+`"},"user":"8","amount":"1.5"`)),
		[]byte(event(noon-80*hourMs, `"platform":"late"`)),
		[]byte(event(noon+80*hourMs, `"platform":"future"`)),
		[]byte(event(noon, `"user":-1`)),
		[]byte(`{"ts":`),
	}
	run := func() {
		for _, doc := range docs {
			a.Apply(Record{Offset: a.Next(), TimestampMs: noon, Value: doc}, noon)
		}
	}
	for range 100 {
		run()
	}
	require.Zero(t, testing.AllocsPerRun(1000, run))
}

func TestDeltaBytesIsWhatIsHeld(t *testing.T) {
	a := newTestAggregator(t, nil)
	for i := range 10_000 {
		apply(a, event(noon, fmt.Sprintf(`"platform":"p%d","user":%d`, i%10, i*7919)))
	}
	held := a.DeltaBytes()
	require.Greater(t, held, int64(10_000*2))
	require.Less(t, held, int64(10_000*8*3))
	d := a.Seal()
	require.LessOrEqual(t, d.Bytes, held)
	require.Zero(t, a.DeltaBytes())
}

func TestProgramChecks(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no zone":          func(c *Config) { c.Location = nil },
		"process zone":     func(c *Config) { c.Location = time.Local },
		"no measures":      func(c *Config) { c.Measures = nil },
		"reserved":         func(c *Config) { c.Dimensions[0].Name = "DT" },
		"reserved prefix":  func(c *Config) { c.Measures[0].Name = "Rollcall_x" },
		"doubled":          func(c *Config) { c.Measures[0].Name = "Platform" },
		"no name":          func(c *Config) { c.Measures[0].Name = "" },
		"no path":          func(c *Config) { c.Dimensions[0].Path = "" },
		"empty part":       func(c *Config) { c.Dimensions[0].Path = "a..b" },
		"bad UTF-8":        func(c *Config) { c.Dimensions[0].Path = "a\xff" },
		"deep":             func(c *Config) { c.Dimensions[0].Path = strings.Repeat("a.", 40) + "a" },
		"no kind":          func(c *Config) { c.Measures[0].Kind = 0 },
		"count of a field": func(c *Config) { c.Measures[1].Field = "x" },
		"distinct scale":   func(c *Config) { c.Measures[0].Scale = 1 },
		"scale":            func(c *Config) { c.Measures[2].Scale = 10 },
		"no field":         func(c *Config) { c.Measures[2].Field = "" },
		"keys":             func(c *Config) { c.MaxKeys = 0 },
		"lateness":         func(c *Config) { c.Lateness = -1 },
		"time path":        func(c *Config) { c.TimeField = "a." },
		"time format":      func(c *Config) { c.TimeFormat = "millis" },
		"no time format":   func(c *Config) { c.TimeFormat = "" },
	} {
		cfg := testConfig()
		change(&cfg)
		_, err := New(cfg)
		require.ErrorIs(t, err, ErrConfig, name)
	}
	_, err := New(Config{})
	require.ErrorContains(t, err, "time zone")
	require.ErrorContains(t, err, "measures", "all problems at once")
}

func TestProgramID(t *testing.T) {
	id := func(change func(*Config)) string {
		cfg := testConfig()
		change(&cfg)
		p, err := New(cfg)
		require.NoError(t, err)
		require.Regexp(t, "^[0-9a-f]{8}$", p.ID())
		return p.ID()
	}
	base := id(func(*Config) {})
	require.Equal(t, "3afe4ffa", base, "the identity of stored rows must not change by accident: raise decoderVersion instead")
	require.Equal(t, base, id(func(c *Config) { slices.Reverse(c.Measures); slices.Reverse(c.Dimensions) }), "columns go by name")
	seen := map[string]bool{base: true}
	for i, change := range []func(*Config){
		func(c *Config) { c.TimeField = "t" },
		func(c *Config) { c.TimeField = "" },
		func(c *Config) { c.TimeFormat = "unix_s" },
		func(c *Config) { c.Dimensions = c.Dimensions[:1] },
		func(c *Config) { c.Dimensions[0].Path = "p" },
		func(c *Config) { c.Dimensions[0].Name = "p" },
		func(c *Config) { c.Measures = c.Measures[:3] },
		func(c *Config) { c.Measures[0].Name = "users" },
		func(c *Config) { c.Measures[0].Kind = DistinctHash },
		func(c *Config) { c.Measures[0].Field = "uid" },
		func(c *Config) { c.Measures[2].Scale = 3 },
		func(c *Config) { c.Location = zone(t, "Asia/Shanghai") },
		func(c *Config) { c.Lateness++; c.Lateness += time.Millisecond },
		func(c *Config) { c.FutureSkew = 0 },
		func(c *Config) { c.MaxKeys++ },
		func(c *Config) { c.Isolation = "read_uncommitted" },
	} {
		got := id(change)
		require.False(t, seen[got], "change %d", i)
		seen[got] = true
	}
}

func TestOpenFrom(t *testing.T) {
	cfg := testConfig()
	cfg.Location = zone(t, "Asia/Shanghai")
	p, err := New(cfg)
	require.NoError(t, err)
	require.Equal(t, "2026-09-18", p.OpenFrom(noon).String())
	require.Equal(t, "2026-09-19", p.OpenFrom(noon+4*hourMs).String())
	require.Equal(t, cfg.Location, p.Location())
	require.Equal(t, cfg.Measures, p.Measures())
	require.Equal(t, cfg.Dimensions, p.Dimensions())
	require.Contains(t, p.Text(), "Asia/Shanghai")
}
