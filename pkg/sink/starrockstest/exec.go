package starrockstest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mysqlVersion is what version() and the handshake say. StarRocks: fe Config / GlobalVariable.version.
const mysqlVersion = "8.0.33"

// statement is one SQL statement on its way through the engine.
type statement struct {
	p       *parser
	session *session
	user    User
	q       *querier
}

// exec runs one statement; a nil relation means OK without rows. It is called under the lock.
func (e *engine) exec(st *statement) (*relation, error) {
	p := st.p
	switch t := p.peek(); {
	case t.is("SELECT"), t.is("("):
		return e.execSelect(st)
	case t.is("SHOW"):
		p.next()
		return e.execShow(st)
	case t.is("DESC"), t.is("DESCRIBE"):
		p.next()
		p.accept("TABLE")
		return e.execDesc(st)
	case t.is("EXPLAIN"):
		return nil, sqlErr(errCodeAnalysis, "the stand-in has no EXPLAIN")
	case t.is("USE"):
		p.next()
		return nil, e.execUse(st)
	case t.is("SET"), t.is("BEGIN"), t.is("COMMIT"), t.is("ROLLBACK"), p.at("START", "TRANSACTION"):
		return nil, nil // Session settings and no-op transactions of clients.
	case t.is("CREATE"):
		p.next()
		return nil, e.execCreate(st)
	case t.is("DROP"):
		p.next()
		return nil, e.execDrop(st)
	case t.is("ALTER"):
		p.next()
		return nil, e.execAlter(st)
	case t.is("TRUNCATE"):
		p.next()
		p.accept("TABLE")
		return nil, e.execTruncate(st)
	case t.is("INSERT"):
		p.next()
		return nil, e.execInsert(st)
	}
	return nil, sqlErr(errCodeAnalysis, "the stand-in does not know this statement: %s", p.sql)
}

func (st *statement) need(pr Privilege, on string) error {
	if st.user.may(pr) {
		return nil
	}
	return sqlErr(errCodeAccess, "%s", accessDenied(pr, on))
}

// target reads a table or view name and fills in the session's database.
func (st *statement) target() (db, name string, err error) {
	if db, name, err = st.p.tableName(); err != nil {
		return "", "", err
	}
	return st.qualify(db, name)
}

func (st *statement) qualify(db, name string) (string, string, error) {
	if db == "" {
		db = st.session.db
	}
	if db == "" {
		return "", "", errNoDatabase
	}
	return db, name, nil
}

func (e *engine) database(name string) (*database, error) {
	if d, ok := e.dbs[name]; ok {
		return d, nil
	}
	return nil, unknownDatabase(name)
}

// tableNamed finds a table for a statement; loads have error texts of their own.
func (e *engine) tableNamed(db, name string) (*table, error) {
	d, err := e.database(db)
	if err != nil {
		return nil, err
	}
	if t, ok := d.tables[name]; ok {
		return t, nil
	}
	return nil, sqlErr(errCodeUnknownTable, "Unknown table '%s.%s'", db, name)
}

func (e *engine) execSelect(st *statement) (*relation, error) {
	s, err := st.p.selectStmt()
	if err != nil {
		return nil, err
	}
	if err := st.p.end(); err != nil {
		return nil, err
	}
	if s.from != nil && !strings.EqualFold(s.from.db, "information_schema") {
		if err := st.need(Select, "TABLE "+s.from.name); err != nil {
			return nil, err
		}
	}
	return st.q.run(s)
}

func (e *engine) execUse(st *statement) error {
	name, err := st.p.name()
	if err != nil {
		return err
	}
	if st.p.accept(".") { // catalog.database
		if name, err = st.p.name(); err != nil {
			return err
		}
	}
	return e.use(st.session, name)
}

func (e *engine) use(s *session, name string) error {
	if !strings.EqualFold(name, "information_schema") {
		if _, err := e.database(name); err != nil {
			return err
		}
	}
	s.db = name
	return nil
}

