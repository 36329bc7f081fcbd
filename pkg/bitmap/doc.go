// Package bitmap holds sets of 64-bit ids: a Collector to gather them, an immutable Set to hand over and merge, and the exact
// bytes StarRocks uses for a BITMAP value (StarRocks: be/src/types/bitmap_value_detail.h, bitmap_value.cpp).
//
// A Set has one of two forms, whichever is smaller: the sorted ids, or the bytes of StarRocks' own encoding (portable Roaring,
// run-optimised). The second is what a table cell gets, so encoding it is a copy; it is also what keeps dense ids at a fraction of a
// byte each while loads wait. Equal sets have the same form.
//
// Sets are values that may be shared between goroutines. A Collector has one owner.
package bitmap
