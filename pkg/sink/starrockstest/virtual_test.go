package starrockstest_test

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"rollcall/pkg/sink/starrockstest"
)

// TestVirtualTime runs the whole stand-in in a synctest bubble: a publish that takes an hour, the reply that gives up
// after 45 s, and SQL beside it.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var vnet kfake.VirtualNetwork
		c := starrockstest.New(starrockstest.Config{
			Listen:       vnet.Listen,
			PublishDelay: func(string, string) time.Duration { return time.Hour },
		})
		require.NoError(t, c.Start())
		defer c.Close()
		require.NoError(t, c.Exec("CREATE DATABASE dau", ddl))

		tr := &http.Transport{DialContext: vnet.DialContext, ExpectContinueTimeout: 30 * time.Second}
		defer tr.CloseIdleConnections()
		body := []byte(`[{"dt":"2024-03-01","platform":"ios","rollcall_source":"a","b_uv":"AQUAAAA=","pv":7,"rollcall_next_offset":3}]`)
		send := func(url string) *http.Response {
			req, err := http.NewRequest(http.MethodPut, url, bytes.NewReader(body))
			require.NoError(t, err)
			req.SetBasicAuth("root", "")
			req.Close = true
			req.Header.Set("Expect", "100-continue")
			req.Header.Set("label", "l-1")
			for k, v := range jsonHeaders(columns) {
				req.Header.Set(k, v)
			}
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			return resp
		}
		resp := send(c.FEURL(1) + "/api/dau/daily/_stream_load")
		require.Equal(t, http.StatusTemporaryRedirect, resp.StatusCode)
		require.Equal(t, "http://127.0.0.1:8040/api/dau/daily/_stream_load", resp.Header.Get("Location"))
		began := time.Now()
		resp = send(resp.Header.Get("Location"))
		reply := new(bytes.Buffer)
		_, err := reply.ReadFrom(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Contains(t, reply.String(), `"Status": "Publish Timeout"`)
		require.Equal(t, 45*time.Second, time.Since(began))
		require.Equal(t, starrockstest.StateCommitted, c.LabelState("dau", "l-1"))

		require.NoError(t, c.WaitLabel(context.Background(), "dau", "l-1", starrockstest.StateVisible))
		require.Equal(t, time.Hour, time.Since(began))

		cfg := mysql.NewConfig()
		cfg.User, cfg.Addr, cfg.DBName, cfg.Net = "root", c.MySQLAddr(1), "dau", "tcp"
		cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return vnet.DialContext(ctx, network, addr)
		}
		conn, err := mysql.NewConnector(cfg)
		require.NoError(t, err)
		db := sql.OpenDB(conn)
		defer db.Close()
		var pv int64
		require.NoError(t, db.QueryRow("SELECT SUM(pv) FROM daily").Scan(&pv))
		require.EqualValues(t, 7, pv)
	})
}
