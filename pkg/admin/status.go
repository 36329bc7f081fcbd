package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reason is one check that fails.
type Reason struct {
	// Check is a short stable name: sink, table, discovery, restore, …
	Check string `json:"check"`
	// Reason is a sentence for people, with the innermost cause.
	Reason string `json:"reason"`
	// Since is when it began to fail; zero if that is not known.
	Since time.Time `json:"since,omitzero"`
}

// Status is one worker as it describes itself; /status is its JSON. Times are
// RFC 3339, absent where there is none. Counts of -1 mean unknown.
type Status struct {
	// Headline says it in words. Set by the server.
	Headline string `json:"headline"`
	// Now is the worker's clock, so that ages can be told. Set by the server.
	Now time.Time `json:"now"`

	Worker  string    `json:"worker"`
	Version string    `json:"version"`
	Started time.Time `json:"started,omitzero"`
	// TimeZone is the IANA name of the zone whose days are counted.
	TimeZone string `json:"time_zone"`

	// Ready and Reasons are what /readyz says. Set by the server.
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"`

	// CompleteUntil is the smallest of the partitions' complete-until: every
	// record of this worker's partitions up to then is durable.
	CompleteUntil time.Time `json:"complete_until,omitzero"`
	// PartitionsBehind counts assigned partitions that hold CompleteUntil back:
	// they have records that are not durable and older than a flush should need.
	PartitionsBehind int `json:"partitions_behind"`

	Partitions []Partition `json:"partitions"`
	Loads      Loads       `json:"loads"`
	Discovery  Discovery   `json:"discovery"`
	Table      Table       `json:"table"`
	// Measures are the names of the measures in the order configured.
	Measures []string `json:"measures"`
	// Totals are days × measures as the table has them, over all workers, oldest day first. They are read while somebody looks, so they
	// may lag by some seconds and are empty at the first look.
	Totals []DayTotals `json:"totals"`
}

// Partition is one assigned partition.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// State is restoring, running, paused, stopped or waiting; see Paused.
	State string `json:"state"`
	// Paused says why the partition is not read, one word per reason:
	// restore, buffer, deadletter, leader, …
	Paused []string `json:"paused"`
	// PausedSince is when the oldest of these reasons came.
	PausedSince time.Time `json:"paused_since,omitzero"`
	// Problem is a sentence for people if the partition needs one.
	Problem string `json:"problem,omitempty"`
	// Position is the next offset to count, Committed the group's, LogEnd the
	// end of what can be read, Lag the records between Position and LogEnd.
	Position  int64 `json:"position"`
	Committed int64 `json:"committed"`
	LogEnd    int64 `json:"log_end"`
	Lag       int64 `json:"lag"`
	// Watermark is the latest event time accepted.
	Watermark     time.Time `json:"watermark,omitzero"`
	CompleteUntil time.Time `json:"complete_until,omitzero"`
	// History is <start>.<epoch>-<program>, the rest of the source's name.
	History string `json:"history"`
	// Since is when State began.
	Since time.Time `json:"since,omitzero"`
}

// Loads is what the sink does.
type Loads struct {
	// Done counts loads StarRocks has confirmed since the start; the Last
	// fields are about the latest of them.
	Done        int64     `json:"done"`
	LastLabel   string    `json:"last_label"`
	LastRows    int64     `json:"last_rows"`
	LastAt      time.Time `json:"last_at,omitzero"`
	LastSeconds float64   `json:"last_seconds"`
	// InFlightSince is when the load under way was first tried; zero if none
	// is. Attempts counts its tries.
	InFlightSince time.Time `json:"in_flight_since,omitzero"`
	InFlightLabel string    `json:"in_flight_label,omitempty"`
	Attempts      int       `json:"attempts"`
	// LastError stays after a success, with the time it happened.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// Blocked says why no load can succeed until somebody mends the table.
	Blocked string `json:"blocked,omitempty"`
	// FlushInterval in seconds, as it is now: it widens on overload.
	FlushInterval float64 `json:"flush_interval_seconds"`
	// BufferBytes is what is counted and not durable, of at most BufferLimit.
	BufferBytes int64 `json:"buffer_bytes"`
	BufferLimit int64 `json:"buffer_limit"`
}

