package checkpoint_test

import (
	"context"
	"database/sql"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/checkpoint"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrocks"
	"rollcall/pkg/sink/starrockstest"
)

const program = "0a1b2c3d"

// table is a real table (of the stand-in), loaded by the real client and read by the store.
type table struct {
	cluster *starrockstest.Cluster
	client  *starrocks.Client
	dbs     []*starrocks.DB // one per front end
	cfg     checkpoint.StarRocksConfig
	loads   int
}

func newTable(t *testing.T) *table {
	t.Helper()
	c := starrockstest.New(starrockstest.Config{FEs: 2, History: 10})
	require.NoError(t, c.Start())
	t.Cleanup(c.Close)
	tb := &table{cluster: c, cfg: checkpoint.StarRocksConfig{
		Database: "dau", Table: "select", // a reserved word
		Dimensions: []aggregate.Dimension{{Name: "platform"}, {Name: "order"}},
		Measures: []aggregate.Measure{
			{Name: "uv", Kind: aggregate.Distinct, Field: "user"},
			{Name: "pv", Kind: aggregate.Count},
			{Name: "low", Kind: aggregate.Min, Field: "price"},
			{Name: "high", Kind: aggregate.Max, Field: "price"},
		},
	}}
	for _, addr := range c.MySQLAddrs() {
		db, err := starrocks.OpenDB(starrocks.DBConfig{Addrs: []string{addr}, User: "root"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		tb.dbs = append(tb.dbs, db)
	}
	ddl, err := starrocks.NewTable(tb.dbs[0], starrocks.TableConfig{
		Database: tb.cfg.Database, Table: tb.cfg.Table, Dimensions: tb.cfg.Dimensions, Measures: tb.cfg.Measures, Buckets: 1, Replication: 1, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	require.NoError(t, ddl.Ensure(t.Context()))
	tb.client, err = starrocks.New(starrocks.Config{
		HTTP: c.FEURLs(), User: "root", Database: tb.cfg.Database, Table: tb.cfg.Table, Dimensions: tb.cfg.Dimensions, Measures: tb.cfg.Measures,
	})
	require.NoError(t, err)
	return tb
}

// store reads through front end fe, or through different ones in turn.
func (tb *table) store(fes ...int) *checkpoint.StarRocks {
	return checkpoint.NewStarRocks(&inTurn{tb: tb, fes: fes}, tb.cfg)
}

type inTurn struct {
	mu  sync.Mutex
	tb  *table
	fes []int
	n   int
}

func (c *inTurn) Query(ctx context.Context, fn func(*sql.Conn) error) error {
	c.mu.Lock()
	fe := c.fes[c.n%len(c.fes)]
	c.n++
	c.mu.Unlock()
	return c.tb.dbs[fe-1].Query(ctx, fn)
}

func (tb *table) load(t *testing.T, h checkpoint.History, next int64, ahead bool, rows ...aggregate.Row) {
	t.Helper()
	body, err := tb.client.Encode([]sink.Part{{Source: h.String(), Next: next, Ahead: ahead, Rows: rows}})
	require.NoError(t, err)
	tb.loads++
	reply := tb.client.Load(t.Context(), fmt.Sprintf("l-%d", tb.loads), body)
	require.NoError(t, reply.Err)
	require.True(t, reply.Visible)
}

func row(day int, platform string, pv, low int64) aggregate.Row {
	return aggregate.Row{
		Day: aggregate.Day(day), Dims: []string{platform, "it's \"`\\ ü"}, LastEventMs: int64(day)*86_400_000 + pv,
		Cells: []aggregate.Cell{{}, {Int: pv}, {Int: low, Null: low == 0}, {Null: true}},
	}
}

func history(topic string, partition int32, start int64) checkpoint.History {
	return checkpoint.History{Topic: topic, Partition: partition, TopicID: "Rr-3xY_kQ9S0uQhZ1o2ABw", Start: start, Epoch: 3, Program: program}
}

func sorted(rows []aggregate.Row) []aggregate.Row {
	sort.Slice(rows, func(i, j int) bool {
		return rows[i].Day < rows[j].Day || rows[i].Day == rows[j].Day && rows[i].Dims[0] < rows[j].Dims[0]
	})
	return rows
}

func TestStarRocksProgress(t *testing.T) {
	tb := newTable(t)
	s := tb.store(1)
	found, err := s.Progress(t.Context(), "app_events", 1)
	require.NoError(t, err)
	require.Empty(t, found)

	h := history("app_events", 1, 0)
	tb.load(t, h, 20, false, row(20000, "ios", 5, 7), row(20001, "ios", 1, 1))
	tb.load(t, h, 30, false, row(20000, "ios", 6, 3), row(19999, "web", 1, 1))
	tb.load(t, h, 40, true, row(20002, "tv", 9, 9))
	tb.load(t, history("app_events", 1, 30), 35, false, row(20001, "ios", 1, 1))
	for _, other := range []checkpoint.History{history("app_events", 11, 0), history("app_events", 2, 0), history("app.events", 1, 0), history("appXevents", 1, 0), history("app_events2", 1, 0)} {
		tb.load(t, other, 99, false, row(20009, "ios", 5, 7))
	}
	tb.load(t, history("only_ahead", 0, 0), 99, true, row(20009, "ios", 5, 7))

	found, err = s.Progress(t.Context(), "app_events", 1)
	require.NoError(t, err)
	want := []checkpoint.Progress{
		{History: h, Next: 30, WatermarkMs: 20001*86_400_000 + 1, MaxDay: 20000},
		{History: history("app_events", 1, 30), Next: 35, WatermarkMs: 20001*86_400_000 + 1, MaxDay: 20001},
	}
	require.ElementsMatch(t, want, found)
	found, err = s.TopicProgress(t.Context(), "app_events")
	require.NoError(t, err)
	require.Len(t, found, 4)
	found, err = s.Progress(t.Context(), "only_ahead", 0)
	require.NoError(t, err)
	require.Empty(t, found, "rows with next offset 0 are not rows")
}

func TestStarRocksRestore(t *testing.T) {
	tb := newTable(t)
	h := history("app_events", 1, 0)
	tb.load(t, h, 20, false, row(19990, "old", 1, 1), row(20000, "ios", 5, 7), row(20001, "ios", 1, 1))
	tb.load(t, h, 30, false, row(20000, "ios", 6, 3), row(20000, "web", 2, 0))
	tb.load(t, h, 40, true, row(20001, "tv", 9, 9), row(20000, "ios", 9, 9))
	tb.load(t, history("app_events", 11, 0), 99, false, row(20009, "ios", 50, 7))

	s := tb.store(1)
	state, p, err := s.Restore(t.Context(), h, 20000)
	require.NoError(t, err)
	require.Equal(t, checkpoint.Progress{History: h, Next: 30, WatermarkMs: 20001*86_400_000 + 1, MaxDay: 20000}, p)
	require.Equal(t, []aggregate.Row{row(20000, "ios", 6, 3), row(20000, "web", 2, 0), row(20001, "ios", 1, 1)}, sorted(state.Rows))
	require.Equal(t, int64(30), state.Next)
	require.True(t, state.HasWatermark)
	require.Equal(t, p.WatermarkMs, state.WatermarkMs)

	state, p, err = s.Restore(t.Context(), history("app_events", 1, 77), 0)
	require.NoError(t, err)
	require.Zero(t, p.Next)
	require.False(t, state.HasWatermark)
	require.Empty(t, state.Rows)
	require.NoError(t, s.Save(t.Context(), h, 99, nil))
	require.NoError(t, s.Close())
}

// TestStarRocksTorn: a load between the two reads of a restore leaves totals, T and W of one cut; a front end that is staler than what
// was known is asked again.
func TestStarRocksTorn(t *testing.T) {
	tb := newTable(t)
	h := history("t", 0, 0)
	tb.load(t, h, 20, false, row(20000, "ios", 5, 7))
	tb.cluster.FreezeFE(2)
	tb.load(t, h, 30, false, row(20000, "ios", 6, 7), row(20001, "ios", 1, 7))
	known, err := tb.store(1).Progress(t.Context(), "t", 0)
	require.NoError(t, err)
	require.Equal(t, int64(30), known[0].Next)

	var retried []error
	req := checkpoint.RestoreRequest{
		History: h, Table: 30, Watermark: known[0].WatermarkMs, Lateness: 48 * time.Hour, Location: time.UTC,
		OnRetry: func(err error, _ time.Duration) { retried = append(retried, err) },
	}
	state, p, err := checkpoint.Restore(t.Context(), tb.store(2, 2, 1), req)
	require.NoError(t, err)
	require.Len(t, retried, 2)
	require.ErrorIs(t, retried[0], checkpoint.ErrStale)
	require.Equal(t, int64(30), p.Next)
	require.Equal(t, []aggregate.Row{row(20000, "ios", 6, 7), row(20001, "ios", 1, 7)}, sorted(state.Rows))

	// The load comes while the second read waits.
	hung := tb.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "(?i)^SELECT `dt`", Do: []starrockstest.Action{starrockstest.Hang()}})
	done := make(chan error, 1)
	go func() {
		var err error
		state, p, err = checkpoint.Restore(t.Context(), tb.store(1), req)
		done <- err
	}()
	require.NoError(t, hung.WaitHits(t.Context(), 1))
	tb.load(t, h, 40, false, row(20000, "ios", 7, 7))
	hung.Release()
	require.NoError(t, <-done)
	require.Equal(t, int64(40), p.Next)
	require.Equal(t, int64(40), state.Next)
	require.Equal(t, aggregate.Day(20000), p.MaxDay)
	require.Equal(t, []aggregate.Row{row(20000, "ios", 7, 7), row(20001, "ios", 1, 7)}, sorted(state.Rows))
}

// TestStarRocksFailures: refusals of the planner and lost connections are errors that are worth another try.
func TestStarRocksFailures(t *testing.T) {
	tb := newTable(t)
	h := history("t", 0, 0)
	tb.load(t, h, 20, false, row(20000, "ios", 5, 7))
	refusal := "schema of Table[select] had been updated frequently during the plan generation"
	for name, do := range map[string]starrockstest.Action{"planner": starrockstest.SQLError(1064, refusal), "connection": starrockstest.Reset()} {
		t.Run(name, func(t *testing.T) {
			rule := tb.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "(?i)^SELECT `", Times: 3, Do: []starrockstest.Action{do}})
			defer rule.Remove()
			_, err := tb.store(1).Progress(t.Context(), "t", 0)
			require.Error(t, err)
			require.False(t, checkpoint.IsPermanent(err))
			if name == "planner" {
				require.ErrorContains(t, err, refusal)
			}
			req := checkpoint.RestoreRequest{History: h, Table: 20, Location: time.UTC}
			_, p, err := checkpoint.Restore(t.Context(), tb.store(1), req)
			require.NoError(t, err)
			require.Equal(t, int64(20), p.Next)
			require.Equal(t, 3, rule.Hits())
		})
	}
}

