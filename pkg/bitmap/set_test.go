package bitmap

import (
	"encoding/base64"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func ids(s Set) []uint64 { return slices.Collect(s.All()) }

// same compares long slices without reflection.
func same(t require.TestingT, want, got []uint64, what string) {
	if !slices.Equal(want, got) {
		require.Equal(t, want, got, what)
	}
}

func span(from, to uint64) []uint64 {
	var out []uint64
	for id := from; id < to; id++ {
		out = append(out, id)
	}
	return out
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

func TestEncodingIsStarRocks(t *testing.T) {
	tests := []struct {
		name   string
		ids    []uint64
		hex    string
		base64 string
	}{
		{"empty", nil, "00", "AA=="},
		{"one below 2^32", []uint64{5}, "01 05000000", "AQUAAAA="},
		{"three", []uint64{1, 2, 3}, "02 3a300000 01000000 00000200 10000000 0100 0200 0300", "AjowAAABAAAAAAACABAAAAABAAIAAwA="},
		{"one above 2^32", []uint64{1 << 40}, "03 0000000000010000", "AwAAAAAAAQAA"},
		{
			"both sides of 2^32",
			[]uint64{5, 1 << 40},
			"04 02 00000000 3a300000 01000000 00000000 10000000 0500 00010000 3a300000 01000000 00000000 10000000 0000",
			"BAIAAAAAOjAAAAEAAAAAAAAAEAAAAAUAAAEAADowAAABAAAAAAAAABAAAAAAAA==",
		},
		{"two containers", []uint64{1, 65536}, "02 3a300000 02000000 0000 0000 0100 0000 18000000 1a000000 0100 0000", "AjowAAACAAAAAAAAAAEAAAAYAAAAGgAAAAEAAAA="},
		{"a run", span(0, 1000), "02 3b300000 01 0000 e703 0100 0000 e703", "AjswAAABAADnAwEAAADnAw=="},
		{"greatest 32-bit id", []uint64{math.MaxUint32}, "01 ffffffff", "Af////8="},
		{"greatest id", []uint64{math.MaxUint64}, "03 ffffffffffffffff", "A///////////"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			enc := Of(tt.ids...).AppendBinary([]byte("x"))
			require.Equal(t, "x", string(enc[:1]))
			require.Equal(t, unhex(t, tt.hex), enc[1:])
			require.Equal(t, tt.base64, base64.StdEncoding.EncodeToString(enc[1:]))
			got, err := Decode(enc[1:])
			require.NoError(t, err)
			require.Equal(t, tt.ids, ids(got))
		})
	}
}

func TestDecodeForeignForms(t *testing.T) {
	tests := []struct {
		name string
		hex  string
		want []uint64
	}{
		{"set", "0a 03000000 0100000000000000 0200000000000000 0300000000000000", []uint64{1, 2, 3}},
		{"set in any order with doubles", "0a 03000000 0300000000000000 0100000000000000 0300000000000000", []uint64{1, 3}},
		{"native array", "0c 01 02000000 07000000 00000100", []uint64{7, 65536}},
		{"native containers", "0c 02 3a300000 01000000 00000200 10000000 0100 0200 0300", []uint64{1, 2, 3}},
		{"native 64-bit", "0d 02 00000000 01 01000000 05000000 00010000 01 01000000 00000000", []uint64{5, 1 << 40}},
		{"empty bitmap", "02 3a300000 00000000", nil},
		{"trailing bytes", "01 05000000 ff", []uint64{5}},
		{"sub-bitmaps out of order", "04 02 01000000 3a300000 01000000 00000000 10000000 0500 00000000 3a300000 01000000 00000000 10000000 0600", []uint64{6, 1<<32 + 5}},
		{"first of doubled keys counts", "04 02 00000000 3a300000 01000000 00000000 10000000 0500 00000000 3a300000 01000000 00000000 10000000 0600", []uint64{5}},
		{"adjacent runs", "02 3b300000 01 0000 0300 0200 0100 0100 0300 0100", []uint64{1, 2, 3, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode(unhex(t, tt.hex))
			require.NoError(t, err)
			require.Equal(t, tt.want, ids(got))
			require.True(t, Of(tt.want...).Equal(got), "equal sets have equal forms")
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":            "",
		"unknown code":       "05",
		"cut single":         "01 0500",
		"cut single 64":      "03 05000000",
		"set count too big":  "0a ffffffff 0100000000000000",
		"bad cookie":         "02 3c300000 01000000",
		"too many":           "02 3a300000 ffffffff",
		"65537 containers":   "02 3a300000 01000100",
		"keys not ascending": "02 3a300000 02000000 0100 0000 0000 0000 18000000 1a000000 0100 0000",
		"array descending":   "02 3a300000 01000000 00000100 10000000 0200 0100",
		"array cut":          "02 3a300000 01000000 00000200 10000000 0100",
		"runs overlap":       "02 3b300000 01 0000 0300 0200 0100 0100 0200 0100",
		"run over the end":   "02 3b300000 01 0000 0100 0100 ffff 0100",
		"run count differs":  "02 3b300000 01 0000 0500 0100 0100 0100",
		"varint":             "04 ffffffffffffffffffff",
		"many sub-bitmaps":   "04 ffffffff0f 00000000",
		"native marker":      "0c 03",
		"native count":       "0c 01 ffffffff",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(unhex(t, text))
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

// drawIDs gives ids with every container kind in reach: dense, sparse, runs, and few or many high parts.
func drawIDs(t *rapid.T, label string) []uint64 {
	var out []uint64
	for range rapid.IntRange(0, 3).Draw(t, label+" pieces") {
		base := rapid.SampledFrom([]uint64{0, 1, 65530, 1 << 16, 1<<32 - 3, 1 << 32, 1 << 40, 1<<63 - 5, math.MaxUint64 - 10000}).Draw(t, label+" base")
		n := rapid.SampledFrom([]int{1, 2, 3, 31, 32, 33, 500, 4097}).Draw(t, label+" n")
		step := rapid.SampledFrom([]uint64{1, 2, 3, 17, 1000, 1 << 16, 1 << 33}).Draw(t, label+" step")
		for i := range n {
			id := base + uint64(i)*step
			if id < base {
				break
			}
			out = append(out, id)
		}
	}
	return out
}

func distinct(ids []uint64) []uint64 { return slices.Compact(sorted(slices.Clone(ids))) }

func TestUnionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs, ys, zs := drawIDs(t, "a"), drawIDs(t, "b"), drawIDs(t, "c")
		a, b, c := Of(xs...), Of(ys...), Of(zs...)
		ab := Union(a, b)
		same(t, distinct(slices.Concat(xs, ys)), ids(ab), "union")
		require.True(t, ab.Equal(Union(b, a)), "commutative")
		require.True(t, Union(ab, c).Equal(Union(a, Union(b, c))), "associative")
		require.True(t, Union(a, a).Equal(a), "idempotent")
		require.True(t, Union(a, Set{}).Equal(a), "neutral")
		same(t, distinct(xs), ids(a), "arguments do not change")
		require.Equal(t, ab.Len(), len(distinct(slices.Concat(xs, ys))))
		require.True(t, ab.Equal(Of(slices.Concat(xs, ys)...)), "equal sets have equal forms")
	})
}

func TestEncodeIsRoaringPerGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := drawIDs(t, "a")
		s := Of(xs...)
		enc := s.AppendBinary(nil)
		require.LessOrEqual(t, len(enc), s.EncodedSizeMax())
		back, err := Decode(enc)
		require.NoError(t, err)
		require.True(t, s.Equal(back))
		same(t, distinct(xs), ids(back), "decoded")
		if s.Len() < 2 {
			return
		}
		require.Equal(t, roaringEncoding(t, distinct(xs)), enc)
		size := sizeOfIDs(distinct(xs))
		require.Len(t, enc, size.size())
	})
}

