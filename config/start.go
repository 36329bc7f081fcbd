package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The modes of Start and Stop.
const (
	ModeNone      = "" // of Stop: the worker runs until it is stopped
	ModeEarliest  = "earliest"
	ModeLatest    = "latest"
	ModeGroup     = "group"
	ModeTimestamp = "timestamp"
	ModeOffsets   = "offsets"
)

// Start is where the very first start begins.
type Start struct {
	Mode    string                     // earliest, latest, group, timestamp or offsets
	At      time.Time                  // for ModeTimestamp: the first record at or after it
	Offsets map[string]map[int32]int64 // for ModeOffsets: the next offset by topic and partition
}

// Stop is where a bounded run ends.
type Stop struct {
	Mode string    // none, latest or timestamp
	At   time.Time // for ModeTimestamp: before the first record at or after it
}

const (
	startFormat = "earliest, latest, group, timestamp:<RFC 3339> or offsets:<topic>/<partition>=<offset>;…"
	stopFormat  = "latest or timestamp:<RFC 3339>"
)

func (s *Start) format() string { return startFormat }

func (s *Start) set(text string) []Problem {
	switch word := strings.ToLower(text); word {
	case ModeEarliest, ModeLatest, ModeGroup:
		*s = Start{Mode: word}
		return nil
	}
	if at, ok := strings.CutPrefix(text, "timestamp:"); ok {
		t, problems := parseTimestamp(text, at, startFormat)
		*s = Start{Mode: ModeTimestamp, At: t}
		return problems
	}
	if offsets, ok := strings.CutPrefix(text, "offsets:"); ok {
		*s = Start{Mode: ModeOffsets, Offsets: make(map[string]map[int32]int64)}
		return s.setOffsets(text, offsets)
	}
	return bad(quote(text), startFormat, "write one of these words")
}

func (s *Start) setOffsets(text, offsets string) []Problem {
	var problems []Problem
	for item := range strings.SplitSeq(offsets, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		topic, partition, offset, err := parseOffset(item)
		if err == nil && s.has(topic, partition) {
			err = fmt.Errorf("stands there twice")
		}
		if err != nil {
			problems = append(problems, bad(quote(item)+" "+err.Error(), startFormat, "write for example offsets:events/0=120;events/1=98")...)
			continue
		}
		if s.Offsets[topic] == nil {
			s.Offsets[topic] = make(map[int32]int64)
		}
		s.Offsets[topic][partition] = offset
	}
	if len(s.Offsets) == 0 && problems == nil {
		return bad(quote(text)+" names no partition", startFormat, "write for example offsets:events/0=120;events/1=98")
	}
	return problems
}

func (s *Start) has(topic string, partition int32) bool {
	_, ok := s.Offsets[topic][partition]
	return ok
}

func parseOffset(item string) (topic string, partition int32, offset int64, err error) {
	where, number, ok := strings.Cut(item, "=")
	if !ok {
		return "", 0, 0, fmt.Errorf("has no offset")
	}
	topic, index, ok := strings.Cut(strings.TrimSpace(where), "/")
	if !ok || !isTopic(topic) {
		return "", 0, 0, fmt.Errorf("does not begin with <topic>/<partition>")
	}
	p, err := strconv.ParseUint(strings.TrimSpace(index), 10, 31)
	if err != nil {
		return "", 0, 0, fmt.Errorf("has a partition that is not a number from 0")
	}
	offset, err = strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || offset < 0 || offset == math.MaxInt64 {
		return "", 0, 0, fmt.Errorf("has an offset that is not a number from 0")
	}
	return topic, int32(p), offset, nil
}

func (s *Stop) format() string { return stopFormat }

func (s *Stop) set(text string) []Problem {
	if strings.EqualFold(text, ModeLatest) {
		*s = Stop{Mode: ModeLatest}
		return nil
	}
	if at, ok := strings.CutPrefix(text, "timestamp:"); ok {
		t, problems := parseTimestamp(text, at, stopFormat)
		*s = Stop{Mode: ModeTimestamp, At: t}
		return problems
	}
	return bad(quote(text), stopFormat, "leave it out to run until stopped")
}

// parseTimestamp reads an RFC 3339 time Kafka can be asked for: not before
// 1970, because a negative timestamp has another meaning to a broker.
func parseTimestamp(text, at, allowed string) (time.Time, []Problem) {
	t, err := time.Parse(time.RFC3339, strings.TrimSpace(at))
	switch {
	case err != nil:
		return time.Time{}, bad(quote(text)+" is no RFC 3339 time with a zone", allowed, "write for example timestamp:2026-01-31T00:00:00Z")
	case t.UnixMilli() < 0:
		return time.Time{}, bad(quote(text)+" is before 1970", allowed, "write earliest to begin with the first record")
	}
	return t, nil
}
