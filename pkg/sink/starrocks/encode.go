package starrocks

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
	"rollcall/pkg/sink"
)

// maxRawBitmap is the greatest bitmap that fits a temporary VARCHAR column as base64: 1,048,576 bytes in StarRocks 2.1 to 4.1
// (be/src/formats/json/binary_column.cpp).
const maxRawBitmap = 786_432

// emptyBitmap is the base64 of an empty BITMAP (type byte 0): the column is NOT NULL.
const emptyBitmap = "AA=="

// layout is the fixed text of a row and of the columns header. Immutable after newLayout.
type layout struct {
	measures []aggregate.Measure
	// columns is the columns header: source columns, then destination = expression.
	columns string
	// Text that stands before each value of a row.
	day, source, next, last string
	dims, cells             []string
}

// newLayout expects checked names.
func newLayout(dims []aggregate.Dimension, measures []aggregate.Measure) layout {
	l := layout{measures: measures, day: `{"` + columnDay + `":"`}
	taken := map[string]bool{columnDay: true, columnSource: true, columnNext: true, columnLastEvent: true}
	for _, d := range dims {
		taken[strings.ToLower(d.Name)] = true
	}
	for _, m := range measures {
		taken[strings.ToLower(m.Name)] = true
	}
	names := []string{quote(columnDay)}
	var derived []string
	for _, d := range dims {
		names = append(names, quote(d.Name))
		l.dims = append(l.dims, ","+jsonString(d.Name)+`:`)
	}
	names = append(names, quote(columnSource))
	l.source = `,"` + columnSource + `":`
	for _, m := range measures {
		name := m.Name
		if m.Kind.IsSet() {
			// The temporary name must not be a column of the table (StarRocks: STREAM_LOAD.md, columns).
			for name = "tmp_" + name; taken[strings.ToLower(name)]; {
				name = "tmp_" + name
			}
			taken[strings.ToLower(name)] = true
			derived = append(derived, quote(m.Name)+"=base64_to_bitmap("+quote(name)+")")
		}
		names = append(names, quote(name))
		l.cells = append(l.cells, ","+jsonString(name)+`:`)
	}
	names = append(names, quote(columnNext), quote(columnLastEvent))
	l.next = `,"` + columnNext + `":`
	l.last = `,"` + columnLastEvent + `":`
	l.columns = strings.Join(append(names, derived...), ",")
	return l
}

// Encode turns parts into one JSON array. A bitmap that is too big for one cell becomes several rows of one key, which all carry the
// row's totals and next offset (both merge to themselves). Errors are permanent and name the row. Safe for concurrent use.
func (c *Client) Encode(parts []sink.Part) (sink.Body, error) {
	body, err := c.layout.encode(parts)
	if err != nil {
		return sink.Body{}, err
	}
	return c.packer.pack(body, time.Now())
}

func (l *layout) encode(parts []sink.Part) (sink.Body, error) {
	e := encoder{layout: l, more: make([][]bitmap.Set, len(l.measures))}
	e.dst = append(make([]byte, 0, l.estimate(parts)), '[')
	for p := range parts {
		part := &parts[p]
		for r := range part.Rows {
			row := &part.Rows[r]
			if len(row.Dims) != len(l.dims) || len(row.Cells) != len(l.measures) {
				return sink.Body{}, fmt.Errorf("encode row %d of %s, day %s: %d dimensions and %d cells, want %d and %d",
					r, part.Source, row.Day, len(row.Dims), len(row.Cells), len(l.dims), len(l.measures))
			}
			e.row(part, row)
		}
	}
	if e.rows == 0 {
		// StarRocks refuses a load without rows (fe DatabaseTransactionMgr, empty_load_as_error).
		return sink.Body{}, errors.New("encode: no rows")
	}
	e.dst = append(e.dst, ']')
	return sink.Body{Data: e.dst, Size: len(e.dst), Rows: e.rows}, nil
}

