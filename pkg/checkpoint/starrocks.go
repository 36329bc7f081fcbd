package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/pkg/aggregate"
)

// The columns of the target table besides dimensions and measures (DESIGN §1).
const (
	colDay    = "dt"
	colSource = "rollcall_source"
	colNext   = "rollcall_next_offset"
	colLast   = "rollcall_last_event_ms"
)

// defaultQueryTimeout bounds one query where the config does not say.
const defaultQueryTimeout = 30 * time.Second

// Conns hands out MySQL connections to the front ends. Query runs fn on one connection to one front end and gives fn's error back,
// wrapped; safe for concurrent use. starrocks.DB is one.
type Conns interface {
	Query(ctx context.Context, fn func(*sql.Conn) error) error
}

// StarRocksConfig is what StarRocks needs to read the target table. It is copied.
type StarRocksConfig struct {
	Database, Table string
	Dimensions      []aggregate.Dimension
	Measures        []aggregate.Measure
	// QueryTimeout bounds each query; 0 means 30 s.
	QueryTimeout time.Duration
}

// StarRocks is the Store that is the target table itself: what is loaded is saved. Safe for concurrent use.
type StarRocks struct {
	conns   Conns
	cfg     StarRocksConfig
	timeout time.Duration
	// ints are the positions of the measures that have totals; sets are not read back.
	ints []int
	// progress and restore are the fixed heads of the queries.
	progress, restore string
	// lists and restores are the reads that owners share.
	lists    *together[below, []mark]
	restores *together[wanted, restored]
}

// below names the histories of a partition, or of all partitions of a topic.
type below struct {
	topic     string
	partition int32 // -1 for all
}

func (b below) String() string {
	if b.partition < 0 {
		return b.topic
	}
	return b.topic + "/" + strconv.FormatInt(int64(b.partition), 10)
}

// mark is what the table says of a source and one of its days, or one row of them.
type mark struct {
	source     string
	day        aggregate.Day
	next, last int64
}

// wanted is a history to restore, from a day on.
type wanted struct {
	history History
	from    aggregate.Day
}

// restored are the totals of a history.
type restored struct {
	state aggregate.State
	at    Progress
	stale bool
}

const (
	// mostLists is how many partitions share a look at the histories: few rows each.
	mostLists = 1000
	// mostRestores is how many share a read of totals, which may be many rows each: it has to be through within a query's deadline.
	mostRestores = 16
)

// NewStarRocks makes the store. It connects to nothing; the connections stay the caller's.
func NewStarRocks(conns Conns, cfg StarRocksConfig) *StarRocks {
	s := &StarRocks{conns: conns, cfg: cfg, timeout: cfg.QueryTimeout}
	if s.timeout <= 0 {
		s.timeout = defaultQueryTimeout
	}
	from := " FROM " + quoteName(cfg.Database) + "." + quoteName(cfg.Table) + " WHERE " + quoteName(colNext) + " > 0 AND " + quoteName(colSource)
	// By day, so that one statement gives T, W and the greatest day of the rows that carry T.
	s.progress = "SELECT " + quoteName(colSource) + ", " + quoteName(colDay) + ", MAX(" + quoteName(colNext) + "), MAX(" + quoteName(colLast) + ")" + from
	cols := []string{colDay, colNext, colLast}
	for _, d := range cfg.Dimensions {
		cols = append(cols, d.Name)
	}
	for i, m := range cfg.Measures {
		if !m.Kind.IsSet() {
			s.ints = append(s.ints, i)
			cols = append(cols, m.Name)
		}
	}
	cols = append(cols, colSource)
	for i := range cols {
		cols[i] = quoteName(cols[i])
	}
	s.restore = "SELECT " + strings.Join(cols, ", ") + from
	s.lists = newTogether(mostLists, s.list)
	s.restores = newTogether(mostRestores, s.restoreAll)
	return s
}

// Progress lists the partition's histories.
func (s *StarRocks) Progress(ctx context.Context, topic string, partition int32) ([]Progress, error) {
	return s.below(ctx, below{topic, partition})
}

// TopicProgress lists the histories of all partitions of the topic.
func (s *StarRocks) TopicProgress(ctx context.Context, topic string) ([]Progress, error) {
	return s.below(ctx, below{topic, -1})
}

