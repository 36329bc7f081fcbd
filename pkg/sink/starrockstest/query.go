package starrockstest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// relation is a result: named, typed columns and rows.
type relation struct {
	cols []source
	rows [][]any
}

// querier runs SELECTs for one session. It is used under the engine's lock.
type querier struct {
	e       *engine
	session *session
	notYet  func(*table, undo) bool // what a lagging FE has not seen; nil: it has seen all
	depth   int
	noRows  bool // only what columns come out is wanted: tables count as empty
}

// planning is the querier for a statement whose columns are wanted, not its rows.
func (q *querier) planning() *querier {
	p := *q
	p.noRows = true
	return &p
}

var errDepth = errors.New("views are nested too deeply")

// source returns the rows a FROM stands for.
func (q *querier) source(ref *tableRef) (*relation, error) {
	if q.depth++; q.depth > 16 {
		return nil, errDepth
	}
	defer func() { q.depth-- }()
	if ref.sub != nil {
		r, err := q.run(ref.sub)
		if err != nil {
			return nil, err
		}
		return r.renamed(ref.alias), nil
	}
	db := ref.db
	if db == "" {
		db = q.session.db
	}
	if db == "" {
		return nil, errNoDatabase
	}
	if strings.EqualFold(db, "information_schema") {
		r, err := q.e.informationSchema(ref.name)
		if err != nil {
			return nil, err
		}
		return r.renamed(ref.alias), nil
	}
	d, ok := q.e.dbs[db]
	if !ok {
		return nil, unknownDatabase(db)
	}
	if v, ok := d.views[ref.name]; ok {
		return q.view(v, ref.alias)
	}
	t, ok := d.tables[ref.name]
	if !ok {
		return nil, sqlErr(errCodeUnknownTable, "Unknown table '%s.%s'", db, ref.name)
	}
	var notYet func(undo) bool
	if q.notYet != nil {
		notYet = func(u undo) bool { return q.notYet(t, u) }
	}
	cols, rows := t.scan(notYet)
	if q.noRows {
		rows = nil
	}
	r := &relation{}
	for _, c := range cols {
		r.cols = append(r.cols, source{ref.alias, c.name, c.typ})
	}
	for _, row := range rows {
		r.rows = append(r.rows, row.vals)
	}
	return r, nil
}

func (q *querier) view(v *view, alias string) (*relation, error) {
	s, err := parseSelect(v.text)
	if err != nil {
		return nil, err
	}
	inner := *q
	in := *q.session
	in.db = v.db
	inner.session = &in
	r, err := inner.run(s)
	if err != nil {
		return nil, fmt.Errorf("view %s.%s: %w", v.db, v.name, err)
	}
	for i := range r.cols {
		if i < len(v.columns) {
			r.cols[i].name = v.columns[i]
		}
	}
	return r.renamed(alias), nil
}

func (r *relation) renamed(alias string) *relation {
	for i := range r.cols {
		r.cols[i].qualifier = alias
	}
	return r
}

func parseSelect(text string) (*selectStmt, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
	s, err := p.selectStmt()
	if err != nil {
		return nil, err
	}
	return s, p.end()
}

// run executes a SELECT.
func (q *querier) run(s *selectStmt) (*relation, error) {
	in := &relation{rows: [][]any{{}}}
	if s.from != nil {
		r, err := q.source(s.from)
		if err != nil {
			return nil, err
		}
		in = r
	}
	items, err := expandStars(s.items, in.cols)
	if err != nil {
		return nil, err
	}
	if err := checkColumns(s, items, in.cols); err != nil {
		return nil, err
	}
	rows, err := q.filter(s.where, in)
	if err != nil {
		return nil, err
	}
	groups, err := q.group(s, items, in, rows)
	if err != nil {
		return nil, err
	}
	out := &relation{}
	for _, it := range items {
		out.cols = append(out.cols, source{"", it.name, typeOf(it.e, in.cols)})
	}
	sorted, err := q.project(s, items, groups)
	if err != nil {
		return nil, err
	}
	out.rows = limitRows(sorted, s)
	return out, nil
}

func expandStars(items []selectItem, cols []source) ([]selectItem, error) {
	var out []selectItem
	for _, it := range items {
		if !it.star {
			out = append(out, it)
			continue
		}
		n := len(out)
		for _, c := range cols {
			if it.qual == "" || strings.EqualFold(it.qual, c.qualifier) {
				out = append(out, selectItem{e: colExpr{c.qualifier, c.name}, name: c.name})
			}
		}
		if len(out) == n {
			return nil, errors.New("* without columns to stand for")
		}
	}
	return out, nil
}

