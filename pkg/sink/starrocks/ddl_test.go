package starrocks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/aggregate"
)

func testTable(t testing.TB, change func(*TableConfig)) *Table {
	t.Helper()
	cfg := TableConfig{Database: "dau", Table: "daily", View: "daily_view", Dimensions: testDims(), Measures: testMeasures()}
	if change != nil {
		change(&cfg)
	}
	table, err := NewTable(nil, cfg)
	require.NoError(t, err)
	return table
}

func TestDDL(t *testing.T) {
	require.Equal(t, "CREATE TABLE IF NOT EXISTS `dau`.`daily` (\n"+
		"  `dt` DATE NOT NULL,\n"+
		"  `platform` VARCHAR(255) NOT NULL,\n"+
		"  `order` VARCHAR(255) NOT NULL,\n"+
		"  `rollcall_source` VARCHAR(512) NOT NULL,\n"+
		"  `uv` BITMAP BITMAP_UNION NOT NULL,\n"+
		"  `pv` BIGINT MAX NOT NULL DEFAULT \"0\",\n"+
		"  `amount` BIGINT MAX NOT NULL DEFAULT \"0\",\n"+
		"  `lowest` BIGINT MIN NULL,\n"+
		"  `highest` BIGINT MAX NULL,\n"+
		"  `rollcall_next_offset` BIGINT MAX NOT NULL DEFAULT \"0\",\n"+
		"  `rollcall_last_event_ms` BIGINT MAX NOT NULL DEFAULT \"0\"\n"+
		")\n"+
		"AGGREGATE KEY(`dt`, `platform`, `order`, `rollcall_source`)\n"+
		"PARTITION BY date_trunc('day', `dt`)\n"+
		"DISTRIBUTED BY HASH(`platform`, `order`, `rollcall_source`)", testTable(t, nil).DDL())

	ddl := testTable(t, func(c *TableConfig) {
		c.Buckets, c.Replication, c.RetentionDays, c.Dimensions = 8, 3, 400, nil
	}).DDL()
	require.Contains(t, ddl, "AGGREGATE KEY(`dt`, `rollcall_source`)")
	require.Contains(t, ddl, "DISTRIBUTED BY HASH(`rollcall_source`) BUCKETS 8\nPROPERTIES (\"replication_num\" = \"3\", \"partition_live_number\" = \"400\")")
}

func TestViewDDL(t *testing.T) {
	require.Equal(t, "CREATE OR REPLACE VIEW `dau`.`daily_view` AS\n"+
		"SELECT `dt`, `platform`, `order`, BITMAP_UNION_COUNT(`uv`) AS `uv`, SUM(CAST(`pv` AS LARGEINT)) AS `pv`, "+
		"SUM(CAST(`amount` AS LARGEINT)) AS `amount`, MIN(`lowest`) AS `lowest`, MAX(`highest`) AS `highest`\n"+
		"FROM `dau`.`daily`\nGROUP BY `dt`, `platform`, `order`", testTable(t, nil).ViewDDL())
	for _, none := range []string{"", NoView} {
		require.Empty(t, testTable(t, func(c *TableConfig) { c.View = none }).ViewDDL())
	}
}

