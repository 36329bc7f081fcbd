package starrockstest

import (
	"fmt"
	"strings"
)

// isAggregate reports whether a call folds the rows of a group.
func isAggregate(c callExpr) bool {
	switch c.name {
	case "count", "sum", "min", "max", "avg", "bitmap_union", "bitmap_union_count", "bitmap_union_int", "bitmap_intersect",
		"hll_union", "hll_raw_agg", "hll_union_agg", "any_value", "group_concat", "ndv", "approx_count_distinct":
		return true
	}
	return false
}

// exprKey is the identity of an expression for GROUP BY and for computed aggregates; names are compared in any case.
func exprKey(e expr) string {
	head := ""
	switch x := e.(type) {
	case litExpr:
		return fmt.Sprintf("%T:%q", x.v, fmt.Sprint(x.v))
	case colExpr:
		return fmt.Sprintf("col:%q.%q", strings.ToLower(x.qualifier), strings.ToLower(x.name))
	case castExpr:
		head = x.t.String()
	case callExpr:
		head = fmt.Sprint(x.name, x.distinct, x.star)
	case binExpr:
		head = x.op
	case isNullExpr:
		head = fmt.Sprint(x.not)
	case inExpr:
		head = fmt.Sprint(x.not)
	case betweenExpr:
		head = fmt.Sprint(x.not)
	case intervalExpr:
		head = x.unit
	}
	var sb strings.Builder
	fmt.Fprintf(&sb, "%T[%s](", e, head)
	for _, c := range children(e) {
		sb.WriteString(exprKey(c))
		sb.WriteByte(',')
	}
	sb.WriteByte(')')
	return sb.String()
}

// aggregatesIn lists the aggregate calls below the expressions, each once.
func aggregatesIn(exprs []expr) []callExpr {
	var out []callExpr
	seen := map[string]bool{}
	for _, e := range exprs {
		walk(e, func(x expr) bool {
			c, ok := x.(callExpr)
			if !ok || !isAggregate(c) {
				return true
			}
			if k := exprKey(c); !seen[k] {
				seen[k] = true
				out = append(out, c)
			}
			return false
		})
	}
	return out
}

// fold computes one aggregate over the rows of a group.
func fold(c callExpr, rows [][]any, v env) (any, error) {
	if c.star {
		if c.name != "count" {
			return nil, fmt.Errorf("%s(*) is not an aggregate", c.name)
		}
		return int64(len(rows)), nil
	}
	if len(c.args) != 1 && c.name != "group_concat" && c.name != "count" || len(c.args) == 0 {
		return nil, fmt.Errorf("%s takes one argument", c.name)
	}
	vals := make([]any, 0, len(rows))
	seen := map[string]bool{}
	arg := bind(c.args[0], v.cols)
	for _, r := range rows {
		v.vals = r
		val, err := v.eval(arg)
		if err != nil {
			return nil, err
		}
		if val == nil {
			continue
		}
		_, isSet := val.(*bitmap)
		if c.distinct && !isSet {
			k := keyOf([]any{val})
			if seen[k] {
				continue
			}
			seen[k] = true
		}
		vals = append(vals, val)
	}
	return foldValues(c, vals)
}

// foldValues folds the values that are not NULL.
func foldValues(c callExpr, vals []any) (any, error) {
	switch c.name {
	case "count":
		if c.distinct && len(vals) > 0 {
			if _, ok := vals[0].(*bitmap); ok { // rewritten by the planner to bitmap_union_count
				return foldBitmaps("bitmap_union_count", vals)
			}
		}
		return int64(len(vals)), nil
	case "bitmap_union", "bitmap_union_count", "bitmap_intersect":
		return foldBitmaps(c.name, vals)
	case "bitmap_union_int":
		b := newBitmap()
		for _, v := range vals {
			if id, err := toUint(v); err == nil {
				b.add(id)
			}
		}
		return b.count(), nil
	case "ndv", "approx_count_distinct", "hll_union", "hll_raw_agg", "hll_union_agg":
		return foldHLL(c.name, vals)
	}
	if len(vals) == 0 {
		return nil, nil
	}
	switch c.name {
	case "sum", "avg":
		return foldSum(c.name, vals)
	case "min", "max":
		best := vals[0]
		for _, v := range vals[1:] {
			d, err := compare(v, best)
			if err != nil {
				return nil, err
			}
			if c.name == "max" && d > 0 || c.name == "min" && d < 0 {
				best = v
			}
		}
		return best, nil
	case "any_value":
		return vals[0], nil
	case "group_concat":
		parts := make([]string, len(vals))
		for i, v := range vals {
			parts[i], _ = toText(v)
		}
		return strings.Join(parts, ", "), nil
	}
	return nil, fmt.Errorf("the stand-in has no aggregate %s", c.name)
}

func foldSum(name string, vals []any) (any, error) {
	var sum any
	for _, v := range vals {
		if s, ok := v.(string); ok {
			f, err := toFloat(s)
			if err != nil {
				continue
			}
			v = f
		}
		if _, err := toFloat(v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if sum == nil {
			sum = v
			continue
		}
		sum = addNumbers(sum, v)
	}
	if name == "avg" && sum != nil {
		return arithmetic("/", sum, int64(len(vals)))
	}
	return sum, nil
}

func foldBitmaps(name string, vals []any) (any, error) {
	out := newBitmap()
	for i, v := range vals {
		b, ok := v.(*bitmap)
		if !ok {
			return nil, fmt.Errorf("No matching function with signature: %s(%T)", name, v)
		}
		if name == "bitmap_intersect" && i > 0 {
			out = out.and(b)
			continue
		}
		out.or(b)
	}
	if name == "bitmap_union_count" {
		return out.count(), nil
	}
	return out, nil
}

func foldHLL(name string, vals []any) (any, error) {
	out := newHLL()
	for _, v := range vals {
		if h, ok := v.(*hll); ok {
			out.or(h)
			continue
		}
		out.hashes[bitmapHash64(keyOf([]any{v}))] = struct{}{}
	}
	if name == "hll_union" || name == "hll_raw_agg" {
		return out, nil
	}
	return out.count(), nil
}
