package starrockstest

import "strings"

// selectStmt parses SELECT … up to what follows LIMIT.
func (p *parser) selectStmt() (*selectStmt, error) {
	if err := p.expect("SELECT"); err != nil {
		return nil, err
	}
	s := &selectStmt{limit: -1, distinct: p.accept("DISTINCT")}
	for {
		it, err := p.selectItem()
		if err != nil {
			return nil, err
		}
		s.items = append(s.items, it)
		if !p.accept(",") {
			break
		}
	}
	if p.accept("FROM") {
		ref, err := p.tableRef()
		if err != nil {
			return nil, err
		}
		s.from = ref
	}
	return s, p.selectTail(s)
}

func (p *parser) selectTail(s *selectStmt) (err error) {
	if p.accept("WHERE") {
		if s.where, err = p.expr(); err != nil {
			return err
		}
	}
	if p.accept("GROUP", "BY") {
		for {
			e, err := p.expr()
			if err != nil {
				return err
			}
			s.groupBy = append(s.groupBy, e)
			if !p.accept(",") {
				break
			}
		}
	}
	if p.accept("HAVING") {
		if s.having, err = p.expr(); err != nil {
			return err
		}
	}
	if p.accept("ORDER", "BY") {
		for {
			e, err := p.expr()
			if err != nil {
				return err
			}
			desc := p.accept("DESC")
			if !desc {
				p.accept("ASC")
			}
			s.orderBy = append(s.orderBy, orderItem{e, desc})
			if !p.accept(",") {
				break
			}
		}
	}
	if !p.accept("LIMIT") {
		return nil
	}
	if s.limit, err = p.integer(); err != nil {
		return err
	}
	switch {
	case p.accept("OFFSET"):
		s.offset, err = p.integer()
	case p.accept(","):
		s.offset = s.limit
		s.limit, err = p.integer()
	}
	return err
}

func (p *parser) selectItem() (selectItem, error) {
	if p.accept("*") {
		return selectItem{star: true}, nil
	}
	start := p.peek().pos
	if t := p.peek(); (t.kind == tokWord || t.kind == tokQuoted) && p.toks[p.i+1].is(".") && p.toks[p.i+2].is("*") {
		p.i += 3
		return selectItem{star: true, qual: t.text}, nil
	}
	e, err := p.expr()
	if err != nil {
		return selectItem{}, err
	}
	it := selectItem{e: e, name: strings.TrimSpace(p.sql[start:p.toks[p.i-1].end])}
	if c, ok := e.(colExpr); ok {
		it.name = c.name
	}
	switch t := p.peek(); {
	case p.accept("AS"):
		t := p.peek()
		if t.kind == tokString {
			p.next()
			it.name = t.text
			return it, nil
		}
		it.name, err = p.name()
	case t.kind == tokQuoted, t.kind == tokWord && !clauseWord(t.text):
		it.name, err = p.name()
	}
	return it, err
}

// clauseWord reports whether an unquoted word after an expression begins the next clause rather than an alias.
func clauseWord(w string) bool {
	switch strings.ToUpper(w) {
	case "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "JOIN", "INNER", "LEFT", "RIGHT", "CROSS", "FULL",
		"ON", "AS", "OFFSET", "EXCEPT", "INTERSECT", "INTO":
		return true
	}
	return false
}

func (p *parser) tableRef() (*tableRef, error) {
	ref := &tableRef{}
	var err error
	if p.accept("(") {
		if ref.sub, err = p.selectStmt(); err != nil {
			return nil, err
		}
		err = p.expect(")")
	} else {
		ref.db, ref.name, err = p.tableName()
		ref.alias = ref.name
	}
	if err != nil {
		return nil, err
	}
	if t := p.peek(); p.accept("AS") || t.kind == tokQuoted || t.kind == tokWord && !clauseWord(t.text) {
		if ref.alias, err = p.name(); err != nil {
			return nil, err
		}
	}
	if t := p.peek(); t.is(",") || t.is("JOIN") || t.is("INNER") || t.is("LEFT") || t.is("RIGHT") || t.is("CROSS") ||
		t.is("FULL") || t.is("UNION") {
		return nil, p.errorf("the stand-in selects from one table, view or derived table")
	}
	return ref, nil
}
