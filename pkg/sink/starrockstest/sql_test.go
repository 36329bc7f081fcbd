package starrockstest_test

import (
	"database/sql"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

// filled has two sources in two days: the shape of the worker's table.
func filled(t *testing.T, cfg starrockstest.Config) *starrockstest.Cluster {
	t.Helper()
	c := seeded(t, cfg)
	require.NoError(t, c.Exec(`INSERT INTO dau.daily VALUES
		('2024-03-01', 'ios', 'a/0', bitmap_from_string('1,2,3'), 7, 5, 10),
		('2024-03-01', 'ios', 'a/0', bitmap_from_string('3,4'), 6, 3, 12),
		('2024-03-01', 'ios', 'a/1', bitmap_from_string('3,9'), 4, NULL, 20),
		('2024-03-01', 'web', 'a/1', to_bitmap(9), 1, 8, 20),
		('2024-03-02', 'ios', 'b/0', bitmap_empty(), 9223372036854775807, NULL, 3),
		('2024-03-02', 'ios', 'b/1', to_bitmap(1), 5, NULL, 4)`))
	return c
}

func TestSelect(t *testing.T) {
	c := filled(t, starrockstest.Config{})
	largest := func(s string) *big.Int { n, _ := new(big.Int).SetString(s, 10); return n }
	for _, tc := range []struct {
		sql  string
		want [][]any
	}{
		{"SELECT COUNT(*) FROM dau.daily", [][]any{{int64(5)}}},
		{"SELECT MAX(rollcall_next_offset), MIN(low), COUNT(low), AVG(low) FROM dau.daily", [][]any{{int64(20), int64(3), int64(2), 5.5}}},
		// SUM over a MAX column merges by the full key first: 7 not 13.
		{"SELECT SUM(pv) FROM dau.daily WHERE dt = '2024-03-01' AND rollcall_source = 'a/0'", [][]any{{int64(7)}}},
		{"SELECT dt, SUM(CAST(pv AS LARGEINT)) FROM dau.daily GROUP BY dt ORDER BY 1 DESC LIMIT 1", [][]any{{"2024-03-02", largest("9223372036854775812")}}},
		{"SELECT CAST(SUM(CAST(pv AS LARGEINT)) AS BIGINT) x FROM dau.daily WHERE dt = DATE '2024-03-02'", [][]any{{nil}}},
		{"SELECT dt, platform, BITMAP_UNION_COUNT(uv) AS uv FROM dau.daily GROUP BY dt, platform ORDER BY dt, platform", [][]any{{"2024-03-01", "ios", int64(5)}, {"2024-03-01", "web", int64(1)}, {"2024-03-02", "ios", int64(1)}}},
		{"SELECT COUNT(DISTINCT uv) FROM dau.daily", [][]any{{int64(5)}}},
		{"SELECT BITMAP_TO_STRING(BITMAP_UNION(uv)) FROM dau.daily WHERE platform IN ('ios') AND dt BETWEEN '2024-03-01' AND '2024-03-01'", [][]any{{"1,2,3,4,9"}}},
		{"SELECT bitmap_count(bitmap_and(bitmap_union(if(platform='ios', uv, bitmap_empty())), bitmap_union(if(platform='web', uv, bitmap_empty())))) FROM dau.daily", [][]any{{int64(1)}}},
		{"SELECT bitmap_to_string(bitmap_or(to_bitmap(1), bitmap_from_string('5,6'))), bitmap_contains(to_bitmap(4), 4), bitmap_to_base64(to_bitmap(5))", [][]any{{"1,5,6", int64(1), "AQUAAAA="}}},
		{"SELECT x.p, n FROM (SELECT platform AS p, COUNT(*) AS n FROM dau.daily GROUP BY platform) x WHERE n > 1", [][]any{{"ios", int64(4)}}},
		{"SELECT platform p, SUM(1) n FROM dau.daily GROUP BY p HAVING n = 1", [][]any{{"web", int64(1)}}},
		{"SELECT DISTINCT platform FROM dau.daily ORDER BY platform DESC", [][]any{{"web"}, {"ios"}}},
		{"SELECT rollcall_source FROM dau.daily WHERE NOT starts_with(rollcall_source, 'b/') AND (platform = 'web' OR pv >= 7) ORDER BY 1", [][]any{{"a/0"}, {"a/1"}}},
		{"SELECT rollcall_source FROM dau.daily WHERE rollcall_source LIKE 'b%' AND low IS NULL ORDER BY pv LIMIT 1 OFFSET 1", [][]any{{"b/0"}}},
		{"SELECT CONCAT(dt, '/', platform, '/', pv) FROM dau.daily WHERE low IS NOT NULL ORDER BY low", [][]any{{"2024-03-01/ios/7"}, {"2024-03-01/web/1"}}},
		{"SELECT COUNT(*) FROM dau.daily WHERE dt < date_sub('2024-03-02', INTERVAL 1 DAY)", [][]any{{int64(0)}}},
		// Lists of strings, of another type than the column, with NULL on either side.
		{"SELECT COUNT(*) FROM dau.daily WHERE platform NOT IN ('web', 'none')", [][]any{{int64(4)}}},
		{"SELECT COUNT(*) FROM dau.daily WHERE dt IN ('2024-03-01', 'x') AND platform = 'web'", [][]any{{int64(1)}}},
		{"SELECT COUNT(*) FROM dau.daily WHERE low IN ('3', '4')", [][]any{{int64(1)}}},
		{"SELECT COUNT(*) FROM dau.daily WHERE low NOT IN ('3', '4')", [][]any{{int64(1)}}},
		{"SELECT COUNT(*) FROM dau.daily WHERE platform NOT IN ('web', NULL)", [][]any{{int64(0)}}},
		{"SELECT MAX(pv) FROM dau.daily WHERE platform = 'none'", [][]any{{nil}}},
		{"SELECT platform, MAX(pv) FROM dau.daily WHERE platform = 'none' GROUP BY platform", nil},
		{"SELECT 1 + 2 * 3, 7 / 2, 7 DIV 2, 7 % 2, -(3), 2 > 1, NULL IS NULL, 'it''s', 1 <=> NULL", [][]any{{int64(7), 3.5, int64(3), int64(1), int64(-3), int64(1), int64(1), "it's", int64(0)}}},
		{"SELECT CASE WHEN 1 = 2 THEN 'a' WHEN 1 = 1 THEN 'b' ELSE 'c' END, coalesce(NULL, 4), nullif(1, 1), CAST('x' AS INT), CAST('5' AS TINYINT), CAST(300 AS TINYINT)", [][]any{{"b", int64(4), nil, nil, int64(5), nil}}},
		{"SELECT COUNT(DISTINCT platform), SUM(if(platform = 'IOS', 1, 0)), SUM(if(platform = 'ios', 1, 0)) FROM dau.daily", [][]any{{int64(2), int64(0), int64(4)}}},
		{"SELECT date_trunc('month', dt), to_date('2024-03-05 10:00:00'), datediff('2024-03-05', '2024-03-01') FROM dau.daily LIMIT 1", [][]any{{"2024-03-01", "2024-03-05", int64(4)}}},
		{"SELECT `dt`, `daily`.`pv` FROM `dau`.`daily` -- comment\n WHERE pv = 4 /* more */", [][]any{{"2024-03-01", int64(4)}}},
		{"SELECT bitmap_count(uv), hll_union_agg(hll_hash(platform)) FROM dau.daily WHERE pv = 7 GROUP BY uv", [][]any{{int64(4), int64(1)}}},
	} {
		_, rows, err := c.Query(tc.sql)
		require.NoError(t, err, tc.sql)
		require.Equal(t, tc.want, rows, tc.sql)
	}
}

func TestRefusedStatements(t *testing.T) {
	c := filled(t, starrockstest.Config{})
	require.NoError(t, c.Exec("CREATE VIEW dau.v AS SELECT dt FROM dau.daily"))
	for text, want := range map[string]string{
		"SELEC 1":                                                           "the stand-in does not know this statement: SELEC 1",
		"DELETE FROM dau.daily WHERE dt = 1":                                "the stand-in does not know this statement: DELETE",
		"SELECT nix FROM dau.daily":                                         "Column 'nix' cannot be resolved.",
		"SELECT dt FROM dau.daily GROUP BY 2":                               "",
		"SELECT dt, pv FROM dau.daily GROUP BY dt":                          "'pv' must be an aggregate expression or appear in GROUP BY clause",
		"SELECT a.x FROM dau.daily a JOIN dau.daily b":                      "selects from one table",
		"SELECT frob(1)":                                                    "No matching function with signature: frob",
		"SELECT bitmap_union(pv) FROM dau.daily":                            "No matching function with signature: bitmap_union",
		"SELECT * FROM dau.nix":                                             "Unknown table 'dau.nix'",
		"SELECT * FROM nix.t":                                               "Unknown database 'nix'",
		"SELECT * FROM t":                                                   "No database selected",
		"SELECT 1 FROM dau.daily extra words":                               "unexpected input",
		"SELECT 'open":                                                      "unterminated",
		"CREATE DATABASE dau":                                               "database exists",
		"CREATE TABLE dau.daily (a INT)":                                    "Table 'daily' already exists",
		"CREATE TABLE dau.v (a INT)":                                        "already exists",
		"CREATE VIEW dau.v AS SELECT 1":                                     "already exists",
		"CREATE VIEW dau.w AS SELECT nix FROM dau.daily":                    "cannot be resolved",
		"CREATE TABLE dau.x (a INT, a INT)":                                 "Duplicate column name 'a'",
		"CREATE TABLE dau.x (a INT, b INT SUM, c INT) AGGREGATE KEY(a)":     "AGG_KEYS table should specify aggregate type for non-key column[c]",
		"CREATE TABLE dau.x (a INT, b BITMAP SUM) AGGREGATE KEY(a)":         "Invalid aggregate function 'SUM' for 'b'.",
		"CREATE TABLE dau.x (a INT, b INT BITMAP_UNION) AGGREGATE KEY(a)":   "Invalid aggregate function",
		"CREATE TABLE dau.x (a DOUBLE, b INT SUM) AGGREGATE KEY(a)":         "Invalid data type of key column",
		"CREATE TABLE dau.x (b INT SUM, a INT) AGGREGATE KEY(a)":            "ordered prefix of the schema",
		"CREATE TABLE dau.x (a INT, b FROB)":                                "Unsupported data type: FROB",
		"CREATE TABLE dau.x (a INT) DISTRIBUTED BY HASH(z)":                 "Distribution column(z) doesn't exist.",
		"CREATE TABLE dau.x (a INT) PARTITION BY date_trunc('day', a)":      "must be of a date type",
		"CREATE TABLE dau.x (__op INT)":                                     "Incorrect column name",
		"CREATE TABLE dau.x (a INT) PROPERTIES (\"replication_num\"=\"4\")": "Table replication num should be less than or equal to the number of available BE nodes. You can change this default by setting the replication_num table properties. Current alive backend is [10001,10002,10003]. , table=x, default_replication_num=3",
		"DROP TABLE dau.nix":                                                "Unknown table",
		"DROP VIEW dau.daily":                                               "Unknown table",
		"ALTER TABLE dau.daily ADD COLUMN pv BIGINT MAX":                    "Duplicate column name 'pv'",
		"ALTER TABLE dau.daily ADD COLUMN z BIGINT MAX NOT NULL":            "has no default value",
		"ALTER TABLE dau.daily RENAME x":                                    "the stand-in does not know this ALTER TABLE",
		"INSERT INTO dau.daily (dt) VALUES ('2024-01-01', 1)":               "Column count doesn't match value count",
		"INSERT INTO dau.daily (dt) VALUES (NULL)":                          "NULL value in non-nullable column",
	} {
		_, _, err := c.Query(text)
		if want == "" {
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}

func TestDriver(t *testing.T) {
	c := filled(t, starrockstest.Config{Version: "3.2.1", Users: []starrockstest.User{{Name: "root"}, {Name: "u", Password: "p@ss"}}})
	for _, params := range []string{"?interpolateParams=true", "", "?parseTime=true&interpolateParams=true", "?multiStatements=true"} {
		db := openDB(t, c, 1, params)
		var n int64
		require.NoError(t, db.QueryRow("SELECT SUM(pv) FROM daily WHERE platform = ? AND dt >= ? AND pv < ?", "ios", "2024-03-01", 100).Scan(&n), params)
		require.EqualValues(t, 7+4+5, n)
		var low sql.NullInt64
		var avg float64
		var dt string
		var largest string
		require.NoError(t, db.QueryRow("SELECT low, pv / 2, CAST(dt AS VARCHAR(20)), CAST(pv AS LARGEINT) FROM daily WHERE pv = 4").Scan(&low, &avg, &dt, &largest))
		require.Equal(t, []any{false, 2.0, "2024-03-01", "4"}, []any{low.Valid, avg, dt, largest})
		require.NoError(t, db.QueryRow("SELECT uv FROM daily LIMIT 1").Scan(&low), "a bitmap is NULL to a client")
		require.False(t, low.Valid)
	}
	at := openDB(t, c, 1, "?parseTime=true")
	var day time.Time
	require.NoError(t, at.QueryRow("SELECT MAX(dt) FROM daily").Scan(&day))
	require.Equal(t, time.Date(2024, 3, 2, 0, 0, 0, 0, time.UTC), day)

	db := openDB(t, c, 1, "")
	var a, b, d string
	require.NoError(t, db.QueryRow("SELECT version(), current_version(), DATABASE()").Scan(&a, &b, &d))
	require.Equal(t, []string{"8.0.33", "3.2.1", "dau"}, []string{a, b, d})
	require.NoError(t, db.QueryRow("SELECT @@version_comment LIMIT 1").Scan(&a))
	require.Contains(t, a, "stand-in")
	require.NoError(t, db.QueryRow("SHOW VARIABLES LIKE 'max_allowed%'").Scan(&a, &b))
	require.NoError(t, db.QueryRow("SELECT @@session.autocommit, @@max_allowed_packet").Scan(&a, &b))
	for _, s := range []string{"SET NAMES utf8mb4", "SET autocommit=1", "SET SESSION query_timeout = 5", "USE dau", "START TRANSACTION", "COMMIT"} {
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}

	multi := openDB(t, c, 1, "?multiStatements=true")
	_, err := multi.Exec("CREATE DATABASE m1; CREATE DATABASE m2")
	require.NoError(t, err)
	require.NoError(t, c.Exec("USE m1", "USE m2"))

	for dsn, ok := range map[string]bool{"u:p@ss@tcp(%s)/dau": true, "u:no@tcp(%s)/": false, "u@tcp(%s)/": false, "x@tcp(%s)/": false, "root:x@tcp(%s)/": false, "root@tcp(%s)/nix": false} {
		db, err := sql.Open("mysql", fmt.Sprintf(dsn, c.MySQLAddr(1)))
		require.NoError(t, err)
		err = db.Ping()
		require.Equal(t, ok, err == nil, dsn)
		var me *mysql.MySQLError
		if !ok {
			require.ErrorAs(t, err, &me)
			require.EqualValues(t, map[bool]int{true: 1049, false: 1045}[strings.HasSuffix(dsn, "nix")], me.Number)
		}
		db.Close()
	}
	_, err = db.Exec("SELECT nix")
	var me *mysql.MySQLError
	require.ErrorAs(t, err, &me)
	require.EqualValues(t, 1064, me.Number)
	require.Equal(t, "Getting analyzing error. Detail message: Column 'nix' cannot be resolved.", me.Message)
	last := c.Statements()[len(c.Statements())-1]
	require.Equal(t, []any{1, "root", "SELECT nix", true}, []any{last.FE, last.User, last.SQL, last.Done})
	require.Contains(t, last.Err, "cannot be resolved")
}

func TestPrivileges(t *testing.T) {
	c := seeded(t, starrockstest.Config{Users: []starrockstest.User{
		{Name: "root"}, {Name: "loader", Privileges: []starrockstest.Privilege{starrockstest.Insert}},
	}})
	db, err := sql.Open("mysql", fmt.Sprintf("loader@tcp(%s)/dau", c.MySQLAddr(1)))
	require.NoError(t, err)
	defer db.Close()
	for text, want := range map[string]string{
		"SELECT * FROM daily": "SELECT", "CREATE TABLE x (a INT)": "CREATE", "DROP TABLE daily": "DROP", "CREATE DATABASE x": "CREATE",
		"ALTER TABLE daily ADD COLUMN x BIGINT MAX": "ALTER", "CREATE VIEW w AS SELECT 1": "CREATE",
	} {
		_, err := db.Exec(text)
		var me *mysql.MySQLError
		require.ErrorAs(t, err, &me, text)
		require.EqualValues(t, 5203, me.Number)
		require.Contains(t, me.Message, "Access denied; you need (at least one of) the "+want+" privilege(s)")
	}
	_, err = db.Exec("SELECT 1")
	require.NoError(t, err)
	_, err = db.Exec("DESC daily")
	require.NoError(t, err)
}

func table(t *testing.T, c *starrockstest.Cluster, text string) [][]any {
	t.Helper()
	_, rows, err := c.Query(text)
	require.NoError(t, err, text)
	return rows
}

func TestDescribe(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	require.Equal(t, [][]any{
		{"dt", "date", "NO", "true", nil, ""},
		{"platform", "varchar(255)", "NO", "true", nil, ""},
		{"rollcall_source", "varchar(512)", "NO", "true", nil, ""},
		{"uv", "bitmap", "NO", "false", "", "BITMAP_UNION"},
		{"pv", "bigint", "NO", "false", nil, "MAX"},
		{"low", "bigint", "YES", "false", nil, "MIN"},
		{"rollcall_next_offset", "bigint", "NO", "false", nil, "MAX"},
	}, table(t, c, "DESC dau.daily"))
	require.Equal(t, [][]any{{"AGG_KEYS", "date_trunc('day', dt)", "`platform`, `rollcall_source`", "HASH", int64(2), "`dt`, `platform`, `rollcall_source`"}},
		table(t, c, "SELECT TABLE_MODEL, PARTITION_KEY, DISTRIBUTE_KEY, DISTRIBUTE_TYPE, DISTRIBUTE_BUCKET, SORT_KEY FROM information_schema.tables_config WHERE TABLE_SCHEMA='dau' AND TABLE_NAME='daily'"))
	require.Equal(t, [][]any{{"dt", "date", "NO", "AGG"}, {"uv", "bitmap", "NO", ""}},
		table(t, c, "SELECT COLUMN_NAME, DATA_TYPE, IS_NULLABLE, COLUMN_KEY FROM information_schema.columns WHERE TABLE_NAME='daily' AND COLUMN_NAME IN ('dt','uv') ORDER BY ORDINAL_POSITION"))

	created := table(t, c, "SHOW CREATE TABLE dau.daily")[0][1].(string)
	require.Contains(t, created, "`uv` bitmap BITMAP_UNION NOT NULL")
	require.Contains(t, created, "PARTITION BY date_trunc('day', dt)")
	require.NoError(t, c.Exec("CREATE DATABASE copy", strings.Replace(created, "CREATE TABLE `daily`", "CREATE TABLE copy.daily", 1)))
	require.Equal(t, table(t, c, "DESC dau.daily"), table(t, c, "DESC copy.daily"))
	require.Equal(t, created, table(t, c, "SHOW CREATE TABLE copy.daily")[0][1])

	require.NoError(t, c.Exec("CREATE VIEW dau.daily_view AS SELECT dt, BITMAP_UNION_COUNT(uv) AS uv, SUM(CAST(pv AS LARGEINT)) AS pv FROM dau.daily WHERE platform != 'x' GROUP BY dt"))
	shown := "SELECT `daily`.`dt`, bitmap_union_count(`daily`.`uv`) AS `uv`, sum(CAST(`daily`.`pv` AS LARGEINT)) AS `pv`\nFROM `dau`.`daily`\nWHERE (`daily`.`platform`) != ('x')\nGROUP BY `daily`.`dt`"
	require.Equal(t, "CREATE VIEW `daily_view` (`dt`, `uv`, `pv`) AS "+shown+";", table(t, c, "SHOW CREATE VIEW dau.daily_view")[0][1])
	require.Equal(t, [][]any{{shown}}, table(t, c, "SELECT VIEW_DEFINITION FROM information_schema.views WHERE TABLE_NAME = 'daily_view'"))
	require.Equal(t, [][]any{{"dt", "date"}, {"uv", "bigint"}, {"pv", "largeint"}}, first2(table(t, c, "DESC dau.daily_view")))
	require.NoError(t, c.Exec("CREATE OR REPLACE VIEW dau.daily_view (`day`, n COMMENT 'rows') AS SELECT dt, COUNT(*) FROM dau.daily GROUP BY dt"))
	require.Equal(t, [][]any{{"day", "date"}, {"n", "bigint"}}, first2(table(t, c, "DESC dau.daily_view")))
	require.NoError(t, c.Exec("ALTER VIEW dau.daily_view AS SELECT dt FROM dau.daily"))
	require.Len(t, table(t, c, "DESC dau.daily_view"), 1)
	require.Equal(t, [][]any{{"daily"}, {"daily_view"}}, table(t, c, "SHOW TABLES FROM dau"))
	require.Equal(t, [][]any{{"daily_view"}}, table(t, c, "SHOW TABLES FROM dau LIKE '%view'"))
	require.Equal(t, [][]any{{"copy"}, {"dau"}, {"information_schema"}}, table(t, c, "SHOW DATABASES"))
	require.Equal(t, [][]any{{"daily", "BASE TABLE"}, {"daily_view", "VIEW"}}, table(t, c, "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.tables WHERE TABLE_SCHEMA = 'dau'"))
	require.NoError(t, c.Exec("DROP VIEW dau.daily_view", "DROP VIEW IF EXISTS dau.daily_view", "TRUNCATE TABLE dau.daily", "DROP TABLE dau.daily", "DROP DATABASE copy"))
}

func first2(rows [][]any) [][]any {
	var out [][]any
	for _, r := range rows {
		out = append(out, r[:2])
	}
	return out
}

func TestTransactionsInSQL(t *testing.T) {
	c := seeded(t, starrockstest.Config{})
	r := load(t, c, "daily", "l-1", oneRow, jsonHeaders(columns))
	require.Equal(t, [][]any{{"l-1", "VISIBLE", "BACKEND_STREAMING"}}, pick(table(t, c, fmt.Sprintf("SHOW TRANSACTION FROM dau WHERE id = %d", r.TxnId)), 1, 3, 4))
	require.Equal(t, [][]any{{"l-1", "FINISHED", "STREAM", int64(1)}},
		table(t, c, "SELECT LABEL, STATE, TYPE, SINK_ROWS FROM information_schema.loads WHERE LABEL = 'l-1'"))
}

func pick(rows [][]any, at ...int) [][]any {
	var out [][]any
	for _, r := range rows {
		var o []any
		for _, i := range at {
			o = append(o, r[i])
		}
		out = append(out, o)
	}
	return out
}

func TestAlterJobs(t *testing.T) {
	c := filled(t, starrockstest.Config{AlterDuration: time.Hour})
	last := func() []any {
		return pick(table(t, c, "SHOW ALTER TABLE COLUMN FROM dau WHERE TableName='daily' ORDER BY JobId DESC LIMIT 1"), 9, 10)[0]
	}
	add := "ALTER TABLE dau.daily ADD COLUMN hits BIGINT MAX NOT NULL DEFAULT \"0\" AFTER pv"
	require.NoError(t, c.Exec(add))
	require.Equal(t, []any{"PENDING", ""}, last())
	_, _, err := c.Query("ALTER TABLE dau.daily ADD COLUMN more BIGINT MAX")
	require.ErrorContains(t, err, "state(SCHEMA_CHANGE) is not NORMAL", "one job per table")

	c = filled(t, starrockstest.Config{})
	require.NoError(t, c.SeedTxn("dau", "old", starrockstest.StatePrepare))
	require.NoError(t, c.Exec(add))
	require.Equal(t, []any{"WAITING_TXN", ""}, last(), "an older load holds it up")
	require.Contains(t, load(t, c, "daily", "early", strings.Replace(oneRow, "{", `{"hits":1,`, 1), jsonHeaders(columns+",hits=pv")).Message, "cannot be resolved")
	require.NoError(t, c.SetTxn("dau", "old", starrockstest.StateAborted))
	require.Equal(t, []any{"FINISHED", ""}, last())
	require.Equal(t, [][]any{{"pv"}, {"hits"}, {"low"}}, pick(table(t, c, "DESC dau.daily")[4:7], 0))
	require.Equal(t, [][]any{{int64(0), int64(7)}}, table(t, c, "SELECT hits, pv FROM dau.daily WHERE pv = 7"), "old rows have the default")

	c.ScriptAlter(starrockstest.AlterScript{Cancel: "not enough memory"})
	require.NoError(t, c.Exec("ALTER TABLE dau.daily ADD COLUMN x BIGINT MAX, ADD COLUMN y BIGINT MIN"))
	require.Equal(t, []any{"CANCELLED", "not enough memory"}, last())
	require.Len(t, table(t, c, "DESC dau.daily"), 8)
	require.NoError(t, c.Exec("ALTER TABLE dau.daily ADD COLUMN (x BIGINT MAX, y BIGINT MIN)"))
	require.Len(t, table(t, c, "DESC dau.daily"), 10)
	require.NoError(t, c.Exec("ALTER TABLE dau.daily DROP COLUMN y", "ALTER TABLE dau.daily MODIFY COLUMN x INT MAX NOT NULL DEFAULT \"1\""))
	require.Equal(t, []any{"x", "int", "NO", "false", "1", "MAX"}, table(t, c, "DESC dau.daily")[8])
}

// A load planned before a schema change publishes into the new shape.
func TestLoadAcrossAlter(t *testing.T) {
	c := seeded(t, starrockstest.Config{PublishWait: time.Millisecond, PublishDelay: func(string, string) time.Duration { return time.Hour }})
	require.Equal(t, "Publish Timeout", load(t, c, "daily", "l", oneRow, jsonHeaders(columns)).Status)
	require.NoError(t, c.Exec("ALTER TABLE dau.daily ADD COLUMN hits BIGINT MAX NOT NULL DEFAULT \"4\" AFTER platform"))
	require.NoError(t, c.Publish("dau", "l"))
	rows, err := c.Rows("dau", "daily")
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, int64(7), rows[0]["pv"])
}

func FuzzStatement(f *testing.F) {
	for _, s := range []string{
		ddl, wideDDL, "SELECT a.b, COUNT(*) FROM (SELECT 1 AS b) a WHERE b IN (1) AND NOT b BETWEEN 2 AND 3 GROUP BY 1 HAVING b > 0 ORDER BY 1 DESC LIMIT 1, 2",
		"SHOW ALTER TABLE COLUMN FROM dau WHERE TableName='t' ORDER BY JobId DESC LIMIT 1", "INSERT INTO dau.daily VALUES (1,-2,'x')",
		"CREATE OR REPLACE VIEW dau.w (a) AS SELECT CASE WHEN 1 THEN CAST(1 AS LARGEINT) END", "ALTER TABLE dau.daily ADD COLUMN x BIGINT MAX AFTER pv",
		"SELECT date_add('2024-01-01', INTERVAL 1 DAY), `a``b`, \"x\\n\", 1.5e3, @@x.y", "DESC dau.daily", "/*", "SELECT .5", "(",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := starrockstest.New(starrockstest.Config{})
		if err := c.Exec("CREATE DATABASE dau", ddl); err != nil {
			t.Fatal(err)
		}
		_, _, err := c.Query(s) // must not panic or hang
		_ = err
	})
}
