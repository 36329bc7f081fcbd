package starrockstest

import (
	"bytes"
	"compress/bzip2"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// decompress undoes Content-Encoding or compression.
func decompress(body []byte, how string) ([]byte, error) {
	var r io.Reader
	switch how {
	case "", "identity", "none":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("decompress gzip: %w", err)
		}
		r = z
	case "zstd":
		z, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("decompress zstd: %w", err)
		}
		defer z.Close()
		r = z
	case "lz4_frame", "lz4":
		r = lz4.NewReader(bytes.NewReader(body))
	case "bzip2":
		r = bzip2.NewReader(bytes.NewReader(body))
	case "deflate":
		z, err := zlib.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("decompress deflate: %w", err)
		}
		r = z
	default:
		return nil, fmt.Errorf("Unsupported compression type: %s", how)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", how, err)
	}
	return out, nil
}

// run computes the rows of a body. An error fails the whole load; a bad row is only counted.
func (pl *loadPlan) run(body []byte) (*loadResult, error) {
	r := &loadResult{staged: &staged{table: pl.table, cols: pl.cols, parts: map[string][][]any{}}}
	raw, err := decompress(body, pl.spec.compression)
	if err != nil {
		return nil, err
	}
	if pl.spec.format == "json" {
		err = pl.runJSON(raw, r)
	} else {
		err = pl.runCSV(raw, r)
	}
	return r, err
}

func (pl *loadPlan) runJSON(body []byte, r *loadResult) error {
	if start := bytes.TrimLeft(body, " \t\r\n"); len(start) > 0 && start[0] != '[' && start[0] != '{' {
		return fmt.Errorf("illegal json started with %c", start[0]) // be json_scanner.cpp
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	for {
		var v json.RawMessage
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return pl.jsonError(err)
		}
		docs, err := pl.documents(v)
		if err != nil {
			return err
		}
		for _, doc := range docs {
			r.total++
			if err := pl.jsonRow(doc, r); err != nil {
				return err
			}
		}
	}
}

func (pl *loadPlan) jsonError(err error) error {
	if pl.spec.stripOuter {
		return fmt.Errorf("Failed to parse json as array. error: %w", err)
	}
	return fmt.Errorf("Failed to parse json as document stream. error: %w", err)
}

// documents are the rows of one top-level value: its elements with strip_outer_array, else the object itself.
func (pl *loadPlan) documents(v json.RawMessage) ([]json.RawMessage, error) {
	if pl.spec.jsonRoot != "" {
		root, ok := jsonAt(v, pl.spec.jsonRoot)
		if !ok {
			return nil, fmt.Errorf("illegal json root: %s", pl.spec.jsonRoot)
		}
		v = root
	}
	isArray := len(v) > 0 && v[0] == '['
	switch {
	case pl.spec.stripOuter && !isArray:
		return nil, pl.jsonError(errors.New("INCORRECT_TYPE: The JSON element does not have the requested type."))
	case !pl.spec.stripOuter && isArray:
		return nil, errors.New("The value is array type in json document stream, you can set strip_outer_array=true to parse each element of the array as individual rows")
	case !isArray:
		return []json.RawMessage{v}, nil
	}
	var docs []json.RawMessage
	if err := json.Unmarshal(v, &docs); err != nil {
		return nil, pl.jsonError(err)
	}
	return docs, nil
}

// jsonRow matches keys to source columns (or follows the jsonpaths) and builds the row.
func (pl *loadPlan) jsonRow(doc json.RawMessage, r *loadResult) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(doc, &fields); err != nil || fields == nil {
		r.reject("Value is not a JSON object", string(doc))
		return nil
	}
	src := make([]any, len(pl.sources))
	for i, s := range pl.sources {
		var raw json.RawMessage
		if pl.paths != nil {
			raw, _ = jsonAt(doc, pl.paths[i])
		} else {
			raw = fields[s.name]
		}
		val, err := jsonValue(raw)
		if err == nil {
			val, err = pl.sourceValue(i, val)
		}
		if err != nil {
			r.reject(err.Error(), string(doc))
			return nil
		}
		src[i] = val
	}
	return pl.build(src, r, string(doc))
}

// jsonValue is a JSON value as source text; NULL for null and for an absent key.
func jsonValue(raw json.RawMessage) (any, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '"' {
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	if raw[0] != '{' && raw[0] != '[' {
		return string(raw), nil
	}
	var buf bytes.Buffer
	err := json.Compact(&buf, raw)
	return buf.String(), err
}

// parseJSONPaths reads ["$.a", "$.b.c"].
func parseJSONPaths(s string) ([]string, error) {
	var paths []string
	if err := json.Unmarshal([]byte(s), &paths); err != nil {
		return nil, fmt.Errorf("Invalid json path: %s", s)
	}
	for _, p := range paths {
		if p != "$" && !strings.HasPrefix(p, "$.") || strings.ContainsAny(p, "[*") {
			return nil, fmt.Errorf("Invalid json path: %s (the stand-in knows only $.a.b)", p)
		}
	}
	return paths, nil
}

// jsonAt follows a path of object keys.
func jsonAt(doc json.RawMessage, path string) (json.RawMessage, bool) {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, "$"), ".")
	for rest != "" {
		key, tail, _ := strings.Cut(rest, ".")
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(doc, &fields); err != nil {
			return nil, false
		}
		next, ok := fields[strings.Trim(key, `"`)]
		if !ok {
			return nil, false
		}
		doc, rest = next, tail
	}
	return doc, true
}

func (pl *loadPlan) runCSV(body []byte, r *loadResult) error {
	lines := strings.Split(string(body), pl.spec.delimiter)
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	for i, line := range lines {
		if i < pl.spec.skipHeader {
			continue
		}
		r.total++
		cells := pl.splitCSV(line)
		if len(cells) != len(pl.sources) {
			r.reject(fmt.Sprintf("Value count does not match column count. Expect %d, but got %d", len(pl.sources), len(cells)), line)
			continue
		}
		if err := pl.csvRow(cells, line, r); err != nil {
			return err
		}
	}
	return nil
}

func (pl *loadPlan) csvRow(cells []string, line string, r *loadResult) error {
	src := make([]any, len(cells))
	for i, cell := range cells {
		var val any = cell
		if cell == `\N` {
			val = nil
		}
		val, err := pl.sourceValue(i, val)
		if err != nil {
			r.reject(err.Error(), line)
			return nil
		}
		src[i] = val
	}
	return pl.build(src, r, line)
}

func (pl *loadPlan) splitCSV(line string) []string {
	var cells []string
	if pl.spec.enclose == 0 {
		cells = strings.Split(line, pl.spec.separator)
	} else {
		cells = splitEnclosed(line, pl.spec.separator, pl.spec.enclose)
	}
	if pl.spec.trimSpace {
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
	}
	return cells
}

// splitEnclosed splits outside of quotes and takes the quotes off; a doubled quote is one.
func splitEnclosed(line, sep string, q byte) []string {
	var cells []string
	var cell strings.Builder
	quoted := false
	for i := 0; i < len(line); {
		switch {
		case line[i] == q && quoted && i+1 < len(line) && line[i+1] == q:
			cell.WriteByte(q)
			i += 2
		case line[i] == q:
			quoted = !quoted
			i++
		case !quoted && strings.HasPrefix(line[i:], sep):
			cells = append(cells, cell.String())
			cell.Reset()
			i += len(sep)
		default:
			cell.WriteByte(line[i])
			i++
		}
	}
	return append(cells, cell.String())
}
