package starrockstest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

type reply struct {
	TxnId                                                                       int64 //nolint:revive // the server's spelling
	Label, Status, ExistingJobStatus, Message, ErrorURL                         string
	NumberTotalRows, NumberLoadedRows, NumberFilteredRows, NumberUnselectedRows int
	LoadBytes                                                                   int64
}

func load(t *testing.T, c *starrockstest.Cluster, table, label, body string, headers map[string]string) reply {
	t.Helper()
	code, text := put(t, c.FEURL(1)+"/api/dau/"+table+"/_stream_load", label, body, headers)
	require.Equal(t, 200, code)
	var r reply
	require.NoError(t, json.Unmarshal([]byte(text), &r), text)
	return r
}

const wideDDL = `CREATE TABLE dau.wide (
  k INT NOT NULL, s VARCHAR(4), n BIGINT SUM, hi BIGINT MAX, lo BIGINT MIN, r VARCHAR(20) REPLACE,
  rn VARCHAR(20) REPLACE_IF_NOT_NULL, big LARGEINT SUM, d DOUBLE SUM DEFAULT "1.5", at DATETIME MAX,
  must BIGINT MAX NOT NULL DEFAULT "0", b BITMAP BITMAP_UNION, h HLL HLL_UNION NOT NULL
) AGGREGATE KEY(k, s) DISTRIBUTED BY HASH(k) BUCKETS 1`

func with(h map[string]string, kv ...string) map[string]string {
	out := map[string]string{}
	for k, v := range h {
		out[k] = v
	}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i]] = kv[i+1]
	}
	return out
}