// Discovery is what is known of topics and partitions.
type Discovery struct {
	// Breaker is closed, open or half-open.
	Breaker     string    `json:"breaker"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	Brokers     int       `json:"brokers"`
	// Known counts partitions; the others say how many of them are in trouble.
	Known      int `json:"known"`
	Leaderless int `json:"leaderless"`
	Missing    int `json:"missing"`
	Gone       int `json:"gone"`
}

// Table is what is known of the table.
type Table struct {
	Name string `json:"name"`
	View string `json:"view,omitempty"`
	// Mode is TABLE_MODE.
	Mode string `json:"mode"`
	// State is a word: unknown, missing, creating, altering, ok, different.
	State string `json:"state"`
	// Difference says how the table differs from what is needed.
	Difference string    `json:"difference,omitempty"`
	CheckedAt  time.Time `json:"checked_at,omitzero"`
}

// DayTotals is one day.
type DayTotals struct {
	// Day is YYYY-MM-DD in Status.TimeZone.
	Day string `json:"day"`
	// Measures has the value by measure name.
	Measures map[string]int64 `json:"measures"`
}

// finish fills in what the server knows and brings lists into order, so that
// the page does not jump.
func (s Status) finish(now time.Time, reasons []Reason) Status {
	s.Now = now
	s.Reasons = append([]Reason{}, reasons...)
	s.Ready = len(reasons) == 0
	s.Partitions = append([]Partition{}, s.Partitions...)
	for i := range s.Partitions {
		s.Partitions[i].Paused = append([]string{}, s.Partitions[i].Paused...)
	}
	slices.SortFunc(s.Partitions, func(a, b Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	s.Measures = append([]string{}, s.Measures...)
	s.Totals = append([]DayTotals{}, s.Totals...)
	slices.SortFunc(s.Totals, func(a, b DayTotals) int { return strings.Compare(a.Day, b.Day) })
	s.Headline = headline(s)
	return s
}

// headline says in words what the page is opened for: are today's numbers
// complete, up to when, and if not, why.
func headline(s Status) string {
	var parts []string
	switch {
	case len(s.Partitions) == 0:
		parts = append(parts, "Idle: no partition is assigned to this worker")
	case s.CompleteUntil.IsZero():
		parts = append(parts, "Nothing is known to be complete yet")
	default:
		parts = append(parts, completeUntil(s))
	}
	if len(s.Partitions) > 0 && !s.CompleteUntil.IsZero() {
		held := heldUp(s)
		if s.PartitionsBehind > 0 || held == 0 {
			parts = append(parts, several(s.PartitionsBehind, "behind"))
		}
		if held > 0 {
			parts = append(parts, several(held, "held up"))
		}
	}
	text := strings.Join(parts, "; ")
	var failing []string
	for _, r := range s.Reasons { // their sentences stand below it
		if !slices.Contains(failing, r.Check) {
			failing = append(failing, r.Check)
		}
	}
	if len(failing) > 0 {
		text += ". Not ready: " + strings.Join(failing, ", ")
	}
	return text
}

// heldUp counts partitions that run and for which something is in the way.
func heldUp(s Status) (n int) {
	for _, p := range s.Partitions {
		if p.State == "running" && p.Problem != "" {
			n++
		}
	}
	return n
}

func several(n int, what string) string {
	switch n {
	case 0:
		return "no partition is " + what
	case 1:
		return "1 partition " + what
	default:
		return fmt.Sprintf("%d partitions %s", n, what)
	}
}

// completeUntil names the day as a person would, on the calendar of the zone
// that is counted.
func completeUntil(s Status) string {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		zone = time.UTC
	}
	at, now := s.CompleteUntil.In(zone), s.Now.In(zone)
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return "Today's DAU is complete up to " + at.Format(time.TimeOnly)
	}
	return "DAU is complete up to " + at.Format(time.DateTime) + " only"
}
