package starrocks

import (
	"fmt"
	"strings"

	"rollcall/pkg/aggregate"
)

// Lengths of the VARCHAR keys, in bytes as StarRocks counts them. A source name is at most 326 bytes: topic 249, partition 10, topic id
// or cluster id 23, start 19, epoch 10, program 8 and separators.
const (
	dimensionLength = 255
	sourceLength    = 512
)

// columnSpec is a column as it must be in the table.
type columnSpec struct {
	name      string
	dataType  string // lower case, without length
	length    int    // least length of a varchar
	aggregate string // upper case; empty is a key
	null      bool
	// zero: DEFAULT "0".
	zero bool
	// addable: a measure, which may be added to an existing table.
	addable bool
}

// measureColumn is the aggregate function and nullability of a measure's column; ok is false for an unknown kind.
func measureColumn(k aggregate.Kind) (function string, null, ok bool) {
	switch k {
	case aggregate.Distinct, aggregate.DistinctHash:
		return "BITMAP_UNION", false, true
	case aggregate.Count, aggregate.Sum:
		return "MAX", false, true
	case aggregate.Min:
		return "MIN", true, true
	case aggregate.Max:
		return "MAX", true, true
	default:
		return "", false, false
	}
}

// columnSpecs lists the table's columns in order, keys first.
func columnSpecs(dims []aggregate.Dimension, measures []aggregate.Measure) []columnSpec {
	specs := []columnSpec{{name: columnDay, dataType: "date"}}
	for _, d := range dims {
		specs = append(specs, columnSpec{name: d.Name, dataType: "varchar", length: dimensionLength})
	}
	specs = append(specs, columnSpec{name: columnSource, dataType: "varchar", length: sourceLength})
	for _, m := range measures {
		function, null, _ := measureColumn(m.Kind)
		s := columnSpec{name: m.Name, dataType: "bigint", aggregate: function, null: null, zero: !null, addable: true}
		if m.Kind.IsSet() {
			s.dataType, s.zero = "bitmap", false
		}
		specs = append(specs, s)
	}
	for _, name := range []string{columnNext, columnLastEvent} {
		specs = append(specs, columnSpec{name: name, dataType: "bigint", aggregate: "MAX", zero: true})
	}
	return specs
}

// definition is the column as CREATE TABLE and ADD COLUMN want it (StarRocks: CREATE_TABLE.md, column_description). Nullability is
// always written: in aggregate tables the default is NULL.
func (s columnSpec) definition() string {
	var b strings.Builder
	b.WriteString(quote(s.name) + " " + strings.ToUpper(s.dataType))
	if s.length > 0 {
		fmt.Fprintf(&b, "(%d)", s.length)
	}
	if s.aggregate != "" {
		b.WriteString(" " + s.aggregate)
	}
	if s.null {
		b.WriteString(" NULL")
	} else {
		b.WriteString(" NOT NULL")
	}
	if s.zero {
		b.WriteString(` DEFAULT "0"`)
	}
	return b.String()
}

func (s columnSpec) typeText() string {
	if s.length > 0 {
		return fmt.Sprintf("%s(%d)", s.dataType, s.length)
	}
	return s.dataType
}

func (t *Table) qualified(name string) string { return quote(t.cfg.Database) + "." + quote(name) }

// DDL is the statement that creates the table (DESIGN §1, §5; StarRocks: CREATE_TABLE.md).
func (t *Table) DDL() string {
	var keys, columns []string
	for _, s := range t.specs {
		columns = append(columns, "  "+s.definition())
		if s.aggregate == "" {
			keys = append(keys, s.name)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s (\n%s\n)\n", t.qualified(t.cfg.Table), strings.Join(columns, ",\n"))
	fmt.Fprintf(&b, "AGGREGATE KEY(%s)\n", quoteAll(keys))
	fmt.Fprintf(&b, "PARTITION BY date_trunc('day', %s)\n", quote(columnDay))
	// All keys but the day: a day's rows spread over all buckets, and the rows of one key meet in one.
	fmt.Fprintf(&b, "DISTRIBUTED BY HASH(%s)", quoteAll(keys[1:]))
	if t.cfg.Buckets > 0 {
		fmt.Fprintf(&b, " BUCKETS %d", t.cfg.Buckets)
	}
	var properties []string
	if t.cfg.Replication > 0 {
		properties = append(properties, fmt.Sprintf(`"replication_num" = "%d"`, t.cfg.Replication))
	}
	if t.cfg.RetentionDays > 0 {
		properties = append(properties, fmt.Sprintf(`"partition_live_number" = "%d"`, t.cfg.RetentionDays))
	}
	if len(properties) > 0 {
		fmt.Fprintf(&b, "\nPROPERTIES (%s)", strings.Join(properties, ", "))
	}
	return b.String()
}

// ViewDDL is the statement that creates or replaces the view; empty without a view. Sums are LARGEINT: totals of many sources may pass
// 2^63. (A sum over a MAX column merges by the full key first.)
func (t *Table) ViewDDL() string {
	if t.cfg.View == "" {
		return ""
	}
	keys := []string{columnDay}
	for _, d := range t.cfg.Dimensions {
		keys = append(keys, d.Name)
	}
	selects := []string{quoteAll(keys)}
	for _, m := range t.cfg.Measures {
		selects = append(selects, merged(m)+" AS "+quote(m.Name))
	}
	return fmt.Sprintf("CREATE OR REPLACE VIEW %s AS\nSELECT %s\nFROM %s\nGROUP BY %s",
		t.qualified(t.cfg.View), strings.Join(selects, ", "), t.qualified(t.cfg.Table), quoteAll(keys))
}

// merged is a measure over the rows of all sources.
func merged(m aggregate.Measure) string {
	name := quote(m.Name)
	switch m.Kind {
	case aggregate.Distinct, aggregate.DistinctHash:
		return "BITMAP_UNION_COUNT(" + name + ")"
	case aggregate.Min:
		return "MIN(" + name + ")"
	case aggregate.Max:
		return "MAX(" + name + ")"
	default: // count and sum
		return "SUM(CAST(" + name + " AS LARGEINT))"
	}
}

// addColumnDDL adds one measure. A BITMAP column needs no default: existing rows get the empty bitmap (fe ColumnDef.java).
func (t *Table) addColumnDDL(s columnSpec) string {
	return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s", t.qualified(t.cfg.Table), s.definition())
}
