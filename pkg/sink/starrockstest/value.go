package starrockstest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// kind is a column type without its parameters.
type kind string

const (
	kindNull     kind = "null"
	kindBoolean  kind = "boolean"
	kindTinyint  kind = "tinyint"
	kindSmallint kind = "smallint"
	kindInt      kind = "int"
	kindBigint   kind = "bigint"
	kindLargeint kind = "largeint"
	kindFloat    kind = "float"
	kindDouble   kind = "double"
	kindDecimal  kind = "decimal"
	kindChar     kind = "char"
	kindVarchar  kind = "varchar"
	kindDate     kind = "date"
	kindDatetime kind = "datetime"
	kindBitmap   kind = "bitmap"
	kindHLL      kind = "hll"
	kindJSON     kind = "json"
	kindBinary   kind = "varbinary"
)

// maxString is the length STRING stands for. StarRocks: CREATE_TABLE.md, v2.1 to v4.1.
const maxString = 1048576

// typ is a column type. length is in bytes for strings; precision and scale belong to DECIMAL.
type typ struct {
	kind             kind
	length           int
	precision, scale int
}

func (t typ) String() string {
	switch t.kind {
	case kindChar, kindVarchar:
		return fmt.Sprintf("%s(%d)", t.kind, t.length)
	case kindDecimal:
		return fmt.Sprintf("decimal(%d,%d)", t.precision, t.scale)
	}
	return string(t.kind)
}

func (t typ) isString() bool {
	return t.kind == kindChar || t.kind == kindVarchar || t.kind == kindJSON
}

func (t typ) isInt() bool {
	_, ok := intRange(t.kind)
	return ok || t.kind == kindLargeint
}

// typeByName resolves a type name of the SQL dialect; n are the numbers in its parentheses.
func typeByName(name string, n []int) (typ, error) {
	k := kind(strings.ToLower(name))
	switch k {
	case "string", "text":
		return typ{kind: kindVarchar, length: maxString}, nil
	case "integer":
		k = kindInt
	case "bool":
		k = kindBoolean
	case "signed":
		k = kindBigint
	case "decimal32", "decimal64", "decimal128", "decimalv2", "decimalv3", "numeric":
		k = kindDecimal
	case "binary":
		k = kindBinary
	}
	t := typ{kind: k}
	switch k {
	case kindChar, kindVarchar:
		t.length = 1
		if k == kindVarchar {
			t.length = maxString
		}
		if len(n) > 0 {
			t.length = n[0]
		}
	case kindDecimal:
		t.precision, t.scale = 10, 0
		if len(n) > 0 {
			t.precision = n[0]
		}
		if len(n) > 1 {
			t.scale = n[1]
		}
	case kindBoolean, kindTinyint, kindSmallint, kindInt, kindBigint, kindLargeint, kindFloat, kindDouble, kindDate,
		kindDatetime, kindBitmap, kindHLL, kindJSON, kindBinary:
	default:
		return typ{}, fmt.Errorf("Unsupported data type: %s", name)
	}
	return t, nil
}

func intRange(k kind) (bits int, ok bool) {
	switch k {
	case kindTinyint:
		return 8, true
	case kindSmallint:
		return 16, true
	case kindInt:
		return 32, true
	case kindBigint:
		return 64, true
	}
	return 0, false
}

// Values are nil (NULL), int64, *big.Int (LARGEINT), float64, string, date, datetime, *bitmap and *hll.
type (
	date     string // 2006-01-02
	datetime string // 2006-01-02 15:04:05[.000000]
)

var (
	errOutOfRange = errors.New("out of range")
	errConvert    = errors.New("cannot convert")
)

// convert is CAST and what a load does to a source value: an error is what strict mode refuses and CAST makes NULL.
func convert(v any, t typ) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch t.kind {
	case kindBoolean:
		return toBoolean(v)
	case kindTinyint, kindSmallint, kindInt, kindBigint:
		return toInt(v, t)
	case kindLargeint:
		return toLargeint(v)
	case kindFloat, kindDouble:
		return toFloat(v)
	case kindChar, kindVarchar, kindJSON, kindBinary:
		s, err := toText(v)
		if err != nil {
			return nil, err
		}
		if t.length > 0 && len(s) > t.length {
			return nil, fmt.Errorf("%w: string of %d bytes for %s", errOutOfRange, len(s), t)
		}
		return s, nil
	case kindDate, kindDatetime:
		return toTime(v, t.kind)
	case kindBitmap:
		if b, ok := v.(*bitmap); ok {
			return b, nil
		}
	case kindHLL:
		if h, ok := v.(*hll); ok {
			return h, nil
		}
	case kindDecimal:
		return nil, fmt.Errorf("%w: the stand-in does not compute with %s", errConvert, t)
	}
	return nil, fmt.Errorf("%w %T to %s", errConvert, v, t)
}

func toBoolean(v any) (any, error) {
	switch x := v.(type) {
	case int64:
		if x != 0 {
			return int64(1), nil
		}
		return int64(0), nil
	case float64:
		if x != 0 {
			return int64(1), nil
		}
		return int64(0), nil
	case string:
		switch strings.ToLower(strings.TrimSpace(x)) {
		case "true", "1":
			return int64(1), nil
		case "false", "0":
			return int64(0), nil
		}
	}
	return nil, fmt.Errorf("%w %v to boolean", errConvert, v)
}

