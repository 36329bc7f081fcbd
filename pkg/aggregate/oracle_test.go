package aggregate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"rollcall/pkg/bitmap"
)

// oracle counts the slow way: encoding/json, big.Rat, the time package, maps, and everything in memory for ever.
type oracle struct {
	cfg    Config
	wm     time.Time
	hasWM  bool
	rows   map[string]*oracleRow
	perDay map[string]int
}

type oracleRow struct {
	day     string
	dims    []string
	ids     []map[uint64]bool
	num     []*big.Rat // scaled; nil: no event contributed
	lastMs  int64
	isOther bool
}

func newOracle(cfg Config) *oracle {
	return &oracle{cfg: cfg, rows: map[string]*oracleRow{}, perDay: map[string]int{}}
}

func lookup(doc map[string]any, path string) any {
	var v any = doc
	for key := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// text is a scalar's text; ok is false for objects and arrays.
func text(v any) (s string, isBool, ok bool) {
	switch v := v.(type) {
	case nil:
		return "", false, true
	case string:
		return v, false, true
	case json.Number:
		return v.String(), false, true
	case bool:
		return strconv.FormatBool(v), true, true
	default:
		return "", false, false
	}
}

type contribution struct {
	id  uint64
	num *big.Rat
}

// measure is what one event says to one measure; nil for nothing.
func (o *oracle) measure(doc map[string]any, m Measure) (*contribution, Reason) {
	if m.Kind == Count {
		return &contribution{num: big.NewRat(1, 1)}, ""
	}
	s, isBool, ok := text(lookup(doc, m.Field))
	switch {
	case !ok || isBool:
		return nil, ReasonWrongType
	case s == "":
		return nil, ""
	case m.Kind == DistinctHash:
		return &contribution{id: xxh3.HashString(s)}, ""
	case m.Kind == Distinct:
		if strings.ContainsAny(s, "+-") {
			return nil, ReasonWrongType
		}
		id, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, ReasonWrongType
		}
		return &contribution{id: id}, ""
	}
	if strings.ContainsAny(s, "/+_xXpP") && !strings.Contains(strings.ToLower(s), "e+") {
		return nil, ReasonWrongType
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, ReasonWrongType
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(m.Scale)), nil)))
	switch {
	case m.Kind == Sum && r.Sign() < 0:
		return nil, ReasonNegativeSum
	case !r.IsInt():
		return nil, ReasonScale
	case !r.Num().IsInt64():
		return nil, ReasonWrongType
	}
	return &contribution{num: r}, ""
}

func (o *oracle) time(doc map[string]any) (time.Time, Reason) {
	v := lookup(doc, o.cfg.TimeField)
	s, isBool, ok := text(v)
	switch {
	case ok && s == "":
		return time.Time{}, ReasonNoTime
	case !ok || isBool:
		return time.Time{}, ReasonBadTime
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, ReasonBadTime
	}
	if t.Before(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) {
		return time.Time{}, ReasonOldTime
	}
	return t.Truncate(time.Millisecond), ""
}

func (o *oracle) apply(rec Record, nowMs int64) Result {
	bad := func(r Reason) Result { return Result{Outcome: Bad, Reason: r} }
	if rec.Value == nil {
		return bad(ReasonTombstone)
	}
	dec := json.NewDecoder(bytes.NewReader(rec.Value))
	dec.UseNumber()
	var v any
	if !json.Valid(rec.Value) || dec.Decode(&v) != nil {
		return bad(ReasonUnparsable)
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return bad(ReasonNotObject)
	}
	var dims []string
	for _, d := range o.cfg.Dimensions {
		s, _, ok := text(lookup(doc, d.Path))
		if !ok {
			return bad(ReasonWrongType)
		}
		dims = append(dims, s)
	}
	var parts []*contribution
	for _, m := range o.cfg.Measures {
		c, reason := o.measure(doc, m)
		if reason != "" {
			return bad(reason)
		}
		parts = append(parts, c)
	}
	t, reason := o.time(doc)
	if reason != "" {
		return bad(reason)
	}
	if o.hasWM && t.Before(o.wm.Add(-o.cfg.Lateness)) {
		return Result{Outcome: Late}
	}
	limit, stamp := time.UnixMilli(nowMs), time.UnixMilli(rec.TimestampMs)
	if stamp.Year() >= 2000 && stamp.Before(limit) {
		limit = stamp
	}
	if t.After(limit.Add(o.cfg.FutureSkew)) {
		return Result{Outcome: Future}
	}
	if !o.hasWM || t.After(o.wm) {
		o.wm, o.hasWM = t, true
	}
	o.count(t, dims, parts)
	return Result{Outcome: Counted}
}

