package starrocks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/sink/starrockstest"
)

// rig is a stand-in StarRocks on a virtual network and what talks to it.
type rig struct {
	t       testing.TB
	net     *network
	cluster *starrockstest.Cluster
	db      *DB
}

// standIn starts a cluster in the bubble.
func standIn(t *testing.T, n *network, cfg starrockstest.Config) *rig {
	t.Helper()
	cfg.Listen = n.listen
	r := &rig{t: t, net: n, cluster: starrockstest.New(cfg)}
	require.NoError(t, r.cluster.Start())
	t.Cleanup(r.cluster.Close)
	r.db = r.open("root")
	return r
}

func (r *rig) open(user string) *DB {
	r.t.Helper()
	db, err := OpenDB(DBConfig{Addrs: r.cluster.MySQLAddrs(), User: user, DialContext: r.net.dial})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, db.Close()) })
	return db
}

func (r *rig) table(db *DB, change func(*TableConfig)) *Table {
	r.t.Helper()
	cfg := TableConfig{Database: "dau", Table: "daily", View: "daily_view", Dimensions: testDims(), Measures: testMeasures()}
	if change != nil {
		change(&cfg)
	}
	table, err := NewTable(db, cfg)
	require.NoError(r.t, err)
	return table
}

func (r *rig) exec(statements ...string) {
	r.t.Helper()
	require.NoError(r.t, r.cluster.Exec(statements...))
}

// statements counts what reached the servers and begins with the words.
func (r *rig) statements(words string) int {
	n := 0
	for _, s := range r.cluster.Statements() {
		if strings.HasPrefix(strings.TrimSpace(s.SQL), words) {
			n++
		}
	}
	return n
}

func operations(t testing.TB, m *Metrics, op, result string) int {
	t.Helper()
	var out dto.Metric
	require.NoError(t, m.tableOperations.WithLabelValues(op, result).Write(&out))
	return int(out.GetCounter().GetValue())
}

func kinds(t testing.TB, err error) []string {
	t.Helper()
	var d *Difference
	require.ErrorAs(t, err, &d)
	var out []string
	for _, i := range d.Items {
		out = append(out, i.Kind+" "+i.Column)
	}
	return out
}

const (
	createTable = "CREATE TABLE"
	createView  = "CREATE OR REPLACE VIEW"
	alterTable  = "ALTER TABLE"
)

func TestEnsureCreatesAndReadsBack(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		table := r.table(r.db, func(c *TableConfig) { c.Buckets, c.Replication, c.RetentionDays = 4, 2, 30 })
		require.Equal(t, Status{Mode: ModeCreate, Table: "dau.daily", View: "dau.daily_view"}, table.Status())
		require.NoError(t, table.Ensure(t.Context()))
		s := table.Status()
		require.True(t, s.Ready)
		require.NoError(t, s.Err)
		require.Equal(t, "3.3.5", s.Version)
		require.Equal(t, time.Now(), s.CheckedAt)
		require.NoError(t, table.Check(t.Context()))
		_, rows, err := r.cluster.Query("SHOW CREATE TABLE dau.daily")
		require.NoError(t, err)
		for _, want := range []string{"BUCKETS 4", `"replication_num" = "2"`, `"partition_live_number" = "30"`, "date_trunc('day', dt)"} {
			require.Contains(t, fmt.Sprint(rows), want)
		}
		// A second worker, and a restart, find everything in place.
		require.NoError(t, r.table(r.db, nil).Ensure(t.Context()))
		require.Equal(t, 1, r.statements(createTable))
		require.Equal(t, 1, r.statements("CREATE DATABASE"))
	})
}