func TestLoadReplies(t *testing.T) {
	js := map[string]string{"format": "json", "strip_outer_array": "true", "strict_mode": "true"}
	nd := map[string]string{"format": "json", "strict_mode": "true"}
	lax := map[string]string{"format": "json", "strip_outer_array": "true"}
	csv := map[string]string{"column_separator": ","}
	for _, tc := range []struct {
		name, body string
		headers    map[string]string
		status     string
		message    string
		counts     [4]int // total, loaded, filtered, unselected
		errorLine  string
	}{
		{"array", `[{"k":1},{"k":"2"}]`, with(js, "columns", "k"), "Success", "OK", [4]int{2, 2}, ""},
		{"object", `{"k":1}`, with(nd, "columns", "k"), "Success", "OK", [4]int{1, 1}, ""},
		{"lines", "{\"k\":1}\n{\"k\":2} {\"k\":3}", with(nd, "columns", "k"), "Success", "OK", [4]int{3, 3}, ""},
		{"array without strip", `[{"k":1}]`, with(nd, "columns", "k"), "Fail", "you can set strip_outer_array=true", [4]int{}, ""},
		{"object with strip", `{"k":1}`, with(js, "columns", "k"), "Fail", "Failed to parse json as array. error: ", [4]int{}, ""},
		{"broken", `[{"k":1},`, with(js, "columns", "k"), "Fail", "Failed to parse json as array. error: ", [4]int{}, ""},
		{"jsonpaths", `[{"a":{"b":4},"x":"t"}]`, with(js, "columns", "k,tmp,s=concat(tmp,'!')", "jsonpaths", `["$.a.b","$.x"]`), "Success", "OK", [4]int{1, 1}, ""},
		{"null key", `[{"k":null}]`, with(js, "columns", "k"), "Fail", "too many filtered rows", [4]int{1, 0, 1}, "NULL value in non-nullable column 'k'"},
		{"absent key", `[{}]`, with(js, "columns", "k"), "Fail", "too many filtered rows", [4]int{1, 0, 1}, "NULL value in non-nullable column 'k'"},
		{"ratio", `[{"k":1},{}]`, with(js, "columns", "k", "max_filter_ratio", "0.5"), "Success", "OK", [4]int{2, 1, 1}, "NULL value in non-nullable column 'k'"},
		{"ratio exceeded", `[{"k":1},{},{}]`, with(js, "columns", "k", "max_filter_ratio", "0.5"), "Fail", "too many filtered rows", [4]int{3, 1, 2}, ""},
		{"all filtered with a permissive ratio", `[{}]`, with(js, "columns", "k", "max_filter_ratio", "1"), "Fail", "all partitions have no load data", [4]int{1, 0, 1}, ""},
		{"empty array", `[]`, with(js, "columns", "k"), "Fail", "all partitions have no load data", [4]int{}, ""},
		{"empty body", ``, with(js, "columns", "k"), "Fail", "all partitions have no load data", [4]int{}, ""},
		{"unselected", `[{"k":1},{"k":5}]`, with(js, "columns", "k", "where", "k > 3"), "Success", "OK", [4]int{2, 1, 0, 1}, ""},
		{"strict wrong type", `[{"k":1,"n":"x"}]`, with(js, "columns", "k,n"), "Fail", "too many filtered rows", [4]int{1, 0, 1}, "Value 'x' is out of range. The type of 'n' is BIGINT"},
		{"lax wrong type is NULL", `[{"k":1,"n":"x"}]`, with(lax, "columns", "k,n"), "Success", "OK", [4]int{1, 1}, ""},
		{"lax wrong type into NOT NULL", `[{"k":1,"must":"x"}]`, with(lax, "columns", "k,must"), "Fail", "too many filtered rows", [4]int{1, 0, 1}, "NULL value in non-nullable column 'must'"},
		{"out of range", `[{"k":2147483648}]`, with(js, "columns", "k"), "Fail", "too many filtered rows", [4]int{1, 0, 1}, "out of range"},
		{"too long", `[{"k":1,"s":"12345"}]`, with(js, "columns", "k,s"), "Fail", "too many filtered rows", [4]int{1, 0, 1}, "capacity"},
		{"bad bitmap is silently NULL where it may be", `[{"k":1,"t":"?"}]`, with(js, "columns", "k,t,b=base64_to_bitmap(t)"), "Success", "OK", [4]int{1, 1}, ""},
		{"bitmap without function", `[{"k":1,"b":"AA=="}]`, with(js, "columns", "k,b"), "Fail", "require the function return type is BITMAP", [4]int{}, ""},
		{"unknown function", `[{"k":1}]`, with(js, "columns", "k,t,s=frobnicate(t)"), "Fail", "No matching function with signature: frobnicate", [4]int{}, ""},
		{"unknown target", `[{"k":1}]`, with(js, "columns", "k,nix=k"), "Fail", "cannot be resolved", [4]int{}, ""},
		{"unknown source", `[{"k":1}]`, with(js, "columns", "k,s=nix"), "Fail", "Column 'nix' cannot be resolved.", [4]int{}, ""},
		{"missing column without default", `[{"s":"a"}]`, with(js, "columns", "s"), "Fail", "Column has no default value. column: k", [4]int{}, ""},
		{"extra keys and unused columns", `[{"k":1,"zzz":1}]`, with(js, "columns", "k,unused"), "Success", "OK", [4]int{1, 1}, ""},
		{"partial update", `[{"k":1}]`, with(js, "columns", "k", "partial_update", "true"), "Fail", "Only primary key table support partial update", [4]int{}, ""},
		{"unknown format", `x`, map[string]string{"format": "xml"}, "Fail", "unknown data format, format=xml", [4]int{}, ""},
		{"bad timeout", `x`, with(js, "timeout", "abc"), "Fail", "Invalid timeout format", [4]int{}, ""},
		{"bad strict", `x`, with(js, "strict_mode", "yes"), "Fail", "Invalid strict mode format. Must be bool type", [4]int{}, ""},
		{"both compressions", `x`, with(js, "compression", "gzip", "Content-Encoding", "gzip"), "Fail", "Only one of http header content-encoding and compression can be set", [4]int{}, ""},
		{"csv", "1,ab,5\n2,\\N,6\n", with(csv, "columns", "k,s,n"), "Success", "OK", [4]int{2, 2}, ""},
		{"csv empty is not NULL", "1,\n", with(csv, "columns", "k,s"), "Success", "OK", [4]int{1, 1}, ""},
		{"csv count", "1,ab\n2\n", with(csv, "columns", "k,s"), "Fail", "too many filtered rows", [4]int{2, 1, 1}, "Value count does not match column count. Expect 2, but got 1"},
		{"csv header, quotes, trim", "k;s\n1; 'a;b'\n", map[string]string{"column_separator": ";", "skip_header": "1", "enclose": "'", "trim_space": "true", "columns": "k,s"}, "Success", "OK", [4]int{1, 1}, ""},
		{"csv hex separator", "1\x01ab", map[string]string{"column_separator": `\x01`, "columns": "k,s"}, "Success", "OK", [4]int{1, 1}, ""},
		{"duplicate source", `[]`, with(js, "columns", "k,k"), "Fail", "Duplicate column: k", [4]int{}, ""},
		{"header of another program", `[]`, with(js, "merge_condition", "k"), "Fail", "the stand-in does not know the header merge_condition", [4]int{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := start(t, starrockstest.Config{})
			require.NoError(t, c.Exec("CREATE DATABASE dau", wideDDL))
			r := load(t, c, "wide", "l", tc.body, tc.headers)
			require.Equal(t, tc.status, r.Status, r.Message)
			require.Contains(t, r.Message, tc.message)
			require.Equal(t, tc.counts, [4]int{r.NumberTotalRows, r.NumberLoadedRows, r.NumberFilteredRows, r.NumberUnselectedRows})
			want := starrockstest.StateAborted
			if tc.status == "Success" {
				want = starrockstest.StateVisible
			}
			if r.TxnId < 0 {
				want = starrockstest.StateUnknown // refused before the label was taken
			}
			require.Equal(t, want, c.LabelState("dau", "l"))
			require.Equal(t, tc.counts[2] > 0, r.ErrorURL != "")
			if tc.errorLine != "" {
				_, text, _ := get(t, r.ErrorURL, "root", "")
				require.Contains(t, text, tc.errorLine)
				require.Contains(t, text, "Error: ")
				require.Contains(t, text, ". Row: ")
			}
		})
	}
}