func (o *oracle) count(t time.Time, dims []string, parts []*contribution) {
	day := t.In(o.cfg.Location).Format(time.DateOnly)
	r := o.rows[fmt.Sprintf("%s %q", day, dims)]
	if r == nil {
		isOther := !slices.ContainsFunc(dims, func(d string) bool { return d != FoldedKey })
		if !isOther && o.perDay[day] >= o.cfg.MaxKeys {
			isOther = true
			dims = slices.Repeat([]string{FoldedKey}, len(dims))
		}
		key := fmt.Sprintf("%s %q", day, dims)
		if r = o.rows[key]; r == nil {
			r = &oracleRow{day: day, dims: dims, isOther: isOther, ids: make([]map[uint64]bool, len(parts)), num: make([]*big.Rat, len(parts))}
			o.rows[key] = r
			if !isOther {
				o.perDay[day]++
			}
		}
	}
	r.lastMs = max(r.lastMs, t.UnixMilli())
	for i, m := range o.cfg.Measures {
		c := parts[i]
		if c == nil {
			continue
		}
		switch {
		case m.Kind.IsSet():
			if r.ids[i] == nil {
				r.ids[i] = map[uint64]bool{}
			}
			r.ids[i][c.id] = true
		case r.num[i] == nil:
			r.num[i] = new(big.Rat).Set(c.num)
		case m.Kind == Count || m.Kind == Sum:
			r.num[i].Add(r.num[i], c.num)
		case (m.Kind == Min) == (c.num.Cmp(r.num[i]) < 0):
			r.num[i].Set(c.num)
		}
	}
}

// table renders the oracle's rows as a table would hold them.
func (o *oracle) table() map[string]string {
	out := map[string]string{}
	for key, r := range o.rows {
		var b strings.Builder
		fmt.Fprintf(&b, "last=%d", r.lastMs)
		for i, m := range o.cfg.Measures {
			switch {
			case m.Kind.IsSet():
				fmt.Fprintf(&b, " %s=%v", m.Name, slices.Sorted(maps.Keys(r.ids[i])))
			case r.num[i] != nil:
				fmt.Fprintf(&b, " %s=%s", m.Name, r.num[i].RatString())
			case m.Kind == Sum:
				fmt.Fprintf(&b, " %s=0", m.Name)
			default:
				fmt.Fprintf(&b, " %s=null", m.Name)
			}
		}
		out[key] = b.String()
	}
	return out
}

// fakeTable merges rows as StarRocks does.
type fakeTable struct {
	measures []Measure
	rows     map[string]*Row
	next     int64
}

func newFakeTable(measures []Measure) *fakeTable {
	return &fakeTable{measures: measures, rows: map[string]*Row{}}
}

func (f *fakeTable) load(d Delta) {
	for _, r := range d.Rows {
		key := fmt.Sprintf("%s %q", r.Day, r.Dims)
		if have := f.rows[key]; have != nil {
			MergeRow(f.measures, have, r)
			continue
		}
		r = cloneRow(r)
		f.rows[key] = &r
	}
	if len(d.Rows) > 0 {
		f.next = max(f.next, d.Next)
	}
}

// state is what a restore reads.
func (f *fakeTable) state(p *Program) State {
	st := State{Next: f.next}
	for _, r := range f.rows {
		st.WatermarkMs = max(st.WatermarkMs, r.LastEventMs)
		st.HasWatermark = true
	}
	for _, r := range f.rows {
		if r.Day < p.OpenFrom(st.WatermarkMs) {
			continue
		}
		total := cloneRow(*r)
		for i := range total.Cells {
			total.Cells[i].Set = bitmap.Set{}
		}
		st.Rows = append(st.Rows, total)
	}
	return st
}

func (f *fakeTable) table() map[string]string {
	out := map[string]string{}
	for key, r := range f.rows {
		var b strings.Builder
		fmt.Fprintf(&b, "last=%d", r.LastEventMs)
		for i, m := range f.measures {
			switch c := r.Cells[i]; {
			case m.Kind.IsSet():
				fmt.Fprintf(&b, " %s=%v", m.Name, slices.Collect(c.Set.All()))
			case c.Null:
				fmt.Fprintf(&b, " %s=null", m.Name)
			default:
				fmt.Fprintf(&b, " %s=%d", m.Name, c.Int)
			}
		}
		out[key] = b.String()
	}
	return out
}

