package starrocks

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// column is a column as DESC shows it.
type column struct {
	name, dataType string
	length         int // of a varchar
	null, key      bool
	defaulted      bool
	aggregate      string // upper case; empty for keys and for plain value columns
}

func (c column) typeText() string {
	if c.dataType == "varchar" {
		return fmt.Sprintf("%s(%d)", c.dataType, c.length)
	}
	return c.dataType
}

// found is the truth about the table, as read.
type found struct {
	database, table bool
	model           string // TABLE_MODEL, such as AGG_KEYS; empty if it is no StarRocks table
	columns         []column
}

// records reads a whole result as maps from lower-case column name to text; NULL is absent. Servers of different releases show
// different columns, so nothing is read by position.
func records(ctx context.Context, conn *sql.Conn, query string, args ...any) ([]map[string]string, error) {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err says what went wrong
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]sql.NullString, len(names))
	pointers := make([]any, len(names))
	for i := range values {
		pointers[i] = &values[i]
	}
	var all []map[string]string
	for rows.Next() {
		if err := rows.Scan(pointers...); err != nil {
			return nil, err
		}
		m := make(map[string]string, len(names))
		for i, n := range names {
			if values[i].Valid {
				m[strings.ToLower(n)] = values[i].String
			}
		}
		all = append(all, m)
	}
	return all, rows.Err()
}

// query reads in one statement under the statement's deadline.
func (t *Table) query(ctx context.Context, query string, args ...any) ([]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.StatementTimeout)
	defer cancel()
	var all []map[string]string
	err := t.db.Query(ctx, func(conn *sql.Conn) error {
		var err error
		all, err = records(ctx, conn, query, args...)
		return err
	})
	return all, err
}

// inspect reads what is there. Sources: information_schema.tables_config (key model), DESC (columns; information_schema.columns does
// not know aggregate functions).
func (t *Table) inspect(ctx context.Context) (found, error) {
	f := found{database: true}
	var err error
	f.columns, err = t.describe(ctx, t.cfg.Table)
	switch {
	case isUnknownObject(err):
		f.database, err = t.databaseExists(ctx)
		return f, err
	case err != nil:
		return found{}, err
	}
	// After the columns, so that a table which another worker creates in between is not taken for one without a model.
	models, err := t.query(ctx, "SELECT TABLE_MODEL FROM information_schema.tables_config WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
		t.cfg.Database, t.cfg.Table)
	if err != nil {
		return found{}, classifyStatement("read the key model of table "+t.cfg.Table, err)
	}
	if len(models) > 0 { // a view has none
		f.model = models[0]["table_model"]
	}
	f.table = true
	return f, nil
}

func (t *Table) databaseExists(ctx context.Context) (bool, error) {
	rows, err := t.query(ctx, "SELECT SCHEMA_NAME FROM information_schema.schemata WHERE SCHEMA_NAME = ?", t.cfg.Database)
	if err != nil {
		return false, classifyStatement("look for database "+t.cfg.Database, err)
	}
	return len(rows) > 0, nil
}

// describe lists the columns of a table or view; isUnknownObject tells a missing one.
func (t *Table) describe(ctx context.Context, name string) ([]column, error) {
	rows, err := t.query(ctx, "DESC "+t.qualified(name))
	if err != nil {
		return nil, classifyStatement("describe "+name, err)
	}
	columns := make([]column, 0, len(rows))
	for _, r := range rows {
		c := column{
			name:      r["field"],
			null:      yes(r["null"]),
			key:       yes(r["key"]),
			aggregate: aggregateOf(r["extra"]),
		}
		c.dataType, c.length = parseType(r["type"])
		_, c.defaulted = r["default"]
		columns = append(columns, c)
	}
	return columns, nil
}

// yes reads the truth words of DESC, which differ between releases (YES, Yes, true).
func yes(s string) bool { return strings.EqualFold(s, "yes") || strings.EqualFold(s, "true") }

