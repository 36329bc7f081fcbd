package starrockstest

import (
	"fmt"
	"slices"
	"strings"
)

// createTable parses what follows CREATE TABLE.
func (p *parser) createTable() (t *table, ifNotExists bool, err error) {
	ifNotExists = p.accept("IF", "NOT", "EXISTS")
	t = &table{model: "", partitions: map[string]*partition{}}
	if t.db, t.name, err = p.tableName(); err != nil {
		return nil, false, err
	}
	if err = p.expect("("); err != nil {
		return nil, false, err
	}
	for {
		if err = p.tableElement(t); err != nil {
			return nil, false, err
		}
		if !p.accept(",") {
			break
		}
	}
	if err = p.expect(")"); err != nil {
		return nil, false, err
	}
	if err = p.tableOptions(t); err != nil {
		return nil, false, err
	}
	if err = p.end(); err != nil {
		return nil, false, err
	}
	return t, ifNotExists, t.resolveKeys()
}

func (p *parser) tableElement(t *table) error {
	if p.at("INDEX") && p.toks[p.i+1].kind != tokEnd && !p.toks[p.i+2].is("(") {
		return p.errorf("the stand-in knows no INDEX clause")
	}
	c, err := p.columnDef()
	if err != nil {
		return err
	}
	if _, dup := t.col(c.name); dup {
		return fmt.Errorf("Duplicate column name '%s'", c.name)
	}
	t.cols = append(t.cols, c)
	return nil
}

func (p *parser) columnDef() (c column, err error) {
	if c.name, err = p.name(); err != nil {
		return c, err
	}
	if strings.HasPrefix(c.name, "__op") || strings.HasPrefix(c.name, "__row") {
		return c, fmt.Errorf("Incorrect column name '%s'", c.name)
	}
	if c.typ, err = p.typ(); err != nil {
		return c, err
	}
	c.nullable = true
	for {
		switch {
		case p.accept("NOT", "NULL"):
			c.nullable = false
		case p.accept("NULL"):
			c.nullable = true
		case p.accept("KEY"):
			c.key = true
		case p.accept("AUTO_INCREMENT"):
			c.auto = true
		case p.accept("DEFAULT"):
			if err = p.columnDefault(&c); err != nil {
				return c, err
			}
		case p.accept("COMMENT"):
			if c.comment, err = p.str(); err != nil {
				return c, err
			}
		case c.agg == "" && aggregateName(p.peek()) != "":
			c.agg = aggregateName(p.next())
		default:
			if c.def == nil && (c.typ.kind == kindBitmap || c.typ.kind == kindHLL) {
				empty := ""
				c.def = &empty // StarRocks: ColumnDef.analyze gives sketches the empty default.
			}
			return c, c.check()
		}
	}
}

func (p *parser) columnDefault(c *column) error {
	t := p.peek()
	switch {
	case t.kind == tokString, t.kind == tokNumber:
		p.next()
		c.def = &t.text
	case p.accept("-"):
		n := p.next().text
		n = "-" + n
		c.def = &n
	case p.accept("NULL"):
		c.def = nil
	case p.accept("CURRENT_TIMESTAMP"):
		if p.accept("(") {
			return p.expect(")")
		}
		s := "CURRENT_TIMESTAMP"
		c.def = &s
	default:
		return p.errorf("expected a default value")
	}
	return nil
}

func aggregateName(t token) string {
	if t.kind != tokWord {
		return ""
	}
	switch a := strings.ToUpper(t.text); a {
	case "SUM", "MAX", "MIN", "REPLACE", "REPLACE_IF_NOT_NULL", "HLL_UNION", "BITMAP_UNION", "PERCENTILE_UNION":
		return a
	}
	return ""
}

// check is what the analyzer says about one column. StarRocks: fe ColumnDef.analyze.
func (c column) check() error {
	switch {
	case c.typ.kind == kindBitmap && c.agg != "" && c.agg != "BITMAP_UNION",
		c.agg == "BITMAP_UNION" && c.typ.kind != kindBitmap,
		c.typ.kind == kindHLL && c.agg != "" && c.agg != "HLL_UNION",
		c.agg == "HLL_UNION" && c.typ.kind != kindHLL,
		c.agg == "SUM" && !c.typ.isInt() && c.typ.kind != kindDouble && c.typ.kind != kindFloat && c.typ.kind != kindDecimal:
		return fmt.Errorf("Invalid aggregate function '%s' for '%s'.", c.agg, c.name)
	case c.agg == "PERCENTILE_UNION":
		return fmt.Errorf("the stand-in has no PERCENTILE columns: '%s'", c.name)
	case c.def == nil:
		return nil
	case (c.typ.kind == kindBitmap || c.typ.kind == kindHLL) && *c.def != "":
		return fmt.Errorf("Invalid default value for '%s'", c.name)
	}
	if _, err := c.defaultValue(); err != nil {
		return fmt.Errorf("Invalid default value for '%s'", c.name)
	}
	return nil
}