func toInt(v any, t typ) (any, error) {
	bits, _ := intRange(t.kind)
	var n int64
	switch x := v.(type) {
	case int64:
		n = x
	case *big.Int:
		if !x.IsInt64() {
			return nil, fmt.Errorf("%w: %s for %s", errOutOfRange, x, t)
		}
		n = x.Int64()
	case float64:
		if math.IsNaN(x) || x >= 1<<63 || x < -1<<63 {
			return nil, fmt.Errorf("%w: %v for %s", errOutOfRange, x, t)
		}
		n = int64(x)
	case string:
		s := strings.TrimSpace(x)
		i, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w %q to %s", errConvert, x, t)
		}
		n = i
	case date:
		n, _ = strconv.ParseInt(strings.ReplaceAll(string(x), "-", ""), 10, 64)
	default:
		return nil, fmt.Errorf("%w %T to %s", errConvert, v, t)
	}
	if bits < 64 && (n >= 1<<(bits-1) || n < -1<<(bits-1)) {
		return nil, fmt.Errorf("%w: %d for %s", errOutOfRange, n, t)
	}
	return n, nil
}

func toLargeint(v any) (any, error) {
	var n *big.Int
	switch x := v.(type) {
	case int64:
		return big.NewInt(x), nil
	case *big.Int:
		n = x
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("%w: %v for largeint", errOutOfRange, x)
		}
		n, _ = big.NewFloat(x).Int(nil)
	case string:
		i, ok := new(big.Int).SetString(strings.TrimSpace(x), 10)
		if !ok {
			return nil, fmt.Errorf("%w %q to largeint", errConvert, x)
		}
		n = i
	default:
		return nil, fmt.Errorf("%w %T to largeint", errConvert, v)
	}
	if n.BitLen() > 127 {
		return nil, fmt.Errorf("%w: %s for largeint", errOutOfRange, n)
	}
	return n, nil
}

func toFloat(v any) (any, error) {
	switch x := v.(type) {
	case int64:
		return float64(x), nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f, nil
	case float64:
		return x, nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(x), 64)
		if err != nil {
			return nil, fmt.Errorf("%w %q to double", errConvert, x)
		}
		return f, nil
	}
	return nil, fmt.Errorf("%w %T to double", errConvert, v)
}

func toText(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case date:
		return string(x), nil
	case datetime:
		return string(x), nil
	case int64:
		return strconv.FormatInt(x, 10), nil
	case *big.Int:
		return x.String(), nil
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64), nil
	}
	return "", fmt.Errorf("%w %T to a string", errConvert, v)
}

// Layouts the server reads; fractions are accepted after the seconds by time.Parse itself.
func timeLayouts() []string {
	return []string{
		"2006-01-02", "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "20060102", "20060102150405",
		"2006-1-2", "2006-1-2 15:04:05", "2006/01/02",
	}
}

func toTime(v any, k kind) (any, error) {
	s := ""
	switch x := v.(type) {
	case date:
		s = string(x)
	case datetime:
		s = string(x)
	case string:
		s = strings.TrimSpace(x)
	case int64:
		s = strconv.FormatInt(x, 10)
	default:
		return nil, fmt.Errorf("%w %T to %s", errConvert, v, k)
	}
	for _, layout := range timeLayouts() {
		if at, err := time.Parse(layout, s); err == nil {
			if k == kindDate {
				return date(at.Format("2006-01-02")), nil
			}
			return dateTimeOf(at), nil
		}
	}
	return nil, fmt.Errorf("%w %q to %s", errConvert, s, k)
}

func dateTimeOf(at time.Time) datetime {
	if at.Nanosecond()/1000 != 0 {
		return datetime(at.Format("2006-01-02 15:04:05.000000"))
	}
	return datetime(at.Format("2006-01-02 15:04:05"))
}

// compare orders two non-NULL values, converting the one that is text to the other's type, as the planner would.
func compare(a, b any) (int, error) {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
		c, err := compare(b, a)
		return -c, err
	}
	switch x := a.(type) {
	case int64:
		if y, ok := b.(int64); ok {
			return cmp.Compare(x, y), nil
		}
		return compareNumbers(a, b)
	case *big.Int, float64:
		return compareNumbers(a, b)
	case date:
		if y, ok := b.(datetime); ok {
			return strings.Compare(string(x)+" 00:00:00", string(y)), nil
		}
		y, err := toTime(b, kindDate)
		if err != nil {
			return 0, err
		}
		return strings.Compare(string(x), string(y.(date))), nil
	case datetime:
		y, err := toTime(b, kindDatetime)
		if err != nil {
			return 0, err
		}
		return strings.Compare(string(x), string(y.(datetime))), nil
	}
	return 0, fmt.Errorf("%w: cannot compare %T and %T", errConvert, a, b)
}

func compareNumbers(a, b any) (int, error) {
	_, fa := a.(float64)
	_, fb := b.(float64)
	if !fa && !fb {
		x, errX := toLargeint(a)
		y, errY := toLargeint(b)
		if errX == nil && errY == nil {
			return x.(*big.Int).Cmp(y.(*big.Int)), nil
		}
	}
	x, err := toFloat(a)
	if err != nil {
		return 0, err
	}
	y, err := toFloat(b)
	if err != nil {
		return 0, err
	}
	return cmp.Compare(x.(float64), y.(float64)), nil
}

// keyOf encodes values so that equal tuples and only those give equal strings.
func keyOf(vals []any) string {
	var sb strings.Builder
	for _, v := range vals {
		if v == nil {
			sb.WriteString("n;")
			continue
		}
		s, err := toText(v)
		switch x := v.(type) {
		case *bitmap:
			s = x.String()
		case *hll:
			s = fmt.Sprintf("%p", x)
		default:
			if err != nil {
				s = fmt.Sprintf("%T%v", v, v)
			}
		}
		sb.WriteString(strconv.Itoa(len(s)))
		sb.WriteByte(':')
		sb.WriteString(s)
		sb.WriteByte(';')
	}
	return sb.String()
}
