package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"rollcall/pkg/sink/starrockstest"
)

// A worker is killed between the intent to create its table and the statement, between the statement and its confirmation, and between the
// confirmation and the first load. The next start makes, or finds, one table of the right shape and is exact.
func TestKilledDuringTableWork(t *testing.T) {
	want := shape(t, func(t *testing.T) *rig { // nothing goes wrong
		r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
		p := r.worker("w")
		require.NoError(t, p.Start())
		r.ready(p)
		return r
	})
	hang := starrockstest.Hang()
	var cells []cell
	for _, c := range []struct {
		name string
		at   starrockstest.Fault
		// late: the server goes on with what the killed worker asked for only once the next worker runs.
		late bool
	}{
		{"before the database is created", starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE DATABASE", Do: []starrockstest.Action{hang, starrockstest.CloseConn()}}, false},
		{"the statement never arrives", starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Do: []starrockstest.Action{hang, starrockstest.CloseConn()}}, false},
		{"the statement is carried out after the kill", starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Do: []starrockstest.Action{hang}}, false},
		{"the statement is carried out while the next worker creates", starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Do: []starrockstest.Action{hang}}, true},
		{"carried out and not answered", starrockstest.Fault{At: starrockstest.AtSQLDone, Statement: "^CREATE TABLE", Do: []starrockstest.Action{hang}}, false},
		{"carried out and not read back", starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^DESC", Skip: 1, Do: []starrockstest.Action{hang}}, false},
		{"refused and not answered", starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Do: []starrockstest.Action{hang, starrockstest.SQLError(1064, "no luck")}}, false},
		{"confirmed, no view yet", starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE.* VIEW", Do: []starrockstest.Action{hang, starrockstest.CloseConn()}}, false},
		{"view carried out and not answered", starrockstest.Fault{At: starrockstest.AtSQLDone, Statement: "^CREATE.* VIEW", Do: []starrockstest.Action{hang}}, false},
		{"confirmed, nothing loaded yet", starrockstest.Fault{At: starrockstest.AtHeader, Do: []starrockstest.Action{hang}}, false},
	} {
		cells = append(cells, cell{c.name, func(t *testing.T) {
			require.Equal(t, want, shape(t, func(t *testing.T) *rig { return killedAtTableWork(t, c.at, c.late) }))
		}})
	}
	sideBySide(t, cells)
}

// shape runs a scenario and describes the tables and views it leaves: names and columns.
func shape(t *testing.T, run func(t *testing.T) *rig) string {
	t.Helper()
	r := run(t)
	out := ""
	for _, q := range []string{"SHOW TABLES FROM dau", "DESC dau.daily", "DESC " + view} {
		_, rows, err := r.rocks.Query(q)
		require.NoError(t, err)
		for _, row := range rows {
			out += fmt.Sprintln(row...)
		}
	}
	return out
}

func killedAtTableWork(t *testing.T, at starrockstest.Fault, late bool) *rig {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	require.NoError(t, r.rocks.Exec("DROP DATABASE dau"))
	p := r.worker("w", "KAFKA_INSTANCE_ID=w")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.produce(ctx, threeDays(21), 2400, 0))
	rule := r.rocks.Inject(at)
	require.NoError(t, p.Start())
	require.NoError(t, rule.WaitHits(ctx, 1))
	p.Kill()
	rule.Remove()
	if late {
		time.AfterFunc(150*time.Millisecond, rule.Release)
	} else {
		rule.Release()
	}
	begun := time.Now()
	require.NoError(t, p.Start())
	r.exact(20*time.Second, p)
	require.Less(t, time.Since(begun), 12*time.Second)
	r.ready(p)
	r.stop(p, 0)
	require.Equal(t, r.ends(), r.committed())
	return r
}

// CREATE TABLE is refused for ever at the first start: said, tried again, exit 13 when STARTUP_TIMEOUT is over, nothing committed. Nothing
// of it is remembered: the next start issues the statement again and is exact.
func TestTableCannotBeCreated(t *testing.T) {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	r.extra["STARTUP_TIMEOUT"] = "6s"
	p := r.worker("w")
	require.NoError(t, r.produce(t.Context(), threeDays(22), 2400, 0))
	rule := r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.SQLError(1064, "Unexpected exception: no luck today")}})
	require.NoError(t, p.Start())
	require.NoError(t, rule.WaitHits(t.Context(), 1))
	require.Eventually(t, func() bool {
		code, body, err := p.Get(t.Context(), "/readyz")
		return err == nil && code == http.StatusServiceUnavailable && regexp.MustCompile(`(?s)"table".*no luck today`).Match(body)
	}, 5*time.Second, 20*time.Millisecond)
	code, err := p.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 13, code)
	require.Contains(t, p.Tail(16<<10), "ddl_failed")
	require.Contains(t, p.Tail(1<<10), "no luck today", "the last words name the cause")
	require.GreaterOrEqual(t, rule.Hits(), 3)
	require.LessOrEqual(t, rule.Hits(), 8, "retried with a back-off")
	_, err = kadm.NewClient(r.prod).FetchOffsets(t.Context(), r.group)
	require.ErrorIs(t, err, kerr.GroupIDNotFound, "nothing read, nothing committed: the group was never joined")
	r.rocks.Heal()
	before := r.statements("^CREATE TABLE")
	begun := time.Now()
	require.NoError(t, p.Start())
	r.exact(12*time.Second, p)
	require.Equal(t, before+1, r.statements("^CREATE TABLE"))
	t.Logf("exact %.1f s after the restart", time.Since(begun).Seconds())
	r.stop(p, 0)
}

