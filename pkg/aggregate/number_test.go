package aggregate

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseID(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "7": 7, "007": 7, "18446744073709551615": math.MaxUint64, "0000000000000000000000000000001": 1} {
		got, ok := parseID([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-1", "-0", "+5", "5.0", "1e3", " 5", "5 ", "18446744073709551616", "99999999999999999999", "184467440737095516150", "0x5", "٣"} {
		_, ok := parseID([]byte(text))
		require.False(t, ok, text)
	}
}

func TestScaled(t *testing.T) {
	tests := []struct {
		text        string
		scale       int
		want        int64
		exact, fits bool
	}{
		{"0", 2, 0, true, true},
		{"-0.000", 0, 0, true, true},
		{"0e999999999999999999999", 2, 0, true, true},
		{"1", 2, 100, true, true},
		{"1.5", 2, 150, true, true},
		{"1.50000", 2, 150, true, true},
		{"1.505", 2, 150, false, true},
		{"-1.505", 2, -150, false, true},
		{"0.001", 2, 0, false, true},
		{"1e3", 0, 1000, true, true},
		{"1e-3", 3, 1, true, true},
		{"12.5E-1", 2, 125, true, true},
		{"12.5e-1", 1, 12, false, true},
		{"1e-999999999999999999999", 2, 0, false, true},
		{"1e999999999999999999999", 2, 0, true, false},
		{"9223372036854775807", 0, math.MaxInt64, true, true},
		{"9223372036854775808", 0, 0, true, false},
		{"-9223372036854775808", 0, math.MinInt64, true, true},
		{"-9223372036854775809", 0, 0, true, false},
		{"92233720368547758.07", 2, math.MaxInt64, true, true},
		{"92233720368547758.070", 2, math.MaxInt64, true, true},
		{"92233720368547758.079", 2, math.MaxInt64, false, true},
		{"99999999999999999999", 0, 0, true, false},
		{"0000000000000000000000012", 0, 12, true, true},
		{"1000000000000000000000000e-24", 0, 1, true, true},
		{"123456789012345678901234567890e-29", 0, 1, false, true},
	}
	for _, tt := range tests {
		d, ok := parseDecimal([]byte(tt.text))
		require.True(t, ok, tt.text)
		v, exact, fits := d.scaled(tt.scale)
		require.Equal(t, tt.want, v, tt.text)
		require.Equal(t, tt.exact, exact, tt.text)
		require.Equal(t, tt.fits, fits, tt.text)
	}
	for _, text := range []string{"", "-", ".5", "5.", "+5", "1e", "1e+", "1.5.1", "0x1", " 1", "1 ", "1,5", "NaN", "Infinity", "--1", "1e1.5"} {
		_, ok := parseDecimal([]byte(text))
		require.False(t, ok, text)
	}
}

func TestScaledAgainstRationals(t *testing.T) {
	text := rapid.StringMatching(`-?[0-9]{1,22}(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "text")
		scale := rapid.IntRange(-3, 9).Draw(t, "scale")
		d, ok := parseDecimal([]byte(s))
		require.True(t, ok)
		v, exact, fits := d.scaled(scale)

		r, ok := new(big.Rat).SetString(s)
		require.True(t, ok)
		ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil))
		if scale < 0 {
			ten.Inv(ten)
		}
		r.Mul(r, ten)
		whole := new(big.Int).Quo(r.Num(), r.Denom())
		require.Equal(t, r.IsInt(), exact)
		require.Equal(t, whole.IsInt64(), fits)
		if fits {
			require.Equal(t, whole.Int64(), v)
		}
		require.Equal(t, r.Sign() < 0, d.neg)
	})
}

func TestAddSaturating(t *testing.T) {
	sum, saturated := addSaturating(math.MaxInt64-1, 1)
	require.Equal(t, int64(math.MaxInt64), sum)
	require.False(t, saturated)
	sum, saturated = addSaturating(math.MaxInt64, 1)
	require.Equal(t, int64(math.MaxInt64), sum)
	require.True(t, saturated)
}

// The fast way must never say anything that the general one does not.
func TestPlainNumbers(t *testing.T) {
	for _, c := range []struct {
		text  string
		scale int
		want  int64
		ok    bool
	}{
		{"0", 0, 0, true},
		{"12", 2, 1200, true},
		{"12.5", 2, 1250, true},
		{"12.05", 2, 1205, true},
		{"007", 0, 7, true},
		{"12.345", 2, 0, false},
		{"12.", 2, 0, false},
		{".5", 2, 0, false},
		{"1.2.3", 9, 0, false},
		{"-1", 0, 0, false},
		{"+1", 0, 0, false},
		{"1e3", 0, 0, false},
		{"", 0, 0, false},
		{" 1", 0, 0, false},
		{"1a", 0, 0, false},
		{"999999999999999999", 0, 999999999999999999, true},
		{"9999999999999999999", 0, 0, false},
		{"123456789.123456789", 9, 0, false},
	} {
		n, ok := plain([]byte(c.text), c.scale)
		require.Equal(t, c.ok, ok, "%q at scale %d", c.text, c.scale)
		if ok {
			require.Equal(t, c.want, n, "%q at scale %d", c.text, c.scale)
		}
	}
}