func TestCheckNames(t *testing.T) {
	ok := func(database, table, view string, column string) error {
		return CheckNames(database, table, view, nil, []aggregate.Measure{{Name: column, Kind: aggregate.Count}})
	}
	for _, names := range [][4]string{
		{"dau", "daily", "daily_view", "pv"},
		{"Dau_2", "order", "select", "desc"},
		{"_d", "Ünïcode 表", "none", "größe"},
		{"my-db", "a.b", "", "a b"},
	} {
		require.NoError(t, ok(names[0], names[1], names[2], names[3]), names)
	}
	for want, names := range map[string][4]string{
		`database ""`:               {"", "t", "v", "pv"},
		`database "1db"`:            {"1db", "t", "v", "pv"},
		"database \"d`b\"":          {"d`b", "t", "v", "pv"},
		`database "a/b"`:            {"a/b", "t", "v", "pv"},
		"table: empty name":         {"d", "", "v", "pv"},
		"table \"a`b\"":             {"d", "a`b", "v", "pv"},
		`table "a/b"`:               {"d", "a/b", "v", "pv"},
		`table "a\nb"`:              {"d", "a\nb", "v", "pv"},
		`space at an end`:           {"d", " t", "v", "pv"},
		`not UTF-8`:                 {"d", "\xff", "v", "pv"},
		`has the name of the table`: {"d", "t", "t", "pv"},
		`view "a'b"`:                {"d", "t", "a'b", "pv"},
		`measure "a=b"`:             {"d", "t", "v", "a=b"},
		`"rollcall_x"`:              {"d", "t", "v", "rollcall_x"},
		`"__op"`:                    {"d", "t", "v", "__op"},
		`is taken by the day`:       {"d", "t", "v", "DT"},
	} {
		require.ErrorContains(t, ok(names[0], names[1], names[2], names[3]), want)
	}
	err := CheckNames("d", "t", "", []aggregate.Dimension{{Name: "Os"}}, []aggregate.Measure{{Name: "oS", Kind: aggregate.Count}, {Name: "x"}})
	require.ErrorContains(t, err, `measure "oS": the name is taken by dimension "Os"`)
	require.ErrorContains(t, err, `unknown kind 0`)
	require.ErrorContains(t, CheckNames("d", "t", "", nil, nil), "no measure")
}

func TestQuote(t *testing.T) {
	require.Equal(t, "`a`", quote("a"))
	require.Equal(t, "`a``; DROP TABLE x; --`", quote("a`; DROP TABLE x; --"))
}

func TestNewTableNamesEveryProblem(t *testing.T) {
	_, err := NewTable(nil, TableConfig{Mode: "maybe", Database: "1", Table: "t", Buckets: -1})
	for _, want := range []string{"maybe", `database "1"`, "no measure", "must not be negative"} {
		require.ErrorContains(t, err, want)
	}
}

func TestParseType(t *testing.T) {
	for in, want := range map[string]struct {
		name   string
		length int
	}{
		"varchar(255)": {"varchar", 255}, "VARCHAR(65533)": {"varchar", 65533}, "string": {"varchar", 65533}, "bigint(20)": {"bigint", 0},
		"BIGINT": {"bigint", 0}, "date": {"date", 0}, "bitmap": {"bitmap", 0}, "decimal(10,2)": {"decimal", 0}, "": {"", 0},
		"varchar(": {"varchar", 0}, "varchar": {"varchar", 0},
	} {
		name, length := parseType(in)
		require.Equal(t, want.name, name, in)
		require.Equal(t, want.length, length, in)
	}
}

func TestAggregateOf(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "MAX": "MAX", "bitmap_union": "BITMAP_UNION", "NONE": "", "SUM,BLOOM_FILTER": "SUM", "BLOOM_FILTER": "", "BLOOM_FILTER, MIN": "MIN",
	} {
		require.Equal(t, want, aggregateOf(in), in)
	}
}

// fitting is the table as StarRocks would describe it.
func fitting(table *Table) found {
	f := found{database: true, table: true, model: "AGG_KEYS"}
	for _, s := range table.specs {
		f.columns = append(f.columns, column{
			name: s.name, dataType: s.dataType, length: s.length, null: s.null, key: s.aggregate == "",
			aggregate: s.aggregate, defaulted: s.zero,
		})
	}
	return f
}

