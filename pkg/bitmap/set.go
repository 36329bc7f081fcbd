// Package bitmap holds sets of 64-bit ids: a Collector to gather them, an immutable Set to hand over and merge, and the exact
// bytes StarRocks uses for a BITMAP value (be/src/types/bitmap_value_detail.h).
package bitmap

// Set is an immutable set of ids. The zero value is empty.
type Set struct {
	ids []uint64 // sorted, unique
}
