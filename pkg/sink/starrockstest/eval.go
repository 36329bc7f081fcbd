package starrockstest

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

// env is what an expression may refer to: the columns of a row and, above an aggregation, computed groups.
type env struct {
	cols    []source
	vals    []any
	session *session
	aggs    map[string]any // aggregate call → its value for the group
}

// source is a column an expression can name.
type source struct {
	qualifier, name string
	typ             typ
}

func (v *env) column(c colExpr) (any, error) {
	i, err := findSource(v.cols, c)
	if err != nil {
		return nil, err
	}
	return v.vals[i], nil
}

func findSource(cols []source, c colExpr) (int, error) {
	for i, s := range cols {
		if strings.EqualFold(s.name, c.name) && (c.qualifier == "" || strings.EqualFold(s.qualifier, c.qualifier)) {
			return i, nil
		}
	}
	name := c.name
	if c.qualifier != "" {
		name = c.qualifier + "." + c.name
	}
	return 0, fmt.Errorf("Column '%s' cannot be resolved.", name)
}

// eval computes an expression; SQL NULL is nil.
func (v *env) eval(e expr) (any, error) {
	switch x := e.(type) {
	case nil:
		return nil, nil
	case litExpr:
		return x.v, nil
	case colExpr:
		return v.column(x)
	case castExpr:
		a, err := v.eval(x.e)
		if err != nil {
			return nil, err
		}
		out, err := convert(a, x.t)
		if err != nil {
			return nil, nil // CAST of what does not fit is NULL.
		}
		return out, nil
	case callExpr:
		if v.aggs != nil && isAggregate(x) {
			return v.aggs[exprKey(x)], nil
		}
		return v.call(x)
	case binExpr:
		return v.binary(x)
	case notExpr:
		b, err := v.truth(x.e)
		if err != nil || b == nil {
			return nil, err
		}
		return boolValue(!*b), nil
	case negExpr:
		a, err := v.eval(x.e)
		if err != nil || a == nil {
			return nil, err
		}
		return arithmetic("-", int64(0), a)
	case isNullExpr:
		a, err := v.eval(x.e)
		return boolValue((a == nil) != x.not), err
	case inExpr:
		return v.in(x)
	case fieldExpr:
		return v.vals[x.at], nil
	case amongExpr:
		return v.among(x)
	case betweenExpr:
		ge := binExpr{"AND", binExpr{">=", x.e, x.lo}, binExpr{"<=", x.e, x.hi}}
		if x.not {
			return v.eval(notExpr{ge})
		}
		return v.eval(ge)
	case caseExpr:
		return v.caseWhen(x)
	}
	return nil, fmt.Errorf("the stand-in cannot evaluate %T", e)
}

func boolValue(b bool) any {
	if b {
		return int64(1)
	}
	return int64(0)
}

// truth is an expression as a condition: nil is unknown.
func (v *env) truth(e expr) (*bool, error) {
	a, err := v.eval(e)
	if err != nil || a == nil {
		return nil, err
	}
	b, err := toBoolean(a)
	if err != nil {
		return nil, nil
	}
	t := b.(int64) != 0
	return &t, nil
}

func (v *env) binary(x binExpr) (any, error) {
	if x.op == "AND" || x.op == "OR" {
		l, err := v.truth(x.l)
		if err != nil {
			return nil, err
		}
		decided := x.op == "OR"
		if l != nil && *l == decided {
			return boolValue(decided), nil
		}
		r, err := v.truth(x.r)
		if err != nil {
			return nil, err
		}
		switch {
		case r != nil && *r == decided:
			return boolValue(decided), nil
		case l == nil || r == nil:
			return nil, nil
		}
		return boolValue(!decided), nil
	}
	l, err := v.eval(x.l)
	if err != nil {
		return nil, err
	}
	r, err := v.eval(x.r)
	if err != nil {
		return nil, err
	}
	if x.op == "<=>" {
		if l == nil || r == nil {
			return boolValue(l == nil && r == nil), nil
		}
		x.op = "="
	}
	if l == nil || r == nil {
		return nil, nil
	}
	return operate(x.op, l, r)
}

func operate(op string, l, r any) (any, error) {
	switch op {
	case "=", "!=", "<", "<=", ">", ">=":
		c, err := compare(l, r)
		if err != nil {
			return nil, nil // The operand that does not convert is NULL.
		}
		return boolValue(holds(op, c)), nil
	case "LIKE":
		a, errA := toText(l)
		b, errB := toText(r)
		if errA != nil || errB != nil {
			return nil, fmt.Errorf("LIKE needs strings, not %T and %T", l, r)
		}
		return boolValue(like(a, b)), nil
	}
	return arithmetic(op, l, r)
}

// holds says whether a comparison is true where its operands compare as c, as strings.Compare has it.
func holds(op string, c int) bool {
	switch op {
	case "=":
		return c == 0
	case "!=":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	default:
		return c >= 0
	}
}

