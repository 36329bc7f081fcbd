package bitmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// ErrMalformed is wrapped by every error of Decode.
var ErrMalformed = errors.New("malformed bitmap value")

// Decode reads any BitmapValue StarRocks writes or accepts (codes 0, 1, 2, 3, 4, 10, 12, 13), with all bounds checked; memory stays
// within a small factor of the input's length. As on the server, bytes after the value are ignored, sub-bitmaps may come in any
// order and of two with one key the first counts.
func Decode(data []byte) (Set, error) {
	d := decoder{rest: data}
	code := d.uint8()
	var s Set
	switch code {
	case codeEmpty:
	case codeSingle32:
		s = FromSorted([]uint64{uint64(d.uint32())})
	case codeSingle64:
		s = FromSorted([]uint64{d.uint64()})
	case codeSet:
		s = d.plainSet()
	case codeBitmap32, codeBitmap32Seri:
		s = d.groups(1, true, code == codeBitmap32Seri)
	case codeBitmap64, codeBitmap64Seri:
		s = d.groups(d.uvarint(), false, code == codeBitmap64Seri)
	default:
		d.fail("unknown code %d", code)
	}
	if d.err != nil {
		return Set{}, d.err
	}
	return s, nil
}

// decoder reads forward and remembers the first error, after which everything reads as zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	d.rest = nil
}

// take returns the next n bytes, or nil after an error.
func (d *decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n < 0 || n > len(d.rest) {
		d.fail("%d more bytes expected, %d left", n, len(d.rest))
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uint8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail("bad varint")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// plainSet reads code 10: a count and ids in any order.
func (d *decoder) plainSet() Set {
	n := d.uint32()
	b := d.take(int(n) * 8)
	ids := make([]uint64, 0, len(b)/8)
	for ; len(b) > 0; b = b[8:] {
		ids = append(ids, binary.LittleEndian.Uint64(b))
	}
	return FromSorted(slices.Clip(slices.Compact(sorted(ids))))
}

// group is one decoded sub-bitmap: containers in ascending order with their payloads still in the input.
type group struct {
	high       uint32
	containers []container
}

// groups reads n sub-bitmaps, bare (without a key) or not, in the portable form or CRoaring's own.
func (d *decoder) groups(n uint64, bare, native bool) Set {
	var gs []group
	for range n {
		var g group
		if !bare {
			g.high = d.uint32()
		}
		g.containers = d.roaring(g.high, native)
		if d.err != nil { // also ends a loop over a count that is a lie
			return Set{}
		}
		if len(g.containers) > 0 {
			gs = append(gs, g)
		}
	}
	slices.SortStableFunc(gs, func(a, b group) int { return int(int64(a.high) - int64(b.high)) })
	gs = slices.CompactFunc(gs, func(a, b group) bool { return a.high == b.high })
	var (
		w    writer
		m    merger
		best container
	)
	for _, g := range gs {
		for i := range g.containers {
			m.canonical(&best, &g.containers[i])
			w.add(&best)
		}
	}
	if w.n == 0 {
		return Set{}
	}
	return w.set()
}

// roaring reads one 32-bit bitmap.
func (d *decoder) roaring(high uint32, native bool) []container {
	if native {
		switch marker := d.uint8(); marker {
		case 1:
			return d.nativeArray(high)
		case 2:
		default:
			d.fail("unknown marker %d", marker)
			return nil
		}
	}
	return d.portable(high)
}

// nativeArray reads CRoaring's plain form: a count and values.
func (d *decoder) nativeArray(high uint32) []container {
	n := d.uint32()
	b := d.take(int(n) * 4)
	ids := make([]uint64, 0, len(b)/4)
	for ; len(b) > 0; b = b[4:] {
		ids = append(ids, uint64(high)<<32|uint64(binary.LittleEndian.Uint32(b)))
	}
	var (
		out []container
		c   container
	)
	for r := (idReader{ids: slices.Compact(sorted(ids))}); r.next(&c); r.buf = nil {
		out = append(out, c)
	}
	return out
}

// portable reads the portable Roaring format. Containers are taken one after the other, as CRoaring does; offsets are not needed.
func (d *decoder) portable(high uint32) []container {
	var (
		cookie  = d.uint32()
		n       int
		flags   []byte
		offsets = true
	)
	switch {
	case cookie&0xffff == cookieRuns:
		n = int(cookie>>16) + 1
		flags = d.take((n + 7) / 8)
		offsets = n >= noOffsetBelow
	case cookie == cookieNoRuns:
		n = int(d.uint32())
		if n < 0 || n > maxContainers {
			d.fail("%d containers", n)
			return nil
		}
	default:
		d.fail("unknown cookie %d", cookie)
		return nil
	}
	descs := d.take(4 * n)
	if offsets {
		d.take(4 * n)
	}
	if d.err != nil {
		return nil
	}
	out := make([]container, 0, n)
	for i := range n {
		key := binary.LittleEndian.Uint16(descs[4*i:])
		c := container{key: uint64(high)<<16 | uint64(key), card: int(binary.LittleEndian.Uint16(descs[4*i+2:])) + 1}
		if i > 0 && c.key <= out[i-1].key {
			d.fail("container keys are not ascending")
			return nil
		}
		d.payload(&c, flags != nil && flags[i/8]>>(i%8)&1 == 1)
		if d.err != nil {
			return nil
		}
		out = append(out, c)
	}
	return out
}

// payload reads and checks one container's payload.
func (d *decoder) payload(c *container, runs bool) {
	card := 0
	switch {
	case runs:
		c.kind = kindRuns
		if len(d.rest) < 2 {
			d.fail("no number of runs")
			return
		}
		c.data = d.take(2 + 4*int(binary.LittleEndian.Uint16(d.rest)))
		end := -1 // last value of the run before
		for i := 2; i < len(c.data); i += 4 {
			first := int(binary.LittleEndian.Uint16(c.data[i:]))
			more := int(binary.LittleEndian.Uint16(c.data[i+2:]))
			if first <= end || first+more > 0xffff {
				d.fail("runs are not ascending")
				return
			}
			end = first + more
			card += more + 1
		}
	case c.card <= maxArray:
		c.kind = kindArray
		c.data = d.take(2 * c.card)
		prev := -1
		for i := 0; i < len(c.data); i += 2 {
			v := int(binary.LittleEndian.Uint16(c.data[i:]))
			if v <= prev {
				d.fail("array is not ascending")
				return
			}
			prev = v
			card++
		}
	default:
		c.kind = kindBits
		c.data = d.take(bitsBytes)
		for i := 0; i < len(c.data); i += 8 {
			card += bits.OnesCount64(binary.LittleEndian.Uint64(c.data[i:]))
		}
	}
	if d.err == nil && card != c.card {
		d.fail("container says %d values and has %d", c.card, card)
	}
}