// drawLog makes records, most of them good, around a change of the clock.
func drawLog(t *rapid.T) []Record {
	base := rapid.SampledFrom([]string{"2026-03-29T00:30:00Z", "2026-10-25T00:30:00Z", "2026-04-23T21:30:00Z", "2026-10-29T20:30:00Z"}).Draw(t, "base")
	start, err := time.Parse(time.RFC3339, base)
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string, values ...string) *rapid.Generator[string] {
		return rapid.Map(rapid.SampledFrom(values), func(v string) string {
			if v == "" {
				return ""
			}
			return `,"` + name + `":` + v
		})
	}
	user := field("user", `1`, `2`, `3`, `"4"`, `18446744073709551615`, `null`, `""`, ``, `1`, `2`, `7`, `5.0`)
	amount := field("amount", `1`, `2.5`, `"0.25"`, `1e1`, `0`, `-0.0`, `92233720368547758.07`, ``, `null`, `1.005`, `-1`)
	device := field("device", `{"os":"17","id":"a"}`, `{"os":17}`, `{"id":12.0}`, `{"os":"__other__"}`, `{"os":"x"},"device":{"id":"b"}`, ``, `5`, `{"os":[]}`)
	platform := field("platform", `"ios"`, `"__other__"`, `"andr\u00f6id"`, `true`, `null`, ``, `"a"`, `"b"`, `"c"`)
	junk := rapid.SampledFrom([]string{``, `{`, `[]`, `{}`, `{"ts":5}`, `{"ts":"1999-12-31T23:59:59Z"}`})
	n := rapid.IntRange(1, 60).Draw(t, "n")
	var log []Record
	for offset := range int64(n) {
		offset *= rapid.SampledFrom([]int64{1, 1, 1, 2}).Draw(t, "gap")
		if len(log) > 0 {
			offset = max(offset, log[len(log)-1].Offset+1)
		}
		stamp := start.Add(time.Duration(rapid.IntRange(-60, 200).Draw(t, "hours")) * time.Hour / 2)
		rec := Record{Offset: offset, TimestampMs: stamp.UnixMilli()}
		if rapid.IntRange(0, 9).Draw(t, "junk?") == 0 {
			rec.Value = []byte(junk.Draw(t, "junk"))
		} else {
			at := stamp.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, -1, -30, 59, 61, -24 * 60}).Draw(t, "minutes")) * time.Minute)
			rec.Value = []byte(`{"ts":"` + at.Format(time.RFC3339Nano) + `"` +
				user.Draw(t, "user") + amount.Draw(t, "amount") + device.Draw(t, "device") + platform.Draw(t, "platform") + `}`)
		}
		log = append(log, rec)
	}
	return log
}

func drawProgram(t *rapid.T, zones map[string]*time.Location) (Config, *Program) {
	cfg := testConfig()
	cfg.TimeFormat = "rfc3339"
	cfg.Location = zones[rapid.SampledFrom(slices.Sorted(maps.Keys(zones))).Draw(t, "zone")]
	cfg.Lateness = time.Duration(rapid.SampledFrom([]int{0, 1, 24, 72}).Draw(t, "lateness")) * time.Hour
	cfg.MaxKeys = rapid.SampledFrom([]int{1, 2, 3, 100}).Draw(t, "max keys")
	p, err := New(cfg)
	require.NoError(t, err)
	return cfg, p
}

func testZones(t *testing.T) map[string]*time.Location {
	zones := map[string]*time.Location{}
	for _, name := range []string{"UTC", "Asia/Shanghai", "Europe/Berlin", "Africa/Cairo", "Asia/Kathmandu"} {
		zones[name] = zone(t, name)
	}
	return zones
}

func TestAgainstOracle(t *testing.T) {
	zones := testZones(t)
	for _, local := range []string{"UTC", "America/New_York"} { // the process's zone changes nothing
		was := time.Local
		time.Local = zone(t, local)
		rapid.Check(t, func(t *rapid.T) {
			cfg, p := drawProgram(t, zones)
			o, a, f := newOracle(cfg), p.NewAggregator(), newFakeTable(cfg.Measures)
			for _, rec := range drawLog(t) {
				now := rec.TimestampMs + rapid.Int64Range(-3, 3).Draw(t, "clock")*hourMs
				require.Equal(t, o.apply(rec, now), a.Apply(rec, now), string(rec.Value))
			}
			f.load(a.Seal())
			want := o.table()
			saturate(want)
			require.Equal(t, want, f.table())
		})
		time.Local = was
	}
}