func (e *engine) execCreate(st *statement) error {
	p := st.p
	switch {
	case p.accept("DATABASE"), p.accept("SCHEMA"):
		return e.createDatabase(st)
	case p.accept("TABLE"):
		return e.createTable(st)
	case p.accept("OR", "REPLACE", "VIEW"):
		return e.createView(st, true)
	case p.accept("VIEW"):
		return e.createView(st, false)
	}
	return sqlErr(errCodeAnalysis, "the stand-in does not know this statement: %s", p.sql)
}

func (e *engine) createDatabase(st *statement) error {
	ifNot := st.p.accept("IF", "NOT", "EXISTS")
	name, err := st.p.name()
	if err != nil {
		return err
	}
	if err := st.p.end(); err != nil {
		return err
	}
	if err := st.need(Create, "DATABASE "+name); err != nil {
		return err
	}
	if _, ok := e.dbs[name]; ok {
		if ifNot {
			return nil
		}
		return sqlErr(errCodeDBExists, "Can't create database '%s'; database exists", name)
	}
	e.addDatabase(name)
	return nil
}

func (e *engine) addDatabase(name string) {
	e.dbs[name] = &database{id: e.id(), name: name, tables: map[string]*table{}, views: map[string]*view{}}
	e.touch()
}

func (e *engine) createTable(st *statement) error {
	t, ifNot, err := st.p.createTable()
	if err != nil {
		return err
	}
	if t.db, t.name, err = st.qualify(t.db, t.name); err != nil {
		return err
	}
	d, err := e.database(t.db)
	if err != nil {
		return err
	}
	if err := st.need(Create, "TABLE "+t.name); err != nil {
		return err
	}
	_, isTable := d.tables[t.name]
	_, isView := d.views[t.name]
	if isTable || isView {
		if ifNot {
			return nil
		}
		return sqlErr(errCodeTableExists, "Table '%s' already exists", t.name)
	}
	if err := e.checkReplication(t); err != nil {
		return err
	}
	t.id = e.id()
	if t.buckets == 0 && !t.random {
		t.buckets = 1
	}
	for _, r := range t.part.ranges {
		t.partition(r.name)
	}
	if len(t.part.columns) == 0 {
		t.partition(t.name)
	}
	d.tables[t.name] = t
	e.touch()
	return nil
}

// checkReplication refuses more replicas than there are backends. StarRocks: facts on CREATE TABLE errors.
func (e *engine) checkReplication(t *table) error {
	n := e.cfg.DefaultReplication
	if v, ok := t.prop("replication_num"); ok {
		k, err := strconv.Atoi(v)
		if err != nil || k < 1 {
			return sqlErr(errCodeAnalysis, "Invalid replication_num: %s", v)
		}
		n = k
	} else {
		t.props = append(t.props, [2]string{"replication_num", strconv.Itoa(n)})
	}
	if n <= e.backends {
		return nil
	}
	ids := make([]string, e.backends)
	for i := range ids {
		ids[i] = strconv.Itoa(10001 + i)
	}
	return sqlErr(errCodeAnalysis, "Table replication num should be less than or equal to the number of available BE nodes. You can change this default by setting the replication_num table properties. Current alive backend is [%s]. , table=%s, default_replication_num=%d", strings.Join(ids, ","), t.name, e.cfg.DefaultReplication)
}

func (e *engine) createView(st *statement, replace bool) error {
	p := st.p
	ifNot := p.accept("IF", "NOT", "EXISTS")
	v := &view{}
	var err error
	if v.db, v.name, err = st.target(); err != nil {
		return err
	}
	if err := p.viewBody(v); err != nil {
		return err
	}
	d, err := e.database(v.db)
	if err != nil {
		return err
	}
	if err := st.need(Create, "VIEW "+v.name); err != nil {
		return err
	}
	if err := st.checkView(v); err != nil {
		return err
	}
	if _, ok := d.tables[v.name]; ok {
		return sqlErr(errCodeTableExists, "Table '%s' already exists", v.name)
	}
	if old, ok := d.views[v.name]; ok && !replace {
		if ifNot {
			return nil
		}
		return sqlErr(errCodeTableExists, "Table '%s' already exists", old.name)
	}
	v.id = e.id()
	d.views[v.name] = v
	e.touch()
	return nil
}

