package aggregate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// civil is the day of an instant by the time package alone.
func civil(loc *time.Location, ms int64) Day {
	y, m, d := time.UnixMilli(ms).In(loc).Date()
	return Day(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

func TestSegmentsAgainstTime(t *testing.T) {
	for _, name := range []string{
		"UTC", "Asia/Shanghai", "Europe/Berlin", "Africa/Cairo", "Asia/Kathmandu", "America/St_Johns", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe",
		"Asia/Tehran", "America/Havana", "Africa/Casablanca", "Asia/Pyongyang", "Antarctica/Troll",
	} {
		t.Run(name, func(t *testing.T) {
			loc := zone(t, name)
			s := segmentAt(loc, year2000Ms)
			for s.end < 1_900_000_000_000 { // 2030
				for _, ms := range []int64{s.start, s.start + (s.end-s.start)/2, s.end - 1} {
					if day := civil(loc, ms); day != s.day || segmentAt(loc, ms) != s {
						t.Fatalf("%d is %s, not %s", ms, day, s.day)
					}
				}
				next := segmentAt(loc, s.end)
				if next.start != s.end {
					t.Fatalf("gap or overlap at %d", s.end)
				}
				s = next
			}
		})
	}
}

// hours adds up how long a day of a zone is.
func hours(loc *time.Location, day string) float64 {
	d, err := ParseDay(day)
	if err != nil {
		panic(err)
	}
	var ms int64
	from := int64(d)*dayMs - 2*dayMs
	for s := segmentAt(loc, from); s.start < from+4*dayMs; s = segmentAt(loc, s.end) {
		if s.day == d {
			ms += s.end - s.start
		}
	}
	return float64(ms) / 3_600_000
}

func TestDaysHaveTheirHours(t *testing.T) {
	for _, tt := range []struct {
		zone, day string
		want      float64
	}{
		{"Asia/Shanghai", "2026-03-29", 24},
		{"Asia/Kathmandu", "2026-03-29", 24},
		{"Europe/Berlin", "2026-03-29", 23},
		{"Europe/Berlin", "2026-10-25", 25},
		{"Africa/Cairo", "2026-04-24", 23}, // 00:00 does not exist
		{"Africa/Cairo", "2026-10-29", 25}, // 23:00…24:00 twice
		{"Africa/Cairo", "2026-10-30", 24},
		{"Pacific/Apia", "2011-12-30", 0}, // skipped
		{"Australia/Lord_Howe", "2026-10-04", 23.5},
	} {
		require.InDelta(t, tt.want, hours(zone(t, tt.zone), tt.day), 0, "%s %s", tt.zone, tt.day)
	}
}

func TestDayBoundaries(t *testing.T) {
	for _, tt := range []struct{ zone, at, want string }{
		{"Asia/Shanghai", "2026-09-21T15:59:59Z", "2026-09-21"},
		{"Asia/Shanghai", "2026-09-21T16:00:00Z", "2026-09-22"},
		{"Asia/Kathmandu", "2026-09-21T18:14:59Z", "2026-09-21"},
		{"Asia/Kathmandu", "2026-09-21T18:15:00Z", "2026-09-22"},
		{"Europe/Berlin", "2026-03-28T22:59:59Z", "2026-03-28"},
		{"Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29"},
		{"Europe/Berlin", "2026-03-29T21:59:59Z", "2026-03-29"},
		{"Europe/Berlin", "2026-03-29T22:00:00Z", "2026-03-30"},
		{"Europe/Berlin", "2026-10-24T21:59:59Z", "2026-10-24"},
		{"Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25"},
		{"Europe/Berlin", "2026-10-25T22:59:59Z", "2026-10-25"},
		{"Europe/Berlin", "2026-10-25T23:00:00Z", "2026-10-26"},
		{"Africa/Cairo", "2026-04-23T21:59:59Z", "2026-04-23"},
		{"Africa/Cairo", "2026-04-23T22:00:00Z", "2026-04-24"}, // 01:00 local
		{"Africa/Cairo", "2026-04-24T20:59:59Z", "2026-04-24"},
		{"Africa/Cairo", "2026-04-24T21:00:00Z", "2026-04-25"},
		{"Africa/Cairo", "2026-10-29T20:59:59Z", "2026-10-29"}, // 23:59:59, first time
		{"Africa/Cairo", "2026-10-29T21:59:59Z", "2026-10-29"}, // 23:59:59, second time
		{"Africa/Cairo", "2026-10-29T22:00:00Z", "2026-10-30"},
	} {
		at, err := time.Parse(time.RFC3339, tt.at)
		require.NoError(t, err)
		require.Equal(t, tt.want, segmentAt(zone(t, tt.zone), at.UnixMilli()).day.String(), "%s %s", tt.zone, tt.at)
	}
}

func TestFirstDayWhereTheClockGoesBackOverMidnight(t *testing.T) {
	loc := zone(t, "America/St_Johns") // until 2011 at 00:01
	at := time.Date(2006, 10, 29, 0, 0, 30, 0, loc).UnixMilli()
	require.Equal(t, "2006-10-29", segmentAt(loc, at).day.String())
	require.Equal(t, "2006-10-28", firstDayFrom(loc, at).String(), "a minute later it is Saturday again")
	require.Equal(t, "2006-10-29", firstDayFrom(loc, at+2*3_600_000).String())
}

func TestDayText(t *testing.T) {
	d, err := ParseDay("2026-09-21 00:00:00")
	require.NoError(t, err)
	require.Equal(t, "2026-09-21", d.String())
	_, err = ParseDay("2026-09-31")
	require.Error(t, err)
}
