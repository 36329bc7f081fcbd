package starrockstest

import (
	"encoding/base64"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// session is what functions may ask about the connection.
type session struct {
	user, db, version string
	connectionID      uint32
	now               func() time.Time
}

// call evaluates a scalar function. Wrong arguments give NULL where the server gives NULL, and an error naming the
// function where the stand-in lacks it.
func (v *env) call(x callExpr) (any, error) {
	if strings.HasPrefix(x.name, "@@") {
		return sessionVariable(strings.TrimPrefix(x.name, "@@"), v.session), nil
	}
	if len(x.args) == 2 {
		if iv, ok := x.args[1].(intervalExpr); ok {
			return v.shift(x, iv)
		}
	}
	args := make([]any, len(x.args))
	for i, a := range x.args {
		val, err := v.eval(a)
		if err != nil {
			return nil, err
		}
		args[i] = val
	}
	for _, group := range []func(string, []any) (any, bool, error){bitmapFunc, nullFunc, textFunc, timeFunc, numberFunc} {
		if out, known, err := group(x.name, args); known || err != nil {
			return out, err
		}
	}
	if out, known := v.sessionFunc(x.name); known {
		return out, nil
	}
	return nil, fmt.Errorf("No matching function with signature: %s with %d arguments (or the stand-in lacks it)", x.name, len(args))
}

func (v *env) shift(x callExpr, iv intervalExpr) (any, error) {
	at, err := v.eval(x.args[0])
	if err != nil || at == nil {
		return nil, err
	}
	n, err := v.eval(iv.n)
	if err != nil || n == nil {
		return nil, err
	}
	i, err := toInt(n, typ{kind: kindBigint})
	if err != nil {
		return nil, nil
	}
	k := i.(int64)
	switch x.name {
	case "date_add", "adddate":
	case "date_sub", "subdate":
		k = -k
	default:
		return nil, fmt.Errorf("the stand-in has no %s with an INTERVAL", x.name)
	}
	return shiftTime(at, k, iv.unit)
}

func (v *env) sessionFunc(name string) (any, bool) {
	s := v.session
	if s == nil {
		return nil, false
	}
	now := s.now().UTC()
	switch name {
	case "version":
		return mysqlVersion, true
	case "current_version":
		return s.version, true
	case "database", "schema":
		if s.db == "" {
			return nil, true
		}
		return s.db, true
	case "user", "current_user", "session_user":
		return "'" + s.user + "'@'%'", true
	case "connection_id":
		return int64(s.connectionID), true
	case "now", "current_timestamp", "localtime":
		return datetime(now.Format("2006-01-02 15:04:05")), true
	case "curdate", "current_date":
		return date(now.Format("2006-01-02")), true
	case "unix_timestamp":
		return now.Unix(), true
	}
	return nil, false
}

// bitmapFunc are the functions that make, combine and read sets; NULL in gives NULL out unless said otherwise.
func bitmapFunc(name string, a []any) (any, bool, error) {
	switch {
	case name == "bitmap_empty" && len(a) == 0:
		return newBitmap(), true, nil
	case name == "hll_empty" && len(a) == 0:
		return newHLL(), true, nil
	case len(a) == 1:
		return bitmapFunc1(name, a[0])
	case len(a) == 2 && name == "bitmap_contains":
		b, ok := a[0].(*bitmap)
		id, err := toUint(a[1])
		if !ok || err != nil {
			return nil, true, nil
		}
		return boolValue(b.contains(id)), true, nil
	case len(a) >= 2:
		return bitmapFold(name, a)
	}
	return nil, false, nil
}

func bitmapFunc1(name string, a any) (any, bool, error) {
	switch name {
	case "bitmap_hash", "bitmap_hash64", "hll_hash":
		s, err := toText(a)
		switch { // NULL becomes the empty set, not NULL.
		case name == "hll_hash" && (a == nil || err != nil):
			return newHLL(), true, nil
		case a == nil || err != nil:
			return newBitmap(), true, nil
		case name == "hll_hash":
			return newHLL(hllHash(s)), true, nil
		case name == "bitmap_hash":
			return newBitmap(bitmapHash(s)), true, nil
		}
		return newBitmap(bitmapHash64(s)), true, nil
	case "to_bitmap":
		id, err := toUint(a)
		if err != nil {
			return nil, true, nil
		}
		return newBitmap(id), true, nil
	case "base64_to_bitmap", "bitmap_from_string":
		s, ok := a.(string)
		if !ok {
			return nil, true, nil
		}
		b := bitmapFromString
		if name == "base64_to_bitmap" {
			b = bitmapFromBase64
		}
		if set := b(s); set != nil {
			return set, true, nil
		}
		return nil, true, nil
	}
	b, ok := a.(*bitmap)
	switch name {
	case "bitmap_count":
		if !ok { // The server counts a NULL bitmap as 0.
			return int64(0), true, nil
		}
		return b.count(), true, nil
	case "bitmap_to_string", "bitmap_to_base64", "bitmap_min", "bitmap_max":
		if !ok {
			return nil, true, nil
		}
		return bitmapRead(name, b), true, nil
	case "hll_cardinality":
		if h, ok := a.(*hll); ok {
			return h.count(), true, nil
		}
		return int64(0), true, nil
	}
	return nil, false, nil
}

func bitmapRead(name string, b *bitmap) any {
	switch name {
	case "bitmap_to_string":
		return b.String()
	case "bitmap_to_base64":
		return b.base64()
	}
	ids := b.ids()
	if len(ids) == 0 {
		return nil
	}
	id := ids[0]
	if name == "bitmap_max" {
		id = ids[len(ids)-1]
	}
	return new(big.Int).SetUint64(id)
}

func bitmapFold(name string, a []any) (any, bool, error) {
	var op func(x, y *bitmap) *bitmap
	switch name {
	case "bitmap_and":
		op = (*bitmap).and
	case "bitmap_andnot":
		op = (*bitmap).andNot
	case "bitmap_xor":
		op = (*bitmap).xor
	case "bitmap_or":
		op = func(x, y *bitmap) *bitmap { z := x.clone(); z.or(y); return z }
	default:
		return nil, false, nil
	}
	out, ok := a[0].(*bitmap)
	for _, next := range a[1:] {
		b, isBitmap := next.(*bitmap)
		if !ok || !isBitmap {
			return nil, true, nil
		}
		out = op(out, b)
	}
	return out, true, nil
}

// toUint is the argument of to_bitmap: 0 … 2^64−1 as a number or decimal text.
func toUint(v any) (uint64, error) {
	switch x := v.(type) {
	case int64:
		if x < 0 {
			return 0, errOutOfRange
		}
		return uint64(x), nil
	case *big.Int:
		if !x.IsUint64() {
			return 0, errOutOfRange
		}
		return x.Uint64(), nil
	case string:
		return strconv.ParseUint(strings.TrimSpace(x), 10, 64)
	}
	return 0, errConvert
}

// nullFunc are the functions that look at NULL themselves.
func nullFunc(name string, a []any) (any, bool, error) {
	switch {
	case name == "coalesce", name == "ifnull" && len(a) == 2:
		for _, v := range a {
			if v != nil {
				return v, true, nil
			}
		}
		return nil, true, nil
	case name == "if" && len(a) == 3:
		if a[0] != nil {
			if b, err := toBoolean(a[0]); err == nil && b.(int64) != 0 {
				return a[1], true, nil
			}
		}
		return a[2], true, nil
	case name == "nullif" && len(a) == 2:
		if a[0] != nil && a[1] != nil {
			if c, err := compare(a[0], a[1]); err == nil && c == 0 {
				return nil, true, nil
			}
		}
		return a[0], true, nil
	}
	return nil, false, nil
}

// textFunc are the string functions; any NULL argument gives NULL.
func textFunc(name string, a []any) (any, bool, error) {
	switch name {
	case "concat", "starts_with", "ends_with", "lower", "upper", "length", "char_length", "trim", "substr", "substring",
		"replace", "to_base64", "from_base64", "split_part", "locate", "instr":
	default:
		return nil, false, nil
	}
	s := make([]string, len(a))
	for i, v := range a {
		if v == nil {
			return nil, true, nil
		}
		t, err := toText(v)
		if err != nil {
			return nil, true, fmt.Errorf("%s: %w", name, err)
		}
		s[i] = t
	}
	switch {
	case name == "concat":
		return strings.Join(s, ""), true, nil
	case len(s) == 1:
		return textFunc1(name, s[0])
	case len(s) == 2 && name == "starts_with":
		return boolValue(strings.HasPrefix(s[0], s[1])), true, nil
	case len(s) == 2 && name == "ends_with":
		return boolValue(strings.HasSuffix(s[0], s[1])), true, nil
	case len(s) == 2 && name == "instr":
		return int64(strings.Index(s[0], s[1]) + 1), true, nil
	case len(s) == 2 && name == "locate":
		return int64(strings.Index(s[1], s[0]) + 1), true, nil
	case len(s) == 3 && name == "replace":
		return strings.ReplaceAll(s[0], s[1], s[2]), true, nil
	case len(s) == 3 && name == "split_part":
		n, _ := strconv.Atoi(s[2])
		if parts := strings.Split(s[0], s[1]); n >= 1 && n <= len(parts) {
			return parts[n-1], true, nil
		}
		return nil, true, nil
	case (len(s) == 2 || len(s) == 3) && strings.HasPrefix(name, "sub"):
		return substring(s), true, nil
	}
	return nil, false, nil
}

func textFunc1(name, s string) (any, bool, error) {
	switch name {
	case "lower":
		return strings.ToLower(s), true, nil
	case "upper":
		return strings.ToUpper(s), true, nil
	case "trim":
		return strings.Trim(s, " "), true, nil
	case "length":
		return int64(len(s)), true, nil
	case "char_length":
		return int64(len([]rune(s))), true, nil
	case "to_base64":
		return base64.StdEncoding.EncodeToString([]byte(s)), true, nil
	case "from_base64":
		raw, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, true, nil
		}
		return string(raw), true, nil
	}
	return nil, false, nil
}

