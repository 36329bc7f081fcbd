package bitmap

import (
	"encoding/binary"
	"math"
	"slices"
)

// The type byte of a BitmapValue (StarRocks: be/src/types/bitmap_value_detail.h).
const (
	codeEmpty        = 0
	codeSingle32     = 1
	codeBitmap32     = 2
	codeSingle64     = 3
	codeBitmap64     = 4
	codeSet          = 10
	codeBitmap32Seri = 12
	codeBitmap64Seri = 13
)

// Cookies and limits of the portable Roaring format (RoaringFormatSpec).
const (
	cookieNoRuns  = 12346
	cookieRuns    = 12347
	noOffsetBelow = 4 // with runs, fewer containers than this have no offset header
	maxContainers = 1 << 16
)

// AppendBinary appends the set as StarRocks' BitmapValue: code 0, 1 or 3 for no or one id, else 2 (all ids below 2^32) or 4, the
// Roaring part portable and run-optimised. The base64 of it is what base64_to_bitmap takes.
func (s Set) AppendBinary(dst []byte) []byte {
	if s.packed != nil {
		return append(dst, s.packed.enc...)
	}
	return appendIDs(dst, s.ids)
}

// EncodedSizeMax is an upper bound for the length of AppendBinary's result, found without encoding.
func (s Set) EncodedSizeMax() int {
	if s.packed != nil {
		return len(s.packed.enc)
	}
	n := len(s.ids)
	if n < 2 {
		return 9
	}
	first, last := s.ids[0], s.ids[n-1]
	groups := int(min(uint64(n), last>>32-first>>32+1))
	containers := int(min(uint64(n), last>>16-first>>16+1))
	// Per group: key, cookie, count, rounding of the run flags; per container: key, cardinality, offset, run flag; per id: 2 bytes.
	return 1 + binary.MaxVarintLen64 + groups*(4+8+1) + containers*8 + (containers+7)/8 + 2*n
}

func appendIDs(dst []byte, ids []uint64) []byte {
	switch len(ids) {
	case 0:
		return append(dst, codeEmpty)
	case 1:
		return appendSingle(dst, ids[0])
	}
	size := sizeOfIDs(ids)
	dst = size.appendCode(slices.Grow(dst, size.size()))
	var (
		w = writer{out: dst, bare: size.bare()}
		c container
	)
	for r := (idReader{ids: ids}); r.next(&c); {
		w.add(&c)
	}
	w.closeGroup()
	return w.out
}

func appendSingle(dst []byte, id uint64) []byte {
	if id <= math.MaxUint32 {
		return binary.LittleEndian.AppendUint32(append(dst, codeSingle32), uint32(id))
	}
	return binary.LittleEndian.AppendUint64(append(dst, codeSingle64), id)
}

// sizeOfIDs measures appendIDs' result for two ids or more.
func sizeOfIDs(ids []uint64) sizer {
	var s sizer
	for len(ids) > 0 {
		card, runs := leading(ids)
		k, size := bestKind(card, runs)
		s.add(ids[0]>>16, k, size)
		ids = ids[card:]
	}
	return s
}

// sizer adds up the exact size of an encoding of two ids or more. Its zero value is ready.
type sizer struct {
	groups     int
	high       uint32
	closed     int // bytes of the groups before the open one, keys included
	containers int // of the open group
	body       int // payload bytes of the open group
	runs       bool
}

func (s *sizer) add(key uint64, k kind, size int) {
	if high := uint32(key >> 16); s.groups == 0 || high != s.high {
		s.closed += s.group()
		s.groups, s.high, s.containers, s.body, s.runs = s.groups+1, high, 0, 0, false
	}
	s.containers++
	s.body += size
	s.runs = s.runs || k == kindRuns
}

func (s *sizer) group() int {
	if s.groups == 0 {
		return 0
	}
	return 4 + headerSize(s.containers, s.runs) + s.body
}

// bare says that all ids are below 2^32, so that the only group needs no key.
func (s *sizer) bare() bool { return s.groups == 1 && s.high == 0 }