// TestStarRocksDeadline: a front end that says nothing costs a query its deadline, and no more.
func TestStarRocksDeadline(t *testing.T) {
	tb := newTable(t)
	tb.cfg.QueryTimeout = 200 * time.Millisecond
	rule := tb.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "(?i)^SELECT `", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Hang()}})
	defer rule.Release()
	_, err := tb.store(1).Progress(t.Context(), "t", 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, _, err = tb.store(1).Restore(t.Context(), history("t", 0, 0), 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestStarRocksForeignRows: rows that are not ours are not guessed at.
func TestStarRocksForeignRows(t *testing.T) {
	tb := newTable(t)
	body, err := tb.client.Encode([]sink.Part{{Source: "t/0/what", Next: 5, Rows: []aggregate.Row{row(20000, "ios", 5, 7)}}})
	require.NoError(t, err)
	require.NoError(t, tb.client.Load(t.Context(), "x", body).Err)
	_, err = tb.store(1).Progress(t.Context(), "t", 0)
	require.True(t, checkpoint.IsPermanent(err))
	require.ErrorContains(t, err, "t/0/what")
	require.ErrorContains(t, err, "dau.select")
}

// TestStarRocksStatements: one connection for both steps, no prepared statement, a range instead of LIKE.
func TestStarRocksStatements(t *testing.T) {
	tb := newTable(t)
	before := len(tb.cluster.Statements())
	_, err := tb.store(1).Progress(t.Context(), "app_events", 1)
	require.NoError(t, err)
	_, _, err = tb.store(1).Restore(t.Context(), history("app_events", 1, 0), 20000)
	require.NoError(t, err)
	var selects []string
	for _, s := range tb.cluster.Statements()[before:] {
		require.NotContains(t, s.SQL, "?")
		if strings.HasPrefix(s.SQL, "SELECT `") {
			selects = append(selects, s.SQL)
		}
	}
	const from = " FROM `dau`.`select` WHERE `rollcall_next_offset` > 0 AND `rollcall_source`"
	const source = " = 'app_events/1/Rr-3xY_kQ9S0uQhZ1o2ABw/0.3-0a1b2c3d'"
	const sums = "SELECT `rollcall_source`, `dt`, MAX(`rollcall_next_offset`), MAX(`rollcall_last_event_ms`)"
	require.Equal(t, []string{
		sums + from + " >= 'app_events/1/' AND `rollcall_source` < 'app_events/10' GROUP BY `rollcall_source`, `dt`",
		sums + from + source + " GROUP BY `rollcall_source`, `dt`",
		"SELECT `dt`, `rollcall_next_offset`, `rollcall_last_event_ms`, `platform`, `order`, `pv`, `low`, `high`, `rollcall_source`" + from + source + " AND `dt` >= '2024-10-04'",
	}, selects)
}

// TestStarRocksManyAtOnce: owners that ask at once share their statements, each gets what it would get alone, and a row that is not ours
// troubles only the partition it is of.
func TestStarRocksManyAtOnce(t *testing.T) {
	tb := newTable(t)
	const partitions = 20
	for p := range int32(partitions) {
		for _, topic := range []string{"t", "tt"} {
			tb.load(t, history(topic, p, 0), int64(10+p), false, row(20000, "ios", int64(p), 7), row(20001, "web", int64(p)+1, 9))
		}
	}
	body, err := tb.client.Encode([]sink.Part{{Source: "t/3/what", Next: 5, Rows: []aggregate.Row{row(20000, "ios", 5, 7)}}})
	require.NoError(t, err)
	require.NoError(t, tb.client.Load(t.Context(), "x", body).Err)

	together, alone := tb.store(1), tb.store(1)
	atOnce := func(do func(topic string, p int32)) (statements int) {
		before := len(tb.cluster.Statements())
		var wg sync.WaitGroup
		for p := range int32(partitions) {
			wg.Go(func() { do("t", p) })
			wg.Go(func() { do("tt", p) })
		}
		wg.Wait()
		for _, s := range tb.cluster.Statements()[before:] {
			if strings.HasPrefix(s.SQL, "SELECT `") {
				statements++
			}
		}
		return statements
	}
	var mu sync.Mutex
	listed := map[string][]checkpoint.Progress{}
	n := atOnce(func(topic string, p int32) {
		found, err := together.Progress(t.Context(), topic, p)
		if topic == "t" && p == 3 {
			assert.True(t, checkpoint.IsPermanent(err))
			return
		}
		assert.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		listed[fmt.Sprint(topic, p)] = found
	})
	require.Less(t, n, partitions, "statements")
	totals := map[string]aggregate.State{}
	n = atOnce(func(topic string, p int32) {
		state, at, err := together.Restore(t.Context(), history(topic, p, 0), aggregate.Day(20000+p%2))
		assert.NoError(t, err)
		assert.EqualValues(t, 10+p, at.Next)
		mu.Lock()
		defer mu.Unlock()
		totals[fmt.Sprint(topic, p)] = state
	})
	require.Less(t, n, partitions, "statements")
	for p := range int32(partitions) {
		for _, topic := range []string{"t", "tt"} {
			if topic != "t" || p != 3 {
				found, err := alone.Progress(t.Context(), topic, p)
				require.NoError(t, err)
				require.Equal(t, found, listed[fmt.Sprint(topic, p)])
			}
			state, _, err := alone.Restore(t.Context(), history(topic, p, 0), aggregate.Day(20000+p%2))
			require.NoError(t, err)
			got := totals[fmt.Sprint(topic, p)]
			require.Equal(t, sorted(state.Rows), sorted(got.Rows))
			require.Len(t, got.Rows, 2-int(p%2))
			require.Equal(t, state.WatermarkMs, got.WatermarkMs)
		}
	}
}
