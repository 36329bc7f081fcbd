package starrockstest

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// parser is a recursive-descent parser over the StarRocks dialect. A library for MySQL cannot be used: it refuses
// CAST(… AS LARGEINT), SHOW ALTER TABLE, and unquoted names that only MySQL reserves.
type parser struct {
	sql  string
	toks []token
	i    int
}

func newParser(sql string) (*parser, error) {
	toks, err := lex(sql)
	if err != nil {
		return nil, err
	}
	return &parser{sql: sql, toks: toks}, nil
}

func (p *parser) peek() token { return p.toks[p.i] }

func (p *parser) next() token {
	t := p.toks[p.i]
	if t.kind != tokEnd {
		p.i++
	}
	return t
}

// at reports whether the next tokens are these words.
func (p *parser) at(words ...string) bool {
	for k, w := range words {
		if p.i+k >= len(p.toks) || !p.toks[p.i+k].is(w) {
			return false
		}
	}
	return true
}

// accept consumes the words if all of them come next.
func (p *parser) accept(words ...string) bool {
	if !p.at(words...) {
		return false
	}
	p.i += len(words)
	return true
}

func (p *parser) expect(words ...string) error {
	for _, w := range words {
		if !p.accept(w) {
			return p.errorf("expected %s", w)
		}
	}
	return nil
}

func (p *parser) errorf(format string, args ...any) error {
	t := p.peek()
	near := t.text
	if t.kind == tokEnd {
		near = "end of statement"
	}
	return fmt.Errorf("Getting syntax error at offset %d near '%s'. Detail message: %s", t.pos, near,
		fmt.Sprintf(format, args...))
}

// end refuses anything but an optional semicolon.
func (p *parser) end() error {
	p.accept(";")
	if p.peek().kind != tokEnd {
		return p.errorf("unexpected input")
	}
	return nil
}

func (p *parser) name() (string, error) {
	if t := p.peek(); t.kind == tokWord || t.kind == tokQuoted {
		p.next()
		return t.text, nil
	}
	return "", p.errorf("expected a name")
}

// tableName reads [db.]name; db is empty if not given.
func (p *parser) tableName() (db, name string, err error) {
	if name, err = p.name(); err != nil {
		return "", "", err
	}
	if p.accept(".") {
		db = name
		name, err = p.name()
	}
	return db, name, err
}

func (p *parser) str() (string, error) {
	if t := p.peek(); t.kind == tokString {
		p.next()
		return t.text, nil
	}
	return "", p.errorf("expected a string")
}

func (p *parser) integer() (int, error) {
	t := p.peek()
	if t.kind != tokNumber {
		return 0, p.errorf("expected a number")
	}
	n, err := strconv.Atoi(t.text)
	if err != nil {
		return 0, p.errorf("expected an integer")
	}
	p.next()
	return n, nil
}

func (p *parser) typ() (typ, error) {
	name, err := p.name()
	if err != nil {
		return typ{}, err
	}
	var nums []int
	if p.accept("(") {
		for {
			n, err := p.integer()
			if err != nil {
				return typ{}, err
			}
			nums = append(nums, n)
			if !p.accept(",") {
				break
			}
		}
		if err := p.expect(")"); err != nil {
			return typ{}, err
		}
	}
	return typeByName(name, nums)
}

// Binding strength, weakest first.
const (
	precOr = iota + 1
	precAnd
	precNot
	precCompare
	precAdd
	precMul
)

func (p *parser) expr() (expr, error) { return p.exprAt(precOr) }

func (p *parser) exprAt(prec int) (expr, error) {
	var l expr
	var err error
	if prec <= precNot && (p.accept("NOT") || p.accept("!")) {
		l, err = p.exprAt(precNot)
		l = notExpr{l}
	} else {
		l, err = p.unary()
	}
	for err == nil {
		op, opPrec := p.operator()
		if opPrec == 0 || opPrec < prec {
			return l, nil
		}
		if opPrec == precCompare {
			l, err = p.comparison(l)
			continue
		}
		p.next()
		var r expr
		r, err = p.exprAt(opPrec + 1)
		l = binExpr{op, l, r}
	}
	return nil, err
}

// operator names the infix operator that comes next and its strength, 0 if there is none.
func (p *parser) operator() (string, int) {
	t := p.peek()
	if t.kind != tokWord && t.kind != tokPunct {
		return "", 0
	}
	switch op := strings.ToUpper(t.text); op {
	case "OR", "||":
		return "OR", precOr
	case "AND", "&&":
		return "AND", precAnd
	case "=", "!=", "<>", "<", "<=", ">", ">=", "<=>", "LIKE", "IN", "BETWEEN", "IS", "NOT":
		return op, precCompare
	case "+", "-":
		return op, precAdd
	case "*", "/", "%", "DIV":
		return op, precMul
	}
	return "", 0
}

