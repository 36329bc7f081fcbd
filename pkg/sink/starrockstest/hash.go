package starrockstest

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Seeds of the server's hash functions. StarRocks: be/src/util/hash_util.hpp.
const (
	bitmapHashSeed = 104729
	hllHashSeed    = 0xadc83b19
)

// murmur3x32 is MurmurHash3_x86_32, what bitmap_hash uses.
func murmur3x32(p []byte, seed uint32) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	h, n := seed, len(p)
	for ; len(p) >= 4; p = p[4:] {
		k := binary.LittleEndian.Uint32(p) * c1
		h ^= bits.RotateLeft32(k, 15) * c2
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	var k uint32
	for i := len(p) - 1; i >= 0; i-- {
		k = k<<8 | uint32(p[i])
	}
	if len(p) > 0 {
		h ^= bits.RotateLeft32(k*c1, 15) * c2
	}
	h ^= uint32(n)
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// murmur64A is MurmurHash64A (MurmurHash2, 64 bit), what hll_hash uses.
func murmur64A(p []byte, seed uint64) uint64 {
	const m, r = 0xc6a4a7935bd1e995, 47
	h := seed ^ uint64(len(p))*m
	for ; len(p) >= 8; p = p[8:] {
		k := binary.LittleEndian.Uint64(p) * m
		k ^= k >> r
		h = (h ^ k*m) * m
	}
	if len(p) > 0 {
		var k uint64
		for i := len(p) - 1; i >= 0; i-- {
			k = k<<8 | uint64(p[i])
		}
		h = (h ^ k) * m
	}
	h ^= h >> r
	h *= m
	return h ^ h>>r
}

func bitmapHash(s string) uint64   { return uint64(murmur3x32([]byte(s), bitmapHashSeed)) }
func bitmapHash64(s string) uint64 { return xxh3.HashString(s) }
func hllHash(s string) uint64      { return murmur64A([]byte(s), hllHashSeed) }

// hll is an opaque union of hashes. It counts exactly: estimating is not what the stand-in is for.
type hll struct {
	hashes map[uint64]struct{}
}

func newHLL(hashes ...uint64) *hll {
	h := &hll{hashes: map[uint64]struct{}{}}
	for _, x := range hashes {
		h.hashes[x] = struct{}{}
	}
	return h
}

func (h *hll) or(o *hll) {
	for x := range o.hashes {
		h.hashes[x] = struct{}{}
	}
}

func (h *hll) clone() *hll {
	c := newHLL()
	c.or(h)
	return c
}

func (h *hll) count() int64 { return int64(len(h.hashes)) }