// checkColumns refuses unknown columns even where no row would evaluate them.
func checkColumns(s *selectStmt, items []selectItem, cols []source) error {
	var exprs []expr
	for _, it := range items {
		exprs = append(exprs, it.e)
	}
	exprs = append(append(exprs, s.where), s.groupBy...)
	var err error
	for _, e := range exprs {
		walk(e, func(x expr) bool {
			if c, ok := x.(colExpr); ok && err == nil {
				if _, miss := findSource(cols, c); miss != nil && !isAlias(items, c) {
					err = miss
				}
			}
			return true
		})
	}
	return err
}

func isAlias(items []selectItem, c colExpr) bool {
	return c.qualifier == "" && slices.ContainsFunc(items, func(it selectItem) bool {
		e, isCol := it.e.(colExpr)
		return strings.EqualFold(it.name, c.name) && (!isCol || !strings.EqualFold(e.name, c.name))
	})
}

func (q *querier) filter(where expr, in *relation) ([][]any, error) {
	if where == nil {
		return in.rows, nil
	}
	var out [][]any
	v := env{cols: in.cols, session: q.session}
	where = bind(where, in.cols)
	for _, r := range in.rows {
		v.vals = r
		ok, err := v.truth(where)
		if err != nil {
			return nil, err
		}
		if ok != nil && *ok {
			out = append(out, r)
		}
	}
	return out, nil
}

// group turns rows into one environment per output row: the rows themselves, or the groups with their aggregates.
func (q *querier) group(s *selectStmt, items []selectItem, in *relation, rows [][]any) ([]env, error) {
	exprs := []expr{s.having}
	for _, it := range items {
		exprs = append(exprs, it.e)
	}
	for _, o := range s.orderBy {
		exprs = append(exprs, o.e)
	}
	aggs := aggregatesIn(exprs)
	base := env{cols: in.cols, session: q.session}
	if len(aggs) == 0 && len(s.groupBy) == 0 && !s.distinct {
		out := make([]env, len(rows))
		for i, r := range rows {
			out[i] = base
			out[i].vals = r
		}
		return out, nil
	}
	by := make([]expr, 0, len(s.groupBy))
	for _, g := range s.groupBy {
		by = append(by, resolveAlias(g, items, in.cols))
	}
	if len(s.groupBy) == 0 && s.distinct && len(aggs) == 0 {
		for _, it := range items {
			by = append(by, it.e)
		}
	}
	if err := checkGrouped(items, by, aggs); err != nil {
		return nil, err
	}
	order, groups, err := groupRows(by, rows, base)
	if err != nil {
		return nil, err
	}
	if len(order) == 0 && len(by) == 0 {
		order, groups = []string{""}, map[string][][]any{"": nil} // An aggregate over nothing is still one row.
	}
	return foldGroups(order, groups, aggs, base)
}

func groupRows(by []expr, rows [][]any, v env) (order []string, groups map[string][][]any, err error) {
	groups = map[string][][]any{}
	bound := make([]expr, len(by))
	for i, g := range by {
		bound[i] = bind(g, v.cols)
	}
	for _, r := range rows {
		v.vals = r
		key := make([]any, len(by))
		for i, g := range bound {
			if key[i], err = v.eval(g); err != nil {
				return nil, nil, err
			}
		}
		k := keyOf(key)
		if _, ok := groups[k]; !ok {
			order = append(order, k)
		}
		groups[k] = append(groups[k], r)
	}
	return order, groups, nil
}

func foldGroups(order []string, groups map[string][][]any, aggs []callExpr, base env) ([]env, error) {
	out := make([]env, 0, len(order))
	for _, k := range order {
		g := base
		g.aggs = map[string]any{}
		for _, a := range aggs {
			val, err := fold(a, groups[k], base)
			if err != nil {
				return nil, err
			}
			g.aggs[exprKey(a)] = val
		}
		if len(groups[k]) > 0 {
			g.vals = groups[k][0]
		} else {
			g.vals = make([]any, len(base.cols))
		}
		out = append(out, g)
	}
	return out, nil
}

