package aggregate

import "time"

// segment is a stretch of time that lies within one calendar day of a zone. A day is one segment, or several if the zone's offset
// changes during it: days have 23, 24 or 25 hours, and may begin at 01:00 or end at 23:00.
type segment struct {
	start, end int64 // Unix ms, end exclusive
	day        Day
}

// segmentAt finds the segment that contains ms, from the zone's offset there and its validity. It never asks for "midnight", which
// some days have twice and some not at all.
func segmentAt(loc *time.Location, ms int64) segment {
	t := time.UnixMilli(ms).In(loc)
	_, seconds := t.Zone()
	offset := int64(seconds) * 1000
	day := floorDiv(ms+offset, dayMs)
	s := segment{start: day*dayMs - offset, end: (day+1)*dayMs - offset, day: Day(day)}
	from, until := t.ZoneBounds()
	if !from.IsZero() {
		s.start = max(s.start, from.UnixMilli())
	}
	if !until.IsZero() {
		s.end = min(s.end, until.UnixMilli())
	}
	return s
}

// firstDayFrom is the smallest day of any time ≥ ms. That is the day of ms, unless the clock goes back over midnight soon after.
func firstDayFrom(loc *time.Location, ms int64) Day {
	first := segmentAt(loc, ms).day
	if _, until := time.UnixMilli(ms).In(loc).ZoneBounds(); !until.IsZero() && until.UnixMilli()-ms < 2*dayMs {
		first = min(first, segmentAt(loc, until.UnixMilli()).day)
	}
	return first
}
