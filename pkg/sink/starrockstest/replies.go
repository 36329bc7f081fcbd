package starrockstest

import (
	"encoding/json"
	"strings"
)

// ordered is a JSON object whose keys keep their order, printed as rapidjson's PrettyWriter does.
type ordered struct {
	keys []string
	vals []any
}

func (o *ordered) set(key string, val any) *ordered {
	for i, k := range o.keys {
		if k == key {
			o.vals[i] = val
			return o
		}
	}
	o.keys, o.vals = append(o.keys, key), append(o.vals, val)
	return o
}

func (o *ordered) pretty() string {
	var sb strings.Builder
	sb.WriteString("{\n")
	for i, k := range o.keys {
		key, _ := json.Marshal(k)           //nolint:errchkjson // a string always marshals
		val, err := marshalPlain(o.vals[i]) // URLs keep their &
		if err != nil {
			val = "null"
		}
		sb.WriteString("    " + string(key) + ": " + val)
		if i < len(o.keys)-1 {
			sb.WriteByte(',')
		}
		sb.WriteByte('\n')
	}
	sb.WriteString("}")
	return sb.String()
}

func marshalPlain(v any) (string, error) {
	var sb strings.Builder
	enc := json.NewEncoder(&sb)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(sb.String(), "\n"), err
}

// smallShape is RestBaseResult: what FEs answer for 401, 500 and errors of GET APIs. StarRocks: RestBaseResult.java.
func smallShape(status, msg string) string {
	code := "1"
	if status == "OK" {
		code = "0"
	}
	type result struct {
		Status  string `json:"status"`
		Code    string `json:"code"`
		Msg     string `json:"msg"`
		Message string `json:"message"`
	}
	s, err := marshalPlain(result{status, code, msg, msg})
	if err != nil {
		return "{}"
	}
	return s
}

// feResult is TransactionResult: FE errors of _stream_load and every FE answer of /api/transaction.
func feResult(status, msg string) *ordered {
	return new(ordered).set("Status", status).set("Message", msg)
}
