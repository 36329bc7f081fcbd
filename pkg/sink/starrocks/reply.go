package starrocks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"rollcall/pkg/sink"
)

// loadReply is a reply to a load: the back end's (be stream_load_context.cpp) or the front end's (fe TransactionResult, RestBaseResult).
type loadReply struct {
	Status, Message, Label, ExistingJobStatus, ErrorURL string
	// Counted says that the row counts are there; a back end always sends them.
	Counted                             bool
	Total, Loaded, Filtered, Unselected int64
}

var errTrailing = errors.New("text after the JSON object")

// fields reads one JSON object with case-insensitive keys, as StarRocks' own SDK does. Two values for one key are an error: a reply
// that contradicts itself says nothing.
func fields(body []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	m := make(map[string]json.RawMessage)
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		k, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("key %v is not a string", key)
		}
		name := strings.ToLower(k)
		if old, ok := m[name]; ok && !bytes.Equal(old, value) {
			return nil, fmt.Errorf("two values for key %q", name)
		}
		m[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errTrailing
	}
	return m, nil
}

// text returns a string field; absent or null is empty, any other type is an error.
func text(m map[string]json.RawMessage, name string) (string, error) {
	raw, ok := m[name]
	if !ok || string(raw) == "null" {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("key %q: %w", name, err)
	}
	return s, nil
}

func decodeReply(body []byte) (loadReply, error) {
	m, err := fields(body)
	if err != nil {
		return loadReply{}, err
	}
	var r loadReply
	var msg string
	for _, f := range []struct {
		dst  *string
		name string
	}{
		{&r.Status, "status"},
		{&r.Message, "message"},
		{&msg, "msg"},
		{&r.Label, "label"},
		{&r.ExistingJobStatus, "existingjobstatus"},
		{&r.ErrorURL, "errorurl"},
	} {
		if *f.dst, err = text(m, f.name); err != nil {
			return loadReply{}, err
		}
	}
	if r.Message == "" {
		r.Message = msg
	}
	r.Counted = true
	for _, f := range []struct {
		dst  *int64
		name string
	}{
		{&r.Total, "numbertotalrows"},
		{&r.Loaded, "numberloadedrows"},
		{&r.Filtered, "numberfilteredrows"},
		{&r.Unselected, "numberunselectedrows"},
	} {
		raw, ok := m[f.name]
		if !ok {
			r.Counted = false
			continue
		}
		if err := json.Unmarshal(raw, f.dst); err != nil || string(raw) == "null" {
			return loadReply{}, fmt.Errorf("key %q: %.40s is no row count", f.name, raw)
		}
	}
	return r, nil
}

// decodeState reads the reply of get_load_state (fe GetStreamLoadState.java). An error means that the label's state was not said.
func decodeState(body []byte) (sink.LabelState, error) {
	m, err := fields(body)
	if err != nil {
		return "", err
	}
	status, err := text(m, "status")
	if err != nil {
		return "", err
	}
	state, err := text(m, "state")
	if err != nil {
		return "", err
	}
	if status != "OK" || state == "" {
		message, _ := text(m, "message")
		if message == "" {
			message, _ = text(m, "msg")
		}
		return "", fmt.Errorf("status %q, state %q: %s", status, state, excerpt(message))
	}
	switch s := sink.LabelState(state); s {
	case sink.LabelUnknown, sink.LabelPrepare, sink.LabelPrepared, sink.LabelCommitted, sink.LabelVisible, sink.LabelAborted:
		return s, nil
	default:
		return sink.LabelUnknown, nil
	}
}

// excerpt shortens a server's text for an error, on one line.
func excerpt(s string) string {
	const limit = 512
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\ufffd")), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
