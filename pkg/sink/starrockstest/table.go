package starrockstest

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"
)

// keysModel is a table type, spelt as TABLE_MODEL in information_schema.tables_config.
type keysModel string

const (
	modelDuplicate keysModel = "DUP_KEYS"
	modelAggregate keysModel = "AGG_KEYS"
	modelUnique    keysModel = "UNQ_KEYS"
	modelPrimary   keysModel = "PRI_KEYS"
)

// column is one column as created; agg is the upper-case aggregate function of a value column, empty otherwise.
type column struct {
	name     string
	typ      typ
	agg      string
	key      bool
	nullable bool
	def      *string
	auto     bool
	comment  string
}

// partitioning says which partition a row belongs to: none, by date_trunc(unit, column), by value, or by given ranges.
type partitioning struct {
	unit    string   // date_trunc
	columns []string // empty: one partition
	ranged  bool
	ranges  []rangePartition
}

type rangePartition struct {
	name   string
	lo, hi string // [lo, hi); empty: unbounded
}

// table holds the visible rows. Guarded by the engine's mutex.
type table struct {
	id       int64
	db, name string
	model    keysModel
	cols     []column
	keys     []string
	part     partitioning
	distCols []string
	buckets  int
	random   bool
	props    [][2]string
	comment  string

	partitions map[string]*partition
	version    int64 // of the whole table: published loads
	seq        int64 // row keys of a DUPLICATE KEY table
	history    []undo
	jobs       []*alterJob
}

// partition is one range of rows; pending is the publish queue, in commit order.
type partition struct {
	name    string
	rows    map[string]*row
	version int64
	pending []*txn
	order   []string // the keys of rows, sorted; nil when rows has other keys since
}

// keys are those of the rows in their order. Readers come in numbers, new keys seldom.
func (p *partition) keys() []string {
	if p.order == nil {
		p.order = slices.Sorted(maps.Keys(p.rows))
	}
	return p.order
}

// clear forgets the rows.
func (p *partition) clear() { p.rows, p.order = map[string]*row{}, nil }

// row is immutable once shared with history; vals follow the table's columns.
type row struct{ vals []any }

// undo is what a publish replaced, so that a lagging FE can answer from before it.
type undo struct {
	version int64 // the version this publish made
	at      time.Time
	cols    []column
	old     map[string]map[string]*row // partition → row key → row before, nil: there was none
}

func (t *table) col(name string) (int, bool) {
	i := slices.IndexFunc(t.cols, func(c column) bool { return strings.EqualFold(c.name, name) })
	return i, i >= 0
}

func (t *table) prop(name string) (string, bool) {
	for _, p := range t.props {
		if strings.EqualFold(p[0], name) {
			return p[1], true
		}
	}
	return "", false
}