// 000-01, 000-02, 000-14: a failed CREATE is an error with the server's words, and nothing else; the next attempt begins anew.
func TestCreateFailsAndIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		r.cluster.Inject(starrockstest.Fault{
			At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Times: 3,
			Do: []starrockstest.Action{starrockstest.SQLError(1064, "the meta service is on holiday")},
		})
		metrics := NewMetrics(nil)
		for range 3 {
			// A restart each time: no memory could help.
			table := r.table(r.db, func(c *TableConfig) { c.Metrics = metrics })
			err := table.Ensure(t.Context())
			require.ErrorContains(t, err, "the meta service is on holiday")
			require.ErrorContains(t, err, "create table daily")
			require.False(t, IsPermanent(err))
			require.Equal(t, err, table.Status().Err)
			require.False(t, table.Status().Ready)
		}
		table := r.table(r.db, func(c *TableConfig) { c.Metrics = metrics })
		require.NoError(t, table.Ensure(t.Context()))
		require.Equal(t, 4, r.statements(createTable))
		require.Equal(t, 3, operations(t, metrics, opCreateTable, resultFailed))
		require.Equal(t, 1, operations(t, metrics, opCreateTable, resultOK))
		require.Equal(t, 1, operations(t, metrics, opVerify, resultOK))
	})
}

// 000-05: many who wait for one table share one statement and its result.
func TestWaitersShareOneStatement(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		r.cluster.Inject(starrockstest.Fault{
			At: starrockstest.AtSQL, Statement: "^CREATE TABLE",
			Do: []starrockstest.Action{starrockstest.Sleep(time.Second), starrockstest.SQLError(1064, "first one fails")},
		})
		table := r.table(r.db, nil)
		for round, want := range []string{"first one fails", ""} {
			errs := make([]error, 16)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = table.Ensure(t.Context()) })
			}
			wg.Wait()
			for _, err := range errs {
				if want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
			require.Equal(t, round+1, r.statements(createTable))
		}
	})
}

// A caller who gives up takes nobody along: the next one does the work.
func TestAbandonedWorkIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Do: []starrockstest.Action{starrockstest.Hang()}})
		table := r.table(r.db, nil)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var leader, waiter error
		var wg sync.WaitGroup
		wg.Go(func() { leader = table.Ensure(short) })
		synctest.Wait()
		wg.Go(func() { waiter = table.Ensure(t.Context()) })
		wg.Wait()
		require.ErrorIs(t, leader, context.DeadlineExceeded)
		require.NoError(t, waiter)
		require.True(t, table.Status().Ready)
	})
}

func TestWaiterMayLeave(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		rule := r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Do: []starrockstest.Action{starrockstest.Hang()}})
		table := r.table(r.db, nil)
		var wg sync.WaitGroup
		wg.Go(func() { _ = table.Ensure(t.Context()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, table.Ensure(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, table.Check(ctx), context.DeadlineExceeded)
		rule.Release()
		wg.Wait()
	})
}

// A look does not take over what other work came to, and the other way round; it waits and does its own.
func TestOtherWorkIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		table := standIn(t, n, starrockstest.Config{}).table(nil, nil)
		var wg sync.WaitGroup
		var first, second error
		running := 0
		work := func(err error) func(context.Context) error {
			return func(context.Context) error {
				running++
				require.Equal(t, 1, running, "one piece of work at a time")
				time.Sleep(time.Second)
				running--
				return err
			}
		}
		wg.Go(func() { first = table.share(t.Context(), "ensure", work(errTest)) })
		synctest.Wait()
		wg.Go(func() { second = table.share(t.Context(), "check", work(nil)) })
		wg.Wait()
		require.ErrorIs(t, first, errTest)
		require.NoError(t, second)
	})
}

func TestPanicReachesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		table := standIn(t, n, starrockstest.Config{}).table(nil, nil)
		var waiter error
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { require.NotNil(t, recover()) }()
			_ = table.share(t.Context(), "ensure", func(context.Context) error {
				time.Sleep(time.Second)
				panic("boom")
			})
		})
		synctest.Wait()
		wg.Go(func() { waiter = table.share(t.Context(), "ensure", func(context.Context) error { return nil }) })
		wg.Wait()
		require.ErrorContains(t, waiter, "panic")
		require.NoError(t, table.share(t.Context(), "ensure", func(context.Context) error { return nil }))
	})
}

