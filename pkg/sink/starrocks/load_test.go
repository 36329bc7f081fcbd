package starrocks

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
	"rollcall/pkg/bitmap"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrockstest"
)

// client makes the table and a client for it.
func (r *rig) client(change func(*Config)) *Client {
	r.t.Helper()
	require.NoError(r.t, r.table(r.db, nil).Ensure(r.t.Context()))
	cfg := testConfig(r.net, r.cluster.FEURLs()...)
	cfg.User, cfg.Password = "root", ""
	if change != nil {
		change(&cfg)
	}
	return newClient(r.t, cfg)
}

func (r *rig) inject(f starrockstest.Fault) *starrockstest.Rule { return r.cluster.Inject(f) }

func (r *rig) uv() any {
	r.t.Helper()
	_, rows, err := r.cluster.Query("SELECT SUM(uv) FROM dau.daily_view")
	require.NoError(r.t, err)
	return rows[0][0]
}

func requireDone(t testing.TB, rep sink.Reply) {
	t.Helper()
	require.NoError(t, rep.Err)
	require.Equal(t, sink.OutcomeDone, rep.Outcome)
}

// What is loaded, in any order and any number of times, is what the view shows.
func TestLoadsMergeIntoTheTruth(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 3})
		c := r.client(nil)
		rng := rand.New(rand.NewPCG(1, 2))
		var bodies []sink.Body
		users := map[uint64]bool{}
		pv := map[string]int64{}
		lowest := int64(1 << 40)
		for step := range 12 {
			source := fmt.Sprintf("events/%d/x/0.1-00000000", step%3)
			ids := make([]uint64, rng.IntN(2000))
			for i := range ids {
				ids[i] = rng.Uint64() >> rng.IntN(60)
				users[ids[i]] = true
			}
			pv[source] += int64(len(ids))
			low := rng.Int64N(1 << 30)
			lowest = min(lowest, low)
			row := aggregate.Row{Day: 19723, Dims: []string{"ios \"\\\n", "é"}, LastEventMs: 1700000000000 + int64(step), Cells: []aggregate.Cell{
				{Set: bitmap.Of(ids...)}, {Int: pv[source]}, {Int: int64(step)}, {Int: low}, {Null: true},
			}}
			part := sink.Part{Source: source, Next: int64(step + 1), Rows: []aggregate.Row{row}}
			body, err := c.Encode([]sink.Part{part, {Source: source, Ahead: true, Rows: []aggregate.Row{row}}})
			require.NoError(t, err)
			bodies = append(bodies, body)
		}
		order := append(rng.Perm(len(bodies)), rng.Perm(len(bodies))...)
		for k, i := range order {
			rep := c.Load(t.Context(), fmt.Sprintf("L-%d", k), bodies[i])
			requireDone(t, rep)
			require.True(t, rep.Visible)
			require.EqualValues(t, bodies[i].Rows, rep.Loaded)
		}
		total := int64(0)
		for _, v := range pv {
			total += v
		}
		_, rows, err := r.cluster.Query("SELECT * FROM dau.daily_view")
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, []any{"2024-01-01", "ios \"\\\n", "é", int64(len(users)), big.NewInt(total), big.NewInt(9 + 10 + 11), lowest, nil}, rows[0])
		_, rows, err = r.cluster.Query("SELECT rollcall_source, rollcall_next_offset, rollcall_last_event_ms FROM dau.daily ORDER BY rollcall_source")
		require.NoError(t, err)
		require.Equal(t, [][]any{
			{"events/0/x/0.1-00000000", int64(10), int64(1700000000009)},
			{"events/1/x/0.1-00000000", int64(11), int64(1700000000010)},
			{"events/2/x/0.1-00000000", int64(12), int64(1700000000011)},
		}, rows)
	})
}

