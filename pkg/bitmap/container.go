package bitmap

import (
	"encoding/binary"
	"math/bits"
)

// The three kinds of Roaring containers (RoaringFormatSpec). Their payloads are kept exactly as they are serialised.
type kind uint8

const (
	kindArray kind = iota + 1 // card × uint16, ascending
	kindBits                  // 8192 bytes
	kindRuns                  // uint16 number of runs, then per run uint16 start and uint16 length−1
)

const (
	bitsBytes = 8192
	maxArray  = 4096 // the greatest cardinality of an array container
)

// container is a non-empty part of a set: the ids that share all but their lowest 16 bits.
type container struct {
	key  uint64 // id >> 16
	card int
	kind kind
	data []byte
}

// bestKind chooses as Roaring's runOptimize does, and gives the payload's size.
func bestKind(card, runs int) (kind, int) {
	size, k := bitsBytes, kindBits
	if card <= maxArray {
		size, k = 2*card, kindArray
	}
	if r := 2 + 4*runs; r < size {
		return kindRuns, r
	}
	return k, size
}

// each yields the ids in order and reports whether all were taken.
//
//nolint:gocognit // three layouts, one loop each
func (c *container) each(yield func(uint64) bool) bool {
	base := c.key << 16
	switch c.kind {
	case kindArray:
		for i := 0; i < len(c.data); i += 2 {
			if !yield(base | uint64(binary.LittleEndian.Uint16(c.data[i:]))) {
				return false
			}
		}
	case kindBits:
		for i := 0; i < bitsBytes; i += 8 {
			for w := binary.LittleEndian.Uint64(c.data[i:]); w != 0; w &= w - 1 {
				if !yield(base | uint64(i*8+bits.TrailingZeros64(w))) {
					return false
				}
			}
		}
	case kindRuns:
		for i := 2; i < len(c.data); i += 4 {
			first := base | uint64(binary.LittleEndian.Uint16(c.data[i:]))
			last := first + uint64(binary.LittleEndian.Uint16(c.data[i+2:]))
			for id := first; ; id++ {
				if !yield(id) {
					return false
				}
				if id == last {
					break
				}
			}
		}
	}
	return true
}

// merger holds the scratch space for unions and conversions of containers.
type merger struct {
	words [bitsBytes / 8]uint64
	buf   []byte
}

// union makes out the union of two containers of one key. out.data is valid until the merger's next use.
func (m *merger) union(out, a, b *container) {
	if a.kind == kindArray && b.kind == kindArray && m.unionArrays(out, a, b) {
		return
	}
	clear(m.words[:])
	m.or(a)
	m.or(b)
	m.build(out, a.key)
}

// unionArrays is the short way for sparse containers; it reports whether the union is an array again.
func (m *merger) unionArrays(out, a, b *container) bool {
	x, y, buf := a.data, b.data, m.buf[:0]
	runs, prev := 0, uint16(0)
	for len(x) > 0 || len(y) > 0 {
		var v uint16
		switch {
		case len(y) == 0:
			v = binary.LittleEndian.Uint16(x)
		case len(x) == 0:
			v = binary.LittleEndian.Uint16(y)
		default:
			v = min(binary.LittleEndian.Uint16(x), binary.LittleEndian.Uint16(y))
		}
		if len(x) > 0 && v == binary.LittleEndian.Uint16(x) {
			x = x[2:]
		}
		if len(y) > 0 && v == binary.LittleEndian.Uint16(y) {
			y = y[2:]
		}
		if len(buf) == 0 || v != prev+1 {
			runs++
		}
		buf, prev = binary.LittleEndian.AppendUint16(buf, v), v
	}
	m.buf = buf
	card := len(buf) / 2
	*out = container{key: a.key, card: card, kind: kindArray, data: buf}
	k, _ := bestKind(card, runs)
	return k == kindArray
}

// canonical makes out the best form of c, which must be valid but may have any kind.
func (m *merger) canonical(out, c *container) {
	clear(m.words[:])
	m.or(c)
	m.build(out, c.key)
}