func TestAggregateFunctions(t *testing.T) {
	c := start(t, starrockstest.Config{})
	require.NoError(t, c.Exec("CREATE DATABASE dau", wideDDL))
	h := with(jsonHeaders("k,s,n,hi,lo,r,rn,big,d,at,must,t,u,b=to_bitmap(t),h=hll_hash(u)"))
	require.Equal(t, "Success", load(t, c, "wide", "1", `[
		{"k":1,"s":"a","n":5,"hi":5,"lo":5,"r":"x","rn":"x","big":170141183460469231731687303715884105727,"d":0.5,"at":"2024-01-01 10:00:00","must":1,"t":7,"u":"abc"},
		{"k":1,"s":"a","n":-2,"hi":9,"lo":2,"r":null,"rn":null,"d":1,"at":"2023-01-01 10:00:00","must":9,"t":18446744073709551615,"u":"abd"},
		{"k":1,"s":null,"n":1,"must":1,"t":"-1","u":null}]`, h).Status)
	rows, err := c.Rows("dau", "wide")
	require.NoError(t, err)
	require.Len(t, rows, 2, "NULL is a key of its own")
	got := map[any]starrockstest.Row{}
	for _, r := range rows {
		got[r["s"]] = r
	}
	a := got["a"]
	require.Equal(t, "170141183460469231731687303715884105727", fmt.Sprint(a["big"]))
	delete(a, "big")
	require.Equal(t, starrockstest.Row{
		"k": int64(1), "s": "a", "n": int64(3), "hi": int64(9), "lo": int64(2), "r": nil, "rn": "x", "d": 1.5,
		"at": "2024-01-01 10:00:00", "must": int64(9), "b": []uint64{7, 1<<64 - 1}, "h": int64(2),
	}, a)
	n := got[nil]
	require.Nil(t, n["hi"], "NULL is neutral")
	require.Nil(t, n["b"], "to_bitmap of a negative number is NULL")
	require.Equal(t, int64(0), n["h"], "hll_hash(NULL) is the empty sketch")

	require.Equal(t, "Success", load(t, c, "wide", "2", `[{"k":1,"s":null,"n":10,"must":0,"u":null,"t":3}]`, h).Status)
	_, out, err := c.Query("SELECT n, must, bitmap_to_string(b) FROM dau.wide WHERE s IS NULL")
	require.NoError(t, err)
	require.Equal(t, [][]any{{int64(11), int64(1), "3"}}, out)
}