// viewBody reads [(columns)] [COMMENT "…"] AS SELECT ….
func (p *parser) viewBody(v *view) (err error) {
	if p.accept("(") {
		for {
			c, err := p.name()
			if err != nil {
				return err
			}
			v.columns = append(v.columns, c)
			if p.accept("COMMENT") {
				if _, err := p.str(); err != nil {
					return err
				}
			}
			if !p.accept(",") {
				break
			}
		}
		if err := p.expect(")"); err != nil {
			return err
		}
	}
	if p.accept("COMMENT") {
		if v.comment, err = p.str(); err != nil {
			return err
		}
	}
	if err := p.expect("AS"); err != nil {
		return err
	}
	from := p.peek().pos
	if _, err := p.selectStmt(); err != nil {
		return err
	}
	v.text = strings.TrimSpace(p.sql[from:p.toks[p.i-1].end])
	return p.end()
}

// checkView analyses a view by running it over no rows, and fixes its column names.
func (st *statement) checkView(v *view) error {
	s, err := parseSelect(v.text)
	if err != nil {
		return err
	}
	r, err := st.q.planning().run(s)
	if err != nil {
		return err
	}
	if len(v.columns) > 0 && len(v.columns) != len(r.cols) {
		return sqlErr(errCodeAnalysis, "Getting analyzing error. Detail message: Column number of view does not match")
	}
	if len(v.columns) == 0 {
		for _, c := range r.cols {
			v.columns = append(v.columns, c.name)
		}
	}
	v.text = printer{st.session.db}.selectText(s)
	return nil
}

func (e *engine) execDrop(st *statement) error {
	p := st.p
	what := ""
	for _, w := range []string{"DATABASE", "TABLE", "VIEW"} {
		if p.accept(w) {
			what = w
		}
	}
	if what == "" {
		return sqlErr(errCodeAnalysis, "the stand-in does not know this statement: %s", p.sql)
	}
	ifExists := p.accept("IF", "EXISTS")
	if what == "DATABASE" {
		name, err := p.name()
		if err != nil {
			return err
		}
		if err := st.need(Drop, "DATABASE "+name); err != nil {
			return err
		}
		if _, ok := e.dbs[name]; !ok && !ifExists {
			return unknownDatabase(name)
		}
		delete(e.dbs, name)
		e.touch()
		return nil
	}
	db, name, err := st.target()
	if err != nil {
		return err
	}
	if err := st.need(Drop, what+" "+name); err != nil {
		return err
	}
	d, err := e.database(db)
	if err != nil {
		return err
	}
	_, isTable := d.tables[name]
	_, isView := d.views[name]
	if what == "TABLE" && !isTable || what == "VIEW" && !isView {
		if ifExists {
			return nil
		}
		return sqlErr(errCodeUnknownTable, "Unknown table '%s.%s'", db, name)
	}
	if what == "TABLE" {
		delete(d.tables, name)
	} else {
		delete(d.views, name)
	}
	e.touch()
	return nil
}

func (e *engine) execTruncate(st *statement) error {
	db, name, err := st.target()
	if err != nil {
		return err
	}
	t, err := e.tableNamed(db, name)
	if err != nil {
		return err
	}
	if err := st.need(Drop, "TABLE "+name); err != nil {
		return err
	}
	var only []string
	if st.p.accept("PARTITION") {
		if only, err = st.p.nameList(); err != nil {
			return err
		}
	}
	for _, p := range t.partitions {
		if len(only) == 0 || slices.Contains(only, p.name) {
			p.clear()
		}
	}
	t.history = nil
	e.touch()
	return nil
}

