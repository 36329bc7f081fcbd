package bitmap

import "slices"

// minRadix is the number of ids from which on the radix sort is the faster one.
const minRadix = 256

// sorted sorts ids, which it may use up: the result has the same capacity, but may be another array.
//
// It is a radix sort by bytes, lowest first, that leaves out the bytes in which no two ids differ: three or four passes for the usual
// user ids, where comparing costs several times as much.
func sorted(ids []uint64) []uint64 {
	if slices.IsSorted(ids) {
		return ids
	}
	if len(ids) < minRadix {
		slices.Sort(ids)
		return ids
	}
	var differ uint64
	for _, id := range ids {
		differ |= id ^ ids[0]
	}
	other := make([]uint64, len(ids), cap(ids))
	for shift := 0; shift < 64; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var starts [256]int
		for _, id := range ids {
			starts[byte(id>>shift)]++
		}
		at := 0
		for i, n := range starts {
			starts[i] = at
			at += n
		}
		for _, id := range ids {
			b := byte(id >> shift)
			other[starts[b]] = id
			starts[b]++
		}
		ids, other = other, ids
	}
	return ids
}