// Every worked bitmap of the facts goes in by base64_to_bitmap and comes out of SQL.
func TestBitmapsThroughALoad(t *testing.T) {
	for b64, want := range map[string]string{
		"AA==": "", "AQUAAAA=": "5", "AjowAAABAAAAAAACABAAAAABAAIAAwA=": "1,2,3", "CgMAAAABAAAAAAAAAAIAAAAAAAAAAwAAAAAAAAA=": "1,2,3",
		"AwAAAAAAAQAA": "1099511627776", "BAIAAAAAOjAAAAEAAAAAAAAAEAAAAAUAAAEAADowAAABAAAAAAAAABAAAAAAAA==": "5,1099511627776",
		"AjowAAACAAAAAAAAAAEAAAAYAAAAGgAAAAEAAAA=": "1,65536",
	} {
		c := seeded(t, starrockstest.Config{})
		row := strings.Replace(oneRow, "AQUAAAA=", b64, 1)
		require.Equal(t, "Success", load(t, c, "daily", "l", row, jsonHeaders(columns)).Status)
		_, out, err := c.Query("SELECT bitmap_to_string(uv), bitmap_count(uv) FROM dau.daily")
		require.NoError(t, err)
		n := int64(len(strings.FieldsFunc(want, func(r rune) bool { return r == ',' })))
		require.Equal(t, [][]any{{want, n}}, out, b64)
	}
	c := seeded(t, starrockstest.Config{})
	for _, bad := range []string{"", "AQUAAA", "Bg==", "AjowAAAB"} {
		r := load(t, c, "daily", "bad", strings.Replace(oneRow, "AQUAAAA=", bad, 1), jsonHeaders(columns))
		require.Equal(t, "too many filtered rows", r.Message, "%q becomes NULL, which NOT NULL filters", bad)
	}
}

func TestSizeLimits(t *testing.T) {
	c := seeded(t, starrockstest.Config{MaxJSONBytes: 300, MaxValueBytes: 40, MaxBodyBytes: 2000})
	long := strings.Replace(oneRow, "AQUAAAA=", base64.StdEncoding.EncodeToString(make([]byte, 45)), 1)
	r := load(t, c, "daily", "v", long, jsonHeaders(columns))
	require.Equal(t, "too many filtered rows", r.Message)
	_, text, _ := get(t, r.ErrorURL, "root", "")
	require.Contains(t, text, "Value length is beyond the capacity. column=b_uv, capacity=40")

	big := "[" + strings.Repeat(" ", 400) + oneRow[1:]
	r = load(t, c, "daily", "j", big, jsonHeaders(columns))
	require.Equal(t, fmt.Sprintf("The size of this batch exceed the max size [300]  of json type data  data [ %d ]. Set ignore_json_size to skip the check, although it may lead huge memory consuming.", len(big)), r.Message)
	require.EqualValues(t, -1, r.TxnId)
	require.Equal(t, "Success", load(t, c, "daily", "j", big, with(jsonHeaders(columns), "ignore_json_size", "true")).Status)
	r = load(t, c, "daily", "b", strings.Repeat(" ", 2001), with(jsonHeaders(columns), "ignore_json_size", "true"))
	require.Contains(t, r.Message, "body size 2001 exceed limit: 2000, id=")
}

func TestCompression(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	var gz, z4 bytes.Buffer
	g := gzip.NewWriter(&gz)
	fmt.Fprint(g, oneRow)
	require.NoError(t, g.Close())
	l := lz4.NewWriter(&z4)
	fmt.Fprint(l, oneRow)
	require.NoError(t, l.Close())
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	defer enc.Close()
	for how, body := range map[string]string{"gzip": gz.String(), "lz4_frame": z4.String(), "zstd": string(enc.EncodeAll([]byte(oneRow), nil))} {
		for _, header := range []string{"compression", "Content-Encoding"} {
			r := load(t, c, "daily", how+"-"+header, body, with(jsonHeaders(columns), header, how))
			require.Equal(t, "Success", r.Status, r.Message)
			require.EqualValues(t, len(body), r.LoadBytes)
		}
	}
	require.Equal(t, "Fail", load(t, c, "daily", "no", oneRow, with(jsonHeaders(columns), "compression", "gzip")).Status)
	require.Contains(t, load(t, c, "daily", "no", oneRow, with(jsonHeaders(columns), "compression", "brotli")).Message, "Unsupported compression type: brotli")
}

