package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/admin"
	"rollcall/pkg/discovery"
	"rollcall/pkg/source"
)

// behindAfter is how old the oldest record that is not durable may be before its partition counts as behind on the status page.
const behindAfter = time.Minute

// liveLimit is how long a loop may stand still before the process counts as dead: far above any deadline of what a loop waits for.
const liveLimit = 2 * time.Minute

// live names the loops that are stuck for good. It looks at nothing outside the process, so that an outage elsewhere never restarts it.
func (r *Worker) live() []admin.Stale {
	stale := r.beats.Stale()
	w := r.running.Load()
	if w == nil {
		return stale
	}
	add := func(name string, d time.Duration) {
		if d > liveLimit {
			stale = append(stale, admin.Stale{Name: name, For: d, Limit: liveLimit})
		}
	}
	if w.member.answered.Load() { // before, there may be no whole client to ask
		if last := w.source.Status().LastPoll; !last.IsZero() {
			add("source", time.Since(last))
		}
	}
	for _, o := range w.owners.all() {
		if o.view.Load().state == stateRunning {
			add("partition "+o.p.String(), o.mailbox.stuckFor())
		}
	}
	return stale
}

// ready lists the checks that fail, none for a ready worker. It reads views only and never waits for another goroutine's work.
func (r *Worker) ready(context.Context) []admin.Reason {
	w := r.running.Load()
	if w == nil {
		waits := r.startup.all()
		out := make([]admin.Reason, 0, len(waits)+1)
		for _, what := range slices.Sorted(maps.Keys(waits)) {
			out = append(out, admin.Reason{Check: what, Reason: waits[what].Error(), Since: r.started})
		}
		if len(out) == 0 {
			out = append(out, admin.Reason{Check: "start", Reason: "starting", Since: r.started})
		}
		return out
	}
	var out []admin.Reason
	out = append(out, w.readyTable()...)
	out = append(out, w.readySink()...)
	out = append(out, w.readyKafka()...)
	out = append(out, w.readyPartitions()...)
	if len(out) == 0 {
		w.ready.Store(true)
	}
	return out
}

// readyLoop notices when the worker becomes ready or ceases to be, whether or not anybody asks, and says so.
func (r *Worker) readyLoop(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	said := "starting"
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		reasons := r.ready(ctx)
		checks := make([]string, len(reasons))
		for i, re := range reasons {
			checks[i] = re.Check
		}
		now := strings.Join(checks, ",")
		switch {
		case now == said:
		case now == "":
			r.opt.Log.Info("ready")
		case said != "starting":
			r.opt.Log.Warn("not ready", zap.Strings("checks", checks), zap.String("reason", reasons[0].Reason))
		}
		if now == "" || said != "starting" {
			said = now
		}
	}
}

func (w *worker) readyTable() []admin.Reason {
	if s := w.table.Status(); s.Err != nil {
		return []admin.Reason{{Check: "table", Reason: s.Err.Error(), Since: s.CheckedAt}}
	}
	return nil
}

func (w *worker) readySink() []admin.Reason {
	var out []admin.Reason
	if s := w.flusher.Status(); s.Blocked != "" {
		out = append(out, admin.Reason{Check: "sink", Reason: string(s.Blocked) + ": " + s.BlockedDetail, Since: s.BlockedSince})
	}
	if w.letters != nil {
		if s := w.letters.Status(); s.Err != nil {
			return append(out, admin.Reason{Check: "deadletter", Reason: "the dead-letter topic refuses records: " + s.Err.Error(), Since: s.Since})
		}
		for _, o := range w.owners.all() {
			if since, stuck := o.letters.stuck(); stuck {
				reason := fmt.Sprintf("the dead-letter topic does not confirm the records of %s; its offset waits for them", o.p)
				return append(out, admin.Reason{Check: "deadletter", Reason: reason, Since: since})
			}
		}
	}
	return out
}