// execInsert is INSERT INTO t [(columns)] VALUES … or SELECT …: one transaction, visible at once.
func (e *engine) execInsert(st *statement) error {
	p := st.p
	if err := p.expect("INTO"); err != nil {
		return err
	}
	db, name, err := st.target()
	if err != nil {
		return err
	}
	t, err := e.tableNamed(db, name)
	if err != nil {
		return err
	}
	if err := st.need(Insert, "TABLE "+name); err != nil {
		return err
	}
	var cols []string
	if p.at("(") && !p.at("(", "SELECT") {
		if cols, err = p.nameList(); err != nil {
			return err
		}
	}
	rows, err := st.insertRows()
	if err != nil {
		return err
	}
	now := time.Now()
	x, err := e.begin(db, fmt.Sprintf("insert_%d", e.nextID+1), st.user.Name, e.cfg.DefaultTimeout, now)
	if err != nil {
		return err
	}
	s, err := t.stageValues(cols, rows)
	if err != nil {
		e.abort(x, err.Error(), now)
		return err
	}
	x.staged = []*staged{s}
	if err := e.commit(x, now); err != nil {
		return err
	}
	e.advance(now)
	return nil
}

func (st *statement) insertRows() ([][]any, error) {
	p := st.p
	if p.at("SELECT") {
		s, err := p.selectStmt()
		if err != nil {
			return nil, err
		}
		if err := p.end(); err != nil {
			return nil, err
		}
		r, err := st.q.run(s)
		if err != nil {
			return nil, err
		}
		return r.rows, nil
	}
	if err := p.expect("VALUES"); err != nil {
		return nil, err
	}
	var out [][]any
	for {
		if err := p.expect("("); err != nil {
			return nil, err
		}
		exprs, err := p.exprList()
		if err != nil {
			return nil, err
		}
		v := env{session: st.session}
		vals := make([]any, len(exprs))
		for i, x := range exprs {
			if vals[i], err = v.eval(x); err != nil {
				return nil, err
			}
		}
		out = append(out, vals)
		if !p.accept(",") {
			return out, p.end()
		}
	}
}

// stageValues converts rows given by position (or by cols) into rows of the table.
func (t *table) stageValues(cols []string, rows [][]any) (*staged, error) {
	at := make([]int, 0, len(t.cols))
	for _, c := range cols {
		i, ok := t.col(c)
		if !ok {
			return nil, fmt.Errorf("Unknown column '%s' in '%s'", c, t.name)
		}
		at = append(at, i)
	}
	for i := range t.cols {
		if len(cols) == 0 {
			at = append(at, i)
		}
	}
	s := &staged{table: t, cols: t.cols, parts: map[string][][]any{}}
	for _, in := range rows {
		if len(in) != len(at) {
			return nil, errors.New("Column count doesn't match value count")
		}
		vals := make([]any, len(t.cols))
		for i, c := range t.cols {
			vals[i], _ = c.defaultValue()
		}
		for k, i := range at {
			v, err := convert(in[k], t.cols[i].typ)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", t.cols[i].name, err)
			}
			vals[i] = v
		}
		if err := s.add(vals); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add checks a complete row as the tablet sink does and puts it into its partition.
func (s *staged) add(vals []any) error {
	for i, c := range s.cols {
		if vals[i] == nil && !c.nullable {
			return fmt.Errorf("NULL value in non-nullable column '%s'", c.name)
		}
	}
	name, err := s.table.partitionOf(vals)
	if err != nil {
		return err
	}
	s.parts[name] = append(s.parts[name], vals)
	s.rows++
	return nil
}

func (s *staged) newPartitions() (n int) {
	for name := range s.parts {
		if _, ok := s.table.partitions[name]; !ok {
			n++
		}
	}
	return n
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
