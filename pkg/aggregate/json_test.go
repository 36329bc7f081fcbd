package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fields decodes paths of a document; the result has an entry per path that is neither absent nor null.
func fields(doc string, paths ...string) (map[string]value, Reason) {
	return fieldsAfter("", doc, paths...)
}

// fieldsAfter is fields by a decoder that had another document before.
func fieldsAfter(before, doc string, paths ...string) (map[string]value, Reason) {
	root := &node{slot: -1}
	for _, p := range paths {
		root.add(strings.Split(p, "."))
	}
	out := make([]value, root.number(0))
	d := &jsonDecoder{root: root}
	if before != "" {
		_ = d.decode([]byte(before), out)
		clear(out)
	}
	reason := d.decode([]byte(doc), out)
	got := map[string]value{}
	for _, p := range paths {
		if v := out[root.find(p)]; v.kind != kindNone {
			got[p] = v
		}
	}
	return got, reason
}

func TestDecodeValues(t *testing.T) {
	str := func(s string) value { return value{kind: kindString, text: []byte(s)} }
	bad := func(s string) value { return value{kind: kindString, text: []byte(s), replaced: true} }
	num := func(s string) value { return value{kind: kindNumber, text: []byte(s)} }
	tests := []struct {
		name, doc string
		want      map[string]value
	}{
		{"nothing", `{}`, map[string]value{}},
		{"plain", `{"a":"x","d":1}`, map[string]value{"a": str("x"), "d": num("1")}},
		{"white space everywhere", " \t\r\n{ \"a\" : \"x\" , \"d\" : -1.50e+3 } \n", map[string]value{"a": str("x"), "d": num("-1.50e+3")}},
		{"booleans", `{"a":true,"d":false}`, map[string]value{"a": {kind: kindBool, text: []byte("true")}, "d": {kind: kindBool, text: []byte("false")}}},
		{"null is absent", `{"a":null,"d":1}`, map[string]value{"d": num("1")}},
		{"composites", `{"a":[1,{"b":2}],"d":{}}`, map[string]value{"a": {kind: kindComposite}, "d": {kind: kindComposite}}},
		{"nested", `{"x":{"y":{"z":"deep"}},"y":1}`, map[string]value{"x.y.z": str("deep")}},
		{"a path through a scalar is absent", `{"x":{"y":5}}`, map[string]value{}},
		{"a path through an array is absent", `{"x":[{"y":{"z":1}}]}`, map[string]value{}},
		{"a field and what is below it", `{"a":{"b":7}}`, map[string]value{"a": {kind: kindComposite}, "a.b": num("7")}},
		{"a key with a dot is another key", `{"x.y.z":1}`, map[string]value{}},
		{"last of doubles", `{"a":1,"a":"two","d":1,"d":null}`, map[string]value{"a": str("two")}},
		{"last of doubled objects as a whole", `{"x":{"y":{"z":1}},"x":{"w":2}}`, map[string]value{}},
		{"last of doubled inner objects", `{"x":{"y":{"z":1},"y":{"z":2,"v":3}}}`, map[string]value{"x.y.z": num("2")}},
		{"object then scalar", `{"a":{"b":1},"a":5}`, map[string]value{"a": num("5")}},
		{"escapes", `{"a":"\"\\\/\b\f\n\r\té\u0000"}`, map[string]value{"a": str("\"\\/\b\f\n\r\té\x00")}},
		{"escaped key", `{"\u0061":"x","\u0078":{"\u0079":{"z":1}}}`, map[string]value{"a": str("x"), "x.y.z": num("1")}},
		{"a key that is escaped and an arena in use", `{"d":"\u0041","\u0061":"\u0042"}`, map[string]value{"d": str("A"), "a": str("B")}},
		{"surrogate pair", `{"a":"\ud83d\ude00"}`, map[string]value{"a": str("😀")}},
		{"lone surrogates", `{"a":"\ud83dx\ude00"}`, map[string]value{"a": bad("\ufffdx\ufffd")}},
		{"high surrogate twice", `{"a":"\ud83d\ud83d\ude00"}`, map[string]value{"a": bad("\ufffd😀")}},
		{"wide", `{"a":"日本語","d":"ÄÖ"}`, map[string]value{"a": str("日本語"), "d": str("ÄÖ")}},
		{"a run of invalid bytes is one", "{\"a\":\"x\xff\xfe\xfdy\xc3\"}", map[string]value{"a": bad("x\ufffdy\ufffd")}},
		{"cut rune before an escape", "{\"a\":\"\xe6\x97\\n\xff\"}", map[string]value{"a": bad("\ufffd\n\ufffd")}},
		{"U+FFFD itself is valid", "{\"a\":\"\ufffd\"}", map[string]value{"a": str("\ufffd")}},
		{"invalid UTF-8 elsewhere is no concern", "{\"q\":\"\xff\",\"a\":\"x\"}", map[string]value{"a": str("x")}},
		{"invalid UTF-8 in a key is no match", "{\"a\xff\":1}", map[string]value{}},
		{"empty string", `{"a":""}`, map[string]value{"a": str("")}},
		{"empty key", `{"":1,"a":2}`, map[string]value{"a": num("2")}},
		{"seven, eight, nine bytes", `{"a":"1234567","d":"12345678","x":{"y":{"z":"123456789"}}}`, map[string]value{"a": str("1234567"), "d": str("12345678"), "x.y.z": str("123456789")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, reason := fields(tt.doc, "a", "a.b", "d", "x.y.z")
			require.Empty(t, reason)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	deep := func(n int) string { return `{"q":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	_, reason := fields(deep(maxDepth), "a")
	require.Empty(t, reason, "%d deep is allowed", maxDepth)
	_, reason = fields(strings.Repeat(`{"a":`, maxDepth)+"1"+strings.Repeat("}", maxDepth), "a")
	require.Empty(t, reason, "%d deep is allowed", maxDepth)
	objects := strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1)
	for _, doc := range []string{
		"", " ", "{", "}", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{"a":1}}`, `{"a":1} x`, `{"a":1}{"a":2}`,
		`{"a":01}`, `{"a":-}`, `{"a":+1}`, `{"a":.5}`, `{"a":5.}`, `{"a":1e}`, `{"a":1e+}`, `{"a":0x1}`, `{"a":1 2}`, `{"a":NaN}`, `{"a":--1}`,
		`{"a":tru}`, `{"a":truex}`, `{"a":nul}`, `{"a":True}`, `{"a":"x}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u123g"}`, "{\"a\":\"\\", "{\"a\":\"\n\"}",
		"{\"a\":\"\x1f\"}", "{\"a\":1\x00}", "\x00{}", "\ufeff{}", "{\"a\":1}\x00", `{"a":'x'}`, `{"q":[1,]}`, `{"q":[,1]}`, `{"q":[1 2]}`, `{"q":[}`, `{"q":[1}`,
		`{"a":1,"a"}`, `[1,2`, `"x`, "\xff", deep(maxDepth + 1), objects, strings.Repeat("[", 1_000_000), `{"a":1//x` + "\n}",
	} {
		_, reason := fields(doc, "a", "x.y")
		require.Equal(t, ReasonUnparsable, reason, "%.60q", doc)
	}
	for _, doc := range []string{`[]`, `5`, ` "x" `, `null`, `true`, `[{"a":1}]`, `-0.5e3`} {
		_, reason := fields(doc, "a")
		require.Equal(t, ReasonNotObject, reason, doc)
	}
}

// What a decoder has learnt of the records before changes nothing: not for other keys in the same place, not for the same ones elsewhere.
func TestDecodeAfterOthers(t *testing.T) {
	docs := []string{
		`{"a":1,"d":2,"x":{"y":{"z":3}}}`, `{"a":1,"d":2,"x":{"y":{"z":3}}}`, `{"d":1,"a":2}`, `{"q":{"a":1},"a":2}`, `{"a":{"q":1},"d":2}`, `{"a":{"b":1},"d":2}`,
		`{"a" :1,"d": 2}`, `{"aa":1,"dd":2}`, `{"\u0061":1,"d":2}`, `{"":1,"d":2}`, `{"a":1`, `{"a"`, `{"a":`, `{`, `{"x":{"y":5}}`, `{"x":{"z":5}}`, `{"x":[{"y":{"z":1}}]}`,
		`{"a_key_of_some_length":1,"a":2}`, `{"a_key_of_some_lengtH":1,"a":2}`, `{"a_key_that_is_too_long_for_a_hint_":1,"a":2}`, `{"0123456":1,"a":2}`, `{"0123457":1,"a":2}`,
		`{"01234":1,"a":3}`, `{"01234":1}`, `{"01235":1}`, `[{"a":1}]`, "{\"a\xff\":1}",
	}
	paths := []string{"a", "a.b", "d", "x.y.z", "0123456"}
	root := &node{slot: -1}
	for _, p := range paths {
		root.add(strings.Split(p, "."))
	}
	slots := root.number(0)
	decode := func(d *jsonDecoder, doc string) ([]value, Reason) {
		out := make([]value, slots)
		return out, d.decode([]byte(doc), out)
	}
	for _, first := range docs {
		for _, second := range docs {
			learnt := &jsonDecoder{root: root}
			_, _ = decode(learnt, first)
			got, reason := decode(learnt, second)
			want, wantReason := decode(&jsonDecoder{root: root}, second)
			require.Equal(t, wantReason, reason, "%s after %s", second, first)
			if reason == "" {
				require.Equal(t, want, got, "%s after %s", second, first)
			}
		}
	}
}

// jsonDepth is how deep a valid document nests.
func jsonDepth(doc []byte) int {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	depth, deepest := 0, 0
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return deepest
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// oneReplacement makes every run of U+FFFD one, since encoding/json has one per invalid byte.
func oneReplacement(s string) string {
	for strings.Contains(s, "\ufffd\ufffd") {
		s = strings.ReplaceAll(s, "\ufffd\ufffd", "\ufffd")
	}
	return s
}

// wantValue is what encoding/json says of a path, as kind and text.
func wantValue(doc map[string]any, path string) (valueKind, string) {
	var v any = doc
	for key := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return kindNone, ""
		}
		v = m[key]
	}
	switch v := v.(type) {
	case nil:
		return kindNone, ""
	case string:
		return kindString, v
	case json.Number:
		return kindNumber, v.String()
	case bool:
		if v {
			return kindBool, "true"
		}
		return kindBool, "false"
	default:
		return kindComposite, ""
	}
}

func FuzzDecode(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"a":1,"d":"x"}`, `{"a":{"b":[1,2,{"c":null}]},"d":true}`, `{"x":{"y":{"z":"\ud83d\ude00"}}}`, "{\"a\":\"\xff\xfe\"}", `[1]`, `{"a":1e5,"a":-0.0}`,
		`{"\u0061":"\n"}`, `{"a":"0123456789abcdef\\"}`, ` { "d" : [ ] } `, `{"é":"ü"}`,
	} {
		f.Add([]byte(`{"a":1,"d":"x"}`), []byte(doc))
	}
	paths := []string{"a", "a.b", "a.b.c", "d", "x.y.z", "é"}
	f.Fuzz(func(t *testing.T, before, doc []byte) {
		got, reason := fieldsAfter(string(before), string(doc), paths...)
		var want any
		dec := json.NewDecoder(bytes.NewReader(doc))
		dec.UseNumber()
		valid := json.Valid(doc)
		if valid {
			if err := dec.Decode(&want); err != nil {
				t.Fatal(err)
			}
		}
		object, isObject := want.(map[string]any)
		switch {
		case !valid:
			if reason != ReasonUnparsable {
				t.Fatalf("accepted (%q) what is no JSON", reason)
			}
			return
		case jsonDepth(doc) > maxDepth:
			if reason != ReasonUnparsable {
				t.Fatalf("too deep, but %q", reason)
			}
			return
		case !isObject:
			if reason != ReasonNotObject {
				t.Fatalf("no object, but %q", reason)
			}
			return
		case reason != "":
			t.Fatalf("refused valid JSON: %q", reason)
		}
		for _, p := range paths {
			kind, text := wantValue(object, p)
			v := got[p]
			if v.kind != kind || oneReplacement(string(v.text)) != oneReplacement(text) {
				t.Fatalf("%s: %d %q, want %d %q", p, v.kind, v.text, kind, text)
			}
		}
	})
}