func (w *worker) readyKafka() []admin.Reason {
	var out []admin.Reason
	if since, err := w.denied.get(); err != nil {
		out = append(out, admin.Reason{Check: "kafka", Reason: "access denied: " + err.Error(), Since: since})
	}
	if since, err := w.groupLost.get(); err != nil && time.Since(since) > joinGrace {
		out = append(out, admin.Reason{Check: "kafka", Reason: "the group session is lost, joining again: " + err.Error(), Since: since})
	}
	if reason := w.nothingMatches(); reason != "" {
		out = append(out, admin.Reason{Check: "kafka", Reason: reason, Since: w.started})
	} else if !w.owners.hasJoined() && time.Since(w.started) > joinGrace {
		reason := "the group has given no assignment yet"
		if s := w.source.Status(); s.LastError != "" {
			reason += ": " + s.LastError
		}
		out = append(out, admin.Reason{Check: "kafka", Reason: reason, Since: w.started})
	} else if !w.owners.hasJoined() {
		out = append(out, admin.Reason{Check: "kafka", Reason: "joining the group", Since: w.started})
	}
	if gone := w.goneTopics(); len(gone) > 0 {
		reason := "gone from Kafka: " + strings.Join(gone, ", ") + "; what was counted stays, and the topic is read again when it is there"
		out = append(out, admin.Reason{Check: "topic", Reason: reason})
	}
	d := w.discovery.Status()
	// Discovery waits with its breaker open when brokers are back, and where it alone fails nothing that exists is left unread.
	if d.FailedRounds >= w.opt.Config.Discovery.BreakerFailures && w.member.silent() {
		out = append(out, admin.Reason{Check: "discovery", Reason: "no broker answers: " + d.LastError, Since: d.LastSuccess})
	}
	return out
}

// joinGrace is how long joining the group may take before the last error of the client is shown with it, and how long joining it again may
// take before the worker is not ready.
const joinGrace = 10 * time.Second

// readyPartitions gives one reason per kind of trouble, naming the partitions.
func (w *worker) readyPartitions() []admin.Reason {
	type group struct {
		names []string
		first admin.Reason
	}
	kinds := map[ownerState]*group{}
	for _, o := range w.owners.all() {
		v := o.view.Load()
		trouble := v.state == stateRestoring || v.state == stateRefused || v.state == stateStopped || v.state == stateRunning && v.reason != ""
		if !trouble {
			continue
		}
		g := kinds[v.state]
		if g == nil {
			reason := v.reason
			if reason == "" {
				reason = string(v.state)
			}
			g = &group{first: admin.Reason{Check: "partition_" + string(v.state), Reason: reason, Since: v.since}}
			kinds[v.state] = g
		}
		g.names = append(g.names, o.p.String())
	}
	var out []admin.Reason
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		g := kinds[k]
		names := g.names
		more := ""
		if len(names) > 5 {
			more = fmt.Sprintf(" and %d more", len(names)-5)
			names = names[:5]
		}
		g.first.Reason = strings.Join(names, ", ") + more + ": " + g.first.Reason
		out = append(out, g.first)
	}
	return out
}

// status describes the worker for the status page.
func (r *Worker) status(context.Context) (admin.Status, error) {
	cfg := r.opt.Config
	s := admin.Status{Worker: cfg.Worker, Version: r.opt.Version, Started: r.started, TimeZone: cfg.Aggregate.TimeZone.String()}
	ts := r.parts.table.Status()
	s.Table = admin.Table{Name: ts.Table, View: ts.View, Mode: string(ts.Mode), State: "unknown", CheckedAt: ts.CheckedAt}
	switch {
	case ts.Err != nil:
		s.Table.State, s.Table.Difference = "different", ts.Err.Error()
	case ts.Ready:
		s.Table.State = "ok"
	}
	d := r.parts.discovery.Status()
	s.Discovery = admin.Discovery{
		Breaker: d.Breaker, LastSuccess: d.LastSuccess, Brokers: d.Brokers, LastError: d.LastError,
		Known: d.Partitions.Known, Leaderless: d.Partitions.Leaderless, Missing: d.Partitions.Missing, Gone: d.Partitions.Gone,
	}
	if d.LastError != "" {
		s.Discovery.LastErrorAt = d.LastRound
	}
	if w := r.running.Load(); w != nil {
		w.describe(&s)
	}
	return s, nil
}