func TestLabelsAndErrors(t *testing.T) {
	c := seeded(t, starrockstest.Config{MaxRunningTxns: 2})
	require.NoError(t, c.Exec("CREATE DATABASE other"))
	h := jsonHeaders(columns)
	require.Equal(t, "Success", load(t, c, "daily", "a-1", oneRow, h).Status)
	r := load(t, c, "daily", "a-1", oneRow, h)
	require.Equal(t, []any{"Label Already Exists", "FINISHED", "Label [a-1] has already been used."}, []any{r.Status, r.ExistingJobStatus, r.Message})
	require.Equal(t, `unknown table "dau.nix"`, load(t, c, "nix", "a-2", oneRow, h).Message)
	require.Equal(t, starrockstest.StateAborted, c.LabelState("dau", "a-2"))
	require.Contains(t, load(t, c, "daily", "no spaces", oneRow, h).Message, `Label format error. regex: ^[-\w]{1,128}$, label: no spaces`)
	_, text := put(t, c.FEURL(1)+"/api/nodb/daily/_stream_load", "x", oneRow, h)
	require.Contains(t, text, "unknown database, database=nodb")
	require.NotEmpty(t, load(t, c, "daily", "", oneRow, h).Label, "the BE makes a label")
	require.Equal(t, map[string]starrockstest.TxnState{}, c.Labels("other"), "labels are per database")

	require.NoError(t, c.SeedTxn("dau", "leak-1", starrockstest.StatePrepare))
	require.NoError(t, c.SeedTxn("dau", "leak-2", starrockstest.StatePrepare))
	require.Regexp(t, `current running txns on db \d+ is 2, larger than limit 2`, load(t, c, "daily", "a-3", oneRow, h).Message)
	require.NoError(t, c.SetTxn("dau", "leak-1", starrockstest.StateAborted))
	require.Equal(t, "Success", load(t, c, "daily", "a-3", oneRow, h).Status)

	c.SetBackends(0)
	require.Equal(t, "class com.starrocks.common.DdlException: No backend alive.", load(t, c, "daily", "a-4", oneRow, h).Message)
	loads, rows := c.Committed()
	require.Len(t, loads, 3)
	require.Equal(t, 3, rows)
	require.Equal(t, "a-1", loads[0].Label)
	require.Len(t, loads[0].SHA256, 64)
}

func TestEviction(t *testing.T) {
	c := seeded(t, starrockstest.Config{LabelKeepNum: 3})
	for i := range 6 {
		require.NoError(t, c.SeedTxn("dau", fmt.Sprintf("l-%d", i), starrockstest.StateVisible))
	}
	require.Equal(t, starrockstest.StateUnknown, c.LabelState("dau", "l-0"))
	require.Equal(t, starrockstest.StateVisible, c.LabelState("dau", "l-5"))
	require.Len(t, c.Labels("dau"), 3)
}

func TestEmptyLoadAllowed(t *testing.T) {
	c := start(t, starrockstest.Config{AllowEmptyLoad: true})
	require.NoError(t, c.Exec("CREATE DATABASE dau", ddl))
	require.Equal(t, "Success", load(t, c, "daily", "e", "[]", jsonHeaders(columns)).Status)
}