// A set above the cell limit arrives whole.
func TestBigBitmapArrivesWhole(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		c := r.client(nil)
		ids := make([]uint64, 60_000)
		for i := range ids {
			ids[i] = uint64(i) * 0x9e3779b97f4a7c15
		}
		slices.Sort(ids)
		row := testRow(19723)
		row.Cells[0].Set = bitmap.FromSorted(ids)
		body, err := c.Encode([]sink.Part{{Source: "s", Next: 1, Rows: []aggregate.Row{row}}})
		require.NoError(t, err)
		require.Greater(t, body.Rows, 1)
		rep := c.Load(t.Context(), "L", body)
		requireDone(t, rep)
		require.EqualValues(t, body.Rows, rep.Loaded)
		require.EqualValues(t, len(ids), r.uv())
	})
}

// Front ends that keep connections (before 3.1.16) answer 401 once a body was sent to them (starrocks#1467).
func TestOldFrontEnds(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEKeepAlive: true})
		c := r.client(nil)
		body := testBody(t, c)
		for i := range 5 {
			requireDone(t, c.Load(t.Context(), fmt.Sprint("L", i), body))
		}
		require.Equal(t, 5, r.cluster.Connections()["fe"])
	})
}

// lost is an attempt whose outcome the client cannot know, and what the label's state and a second attempt then say.
func TestUnknownOutcomes(t *testing.T) {
	type fault = starrockstest.Fault
	type action = starrockstest.Action
	html := starrockstest.Reply(200, "text/html", "<html><body>Success</body></html>")
	for name, tc := range map[string]struct {
		fault  fault
		reason string
		state  sink.LabelState
	}{
		// 001-14
		"reply lost":       {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Reset()}}, ReasonNoReply, sink.LabelVisible},
		"closed":           {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.CloseConn()}}, ReasonNoReply, sink.LabelVisible},
		"reply hangs":      {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Hang()}}, ReasonTimeout, sink.LabelVisible},
		"reply trickles":   {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Trickle(time.Second)}}, ReasonGarbled, sink.LabelVisible},
		"reply cut":        {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Truncate(100)}}, ReasonGarbled, sink.LabelVisible},
		"HTML":             {fault{At: starrockstest.AtCommitted, Do: []action{html}}, ReasonGarbled, sink.LabelVisible},
		"empty":            {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Reply(200, "", "")}}, ReasonGarbled, sink.LabelVisible},
		"no status":        {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Reply(200, "application/json", `{"Label":"L"}`)}}, ReasonGarbled, sink.LabelVisible},
		"null status":      {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Reply(200, "application/json", `{"Label":"L","Status":null}`)}}, ReasonGarbled, sink.LabelVisible},
		"other status":     {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Reply(200, "application/json", `{"Label":"L","Status":"Done"}`)}}, ReasonGarbled, sink.LabelVisible},
		"binary":           {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Reply(200, "application/octet-stream", success("L", 1))}}, ReasonGarbled, sink.LabelVisible},
		"proxy's 504":      {fault{At: starrockstest.AtCommitted, Do: []action{starrockstest.Reply(504, "text/html", "gateway timeout")}}, ReasonHTTP, sink.LabelVisible},
		"commit in doubt":  {fault{At: starrockstest.AtCommit, Do: []action{starrockstest.CommitUnknown(true)}}, ReasonCommitUnknown, sink.LabelVisible},
		"doubt, aborted":   {fault{At: starrockstest.AtCommit, Do: []action{starrockstest.CommitUnknown(false)}}, ReasonCommitUnknown, sink.LabelAborted},
		"cut after body":   {fault{At: starrockstest.AtCommit, Do: []action{starrockstest.Reset()}}, ReasonNoReply, sink.LabelAborted},
		"before the label": {fault{At: starrockstest.AtHeader, Do: []action{html}}, ReasonGarbled, sink.LabelUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				r := standIn(t, n, starrockstest.Config{FEs: 2})
				c := r.client(nil)
				body := testBody(t, c)
				rule := r.inject(tc.fault)
				start := time.Now()
				rep := c.Load(t.Context(), "L", body)
				require.LessOrEqual(t, time.Since(start), 25*time.Second)
				require.Equal(t, sink.OutcomeUnknown, rep.Outcome, rep.Err)
				require.Equal(t, tc.reason, rep.Reason, rep.Err)
				rule.Release()
				synctest.Wait()
				state, err := c.State(t.Context(), "L")
				require.NoError(t, err)
				require.Equal(t, tc.state, state)
				// The same body under its label: done at once, or done now.
				rep = c.Load(t.Context(), "L", body)
				requireDone(t, rep)
				require.Equal(t, tc.state == sink.LabelVisible, rep.ByLabel)
				committed, rows := r.cluster.Committed()
				require.Len(t, committed, 1, "never twice")
				require.Equal(t, body.Rows, rows)
				require.EqualValues(t, 3, r.uv())
			})
		})
	}
}