// estimate is near the body's size, so that it is allocated once for ordinary rows.
func (l *layout) estimate(parts []sink.Part) int {
	n := 2
	fixed := len(l.day) + len(l.source) + len(l.next) + len(l.last) + 64
	for _, s := range l.dims {
		fixed += len(s)
	}
	for _, s := range l.cells {
		fixed += len(s) + 20
	}
	for p := range parts {
		for r := range parts[p].Rows {
			row := &parts[p].Rows[r]
			n += fixed + len(parts[p].Source)
			for _, d := range row.Dims {
				n += len(d) + 2
			}
			for c := range min(len(row.Cells), len(l.measures)) {
				if l.measures[c].Kind.IsSet() {
					n += base64.StdEncoding.EncodedLen(row.Cells[c].Set.EncodedSizeMax())
				}
			}
		}
	}
	return n
}

// encoder builds one body; scratch and more are reused between rows.
type encoder struct {
	*layout
	dst     []byte
	rows    int
	scratch []byte
	// more holds, per measure, the pieces of an oversized set that further rows carry.
	more    [][]bitmap.Set
	day     aggregate.Day
	dayText string
}

func (e *encoder) row(part *sink.Part, row *aggregate.Row) {
	next, last := part.Next, row.LastEventMs
	if part.Ahead {
		next, last = 0, 0
	}
	if e.dayText == "" || e.day != row.Day {
		e.day, e.dayText = row.Day, row.Day.String()
	}
	for piece, pieces := 0, 1; piece < pieces; piece++ {
		if e.rows > 0 {
			e.dst = append(e.dst, ',')
		}
		e.rows++
		e.dst = append(append(append(e.dst, e.layout.day...), e.dayText...), '"')
		for i, d := range row.Dims {
			e.dst = appendJSON(append(e.dst, e.dims[i]...), d)
		}
		e.dst = appendJSON(append(e.dst, e.source...), part.Source)
		for i := range row.Cells {
			e.dst = append(e.dst, e.cells[i]...)
			if !e.measures[i].Kind.IsSet() {
				e.number(e.measures[i].Kind, &row.Cells[i], part.Ahead)
				continue
			}
			if piece == 0 {
				e.firstPiece(i, row.Cells[i].Set)
				pieces = max(pieces, 1+len(e.more[i]))
			} else {
				e.laterPiece(i, piece-1)
			}
		}
		e.dst = strconv.AppendInt(append(e.dst, e.next...), next, 10)
		e.dst = append(strconv.AppendInt(append(e.dst, e.last...), last, 10), '}')
	}
}

func (e *encoder) number(kind aggregate.Kind, cell *aggregate.Cell, ahead bool) {
	extreme := kind == aggregate.Min || kind == aggregate.Max
	switch {
	case extreme && (ahead || cell.Null):
		e.dst = append(e.dst, "null"...)
	case ahead:
		e.dst = append(e.dst, '0')
	default:
		e.dst = strconv.AppendInt(e.dst, cell.Int, 10)
	}
}

func (e *encoder) firstPiece(i int, set bitmap.Set) {
	e.more[i] = e.more[i][:0]
	e.scratch = set.AppendBinary(e.scratch[:0])
	if len(e.scratch) > maxRawBitmap {
		pieces := set.Split(maxRawBitmap)
		e.more[i] = append(e.more[i], pieces[1:]...)
		e.scratch = pieces[0].AppendBinary(e.scratch[:0])
	}
	e.base64()
}

func (e *encoder) laterPiece(i, k int) {
	if k >= len(e.more[i]) {
		e.dst = append(e.dst, `"`+emptyBitmap+`"`...)
		return
	}
	e.scratch = e.more[i][k].AppendBinary(e.scratch[:0])
	e.base64()
}

func (e *encoder) base64() {
	e.dst = base64.StdEncoding.AppendEncode(append(e.dst, '"'), e.scratch)
	e.dst = append(e.dst, '"')
}

func jsonString(s string) string { return string(appendJSON(nil, s)) }

// appendJSON appends s as a JSON string. Invalid UTF-8 becomes U+FFFD, which is what every reader would make of it; dimensions are
// cleaned before, so this is only the last guard of a well-formed body.
func appendJSON(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= ' ' && b != '"' && b != '\\' && b < utf8.RuneSelf {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size != 1 {
				i += size
				continue
			}
			dst = append(append(dst, s[start:i]...), "\ufffd"...)
			i++
			start = i
			continue
		}
		dst = append(dst, s[start:i]...)
		if b < ' ' {
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&0xf])
		} else {
			dst = append(dst, '\\', b)
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