// partitionOf names the partition of a row, or says that there is none for it.
func (t *table) partitionOf(vals []any) (string, error) {
	if len(t.part.columns) == 0 {
		return t.name, nil
	}
	var names []string
	for _, c := range t.part.columns {
		i, _ := t.col(c)
		v := vals[i]
		if t.part.ranged {
			return t.rangeOf(v)
		}
		name, err := partitionText(v, t.part.unit)
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	return "p" + strings.Join(names, "_"), nil
}

func (t *table) rangeOf(v any) (string, error) {
	if v != nil {
		for _, r := range t.part.ranges {
			lo, errLo := compareBound(v, r.lo, -1)
			hi, errHi := compareBound(v, r.hi, 1)
			if errLo == nil && errHi == nil && lo >= 0 && hi < 0 {
				return r.name, nil
			}
		}
	}
	s, _ := toText(v)
	return "", fmt.Errorf("there is no corresponding partition for this key: [%s]", s)
}

// compareBound compares with a bound; an absent bound lies beyond every value on its side.
func compareBound(v any, bound string, side int) (int, error) {
	if bound == "" {
		return -side, nil
	}
	return compare(v, bound)
}

// partitionText is the name an automatic partition gets. StarRocks: expression_partitioning.md.
func partitionText(v any, unit string) (string, error) {
	if v == nil {
		return "NULL", nil
	}
	s, err := toText(v)
	if err != nil {
		return "", err
	}
	digits := strings.NewReplacer("-", "", " ", "", ":", "").Replace(s)
	size := map[string]int{"year": 4, "month": 6, "day": 8, "hour": 10}[unit]
	if size > 0 && len(digits) > size {
		digits = digits[:size]
	}
	return digits, nil
}

// partition returns the named partition, made if the table creates partitions by itself.
func (t *table) partition(name string) *partition {
	p, ok := t.partitions[name]
	if !ok {
		p = &partition{name: name, rows: map[string]*row{}}
		t.partitions[name] = p
	}
	return p
}

// dropPartition forgets rows; a partition with a committed load still to be published stays, empty, to receive it.
func (t *table) dropPartition(name string) bool {
	p, ok := t.partitions[name]
	if !ok {
		return false
	}
	p.clear()
	if len(p.pending) == 0 {
		delete(t.partitions, name)
	}
	t.part.ranges = slices.DeleteFunc(t.part.ranges, func(r rangePartition) bool { return r.name == name })
	return true
}

// rowKey identifies a row for merging: its key columns, or a number of its own where rows do not merge.
func (t *table) rowKey(vals []any) string {
	if t.model == modelDuplicate {
		t.seq++
		return fmt.Sprintf("%020d", t.seq)
	}
	keys := make([]any, 0, len(t.keys))
	for i, c := range t.cols {
		if c.key {
			keys = append(keys, vals[i])
		}
	}
	return keyOf(keys)
}

// merge adds one row to a partition by the aggregate functions. u is nil when no history is kept; rows may then be
// changed in place.
func (t *table) merge(p *partition, vals []any, u *undo) {
	key := t.rowKey(vals)
	old, ok := p.rows[key]
	if u != nil {
		if u.old[p.name] == nil {
			u.old[p.name] = map[string]*row{}
		}
		if _, seen := u.old[p.name][key]; !seen {
			u.old[p.name][key] = old
		}
	}
	if !ok {
		p.order = nil
	}
	if !ok || t.model == modelPrimary || t.model == modelUnique {
		p.rows[key] = &row{ownValues(vals)}
		return
	}
	if u != nil {
		old = &row{slices.Clone(old.vals)}
		p.rows[key] = old
	}
	for i, c := range t.cols {
		if !c.key {
			old.vals[i] = mergeValue(c.agg, old.vals[i], vals[i], u == nil)
		}
	}
}

// ownValues copies sets, which a row changes in place later.
func ownValues(vals []any) []any {
	out := slices.Clone(vals)
	for i, v := range out {
		switch x := v.(type) {
		case *bitmap:
			out[i] = x.clone()
		case *hll:
			out[i] = x.clone()
		}
	}
	return out
}

// mergeValue is one aggregate function of an AGGREGATE KEY table; NULL is neutral except for REPLACE.
func mergeValue(agg string, old, add any, inPlace bool) any {
	if agg == "REPLACE" {
		return add
	}
	if add == nil {
		return old
	}
	if old == nil {
		return ownValues([]any{add})[0]
	}
	switch agg {
	case "SUM":
		return addNumbers(old, add)
	case "MAX", "MIN":
		c, err := compare(add, old)
		if err == nil && (agg == "MAX" && c > 0 || agg == "MIN" && c < 0) {
			return add
		}
		return old
	case "REPLACE_IF_NOT_NULL":
		return add
	case "BITMAP_UNION":
		b := old.(*bitmap)
		if !inPlace {
			b = b.clone()
		}
		b.or(add.(*bitmap))
		return b
	case "HLL_UNION":
		h := old.(*hll)
		if !inPlace {
			h = h.clone()
		}
		h.or(add.(*hll))
		return h
	}
	return add
}

// addNumbers adds as the column type does: BIGINT wraps, LARGEINT and DOUBLE do not.
func addNumbers(a, b any) any {
	x, okX := a.(int64)
	y, okY := b.(int64)
	if okX && okY {
		return x + y
	}
	if _, ok := a.(float64); !ok {
		if _, ok := b.(float64); !ok {
			x, _ := toLargeint(a)
			y, _ := toLargeint(b)
			return new(big.Int).Add(x.(*big.Int), y.(*big.Int))
		}
	}
	f, _ := toFloat(a)
	g, _ := toFloat(b)
	return f.(float64) + g.(float64)
}

// scan returns every visible row, or those before the publishes that notYet names.
func (t *table) scan(notYet func(undo) bool) (cols []column, rows []*row) {
	cols = t.cols
	shadow := map[string]map[string]*row{}
	for i := len(t.history) - 1; i >= 0 && notYet != nil; i-- {
		u := t.history[i]
		if !notYet(u) {
			break
		}
		cols = u.cols
		for part, old := range u.old {
			if shadow[part] == nil {
				shadow[part] = map[string]*row{}
			}
			maps.Copy(shadow[part], old)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.partitions)) {
		p := t.partitions[name]
		for _, key := range p.keys() {
			if _, hidden := shadow[name][key]; !hidden {
				rows = append(rows, p.rows[key])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shadow)) {
		for _, key := range slices.Sorted(maps.Keys(shadow[name])) {
			if old := shadow[name][key]; old != nil {
				rows = append(rows, old)
			}
		}
	}
	return cols, rows
}

// insertColumn puts a column behind the named one (empty: at the end) into the schema and into every row.
func (t *table) insertColumn(c column, after string, fill any) {
	at := len(t.cols)
	if i, ok := t.col(after); after != "" && ok {
		at = i + 1
	}
	t.cols = slices.Insert(slices.Clone(t.cols), at, c)
	for _, p := range t.partitions {
		for key, r := range p.rows {
			p.rows[key] = &row{slices.Insert(slices.Clone(r.vals), at, fill)}
		}
	}
	t.history = nil // rows of the old shape cannot be told any more
}

func (t *table) removeColumn(name string) {
	at, ok := t.col(name)
	if !ok {
		return
	}
	t.cols = slices.Delete(slices.Clone(t.cols), at, at+1)
	for _, p := range t.partitions {
		for key, r := range p.rows {
			p.rows[key] = &row{slices.Delete(slices.Clone(r.vals), at, at+1)}
		}
	}
	t.history = nil
}

// replaceColumn changes a column in place; a value that does not fit its new type becomes NULL.
func (t *table) replaceColumn(c column) {
	at, ok := t.col(c.name)
	if !ok {
		return
	}
	t.cols = slices.Clone(t.cols)
	t.cols[at] = c
	for _, p := range t.partitions {
		for key, r := range p.rows {
			vals := slices.Clone(r.vals)
			vals[at], _ = convert(vals[at], c.typ)
			p.rows[key] = &row{vals}
		}
	}
	t.history = nil
}