func TestHeadersOfFewContainers(t *testing.T) {
	for containers := range uint64(20) { // the offset header and the bytes of run flags come and go
		for _, runs := range []bool{false, true} {
			xs := []uint64{1 << 33}
			for c := range containers {
				for i := range uint64(10) {
					id := c<<16 | i
					if !runs {
						id = c<<16 | i*3
					}
					xs = append(xs, id)
				}
			}
			enc := Of(xs...).AppendBinary(nil)
			if len(xs) > 1 {
				require.Equal(t, roaringEncoding(t, distinct(xs)), enc)
			}
			back, err := Decode(enc)
			require.NoError(t, err)
			require.Equal(t, distinct(xs), ids(back))
		}
	}
}

// roaringEncoding is the oracle: the same bytes through the Roaring library.
func roaringEncoding(t require.TestingT, ids []uint64) []byte {
	groups := map[uint32]*roaring.Bitmap{}
	var order []uint32
	for _, id := range ids {
		high := uint32(id >> 32)
		if groups[high] == nil {
			groups[high] = roaring.New()
			order = append(order, high)
		}
		groups[high].Add(uint32(id))
	}
	slices.Sort(order)
	var out []byte
	if len(order) == 1 && order[0] == 0 {
		out = []byte{2}
	} else {
		out = append(out, 4)
		for v := len(order); ; v >>= 7 {
			if v < 0x80 {
				out = append(out, byte(v))
				break
			}
			out = append(out, byte(v)|0x80)
		}
	}
	for _, high := range order {
		if out[0] == 4 {
			out = append(out, byte(high), byte(high>>8), byte(high>>16), byte(high>>24))
		}
		groups[high].RunOptimize()
		b, err := groups[high].ToBytes()
		require.NoError(t, err)
		out = append(out, b...)
	}
	return out
}

