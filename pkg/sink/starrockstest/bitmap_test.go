package starrockstest

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func seq(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(i)
	}
	return out
}

// The worked examples of the BitmapValue format.
func TestBitmapWorkedExamples(t *testing.T) {
	for _, tc := range []struct {
		name, hex, base64 string
		ids               []uint64
		emitted           bool // what this package writes for the set
	}{
		{"empty", "00", "AA==", []uint64{}, true},
		{"single 32", "0105000000", "AQUAAAA=", []uint64{5}, true},
		{"roaring 32", "023a300000010000000000020010000000010002000300", "AjowAAABAAAAAAACABAAAAABAAIAAwA=", []uint64{1, 2, 3}, true},
		{"set", "0a03000000" + "0100000000000000" + "0200000000000000" + "0300000000000000", "CgMAAAABAAAAAAAAAAIAAAAAAAAAAwAAAAAAAAA=", []uint64{1, 2, 3}, false},
		{"single 64", "030000000000010000", "AwAAAAAAAQAA", []uint64{1 << 40}, true},
		{
			"roaring 64", "0402" + "00000000" + "3a3000000100000000000000100000000500" + "00010000" + "3a3000000100000000000000100000000000",
			"BAIAAAAAOjAAAAEAAAAAAAAAEAAAAAUAAAEAADowAAABAAAAAAAAABAAAAAAAA==",
			[]uint64{5, 1 << 40},
			true,
		},
		{"two containers", "023a3000000200000000000000010000001800" + "00001a00000001000000", "AjowAAACAAAAAAAAAAEAAAAYAAAAGgAAAAEAAAA=", []uint64{1, 65536}, true},
		{"runs", "023b3000000100" + "00e7030100" + "0000e703", "AjswAAABAADnAwEAAADnAw==", seq(1000), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw, err := hex.DecodeString(tc.hex)
			require.NoError(t, err)
			require.Equal(t, tc.base64, base64.StdEncoding.EncodeToString(raw))
			b, err := decodeBitmap(raw)
			require.NoError(t, err)
			require.Equal(t, tc.ids, b.ids())
			require.EqualValues(t, len(tc.ids), b.count())
			require.Equal(t, tc.ids, bitmapFromBase64(tc.base64).ids())
			if tc.emitted {
				require.Equal(t, tc.base64, newBitmap(tc.ids...).base64())
			}
			b, err = decodeBitmap(append(raw, 0xff, 1, 2))
			require.NoError(t, err, "bytes after the value are ignored")
			require.Equal(t, tc.ids, b.ids())
		})
	}
}

// Forms only a server writes: CRoaring's native array and container forms, and duplicate high words.
func TestBitmapServerForms(t *testing.T) {
	portable := "3a300000010000000000020010000000010002000300"
	for name, tc := range map[string]struct {
		hex string
		ids []uint64
	}{
		"native array":                      {"0c" + "01" + "02000000" + "07000000" + "09000000", []uint64{7, 9}},
		"native container":                  {"0c" + "02" + portable, []uint64{1, 2, 3}},
		"native 64":                         {"0d" + "02" + "00000000" + "01" + "01000000" + "05000000" + "01000000" + "02" + portable, []uint64{5, 1<<32 + 1, 1<<32 + 2, 1<<32 + 3}},
		"first of two equal high words":     {"04" + "02" + "00000000" + portable + "00000000" + "3a3000000100000000000000100000000500", []uint64{1, 2, 3}},
		"single in 64-bit form":             {"04" + "01" + "00000000" + "3a3000000100000000000000100000000500", []uint64{5}},
		"roaring 32 without a container":    {"023a30000000000000", []uint64{}},
		"set with duplicates and any order": {"0a02000000" + "0200000000000000" + "0200000000000000", []uint64{2}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := hex.DecodeString(tc.hex)
			require.NoError(t, err)
			b, err := decodeBitmap(raw)
			require.NoError(t, err)
			require.Equal(t, tc.ids, b.ids())
		})
	}
}