// A row outside every range is filtered; automatic partitions take it, up to the limit of one load.
func TestPartitions(t *testing.T) {
	c := start(t, starrockstest.Config{MaxNewPartitions: 2, Users: nil})
	require.NoError(t, c.Exec("CREATE DATABASE dau", `CREATE TABLE dau.r (dt DATE NOT NULL, v BIGINT SUM) AGGREGATE KEY(dt)
		PARTITION BY RANGE(dt) (PARTITION p1 VALUES LESS THAN ("2024-01-02"), PARTITION p2 VALUES [("2024-01-02"),("2024-01-03")))
		DISTRIBUTED BY HASH(dt) BUCKETS 1`, `CREATE TABLE dau.auto (dt DATE NOT NULL, v BIGINT SUM) AGGREGATE KEY(dt)
		PARTITION BY date_trunc('month', dt) DISTRIBUTED BY HASH(dt)`))
	h := jsonHeaders("dt,v")
	r := load(t, c, "r", "1", `[{"dt":"2023-12-31","v":1},{"dt":"2024-01-02","v":1},{"dt":"2024-01-03","v":1}]`, with(h, "max_filter_ratio", "0.4"))
	require.Equal(t, [4]int{3, 2, 1, 0}, [4]int{r.NumberTotalRows, r.NumberLoadedRows, r.NumberFilteredRows, r.NumberUnselectedRows})
	_, text, _ := get(t, r.ErrorURL, "root", "")
	require.Contains(t, text, "there is no corresponding partition for this key")
	require.NoError(t, c.Exec(`ALTER TABLE dau.r ADD PARTITION p3 VALUES [("2024-01-03"),("2024-01-04"))`))
	require.Equal(t, "Success", load(t, c, "r", "2", `[{"dt":"2024-01-03","v":1}]`, h).Status)
	require.NoError(t, c.Exec("ALTER TABLE dau.r DROP PARTITION p2"))
	_, rows, err := c.Query("SELECT dt FROM dau.r ORDER BY 1")
	require.NoError(t, err)
	require.Equal(t, [][]any{{"2023-12-31"}, {"2024-01-03"}}, rows)

	require.Equal(t, "Success", load(t, c, "auto", "3", `[{"dt":"2024-01-03","v":1},{"dt":"2024-02-03","v":1}]`, h).Status)
	_, rows, err = c.Query("SHOW PARTITIONS FROM dau.auto")
	require.NoError(t, err)
	require.Equal(t, []any{"p202401", "p202402"}, []any{rows[0][1], rows[1][1]})
	require.Contains(t, load(t, c, "auto", "4", `[{"dt":"2025-01-03"},{"dt":"2025-02-03"},{"dt":"2025-03-03"}]`, h).Message, "auto_partition_max_creation_number_per_load")
}

func TestOtherTableTypes(t *testing.T) {
	c := start(t, starrockstest.Config{})
	require.NoError(t, c.Exec("CREATE DATABASE dau",
		"CREATE TABLE dau.dup (a INT, b VARCHAR(9)) DUPLICATE KEY(a) DISTRIBUTED BY HASH(a)",
		"CREATE TABLE dau.pri (a INT, b VARCHAR(9)) PRIMARY KEY(a) DISTRIBUTED BY HASH(a)"))
	for _, tab := range []string{"dup", "pri"} {
		require.Equal(t, "Success", load(t, c, tab, tab, `[{"a":1,"b":"x"},{"a":1,"b":"y"}]`, jsonHeaders("a,b")).Status)
	}
	rows, err := c.Rows("dau", "dup")
	require.NoError(t, err)
	require.Len(t, rows, 2)
	rows, err = c.Rows("dau", "pri")
	require.NoError(t, err)
	require.Equal(t, []starrockstest.Row{{"a": int64(1), "b": "y"}}, rows)
}

func TestPublishOrder(t *testing.T) {
	delays := map[string]time.Duration{"p20240301": time.Hour}
	c := seeded(t, starrockstest.Config{PublishWait: time.Millisecond, PublishDelay: func(_, part string) time.Duration { return delays[part] }})
	h := jsonHeaders(columns)
	day2 := strings.Replace(oneRow, "2024-03-01", "2024-03-02", 1)
	require.Equal(t, "Publish Timeout", load(t, c, "daily", "slow", oneRow, h).Status)
	require.Equal(t, "Success", load(t, c, "daily", "later-day", day2, h).Status, "partitions are not ordered among each other")
	delete(delays, "p20240301")
	require.Equal(t, "Publish Timeout", load(t, c, "daily", "behind", oneRow, h).Status, "one partition publishes in order")
	rows, err := c.Rows("dau", "daily")
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, c.Publish("dau", "slow"))
	require.NoError(t, c.WaitLabel(t.Context(), "dau", "behind", starrockstest.StateVisible))
}
