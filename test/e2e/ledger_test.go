package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/workerproc"
)

// ledger checks at the end of every scenario that rollcall_load_rows_total counts what StarRocks took, and nothing else. Every start of a
// worker has labels of its own, so the comparison is by start:
//
//   - a worker that still runs: equal, once its last load is answered;
//   - one that ended with everything durable: equal (its last line has the number, since no scrape can come after it);
//   - one that was killed, or gave up with a load open: at most as much, since StarRocks may have taken what it never heard of.
//
// And a label names one body: what was sent again under it was the same, byte for byte.
func (r *rig) ledger(p *workerproc.Process, name string) {
	r.t.Helper()
	bodies := map[string]string{}
	for _, l := range r.rocks.Loads() {
		if l.SHA256 == "" {
			continue // it never came completely
		}
		if first, again := bodies[l.Label]; again {
			require.Equal(r.t, first, l.SHA256, "label %s", l.Label)
		}
		bodies[l.Label] = l.SHA256
	}
	final, last := map[string]int64{}, map[string]int64{}
	for line := range strings.Lines(p.Tail(256 << 20)) {
		var e struct {
			Msg, Labels string
			Rows        int64
		}
		if !strings.Contains(line, `"labels"`) || json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		switch {
		case strings.HasPrefix(e.Msg, "stopped: everything"):
			final[e.Labels] = e.Rows
		case strings.HasPrefix(e.Msg, "rows were not durable"):
			last[e.Labels] = e.Rows
		}
	}
	r.mu.Lock()
	for labels, rows := range r.seen {
		last[labels] = max(last[labels], rows)
	}
	r.mu.Unlock()
	if labels := r.settled(p); labels != "" {
		final[labels] = r.accepted(labels)
	}
	total := int64(0)
	for labels, rows := range last {
		if strings.HasPrefix(labels, name+"-") {
			require.LessOrEqual(r.t, rows, r.accepted(labels), "rows counted by the start of %s with labels %s, and rows StarRocks took from it", name, labels)
		}
	}
	for labels, rows := range final {
		total += rows
		require.Equal(r.t, r.accepted(labels), rows, "rows StarRocks took from the start of %s with labels %s, and rows it counted", name, labels)
	}
	r.t.Logf("ledger of %s: %d starts known to the end, %d rows counted and taken", name, len(final), total)
}

// settled waits until a running worker counts exactly the rows that StarRocks took from it, and returns what its labels begin with; empty
// if it does not run or has loaded nothing.
func (r *rig) settled(p *workerproc.Process) string {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if p.Alive() != nil {
			return ""
		}
		labels, rows, ok := r.counted(p)
		if !ok || labels == "" && rows == 0 {
			return ""
		}
		taken := r.accepted(labels)
		if rows == taken {
			return labels
		}
		require.True(r.t, time.Now().Before(end), "the worker counted %d rows under labels %s, StarRocks took %d", rows, labels, taken)
	}
}

// counted asks a running worker for its labels and its rows, and remembers them in case it is killed; not ok if it does not run.
func (r *rig) counted(p *workerproc.Process) (labels string, rows int64, ok bool) {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context()) // it has ended when the test cleans up
	m, err := p.Metrics(ctx)
	if err != nil {
		return "", 0, false
	}
	rows = int64(m.Sum("rollcall_load_rows_total"))
	code, body, err := p.Get(ctx, "/status")
	if err != nil || code != 200 {
		return "", 0, false
	}
	var s struct {
		Loads struct {
			LastLabel string `json:"last_label"`
		} `json:"loads"`
	}
	require.NoError(r.t, json.Unmarshal(body, &s))
	if i := strings.LastIndexByte(s.Loads.LastLabel, '-'); i > 0 {
		labels = s.Loads.LastLabel[:i]
		r.mu.Lock()
		r.seen[labels] = max(r.seen[labels], rows)
		r.mu.Unlock()
	}
	return labels, rows, true
}

// accepted is how many rows the stand-in took under labels that begin so.
func (r *rig) accepted(labels string) int64 {
	n := int64(0)
	loads, _ := r.rocks.Committed()
	for _, l := range loads {
		if strings.HasPrefix(l.Label, labels+"-") {
			n += int64(l.Loaded)
		}
	}
	return n
}