// 000-07: a statement that never returns costs its deadline; other tables are not held up, and the next attempt is unburdened.
func TestCreateHangs(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		r.exec("CREATE DATABASE dau")
		r.cluster.Inject(starrockstest.Fault{
			At: starrockstest.AtSQL, Statement: "^CREATE TABLE .*daily`", Times: 2,
			Do: []starrockstest.Action{starrockstest.Hang()},
		})
		metrics := NewMetrics(nil)
		hanging := r.table(r.db, func(c *TableConfig) { c.StatementTimeout, c.Metrics = 5*time.Second, metrics })
		other := r.table(r.db, func(c *TableConfig) { c.Table, c.View = "other", "" })
		for range 2 {
			var wg sync.WaitGroup
			start := time.Now()
			var err error
			wg.Go(func() { err = hanging.Ensure(t.Context()) })
			synctest.Wait()
			require.NoError(t, other.Ensure(t.Context()))
			require.Zero(t, time.Since(start))
			wg.Wait()
			require.Equal(t, 5*time.Second, time.Since(start))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, IsPermanent(err))
		}
		require.Equal(t, 2, operations(t, metrics, opCreateTable, resultUnknown))
		require.NoError(t, hanging.Ensure(t.Context()))
	})
}

// 000-22 and every other way in which a statement works without saying so: what is read decides.
func TestUnknownOutcomeIsReadBack(t *testing.T) {
	for name, do := range map[string][]starrockstest.Action{
		"timed out on the server": {starrockstest.SQLError(1064, "fail to create tablet: timed out. unfinished replicas: 1/3")},
		"connection lost":         {starrockstest.CloseConn()},
		"any other error":         {starrockstest.SQLError(1064, "something odd")},
		"no answer":               {starrockstest.Hang()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, statement := range []string{"^CREATE TABLE", "^ALTER TABLE", "^CREATE DATABASE"} {
				bubble(t, func(t *testing.T, n *network) {
					r := standIn(t, n, starrockstest.Config{})
					if statement == "^ALTER TABLE" {
						require.NoError(t, r.table(r.db, func(c *TableConfig) { c.Measures = testMeasures()[:4] }).Ensure(t.Context()))
					}
					rule := r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQLDone, Statement: statement, Do: do})
					table := r.table(r.db, nil)
					require.NoError(t, table.Ensure(t.Context()))
					require.Equal(t, 1, rule.Hits())
					require.Equal(t, 1, r.statements(createTable))
				})
			}
		})
	}
}

// Two workers that start at once, on an empty cluster and with a new measure.
func TestTwoWorkersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{AlterDuration: 7 * time.Second})
		for _, measures := range [][]aggregate.Measure{testMeasures()[:3], testMeasures()} {
			r.cluster.Inject(starrockstest.Fault{
				At: starrockstest.AtSQL, Statement: "^(CREATE|ALTER)", Times: starrockstest.Forever,
				Do: []starrockstest.Action{starrockstest.Sleep(100 * time.Millisecond)},
			})
			var wg sync.WaitGroup
			tables := make([]*Table, 4)
			errs := make([]error, len(tables))
			for i := range tables {
				tables[i] = r.table(r.db, func(c *TableConfig) { c.Measures = measures })
				// The loser of a race for the job may be told so; then it tries again, as every caller does.
				wg.Go(func() {
					for range 3 {
						if errs[i] = tables[i].Ensure(t.Context()); errs[i] == nil {
							return
						}
					}
				})
			}
			wg.Wait()
			require.NoError(t, errors.Join(errs...))
			for _, table := range tables {
				require.NoError(t, table.Check(t.Context()))
			}
		}
	})
}

// A table that appears between two reads of one look is a table of another worker, not one of the wrong shape.
func TestTableCreatedDuringALook(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		slow := r.cluster.Inject(starrockstest.Fault{
			At: starrockstest.AtSQLDone, Statement: "^(SELECT TABLE_MODEL|DESC)", Do: []starrockstest.Action{starrockstest.Sleep(2 * time.Second)},
		})
		var wg sync.WaitGroup
		var err error
		first := r.table(r.db, func(*TableConfig) {})
		wg.Go(func() { err = first.Ensure(t.Context()) })
		require.NoError(t, slow.WaitHits(t.Context(), 1))
		require.NoError(t, r.table(r.db, func(*TableConfig) {}).Ensure(t.Context()))
		wg.Wait()
		require.NoError(t, err)
	})
}

