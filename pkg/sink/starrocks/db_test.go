package starrocks

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

func one(ctx context.Context, conn *sql.Conn) error {
	var n int
	return conn.QueryRowContext(ctx, "SELECT 1").Scan(&n)
}

func TestQueryGoesToTheNextFrontEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		kill func(r *rig)
		cost time.Duration
	}{
		"refused":    {func(r *rig) { r.cluster.StopFE(1) }, 0},
		"black hole": {func(r *rig) { r.net.hole(r.cluster.MySQLAddr(1)) }, dialTimeout},
		"silent":     {func(r *rig) { r.net.raw(r.cluster.MySQLAddr(1), silent) }, dialTimeout},
		"lost in a statement": {func(r *rig) {
			r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, FE: 1, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.CloseConn()}})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				r := standIn(t, n, starrockstest.Config{FEs: 3})
				tc.kill(r)
				for i, cost := range []time.Duration{tc.cost, 0, 0} {
					start := time.Now()
					require.NoError(t, r.db.Query(t.Context(), func(c *sql.Conn) error { return one(t.Context(), c) }), i)
					require.Equal(t, cost, time.Since(start), i)
				}
			})
		})
	}
}

// Several statements of one Query see one front end; the error of the function is the caller's own.
func TestQueryIsOneConnection(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 3})
		runs := 0
		err := r.db.Query(t.Context(), func(c *sql.Conn) error {
			runs++
			require.NoError(t, one(t.Context(), c))
			require.NoError(t, one(t.Context(), c))
			return errTest
		})
		require.ErrorIs(t, err, errTest)
		require.Equal(t, 1, runs)
		require.Equal(t, 1, r.cluster.Connections()["mysql"])
	})
}

func TestQueryAllDead(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 2})
		r.cluster.StopFE(1)
		n.hole(r.cluster.MySQLAddr(2))
		start := time.Now()
		err := r.db.Query(t.Context(), func(*sql.Conn) error { return nil })
		require.Equal(t, dialTimeout, time.Since(start))
		for _, addr := range r.cluster.MySQLAddrs() {
			require.ErrorContains(t, err, addr)
		}
		require.False(t, IsPermanent(err))
		require.NoError(t, r.cluster.StartFE(1))
		require.NoError(t, r.db.Query(t.Context(), func(c *sql.Conn) error { return one(t.Context(), c) }))
	})
}

// A front end that answers nothing until the caller's time is up is not asked first again.
func TestQueryMovesOnAfterATimeout(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 2})
		r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, FE: 1, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Hang()}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, r.db.Query(ctx, func(c *sql.Conn) error { return one(ctx, c) }), context.DeadlineExceeded)
		start := time.Now()
		require.NoError(t, r.db.Query(t.Context(), func(c *sql.Conn) error { return one(t.Context(), c) }))
		require.Zero(t, time.Since(start))
	})
}

func TestExecIsSentOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 3})
		r.cluster.StopFE(1)
		r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQLDone, Statement: "^CREATE DATABASE", Do: []starrockstest.Action{starrockstest.CloseConn()}})
		require.Error(t, r.db.Exec(t.Context(), "CREATE DATABASE a"))
		require.Equal(t, 1, r.statements("CREATE DATABASE"), "its outcome is unknown: not ours to repeat")
		require.NoError(t, r.db.Exec(t.Context(), "CREATE DATABASE b"))
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		var now, most atomic.Int64
		var wg sync.WaitGroup
		errs := make([]error, 50)
		for i := range errs {
			wg.Go(func() {
				errs[i] = r.db.Query(t.Context(), func(c *sql.Conn) error {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					time.Sleep(10 * time.Second)
					return one(t.Context(), c)
				})
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.db.Query(ctx, func(*sql.Conn) error { return nil }), context.DeadlineExceeded)
		wg.Wait()
		require.NoError(t, errors.Join(errs...), "waiting for a connection is no fault of a front end")
		require.EqualValues(t, maxConnections, most.Load())
	})
}

func TestOpenDBNamesEveryProblem(t *testing.T) {
	_, err := OpenDB(DBConfig{})
	require.ErrorContains(t, err, "no MySQL address")
	_, err = OpenDB(DBConfig{Addrs: []string{"fe1", ":9030", "fe2:9030"}})
	require.ErrorContains(t, err, `"fe1"`)
	require.ErrorContains(t, err, `":9030"`)
	db, err := OpenDB(DBConfig{Addrs: []string{"[::1]:9030", "fe:9030"}})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