func TestCompare(t *testing.T) {
	table := testTable(t, nil)
	at := func(f *found, name string) *column {
		for i := range f.columns {
			if f.columns[i].name == name {
				return &f.columns[i]
			}
		}
		t.Fatal(name)
		return nil
	}
	drop := func(f *found, name string) {
		for i := range f.columns {
			if f.columns[i].name == name {
				f.columns = append(f.columns[:i:i], f.columns[i+1:]...)
				return
			}
		}
		t.Fatal(name)
	}
	for name, tc := range map[string]struct {
		change  func(f *found)
		want    []string // "kind column"
		missing []string
	}{
		"fits":             {func(*found) {}, nil, nil},
		"longer dimension": {func(f *found) { at(f, "platform").length = 1024 }, nil, nil},
		"names in caps":    {func(f *found) { at(f, "pv").name = "PV" }, nil, nil},
		"nullable extra": {func(f *found) {
			f.columns = append(f.columns, column{name: "x", dataType: "int", null: true, aggregate: "SUM"})
		}, nil, nil},
		"defaulted extra": {func(f *found) {
			f.columns = append(f.columns, column{name: "x", dataType: "int", defaulted: true, aggregate: "SUM"})
		}, nil, nil},
		"sketch extra": {func(f *found) {
			f.columns = append(f.columns, column{name: "x", dataType: "hll", aggregate: "HLL_UNION"})
		}, nil, nil},
		"strict extra": {func(f *found) { f.columns = append(f.columns, column{name: "x", dataType: "int", aggregate: "SUM"}) }, []string{"extra_column x"}, nil},
		"extra key": {func(f *found) {
			f.columns = append(f.columns, column{name: "x", dataType: "int", key: true, null: true})
		}, []string{"keys "}, nil},
		"duplicate key":      {func(f *found) { f.model = "DUP_KEYS" }, []string{"key_model "}, nil},
		"no StarRocks table": {func(f *found) { f.model = "" }, []string{"key_model "}, nil},
		"narrow dimension":   {func(f *found) { at(f, "order").length = 64 }, []string{"type order"}, nil},
		"measure int":        {func(f *found) { at(f, "pv").dataType = "int" }, []string{"type pv"}, nil},
		"SUM for MAX":        {func(f *found) { at(f, "pv").aggregate = "SUM" }, []string{"aggregate pv"}, nil},
		"REPLACE bitmap":     {func(f *found) { at(f, "uv").aggregate = "REPLACE" }, []string{"aggregate uv"}, nil},
		"nullable bitmap":    {func(f *found) { at(f, "uv").null = true }, []string{"nullability uv"}, nil},
		"NOT NULL min":       {func(f *found) { at(f, "lowest").null = false }, []string{"nullability lowest"}, nil},
		"measure missing":    {func(f *found) { drop(f, "highest") }, []string{"missing_column highest"}, []string{"highest"}},
		"offset missing":     {func(f *found) { drop(f, columnNext) }, []string{"missing_column rollcall_next_offset"}, nil},
		"dimension missing":  {func(f *found) { drop(f, "order") }, []string{"missing_column order", "keys "}, nil},
		"source no key":      {func(f *found) { at(f, columnSource).key = false }, []string{"keys "}, nil},
		"order of keys": {
			func(f *found) { f.columns[1], f.columns[2] = f.columns[2], f.columns[1] },
			[]string{"keys "},
			nil,
		},
		"several": {
			func(f *found) { at(f, "pv").null = true; at(f, "amount").dataType = "double"; drop(f, "lowest") },
			[]string{"nullability pv", "type amount", "missing_column lowest"},
			[]string{"lowest"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fitting(table)
			tc.change(&f)
			items, missing := table.compare(f)
			var got, names []string
			for _, i := range items {
				got = append(got, i.Kind+" "+i.Column)
				require.NotEmpty(t, i.Want)
				require.NotEmpty(t, i.Found)
				require.Contains(t, i.String(), i.Found)
			}
			for _, s := range missing {
				names = append(names, s.name)
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.missing, names)
		})
	}
	f := fitting(table)
	at(&f, "pv").dataType = "int"
	items, _ := table.compare(f)
	err := table.difference(items...)
	require.EqualError(t, err, "table dau.daily is not as expected: column pv: type: want bigint, found int")
	require.True(t, IsPermanent(err))
}