func (s *sizer) size() int {
	if s.bare() {
		return 1 + s.group() - 4
	}
	return 1 + uvarintSize(uint64(s.groups)) + s.closed + s.group()
}

// appendCode appends what comes before the groups.
func (s *sizer) appendCode(dst []byte) []byte {
	if s.bare() {
		return append(dst, codeBitmap32)
	}
	return binary.AppendUvarint(append(dst, codeBitmap64), uint64(s.groups))
}

func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// headerSize is the length of a portable Roaring bitmap before its payloads.
func headerSize(containers int, runs bool) int {
	if !runs {
		return 8 + 8*containers
	}
	size := 4 + (containers+7)/8 + 4*containers
	if containers >= noOffsetBelow {
		size += 4 * containers
	}
	return size
}

// writer builds an encoding from containers in ascending order of key, each in its best form. Its zero value is ready.
type writer struct {
	n    int    // ids
	size sizer  // of everything added
	bare bool   // write no keys, for a single group
	out  []byte // finished groups
	// The open group: per container a descriptor, whether it is a run container, and its payload's length.
	descs []byte
	kinds []kind
	sizes []int
	body  []byte
}

func (w *writer) add(c *container) {
	if w.size.groups > 0 && uint32(c.key>>16) != w.size.high {
		w.closeGroup()
	}
	w.size.add(c.key, c.kind, len(c.data))
	w.n += c.card
	w.descs = binary.LittleEndian.AppendUint16(w.descs, uint16(c.key))
	w.descs = binary.LittleEndian.AppendUint16(w.descs, uint16(c.card-1))
	w.kinds = append(w.kinds, c.kind)
	w.sizes = append(w.sizes, len(c.data))
	w.body = append(w.body, c.data...)
}

// closeGroup writes the open group. It needs no call between groups, only after the last.
func (w *writer) closeGroup() {
	n, runs := len(w.kinds), w.size.runs
	if n == 0 {
		return
	}
	if !w.bare {
		w.out = binary.LittleEndian.AppendUint32(w.out, w.size.high)
	}
	if runs {
		w.out = binary.LittleEndian.AppendUint32(w.out, cookieRuns|uint32(n-1)<<16)
		flags := len(w.out)
		w.out = append(w.out, make([]byte, (n+7)/8)...)
		for i, k := range w.kinds {
			if k == kindRuns {
				w.out[flags+i/8] |= 1 << (i % 8)
			}
		}
	} else {
		w.out = binary.LittleEndian.AppendUint32(w.out, cookieNoRuns)
		w.out = binary.LittleEndian.AppendUint32(w.out, uint32(n))
	}
	w.out = append(w.out, w.descs...)
	if !runs || n >= noOffsetBelow {
		at := headerSize(n, runs)
		for _, size := range w.sizes {
			w.out = binary.LittleEndian.AppendUint32(w.out, uint32(at))
			at += size
		}
	}
	w.out = append(w.out, w.body...)
	w.descs, w.kinds, w.sizes, w.body = w.descs[:0], w.kinds[:0], w.sizes[:0], w.body[:0]
}

// set makes the Set of everything added.
func (w *writer) set() Set {
	w.closeGroup()
	size := w.size.size()
	if !worthPacking(w.n, size) {
		return Set{ids: w.ids()}
	}
	enc := w.size.appendCode(make([]byte, 0, size))
	if w.size.bare() {
		return Set{packed: &packed{n: w.n, enc: append(enc, w.out[4:]...)}}
	}
	return Set{packed: &packed{n: w.n, enc: append(enc, w.out...)}}
}

// ids expands everything added.
func (w *writer) ids() []uint64 {
	if w.n == 0 {
		return nil
	}
	ids := make([]uint64, 0, w.n)
	var c container
	for r := (reader{rest: w.out, groups: w.size.groups}); r.next(&c); {
		c.each(func(id uint64) bool {
			ids = append(ids, id)
			return true
		})
	}
	return ids
}