// like matches % and _; a backslash takes the next character literally. It goes back only to the last %, so no pattern
// takes more than pattern times text steps.
func like(s, pattern string) bool {
	type step struct {
		r        rune
		any, one bool
	}
	var p []step
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped:
			p, escaped = append(p, step{r: r}), false
		case r == '\\':
			escaped = true
		default:
			p = append(p, step{r, r == '%', r == '_'})
		}
	}
	if escaped {
		p = append(p, step{r: '\\'})
	}
	text := []rune(s)
	i, k, star, from := 0, 0, -1, 0
	for i < len(text) {
		switch {
		case k < len(p) && p[k].any:
			star, from = k, i
			k++
		case k < len(p) && (p[k].one || p[k].r == text[i]):
			i++
			k++
		case star >= 0:
			from++
			i, k = from, star+1
		default:
			return false
		}
	}
	for k < len(p) && p[k].any {
		k++
	}
	return k == len(p)
}

func arithmetic(op string, l, r any) (any, error) {
	_, fl := l.(float64)
	_, fr := r.(float64)
	_, sl := l.(string)
	_, sr := r.(string)
	if fl || fr || sl || sr || op == "/" {
		a, errA := toFloat(l)
		b, errB := toFloat(r)
		if errA != nil || errB != nil {
			return nil, nil
		}
		return floatArithmetic(op, a.(float64), b.(float64))
	}
	a, err := toLargeint(l)
	if err != nil {
		return nil, err
	}
	b, err := toLargeint(r)
	if err != nil {
		return nil, err
	}
	x, y, z := a.(*big.Int), b.(*big.Int), new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "%", "DIV":
		if y.Sign() == 0 {
			return nil, nil
		}
		if op == "%" {
			z.Rem(x, y)
		} else {
			z.Quo(x, y)
		}
	default:
		return nil, fmt.Errorf("the stand-in has no operator %s", op)
	}
	_, bigL := l.(*big.Int)
	_, bigR := r.(*big.Int)
	if bigL || bigR || !z.IsInt64() {
		return z, nil
	}
	return z.Int64(), nil
}

func floatArithmetic(op string, a, b float64) (any, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		if b == 0 {
			return nil, nil
		}
		return a / b, nil
	}
	return nil, fmt.Errorf("the stand-in has no operator %s for numbers with a fraction", op)
}

func (v *env) in(x inExpr) (any, error) {
	a, err := v.eval(x.e)
	if err != nil || a == nil {
		return nil, err
	}
	unknown := false
	for _, e := range x.list {
		b, err := v.eval(e)
		if err != nil {
			return nil, err
		}
		if b == nil {
			unknown = true
			continue
		}
		if c, err := compare(a, b); err == nil && c == 0 {
			return boolValue(!x.not), nil
		}
	}
	if unknown {
		return nil, nil
	}
	return boolValue(x.not), nil
}

// fieldExpr and amongExpr are what bind makes.
type (
	fieldExpr struct{ at int }
	amongExpr struct {
		in  inExpr
		set map[string]bool
	}
)

// bind prepares an expression for many rows: columns are looked up once, and lists of strings become sets. Whatever it does not know it leaves
// as it is, for the same result.
func bind(e expr, cols []source) expr {
	switch x := e.(type) {
	case colExpr:
		if i, err := findSource(cols, x); err == nil {
			return fieldExpr{i}
		}
	case binExpr:
		return binExpr{x.op, bind(x.l, cols), bind(x.r, cols)}
	case notExpr:
		return notExpr{bind(x.e, cols)}
	case isNullExpr:
		return isNullExpr{bind(x.e, cols), x.not}
	case inExpr:
		in := inExpr{bind(x.e, cols), x.list, x.not}
		set := make(map[string]bool, len(x.list))
		for _, l := range x.list {
			lit, ok := l.(litExpr)
			s, text := lit.v.(string)
			if !ok || !text {
				return in
			}
			set[s] = true
		}
		return amongExpr{in, set}
	}
	return e
}

func (v *env) among(x amongExpr) (any, error) {
	a, err := v.eval(x.in.e)
	if err != nil {
		return nil, err
	}
	if s, ok := a.(string); ok {
		return boolValue(x.set[s] != x.in.not), nil
	}
	return v.in(x.in)
}

func (v *env) caseWhen(x caseExpr) (any, error) {
	for _, w := range x.whens {
		cond := w[0]
		if x.operand != nil {
			cond = binExpr{"=", x.operand, w[0]}
		}
		b, err := v.truth(cond)
		if err != nil {
			return nil, err
		}
		if b != nil && *b {
			return v.eval(w[1])
		}
	}
	return v.eval(x.els)
}

// shiftTime adds an interval to a date or datetime.
func shiftTime(v any, n int64, unit string) (any, error) {
	t, err := toTime(v, kindDatetime)
	if err != nil {
		return nil, nil
	}
	at, err := time.Parse("2006-01-02 15:04:05", string(t.(datetime)))
	if err != nil {
		return nil, nil
	}
	switch strings.TrimSuffix(unit, "s") {
	case "day":
		at = at.AddDate(0, 0, int(n))
	case "week":
		at = at.AddDate(0, 0, int(7*n))
	case "month":
		at = at.AddDate(0, int(n), 0)
	case "year":
		at = at.AddDate(int(n), 0, 0)
	case "hour":
		at = at.Add(time.Duration(n) * time.Hour)
	case "minute":
		at = at.Add(time.Duration(n) * time.Minute)
	case "second":
		at = at.Add(time.Duration(n) * time.Second)
	default:
		return nil, fmt.Errorf("the stand-in has no INTERVAL %s", unit)
	}
	if _, ok := v.(date); ok {
		return date(at.Format("2006-01-02")), nil
	}
	return dateTimeOf(at), nil
}