// 001-13 a and b, and every other way to fail for sure: nothing is loaded, and the same label may be used again.
func TestFailedOutcomes(t *testing.T) {
	type fault = starrockstest.Fault
	fail := func(message string) []starrockstest.Action {
		return []starrockstest.Action{starrockstest.Fail(message)}
	}
	for name, tc := range map[string]struct {
		fault  fault
		class  sink.Class
		reason string
	}{
		"fail":                  {fault{At: starrockstest.AtCommit, Do: fail("tablet writer is tired")}, sink.ClassTransient, ReasonReplica},
		"refused by the FE":     {fault{At: starrockstest.AtFE, Do: fail("class com.starrocks.common.DdlException: No backend alive.")}, sink.ClassTransient, ReasonNoBackend},
		"too many versions":     {fault{At: starrockstest.AtCommit, Do: fail(starrockstest.MsgTooManyVersions)}, sink.ClassOverload, ReasonTooManyVersion},
		"memory":                {fault{At: starrockstest.AtBegun, Do: fail(starrockstest.MsgMemory)}, sink.ClassOverload, ReasonMemory},
		"running transactions":  {fault{At: starrockstest.AtHeader, Do: fail(starrockstest.MsgRunningTxns)}, sink.ClassOverload, ReasonRunningTxns},
		"replicas":              {fault{At: starrockstest.AtCommit, Do: fail(starrockstest.MsgReplicas)}, sink.ClassTransient, ReasonReplica},
		"too large":             {fault{At: starrockstest.AtHeader, Do: []starrockstest.Action{starrockstest.LimitBody(10)}}, sink.ClassTooLarge, ReasonTooLarge},
		"413":                   {fault{At: starrockstest.AtHeader, Do: []starrockstest.Action{starrockstest.Reply(413, "text/html", "too large")}}, sink.ClassTooLarge, ReasonTooLarge},
		"429":                   {fault{At: starrockstest.AtFE, Do: []starrockstest.Action{starrockstest.Reply(429, "text/html", "slow down")}}, sink.ClassOverload, ReasonThrottled},
		"FE 500":                {fault{At: starrockstest.AtFE, Do: []starrockstest.Action{starrockstest.Reply(500, "text/html", "java.lang")}}, sink.ClassTransient, ReasonHTTP},
		"FE resets":             {fault{At: starrockstest.AtFE, Do: []starrockstest.Action{starrockstest.Reset()}}, sink.ClassTransient, ReasonNoReply},
		"FE hangs":              {fault{At: starrockstest.AtFE, Do: []starrockstest.Action{starrockstest.Hang()}}, sink.ClassTransient, ReasonTimeout},
		"redirect to nowhere":   {fault{At: starrockstest.AtFE, Do: []starrockstest.Action{starrockstest.Redirect("http://gone:8040/x")}}, sink.ClassTransient, ReasonConnect},
		"redirect without end":  {fault{At: starrockstest.AtFE, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.RedirectToSelf()}}, sink.ClassTransient, ReasonRedirect},
		"bare redirect":         {fault{At: starrockstest.AtFE, Do: []starrockstest.Action{starrockstest.Redirect("")}}, sink.ClassTransient, ReasonRedirect},
		"BE resets at header":   {fault{At: starrockstest.AtHeader, Do: []starrockstest.Action{starrockstest.Reset()}}, sink.ClassTransient, ReasonNoReply},
		"BE resets before body": {fault{At: starrockstest.AtBegun, Do: []starrockstest.Action{starrockstest.Reset()}}, sink.ClassTransient, ReasonNoReply},
		"BE hangs before body":  {fault{At: starrockstest.AtBegun, Do: []starrockstest.Action{starrockstest.Hang()}}, sink.ClassTransient, ReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				r := standIn(t, n, starrockstest.Config{})
				c := r.client(nil)
				body := testBody(t, c)
				rule := r.inject(tc.fault)
				rep := c.Load(t.Context(), "L", body)
				require.Equal(t, sink.OutcomeFailed, rep.Outcome, rep.Err)
				require.Equal(t, tc.class, rep.Class, rep.Err)
				require.Equal(t, tc.reason, rep.Reason, rep.Err)
				committed, _ := r.cluster.Committed()
				require.Empty(t, committed)
				r.cluster.Heal()
				rule.Release()
				synctest.Wait()
				requireDone(t, c.Load(t.Context(), "L", body))
				require.EqualValues(t, 3, r.uv())
			})
		})
	}
}

