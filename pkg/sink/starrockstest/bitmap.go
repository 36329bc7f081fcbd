package starrockstest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
)

// Type bytes of a serialized BitmapValue. StarRocks: be/src/types/bitmap_value_detail.h.
const (
	bitmapEmpty       = 0
	bitmapSingle32    = 1
	bitmapRoaring32   = 2
	bitmapSingle64    = 3
	bitmapRoaring64   = 4
	bitmapSet         = 10
	bitmapRoaring32V2 = 12
	bitmapRoaring64V2 = 13
)

// First byte of a CRoaring native (non-portable) serialization.
const (
	croaringArray     = 1
	croaringContainer = 2
)

var errBitmap = errors.New("malformed bitmap")

// bitmap is a set of 64-bit ids: one 32-bit roaring bitmap per high word. A map rather than a sorted list, so that
// hashed ids (one high word each) stay linear.
type bitmap struct {
	high map[uint32]*roaring.Bitmap
}

func newBitmap(ids ...uint64) *bitmap {
	b := &bitmap{high: map[uint32]*roaring.Bitmap{}}
	for _, id := range ids {
		b.add(id)
	}
	return b
}

func (b *bitmap) add(id uint64) {
	h := uint32(id >> 32)
	low, ok := b.high[h]
	if !ok {
		low = roaring.New()
		b.high[h] = low
	}
	low.Add(uint32(id))
}

func (b *bitmap) clone() *bitmap {
	c := newBitmap()
	for h, low := range b.high {
		c.high[h] = low.Clone()
	}
	return c
}

// or adds every id of o; o itself is neither changed nor kept.
func (b *bitmap) or(o *bitmap) {
	for h, low := range o.high {
		if mine, ok := b.high[h]; ok {
			mine.Or(low)
		} else {
			b.high[h] = low.Clone()
		}
	}
}

// combine applies a roaring operation high word by high word and drops what became empty.
func (b *bitmap) combine(o *bitmap, op func(x, y *roaring.Bitmap) *roaring.Bitmap) *bitmap {
	r := newBitmap()
	empty := roaring.New()
	at := func(m *bitmap, h uint32) *roaring.Bitmap {
		if low, ok := m.high[h]; ok {
			return low
		}
		return empty
	}
	for h := range b.high {
		r.high[h] = op(b.high[h], at(o, h))
	}
	for h := range o.high {
		if _, ok := r.high[h]; !ok {
			r.high[h] = op(empty, o.high[h])
		}
	}
	maps.DeleteFunc(r.high, func(_ uint32, low *roaring.Bitmap) bool { return low.IsEmpty() })
	return r
}

func (b *bitmap) and(o *bitmap) *bitmap    { return b.combine(o, roaring.And) }
func (b *bitmap) andNot(o *bitmap) *bitmap { return b.combine(o, roaring.AndNot) }
func (b *bitmap) xor(o *bitmap) *bitmap    { return b.combine(o, roaring.Xor) }

func (b *bitmap) contains(id uint64) bool {
	low, ok := b.high[uint32(id>>32)]
	return ok && low.Contains(uint32(id))
}

func (b *bitmap) count() int64 {
	var n uint64
	for _, low := range b.high {
		n += low.GetCardinality()
	}
	return int64(n)
}

// ids returns the members in ascending (unsigned) order.
func (b *bitmap) ids() []uint64 {
	out := make([]uint64, 0, b.count())
	for _, h := range slices.Sorted(maps.Keys(b.high)) {
		for it := b.high[h].Iterator(); it.HasNext(); {
			out = append(out, uint64(h)<<32|uint64(it.Next()))
		}
	}
	return out
}

func (b *bitmap) String() string {
	var sb strings.Builder
	for i, id := range b.ids() {
		if i > 0 {
			sb.WriteByte(',')
		}
		sb.WriteString(strconv.FormatUint(id, 10))
	}
	return sb.String()
}

// bytes serializes as a server with bitmap_serialize_version = 1 does: codes 0 to 4.
func (b *bitmap) bytes() []byte {
	switch n := b.count(); n {
	case 0:
		return []byte{bitmapEmpty}
	case 1:
		id := b.ids()[0]
		if id <= 1<<32-1 {
			return binary.LittleEndian.AppendUint32([]byte{bitmapSingle32}, uint32(id))
		}
		return binary.LittleEndian.AppendUint64([]byte{bitmapSingle64}, id)
	}
	highs := slices.Sorted(maps.Keys(b.high))
	highs = slices.DeleteFunc(highs, func(h uint32) bool { return b.high[h].IsEmpty() })
	var buf bytes.Buffer
	if len(highs) == 1 && highs[0] == 0 {
		buf.WriteByte(bitmapRoaring32)
		b.high[0].WriteTo(&buf) //nolint:errcheck // a bytes.Buffer never fails
		return buf.Bytes()
	}
	buf.WriteByte(bitmapRoaring64)
	buf.Write(binary.AppendUvarint(nil, uint64(len(highs))))
	for _, h := range highs {
		buf.Write(binary.LittleEndian.AppendUint32(nil, h))
		b.high[h].WriteTo(&buf) //nolint:errcheck // a bytes.Buffer never fails
	}
	return buf.Bytes()
}