func TestBitmapRefused(t *testing.T) {
	for _, code := range []byte{5, 6, 7, 8, 9, 11, 14, 255} {
		_, err := decodeBitmap([]byte{code, 0, 0, 0, 0, 0, 0, 0, 0})
		require.ErrorIs(t, err, errBitmap, code)
	}
	for _, cut := range []string{
		"", "01050000", "03000000000001", "0a03000000010000000000000002", "023a3000000100", "02", "04", "0402000000003a30", "0c", "0c01ff",
	} {
		raw, err := hex.DecodeString(cut)
		require.NoError(t, err)
		_, err = decodeBitmap(raw)
		require.ErrorIs(t, err, errBitmap, cut)
	}
	for _, s := range []string{"", "not base64", "AQUAAA", "////"} {
		require.Nil(t, bitmapFromBase64(s), s)
	}
}

func TestBitmapFromString(t *testing.T) {
	require.Equal(t, []uint64{1, 2, 1 << 63}, bitmapFromString("1, 2,9223372036854775808").ids())
	require.Nil(t, bitmapFromString("1,x"))
	require.Nil(t, bitmapFromString("-1"))
	require.Empty(t, bitmapFromString("").ids())
}

func TestBitmapAlgebra(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.SliceOfN(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 50), rapid.Uint64Range(1<<32, 1<<32+50)), 0, 60)
		x, y := gen.Draw(t, "x"), gen.Draw(t, "y")
		a, b := newBitmap(x...), newBitmap(y...)
		back, err := decodeBitmap(a.bytes())
		require.NoError(t, err)
		require.Equal(t, a.ids(), back.ids())
		union := a.clone()
		union.or(b)
		require.Equal(t, a.count()+b.count()-a.and(b).count(), union.count())
		require.Equal(t, a.ids(), union.andNot(b).andNot(b.andNot(a)).combine(a.and(b), orBitmaps).ids())
		require.Equal(t, union.andNot(a.and(b)).ids(), a.xor(b).ids())
		for _, id := range x {
			require.True(t, union.contains(id))
		}
	})
}

func orBitmaps(x, y *roaring.Bitmap) *roaring.Bitmap { return roaring.Or(x, y) }

// Vectors of StarRocks' hash functions.
func TestHashVectors(t *testing.T) {
	for s, want := range map[string][2]uint64{
		"abc": {3409700625, 8696274497037089104}, "user-1": {601613051, 8968379626967066057}, "": {3329588566, 3244421341483603138},
	} {
		require.Equal(t, want, [2]uint64{bitmapHash(s), bitmapHash64(s)}, s)
	}
	for s, want := range map[string]uint64{"": 0xd8dfea6585bc9732, "abc": 0x77ec90aeb374e502, "user-1": 0x7ab4cb62301c005a} {
		require.Equal(t, want, hllHash(s), s)
	}
}

func FuzzDecodeBitmap(f *testing.F) {
	for _, s := range []string{"AA==", "AQUAAAA=", "AjowAAABAAAAAAACABAAAAABAAIAAwA=", "CgMAAAABAAAAAAAAAAIAAAAAAAAAAwAAAAAAAAA=", "AjswAAABAADnAwEAAADnAw==", "BAIAAAAAOjAAAAEAAAAAAAAAEAAAAAUAAAEAADowAAABAAAAAAAAABAAAAAAAA=="} {
		raw, err := base64.StdEncoding.DecodeString(s)
		require.NoError(f, err)
		f.Add(raw)
		f.Add([]byte(strings.Repeat(string(raw), 2)))
	}
	f.Add([]byte{0x0c, 1, 1, 0, 0, 0, 9, 0, 0, 0})
	f.Add([]byte{0x0d, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 9, 0, 0, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		b, err := decodeBitmap(p)
		if err != nil {
			return
		}
		back, err := decodeBitmap(b.bytes())
		if err != nil || back.String() != b.String() {
			t.Fatalf("%v: %q is not %q", err, back, b)
		}
	})
}