func (w *worker) describe(s *admin.Status) {
	f := w.flusher.Status()
	s.Totals = w.totals.get()
	for _, m := range w.program.Measures() {
		s.Measures = append(s.Measures, m.Name)
	}
	s.Loads = admin.Loads{
		Done:      f.Done,
		LastLabel: f.Last.Label, LastRows: int64(f.Last.Rows), LastAt: f.Last.At, LastSeconds: f.Last.Duration.Seconds(),
		InFlightSince: f.InFlight.Since, InFlightLabel: f.InFlight.Label, Attempts: f.InFlight.Attempts,
		LastError: f.LastError, LastErrorAt: f.LastErrorAt, FlushInterval: f.Interval.Seconds(), BufferBytes: f.Bytes, BufferLimit: w.opt.bufferMax(),
	}
	if f.Blocked != "" {
		s.Loads.Blocked = string(f.Blocked) + ": " + f.BlockedDetail
	}
	src := map[source.Partition]source.PartitionStatus{}
	var failing map[string]time.Time
	if w.member.answered.Load() {
		st := w.source.Status()
		failing = st.Failing
		for _, p := range st.Partitions {
			src[p.Partition] = p
		}
	}
	leaders := w.discovery.Snapshot()
	now := time.Now()
	for _, o := range w.owners.all() {
		v, until := o.view.Load(), w.complete.get(o.p)
		p := w.describePartition(o, v, src[o.p], until)
		if p.Problem == "" {
			p.Problem = leaderProblem(leaders, o.p, failing)
		}
		s.Loads.BufferBytes += v.deltaBytes
		s.Partitions = append(s.Partitions, p)
		if !until.IsZero() && (s.CompleteUntil.IsZero() || until.Before(s.CompleteUntil)) {
			s.CompleteUntil = until
		}
		if now.Sub(until) > behindAfter || v.state != stateRunning && v.state != stateFinished {
			s.PartitionsBehind++
		}
	}
}

// describePartition describes one partition by what its owner shows and what the source says of it.
func (w *worker) describePartition(o *owner, v *ownerView, sp source.PartitionStatus, until time.Time) admin.Partition {
	p := admin.Partition{
		Topic: o.p.Topic, Partition: o.p.Partition, State: string(v.state), Problem: v.reason, Since: v.since,
		Paused: slices.Sorted(maps.Keys(sp.Paused)), Position: v.position, Committed: w.commits.committed(o.p),
		LogEnd: -1, Lag: -1, CompleteUntil: until,
	}
	for _, since := range sp.Paused {
		if p.PausedSince.IsZero() || since.Before(p.PausedSince) {
			p.PausedSince = since
		}
	}
	if sp.Stable >= 0 {
		p.LogEnd = w.endOf(source.Bounds{High: sp.High, Stable: sp.Stable})
		p.Lag = max(0, p.LogEnd-v.position)
	}
	if v.watermark != 0 {
		p.Watermark = time.UnixMilli(v.watermark)
	}
	if i := strings.LastIndexByte(v.history, '/'); i >= 0 {
		p.History = v.history[i+1:]
	}
	return p
}

// leaderProblem says in words if the partition's leader is missing or does not answer; empty if it does, or nothing is known.
func leaderProblem(s *discovery.Snapshot, p source.Partition, failing map[string]time.Time) string {
	if s == nil {
		return ""
	}
	known, ok := s.Topics[p.Topic].Partitions[p.Partition]
	switch {
	case !ok:
		return ""
	case known.Leader < 0:
		return "it has no leader"
	}
	for _, b := range s.Brokers {
		if _, silent := failing[b.Addr]; silent && b.ID == known.Leader {
			return fmt.Sprintf("its leader, broker %d at %s, does not answer", b.ID, b.Addr)
		}
	}
	return ""
}