func (p *parser) comparison(l expr) (expr, error) {
	if p.accept("IS") {
		not := p.accept("NOT")
		return isNullExpr{l, not}, p.expect("NULL")
	}
	not := p.accept("NOT")
	switch {
	case p.accept("IN"):
		if err := p.expect("("); err != nil {
			return nil, err
		}
		list, err := p.exprList()
		return inExpr{l, list, not}, err
	case p.accept("BETWEEN"):
		lo, err := p.exprAt(precAdd)
		if err != nil {
			return nil, err
		}
		if err := p.expect("AND"); err != nil {
			return nil, err
		}
		hi, err := p.exprAt(precAdd)
		return betweenExpr{l, lo, hi, not}, err
	case p.accept("LIKE"):
		r, err := p.exprAt(precAdd)
		if not {
			return notExpr{binExpr{"LIKE", l, r}}, err
		}
		return binExpr{"LIKE", l, r}, err
	case not:
		return nil, p.errorf("expected IN, BETWEEN or LIKE after NOT")
	}
	op := p.next().text
	if op == "<>" {
		op = "!="
	}
	r, err := p.exprAt(precAdd)
	return binExpr{op, l, r}, err
}

// exprList reads expressions up to and including the closing parenthesis.
func (p *parser) exprList() ([]expr, error) {
	var out []expr
	for {
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		out = append(out, e)
		if !p.accept(",") {
			return out, p.expect(")")
		}
	}
}

func (p *parser) unary() (expr, error) {
	t := p.peek()
	switch {
	case p.accept("-"):
		e, err := p.unary()
		if l, ok := e.(litExpr); ok {
			if n, ok := l.v.(int64); ok {
				return litExpr{-n}, err
			}
		}
		return negExpr{e}, err
	case p.accept("+"):
		return p.unary()
	case p.accept("("):
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		return e, p.expect(")")
	case t.kind == tokString:
		p.next()
		return litExpr{t.text}, nil
	case t.kind == tokNumber:
		return p.number()
	case p.accept("NULL"):
		return litExpr{nil}, nil
	case p.accept("TRUE"):
		return litExpr{int64(1)}, nil
	case p.accept("FALSE"):
		return litExpr{int64(0)}, nil
	case p.at("CASE"):
		return p.caseWhen()
	case t.kind == tokWord && p.toks[p.i+1].kind == tokString && (t.is("DATE") || t.is("DATETIME") || t.is("TIMESTAMP")):
		p.next()
		k := kindDatetime
		if t.is("DATE") {
			k = kindDate
		}
		v, err := toTime(p.next().text, k)
		if err != nil {
			return nil, p.errorf("Invalid date literal")
		}
		return litExpr{v}, nil
	case p.accept("INTERVAL"):
		n, err := p.exprAt(precAdd)
		if err != nil {
			return nil, err
		}
		unit, err := p.name()
		return intervalExpr{n, strings.ToLower(unit)}, err
	case t.kind == tokWord || t.kind == tokQuoted:
		return p.nameOrCall()
	}
	return nil, p.errorf("expected an expression")
}

func (p *parser) number() (expr, error) {
	text := p.next().text
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return litExpr{n}, nil
	}
	if n, ok := new(big.Int).SetString(text, 10); ok {
		return litExpr{n}, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, p.errorf("bad number %s", text)
	}
	return litExpr{f}, nil
}

func (p *parser) nameOrCall() (expr, error) {
	t := p.next()
	if t.kind == tokWord && p.at("(") {
		return p.call(strings.ToLower(t.text))
	}
	if t.kind == tokWord && strings.HasPrefix(t.text, "@@") {
		name := strings.ToLower(strings.TrimPrefix(t.text, "@@"))
		for p.accept(".") { // @@session.x, @@global.x
			n, err := p.name()
			if err != nil {
				return nil, err
			}
			name = strings.ToLower(n)
		}
		return callExpr{name: "@@" + name}, nil
	}
	if t.kind == tokWord && (t.is("CURRENT_DATE") || t.is("CURRENT_TIMESTAMP")) {
		return callExpr{name: strings.ToLower(t.text)}, nil
	}
	if p.accept(".") {
		n, err := p.name()
		if err == nil && p.accept(".") { // db.table.column
			t.text = n
			n, err = p.name()
		}
		return colExpr{t.text, n}, err
	}
	return colExpr{"", t.text}, nil
}

func (p *parser) call(name string) (expr, error) {
	p.next() // (
	if name == "cast" {
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		if err := p.expect("AS"); err != nil {
			return nil, err
		}
		t, err := p.typ()
		if err != nil {
			return nil, err
		}
		return castExpr{e, t}, p.expect(")")
	}
	c := callExpr{name: name}
	if p.accept("*") {
		c.star = true
		return c, p.expect(")")
	}
	if p.accept(")") {
		return c, nil
	}
	c.distinct = p.accept("DISTINCT")
	var err error
	c.args, err = p.exprList()
	return c, err
}

func (p *parser) caseWhen() (expr, error) {
	p.next()
	var c caseExpr
	var err error
	if !p.at("WHEN") {
		if c.operand, err = p.expr(); err != nil {
			return nil, err
		}
	}
	for p.accept("WHEN") {
		var w [2]expr
		if w[0], err = p.expr(); err != nil {
			return nil, err
		}
		if err = p.expect("THEN"); err != nil {
			return nil, err
		}
		if w[1], err = p.expr(); err != nil {
			return nil, err
		}
		c.whens = append(c.whens, w)
	}
	if p.accept("ELSE") {
		if c.els, err = p.expr(); err != nil {
			return nil, err
		}
	}
	return c, p.expect("END")
}