// substring takes text, a position from 1 (or from the end, if negative) and maybe a length.
func substring(s []string) any {
	r := []rune(s[0])
	from, _ := strconv.Atoi(s[1])
	if from < 0 {
		from = len(r) + from + 1
	}
	if from < 1 || from > len(r) {
		return ""
	}
	r = r[from-1:]
	if len(s) == 3 {
		n, _ := strconv.Atoi(s[2])
		r = r[:max(0, min(n, len(r)))]
	}
	return string(r)
}

func timeFunc(name string, a []any) (any, bool, error) {
	switch name {
	case "date", "to_date", "date_trunc", "date_format", "datediff", "days_diff", "year", "month", "day":
	default:
		return nil, false, nil
	}
	for _, v := range a {
		if v == nil {
			return nil, true, nil
		}
	}
	at := make([]time.Time, len(a))
	for i, v := range a {
		if t, err := toTime(v, kindDatetime); err == nil {
			at[i], _ = time.Parse("2006-01-02 15:04:05", string(t.(datetime)))
		}
	}
	switch {
	case len(a) == 1 && !at[0].IsZero():
		switch name {
		case "date", "to_date":
			return date(at[0].Format("2006-01-02")), true, nil
		case "year":
			return int64(at[0].Year()), true, nil
		case "month":
			return int64(at[0].Month()), true, nil
		case "day":
			return int64(at[0].Day()), true, nil
		}
	case len(a) == 2 && (name == "datediff" || name == "days_diff") && !at[0].IsZero() && !at[1].IsZero():
		return int64(at[0].Sub(at[1]).Hours() / 24), true, nil
	case len(a) == 2 && name == "date_trunc":
		unit, _ := a[0].(string)
		keep := map[string]int{"year": 4, "month": 7, "day": 10, "hour": 13}[strings.ToLower(unit)]
		if keep == 0 {
			return nil, false, fmt.Errorf("the stand-in has no date_trunc('%s')", unit)
		}
		text := at[1].Format("2006-01-02 15:04:05")[:keep] + "0000-01-01 00:00:00"[keep:]
		if _, ok := a[1].(date); ok {
			return date(text[:10]), true, nil
		}
		return datetime(text), true, nil
	case len(a) == 2 && name == "date_format":
		f, _ := a[1].(string)
		return at[0].Format(strings.NewReplacer("%Y", "2006", "%m", "01", "%d", "02", "%H", "15", "%i", "04", "%s", "05").Replace(f)), true, nil
	}
	return nil, true, nil
}

func numberFunc(name string, a []any) (any, bool, error) {
	switch {
	case name == "abs" && len(a) == 1:
		if a[0] == nil {
			return nil, true, nil
		}
		c, err := compare(a[0], int64(0))
		if err != nil || c >= 0 {
			return a[0], true, nil
		}
		out, err := arithmetic("-", int64(0), a[0])
		return out, true, err
	case (name == "greatest" || name == "least") && len(a) > 0:
		best := a[0]
		for _, v := range a {
			if v == nil || best == nil {
				return nil, true, nil
			}
			c, err := compare(v, best)
			if err != nil {
				return nil, true, err
			}
			if name == "greatest" && c > 0 || name == "least" && c < 0 {
				best = v
			}
		}
		return best, true, nil
	}
	return nil, false, nil
}
