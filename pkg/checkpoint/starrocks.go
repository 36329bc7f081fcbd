package checkpoint

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
}

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
	for i := range cols {
		cols[i] = quoteName(cols[i])
	}
	s.restore = "SELECT " + strings.Join(cols, ", ") + from
	return s
}

// Progress lists the partition's histories.
func (s *StarRocks) Progress(ctx context.Context, topic string, partition int32) ([]Progress, error) {
	return s.list(ctx, topic+"/"+strconv.FormatInt(int64(partition), 10))
}

// TopicProgress lists the histories of all partitions of the topic.
func (s *StarRocks) TopicProgress(ctx context.Context, topic string) ([]Progress, error) {
	return s.list(ctx, topic)
}

// Histories lists all histories in the table, of every topic.
func (s *StarRocks) Histories(ctx context.Context) ([]History, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var found []Progress
	err := s.conns.Query(ctx, func(c *sql.Conn) (err error) {
		found, err = s.queryProgress(ctx, c, " <> ''")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the histories: %w", err)
	}
	out := make([]History, len(found))
	for i, p := range found {
		out[i] = p.History
	}
	return out, nil
}

// list reads the histories below the path prefix. A range rather than LIKE: topic names hold _, and the sort key serves a range.
func (s *StarRocks) list(ctx context.Context, prefix string) ([]Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var found []Progress
	err := s.conns.Query(ctx, func(c *sql.Conn) (err error) {
		found, err = s.queryProgress(ctx, c, " >= "+quoteText(prefix+"/")+" AND "+quoteName(colSource)+" < "+quoteText(prefix+"0"))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read progress of %s: %w", prefix, err)
	}
	return found, nil
}

// queryProgress reads T, W and the day of T of every source that the condition on the source column takes.
func (s *StarRocks) queryProgress(ctx context.Context, c *sql.Conn, cond string) (found []Progress, err error) {
	rows, err := c.QueryContext(ctx, s.progress+cond+" GROUP BY "+quoteName(colSource)+", "+quoteName(colDay))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	index := map[string]int{}
	for rows.Next() {
		var source, dt string
		var next, last int64
		if err := rows.Scan(&source, &dt, &next, &last); err != nil {
			return nil, err
		}
		day, err := aggregate.ParseDay(dt)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", colDay, err)
		}
		i, ok := index[source]
		if !ok {
			h, err := ParseHistory(source)
			if err != nil {
				return nil, &UnusableError{
					What: "a row of " + s.cfg.Database + "." + s.cfg.Table, Err: err,
					Remedy: "rows of another writer or version in " + colSource + "; give rollcall a table of its own",
				}
			}
			i, index[source] = len(found), len(found)
			found = append(found, Progress{History: h})
		}
		found[i].note(next, last, day)
	}
	return found, rows.Err()
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
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var state aggregate.State
	var p Progress
	err := s.conns.Query(ctx, func(c *sql.Conn) error {
		cond := " = " + quoteText(h.String())
		known, err := s.queryProgress(ctx, c, cond)
		if err != nil {
			return err
		}
		if state, p, err = s.queryRows(ctx, c, h, cond+" AND "+quoteName(colDay)+" >= "+quoteText(from.String())); err != nil {
			return err
		}
		if len(known) > 0 && (p.Next < known[0].Next || p.WatermarkMs < known[0].WatermarkMs) {
			return ErrStale
		}
		return nil
	})
	if err != nil {
		return aggregate.State{}, Progress{}, fmt.Errorf("read totals: %w", err)
	}
	return state, p, nil
}

// queryRows is the one SELECT a restore takes its totals, T and W from. It names every key column, so the table's own merge makes each
// row whole; sets are left out, any superset of what is new may be loaded again.
func (s *StarRocks) queryRows(ctx context.Context, c *sql.Conn, h History, cond string) (state aggregate.State, p Progress, err error) {
	rows, err := c.QueryContext(ctx, s.restore+cond)
	if err != nil {
		return state, p, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	p.History = h
	var dt string
	var next, last int64
	values := make([]sql.NullInt64, len(s.ints))
	for rows.Next() {
		dims := make([]string, len(s.cfg.Dimensions))
		dest := make([]any, 0, 3+len(dims)+len(values))
		dest = append(dest, &dt, &next, &last)
		for i := range dims {
			dest = append(dest, &dims[i])
		}
		for i := range values {
			dest = append(dest, &values[i])
		}
		if err := rows.Scan(dest...); err != nil {
			return state, p, err
		}
		day, err := aggregate.ParseDay(dt)
		if err != nil {
			return state, p, fmt.Errorf("column %s: %w", colDay, err)
		}
		cells := make([]aggregate.Cell, len(s.cfg.Measures))
		for i, at := range s.ints {
			cells[at] = aggregate.Cell{Int: values[i].Int64, Null: !values[i].Valid}
		}
		state.Rows = append(state.Rows, aggregate.Row{Day: day, Dims: dims, Cells: cells, LastEventMs: last})
		p.note(next, last, day)
	}
	state.Next, state.WatermarkMs, state.HasWatermark = p.Next, p.WatermarkMs, len(state.Rows) > 0
	return state, p, rows.Err()
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
