package aggregate

import (
	"testing"
	"time"
	_ "time/tzdata" // as the worker: the zones of the test do not depend on the machine

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func TestEventTimeFormats(t *testing.T) {
	shanghai := zone(t, "Asia/Shanghai")
	tests := []struct {
		format, text string
		want         int64
		reason       Reason
	}{
		{"unix_ms", "1790000000123", 1790000000123, ""},
		{"unix_ms", "1790000000123.9", 1790000000123, ""},
		{"unix_ms", "1.790000000123e12", 1790000000123, ""},
		{"unix_s", "1790000000", 1790000000000, ""},
		{"unix_s", "1790000000.1239", 1790000000123, ""},
		{"unix_s", "99999999999999999999", 0, ReasonBadTime},
		{"unix_us", "1790000000123456", 1790000000123, ""},
		{"unix_ms", "-5", -5, ""},
		{"unix_ms", "yesterday", 0, ReasonBadTime},
		{"unix_ms", "2026-09-21T00:00:00Z", 0, ReasonBadTime},
		{"unix_ms", "", 0, ReasonNoTime},
		{"rfc3339", "", 0, ReasonNoTime},
		{"rfc3339", "2026-09-21T15:04:05Z", 1790003045000, ""},
		{"rfc3339", "2026-09-21T15:04:05.123456789+08:00", 1789974245123, ""},
		{"rfc3339", "2026-09-21T15:04:05-00:30", 1790004845000, ""},
		{"rfc3339", "2026-02-29T15:04:05Z", 0, ReasonBadTime},
		{"rfc3339", "2024-02-29T00:00:00Z", 1709164800000, ""},
		{"rfc3339", "2026-09-21 15:04:05Z", 0, ReasonBadTime},
		{"rfc3339", "2026-09-21T15:04:05", 0, ReasonBadTime},
		{"rfc3339", "2026-09-21T24:00:00Z", 0, ReasonBadTime},
		{"rfc3339", "2026-09-21T15:04:60Z", 0, ReasonBadTime},
		{"rfc3339", "2026-09-21T15:04:05.Z", 0, ReasonBadTime},
		{"rfc3339", "2026-09-21T15:04:05Zx", 0, ReasonBadTime},
		{"rfc3339", "2026-13-21T15:04:05Z", 0, ReasonBadTime},
		{"rfc3339", "2026-00-21T15:04:05Z", 0, ReasonBadTime},
		{"rfc3339", "1790000000123", 0, ReasonBadTime},
		{"2006-01-02 15:04:05", "2026-09-21 15:04:05", 1789974245000, ""},
		{"2006-01-02 15:04:05.000", "2026-09-21 15:04:05.250", 1789974245250, ""},
		{"2006-01-02 15:04:05 -0700", "2026-09-21 15:04:05 +0000", 1790003045000, ""},
		{time.RFC1123, "Mon, 21 Sep 2026 15:04:05 GMT", 1790003045000, ""},
		{time.RFC1123, "Mon, 21 Sep 2026 15:04:05 CST", 1789974245000, ""},
		{time.RFC1123, "Mon, 21 Sep 2026 15:04:05 PDT", 0, ReasonBadTime},
		{"20060102150405", "20260921150405", 1789974245000, ""},
		{"2006-01-02 15:04:05", "21.9.2026", 0, ReasonBadTime},
	}
	for _, tt := range tests {
		t.Run(tt.format+" "+tt.text, func(t *testing.T) {
			f, err := newTimeFormat(tt.format)
			require.NoError(t, err)
			for _, kind := range []valueKind{kindString, kindNumber} {
				if tt.text == "" && kind == kindNumber {
					continue
				}
				ms, reason := f.parse(&value{kind: kind, text: []byte(tt.text)}, shanghai)
				require.Equal(t, tt.reason, reason)
				if reason == "" {
					require.Equal(t, tt.want, ms)
				}
			}
		})
	}
	f, err := newTimeFormat("unix_ms")
	require.NoError(t, err)
	for kind, want := range map[valueKind]Reason{kindNone: ReasonNoTime, kindBool: ReasonBadTime, kindComposite: ReasonBadTime} {
		_, reason := f.parse(&value{kind: kind, text: []byte("true")}, shanghai)
		require.Equal(t, want, reason)
	}
}

func TestLayoutsThatAreNone(t *testing.T) {
	for _, layout := range []string{"unix", "ms", "RFC3339", "15:04:05", "2006", "YYYY-MM-DD"} {
		_, err := newTimeFormat(layout)
		require.Error(t, err, layout)
	}
}

func TestRFC3339AgainstTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(-62_167_219_200_000, 253_402_300_799_999).Draw(t, "ms"))
		offset := rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "offset")
		at = at.In(time.FixedZone("", offset*60))
		if at.Year() < 0 || at.Year() > 9999 {
			t.Skip()
		}
		text := at.Format(rapid.SampledFrom([]string{time.RFC3339, time.RFC3339Nano, "2006-01-02T15:04:05.000000Z07:00"}).Draw(t, "layout"))
		if i := rapid.IntRange(-30, len(text)-1).Draw(t, "spoil"); i >= 0 {
			b := []byte(text)
			b[i] = byte(rapid.SampledFrom([]rune("09:-+.TZ x")).Draw(t, "by"))
			text = string(b)
		}
		got, ok := parseRFC3339([]byte(text))
		var want time.Time
		err := want.UnmarshalText([]byte(text)) // strict, unlike time.Parse
		require.Equal(t, err == nil, ok, text)
		if ok {
			require.Equal(t, want.UnixMilli(), got, text)
		}
	})
}