// 001-22: committed, and visible later.
func TestPublishTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		c := r.client(nil)
		body := testBody(t, c)
		r.inject(starrockstest.Fault{At: starrockstest.AtCommit, Do: []starrockstest.Action{starrockstest.PublishTimeout(8 * time.Second)}})
		rep := c.Load(t.Context(), "L", body)
		requireDone(t, rep)
		require.False(t, rep.Visible)
		require.EqualValues(t, body.Rows, rep.Loaded)
		state, err := c.State(t.Context(), "L")
		require.NoError(t, err)
		require.Equal(t, sink.LabelCommitted, state)
		time.Sleep(9 * time.Second)
		state, err = c.State(t.Context(), "L")
		require.NoError(t, err)
		require.Equal(t, sink.LabelVisible, state)
		require.EqualValues(t, 3, r.uv())
	})
}

// 001-24 and labels that run: somebody's label is never taken for ours while it runs.
func TestRunningLabel(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		c := r.client(nil)
		body := testBody(t, c)
		require.NoError(t, r.cluster.SeedTxn("dau", "L", starrockstest.StatePrepare))
		rep := c.Load(t.Context(), "L", body)
		require.Equal(t, sink.OutcomeUnknown, rep.Outcome)
		require.Equal(t, ReasonLabelRunning, rep.Reason)
		state, err := c.State(t.Context(), "L")
		require.NoError(t, err)
		require.Equal(t, sink.LabelPrepare, state)
		require.NoError(t, r.cluster.SetTxn("dau", "L", starrockstest.StateAborted))
		requireDone(t, c.Load(t.Context(), "L", body))
	})
}

// 001-17, 001-18
func TestStateThatNobodyKnows(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 3})
		c := r.client(nil)
		state, err := c.State(t.Context(), "never-begun")
		require.NoError(t, err)
		require.Equal(t, sink.LabelUnknown, state)
		r.inject(starrockstest.Fault{
			At: starrockstest.AtFE, Path: "get_load_state", Times: 3,
			Do: []starrockstest.Action{starrockstest.Reply(500, "text/html", "oops")},
		})
		for range 3 {
			state, err = c.State(t.Context(), "L")
			require.ErrorContains(t, err, "HTTP 500")
			require.Empty(t, state)
		}
		_, err = c.State(t.Context(), "L")
		require.NoError(t, err)
	})
}

