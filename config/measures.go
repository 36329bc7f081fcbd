package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// MeasureKind is what a measure computes.
type MeasureKind string

// The kinds of measures.
const (
	Count        MeasureKind = "count"
	Distinct     MeasureKind = "distinct"
	DistinctHash MeasureKind = "distinct_hash"
	Sum          MeasureKind = "sum"
	Min          MeasureKind = "min"
	Max          MeasureKind = "max"
)

// Measure is one column of results.
type Measure struct {
	Name  string      // the column
	Kind  MeasureKind // what is computed
	Field string      // path in the event, names joined by dots; "" for Count
	Scale int         // for Sum, Min and Max: values are multiplied by 10^Scale
}

// Measures are the measures in the order they were written.
type Measures []Measure

// Dimension is one column that splits results.
type Dimension struct {
	Name string // the column
	Path string // path in the event, names joined by dots
}

// Dimensions are the dimensions in the order they were written.
type Dimensions []Dimension

const (
	measuresFormat   = "name=kind by comma, with kind count, distinct(field), distinct_hash(field), sum(field), min(field) or max(field); the last three also as sum(field,decimals)"
	dimensionsFormat = "field names by comma, or name=path.in.event"
	identifierFormat = "letters, digits and '_', not beginning with a digit, at most 64"

	maxMeasures  = 64
	maxPathDepth = 32
	maxScale     = 9 // leaves a running total in an int64 room for 9·10^9 whole units
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func (m *Measures) format() string { return measuresFormat }

func (m *Measures) set(text string) []Problem {
	items, ok := splitOutside(text)
	if !ok {
		return bad(quote(text)+" has parentheses that do not match", measuresFormat, "close every parenthesis, as in uv=distinct(user_id),pv=count")
	}
	var problems []Problem
	for _, item := range items {
		measure, found, remedy := parseMeasure(item)
		if found != "" {
			problems = append(problems, bad(quote(item)+" "+found, measuresFormat, remedy)...)
			continue
		}
		*m = append(*m, measure)
	}
	if len(items) > maxMeasures {
		return bad(fmt.Sprintf("%d measures", len(items)), fmt.Sprintf("at most %d", maxMeasures), "leave some out")
	}
	if len(items) == 0 {
		return bad(quote(text)+" names no measure", measuresFormat, "write at least pv=count")
	}
	return problems
}

// parseMeasure reads name=kind(field,decimals). If it cannot, found says what
// is wrong and remedy what to write.
func parseMeasure(item string) (m Measure, found, remedy string) {
	name, expr, ok := strings.Cut(item, "=")
	if !ok {
		return m, "has no name", "write name=" + suggestKind(item)
	}
	m.Name = strings.TrimSpace(name)
	if found, remedy = checkColumn(m.Name); found != "" {
		return m, found, remedy
	}
	word, args, hasArgs, ok := parseCall(strings.TrimSpace(expr))
	if !ok {
		return m, "has something after the parentheses", "write " + m.Name + "=kind(field)"
	}
	m.Kind = MeasureKind(strings.ToLower(word))
	switch m.Kind {
	case Count:
		if hasArgs {
			return m, "gives count a field", "write " + m.Name + "=count; it counts events"
		}
		return m, "", ""
	case Distinct, DistinctHash, Sum, Min, Max:
	default:
		return m, "has an unknown kind", "write " + m.Name + "=" + suggestKind(word)
	}
	if len(args) == 0 || args[0] == "" {
		return m, "names no field", "write " + m.Name + "=" + string(m.Kind) + "(field)"
	}
	m.Field = args[0]
	if reason := checkPath(m.Field); reason != "" {
		return m, reason, "write the names from the outside in, joined by single dots"
	}
	switch {
	case len(args) == 1:
		return m, "", ""
	case m.Kind != Sum && m.Kind != Min && m.Kind != Max:
		return m, "has more than a field", "only sum, min and max take decimals; write " + m.Name + "=" + string(m.Kind) + "(field)"
	}
	scale, err := strconv.Atoi(args[1])
	if len(args) > 2 || err != nil || scale < 0 || scale > maxScale {
		return m, "has decimals that are not one number", fmt.Sprintf("write 0 to %d, as in sum(amount,2)", maxScale)
	}
	m.Scale = scale
	return m, "", ""
}

// parseCall reads word or word(arg,…). ok is false if anything follows.
func parseCall(expr string) (word string, args []string, hasArgs, ok bool) {
	word, rest, hasArgs := strings.Cut(expr, "(")
	word = strings.TrimSpace(word)
	if !hasArgs {
		return word, nil, false, true
	}
	inner, ok := strings.CutSuffix(rest, ")")
	if !ok || strings.ContainsAny(inner, "()") {
		return word, nil, true, false
	}
	for arg := range strings.SplitSeq(inner, ",") {
		args = append(args, strings.TrimSpace(arg))
	}
	return word, args, true, true
}

// suggestKind is the kind that looks most like word, as it would be written.
func suggestKind(word string) string {
	word, _, _ = strings.Cut(strings.ToLower(word), "(")
	best, least := "count", 3
	for _, kind := range []MeasureKind{Count, Distinct, DistinctHash, Sum, Min, Max} {
		if d := distance(strings.TrimSpace(word), string(kind)); d < least {
			best, least = string(kind), d
		}
	}
	if best != "count" {
		best += "(field)"
	}
	return best
}

// splitOutside splits at the commas outside parentheses and drops empty items.
// ok is false if the parentheses do not match.
func splitOutside(text string) (items []string, ok bool) {
	depth, start := 0, 0
	add := func(end int) {
		if item := strings.TrimSpace(text[start:end]); item != "" {
			items = append(items, item)
		}
		start = end + 1
	}
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return nil, false
			}
		case ',':
			if depth == 0 {
				add(i)
			}
		}
	}
	if depth != 0 {
		return nil, false
	}
	add(len(text))
	return items, true
}