func (b *bitmap) base64() string { return base64.StdEncoding.EncodeToString(b.bytes()) }

// decodeBitmap reads one serialized BitmapValue with bounds checks, as BitmapValue::valid_and_deserialize does: every
// code of be/src/types/bitmap_value_detail.h is accepted with any cardinality, bytes after the value are ignored.
func decodeBitmap(p []byte) (*bitmap, error) {
	if len(p) == 0 {
		return nil, fmt.Errorf("%w: no type byte", errBitmap)
	}
	code, rest := p[0], p[1:]
	switch code {
	case bitmapEmpty:
		return newBitmap(), nil
	case bitmapSingle32:
		if len(rest) < 4 {
			return nil, fmt.Errorf("%w: SINGLE32 of %d bytes", errBitmap, len(rest))
		}
		return newBitmap(uint64(binary.LittleEndian.Uint32(rest))), nil
	case bitmapSingle64:
		if len(rest) < 8 {
			return nil, fmt.Errorf("%w: SINGLE64 of %d bytes", errBitmap, len(rest))
		}
		return newBitmap(binary.LittleEndian.Uint64(rest)), nil
	case bitmapSet:
		return decodeSet(rest)
	case bitmapRoaring32, bitmapRoaring32V2:
		low, _, err := readRoaring(rest, code == bitmapRoaring32V2)
		if err != nil {
			return nil, err
		}
		b := newBitmap()
		b.high[0] = low
		return b, nil
	case bitmapRoaring64, bitmapRoaring64V2:
		return decodeRoaring64(rest, code == bitmapRoaring64V2)
	}
	return nil, fmt.Errorf("%w: type code %d", errBitmap, code)
}

func decodeSet(p []byte) (*bitmap, error) {
	if len(p) < 4 {
		return nil, fmt.Errorf("%w: SET without a count", errBitmap)
	}
	n := uint64(binary.LittleEndian.Uint32(p))
	p = p[4:]
	if uint64(len(p))/8 < n {
		return nil, fmt.Errorf("%w: SET of %d in %d bytes", errBitmap, n, len(p))
	}
	b := newBitmap()
	for i := range n {
		b.add(binary.LittleEndian.Uint64(p[8*i:]))
	}
	return b, nil
}

func decodeRoaring64(p []byte, native bool) (*bitmap, error) {
	n, used := binary.Uvarint(p)
	if used <= 0 {
		return nil, fmt.Errorf("%w: BITMAP64 count", errBitmap)
	}
	p = p[used:]
	b := newBitmap()
	for range n {
		if len(p) < 4 {
			return nil, fmt.Errorf("%w: BITMAP64 ends inside its entries", errBitmap)
		}
		h := binary.LittleEndian.Uint32(p)
		low, size, err := readRoaring(p[4:], native)
		if err != nil {
			return nil, err
		}
		// The server's decoder keeps the first of two equal high words and loses the later one.
		if _, dup := b.high[h]; !dup {
			b.high[h] = low
		}
		p = p[4+size:]
	}
	return b, nil
}

// readRoaring reads one 32-bit bitmap in the portable or in CRoaring's native form and says how many bytes it took.
func readRoaring(p []byte, native bool) (low *roaring.Bitmap, size int, err error) {
	if native {
		if len(p) == 0 {
			return nil, 0, fmt.Errorf("%w: native bitmap without a form byte", errBitmap)
		}
		form := p[0]
		p = p[1:]
		switch form {
		case croaringArray:
			if len(p) < 4 || uint64(len(p)-4)/4 < uint64(binary.LittleEndian.Uint32(p)) {
				return nil, 0, fmt.Errorf("%w: native array in %d bytes", errBitmap, len(p))
			}
			n := int(binary.LittleEndian.Uint32(p))
			low = roaring.New()
			for i := range n {
				low.Add(binary.LittleEndian.Uint32(p[4+4*i:]))
			}
			return low, 1 + 4 + 4*n, nil
		case croaringContainer:
			low, size, err = readRoaring(p, false)
			return low, size + 1, err
		}
		return nil, 0, fmt.Errorf("%w: native form %d", errBitmap, form)
	}
	// The library may panic on bytes that lie about their sizes; a stand-in must refuse them instead.
	defer func() {
		if r := recover(); r != nil {
			low, size, err = nil, 0, fmt.Errorf("%w: %v", errBitmap, r)
		}
	}()
	low = roaring.New()
	n, err := low.ReadFrom(bytes.NewReader(p))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errBitmap, err)
	}
	if err := low.Validate(); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errBitmap, err)
	}
	return low, int(n), nil
}

// bitmapFromBase64 is base64_to_bitmap: nil means SQL NULL, which is all the server makes of bad input.
func bitmapFromBase64(s string) *bitmap {
	raw, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(raw) == 0 {
		return nil
	}
	b, err := decodeBitmap(raw)
	if err != nil {
		return nil
	}
	return b
}

// bitmapFromString is bitmap_from_string("1,2,3"): nil (NULL) if any token is bad.
func bitmapFromString(s string) *bitmap {
	b := newBitmap()
	if strings.TrimSpace(s) == "" {
		return b
	}
	for tok := range strings.SplitSeq(s, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(tok), 10, 64)
		if err != nil {
			return nil
		}
		b.add(id)
	}
	return b
}
