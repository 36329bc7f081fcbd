package starrockstest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// loadSpec is what the headers of a load ask for. StarRocks: be/src/http/action/stream_load.cpp.
type loadSpec struct {
	db, table, label string
	format           string // csv or json
	compression      string
	columns          string
	where            string
	separator        string
	delimiter        string
	skipHeader       int
	trimSpace        bool
	enclose          byte
	strict           bool
	stripOuter       bool
	jsonPaths        string
	jsonRoot         string
	ignoreJSONSize   bool
	ratio            float64
	timeout          time.Duration
	length           int64 // −1: chunked
	partialUpdate    bool
	logRejected      bool
}

// parseSpec reads the headers in the order the BE does and stops at the first that is wrong.
func parseSpec(h http.Header, length int64, cfg Config) (loadSpec, error) {
	s := loadSpec{label: h.Get("label"), length: length, timeout: cfg.DefaultTimeout, separator: "\t", delimiter: "\n"}
	if err := s.parseFormat(h, cfg.NoCompression); err != nil {
		return s, err
	}
	if length > cfg.MaxBodyBytes {
		return s, fmt.Errorf("body size %d exceed limit: %d, id=%s. You can increase the limit by setting streaming_load_max_mb in be.conf.", length, cfg.MaxBodyBytes, s.label)
	}
	s.ignoreJSONSize = h.Get("ignore_json_size") == "true"
	if err := s.checkJSONSize(max(length, 0), cfg); err != nil {
		return s, err
	}
	if err := s.parseNumbers(h); err != nil {
		return s, err
	}
	s.columns, s.where = h.Get("columns"), h.Get("where")
	if v := h.Get("column_separator"); v != "" {
		s.separator = unescapeSeparator(v)
	}
	if v := h.Get("row_delimiter"); v != "" {
		s.delimiter = unescapeSeparator(v)
	}
	if v := h.Get("enclose"); v != "" {
		s.enclose = v[0]
	}
	s.jsonPaths, s.jsonRoot = h.Get("jsonpaths"), h.Get("json_root")
	s.stripOuter = strings.EqualFold(h.Get("strip_outer_array"), "true")
	if h.Get("partitions") != "" && h.Get("temporary_partitions") != "" {
		return s, errors.New("Can not specify both partitions and temporary partitions")
	}
	for _, unsupported := range []string{"partitions", "temporary_partitions", "merge_condition", "envelope", "escape"} {
		if h.Get(unsupported) != "" {
			return s, fmt.Errorf("the stand-in does not know the header %s", unsupported)
		}
	}
	return s, s.parseBools(h)
}

func (s *loadSpec) parseFormat(h http.Header, noCompression bool) error {
	s.format = strings.ToLower(h.Get("format"))
	s.compression = strings.ToLower(h.Get("compression"))
	if enc := strings.ToLower(h.Get("Content-Encoding")); enc != "" {
		if s.compression != "" {
			return errors.New("Only one of http header content-encoding and compression can be set")
		}
		s.compression = enc
	}
	if noCompression { // these headers are as unknown as any
		s.compression = ""
	}
	switch s.format {
	case "":
		s.format = "csv"
	case "csv", "json":
	case "gzip", "bzip2", "lz4", "deflate", "zstd":
		s.compression, s.format = s.format, "csv"
	default:
		return fmt.Errorf("unknown data format, format=%s", h.Get("format"))
	}
	return nil
}

func (s *loadSpec) checkJSONSize(n int64, cfg Config) error {
	if s.format != "json" || s.ignoreJSONSize || n <= cfg.MaxJSONBytes {
		return nil
	}
	return fmt.Errorf("The size of this batch exceed the max size [%d]  of json type data  data [ %d ]. Set ignore_json_size to skip the check, although it may lead huge memory consuming.", cfg.MaxJSONBytes, n)
}

func (s *loadSpec) parseNumbers(h http.Header) error {
	if v := h.Get("timeout"); v != "" {
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil {
			return errors.New("Invalid timeout format")
		}
		s.timeout = time.Duration(n) * time.Second
	}
	if v := h.Get("max_filter_ratio"); v != "" {
		s.ratio, _ = strconv.ParseFloat(v, 64) // strtod: garbage is 0
	}
	if v := h.Get("skip_header"); v != "" {
		n, err := strconv.Atoi(v)
		switch {
		case err != nil:
			return errors.New("Invalid csv load skip_header format")
		case n < 0:
			return errors.New("skip_header must be equal or greater than 0")
		}
		s.skipHeader = n
	}
	for name, least := range map[string]int{"load_mem_limit": 0, "exec_mem_limit": 1} {
		if v := h.Get(name); v != "" {
			if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < int64(least) {
				return fmt.Errorf("Invalid %s format", strings.ReplaceAll(name, "_", " "))
			}
		}
	}
	if v := h.Get("log_rejected_record_num"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < -1 {
			return errors.New("log_rejected_record_num must be equal or greater than -1")
		}
		s.logRejected = n != 0
	}
	return nil
}

