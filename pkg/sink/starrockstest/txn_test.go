package starrockstest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"rollcall/pkg/sink/starrockstest"
)

type txnReply struct {
	Status, Message, Label string
	ExistingJobStatus      *string
	TxnId                  int64 //nolint:revive // the server's spelling
	NumberTotalRows        *int
	NumberLoadedRows       int
	LoadBytes              int64
}

// op is one call of the transaction interface, following redirects by hand with credentials.
func op(t *testing.T, c *starrockstest.Cluster, tr http.RoundTripper, name, label, body string, headers ...string) txnReply {
	t.Helper()
	url := c.FEURL(len(c.FEURLs())) + "/api/transaction/" + name
	for range 4 {
		method := http.MethodPost
		if name == "load" {
			method = http.MethodPut
		}
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		require.NoError(t, err)
		req.SetBasicAuth("root", "")
		req.Close = true
		if body != "" {
			req.Header.Set("Expect", "100-continue")
		}
		req.Header.Set("label", label)
		req.Header.Set("db", "dau")
		req.Header.Set("table", "daily")
		for k, v := range jsonHeaders(columns) {
			req.Header.Set(k, v)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		out, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		if resp.StatusCode == http.StatusTemporaryRedirect {
			url = resp.Header.Get("Location")
			continue
		}
		require.Equal(t, 200, resp.StatusCode)
		var r txnReply
		require.NoError(t, json.Unmarshal(out, &r), string(out))
		return r
	}
	t.Fatal("too many redirects")
	return txnReply{}
}

func TestTransactionInterface(t *testing.T) {
	c := seeded(t, starrockstest.Config{FEs: 2}) // through the follower, the leader and the BE
	tr := &http.Transport{ExpectContinueTimeout: 10 * time.Second}
	do := func(name, label, body string, headers ...string) txnReply {
		return op(t, c, tr, name, label, body, headers...)
	}

	b := do("begin", "t-1", "")
	require.Equal(t, "OK", b.Status)
	require.Equal(t, starrockstest.StatePrepare, c.LabelState("dau", "t-1"))
	again := do("begin", "t-1", "")
	require.Equal(t, "LABEL_ALREADY_EXISTS", again.Status)
	require.Empty(t, again.Message)
	require.Empty(t, *again.ExistingJobStatus, "the BE still holds the context")

	l := do("load", "t-1", oneRow)
	require.Equal(t, []any{"OK", b.TxnId, int64(len(oneRow))}, []any{l.Status, l.TxnId, l.LoadBytes})
	require.Nil(t, l.NumberTotalRows, "no row counts in a load's answer")
	require.Equal(t, "OK", do("load", "t-1", strings.Replace(oneRow, "ios", "web", 1)).Status)
	p := do("prepare", "t-1", "")
	require.Equal(t, []any{"OK", 2, 2, int64(2 * len(oneRow))}, []any{p.Status, *p.NumberTotalRows, p.NumberLoadedRows, p.LoadBytes})
	require.Equal(t, starrockstest.StatePrepared, c.LabelState("dau", "t-1"))
	require.Equal(t, "TXN_NOT_EXISTS", do("load", "t-1", oneRow).Status)
	require.Equal(t, "RUNNING", load(t, c, "daily", "t-1", oneRow, jsonHeaders(columns)).ExistingJobStatus)
	rows, err := c.Rows("dau", "daily")
	require.NoError(t, err)
	require.Empty(t, rows)
	require.Equal(t, "OK", do("commit", "t-1", "").Status)
	require.Equal(t, starrockstest.StateVisible, c.LabelState("dau", "t-1"))
	rows, err = c.Rows("dau", "daily")
	require.NoError(t, err)
	require.Len(t, rows, 2)

	r := do("commit", "t-1", "")
	require.Equal(t, "OK", r.Status)
	require.Contains(t, r.Message, "has already committed, label is t-1")
	r = do("rollback", "t-1", "")
	require.Equal(t, "FAILED", r.Status)
	require.Contains(t, r.Message, "Can not abort VISIBLE transaction")
	r = do("begin", "t-1", "")
	require.Equal(t, []any{"LABEL_ALREADY_EXISTS", "Label [t-1] has already been used."}, []any{r.Status, r.Message})
	require.Equal(t, "FINISHED", *r.ExistingJobStatus)

	require.Equal(t, "OK", do("begin", "t-2", "").Status)
	require.Equal(t, "OK", do("load", "t-2", oneRow).Status)
	require.Equal(t, "OK", do("commit", "t-2", "").Status, "one phase")
	require.Equal(t, starrockstest.StateVisible, c.LabelState("dau", "t-2"))
}

func TestTransactionErrors(t *testing.T) {
	c := seeded(t, starrockstest.Config{MaxJSONBytes: 150})
	require.NoError(t, c.Exec("CREATE DATABASE other"))
	tr := &http.Transport{ExpectContinueTimeout: 10 * time.Second}
	do := func(name, label, body string, headers ...string) txnReply {
		return op(t, c, tr, name, label, body, headers...)
	}
	require.Equal(t, "No transaction found by label nix", after(do("commit", "nix", "").Message, ": "))
	require.Equal(t, "transaction with label nix not exists", do("load", "nix", oneRow).Message)

	do("begin", "t-1", "")
	require.Contains(t, do("commit", "t-1", "").Message, "hasn't send any data yet")
	require.Equal(t, starrockstest.StateAborted, c.LabelState("dau", "t-1"), "an error rolls back")
	require.Contains(t, do("commit", "t-1", "").Message, "Can not commit ABORTED transaction")
	r := do("rollback", "t-1", "")
	require.Equal(t, "OK", r.Status)
	require.Contains(t, r.Message, "has already aborted")

	require.Equal(t, "OK", do("begin", "t-1", "").Status, "begin starts it again")
	require.Contains(t, do("load", "t-1", oneRow, "db", "other").Message, "request db other transaction db dau not match")
	require.Contains(t, do("load", "t-1", oneRow, "table", "other").Message, "Request table other not equal transaction table daily")
	require.Equal(t, "OK", do("load", "t-1", oneRow).Status)
	require.Contains(t, do("load", "t-1", oneRow).Message, "exceed the max size [150]", "body bytes accumulate over the loads")
	require.Equal(t, starrockstest.StateAborted, c.LabelState("dau", "t-1"))

	do("begin", "t-2", "")
	require.Equal(t, "OK", do("rollback", "t-2", "").Status)
	require.Equal(t, starrockstest.StateAborted, c.LabelState("dau", "t-2"))

	rule := c.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Label: "t-3", Do: []starrockstest.Action{starrockstest.Hang()}})
	do("begin", "t-3", "")
	done := make(chan txnReply, 1)
	go func() { done <- op(t, c, tr, "load", "t-3", oneRow) }()
	require.NoError(t, rule.WaitHits(t.Context(), 1))
	require.Equal(t, "TXN_IN_PROCESSING", do("load", "t-3", oneRow).Status)
	rule.Release()
	require.Equal(t, "OK", (<-done).Status)
	require.Equal(t, "load request not equal last.", do("load", "t-3", "[]", "columns", "dt").Message)
}

