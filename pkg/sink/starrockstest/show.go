package starrockstest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// relationOf makes an empty result; a name ending in ":n" is a BIGINT column, the others are text.
func relationOf(names ...string) *relation {
	r := &relation{}
	for _, n := range names {
		t := typ{kind: kindVarchar, length: 1024}
		if name, ok := strings.CutSuffix(n, ":n"); ok {
			n, t = name, typ{kind: kindBigint}
		}
		r.cols = append(r.cols, source{"", n, t})
	}
	return r
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// execShow is SHOW …; the word itself is consumed.
func (e *engine) execShow(st *statement) (*relation, error) {
	p := st.p
	full := p.accept("FULL")
	p.accept("GLOBAL")
	p.accept("SESSION")
	switch {
	case p.accept("DATABASES"), p.accept("SCHEMAS"):
		r := relationOf("Database")
		for _, n := range append(sortedNames(e.dbs), "information_schema") {
			r.rows = append(r.rows, []any{n})
		}
		return e.showTail(st, r)
	case p.accept("TABLES"):
		return e.showTables(st, full)
	case p.accept("COLUMNS"), p.accept("FIELDS"):
		if !p.accept("FROM") && !p.accept("IN") {
			return nil, p.errorf("expected FROM")
		}
		return e.execDesc(st)
	case p.accept("CREATE", "TABLE"), p.accept("CREATE", "VIEW"):
		return e.showCreate(st)
	case p.accept("CREATE", "DATABASE"):
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		if _, err := e.database(name); err != nil {
			return nil, err
		}
		r := relationOf("Database", "Create Database")
		r.rows = [][]any{{name, "CREATE DATABASE " + quoteName(name)}}
		return r, nil
	case p.accept("ALTER", "TABLE", "COLUMN"):
		return e.showFrom(st, e.showAlter)
	case p.accept("TRANSACTION"):
		for i, t := range p.toks { // WHERE id = N means the TransactionId column.
			if t.is("id") {
				p.toks[i].text = "TransactionId"
			}
		}
		return e.showFrom(st, e.showTransactions)
	case p.accept("PARTITIONS"):
		return e.showPartitions(st)
	case p.accept("VARIABLES"):
		return e.showTail(st, variables(st.session))
	case p.accept("BACKENDS"):
		return e.showBackends(), nil
	case p.accept("FRONTENDS"):
		r := relationOf("Name", "IsMaster", "Alive")
		for i := range e.cfg.FEs {
			r.rows = append(r.rows, []any{fmt.Sprintf("fe%d", i), strconv.FormatBool(i == 0), "true"})
		}
		return r, nil
	case p.accept("WARNINGS"), p.accept("ERRORS"):
		return relationOf("Level", "Code:n", "Message"), nil
	case p.accept("STATUS"), p.accept("PROCESSLIST"), p.accept("COLLATION"), p.accept("CHARACTER", "SET"), p.accept("ENGINES"):
		return relationOf("Variable_name", "Value"), nil
	case p.at("PROC"):
		return nil, sqlErr(errCodeAnalysis, "the stand-in has no SHOW PROC; use SHOW TRANSACTION")
	}
	return nil, sqlErr(errCodeAnalysis, "the stand-in does not know this statement: %s", p.sql)
}

// showFrom reads [FROM db] and filters what list returns.
func (e *engine) showFrom(st *statement, list func(db string) (*relation, error)) (*relation, error) {
	db := st.session.db
	if st.p.accept("FROM") || st.p.accept("IN") {
		name, err := st.p.name()
		if err != nil {
			return nil, err
		}
		db = name
	}
	if db == "" {
		return nil, errNoDatabase
	}
	r, err := list(db)
	if err != nil {
		return nil, err
	}
	return e.showTail(st, r)
}

// showTail applies [LIKE '…'] [WHERE …] [ORDER BY …] [LIMIT …] to a listing.
func (e *engine) showTail(st *statement, r *relation) (*relation, error) {
	s := &selectStmt{limit: -1, items: []selectItem{{star: true}}}
	if st.p.accept("LIKE") {
		pattern, err := st.p.str()
		if err != nil {
			return nil, err
		}
		s.where = binExpr{"LIKE", colExpr{"", r.cols[0].name}, litExpr{pattern}}
	} else if err := st.p.selectTail(s); err != nil {
		return nil, err
	}
	if err := st.p.end(); err != nil {
		return nil, err
	}
	return st.q.over(s, r)
}

// over runs a SELECT whose FROM is the given relation.
func (q *querier) over(s *selectStmt, r *relation) (*relation, error) {
	items, err := expandStars(s.items, r.cols)
	if err != nil {
		return nil, err
	}
	s.items = items
	rows, err := q.filter(s.where, r)
	if err != nil {
		return nil, err
	}
	groups, err := q.group(s, items, r, rows)
	if err != nil {
		return nil, err
	}
	out, err := q.project(s, items, groups)
	if err != nil {
		return nil, err
	}
	return &relation{r.cols, limitRows(out, s)}, nil
}

func (e *engine) showTables(st *statement, full bool) (*relation, error) {
	db := st.session.db
	if st.p.accept("FROM") || st.p.accept("IN") {
		name, err := st.p.name()
		if err != nil {
			return nil, err
		}
		db = name
	}
	if db == "" {
		return nil, errNoDatabase
	}
	d, err := e.database(db)
	if err != nil {
		return nil, err
	}
	r := relationOf("Tables_in_" + db)
	if full {
		r = relationOf("Tables_in_"+db, "Table_type")
	}
	add := func(name, kind string) {
		row := []any{name}
		if full {
			row = append(row, kind)
		}
		r.rows = append(r.rows, row)
	}
	for _, n := range sortedNames(d.tables) {
		add(n, "BASE TABLE")
	}
	for _, n := range sortedNames(d.views) {
		add(n, "VIEW")
	}
	return e.showTail(st, r)
}

// execDesc is DESC db.tbl. Extra holds the aggregate function, spelt as StarRocks does. StarRocks: fe IndexSchemaProcNode.
func (e *engine) execDesc(st *statement) (*relation, error) {
	db, name, err := st.target()
	if err != nil {
		return nil, err
	}
	if st.p.accept("FROM") { // SHOW COLUMNS FROM t FROM db
		if db, err = st.p.name(); err != nil {
			return nil, err
		}
	}
	st.p.accept("ALL")
	r := relationOf("Field", "Type", "Null", "Key", "Default", "Extra")
	d, err := e.database(db)
	if err != nil {
		return nil, err
	}
	if v, ok := d.views[name]; ok {
		rel, err := st.q.planning().view(v, name)
		if err != nil {
			return nil, err
		}
		for _, c := range rel.cols {
			r.rows = append(r.rows, []any{c.name, c.typ.String(), "YES", "false", nil, ""})
		}
		return r, nil
	}
	t, err := e.tableNamed(db, name)
	if err != nil {
		return nil, err
	}
	for _, c := range t.cols {
		null := "NO"
		if c.nullable {
			null = "YES"
		}
		def := any(nil)
		if c.def != nil {
			def = *c.def
		}
		extra := c.agg
		if c.auto {
			extra = "auto_increment"
		}
		r.rows = append(r.rows, []any{c.name, c.typ.String(), null, strconv.FormatBool(c.key), def, extra})
	}
	return r, nil
}

func (e *engine) showCreate(st *statement) (*relation, error) {
	db, name, err := st.target()
	if err != nil {
		return nil, err
	}
	d, err := e.database(db)
	if err != nil {
		return nil, err
	}
	if v, ok := d.views[name]; ok {
		r := relationOf("View", "Create View", "character_set_client", "collation_connection")
		r.rows = [][]any{{name, v.ddl(), "utf8", "utf8_general_ci"}}
		return r, nil
	}
	t, err := e.tableNamed(db, name)
	if err != nil {
		return nil, err
	}
	r := relationOf("Table", "Create Table")
	r.rows = [][]any{{name, t.ddl()}}
	return r, nil
}

func (v *view) ddl() string {
	cols := make([]string, len(v.columns))
	for i, c := range v.columns {
		cols[i] = quoteName(c)
	}
	comment := ""
	if v.comment != "" {
		comment = " COMMENT " + quoteText(v.comment)
	}
	return fmt.Sprintf("CREATE VIEW %s (%s)%s AS %s;", quoteName(v.name), strings.Join(cols, ", "), comment, v.text)
}

// ddl prints a table as SHOW CREATE TABLE does; it can be executed again.
func (t *table) ddl() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "CREATE TABLE %s (\n", quoteName(t.name))
	for i, c := range t.cols {
		fmt.Fprintf(&sb, "  %s %s", quoteName(c.name), c.typ)
		if c.agg != "" {
			sb.WriteString(" " + c.agg)
		}
		if c.nullable {
			sb.WriteString(" NULL")
		} else {
			sb.WriteString(" NOT NULL")
		}
		if c.auto {
			sb.WriteString(" AUTO_INCREMENT")
		}
		if c.def != nil && c.typ.kind != kindBitmap && c.typ.kind != kindHLL {
			sb.WriteString(" DEFAULT " + quoteText(*c.def))
		}
		fmt.Fprintf(&sb, " COMMENT %s", quoteText(c.comment))
		if i < len(t.cols)-1 {
			sb.WriteByte(',')
		}
		sb.WriteByte('\n')
	}
	model := map[keysModel]string{
		modelAggregate: "AGGREGATE", modelDuplicate: "DUPLICATE", modelUnique: "UNIQUE", modelPrimary: "PRIMARY",
	}[t.model]
	fmt.Fprintf(&sb, ") ENGINE=OLAP \n%s KEY(%s)\n", model, quoteNames(t.keys))
	if t.comment != "" {
		fmt.Fprintf(&sb, "COMMENT %s\n", quoteText(t.comment))
	}
	sb.WriteString(t.partitionDDL())
	switch {
	case t.random:
		sb.WriteString("DISTRIBUTED BY RANDOM\n")
	case len(t.distCols) > 0:
		fmt.Fprintf(&sb, "DISTRIBUTED BY HASH(%s) BUCKETS %d \n", quoteNames(t.distCols), t.buckets)
	}
	sb.WriteString("PROPERTIES (\n")
	for i, kv := range t.props {
		sep := ","
		if i == len(t.props)-1 {
			sep = ""
		}
		fmt.Fprintf(&sb, "%s = %s%s\n", quoteText(kv[0]), quoteText(kv[1]), sep)
	}
	sb.WriteString(");")
	return sb.String()
}