// resolveAlias replaces a position or an output name in GROUP BY, ORDER BY or HAVING by what it stands for.
func resolveAlias(e expr, items []selectItem, cols []source) expr {
	switch x := e.(type) {
	case litExpr:
		if n, ok := x.v.(int64); ok && n >= 1 && int(n) <= len(items) {
			return items[n-1].e
		}
	case colExpr:
		if _, err := findSource(cols, x); err == nil {
			return e
		}
		for _, it := range items {
			if x.qualifier == "" && strings.EqualFold(it.name, x.name) {
				return it.e
			}
		}
	}
	return e
}

// checkGrouped refuses output columns that are neither grouped nor aggregated, as the analyzer does.
func checkGrouped(items []selectItem, by []expr, aggs []callExpr) error {
	grouped := map[string]bool{}
	for _, g := range by {
		grouped[exprKey(unqualified(g))] = true
	}
	for _, it := range items {
		var bad error
		walk(it.e, func(x expr) bool {
			if c, ok := x.(callExpr); ok && isAggregate(c) {
				return false
			}
			if grouped[exprKey(unqualified(x))] {
				return false
			}
			if c, ok := x.(colExpr); ok && bad == nil {
				bad = fmt.Errorf("'%s' must be an aggregate expression or appear in GROUP BY clause", c.name)
			}
			return true
		})
		if bad != nil && (len(by) > 0 || len(aggs) > 0) {
			return bad
		}
	}
	return nil
}

func unqualified(e expr) expr {
	if c, ok := e.(colExpr); ok {
		return colExpr{"", c.name}
	}
	return e
}

