package starrockstest_test

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

const ddl = "CREATE TABLE IF NOT EXISTS dau.`daily` (\n" + `
  dt DATE NOT NULL, platform VARCHAR(255) NOT NULL, rollcall_source VARCHAR(512) NOT NULL,
  uv BITMAP BITMAP_UNION NOT NULL, pv BIGINT MAX NOT NULL, low BIGINT MIN,
  rollcall_next_offset BIGINT MAX NOT NULL
) AGGREGATE KEY(dt, platform, rollcall_source)
PARTITION BY date_trunc('day', dt)
DISTRIBUTED BY HASH(platform, rollcall_source) BUCKETS 2
PROPERTIES ("replication_num" = "1")`

func start(t *testing.T, cfg starrockstest.Config) *starrockstest.Cluster {
	t.Helper()
	c := starrockstest.New(cfg)
	require.NoError(t, c.Start())
	t.Cleanup(c.Close)
	return c
}

// put sends one stream load by both hops, each with credentials.
func put(t *testing.T, url, label, body string, headers map[string]string) (int, string) {
	t.Helper()
	for range 4 {
		req, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
		require.NoError(t, err)
		req.SetBasicAuth("root", "")
		req.Header.Set("Expect", "100-continue")
		if label != "" {
			req.Header.Set("label", label)
		}
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		req.Close = true
		client := &http.Client{
			Transport:     &http.Transport{ExpectContinueTimeout: 30 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       30 * time.Second,
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		out, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusTemporaryRedirect {
			return resp.StatusCode, string(out)
		}
		url = resp.Header.Get("Location")
	}
	t.Fatal("too many redirects")
	return 0, ""
}

func jsonHeaders(columns string) map[string]string {
	return map[string]string{"format": "json", "strip_outer_array": "true", "strict_mode": "true", "columns": columns}
}

const columns = "dt,platform,rollcall_source,b_uv,pv,low,rollcall_next_offset,uv=base64_to_bitmap(b_uv)"

func TestLoadAndView(t *testing.T) {
	c := start(t, starrockstest.Config{})
	require.NoError(t, c.Exec("CREATE DATABASE dau", ddl))
	body := `[{"dt":"2024-03-01","platform":"ios","rollcall_source":"a","b_uv":"AjowAAABAAAAAAACABAAAAABAAIAAwA=","pv":7,"low":null,"rollcall_next_offset":3},
	{"dt":"2024-03-01","platform":"ios","rollcall_source":"b","b_uv":"AQUAAAA=","pv":2,"low":4,"rollcall_next_offset":9}]`
	code, reply := put(t, c.FEURL(1)+"/api/dau/daily/_stream_load", "l-1", body, jsonHeaders(columns))
	require.Equal(t, 200, code)
	require.Contains(t, reply, `"Status": "Success"`)

	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/dau?interpolateParams=true", c.MySQLAddr(1)))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE OR REPLACE VIEW dau.daily_view AS SELECT dt, platform, BITMAP_UNION_COUNT(uv) AS uv, SUM(CAST(pv AS LARGEINT)) AS pv, MIN(low) AS low FROM dau.daily GROUP BY dt, platform")
	require.NoError(t, err)
	var dt, platform string
	var uv, pv, low int64
	require.NoError(t, db.QueryRow("SELECT * FROM daily_view WHERE dt >= ? ORDER BY dt", "2024-01-01").Scan(&dt, &platform, &uv, &pv, &low))
	require.Equal(t, []any{"2024-03-01", "ios", int64(4), int64(9), int64(4)}, []any{dt, platform, uv, pv, low})
}
