package starrocks

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrockstest"
)

// deliver does what every caller of the client has to do: the same body under its label until it is known to be done.
func deliver(t testing.TB, c *Client, label string, body sink.Body) (attempts int) {
	t.Helper()
	for attempts = 1; attempts < 20; attempts++ {
		rep := c.Load(t.Context(), label, body)
		switch rep.Outcome {
		case sink.OutcomeDone:
			return attempts
		case sink.OutcomeUnknown:
			require.Error(t, rep.Err)
			for range 30 {
				state, err := c.State(t.Context(), label)
				if state == sink.LabelVisible || state == sink.LabelCommitted {
					return attempts
				}
				if err != nil || state != sink.LabelPrepare {
					break
				}
				time.Sleep(time.Second)
			}
		default:
			require.Error(t, rep.Err)
			require.NotEqual(t, sink.ClassPermanent, rep.Class, rep.Err)
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("load %s never done", label)
	return 0
}

// Every load fails at least once in some way, and what is in the table is the truth.
func TestEveryLoadFailsOnce(t *testing.T) {
	const loads = 150
	act := func(a ...starrockstest.Action) []starrockstest.Action { return a }
	faults := []starrockstest.Fault{
		{At: starrockstest.AtFE, Path: "_stream_load", Do: act(starrockstest.Reset())},
		{At: starrockstest.AtFE, Path: "_stream_load", Do: act(starrockstest.Fail(starrockstest.MsgNoBackend))},
		{At: starrockstest.AtFE, Path: "_stream_load", Do: act(starrockstest.Sleep(30 * time.Second))},
		{At: starrockstest.AtFE, Path: "_stream_load", Do: act(starrockstest.RedirectToSelf()), Times: 8},
		{At: starrockstest.AtFE, Path: "_stream_load", Do: act(starrockstest.Reply(503, "text/html", "busy"))},
		{At: starrockstest.AtHeader, Do: act(starrockstest.CloseConn())},
		{At: starrockstest.AtHeader, Do: act(starrockstest.Fail(starrockstest.MsgRunningTxns))},
		{At: starrockstest.AtBegun, Do: act(starrockstest.Reset())},
		{At: starrockstest.AtBegun, Do: act(starrockstest.Sleep(30 * time.Second))},
		{At: starrockstest.AtBegun, Do: act(starrockstest.Fail(starrockstest.MsgMemory))},
		{At: starrockstest.AtCommit, Do: act(starrockstest.Fail(starrockstest.MsgTooManyVersions))},
		{At: starrockstest.AtCommit, Do: act(starrockstest.Reset())},
		{At: starrockstest.AtCommit, Do: act(starrockstest.Sleep(40 * time.Second))},
		{At: starrockstest.AtCommit, Do: act(starrockstest.PublishTimeout(3 * time.Second))},
		{At: starrockstest.AtCommit, Do: act(starrockstest.CommitUnknown(true))},
		{At: starrockstest.AtCommit, Do: act(starrockstest.CommitUnknown(false))},
		{At: starrockstest.AtCommitted, Do: act(starrockstest.Reset())},
		{At: starrockstest.AtCommitted, Do: act(starrockstest.Truncate(30))},
		{At: starrockstest.AtCommitted, Do: act(starrockstest.Trickle(time.Second))},
		{At: starrockstest.AtCommitted, Do: act(starrockstest.Reply(200, "text/html", "<html/>"))},
		{At: starrockstest.AtCommitted, Do: act(starrockstest.Sleep(40 * time.Second))},
	}
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 3})
		c := r.client(nil)
		rng := rand.New(rand.NewPCG(7, 7))
		users := map[uint64]bool{}
		var pv, attempts int64
		var rules []*starrockstest.Rule
		start := time.Now()
		for i := range loads {
			ids := make([]uint64, 1+rng.IntN(20))
			for k := range ids {
				ids[k] = rng.Uint64N(5000)
				users[ids[k]] = true
			}
			pv += int64(len(ids))
			row := testRow(19723)
			row.Cells = []aggregate.Cell{{Set: bitmap.Of(ids...)}, {Int: pv}, {Int: pv}, {Null: true}, {Int: pv}}
			body, err := c.Encode([]sink.Part{{Source: "s", Next: int64(i + 1), Rows: []aggregate.Row{row}}})
			require.NoError(t, err)
			rules = append(rules, r.inject(faults[(i+rng.IntN(2))%len(faults)]))
			if rng.IntN(3) == 0 {
				rules = append(rules, r.inject(faults[rng.IntN(len(faults))]))
			}
			if rng.IntN(3) == 0 {
				r.inject(starrockstest.Fault{At: starrockstest.AtState, Do: act(starrockstest.Reset())})
			}
			attempts += int64(deliver(t, c, fmt.Sprint("L", i), body))
		}
		hits := 0
		for _, rule := range rules {
			hits += rule.Hits()
		}
		require.GreaterOrEqual(t, hits, loads)
		require.Greater(t, attempts, int64(loads))
		require.Less(t, time.Since(start), loads*time.Minute)
		time.Sleep(time.Minute)
		_, rows, err := r.cluster.Query("SELECT uv, pv, highest FROM dau.daily_view")
		require.NoError(t, err)
		require.Equal(t, [][]any{{int64(len(users)), big.NewInt(pv), pv}}, rows)
		_, rows, err = r.cluster.Query("SELECT MAX(rollcall_next_offset) FROM dau.daily")
		require.NoError(t, err)
		require.Equal(t, [][]any{{int64(loads)}}, rows)
	})
}