// statements is how many statements that match have arrived.
func (r *rig) statements(pattern string) (n int) {
	re := regexp.MustCompile(pattern)
	for _, s := range r.rocks.Statements() {
		if re.MatchString(s.SQL) {
			n++
		}
	}
	return n
}

// A CREATE that never returns holds up nothing but the table: probes and metrics answer, and SIGTERM ends the worker with 0, since no row
// depends on it.
func TestStopWhileTableWorkHangs(t *testing.T) {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	p := r.worker("w")
	require.NoError(t, r.produce(t.Context(), threeDays(23), 1200, 0))
	rule := r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtSQL, Statement: "^CREATE TABLE", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Hang()}})
	require.NoError(t, p.Start())
	require.NoError(t, rule.WaitHits(t.Context(), 1))
	for range 10 {
		for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/metrics": 200, "/status": 200} {
			begun := time.Now()
			code, _, err := p.Get(t.Context(), path)
			require.NoError(t, err)
			require.Equal(t, want, code, path)
			require.Less(t, time.Since(begun), time.Second, path)
		}
		time.Sleep(50 * time.Millisecond)
	}
	begun := time.Now()
	r.stop(p, 0)
	require.Less(t, time.Since(begun), 3*time.Second)
	r.rocks.Heal()
	require.NoError(t, p.Start())
	r.exact(20*time.Second, p)
}

// A measure is added: the worker waits for the alter job and loads the new column only when it is finished, also if it is killed while
// the statement or the job is under way.
func TestKilledWhileAMeasureIsAdded(t *testing.T) {
	hang := starrockstest.Hang()
	var cells []cell
	for name, at := range map[string]starrockstest.Fault{
		"not killed":                     {},
		"the statement never arrives":    {At: starrockstest.AtSQL, Statement: "^ALTER TABLE", Do: []starrockstest.Action{hang, starrockstest.CloseConn()}},
		"carried out after the kill":     {At: starrockstest.AtSQL, Statement: "^ALTER TABLE", Do: []starrockstest.Action{hang}},
		"accepted and not answered":      {At: starrockstest.AtSQLDone, Statement: "^ALTER TABLE", Do: []starrockstest.Action{hang}},
		"while the job is under way":     {At: starrockstest.AtSQLDone, Statement: "^SHOW ALTER", Skip: 1, Do: []starrockstest.Action{hang}},
		"finished and not read back yet": {At: starrockstest.AtSQL, Statement: "^DESC", Skip: 2, Do: []starrockstest.Action{hang}},
	} {
		cells = append(cells, cell{name, func(t *testing.T) { killedWhileAdding(t, at) }})
	}
	sideBySide(t, cells)
}

func killedWhileAdding(t *testing.T, at starrockstest.Fault) {
	const job = 2 * time.Second
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{AlterDuration: job})
	first := r.worker("first")
	require.NoError(t, first.Start())
	r.ready(first)
	r.stop(first, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.group = "g2" // no history of the old program: the table is empty
	r.extra["AGGREGATE_MEASURES"] = "uv=distinct(user_id),pv=count,amount=sum(amount,2),least=min(amount,2),most=max(amount,2),visits=count"
	p := r.worker("w", "KAFKA_INSTANCE_ID=w")
	require.NoError(t, r.produce(ctx, threeDays(24), 2400, 0))
	if at.At != "" {
		rule := r.rocks.Inject(at)
		require.NoError(t, p.Start())
		require.NoError(t, rule.WaitHits(ctx, 1))
		p.Kill()
		rule.Remove()
		rule.Release()
	}
	begun := time.Now()
	require.NoError(t, p.Start())
	r.exact(20*time.Second, p)
	require.Less(t, time.Since(begun), 12*time.Second)
	_, rows, err := r.rocks.Query("SELECT SUM(visits), SUM(pv) FROM " + view)
	require.NoError(t, err)
	require.Equal(t, rows[0][1], rows[0][0])
	_, jobs, err := r.rocks.Query("SHOW ALTER TABLE COLUMN FROM dau")
	require.NoError(t, err)
	require.Len(t, jobs, 1, "one job in all, whatever happened to the statement's answer")
	var altered time.Time
	for _, s := range r.rocks.Statements() {
		if regexp.MustCompile("^ALTER TABLE").MatchString(s.SQL) && s.Err == "" && s.Done {
			altered = s.At
		}
	}
	for _, l := range r.rocks.Loads() {
		require.True(t, l.At.After(altered.Add(job)), "a load at %s, before the job begun at %s was finished", l.At, altered)
		require.Equal(t, "Success", l.Status, l.Message)
	}
	r.stop(p, 0)
}
