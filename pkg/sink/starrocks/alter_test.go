package starrocks

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"rollcall/pkg/sink/starrockstest"
)

// 000-09: a new measure waits for its alter job; other columns stay as they are and the view follows.
func TestMissingMeasureIsAddedByAJob(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		require.NoError(t, r.table(r.db, func(c *TableConfig) { c.Measures = testMeasures()[1:4] }).Ensure(t.Context()))
		r.cluster.ScriptAlter(starrockstest.AlterScript{Duration: 27 * time.Second}, starrockstest.AlterScript{Duration: time.Second})
		core, logs := observer.New(zapcore.InfoLevel)
		table := r.table(r.db, func(c *TableConfig) { c.Log = zap.New(core) })
		start := time.Now()
		require.NoError(t, table.Ensure(t.Context()))
		require.GreaterOrEqual(t, time.Since(start), 28*time.Second)
		require.LessOrEqual(t, time.Since(start), 31*time.Second)
		require.Equal(t, 2, r.statements(alterTable))
		require.Equal(t, 2, logs.FilterMessage("column added").Len())
		require.NoError(t, table.Check(t.Context()))
		columns, _, err := r.cluster.Query("SELECT * FROM dau.daily_view")
		require.NoError(t, err)
		require.Equal(t, []string{"dt", "platform", "order", "uv", "pv", "amount", "lowest", "highest"}, columns)
	})
}

// 000-10: a job that is cancelled is an error with its message; the next attempt starts another one.
func TestCancelledJob(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		require.NoError(t, r.table(r.db, func(c *TableConfig) { c.Measures = testMeasures()[:4] }).Ensure(t.Context()))
		r.cluster.ScriptAlter(starrockstest.AlterScript{Duration: 5 * time.Second, Cancel: "schema change timed out"})
		table := r.table(r.db, nil)
		err := table.Ensure(t.Context())
		require.ErrorContains(t, err, "add column highest")
		require.ErrorContains(t, err, "schema change timed out")
		require.False(t, IsPermanent(err))
		// What the old job died of is not what a statement is refused for.
		r.cluster.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^ALTER", Do: []starrockstest.Action{starrockstest.SQLError(1064, "not today")}})
		err = table.Ensure(t.Context())
		require.ErrorContains(t, err, "not today")
		require.NotContains(t, err.Error(), "timed out")
		require.NoError(t, table.Ensure(t.Context()))
		require.Equal(t, 3, r.statements(alterTable))
	})
}

// A job of before a restart, or of another worker, is waited for and not repeated.
func TestJobUnderWayIsAwaited(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		require.NoError(t, r.table(r.db, func(c *TableConfig) { c.Measures = testMeasures()[:4] }).Ensure(t.Context()))
		r.cluster.ScriptAlter(starrockstest.AlterScript{Duration: 20 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, r.table(r.db, nil).Ensure(ctx), context.DeadlineExceeded)
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() { errs[i] = r.table(r.db, nil).Ensure(t.Context()) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, 1, r.statements(alterTable))
	})
}

func TestAlterWaitHasALimit(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{AlterDuration: time.Hour})
		require.NoError(t, r.table(r.db, func(c *TableConfig) { c.Measures = testMeasures()[:4] }).Ensure(t.Context()))
		start := time.Now()
		err := r.table(r.db, func(c *TableConfig) { c.AlterTimeout = time.Minute }).Ensure(t.Context())
		require.ErrorContains(t, err, "alter jobs take too long")
		require.ErrorContains(t, err, "PENDING")
		require.Equal(t, time.Minute, time.Since(start))
	})
}
