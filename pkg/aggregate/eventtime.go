package aggregate

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	year2000Ms = 946_684_800_000     // 2000-01-01T00:00:00Z
	year9999Ms = 253_370_764_800_000 // 9999-01-01T00:00:00Z; a DATE ends with that year, in any zone
	dayMs      = 86_400_000
)

// timeFormat is how the event time is written.
type timeFormat struct {
	kind   timeKind
	layout string // for timeLayout
	named  bool   // the layout has a zone's abbreviation
}

type timeKind uint8

const (
	timeUnixMs timeKind = iota + 1
	timeUnixS
	timeUnixUs
	timeRFC3339
	timeLayout
)

func newTimeFormat(name string) (timeFormat, error) {
	switch name {
	case "":
		return timeFormat{}, errors.New("an event time field needs a format")
	case "unix_ms":
		return timeFormat{kind: timeUnixMs}, nil
	case "unix_s":
		return timeFormat{kind: timeUnixS}, nil
	case "unix_us":
		return timeFormat{kind: timeUnixUs}, nil
	case "rfc3339":
		return timeFormat{kind: timeRFC3339}, nil
	}
	// A layout without reference elements prints itself, whatever the time; one that cannot tell two days apart is none either.
	a := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if a.Format(name) == a.AddDate(0, 0, 10).Format(name) {
		return timeFormat{}, fmt.Errorf("event time format %q is neither unix_ms, unix_s, unix_us, rfc3339 nor a Go layout with a date", name)
	}
	if _, err := time.Parse(name, a.Format(name)); err != nil {
		return timeFormat{}, fmt.Errorf("event time format %q cannot read what it writes: %w", name, err)
	}
	return timeFormat{kind: timeLayout, layout: name, named: strings.Contains(name, "MST")}, nil
}

// parse reads an event time as Unix ms; loc stands in for a zone the layout has not. Numbers may have a fraction, which is cut to
// milliseconds. A Go layout allocates, the others do not.
func (f timeFormat) parse(v *value, loc *time.Location) (ms int64, reason Reason) {
	if v.kind == kindNone || (v.kind == kindString && len(v.text) == 0) {
		return 0, ReasonNoTime
	}
	if v.kind != kindString && v.kind != kindNumber {
		return 0, ReasonBadTime
	}
	ok := false
	switch f.kind {
	case timeUnixMs:
		ms, ok = parseUnix(v.text, 0)
	case timeUnixS:
		ms, ok = parseUnix(v.text, 3)
	case timeUnixUs:
		ms, ok = parseUnix(v.text, -3)
	case timeRFC3339:
		ms, ok = parseRFC3339(v.text)
	case timeLayout:
		ms, ok = f.parseLayout(string(v.text), loc)
	}
	if !ok {
		return 0, ReasonBadTime
	}
	return ms, ""
}

// parseUnix reads a decimal × 10^scale.
func parseUnix(text []byte, scale int) (int64, bool) {
	if n, ok := plain(text, scale); ok {
		return n, true
	}
	d, ok := parseDecimal(text)
	if !ok {
		return 0, false
	}
	ms, _, fits := d.scaled(scale)
	return ms, fits
}

func (f timeFormat) parseLayout(text string, loc *time.Location) (int64, bool) {
	t, err := time.ParseInLocation(f.layout, text, loc)
	if err != nil {
		return 0, false
	}
	if f.named && t.Location() != loc {
		// For an abbreviation it does not know, Parse makes up a zone with offset 0. Better unreadable than hours off.
		if name, offset := t.Zone(); offset == 0 && name != "" && name != "UTC" && name != "GMT" {
			return 0, false
		}
	}
	return t.UnixMilli(), true
}

// parseRFC3339 reads YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm), the fraction cut to milliseconds.
func parseRFC3339(b []byte) (int64, bool) {
	if len(b) < len("2006-01-02T15:04:05Z") || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' {
		return 0, false
	}
	ok := true
	num := func(at, n, lo, hi int) int {
		v := 0
		for _, c := range b[at : at+n] {
			ok = ok && c-'0' <= 9
			v = v*10 + int(c-'0')
		}
		ok = ok && v >= lo && v <= hi
		return v
	}
	year, month := num(0, 4, 0, 9999), num(5, 2, 1, 12)
	if !ok {
		return 0, false
	}
	day := num(8, 2, 1, daysIn(year, month))
	hour, minute, second := num(11, 2, 0, 23), num(14, 2, 0, 59), num(17, 2, 0, 59)
	ms, at := 0, 19
	if b[at] == '.' {
		at++
		start := at
		for weight := 100; at < len(b) && b[at]-'0' <= 9; at++ {
			ms += int(b[at]-'0') * weight
			weight /= 10
		}
		ok = ok && at > start
	}
	offset := 0
	switch {
	case at+1 == len(b) && b[at] == 'Z':
	case at+6 == len(b) && (b[at] == '+' || b[at] == '-') && b[at+3] == ':':
		offset = num(at+1, 2, 0, 23)*60 + num(at+4, 2, 0, 59)
		if b[at] == '-' {
			offset = -offset
		}
	default:
		return 0, false
	}
	minutes := (daysFromCivil(year, month, day)*24+int64(hour))*60 + int64(minute) - int64(offset)
	return (minutes*60+int64(second))*1000 + int64(ms), ok
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

// daysFromCivil is the number of days from 1970-01-01 to a date of the proleptic Gregorian calendar. Years are counted from March, so
// that the leap day is their last.
func daysFromCivil(year, month, day int) int64 {
	y, m := int64(year), int64(month)
	if m <= 2 {
		y--
		m += 12
	}
	era := floorDiv(y, 400)
	yearOfEra := y - era*400
	dayOfYear := (153*(m-3)+2)/5 + int64(day) - 1
	return era*146097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 719468
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