func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Of(drawIDs(t, "a")...)
		limit := rapid.SampledFrom([]int{9, 46, 100, 1000, 8300, 50_000, 786_432}).Draw(t, "limit")
		var (
			all   []uint64
			sum   Set
			parts = s.Split(limit)
		)
		for _, part := range parts {
			if n := len(part.AppendBinary(nil)); n > limit && part.Len() > 1 {
				t.Fatalf("%d bytes, at most %d allowed", n, limit)
			}
			all = slices.AppendSeq(all, part.All())
			if len(parts) < 100 {
				sum = Union(sum, part)
			}
		}
		same(t, ids(s), all, "parts are disjoint and in order")
		require.True(t, len(parts) >= 100 || s.Equal(sum))
	})
}

func TestSplitBig(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	xs := make([]uint64, 400_000)
	for i := range xs {
		xs[i] = uint64(rnd.Uint32())
	}
	parts := Of(xs...).Split(786_432)
	require.Len(t, parts, 2)
	for _, p := range parts {
		require.LessOrEqual(t, len(p.AppendBinary(nil)), 786_432)
	}
}

func TestCollector(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xs := drawIDs(t, "a")
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rnd.Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
		var (
			c     Collector
			bytes int64
		)
		for range 2 { // it is as good as new after Take
			for range rapid.IntRange(1, 3).Draw(t, "repeats") {
				for _, id := range xs {
					bytes += c.Add(id)
				}
			}
			require.Equal(t, c.Bytes(), bytes)
			require.GreaterOrEqual(t, c.Len(), len(distinct(xs)))
			s := c.Take()
			same(t, distinct(xs), ids(s), "taken")
			require.True(t, Of(xs...).Equal(s))
			require.Zero(t, c.Bytes())
			bytes = 0
		}
	})
}

func TestMemoryFollowsDistinctIDs(t *testing.T) {
	var c Collector
	c.Add(1)
	require.LessOrEqual(t, c.Bytes(), int64(16), "thousands of keys have one id only")
	for range 1000 {
		for id := range uint64(100) {
			c.Add(id)
		}
	}
	require.LessOrEqual(t, c.Bytes(), int64(4096))
	for range 3 {
		for id := range uint64(100_000) {
			c.Add(id * 7919 % 100_003)
		}
	}
	require.LessOrEqual(t, c.Bytes(), int64(100_000), "a hundred thousand dense ids")
	s := c.Take()
	require.LessOrEqual(t, s.Bytes(), int64(20_000))

	for i := range uint64(100_000) {
		c.Add(i * 0x9e3779b97f4a7c15)
	}
	require.LessOrEqual(t, c.Bytes(), int64(100_000*8*5/2), "hashes")
	require.LessOrEqual(t, c.Take().Bytes(), int64(100_000*8*5/4))
}

func TestAllStops(t *testing.T) {
	for _, s := range []Set{Of(1, 2, 3), Of(span(0, 1000)...), Of(everySecond(5000)...), Of(everySecond(60000)...)} {
		n := 0
		for range s.All() {
			if n++; n == 2 {
				break
			}
		}
		require.Equal(t, 2, n)
	}
}

func everySecond(n int) []uint64 {
	var out []uint64
	for i := range n {
		out = append(out, uint64(i)*2)
	}
	return out
}

func FuzzDecode(f *testing.F) {
	for _, s := range []Set{{}, Of(5), Of(1, 2, 3), Of(1 << 40), Of(5, 1<<40), Of(span(0, 1000)...)} { // small ones: minimising big ones eats the time
		f.Add(s.AppendBinary(nil))
	}
	f.Add(unhex(f, "0a 03000000 0100000000000000 0200000000000000 0300000000000000"))
	f.Add(unhex(f, "0c 02 3a300000 01000000 00000200 10000000 0100 0200 0300"))
	f.Add(unhex(f, "0d 01 00000000 01 01000000 05000000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			return
		}
		enc := s.AppendBinary(nil)
		if len(enc) > s.EncodedSizeMax() {
			t.Fatalf("%d bytes, at most %d expected", len(enc), s.EncodedSizeMax())
		}
		back, err := Decode(enc)
		if err != nil || !back.Equal(s) {
			t.Fatalf("decode(encode(x)) != x: %v", err)
		}
	})
}