func (s *loadSpec) parseBools(h http.Header) error {
	for _, b := range []struct {
		name, text string
		to         *bool
	}{
		{"strict_mode", "Invalid strict mode format. Must be bool type", &s.strict},
		{"partial_update", "Invalid partial update flag format. Must be bool type", &s.partialUpdate},
		{"trim_space", "Invalid trim space format. Must be bool type", &s.trimSpace},
	} {
		switch v := strings.ToLower(h.Get(b.name)); v {
		case "", "false":
		case "true":
			*b.to = true
		default:
			return errors.New(b.text)
		}
	}
	return nil
}

// unescapeSeparator reads \t, \n and the \x01 (or \\x01) forms.
func unescapeSeparator(v string) string {
	v = strings.ReplaceAll(v, `\\`, `\`)
	if s, err := strconv.Unquote(`"` + strings.ReplaceAll(v, `"`, `\"`) + `"`); err == nil {
		return s
	}
	return v
}

// loadPlan maps source values to the columns of a table.
type loadPlan struct {
	spec    loadSpec
	table   *table
	cols    []column // the table's columns when the load was planned
	names   []string // source columns, in order
	sources []source
	direct  []bool   // the source column is the table's column of that name
	values  []expr   // per table column; nil: the default
	paths   []string // jsonpaths per source column
	where   expr
}

// plan resolves the columns header against the table. StarRocks: fe com/starrocks/load/Load.initColumns.
func (s loadSpec) plan(t *table, maxValue int64) (*loadPlan, error) {
	pl := &loadPlan{spec: s, table: t, cols: t.cols, values: make([]expr, len(t.cols))}
	mapped := map[string]expr{}
	if err := pl.parseColumns(mapped); err != nil {
		return nil, err
	}
	if s.partialUpdate && t.model != modelPrimary {
		return nil, errors.New("Only primary key table support partial update")
	}
	if s.jsonPaths != "" {
		paths, err := parseJSONPaths(s.jsonPaths)
		if err != nil {
			return nil, err
		}
		if len(paths) < len(pl.names) {
			return nil, errors.New("The number of jsonpaths and columns does not match")
		}
		pl.paths = paths
	}
	for _, n := range pl.names {
		src := source{"", n, typ{kind: kindVarchar, length: int(maxValue)}}
		i, ok := t.col(n)
		_, isMapped := mapped[strings.ToLower(n)]
		direct := ok && !isMapped
		if direct {
			src.typ = t.cols[i].typ
			if src.typ.kind == kindBitmap || src.typ.kind == kindHLL {
				return nil, fmt.Errorf("%s column %s require the function return type is %s", src.typ, n, strings.ToUpper(string(src.typ.kind)))
			}
			pl.values[i] = colExpr{"", n}
		}
		pl.sources = append(pl.sources, src)
		pl.direct = append(pl.direct, direct)
	}
	return pl, pl.assign(mapped)
}

// parseColumns reads "a, b, c=f(a)"; without the header the table's columns are the source.
func (pl *loadPlan) parseColumns(mapped map[string]expr) error {
	if strings.TrimSpace(pl.spec.columns) == "" {
		for _, c := range pl.cols {
			pl.names = append(pl.names, c.name)
		}
		return nil
	}
	p, err := newParser(pl.spec.columns)
	if err != nil {
		return fmt.Errorf("Parse columns header failed: %w", err)
	}
	for {
		n, err := p.name()
		if err != nil {
			return fmt.Errorf("Parse columns header failed: %w", err)
		}
		if p.accept("=") {
			if mapped[strings.ToLower(n)], err = p.expr(); err != nil {
				return fmt.Errorf("Parse columns header failed: %w", err)
			}
		} else {
			if slices.ContainsFunc(pl.names, func(o string) bool { return strings.EqualFold(o, n) }) {
				return fmt.Errorf("Duplicate column: %s", n)
			}
			pl.names = append(pl.names, n)
		}
		if !p.accept(",") {
			break
		}
	}
	return p.end()
}

func (pl *loadPlan) assign(mapped map[string]expr) error {
	for _, n := range sortedNames(mapped) {
		i, ok := pl.table.col(n)
		if !ok {
			return fmt.Errorf("Column '%s' cannot be resolved. The mapping of a load names no such column in %s", n, pl.table.name)
		}
		e := mapped[n]
		if err := checkNames(e, pl.sources); err != nil {
			return err
		}
		if err := checkFunctions(e); err != nil {
			return err
		}
		want, got := pl.cols[i].typ.kind, typeOf(e, pl.sources).kind
		if (want == kindBitmap || want == kindHLL) && got != want {
			return fmt.Errorf("%s column %s require the function return type is %s", want, n, strings.ToUpper(string(want)))
		}
		pl.values[i] = e
	}
	for i, c := range pl.cols {
		if pl.values[i] == nil && c.def == nil && !c.nullable && !c.auto && !pl.spec.partialUpdate {
			return fmt.Errorf("Column has no default value. column: %s", c.name)
		}
	}
	if pl.spec.where == "" {
		return nil
	}
	p, err := newParser(pl.spec.where)
	if err != nil {
		return err
	}
	if pl.where, err = p.expr(); err != nil {
		return err
	}
	return p.end()
}

func checkNames(e expr, cols []source) (err error) {
	walk(e, func(x expr) bool {
		if c, ok := x.(colExpr); ok && err == nil {
			_, err = findSource(cols, c)
		}
		return true
	})
	return err
}

// checkFunctions refuses unknown functions when the load is planned, not when the first row arrives.
func checkFunctions(e expr) (err error) {
	walk(e, func(x expr) bool {
		c, ok := x.(callExpr)
		if !ok || err != nil {
			return true
		}
		lits := make([]expr, len(c.args))
		for i := range lits {
			lits[i] = litExpr{nil}
		}
		v := env{session: &session{now: time.Now}}
		if _, bad := v.call(callExpr{name: c.name, args: lits}); bad != nil {
			err = bad
		}
		return true
	})
	return err
}

// loadResult is what one load did.
type loadResult struct {
	staged                              *staged
	total, loaded, filtered, unselected int
	errors                              []string // the lines of the error log
}

const maxErrorLines = 50

func (r *loadResult) reject(reason, row string) {
	r.filtered++
	if len(r.errors) < maxErrorLines {
		r.errors = append(r.errors, fmt.Sprintf("Error: %s. Row: %s", strings.TrimSuffix(reason, "."), row))
	}
}

// build turns one source row into a row of the table: mapping, WHERE, then what the tablet sink refuses.
func (pl *loadPlan) build(src []any, r *loadResult, rowText string) error {
	v := env{cols: pl.sources, vals: src, session: &session{now: time.Now}}
	if pl.where != nil {
		ok, err := v.truth(pl.where)
		if err != nil {
			return err
		}
		if ok == nil || !*ok {
			r.unselected++
			return nil
		}
	}
	vals := make([]any, len(pl.cols))
	for i, c := range pl.cols {
		if pl.values[i] == nil {
			vals[i], _ = c.defaultValue()
			continue
		}
		val, err := v.eval(pl.values[i])
		if err != nil {
			return err
		}
		if vals[i], err = convert(val, c.typ); err != nil {
			vals[i] = nil // A mapped value that does not fit is NULL, also in strict mode.
		}
	}
	if err := r.staged.add(vals); err != nil {
		r.reject(err.Error(), rowText)
		return nil
	}
	r.loaded++
	return nil
}

// sourceValue converts one source value; in strict mode what does not convert filters the row, else it is NULL.
func (pl *loadPlan) sourceValue(i int, v any) (any, error) {
	s := pl.sources[i]
	if text, ok := v.(string); ok && s.typ.isString() && len(text) > s.typ.length {
		if pl.spec.strict {
			return nil, fmt.Errorf("Value length is beyond the capacity. column=%s, capacity=%d", s.name, s.typ.length)
		}
		return nil, nil
	}
	out, err := convert(v, s.typ)
	if err != nil {
		if pl.spec.strict {
			return nil, fmt.Errorf("Value '%v' is out of range. The type of '%s' is %s", v, s.name, strings.ToUpper(s.typ.String()))
		}
		return nil, nil
	}
	return out, nil
}
