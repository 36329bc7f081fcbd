package checkpoint

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"rollcall/pkg/aggregate"
)

// filtered: the second program leaves records out.
func filtered(rec mrec, prog int) bool { return prog == 1 && rec.id%4 == 0 }

// counter is the aggregator in small: watermark, totals, known keys.
type counter struct {
	w      int
	totals map[mcell]int
	known  map[mcell]bool
	keys   map[int]int // known keys by day
}

func newCounter() *counter {
	return &counter{w: -1, totals: map[mcell]int{}, known: map[mcell]bool{}, keys: map[int]int{}}
}

func (c *counter) know(k mcell) {
	if k.key != modelFold && !c.known[k] {
		c.known[k] = true
		c.keys[k.day]++
	}
}

// apply counts one record; ok says that it changed a total.
func (c *counter) apply(rec mrec, prog int) (cell mcell, ok bool) {
	if rec.kind != 0 || filtered(rec, prog) || c.w >= 0 && rec.time < c.w-modelLate {
		return mcell{}, false
	}
	c.w = max(c.w, rec.time)
	cell = mcell{rec.time / modelDay, rec.key}
	if !c.known[cell] {
		if c.keys[cell.day] >= modelKeys {
			cell.key = modelFold
		} else {
			c.know(cell)
		}
	}
	c.totals[cell]++
	return cell, true
}

// firstDay is the first day that can still change at watermark w.
func firstDay(w int) int { return max(0, w-modelLate) / modelDay }

// mcount is a worker's aggregator.
type mcount interface {
	// apply counts the record at offset o.
	apply(rec mrec, o int)
	// seal hands over what changed since the last seal, as rows of src that carry next.
	seal(src msrc, next int) mrows
	// dirty says that there is something to seal.
	dirty() bool
	// restore starts from rows of src on or after day first and a watermark, to go on at offset next.
	restore(src msrc, rows mrows, first, watermark, next int)
}

// smallCount is the counter as a worker uses it, with rules that can be switched off.
type smallCount struct {
	*counter
	off   map[string]bool
	prog  int
	delta map[mcell]bool
	ids   map[mcell]uint64
}

func newSmallCount(off map[string]bool, prog int) *smallCount {
	return &smallCount{newCounter(), off, prog, map[mcell]bool{}, map[mcell]uint64{}}
}

func (c *smallCount) apply(rec mrec, _ int) {
	if cell, ok := c.counter.apply(rec, c.prog); ok {
		c.delta[cell] = true
		c.ids[cell] |= 1 << uint(rec.user)
	}
	// Rule 5: a day leaves memory when it can't change any more.
	maps.DeleteFunc(c.totals, func(cell mcell, _ int) bool { return cell.day < firstDay(c.w) && !c.delta[cell] })
}

func (c *smallCount) dirty() bool { return len(c.delta) > 0 }

func (c *smallCount) seal(src msrc, next int) mrows {
	rows := mrows{}
	for cell := range c.delta {
		// A row's last event is at most the watermark and in its day; the greatest of all rows is W.
		rows[mkey{src, cell}] = mrow{c.totals[cell], next, min(c.w, cell.day*modelDay+modelDay-1), c.ids[cell]}
	}
	c.delta, c.ids = map[mcell]bool{}, map[mcell]uint64{}
	return rows
}

func (c *smallCount) restore(src msrc, rows mrows, first, watermark, _ int) {
	for k, r := range rows {
		if k.msrc != src || k.day < first || r.next == 0 {
			continue
		}
		if !c.off["rule3"] {
			c.totals[k.mcell] = r.total
		}
		if !c.off["rule7"] {
			c.know(k.mcell)
		}
	}
	if !c.off["rule4"] {
		c.w = watermark
	}
}

// realCount is pkg/aggregate on JSON records; a unit of the model's time is three hours.
type realCount struct {
	agg *aggregate.Aggregator
}

const (
	realUnit = int64(24 / modelDay * 3_600_000)
	realDay  = 18_262 // 2020-01-01
)

func realTime(units int) int64 { return realDay*86_400_000 + int64(units)*realUnit }

func realProgram() *aggregate.Program {
	p, err := aggregate.New(aggregate.Config{
		TimeField: "t", TimeFormat: "unix_ms", Location: time.UTC, Lateness: time.Duration(modelLate*realUnit) * time.Millisecond,
		FutureSkew: time.Hour, MaxKeys: modelKeys, Dimensions: []aggregate.Dimension{{Name: "k", Path: "k"}},
		Measures: []aggregate.Measure{{Name: "uv", Kind: aggregate.Distinct, Field: "u"}, {Name: "pv", Kind: aggregate.Count}},
	})
	if err != nil {
		panic(err)
	}
	return p
}

func (c *realCount) apply(rec mrec, o int) {
	t, value := realTime(rec.time), ""
	switch rec.kind {
	case 0:
		value = fmt.Sprintf(`{"t":%d,"k":"%d","u":%d}`, t, rec.key, rec.user)
	case 1:
		value = `{"t":`
	default:
		value = fmt.Sprintf(`{"t":%d,"k":"%d","u":%d}`, t+100*realUnit, rec.key, rec.user)
	}
	c.agg.Apply(aggregate.Record{Offset: int64(o), TimestampMs: t, Value: []byte(value)}, realTime(1e6))
}

// dirty: a seal of nothing is cheap and says so.
func (c *realCount) dirty() bool { return c.agg.DeltaBytes() > 0 }

func (c *realCount) seal(src msrc, next int) mrows {
	d := c.agg.Seal()
	if d.Next != int64(next) {
		panic(fmt.Sprintf("sealed up to %d, read up to %d", d.Next, next))
	}
	rows := mrows{}
	for _, r := range d.Rows {
		key := modelFold
		if r.Dims[0] != aggregate.FoldedKey {
			key, _ = strconv.Atoi(r.Dims[0])
		}
		var ids uint64
		for id := range r.Cells[0].Set.All() {
			ids |= 1 << id
		}
		rows[mkey{src, mcell{int(r.Day) - realDay, key}}] = mrow{int(r.Cells[1].Int), next, int((r.LastEventMs - realTime(0)) / realUnit), ids}
	}
	return rows
}

func (c *realCount) restore(src msrc, rows mrows, first, watermark, next int) {
	st := aggregate.State{Next: int64(next), WatermarkMs: realTime(watermark), HasWatermark: watermark >= 0}
	for k, r := range rows {
		if k.msrc != src || k.day < first || r.next == 0 {
			continue
		}
		key := strconv.Itoa(k.key)
		if k.key == modelFold {
			key = aggregate.FoldedKey
		}
		st.Rows = append(st.Rows, aggregate.Row{
			Day: aggregate.Day(k.day + realDay), Dims: []string{key}, Cells: []aggregate.Cell{{}, {Int: int64(r.total)}}, LastEventMs: realTime(r.w),
		})
	}
	if err := c.agg.Restore(st); err != nil {
		panic(err)
	}
}
