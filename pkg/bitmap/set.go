package bitmap

import (
	"iter"
	"slices"
)

// Set is an immutable set of ids. The zero value is empty. Sets may be copied and read by several goroutines.
type Set struct {
	ids    []uint64 // strictly ascending; nil when packed
	packed *packed  // nil when ids hold the set
}

// packed is the StarRocks encoding (code 2 or 4) of a set of n ids.
type packed struct {
	n   int
	enc []byte
}

const (
	// minPacked is the least number of ids worth packing.
	minPacked = 32
	// packedOverhead is the memory of a packed set beyond its bytes.
	packedOverhead = 48
)

// worthPacking is the one rule for the form of a set, so that equal sets have equal forms: pack when it saves a quarter.
func worthPacking(n, encoded int) bool {
	return n >= minPacked && encoded+packedOverhead <= 6*n
}

// FromSorted makes a set of strictly ascending ids. The set owns the slice: the caller must not use it again.
func FromSorted(ids []uint64) Set {
	if len(ids) == 0 {
		return Set{}
	}
	if len(ids) >= minPacked {
		if size := sizeOfIDs(ids); worthPacking(len(ids), size.size()) {
			return Set{packed: &packed{n: len(ids), enc: appendIDs(nil, ids)}}
		}
	}
	return Set{ids: ids}
}

// Of makes a set of ids in any order, doubles allowed.
func Of(ids ...uint64) Set {
	return FromSorted(slices.Clip(slices.Compact(sorted(slices.Clone(ids)))))
}

// Len is the number of ids.
func (s Set) Len() int {
	if s.packed != nil {
		return s.packed.n
	}
	return len(s.ids)
}

// Bytes is the memory held beyond the Set value itself.
func (s Set) Bytes() int64 {
	if s.packed != nil {
		return int64(cap(s.packed.enc)) + packedOverhead
	}
	return 8 * int64(cap(s.ids))
}

// All yields the ids in ascending order.
func (s Set) All() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if s.packed == nil {
			for _, id := range s.ids {
				if !yield(id) {
					return
				}
			}
			return
		}
		var c container
		for r := newReader(s.packed.enc); r.next(&c); {
			if !c.each(yield) {
				return
			}
		}
	}
}

// Equal reports whether two sets hold the same ids.
func (s Set) Equal(t Set) bool {
	if s.packed != nil && t.packed != nil {
		return slices.Equal(s.packed.enc, t.packed.enc)
	}
	return s.packed == nil && t.packed == nil && slices.Equal(s.ids, t.ids)
}

// Union returns the ids of both sets. Neither argument changes; the result may share memory with one of them.
func Union(a, b Set) Set {
	switch {
	case a.Len() == 0:
		return b
	case b.Len() == 0:
		return a
	case a.packed == nil && b.packed == nil:
		return FromSorted(mergeIDs(a.ids, b.ids))
	}
	var (
		w      writer
		ca, cb container
		sum    container
		m      merger
		ra, rb = a.containers(), b.containers()
	)
	okA, okB := ra.next(&ca), rb.next(&cb)
	for okA || okB {
		switch {
		case !okB || (okA && ca.key < cb.key):
			w.add(&ca)
			okA = ra.next(&ca)
		case !okA || cb.key < ca.key:
			w.add(&cb)
			okB = rb.next(&cb)
		default:
			m.union(&sum, &ca, &cb)
			w.add(&sum)
			okA, okB = ra.next(&ca), rb.next(&cb)
		}
	}
	return w.set()
}

func mergeIDs(a, b []uint64) []uint64 {
	out := make([]uint64, 0, len(a)+len(b))
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		x, y := a[i], b[j]
		out = append(out, min(x, y))
		if x <= y {
			i++
		}
		if y <= x {
			j++
		}
	}
	out = append(append(out, a[i:]...), b[j:]...)
	if cap(out)-len(out) > len(out)/4 {
		out = slices.Clone(out)
	}
	return out
}

// cursor walks over a set container by container, in ascending order. What it fills in is valid until the next call.
type cursor interface {
	next(c *container) bool
}

func (s Set) containers() cursor {
	if s.packed != nil {
		return newReader(s.packed.enc)
	}
	return &idReader{ids: s.ids}
}