func (s *StarRocks) below(ctx context.Context, b below) ([]Progress, error) {
	marks, err := s.lists.ask(ctx, b)
	if err == nil {
		var found []Progress
		if found, err = s.parse(marks); err == nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("read progress of %s: %w", b, err)
}

// Histories lists all histories in the table, of every topic.
func (s *StarRocks) Histories(ctx context.Context) ([]History, error) {
	marks, err := s.read(ctx, " <> ''")
	var found []Progress
	if err == nil {
		found, err = s.parse(marks)
	}
	if err != nil {
		return nil, fmt.Errorf("read the histories: %w", err)
	}
	out := make([]History, len(found))
	for i, p := range found {
		out[i] = p.History
	}
	return out, nil
}

// list reads what is below each of the names. Several of a topic are read as all of it: histories are few, and a longer condition is no cheaper.
func (s *StarRocks) list(ctx context.Context, asked []below) ([][]mark, error) {
	ranges := asked
	if len(asked) > 1 {
		ranges = nil
		for _, b := range asked {
			if all := (below{b.topic, -1}); !slices.Contains(ranges, all) {
				ranges = append(ranges, all)
			}
		}
	}
	// A range rather than LIKE: topic names hold _, and the sort key serves a range.
	conds := make([]string, len(ranges))
	for i, b := range ranges {
		conds[i] = " >= " + quoteText(b.String()+"/") + " AND " + quoteName(colSource) + " < " + quoteText(b.String()+"0")
	}
	cond := conds[0]
	if len(conds) > 1 {
		cond = " <> '' AND (" + quoteName(colSource) + strings.Join(conds, " OR "+quoteName(colSource)) + ")"
	}
	marks, err := s.read(ctx, cond)
	if err != nil {
		return nil, err
	}
	out := make([][]mark, len(asked))
	for i, b := range asked {
		for _, m := range marks {
			if strings.HasPrefix(m.source, b.String()+"/") {
				out[i] = append(out[i], m)
			}
		}
	}
	return out, nil
}

// read is queryMarks on a connection of its own.
func (s *StarRocks) read(ctx context.Context, cond string) (marks []mark, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err = s.conns.Query(ctx, func(c *sql.Conn) (err error) {
		marks, err = s.queryMarks(ctx, c, cond)
		return err
	})
	return marks, err
}

// queryMarks reads T and W of every source and day that the condition on the source column takes.
func (s *StarRocks) queryMarks(ctx context.Context, c *sql.Conn, cond string) (marks []mark, err error) {
	rows, err := c.QueryContext(ctx, s.progress+cond+" GROUP BY "+quoteName(colSource)+", "+quoteName(colDay))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var m mark
		var dt string
		if err := rows.Scan(&m.source, &dt, &m.next, &m.last); err != nil {
			return nil, err
		}
		if m.day, err = aggregate.ParseDay(dt); err != nil {
			return nil, fmt.Errorf("column %s: %w", colDay, err)
		}
		marks = append(marks, m)
	}
	return marks, rows.Err()
}

// parse makes one Progress of the marks of a source.
func (s *StarRocks) parse(marks []mark) ([]Progress, error) {
	var found []Progress
	index := map[string]int{}
	for _, m := range marks {
		i, ok := index[m.source]
		if !ok {
			h, err := ParseHistory(m.source)
			if err != nil {
				return nil, &UnusableError{
					What: "a row of " + s.cfg.Database + "." + s.cfg.Table, Err: err,
					Remedy: "rows of another writer or version in " + colSource + "; give rollcall a table of its own",
				}
			}
			i, index[m.source] = len(found), len(found)
			found = append(found, Progress{History: h})
		}
		found[i].note(m.next, m.last, m.day)
	}
	return found, nil
}

// note takes one row, or the greatest values of several rows of a day.
func (p *Progress) note(next, lastMs int64, day aggregate.Day) {
	p.WatermarkMs = max(p.WatermarkMs, lastMs)
	switch {
	case next > p.Next:
		p.Next, p.MaxDay = next, day
	case next == p.Next:
		p.MaxDay = max(p.MaxDay, day)
	}
}

