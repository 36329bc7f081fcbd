package main

import (
	"strconv"
	"time"

	"rollcall/pkg/oracle"
)

// The kinds of workload.
const (
	// speedEvents is what a product sends: few keys, every user seen many times.
	speedEvents = "speed"
	// memoryIDs has many users in 100 keys of one day, each user in one key; ids are integers that are spread thinly.
	memoryIDs = "memory"
	// memoryHashes is the same with the ids hashed to 64 bits.
	memoryHashes = "memory, 64-bit hashes"
	// startKeys has as many keys as users, each in one partition: what a worker has to restore when it starts.
	startKeys = "start"
)

const (
	topic           = "events"
	partitions      = 8
	startPartitions = 64
	seed            = 20_000 // any
)

// workload is a fixed sequence of events: every process that is given one makes the same.
type workload struct {
	Kind    string
	Events  int
	Users   int
	FirstMs int64 // midnight UTC of the first day
	Days    int
}

// newWorkload makes days that end at the last midnight, so that no event is late or in the future.
func newWorkload(kind string, events, users int, now time.Time) workload {
	days := 1
	if kind == speedEvents {
		days = 2 // around midnight there are always two
	}
	first := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	return workload{Kind: kind, Events: events, Users: users, FirstMs: first.UnixMilli(), Days: days}
}

// each yields the events until yield returns false.
func (w workload) each(yield func(e oracle.Event) bool) {
	g := oracle.NewGenerator(seed, uint64(w.Users), time.UnixMilli(w.FirstMs).UTC(), time.Duration(w.Days)*24*time.Hour) //nolint:gosec // positive
	for i := range w.Events {
		e := g.Next()
		switch w.Kind {
		case speedEvents:
		case startKeys:
			u := uint64(i % w.Users) //nolint:gosec // positive
			e.User = u
			e.Platform, e.Channel = "platform-"+strconv.FormatUint(u%100, 10), "channel-"+strconv.FormatUint(u/100, 10)
		default:
			// Every user once, then all again, in an order that jumps; the generator's amount and time stay.
			u := uint64(i) * 7_368_787 % uint64(w.Users) //nolint:gosec // positive; a prime, so it visits all of any smaller number
			e.User = 1_000_000 + u*83
			e.Platform, e.Channel = "platform-"+strconv.FormatUint(u%10, 10), "channel-"+strconv.FormatUint(u/10%10, 10)
		}
		if !yield(e) {
			return
		}
	}
}

func (w workload) partitions() int32 {
	if w.Kind == startKeys {
		return startPartitions
	}
	return partitions
}

// partitionOf keeps a user in one partition, as producers that set a key do.
func (w workload) partitionOf(e oracle.Event) int32 {
	return int32(e.User * 0x9E3779B97F4A7C15 >> 32 % uint64(w.partitions())) //nolint:gosec // small
}

// truth is what the table must say in the end.
func (w workload) truth() *oracle.Truth {
	t := oracle.NewTruth(time.UTC)
	w.each(func(e oracle.Event) bool { t.Add(e); return true })
	return t
}

// settings are the worker's variables that count the events.
func (w workload) settings() map[string]string {
	s := oracle.Settings()
	if w.Kind == memoryHashes {
		s["AGGREGATE_MEASURES"] = "uv=distinct_hash(user_id)" + s["AGGREGATE_MEASURES"][len("uv=distinct(user_id)"):]
	}
	return s
}