func (d *Dimensions) format() string { return dimensionsFormat }

func (d *Dimensions) set(text string) []Problem {
	var problems []Problem
	for _, item := range list(text) {
		name, path, named := strings.Cut(item, "=")
		name, path = strings.TrimSpace(name), strings.TrimSpace(path)
		if !named {
			path = name
		}
		found, remedy := checkColumn(name)
		if found != "" && !named && strings.Contains(name, ".") {
			last := name[strings.LastIndexByte(name, '.')+1:]
			found, remedy = "is a path without a name", "write "+strings.Trim(quote(last+"="+name), `"`)
		}
		if found == "" {
			if found = checkPath(path); found != "" {
				remedy = "write the names from the outside in, joined by single dots"
			}
		}
		if found != "" {
			problems = append(problems, bad(quote(item)+" "+found, dimensionsFormat, remedy)...)
			continue
		}
		*d = append(*d, Dimension{Name: name, Path: path})
	}
	return problems
}

// checkColumn says what keeps name from being a column of the worker's own
// choice, and what to do about it.
func checkColumn(name string) (found, remedy string) {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return "has no name", "write a name before the '='"
	case strings.Contains(name, "`"):
		return "has back-ticks in its name", "write the name as it is; the worker quotes it"
	case !identifier.MatchString(name):
		return "has a name that is no identifier", "use " + identifierFormat
	case lower == "dt":
		return "takes the name of the day column", "choose another name than dt"
	case strings.HasPrefix(lower, "rollcall_"):
		return "takes a name the worker keeps for itself", "choose a name that does not begin with rollcall_"
	case strings.HasPrefix(lower, "__op"), strings.HasPrefix(lower, "__row"):
		return "takes a name StarRocks keeps for itself", "choose a name that does not begin with __op or __row"
	}
	return "", ""
}

// checkPath says what is wrong with a path of names joined by dots, or "".
func checkPath(path string) string {
	switch {
	case path == "":
		return "names no field"
	case strings.HasPrefix(path, "."), strings.HasSuffix(path, "."), strings.Contains(path, ".."):
		return "has an empty name in its path"
	case strings.Count(path, ".") >= maxPathDepth:
		return fmt.Sprintf("has a path of more than %d names", maxPathDepth)
	case strings.ContainsFunc(path, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }):
		return "has a control character or invalid UTF-8 in its path"
	}
	return ""
}
