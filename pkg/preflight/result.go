package preflight

import (
	"fmt"
	"strings"
)

// Part is what a result is about.
type Part int

// The parts.
const (
	Kafka Part = iota + 1
	StarRocks
	Checkpoint
)

// Level says how bad a result is.
type Level int

// The levels.
const (
	// OK: as expected.
	OK Level = iota + 1
	// Warn: worth a look, but the worker can do its work.
	Warn
	// Fail: the worker cannot.
	Fail
)

// Result is one thing that was tried.
type Result struct {
	Part  Part
	Level Level
	// Name is what was tried, such as "broker kafka-0:9092".
	Name string
	// Detail is what was found, if Level is OK, else the cause.
	Detail string
	// Remedy is what to do about it; empty if Level is OK.
	Remedy string
	// Outage says that time may mend it: something did not answer. Else somebody has to change something.
	Outage bool
}

// String is the line for people: "ok    name: detail", "warn  name: cause — remedy" or "FAIL  name: cause — remedy".
func (r Result) String() string {
	word := map[Level]string{OK: "ok  ", Warn: "warn", Fail: "FAIL"}[r.Level]
	text := r.Name
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	if r.Remedy != "" {
		text += " — " + r.Remedy
	}
	return word + "  " + strings.Join(strings.Fields(text), " ") // servers' messages have line breaks
}

// fault is why something failed and what to do.
type fault struct {
	cause, remedy string
	// outage: time may mend it.
	outage bool
	// ungranted: it is a right on the table that is missing.
	ungranted bool
}

// lines collects results of one part.
type lines struct {
	part Part
	all  []Result
}

func (l *lines) ok(name, format string, args ...any) {
	l.all = append(l.all, Result{Part: l.part, Level: OK, Name: name, Detail: fmt.Sprintf(format, args...)})
}

func (l *lines) add(level Level, name string, f fault) {
	l.all = append(l.all, Result{Part: l.part, Level: level, Name: name, Detail: f.cause, Remedy: f.remedy, Outage: f.outage})
}

func (l *lines) fail(name string, f fault) { l.add(Fail, name, f) }

// attempt is how one of several equal addresses did; fault is nil if it works.
type attempt struct {
	name, detail string
	fault        *fault
}

// equals says how several equal addresses did: one that fails is a warning while another works.
func (l *lines) equals(all []attempt) (works int) {
	for _, a := range all {
		if a.fault == nil {
			works++
		}
	}
	for _, a := range all {
		switch {
		case a.fault == nil:
			l.ok(a.name, "%s", a.detail)
		case works > 0:
			l.add(Warn, a.name, *a.fault)
		default:
			l.fail(a.name, *a.fault)
		}
	}
	return works
}