// The same over real sockets: what a bubble cannot show is how the system's network breaks.
func TestRealSockets(t *testing.T) {
	cluster := starrockstest.New(starrockstest.Config{FEs: 2})
	require.NoError(t, cluster.Start())
	defer cluster.Close()
	db, err := OpenDB(DBConfig{Addrs: cluster.MySQLAddrs(), User: "root"})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	table, err := NewTable(db, TableConfig{Database: "dau", Table: "daily", View: "v", Dimensions: testDims(), Measures: testMeasures()})
	require.NoError(t, err)
	require.NoError(t, table.Ensure(t.Context()))
	c := newClient(t, Config{HTTP: cluster.FEURLs(), User: "root", Database: "dau", Table: "daily", Dimensions: testDims(), Measures: testMeasures()})
	row := testRow(19723)
	row.Dims[0] = string(make([]byte, 200))
	part := sink.Part{Source: "s", Next: 1}
	for range 600 { // more than the sockets' buffers take
		part.Rows = append(part.Rows, row)
	}
	body, err := c.Encode([]sink.Part{part})
	require.NoError(t, err)
	for _, fault := range []starrockstest.Fault{
		{At: starrockstest.AtHeader, Do: []starrockstest.Action{starrockstest.Reset()}},
		{At: starrockstest.AtHeader, Do: []starrockstest.Action{starrockstest.Fail(starrockstest.MsgMemory)}},
		{At: starrockstest.AtBegun, Do: []starrockstest.Action{starrockstest.Reset()}},
		{At: starrockstest.AtCommit, Do: []starrockstest.Action{starrockstest.Reset()}},
		{At: starrockstest.AtCommitted, Do: []starrockstest.Action{starrockstest.Reset()}},
	} {
		cluster.Inject(fault)
		label := "L-" + string(fault.At)
		rep := c.Load(t.Context(), label, body)
		require.NotEqual(t, sink.OutcomeDone, rep.Outcome)
		require.Error(t, rep.Err)
		cluster.Heal()
		// The server may need a moment to see that the first client has gone.
		require.Eventually(t, func() bool { return c.Load(t.Context(), label, body).Outcome == sink.OutcomeDone },
			10*time.Second, 50*time.Millisecond)
	}
	cluster.StopFE(1)
	require.Equal(t, sink.OutcomeDone, c.Load(t.Context(), "last", body).Outcome)
	require.NoError(t, table.Check(t.Context()))
}