func (t *table) partitionDDL() string {
	switch {
	case len(t.part.columns) == 0:
		return ""
	case t.part.unit != "":
		return fmt.Sprintf("PARTITION BY date_trunc('%s', %s)\n", t.part.unit, t.part.columns[0])
	case !t.part.ranged:
		return fmt.Sprintf("PARTITION BY (%s)\n", quoteNames(t.part.columns))
	}
	var parts []string
	for _, r := range t.part.ranges {
		parts = append(parts, fmt.Sprintf("PARTITION %s VALUES [(%q), (%q))", r.name, r.lo, r.hi))
	}
	return fmt.Sprintf("PARTITION BY RANGE(%s)\n(%s)\n", quoteNames(t.part.columns), strings.Join(parts, ",\n"))
}

func quoteNames(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = quoteName(n)
	}
	return strings.Join(out, ", ")
}

func (e *engine) showTransactions(db string) (*relation, error) {
	if _, err := e.database(db); err != nil {
		return nil, err
	}
	r := relationOf("TransactionId:n", "Label", "Coordinator", "TransactionStatus", "LoadJobSourceType", "PrepareTime", "CommitTime",
		"PublishTime", "FinishTime", "Reason", "ErrorReplicasCount:n", "ListenerId:n", "TimeoutMs:n", "ErrMsg")
	for _, id := range sortedIDs(e.txns) {
		t := e.txns[id]
		if t.db != db {
			continue
		}
		r.rows = append(r.rows, []any{
			t.id, t.label, "BE: 127.0.0.1", string(t.state), "BACKEND_STREAMING", timeOrNull(t.begun), timeOrNull(t.committed),
			timeOrNull(t.publishAt), timeOrNull(t.ended), t.reason, int64(0), int64(-1), t.timeout.Milliseconds(), "",
		})
	}
	return r, nil
}

func (e *engine) showPartitions(st *statement) (*relation, error) {
	if !st.p.accept("FROM") {
		return nil, st.p.errorf("expected FROM")
	}
	db, name, err := st.target()
	if err != nil {
		return nil, err
	}
	t, err := e.tableNamed(db, name)
	if err != nil {
		return nil, err
	}
	r := relationOf("PartitionId:n", "PartitionName", "VisibleVersion:n", "State", "PartitionKey", "RowCount:n")
	for i, n := range sortedNames(t.partitions) {
		p := t.partitions[n]
		r.rows = append(r.rows, []any{t.id + int64(i) + 1, n, p.version + 1, "NORMAL", strings.Join(t.part.columns, ", "), int64(len(p.rows))})
	}
	return e.showTail(st, r)
}

func (e *engine) showBackends() *relation {
	r := relationOf("BackendId:n", "IP", "HeartbeatPort:n", "BePort:n", "HttpPort:n", "Alive")
	for i := range e.backends {
		r.rows = append(r.rows, []any{int64(10001 + i), "127.0.0.1", int64(9050), int64(9060), int64(e.cfg.BEPort), "true"})
	}
	return r
}