// Restore reads one history's totals. On one connection it first asks how far the history is, so that a front end that lags behind
// itself is noticed (ErrStale); the second read decides.
func (s *StarRocks) Restore(ctx context.Context, h History, from aggregate.Day) (aggregate.State, Progress, error) {
	r, err := s.restores.ask(ctx, wanted{h, from})
	if err == nil && r.stale {
		err = ErrStale
	}
	if err != nil {
		return aggregate.State{}, Progress{}, fmt.Errorf("read totals: %w", err)
	}
	return r.state, r.at, nil
}

// restoreAll is Restore for several histories at once.
func (s *StarRocks) restoreAll(ctx context.Context, asked []wanted) ([]restored, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	cond, from := " = "+quoteText(asked[0].history.String()), asked[0].from
	if len(asked) > 1 {
		names := make([]string, len(asked))
		for i, w := range asked {
			names[i], from = quoteText(w.history.String()), min(from, w.from)
		}
		cond = " IN (" + strings.Join(names, ", ") + ")"
	}
	var out []restored
	err := s.conns.Query(ctx, func(c *sql.Conn) error {
		known, err := s.queryMarks(ctx, c, cond)
		if err != nil {
			return err
		}
		if out, err = s.queryRows(ctx, c, asked, cond+" AND "+quoteName(colDay)+" >= "+quoteText(from.String())); err != nil {
			return err
		}
		for i, w := range asked {
			out[i].stale = out[i].olderThan(known, w.history.String())
		}
		return nil
	})
	return out, err
}

// olderThan reports whether known has more of the history.
func (r *restored) olderThan(known []mark, source string) bool {
	return slices.ContainsFunc(known, func(m mark) bool { return m.source == source && (m.next > r.at.Next || m.last > r.at.WatermarkMs) })
}

// queryRows is the one SELECT a restore takes its totals, T and W from. It names every key column, so the table's own merge makes each
// row whole; sets are left out, any superset of what is new may be loaded again.
func (s *StarRocks) queryRows(ctx context.Context, c *sql.Conn, asked []wanted, cond string) (out []restored, err error) {
	rows, err := c.QueryContext(ctx, s.restore+cond)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	out = make([]restored, len(asked))
	places := make(map[string][]int, len(asked)) // two may ask for one history: an owner that ends and its successor
	for i, w := range asked {
		out[i].at.History = w.history
		places[w.history.String()] = append(places[w.history.String()], i)
	}
	var source, dt sql.RawBytes
	var m mark
	names, values := make([]string, len(s.cfg.Dimensions)), make([]sql.NullInt64, len(s.ints))
	dest := []any{&dt, &m.next, &m.last}
	for i := range names {
		dest = append(dest, &names[i])
	}
	for i := range values {
		dest = append(dest, &values[i])
	}
	dest = append(dest, &source)
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		if m.day, err = aggregate.ParseDay(string(dt)); err != nil {
			return nil, fmt.Errorf("column %s: %w", colDay, err)
		}
		for _, i := range places[string(source)] {
			if m.day < asked[i].from {
				continue
			}
			cells := make([]aggregate.Cell, len(s.cfg.Measures))
			for k, at := range s.ints {
				cells[at] = aggregate.Cell{Int: values[k].Int64, Null: !values[k].Valid}
			}
			r := &out[i]
			r.state.Rows = append(r.state.Rows, aggregate.Row{Day: m.day, Dims: slices.Clone(names), Cells: cells, LastEventMs: m.last})
			r.at.note(m.next, m.last, m.day)
		}
	}
	for i := range out {
		r := &out[i]
		r.state.Next, r.state.WatermarkMs, r.state.HasWatermark = r.at.Next, r.at.WatermarkMs, len(r.state.Rows) > 0
	}
	return out, rows.Err()
}

// Save does nothing: a loaded batch is in the table.
func (s *StarRocks) Save(context.Context, History, int64, []aggregate.Row) error { return nil }

// Close does nothing: the connections are the caller's.
func (s *StarRocks) Close() error { return nil }

// quoteName is a quoted identifier.
func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// quoteText is a string literal. Only names of topics and histories and days are quoted, none of which needs escaping; a server-side
// prepared statement would be planned and remembered for nothing.
func quoteText(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
