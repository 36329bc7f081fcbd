// Package oracle makes events whose aggregates are known, and compares a table with them. It is what the demo, the tests with real
// brokers and the benchmarks check the worker against, so it shares no code with the worker: maps and plain integers, no merging.
//
// Nothing here is safe for concurrent use unless it says so.
package oracle

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Event is one page view.
type Event struct {
	User     uint64
	Platform string
	Channel  string
	// Cents is an amount in hundredths.
	Cents int64
	At    time.Time
}

// AppendJSON appends the event as the topic carries it: about 240 bytes, most of which nobody asked for.
func (e Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"event":"page_view","user_id":`...)
	dst = strconv.AppendUint(dst, e.User, 10)
	dst = append(dst, `,"platform":"`...)
	dst = append(dst, e.Platform...)
	dst = append(dst, `","session":"6b1f0c52-8f0e-4b5e-9a35-3c8e2f6d7a10","props":{"channel":"`...)
	dst = append(dst, e.Channel...)
	dst = append(dst, `","page":"/shop/items/4711","ref":null},"amount":`...)
	dst = strconv.AppendInt(dst, e.Cents/100, 10)
	dst = append(dst, '.')
	if c := e.Cents % 100; c < 10 {
		dst = append(dst, '0')
	}
	dst = strconv.AppendInt(dst, e.Cents%100, 10)
	dst = append(dst, `,"ts":`...)
	dst = strconv.AppendInt(dst, e.At.UnixMilli(), 10)
	return append(dst, `,"app":"5.12.0","country":"DE"}`...)
}

// Settings are the worker's environment variables that count these events: dimensions platform and channel; uv, pv, amount, least and
// most.
func Settings() map[string]string {
	return map[string]string{
		"EVENT_TIME_FIELD":     "ts",
		"AGGREGATE_DIMENSIONS": "platform,channel=props.channel",
		"AGGREGATE_MEASURES":   "uv=distinct(user_id),pv=count,amount=sum(amount,2),least=min(amount,2),most=max(amount,2)",
	}
}

// Generator makes events from a seed: the same seed, the same events.
type Generator struct {
	r     *rand.Rand
	users uint64
	first time.Time
	span  time.Duration
}

// NewGenerator makes events of the given number of users, at times spread over [first, first+span).
func NewGenerator(seed uint64, users uint64, first time.Time, span time.Duration) *Generator {
	return &Generator{r: rand.New(rand.NewPCG(seed, 7)), users: users, first: first, span: span} //nolint:gosec // repeatable on purpose
}

// Next makes one event.
func (g *Generator) Next() Event {
	platforms := [...]string{"ios", "android", "web"}
	channels := [...]string{"organic", "ads", "mail", "partner"}
	return Event{
		User:     g.r.Uint64N(g.users),
		Platform: platforms[g.r.IntN(len(platforms))],
		Channel:  channels[g.r.IntN(len(channels))],
		Cents:    g.r.Int64N(20000),
		At:       g.first.Add(time.Duration(g.r.Int64N(int64(g.span)))).Truncate(time.Millisecond),
	}
}

// Key is one row of the result.
type Key struct{ Day, Platform, Channel string }

// Row is one row's values.
type Row struct {
	Key
	UV, PV, Amount, Least, Most int64
}

// Truth is what the table must say.
type Truth struct {
	zone *time.Location
	rows map[Key]*truthRow
	n    int64
}

type truthRow struct {
	Row
	users map[uint64]struct{}
}

// NewTruth counts days of the zone.
func NewTruth(zone *time.Location) *Truth { return &Truth{zone: zone, rows: map[Key]*truthRow{}} }

// Add counts an event.
func (t *Truth) Add(e Event) { t.AddTimes(e, 1) }

// AddTimes counts an event that the topic has n times, n at least 1.
func (t *Truth) AddTimes(e Event, n int64) {
	k := Key{e.At.In(t.zone).Format(time.DateOnly), e.Platform, e.Channel}
	r := t.rows[k]
	if r == nil {
		r = &truthRow{Row: Row{Key: k, Least: e.Cents, Most: e.Cents}, users: map[uint64]struct{}{}}
		t.rows[k] = r
	}
	r.users[e.User] = struct{}{}
	r.PV += n
	r.Amount += n * e.Cents
	r.Least, r.Most = min(r.Least, e.Cents), max(r.Most, e.Cents)
	t.n += n
}

// Events is how many were added.
func (t *Truth) Events() int64 { return t.n }

// Rows is the expected table, in order of the key.
func (t *Truth) Rows() []Row {
	out := make([]Row, 0, len(t.rows))
	for _, r := range t.rows {
		r.UV = int64(len(r.users))
		out = append(out, r.Row)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.Channel, b.Channel))
	})
	return out
}

// Diff lists how got differs from the truth, one line per row, nil if it does not.
func (t *Truth) Diff(got []Row) []string {
	have := make(map[Key]Row, len(got))
	var out []string
	for _, r := range got {
		if _, twice := have[r.Key]; twice {
			out = append(out, fmt.Sprintf("%v: there twice", r.Key))
		}
		have[r.Key] = r
	}
	for _, want := range t.Rows() {
		r, ok := have[want.Key]
		delete(have, want.Key)
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%v: missing, want %+v", want.Key, want))
		case r != want:
			out = append(out, fmt.Sprintf("%v: got uv=%d pv=%d amount=%d least=%d most=%d, want uv=%d pv=%d amount=%d least=%d most=%d", want.Key,
				r.UV, r.PV, r.Amount, r.Least, r.Most, want.UV, want.PV, want.Amount, want.Least, want.Most))
		}
	}
	for k := range have {
		out = append(out, fmt.Sprintf("%v: not in the truth", k))
	}
	slices.Sort(out)
	return out
}
