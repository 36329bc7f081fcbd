package starrockstest

// Expressions of the SQL subset, shared by SELECT and by the `columns` header of a load.
type (
	expr interface{}

	litExpr  struct{ v any }
	colExpr  struct{ qualifier, name string }
	castExpr struct {
		e expr
		t typ
	}
	callExpr struct {
		name     string // lower case
		args     []expr
		distinct bool
		star     bool
	}
	binExpr struct {
		op   string // upper case
		l, r expr
	}
	notExpr    struct{ e expr }
	negExpr    struct{ e expr }
	isNullExpr struct {
		e   expr
		not bool
	}
	inExpr struct {
		e    expr
		list []expr
		not  bool
	}
	betweenExpr struct {
		e, lo, hi expr
		not       bool
	}
	caseExpr struct {
		operand expr
		whens   [][2]expr
		els     expr
	}
	intervalExpr struct {
		n    expr
		unit string // lower case, singular
	}
)

// selectItem is one output column; star items stand for all columns (of one source if qualified).
type selectItem struct {
	e    expr
	name string
	star bool
	qual string
}

type orderItem struct {
	e    expr
	desc bool
}

// selectStmt is SELECT … FROM one source.
type selectStmt struct {
	items    []selectItem
	distinct bool
	from     *tableRef
	where    expr
	groupBy  []expr
	having   expr
	orderBy  []orderItem
	limit    int // −1: none
	offset   int
}

type tableRef struct {
	db, name string
	sub      *selectStmt
	alias    string
}

// walk visits e and everything below it until f says false.
func walk(e expr, f func(expr) bool) {
	if e == nil || !f(e) {
		return
	}
	for _, c := range children(e) {
		walk(c, f)
	}
}

func children(e expr) []expr {
	switch x := e.(type) {
	case castExpr:
		return []expr{x.e}
	case callExpr:
		return x.args
	case binExpr:
		return []expr{x.l, x.r}
	case notExpr:
		return []expr{x.e}
	case negExpr:
		return []expr{x.e}
	case isNullExpr:
		return []expr{x.e}
	case inExpr:
		return append([]expr{x.e}, x.list...)
	case betweenExpr:
		return []expr{x.e, x.lo, x.hi}
	case intervalExpr:
		return []expr{x.n}
	case caseExpr:
		out := []expr{x.operand}
		for _, w := range x.whens {
			out = append(out, w[0], w[1])
		}
		return append(out, x.els)
	}
	return nil
}