// project computes the output columns and sorts.
func (q *querier) project(s *selectStmt, items []selectItem, groups []env) ([][]any, error) {
	type sortable struct{ out, keys []any }
	var all []sortable
	plain := make([]expr, len(items)) // all groups have the same columns
	for i, it := range items {
		plain[i] = it.e
		if c, ok := it.e.(colExpr); ok && len(groups) > 0 {
			plain[i] = bind(c, groups[0].cols)
		}
	}
	for _, g := range groups {
		if s.having != nil {
			ok, err := g.truth(q.substitute(s.having, items, g.cols))
			if err != nil {
				return nil, err
			}
			if ok == nil || !*ok {
				continue
			}
		}
		var row sortable
		for _, e := range plain {
			val, err := g.eval(e)
			if err != nil {
				return nil, err
			}
			row.out = append(row.out, val)
		}
		for _, o := range s.orderBy {
			val, err := g.eval(orderExpr(o.e, items, g.cols))
			if err != nil {
				return nil, err
			}
			row.keys = append(row.keys, val)
		}
		all = append(all, row)
	}
	slices.SortStableFunc(all, func(a, b sortable) int {
		for i, o := range s.orderBy {
			c := compareNullsFirst(a.keys[i], b.keys[i])
			if o.desc {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	out := make([][]any, len(all))
	for i, r := range all {
		out[i] = r.out
	}
	return out, nil
}

// orderExpr resolves ORDER BY: an output name wins over a source column.
func orderExpr(e expr, items []selectItem, cols []source) expr {
	if c, ok := e.(colExpr); ok && c.qualifier == "" {
		for _, it := range items {
			if strings.EqualFold(it.name, c.name) {
				return it.e
			}
		}
	}
	return resolveAlias(e, items, cols)
}

// substitute replaces output names anywhere inside a HAVING.
func (q *querier) substitute(e expr, items []selectItem, cols []source) expr {
	switch x := e.(type) {
	case binExpr:
		return binExpr{x.op, q.substitute(x.l, items, cols), q.substitute(x.r, items, cols)}
	case notExpr:
		return notExpr{q.substitute(x.e, items, cols)}
	case isNullExpr:
		return isNullExpr{q.substitute(x.e, items, cols), x.not}
	case betweenExpr:
		return betweenExpr{q.substitute(x.e, items, cols), x.lo, x.hi, x.not}
	case inExpr:
		return inExpr{q.substitute(x.e, items, cols), x.list, x.not}
	case colExpr:
		return resolveAlias(x, items, cols)
	}
	return e
}

func compareNullsFirst(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	c, err := compare(a, b)
	if err != nil {
		return 0
	}
	return c
}

func limitRows(rows [][]any, s *selectStmt) [][]any {
	rows = rows[min(s.offset, len(rows)):]
	if s.limit >= 0 {
		rows = rows[:min(s.limit, len(rows))]
	}
	return rows
}

// typeOf is the type of an output column, as far as a client can see it.
func typeOf(e expr, cols []source) typ {
	switch x := e.(type) {
	case colExpr:
		if i, err := findSource(cols, x); err == nil {
			return cols[i].typ
		}
	case castExpr:
		return x.t
	case litExpr:
		return literalType(x.v)
	case negExpr:
		return typeOf(x.e, cols)
	case notExpr, isNullExpr, inExpr, betweenExpr:
		return typ{kind: kindBoolean}
	case binExpr:
		return binaryType(x, cols)
	case caseExpr:
		if len(x.whens) > 0 {
			return typeOf(x.whens[0][1], cols)
		}
	case callExpr:
		return callType(x, cols)
	}
	return typ{kind: kindVarchar, length: maxString}
}

func literalType(v any) typ {
	switch x := v.(type) {
	case nil:
		return typ{kind: kindNull}
	case int64:
		return typ{kind: kindBigint}
	case float64:
		return typ{kind: kindDouble}
	case date:
		return typ{kind: kindDate}
	case datetime:
		return typ{kind: kindDatetime}
	case string:
		return typ{kind: kindVarchar, length: len(x)}
	}
	return typ{kind: kindLargeint}
}

func binaryType(x binExpr, cols []source) typ {
	switch x.op {
	case "+", "-", "*", "%", "DIV":
		l, r := typeOf(x.l, cols), typeOf(x.r, cols)
		switch {
		case l.kind == kindLargeint || r.kind == kindLargeint:
			return typ{kind: kindLargeint}
		case l.isInt() && r.isInt():
			return typ{kind: kindBigint}
		}
		return typ{kind: kindDouble}
	case "/":
		return typ{kind: kindDouble}
	}
	return typ{kind: kindBoolean}
}

func callType(x callExpr, cols []source) typ {
	switch x.name {
	case "count", "bitmap_union_count", "bitmap_union_int", "bitmap_count", "hll_union_agg", "hll_cardinality", "ndv",
		"approx_count_distinct", "unix_timestamp", "connection_id":
		return typ{kind: kindBigint}
	case "bitmap_union", "bitmap_and", "bitmap_or", "bitmap_xor", "bitmap_andnot", "bitmap_intersect", "to_bitmap",
		"base64_to_bitmap", "bitmap_from_string", "bitmap_hash", "bitmap_hash64", "bitmap_empty":
		return typ{kind: kindBitmap}
	case "hll_union", "hll_raw_agg", "hll_hash", "hll_empty":
		return typ{kind: kindHLL}
	case "length", "char_length", "instr", "locate", "year", "month", "day", "datediff", "days_diff":
		return typ{kind: kindInt}
	case "starts_with", "ends_with", "bitmap_contains":
		return typ{kind: kindBoolean}
	case "bitmap_min", "bitmap_max":
		return typ{kind: kindLargeint}
	case "avg":
		return typ{kind: kindDouble}
	case "date", "to_date", "curdate", "current_date":
		return typ{kind: kindDate}
	case "now", "current_timestamp":
		return typ{kind: kindDatetime}
	case "sum":
		if t := argType(x, 0, cols); t.kind == kindLargeint || t.kind == kindDouble || t.kind == kindFloat {
			return t
		} else if t.isInt() || t.kind == kindBoolean {
			return typ{kind: kindBigint}
		}
		return typ{kind: kindDouble}
	case "min", "max", "any_value", "coalesce", "ifnull", "abs", "greatest", "least", "nullif", "date_add", "date_sub":
		return argType(x, 0, cols)
	case "if", "date_trunc":
		return argType(x, 1, cols)
	}
	return typ{kind: kindVarchar, length: maxString}
}

func argType(x callExpr, i int, cols []source) typ {
	if i < len(x.args) {
		return typeOf(x.args[i], cols)
	}
	return typ{kind: kindVarchar, length: maxString}
}

// text is a value as the wire shows it; sets are NULL unless a function reads them, as in a MySQL client.
func text(v any) (string, bool) {
	switch x := v.(type) {
	case nil, *bitmap, *hll:
		return "", false
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64), true
	case time.Time:
		return string(dateTimeOf(x)), true
	}
	s, err := toText(v)
	return s, err == nil
}