// 000-16: drift by hand is found by the next look, named, and gone when it is undone.
func TestDriftIsNamedAndForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		want     []string
	}{
		"column dropped":      {"  `highest` BIGINT MAX NULL,\n", "", []string{"missing_column highest"}},
		"type narrowed":       {"`pv` BIGINT", "`pv` INT", []string{"type pv"}},
		"NOT NULL added":      {"`lowest` BIGINT MIN NULL", "`lowest` BIGINT MIN NOT NULL DEFAULT \"0\"", []string{"nullability lowest"}},
		"added, no default":   {"  `pv`", "  `more` BIGINT SUM NOT NULL,\n  `pv`", []string{"extra_column more"}},
		"added, may be NULL":  {"  `pv`", "  `more` BIGINT SUM NULL,\n  `pv`", nil},
		"added, with default": {"  `pv`", "  `more` BIGINT SUM NOT NULL DEFAULT \"7\",\n  `pv`", nil},
		"other function":      {"`pv` BIGINT MAX", "`pv` BIGINT SUM", []string{"aggregate pv"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				r := standIn(t, n, starrockstest.Config{})
				core, logs := observer.New(zapcore.InfoLevel)
				table := r.table(r.db, func(c *TableConfig) { c.Log, c.View = zap.New(core), "" })
				require.NoError(t, table.Ensure(t.Context()))
				require.Contains(t, table.DDL(), tc.from)
				replace := func(ddl string) { r.exec("DROP TABLE dau.daily", ddl) }

				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { _ = table.Run(ctx) })
				defer wg.Wait()
				defer cancel()
				replace(strings.Replace(table.DDL(), tc.from, tc.to, 1))
				time.Sleep(defaultCompareInterval + time.Second)
				synctest.Wait()
				if tc.want == nil {
					require.NoError(t, table.Status().Err)
					return
				}
				require.Equal(t, tc.want, kinds(t, table.Status().Err))
				require.Equal(t, table.Status().Err, table.Unfit())
				time.Sleep(time.Minute)
				require.Equal(t, 1, logs.FilterMessage("StarRocks table check failed").Len(), "said once")
				r.cluster.StopMySQL(1)
				time.Sleep(time.Minute)
				require.NotErrorIs(t, table.Status().Err, table.Unfit())
				require.Equal(t, tc.want, kinds(t, table.Unfit()), "a look that failed makes no table fit")
				require.NoError(t, r.cluster.StartFE(1))
				time.Sleep(time.Minute)

				replace(table.DDL())
				time.Sleep(recheckInterval + time.Second)
				synctest.Wait()
				require.NoError(t, table.Status().Err)
				require.NoError(t, table.Unfit())
				require.Equal(t, 1, logs.FilterMessage("StarRocks table is as expected again").Len())
				require.Zero(t, r.statements(alterTable), "a look changes nothing")
			})
		})
	}
}

// 000-17: IF NOT EXISTS would hide it.
func TestForeignTableIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		ddl  string
		want []string
	}{
		"duplicate key": {"CREATE TABLE dau.daily (dt DATE, pv BIGINT) DUPLICATE KEY(dt) DISTRIBUTED BY HASH(dt)", []string{"key_model "}},
		"primary key":   {"CREATE TABLE dau.daily (dt DATE NOT NULL, pv BIGINT) PRIMARY KEY(dt) DISTRIBUTED BY HASH(dt)", []string{"key_model "}},
		"a view":        {"CREATE VIEW dau.daily AS SELECT 1 AS dt", []string{"key_model "}},
		"other columns": {
			"CREATE TABLE dau.daily (dt DATE NOT NULL, platform VARCHAR(10) NOT NULL, pv INT SUM) AGGREGATE KEY(dt, platform) DISTRIBUTED BY HASH(platform)",
			[]string{
				"type platform", "missing_column order", "missing_column rollcall_source", "missing_column uv", "type pv", "aggregate pv",
				"nullability pv", "missing_column amount", "missing_column lowest", "missing_column highest", "missing_column rollcall_next_offset",
				"missing_column rollcall_last_event_ms", "keys ",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []Mode{ModeCreate, ModeVerify} {
				bubble(t, func(t *testing.T, n *network) {
					r := standIn(t, n, starrockstest.Config{})
					r.exec("CREATE DATABASE dau", tc.ddl)
					table := r.table(r.db, func(c *TableConfig) { c.Mode = mode })
					err := table.Ensure(t.Context())
					require.True(t, IsPermanent(err))
					require.Equal(t, tc.want, kinds(t, err))
					require.Zero(t, r.statements(alterTable))
					require.Zero(t, r.statements(createView))
				})
			}
		})
	}
}

func TestOtherModesChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		none := r.table(r.db, func(c *TableConfig) { c.Mode = ModeNone })
		require.NoError(t, none.Ensure(t.Context()))
		require.NoError(t, none.Check(t.Context()))
		require.Empty(t, r.cluster.Statements())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, none.Run(ctx))
		require.Empty(t, r.cluster.Statements())

		verify := r.table(r.db, func(c *TableConfig) { c.Mode = ModeVerify })
		err := verify.Ensure(t.Context())
		require.Equal(t, []string{"missing_table "}, kinds(t, err))
		require.Zero(t, r.statements("CREATE"))
		require.NoError(t, r.table(r.db, func(c *TableConfig) { c.View = "" }).Ensure(t.Context()))
		err = verify.Ensure(t.Context())
		require.Equal(t, []string{"view daily_view"}, kinds(t, err), "the view is missing")
		require.NoError(t, r.table(r.db, nil).Ensure(t.Context()))
		require.NoError(t, verify.Ensure(t.Context()))
	})
}

func reader() starrockstest.Config {
	return starrockstest.Config{Users: []starrockstest.User{
		{Name: "root"},
		{Name: "loader", Privileges: []starrockstest.Privilege{starrockstest.Insert, starrockstest.Select}},
	}}
}

// 000-19: rights that are not needed are not missed, and it is said once.
func TestDeniedWithAFittingTable(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, reader())
		require.NoError(t, r.table(r.db, nil).Ensure(t.Context()))
		core, logs := observer.New(zapcore.InfoLevel)
		metrics := NewMetrics(nil)
		table := r.table(r.open("loader"), func(c *TableConfig) { c.Log, c.Metrics = zap.New(core), metrics })
		for range 3 {
			require.NoError(t, table.Ensure(t.Context()))
		}
		require.Equal(t, 1, logs.Len())
		require.Equal(t, zapcore.InfoLevel, logs.All()[0].Level)
		require.Equal(t, 1, r.statements(createTable))
		require.Equal(t, 3, operations(t, metrics, opCreateView, resultDenied))
	})
}

// 000-20: what can't be had is said at once.
func TestDeniedAndMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(r *rig)
		want    string
	}{
		"database": {func(*rig) {}, "create database dau"},
		"table":    {func(r *rig) { r.exec("CREATE DATABASE dau") }, "create table daily"},
		"measure": {func(r *rig) {
			require.NoError(r.t, r.table(r.db, func(c *TableConfig) { c.Measures = testMeasures()[:4] }).Ensure(r.t.Context()))
		}, "add column highest"},
		"view": {func(r *rig) {
			require.NoError(r.t, r.table(r.db, func(c *TableConfig) { c.View = "" }).Ensure(r.t.Context()))
		}, "create view daily_view"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				r := standIn(t, n, reader())
				tc.prepare(r)
				before := r.statements("CREATE") + r.statements("ALTER")
				err := r.table(r.open("loader"), nil).Ensure(t.Context())
				require.True(t, IsPermanent(err), err)
				require.ErrorContains(t, err, tc.want)
				require.ErrorContains(t, err, "Access denied")
				require.Equal(t, before+1, r.statements("CREATE")+r.statements("ALTER"))
			})
		})
	}
	t.Run("login", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			r := standIn(t, n, starrockstest.Config{FEs: 3})
			err := r.table(r.open("nobody"), nil).Ensure(t.Context())
			require.True(t, IsPermanent(err))
			require.ErrorContains(t, err, "Access denied")
			require.Equal(t, 1, r.cluster.Connections()["mysql"], "other front ends would say the same")
		})
	})
}