// 001-27: refused rows come with the server's own words about them.
func TestRefusedRows(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		c := r.client(nil)
		table := r.table(r.db, nil)
		r.exec("DROP TABLE dau.daily", strings.Replace(table.DDL(), "`platform` VARCHAR(255)", "`platform` VARCHAR(2)", 1))
		body := testBody(t, c)
		rep := c.Load(t.Context(), "L", body)
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
		require.Equal(t, sink.ClassRefused, rep.Class)
		require.EqualValues(t, 1, rep.Filtered)
		require.Contains(t, rep.RejectedRows, "platform")
		require.LessOrEqual(t, len(rep.RejectedRows), errorLogBytes)
		require.Equal(t, []string{"type platform"}, kinds(t, table.Check(t.Context())))
		r.exec("DROP TABLE dau.daily", table.DDL())
		requireDone(t, c.Load(t.Context(), "L", body))
	})
	// Committed with another count than sent: handed on as the server said it.
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		c := r.client(nil)
		r.inject(starrockstest.Fault{At: starrockstest.AtCommitted, Do: []starrockstest.Action{starrockstest.Miscount(-1)}})
		rep := c.Load(t.Context(), "L", testBody(t, c))
		requireDone(t, rep)
		require.Zero(t, rep.Loaded)
	})
}

// 001-29: what a person has to change is said at once.
func TestRightsForLoading(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{Users: []starrockstest.User{
			{Name: "root"},
			{Name: "reader", Password: "pw", Privileges: []starrockstest.Privilege{starrockstest.Select}},
		}})
		for _, user := range [][2]string{{"reader", "pw"}, {"reader", "wrong"}, {"nobody", ""}} {
			c := r.client(func(c *Config) { c.User, c.Password = user[0], user[1] })
			start := time.Now()
			rep := c.Load(t.Context(), "L", testBody(t, c))
			require.Equal(t, sink.OutcomeFailed, rep.Outcome)
			require.Equal(t, sink.ClassPermanent, rep.Class)
			require.Zero(t, time.Since(start))
			require.ErrorContains(t, rep.Err, "GRANT INSERT")
			if user[1] != "" {
				require.NotContains(t, rep.Err.Error(), user[1], "no password in an error")
			}
		}
	})
	for name, tc := range map[string]struct{ database, table string }{"database": {"other", "daily"}, "table": {"dau", "other"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				r := standIn(t, n, starrockstest.Config{})
				c := r.client(func(c *Config) { c.Database, c.Table = tc.database, tc.table })
				rep := c.Load(t.Context(), "L", testBody(t, c))
				require.Equal(t, sink.OutcomeFailed, rep.Outcome)
				require.Equal(t, sink.ClassPermanent, rep.Class, rep.Err)
			})
		})
	}
}

// 001-31, 001-20: front ends and nodes come and go.
func TestClusterComesAndGoes(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{FEs: 3})
		c := r.client(nil)
		body := testBody(t, c)
		label := 0
		load := func() sink.Reply {
			label++
			return c.Load(t.Context(), fmt.Sprint("L", label), body)
		}
		for fe := 1; fe <= 3; fe++ {
			r.cluster.StopFE(fe)
			start := time.Now()
			rep := load()
			require.LessOrEqual(t, time.Since(start), 5*time.Second)
			if fe < 3 {
				requireDone(t, rep)
			} else {
				require.Equal(t, ReasonConnect, rep.Reason)
			}
		}
		require.NoError(t, r.cluster.StartFE(2))
		requireDone(t, load())
		r.cluster.StopBE()
		require.Equal(t, ReasonConnect, load().Reason)
		require.NoError(t, r.cluster.StartBE())
		requireDone(t, load())
		r.cluster.SetBackends(0)
		require.Equal(t, ReasonNoBackend, load().Reason)
		r.cluster.SetBackends(3)
		requireDone(t, load())
	})
}

// 001-13 c: whoever asked for the load is gone, the load is not.
func TestClientGoneAfterCommit(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		r := standIn(t, n, starrockstest.Config{})
		c := r.client(nil)
		body := testBody(t, c)
		rule := r.inject(starrockstest.Fault{At: starrockstest.AtCommitted, Do: []starrockstest.Action{starrockstest.Hang()}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		rep := c.Load(ctx, "L", body)
		require.Equal(t, sink.OutcomeUnknown, rep.Outcome)
		require.Equal(t, ReasonCancelled, rep.Reason)
		rule.Release()
		// Another process, another label, the same rows: harmless.
		requireDone(t, c.Load(t.Context(), "M", body))
		require.EqualValues(t, 3, r.uv())
	})
}