// saturate cuts the oracle's exact sums to what a BIGINT holds.
func saturate(table map[string]string) {
	for key, row := range table {
		fields := strings.Fields(row)
		for i, field := range fields {
			name, number, _ := strings.Cut(field, "=")
			if n, ok := new(big.Int).SetString(number, 10); ok && !n.IsInt64() && name == "revenue" {
				fields[i] = "revenue=9223372036854775807"
			}
		}
		table[key] = strings.Join(fields, " ")
	}
}

// TestCutsChangeNothing seals, crashes and restores between any two records: the table ends as one uninterrupted run leaves it, however
// often old deltas are loaded again.
func TestCutsChangeNothing(t *testing.T) {
	zones := testZones(t)
	rapid.Check(t, func(t *rapid.T) {
		cfg, p := drawProgram(t, zones)
		log := drawLog(t)
		now := int64(1_900_000_000_000)
		whole, straight := newFakeTable(cfg.Measures), p.NewAggregator()
		for _, rec := range log {
			straight.Apply(rec, now)
		}
		whole.load(straight.Seal())

		table, a := newFakeTable(cfg.Measures), p.NewAggregator()
		var deltas []Delta
		seal := func() {
			d := a.Seal()
			for _, r := range d.Rows { // within a history totals only grow
				key := fmt.Sprintf("%s %q", r.Day, r.Dims)
				if have := table.rows[key]; have != nil {
					grown := merged(cfg.Measures, *have, r)
					for i := range grown.Cells {
						require.Equal(t, grown.Cells[i].Int, r.Cells[i].Int)
						require.Equal(t, grown.Cells[i].Null, r.Cells[i].Null)
					}
				}
			}
			deltas = append(deltas, d)
			table.load(d)
		}
		crashes := rapid.IntRange(0, 4).Draw(t, "crashes")
		for i := 0; i < len(log); {
			switch rapid.SampledFrom([]string{"apply", "apply", "apply", "seal", "crash", "zombie"}).Draw(t, "step") {
			case "apply":
				a.Apply(log[i], now)
				i++
			case "seal":
				seal()
			case "crash":
				if crashes == 0 {
					break
				}
				crashes--
				a = p.NewAggregator()
				require.NoError(t, a.Restore(table.state(p)))
				i = 0 // everything is delivered again; what is below the position is dropped
			case "zombie":
				if len(deltas) > 0 {
					table.load(deltas[rapid.IntRange(0, len(deltas)-1).Draw(t, "delta")])
				}
			}
		}
		seal()
		require.Equal(t, whole.table(), table.table())
		require.Equal(t, straight.Next(), a.Next())
	})
}

func FuzzApply(f *testing.F) {
	for _, doc := range []string{
		`{"ts":1789992000000,"platform":"ios","device":{"os":"17","id":"abc"},"user":7,"amount":1.5}`, `{"ts":"1789992000000.5","user":"18446744073709551615"}`,
		`{"ts":1e12,"amount":"1e-2"}`, `{"ts":946684800000,"amount":92233720368547758.07}`, `{}`, ``, `{"ts":null,"device":{"device":{}}}`, `{"ts":99999999999999999}`,
	} {
		f.Add([]byte(doc), noon, noon)
	}
	f.Fuzz(func(t *testing.T, doc []byte, stamp, now int64) {
		a := newTestAggregator(t, func(c *Config) { c.MaxKeys = 2 })
		for range 3 {
			res := a.Apply(Record{Offset: a.Next(), TimestampMs: stamp, Value: doc}, now)
			if res.Outcome == 0 || (res.Reason != "") != (res.Outcome == Bad) || res.Reason == ReasonPanic {
				t.Fatalf("%+v", res)
			}
		}
		d := a.Seal()
		for _, r := range d.Rows {
			if r.Day < 10957 || r.Day > 2932896 {
				t.Fatalf("day %s", r.Day)
			}
		}
		w, ok := a.Watermark()
		if err := a.Restore(State{Next: d.Next, WatermarkMs: w, HasWatermark: ok, Rows: d.Rows}); err != nil {
			t.Fatal(err)
		}
	})
}
