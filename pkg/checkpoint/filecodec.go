package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"rollcall/pkg/aggregate"
)

// A checkpoint file is
//
//	"RCKP" | version, 2 bytes | its complement, 2 bytes | payload | CRC-32C of everything before, 4 bytes
//
// all big endian. The complement tells a later version from damage. Strings are a uvarint length and bytes. The payload of version 1:
//
//	source, target | next uvarint | watermark varint | greatest day of the rows that carry next varint
//	number of dimensions, of measures uvarint | kind of each measure, 1 byte | number of rows uvarint
//	row: day varint | dimensions | for each measure but sets: 1 if null, else 0 and the value varint | last event varint
const (
	fileMagic   = "RCKP"
	fileVersion = 1
	fileHeader  = len(fileMagic) + 4
	fileTrailer = 4
	// maxColumns bounds dimensions and measures, each: sets take no bytes of a row.
	maxColumns = 1 << 10
)

// image is the content of a checkpoint file: the totals of one history at one cut.
type image struct {
	progress Progress
	target   string
	dims     int
	kinds    []aggregate.Kind
	rows     []aggregate.Row
}

var errDamaged = errors.New("damaged")

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// encode writes the image. Every row must have the image's numbers of dimensions and cells.
func (m *image) encode() []byte {
	b := append(make([]byte, 0, 256+64*len(m.rows)), fileMagic...)
	version := uint16(fileVersion)
	b = binary.BigEndian.AppendUint16(b, version)
	b = binary.BigEndian.AppendUint16(b, ^version)
	b = appendText(b, m.progress.History.String())
	b = appendText(b, m.target)
	b = binary.AppendUvarint(b, uint64(m.progress.Next))
	b = binary.AppendVarint(b, m.progress.WatermarkMs)
	b = binary.AppendVarint(b, int64(m.progress.MaxDay))
	b = binary.AppendUvarint(b, uint64(m.dims))
	b = binary.AppendUvarint(b, uint64(len(m.kinds)))
	for _, k := range m.kinds {
		b = append(b, byte(k))
	}
	b = binary.AppendUvarint(b, uint64(len(m.rows)))
	for i := range m.rows {
		r := &m.rows[i]
		b = binary.AppendVarint(b, int64(r.Day))
		for _, d := range r.Dims {
			b = appendText(b, d)
		}
		for j, c := range r.Cells {
			switch {
			case m.kinds[j].IsSet():
			case c.Null:
				b = append(b, 1)
			default:
				b = binary.AppendVarint(append(b, 0), c.Int)
			}
		}
		b = binary.AppendVarint(b, r.LastEventMs)
	}
	return binary.BigEndian.AppendUint32(b, castagnoli(b))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeImage reads what encode wrote. The error is a *NewerFormatError (named where) or says what is damaged; it never panics, and
// memory stays in proportion to the input.
func decodeImage(where string, b []byte) (*image, error) {
	if len(b) < fileHeader+fileTrailer || string(b[:len(fileMagic)]) != fileMagic {
		return nil, fmt.Errorf("%w: not a checkpoint file", errDamaged)
	}
	version := binary.BigEndian.Uint16(b[len(fileMagic):])
	if ^version != binary.BigEndian.Uint16(b[len(fileMagic)+2:]) || version == 0 {
		return nil, fmt.Errorf("%w: header", errDamaged)
	}
	if version > fileVersion {
		return nil, &NewerFormatError{Where: where, Got: int(version), Known: fileVersion}
	}
	body := b[:len(b)-fileTrailer]
	if castagnoli(body) != binary.BigEndian.Uint32(b[len(body):]) {
		return nil, fmt.Errorf("%w: checksum", errDamaged)
	}
	r := reader{b: body[fileHeader:]}
	m := r.image()
	if r.bad || len(r.b) > 0 {
		return nil, fmt.Errorf("%w: content", errDamaged)
	}
	return m, nil
}

// reader takes a payload apart; bad is set by the first thing that does not fit, and everything is zero from then on.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() {
	r.bad, r.b = true, nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// count reads a number of things of at least size bytes each.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

// few reads a number of columns.
func (r *reader) few() int {
	n := r.uvarint()
	if n > maxColumns {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) text() string {
	n := r.count(1)
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) day() aggregate.Day {
	v := r.varint()
	if v != int64(int32(v)) {
		r.fail()
	}
	return aggregate.Day(v)
}

func (r *reader) image() *image {
	h, err := ParseHistory(r.text())
	if err != nil {
		r.fail()
	}
	m := &image{target: r.text()}
	next := r.uvarint()
	m.progress = Progress{History: h, Next: int64(next), WatermarkMs: r.varint(), MaxDay: r.day()}
	if m.progress.Next <= 0 {
		r.fail()
	}
	m.dims = r.few()
	m.kinds = make([]aggregate.Kind, r.few())
	ints := 0
	for i := range m.kinds {
		m.kinds[i] = aggregate.Kind(r.byte())
		if !m.kinds[i].IsSet() {
			ints++
		}
	}
	m.rows = make([]aggregate.Row, r.count(2+m.dims+ints))
	for i := range m.rows {
		if r.bad {
			return m
		}
		m.rows[i] = r.row(m)
	}
	return m
}

func (r *reader) row(m *image) aggregate.Row {
	row := aggregate.Row{Day: r.day(), Dims: make([]string, m.dims), Cells: make([]aggregate.Cell, len(m.kinds))}
	for i := range row.Dims {
		row.Dims[i] = r.text()
	}
	for i, k := range m.kinds {
		if k.IsSet() {
			continue
		}
		switch r.byte() {
		case 0:
			row.Cells[i].Int = r.varint()
		case 1:
			row.Cells[i].Null = true
		default:
			r.fail()
		}
	}
	row.LastEventMs = r.varint()
	return row
}