// defaultValue is what a column gets that a load or a schema change does not fill.
func (c column) defaultValue() (any, error) {
	switch {
	case c.def == nil:
		return nil, nil
	case c.typ.kind == kindBitmap:
		return newBitmap(), nil
	case c.typ.kind == kindHLL:
		return newHLL(), nil
	case c.typ.kind == kindDecimal:
		return *c.def, nil
	}
	return convert(*c.def, c.typ)
}

func (p *parser) tableOptions(t *table) (err error) {
	for {
		switch {
		case p.accept("ENGINE"):
			p.accept("=")
			if _, err = p.name(); err != nil {
				return err
			}
		case p.accept("AGGREGATE", "KEY"):
			t.model = modelAggregate
			t.keys, err = p.nameList()
		case p.accept("DUPLICATE", "KEY"):
			t.model = modelDuplicate
			t.keys, err = p.nameList()
		case p.accept("UNIQUE", "KEY"):
			t.model = modelUnique
			t.keys, err = p.nameList()
		case p.accept("PRIMARY", "KEY"):
			t.model = modelPrimary
			t.keys, err = p.nameList()
		case p.accept("COMMENT"):
			t.comment, err = p.str()
		case p.accept("PARTITION", "BY"):
			err = p.partitionBy(t)
		case p.accept("DISTRIBUTED", "BY"):
			err = p.distributedBy(t)
		case p.accept("ORDER", "BY"):
			_, err = p.nameList()
		case p.accept("PROPERTIES"):
			t.props, err = p.properties()
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *parser) nameList() ([]string, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var out []string
	for {
		n, err := p.name()
		if err != nil {
			return nil, err
		}
		out = append(out, n)
		if !p.accept(",") {
			return out, p.expect(")")
		}
	}
}

func (p *parser) partitionBy(t *table) (err error) {
	switch {
	case p.accept("RANGE"):
		if t.part.columns, err = p.nameList(); err != nil {
			return err
		}
		t.part.ranged = true
		return p.rangeList(t)
	case p.accept("date_trunc"):
		if err = p.expect("("); err != nil {
			return err
		}
		if t.part.unit, err = p.str(); err != nil {
			return err
		}
		t.part.unit = strings.ToLower(t.part.unit)
		if !slices.Contains([]string{"hour", "day", "month", "year"}, t.part.unit) {
			return fmt.Errorf("Unsupported partition expression date_trunc('%s')", t.part.unit)
		}
		if err = p.expect(","); err != nil {
			return err
		}
		c, err := p.name()
		if err != nil {
			return err
		}
		t.part.columns = []string{c}
		return p.expect(")")
	case p.at("("):
		t.part.columns, err = p.nameList()
		return err
	case p.at("time_slice"), p.at("LIST"):
		return p.errorf("the stand-in partitions by date_trunc, by value or by RANGE")
	}
	for {
		c, err := p.name()
		if err != nil {
			return err
		}
		t.part.columns = append(t.part.columns, c)
		if !p.accept(",") {
			return nil
		}
	}
}

// rangeList reads (PARTITION p VALUES LESS THAN ("…"), PARTITION q VALUES [("…"),("…")), …).
func (p *parser) rangeList(t *table) error {
	if err := p.expect("("); err != nil {
		return err
	}
	last := ""
	for !p.accept(")") {
		r, err := p.rangeDef(last)
		if err != nil {
			return err
		}
		last = r.hi
		t.part.ranges = append(t.part.ranges, r)
		p.accept(",")
	}
	return nil
}

// rangeDef reads one PARTITION; last is where the one before ended.
func (p *parser) rangeDef(last string) (r rangePartition, err error) {
	if err = p.expect("PARTITION"); err != nil {
		return r, err
	}
	p.accept("IF", "NOT", "EXISTS")
	if r.name, err = p.name(); err != nil {
		return r, err
	}
	if err = p.expect("VALUES"); err != nil {
		return r, err
	}
	bound := func() (string, error) {
		if err := p.expect("("); err != nil {
			return "", err
		}
		s, err := p.str()
		if err != nil {
			return "", err
		}
		return s, p.expect(")")
	}
	if p.accept("LESS", "THAN") {
		r.lo = last
		if p.accept("MAXVALUE") || p.accept("(", "MAXVALUE", ")") {
			return r, nil
		}
		r.hi, err = bound()
		return r, err
	}
	if err = p.expect("["); err != nil {
		return r, err
	}
	if r.lo, err = bound(); err != nil {
		return r, err
	}
	if err = p.expect(","); err != nil {
		return r, err
	}
	if r.hi, err = bound(); err != nil {
		return r, err
	}
	return r, p.expect(")")
}

func (p *parser) distributedBy(t *table) (err error) {
	if p.accept("RANDOM") {
		t.random = true
	} else {
		if err = p.expect("HASH"); err != nil {
			return err
		}
		if t.distCols, err = p.nameList(); err != nil {
			return err
		}
	}
	if p.accept("BUCKETS") {
		t.buckets, err = p.integer()
	}
	return err
}

func (p *parser) properties() ([][2]string, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var out [][2]string
	for {
		k, err := p.str()
		if err != nil {
			return nil, err
		}
		if err := p.expect("="); err != nil {
			return nil, err
		}
		v, err := p.str()
		if err != nil {
			return nil, err
		}
		out = append(out, [2]string{k, v})
		if !p.accept(",") {
			return out, p.expect(")")
		}
	}
}

// resolveKeys checks the columns against the table type and marks the keys. StarRocks: CREATE_TABLE.md.
func (t *table) resolveKeys() error {
	if t.model == "" {
		t.model = modelDuplicate
		for _, c := range t.cols {
			if c.agg != "" {
				t.model = modelAggregate
			}
		}
		for _, c := range t.cols {
			if c.agg == "" && (t.model == modelAggregate || len(t.keys) < 3) && keyable(c.typ) {
				t.keys = append(t.keys, c.name)
			}
		}
	}
	for i, k := range t.keys {
		at, ok := t.col(k)
		if !ok {
			return fmt.Errorf("Key column(%s) doesn't exist.", k)
		}
		if at != i {
			return fmt.Errorf("Key columns should be a ordered prefix of the schema. KeyColumns[%d] (starts from zero) is %s, but corresponding column is %s in the previous columns declaration.", i, k, t.cols[i].name)
		}
		c := &t.cols[at]
		if c.agg != "" {
			return fmt.Errorf("Key column(%s) can not have aggregation type", k)
		}
		if !keyable(c.typ) {
			return fmt.Errorf("Invalid data type of key column '%s': '%s'", k, c.typ)
		}
		c.key = true
		if t.model == modelPrimary {
			c.nullable = false
		}
	}
	for _, c := range t.cols[len(t.keys):] {
		switch {
		case t.model == modelAggregate && c.agg == "":
			return fmt.Errorf("AGG_KEYS table should specify aggregate type for non-key column[%s]", c.name)
		case t.model != modelAggregate && c.agg != "":
			return fmt.Errorf("%s table should not specify aggregate type for non-key column[%s]", t.model, c.name)
		}
	}
	return t.checkColumns()
}

func (t *table) checkColumns() error {
	for _, c := range t.part.columns {
		i, ok := t.col(c)
		if !ok {
			return fmt.Errorf("Partition column[%s] does not exist in column list.", c)
		}
		if t.model != modelDuplicate && !t.cols[i].key {
			return fmt.Errorf("The partition column could not be aggregated column: %s", c)
		}
		if t.part.unit != "" && t.cols[i].typ.kind != kindDate && t.cols[i].typ.kind != kindDatetime {
			return fmt.Errorf("Partition column[%s] must be of a date type", c)
		}
	}
	for _, c := range t.distCols {
		i, ok := t.col(c)
		if !ok {
			return fmt.Errorf("Distribution column(%s) doesn't exist.", c)
		}
		if t.model != modelDuplicate && !t.cols[i].key {
			return fmt.Errorf("Distribution column[%s] is not key column", c)
		}
	}
	if t.random && t.model != modelDuplicate && t.model != modelAggregate {
		return fmt.Errorf("%s table must use hash distribution", t.model)
	}
	return nil
}

func keyable(t typ) bool {
	switch t.kind {
	case kindFloat, kindDouble, kindBitmap, kindHLL, kindJSON, kindBinary:
		return false
	}
	return true
}
