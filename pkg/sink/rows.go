package sink

import (
	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
)

// Encoded sizes are estimated; what they are off by is learnt from every encoded body (pace.ratio), and the body's own length decides.
const (
	sizePerRow  = 80 // braces, day, source, next offset, last event
	sizePerCell = 24 // an integer with its column or separator
	memPerRow   = 96
	memPerCell  = 48
)

// rowSize estimates the encoded length of a row.
func rowSize(r *aggregate.Row) int64 {
	n := int64(sizePerRow)
	for _, d := range r.Dims {
		n += int64(len(d)) + 4
	}
	for i := range r.Cells {
		n += sizePerCell + setSize(r.Cells[i].Set)
	}
	return n
}

// setSize is the length of a set in base64.
func setSize(s bitmap.Set) int64 {
	if s.Len() == 0 {
		return 0
	}
	return int64(s.EncodedSizeMax())*4/3 + 4
}

func rowsSize(rows []aggregate.Row) int64 {
	n := int64(0)
	for i := range rows {
		n += rowSize(&rows[i])
	}
	return n
}

// rowMemory estimates the memory of a row that merged into a batch.
func rowMemory(r *aggregate.Row) int64 {
	n := int64(memPerRow)
	for _, d := range r.Dims {
		n += int64(len(d)) + 16
	}
	for i := range r.Cells {
		n += memPerCell + r.Cells[i].Set.Bytes()
	}
	return n
}

func scaled(size int64, ratio float64) int64 { return int64(float64(size) * ratio) }

// splitAhead takes ids out of an item's rows until what is left is below limit bytes and below half of what it was, and returns them as parts of
// about limit bytes each that may be loaded before the rows: totals neutral, next offset 0 (DESIGN §1 rule 1). All sizes are
// estimates. It returns nil when there is nothing to take.
func splitAhead(it *item, measures []aggregate.Measure, limit int64) []Part {
	left := rowsSize(it.rows)
	room := min(limit*9/10, left/2)
	b := aheadBuilder{source: it.lane.source, measures: measures, limit: limit * 9 / 10}
	for r := range it.rows {
		row := &it.rows[r]
		for c := range row.Cells {
			if left <= room {
				break
			}
			set := row.Cells[c].Set
			if set.Len() == 0 {
				continue
			}
			left -= setSize(set)
			row.Cells[c].Set = bitmap.Set{}
			b.add(row, c, set)
		}
	}
	return b.finish()
}

// aheadBuilder collects bitmap-only rows into parts.
type aheadBuilder struct {
	source   string
	measures []aggregate.Measure
	limit    int64
	rows     []aggregate.Row
	size     int64
	parts    []Part
}

// add puts one cell of a row in, cut into several rows if it is longer than a part.
func (b *aheadBuilder) add(row *aggregate.Row, cell int, set bitmap.Set) {
	perRow := int(max(64, (b.limit-b.neutralSize(row))*3/4))
	for _, piece := range set.Split(perRow) {
		r := neutralRow(row, b.measures)
		r.Cells[cell].Set = piece
		size := rowSize(&r)
		if len(b.rows) > 0 && b.size+size > b.limit {
			b.cut()
		}
		b.rows = append(b.rows, r)
		b.size += size
	}
}

func (b *aheadBuilder) neutralSize(row *aggregate.Row) int64 {
	r := aggregate.Row{Dims: row.Dims, Cells: make([]aggregate.Cell, len(row.Cells))}
	return rowSize(&r)
}

func (b *aheadBuilder) cut() {
	b.parts = append(b.parts, Part{Source: b.source, Ahead: true, Rows: b.rows})
	b.rows, b.size = nil, 0
}

func (b *aheadBuilder) finish() []Part {
	if len(b.rows) > 0 {
		b.cut()
	}
	return b.parts
}

// neutralRow is a row of the same key that changes nothing in the table but by the sets put into it: 0 for count and sum, NULL for min and max.
func neutralRow(row *aggregate.Row, measures []aggregate.Measure) aggregate.Row {
	r := aggregate.Row{Day: row.Day, Dims: row.Dims, Cells: make([]aggregate.Cell, len(row.Cells))}
	for i, m := range measures {
		r.Cells[i].Null = m.Kind == aggregate.Min || m.Kind == aggregate.Max
	}
	return r
}

// splitPart cuts a bitmap-only part that turned out too big into several of about limit bytes; one part means that it cannot be cut.
func splitPart(p Part, measures []aggregate.Measure, limit int64) []Part {
	b := aheadBuilder{source: p.Source, measures: measures, limit: limit * 9 / 10}
	for r := range p.Rows {
		for c := range p.Rows[r].Cells {
			if set := p.Rows[r].Cells[c].Set; set.Len() > 0 {
				b.add(&p.Rows[r], c, set)
			}
		}
	}
	return b.finish()
}