// 000-21
func TestClusterNotReady(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		r.cluster.SetBackends(0)
		table := r.table(r.db, nil)
		err := table.Ensure(t.Context())
		require.ErrorContains(t, err, "replication num should be less than")
		require.False(t, IsPermanent(err))
		r.cluster.SetBackends(3)
		require.NoError(t, table.Ensure(t.Context()))
	})
}

// 000-24, 000-25: connections are opened when they are needed; one that was closed meanwhile cannot hurt.
func TestConnectionsComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		r.cluster.StopFE(1)
		table := r.table(r.db, nil)
		err := table.Ensure(t.Context())
		require.ErrorContains(t, err, "connection refused")
		require.ErrorContains(t, err, "localhost:9030")
		require.False(t, IsPermanent(err))
		require.NoError(t, r.cluster.StartFE(1))
		require.NoError(t, table.Ensure(t.Context()))
		time.Sleep(9 * time.Hour) // beyond any wait_timeout
		r.cluster.StopFE(1)
		require.NoError(t, r.cluster.StartFE(1))
		require.NoError(t, table.Check(t.Context()))
	})
}

// 000-28: whoever waits for a hanging statement can leave at once.
func TestShutdownWhileDDLHangs(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Do: []starrockstest.Action{starrockstest.Hang()}})
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("told to stop")
		time.AfterFunc(time.Second, func() { cancel(stop) })
		start := time.Now()
		err := r.table(r.db, nil).Ensure(ctx)
		require.ErrorContains(t, err, "create table daily")
		require.Equal(t, time.Second, time.Since(start))
	})
}

// 000-31
func TestNamesAreQuoted(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		table := r.table(r.db, func(c *TableConfig) {
			c.Database, c.Table, c.View = "my-db", "order", "Sel ect; DROP TABLE x -- Ünï"
			c.Dimensions = []aggregate.Dimension{{Name: "desc"}, {Name: "Group"}, {Name: "größe,"}}
			c.Measures = []aggregate.Measure{{Name: "table", Kind: aggregate.Count}, {Name: "a b", Kind: aggregate.Distinct}}
		})
		require.NoError(t, table.Ensure(t.Context()))
		require.NoError(t, table.Check(t.Context()))
	})
}

// The view is what readers see: it is kept in step, also when it was changed by hand.
func TestViewIsKeptInStep(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		table := r.table(r.db, nil)
		require.NoError(t, table.Ensure(t.Context()))
		r.exec("DROP VIEW dau.daily_view", "CREATE VIEW dau.daily_view AS SELECT dt FROM dau.daily")
		require.Equal(t, []string{"view daily_view"}, kinds(t, table.Check(t.Context())))
		require.NoError(t, table.Unfit(), "loads do not need the view")
		require.NoError(t, table.Ensure(t.Context()))
		r.exec("DROP VIEW dau.daily_view")
		require.Equal(t, []string{"view daily_view"}, kinds(t, table.Check(t.Context())))
		rule := r.cluster.Inject(starrockstest.Fault{
			At: starrockstest.AtSQL, Statement: "^CREATE OR REPLACE VIEW",
			Do: []starrockstest.Action{starrockstest.SQLError(1064, "not now")},
		})
		err := table.Ensure(t.Context())
		require.ErrorContains(t, err, "not now")
		require.False(t, IsPermanent(err))
		require.Equal(t, 1, rule.Hits())
		require.NoError(t, table.Ensure(t.Context()))
		// The right columns say nothing of the text behind them: a view that could not be replaced is not in step.
		rule = r.cluster.Inject(starrockstest.Fault{
			At: starrockstest.AtSQL, Statement: "^CREATE OR REPLACE VIEW",
			Do: []starrockstest.Action{starrockstest.SQLError(1064, "not now either")},
		})
		err = table.Ensure(t.Context())
		require.ErrorContains(t, err, "not now either")
		require.False(t, IsPermanent(err))
		require.Equal(t, 1, rule.Hits())
		require.NoError(t, table.Ensure(t.Context()))
	})
}