func after(s, sep string) string {
	_, tail, _ := strings.Cut(s, sep)
	return tail
}

// Timeouts of transactions: PREPARE by the timeout header, idle with the sweeper's slack, PREPARED by its own limit;
// labels are forgotten after 12 hours.
func TestTransactionTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var vnet kfake.VirtualNetwork
		c := starrockstest.New(starrockstest.Config{Listen: vnet.Listen})
		require.NoError(t, c.Start())
		defer c.Close()
		require.NoError(t, c.Exec("CREATE DATABASE dau", ddl))
		tr := &http.Transport{DialContext: vnet.DialContext, ExpectContinueTimeout: 10 * time.Second}
		state := func(label string) starrockstest.TxnState { return c.LabelState("dau", label) }

		op(t, c, tr, "begin", "short", "", "timeout", "30")
		op(t, c, tr, "begin", "idle", "", "idle_transaction_timeout", "10")
		op(t, c, tr, "begin", "prepared", "")
		op(t, c, tr, "load", "prepared", oneRow)
		op(t, c, tr, "prepare", "prepared", "")
		time.Sleep(30*time.Second - time.Millisecond)
		require.Equal(t, starrockstest.StatePrepare, state("short"))
		time.Sleep(time.Millisecond)
		require.Equal(t, starrockstest.StateAborted, state("short"))
		time.Sleep(10*time.Second - time.Millisecond)
		require.Equal(t, starrockstest.StatePrepare, state("idle"))
		time.Sleep(time.Millisecond)
		require.Equal(t, starrockstest.StateAborted, state("idle"))
		require.Equal(t, "TXN_NOT_EXISTS", op(t, c, tr, "load", "short", oneRow).Status)
		time.Sleep(12*time.Hour - time.Minute)
		require.Equal(t, starrockstest.StateAborted, state("short"))
		time.Sleep(2 * time.Minute)
		require.Equal(t, starrockstest.StateUnknown, state("short"), "forgotten")
		require.Equal(t, starrockstest.StatePrepared, state("prepared"))
		time.Sleep(12 * time.Hour)
		require.Equal(t, starrockstest.StateAborted, state("prepared"))
	})
}

// partition_live_number keeps the newest partitions that are not in the future.
func TestPartitionTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var vnet kfake.VirtualNetwork
		c := starrockstest.New(starrockstest.Config{Listen: vnet.Listen, TTLInterval: 10 * time.Minute})
		require.NoError(t, c.Start())
		defer c.Close()
		today := time.Now().UTC()
		day := func(n int) string { return today.AddDate(0, 0, n).Format("2006-01-02") }
		require.NoError(t, c.Exec("CREATE DATABASE dau", `CREATE TABLE dau.t (dt DATE NOT NULL, v BIGINT SUM) AGGREGATE KEY(dt)
			PARTITION BY date_trunc('day', dt) DISTRIBUTED BY HASH(dt) PROPERTIES ("partition_live_number"="2")`,
			"INSERT INTO dau.t VALUES ('"+day(-3)+"', 1), ('"+day(-1)+"', 1), ('"+day(0)+"', 1), ('"+day(2)+"', 1)"))
		time.Sleep(11 * time.Minute)
		rows, err := c.Rows("dau", "t")
		require.NoError(t, err)
		var left []any
		for _, r := range rows {
			left = append(left, r["dt"])
		}
		require.Equal(t, []any{day(-1), day(0), day(2)}, left)
	})
}