func (m *merger) or(c *container) {
	switch c.kind {
	case kindArray:
		for i := 0; i < len(c.data); i += 2 {
			v := binary.LittleEndian.Uint16(c.data[i:])
			m.words[v>>6] |= 1 << (v & 63)
		}
	case kindBits:
		for i := range m.words {
			m.words[i] |= binary.LittleEndian.Uint64(c.data[i*8:])
		}
	case kindRuns:
		for i := 2; i < len(c.data); i += 4 {
			first := int(binary.LittleEndian.Uint16(c.data[i:]))
			m.fill(first, first+int(binary.LittleEndian.Uint16(c.data[i+2:])))
		}
	}
}

// fill sets the bits first…last.
func (m *merger) fill(first, last int) {
	lo, hi := first>>6, last>>6
	from, to := ^uint64(0)<<(first&63), ^uint64(0)>>(63-last&63)
	if lo == hi {
		m.words[lo] |= from & to
		return
	}
	m.words[lo] |= from
	for i := lo + 1; i < hi; i++ {
		m.words[i] = ^uint64(0)
	}
	m.words[hi] |= to
}

// build turns the words into the best container for them.
func (m *merger) build(out *container, key uint64) {
	card, runs, carry := 0, 0, uint64(0)
	for _, w := range &m.words {
		card += bits.OnesCount64(w)
		runs += bits.OnesCount64(w &^ (w<<1 | carry)) // bits that begin a run
		carry = w >> 63
	}
	k, _ := bestKind(card, runs)
	m.buf = m.buf[:0]
	switch k {
	case kindArray:
		for i, w := range &m.words {
			for ; w != 0; w &= w - 1 {
				m.buf = binary.LittleEndian.AppendUint16(m.buf, uint16(i*64+bits.TrailingZeros64(w)))
			}
		}
	case kindBits:
		for _, w := range &m.words {
			m.buf = binary.LittleEndian.AppendUint64(m.buf, w)
		}
	case kindRuns:
		m.buf = binary.LittleEndian.AppendUint16(m.buf, uint16(runs))
		for first := m.find(0, false); first < 1<<16; {
			end := m.find(first, true)
			m.buf = binary.LittleEndian.AppendUint16(m.buf, uint16(first))
			m.buf = binary.LittleEndian.AppendUint16(m.buf, uint16(end-1-first))
			first = m.find(end, false)
		}
	}
	*out = container{key: key, card: card, kind: k, data: m.buf}
}

// find returns the first bit from position i on that is set (or unset), or 1<<16.
func (m *merger) find(i int, unset bool) int {
	flip := uint64(0)
	if unset {
		flip = ^uint64(0)
	}
	for i < 1<<16 {
		if w := (m.words[i>>6] ^ flip) >> (i & 63); w != 0 {
			return i + bits.TrailingZeros64(w)
		}
		i = (i>>6 + 1) << 6
	}
	return i
}

// idReader makes containers of strictly ascending ids.
type idReader struct {
	ids []uint64
	buf []byte
}

// leading measures the first container of ids: how many ids and runs it has.
func leading(ids []uint64) (card, runs int) {
	key, prev := ids[0]>>16, ids[0]
	runs = 1
	for card = 1; card < len(ids); card++ {
		id := ids[card]
		if id>>16 != key {
			break
		}
		if id != prev+1 {
			runs++
		}
		prev = id
	}
	return card, runs
}

func (r *idReader) next(c *container) bool {
	if len(r.ids) == 0 {
		return false
	}
	card, runs := leading(r.ids)
	ids := r.ids[:card]
	r.ids = r.ids[card:]
	k, size := bestKind(card, runs)
	buf := r.buf[:0]
	switch k {
	case kindArray:
		for _, id := range ids {
			buf = binary.LittleEndian.AppendUint16(buf, uint16(id))
		}
	case kindBits:
		if cap(buf) < size {
			buf = make([]byte, 0, size)
		}
		buf = buf[:size]
		clear(buf)
		for _, id := range ids {
			buf[uint16(id)>>3] |= 1 << (id & 7)
		}
	case kindRuns:
		buf = binary.LittleEndian.AppendUint16(buf, uint16(runs))
		for first := 0; first < card; {
			last := first
			for last+1 < card && ids[last+1] == ids[last]+1 {
				last++
			}
			buf = binary.LittleEndian.AppendUint16(buf, uint16(ids[first]))
			buf = binary.LittleEndian.AppendUint16(buf, uint16(last-first))
			first = last + 1
		}
	}
	r.buf = buf
	*c = container{key: ids[0] >> 16, card: card, kind: k, data: buf}
	return true
}
