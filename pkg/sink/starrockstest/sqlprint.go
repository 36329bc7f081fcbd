package starrockstest

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// printer writes a SELECT the way SHOW CREATE VIEW gives it back: not as it was typed, but with every name qualified
// and quoted. A client that compares texts finds out here. StarRocks: fe AstToSQLBuilder.
type printer struct{ db string }

func (p printer) selectText(s *selectStmt) string {
	var sb strings.Builder
	sb.WriteString("SELECT ")
	if s.distinct {
		sb.WriteString("DISTINCT ")
	}
	qualifier := ""
	if s.from != nil {
		qualifier = quoteName(s.from.alias)
	}
	p.items(&sb, s.items, qualifier)
	if s.from != nil {
		sb.WriteString("\nFROM " + p.from(s.from))
	}
	if s.where != nil {
		sb.WriteString("\nWHERE " + p.text(s.where, qualifier))
	}
	p.list(&sb, "\nGROUP BY ", s.groupBy, qualifier)
	if s.having != nil {
		sb.WriteString("\nHAVING " + p.text(s.having, ""))
	}
	if len(s.orderBy) > 0 {
		sb.WriteString(" ORDER BY ")
		for i, o := range s.orderBy {
			if i > 0 {
				sb.WriteString(", ")
			}
			sb.WriteString(p.text(o.e, "") + map[bool]string{true: " DESC", false: " ASC"}[o.desc])
		}
	}
	if s.limit >= 0 {
		fmt.Fprintf(&sb, " LIMIT %d, %d", s.offset, s.limit)
	}
	return sb.String()
}

func (p printer) items(sb *strings.Builder, items []selectItem, qualifier string) {
	for i, it := range items {
		if i > 0 {
			sb.WriteString(", ")
		}
		if it.star {
			sb.WriteString("*")
			continue
		}
		sb.WriteString(p.text(it.e, qualifier))
		if c, ok := it.e.(colExpr); !ok || c.name != it.name {
			sb.WriteString(" AS " + quoteName(it.name))
		}
	}
}

func (p printer) from(ref *tableRef) string {
	if ref.sub != nil {
		return "(" + p.selectText(ref.sub) + ") " + quoteName(ref.alias)
	}
	db := ref.db
	if db == "" {
		db = p.db
	}
	name := quoteName(db) + "." + quoteName(ref.name)
	if ref.alias != ref.name {
		name += " AS " + quoteName(ref.alias)
	}
	return name
}

func (p printer) list(sb *strings.Builder, lead string, list []expr, qualifier string) {
	for i, e := range list {
		if i == 0 {
			sb.WriteString(lead)
		} else {
			sb.WriteString(", ")
		}
		sb.WriteString(p.text(e, qualifier))
	}
}

func (p printer) text(e expr, qualifier string) string {
	t := func(e expr) string { return p.text(e, qualifier) }
	not := func(n bool) string { return map[bool]string{true: "NOT ", false: ""}[n] }
	switch x := e.(type) {
	case litExpr:
		return literalText(x.v)
	case colExpr:
		if x.qualifier != "" {
			return quoteName(x.qualifier) + "." + quoteName(x.name)
		}
		if qualifier == "" {
			return quoteName(x.name)
		}
		return qualifier + "." + quoteName(x.name)
	case castExpr:
		return fmt.Sprintf("CAST(%s AS %s)", t(x.e), strings.ToUpper(x.t.String()))
	case callExpr:
		return p.call(x, qualifier)
	case binExpr:
		return fmt.Sprintf("(%s) %s (%s)", t(x.l), x.op, t(x.r))
	case notExpr:
		return "NOT (" + t(x.e) + ")"
	case negExpr:
		return "-(" + t(x.e) + ")"
	case isNullExpr:
		return fmt.Sprintf("(%s) IS %sNULL", t(x.e), not(x.not))
	case inExpr:
		var sb strings.Builder
		p.list(&sb, "", x.list, qualifier)
		return fmt.Sprintf("(%s) %sIN (%s)", t(x.e), not(x.not), sb.String())
	case betweenExpr:
		return fmt.Sprintf("(%s) %sBETWEEN %s AND %s", t(x.e), not(x.not), t(x.lo), t(x.hi))
	case intervalExpr:
		return "INTERVAL " + t(x.n) + " " + x.unit
	case caseExpr:
		return p.caseText(x, t)
	}
	return ""
}

func (p printer) caseText(x caseExpr, t func(expr) string) string {
	var sb strings.Builder
	sb.WriteString("CASE")
	if x.operand != nil {
		sb.WriteString(" " + t(x.operand))
	}
	for _, w := range x.whens {
		sb.WriteString(" WHEN " + t(w[0]) + " THEN " + t(w[1]))
	}
	if x.els != nil {
		sb.WriteString(" ELSE " + t(x.els))
	}
	return sb.String() + " END"
}

func (p printer) call(x callExpr, qualifier string) string {
	switch {
	case strings.HasPrefix(x.name, "@@"):
		return x.name
	case x.star:
		return x.name + "(*)"
	}
	var sb strings.Builder
	p.list(&sb, "", x.args, qualifier)
	if x.distinct {
		return x.name + "(DISTINCT " + sb.String() + ")"
	}
	return x.name + "(" + sb.String() + ")"
}

func literalText(v any) string {
	switch x := v.(type) {
	case nil:
		return "NULL"
	case int64:
		return strconv.FormatInt(x, 10)
	case *big.Int:
		return x.String()
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case date:
		return "DATE '" + string(x) + "'"
	case datetime:
		return "DATETIME '" + string(x) + "'"
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(fmt.Sprint(v)) + "'"
}
