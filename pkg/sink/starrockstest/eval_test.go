package starrockstest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLike(t *testing.T) {
	for _, tc := range []struct {
		s, pattern string
		want       bool
	}{
		{"abc", "abc", true},
		{"abc", "a%", true},
		{"abc", "%c", true},
		{"abc", "%b%", true},
		{"abc", "a_c", true},
		{"abc", "a_", false},
		{"", "%", true},
		{"", "_", false},
		{"", "", true},
		{"a%b", `a\%b`, true},
		{"axb", `a\%b`, false},
		{"a_b", `a\_b`, true},
		{`a\`, `a\`, true},
		{"aXbXc", "a%X%c", true},
		{"mississippi", "%iss%ippi", true},
		{"äöü", "ä_ü", true},
		{"ABC", "abc", false},
		{"100%", "100%%", true},
		{"abcd", "%d%", true},
		{"abcd", "%e%", false},
	} {
		require.Equal(t, tc.want, like(tc.s, tc.pattern), "%q LIKE %q", tc.s, tc.pattern)
	}
	require.False(t, like(strings.Repeat("a", 5000), strings.Repeat("a%", 500)+"b"), "and ends soon")
}

func TestCompareAcrossTypes(t *testing.T) {
	for _, tc := range []struct {
		a, b any
		want int
	}{
		{int64(2), "10", -1},
		{"10", int64(2), 1},
		{date("2024-01-02"), "2024-1-2", 0},
		{date("2024-01-02"), datetime("2024-01-02 00:00:01"), -1},
		{datetime("2024-01-02 00:00:00"), date("2024-01-02"), 0},
		{"9", "10", 1},
		{1.5, int64(1), 1},
		{int64(1 << 62), 1.0, 1},
	} {
		got, err := compare(tc.a, tc.b)
		require.NoError(t, err)
		require.Equal(t, tc.want, got, "%v and %v", tc.a, tc.b)
	}
	_, err := compare(int64(1), "x")
	require.ErrorIs(t, err, errConvert)
	_, err = compare(newBitmap(), newBitmap())
	require.ErrorIs(t, err, errConvert)
}

// keyOf must not confuse tuples: it decides which rows merge.
func TestKeysAreInjective(t *testing.T) {
	seen := map[string][]any{}
	for _, k := range [][]any{
		{"a", "b"}, {"ab", ""}, {"", "ab"}, {nil, "ab"}, {"ab", nil}, {"n;", "ab"}, {"1:a;", "b"}, {"a", "1:b;"}, {nil, nil}, {"", ""},
	} {
		other, dup := seen[keyOf(k)]
		require.False(t, dup, "%v and %v", k, other)
		seen[keyOf(k)] = k
	}
}