// aggregateOf reads Extra, which may also say NONE or BLOOM_FILTER, separated by commas.
func aggregateOf(extra string) string {
	for part := range strings.SplitSeq(extra, ",") {
		part = strings.ToUpper(strings.TrimSpace(part))
		switch part {
		case "", "NONE", "BLOOM_FILTER", "BITMAP_INDEX":
		default:
			return part
		}
	}
	return ""
}

// parseType splits "varchar(255)" and drops the display width of "bigint(20)".
func parseType(s string) (name string, length int) {
	name, rest, _ := strings.Cut(strings.ToLower(strings.TrimSpace(s)), "(")
	digits, _, _ := strings.Cut(rest, ")")
	length, _ = strconv.Atoi(strings.TrimSpace(digits))
	name = strings.TrimSpace(name)
	if name == "string" { // an alias of the longest varchar
		return "varchar", 65533
	}
	if name != "varchar" {
		length = 0
	}
	return name, length
}

// compare lists how the table differs from what is expected; missing lists the measure columns that could be added.
func (t *Table) compare(f found) (items []DifferenceItem, missing []columnSpec) {
	if f.model != "AGG_KEYS" {
		return []DifferenceItem{{Kind: DiffModel, Want: "an AGGREGATE KEY table (AGG_KEYS)", Found: orNone(f.model)}}, nil
	}
	byName := make(map[string]column, len(f.columns))
	var foundKeys []string
	for _, c := range f.columns {
		byName[strings.ToLower(c.name)] = c
		if c.key {
			foundKeys = append(foundKeys, c.name)
		}
	}
	var wantKeys []string
	expected := make(map[string]bool, len(t.specs))
	for _, s := range t.specs {
		expected[strings.ToLower(s.name)] = true
		if s.aggregate == "" {
			wantKeys = append(wantKeys, s.name)
		}
		c, ok := byName[strings.ToLower(s.name)]
		if !ok {
			items = append(items, DifferenceItem{Kind: DiffMissing, Column: s.name, Want: s.definition(), Found: "no such column"})
			if s.addable {
				missing = append(missing, s)
			}
			continue
		}
		items = append(items, compareColumn(s, c)...)
	}
	if !strings.EqualFold(strings.Join(wantKeys, ","), strings.Join(foundKeys, ",")) {
		items = append(items, DifferenceItem{Kind: DiffKeys, Want: quoteAll(wantKeys), Found: orNone(quoteAll(foundKeys))})
	}
	for _, c := range f.columns {
		if !expected[strings.ToLower(c.name)] && !c.key && !c.null && !c.defaulted && !emptyByItself(c) {
			items = append(items, DifferenceItem{
				Kind: DiffExtra, Column: c.name,
				Want: "no such column, or one that may be NULL or has a default", Found: c.typeText() + " NOT NULL without default",
			})
		}
	}
	return items, missing
}

// emptyByItself: sketch columns are filled with an empty sketch when a load does not name them.
func emptyByItself(c column) bool { return c.dataType == "bitmap" || c.dataType == "hll" }

func compareColumn(s columnSpec, c column) []DifferenceItem {
	var items []DifferenceItem
	if c.dataType != s.dataType || c.length < s.length {
		want := s.typeText()
		if s.length > 0 {
			want += " or longer"
		}
		items = append(items, DifferenceItem{Kind: DiffType, Column: s.name, Want: want, Found: c.typeText()})
	}
	if c.aggregate != s.aggregate && !c.key {
		items = append(items, DifferenceItem{Kind: DiffAggregate, Column: s.name, Want: orNone(s.aggregate), Found: orNone(c.aggregate)})
	}
	if c.null != s.null {
		items = append(items, DifferenceItem{Kind: DiffNull, Column: s.name, Want: nullText(s.null), Found: nullText(c.null)})
	}
	return items
}

func nullText(null bool) string {
	if null {
		return "NULL"
	}
	return "NOT NULL"
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
