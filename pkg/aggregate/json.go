package aggregate

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// maxDepth is how deep objects and arrays may nest, the outermost included.
const maxDepth = 512

// jsonDecoder reads one JSON object (RFC 8259) in one pass. The syntax of all of it is checked, but only configured fields are
// touched. The last of several equal keys counts, and if it is an object it counts as a whole.
//
// Positions go from call to call as values, not through the decoder, so that they stay in registers. A negative one means that the
// syntax is wrong.
type jsonDecoder struct {
	root  *node
	data  []byte
	out   []value
	depth int
	arena []byte // texts that differ from the raw bytes

	keys  int // keys met in this record
	hints [maxHints]hint
}

// bad is the position after wrong syntax.
const bad = -1

const (
	maxHints = 64
	maxHint  = 32
)

// hint is what the n-th key of the record before was. A topic's records mostly have the same keys in the same order, and comparing
// bytes with a key that was checked and looked up already is all there is to do then.
type hint struct {
	parent, child *node
	size          uint8
	text          [maxHint]byte // the key in its quotes and the colon right behind it
}

func (d *jsonDecoder) decode(data []byte, out []value) Reason {
	d.data, d.depth, d.out, d.arena, d.keys = data, 0, out, d.arena[:0], 0
	i := skip(data, 0)
	object := i < len(data) && data[i] == '{'
	if object {
		i = d.object(data, i, d.root)
	} else {
		i = d.value(data, i, nil)
	}
	d.data, d.out = nil, nil
	switch {
	case i < 0 || skip(data, i) != len(data):
		return ReasonUnparsable
	case !object:
		return ReasonNotObject
	default:
		return ""
	}
}

// skip is where white space from i on ends.
func skip(data []byte, i int) int {
	for i < len(data) && data[i] <= ' ' && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// object reads the object at i, whose fields go to the children of n; without n it is only checked.
func (d *jsonDecoder) object(data []byte, i int, n *node) int {
	if d.depth++; d.depth > maxDepth {
		return bad
	}
	if i = skip(data, i+1); i < len(data) && data[i] == '}' {
		d.depth--
		return i + 1
	}
	for {
		var child *node
		if child, i = d.key(data, i, n); i < 0 {
			return bad
		}
		if i = d.value(data, skip(data, i), child); i < 0 {
			return bad
		}
		if i = skip(data, i); i >= len(data) {
			return bad
		}
		switch data[i] {
		case ',':
			i = skip(data, i+1)
		case '}':
			d.depth--
			return i + 1
		default:
			return bad
		}
	}
}

// key reads the key at i and the colon behind it, and finds the child of n that it names, if there is one.
func (d *jsonDecoder) key(data []byte, i int, n *node) (*node, int) {
	at := d.keys
	d.keys++
	if at < maxHints {
		h := &d.hints[at]
		if end := i + int(h.size); h.parent == n && h.size > 0 && end <= len(data) && string(data[i:end]) == string(h.text[:h.size]) {
			return h.child, end
		}
	}
	return d.newKey(data, i, n, at)
}

// newKey is key for one that the hint does not foretell, and makes it the hint for the records to come.
func (d *jsonDecoder) newKey(data []byte, i int, n *node, at int) (*node, int) {
	if i >= len(data) || data[i] != '"' {
		return nil, bad
	}
	s, end := scan(data, i+1)
	if end < 0 {
		return nil, bad
	}
	var child *node
	if n != nil {
		child = d.match(n, s)
	}
	colon := skip(data, end)
	if colon >= len(data) || data[colon] != ':' {
		return nil, bad
	}
	if at < maxHints && colon == end && end+1-i <= maxHint {
		h := &d.hints[at]
		h.parent, h.child, h.size = n, child, uint8(copy(h.text[:], data[i:end+1])) //nolint:gosec // at most maxHint
	}
	return child, colon + 1
}

// array checks the array at i.
func (d *jsonDecoder) array(data []byte, i int) int {
	if d.depth++; d.depth > maxDepth {
		return bad
	}
	if i = skip(data, i+1); i < len(data) && data[i] == ']' {
		d.depth--
		return i + 1
	}
	for {
		if i = d.value(data, i, nil); i < 0 {
			return bad
		}
		if i = skip(data, i); i >= len(data) {
			return bad
		}
		switch data[i] {
		case ',':
			i = skip(data, i+1)
		case ']':
			d.depth--
			return i + 1
		default:
			return bad
		}
	}
}

// value reads the value at i into the slots of n; without n it is only checked.
func (d *jsonDecoder) value(data []byte, i int, n *node) int {
	if i >= len(data) {
		return bad
	}
	slot := -1
	if n != nil {
		slot = n.slot
		if len(n.children) > 0 {
			clear(d.out[n.lo:n.hi]) // what an earlier object of the same key left
		}
	}
	switch c := data[i]; c {
	case '"':
		s, end := scan(data, i+1)
		if slot >= 0 && end >= 0 {
			d.out[slot] = d.text(s)
		}
		return end
	case '{', '[':
		if slot >= 0 {
			d.out[slot] = value{kind: kindComposite}
		}
		if c == '[' {
			return d.array(data, i)
		}
		return d.object(data, i, n)
	case 't':
		return d.literal(data, i, "true", kindBool, slot)
	case 'f':
		return d.literal(data, i, "false", kindBool, slot)
	case 'n':
		return d.literal(data, i, "null", kindNone, slot)
	default:
		end := number(data, i)
		if slot >= 0 && end >= 0 {
			d.out[slot] = value{kind: kindNumber, text: data[i:end:end]}
		}
		return end
	}
}

func (d *jsonDecoder) literal(data []byte, i int, word string, kind valueKind, slot int) int {
	end := i + len(word)
	if end > len(data) || string(data[i:end]) != word {
		return bad
	}
	if slot >= 0 {
		d.out[slot] = value{kind: kind, text: data[i:end:end]}
		if kind == kindNone {
			d.out[slot].text = nil
		}
	}
	return end
}

// number is the end of the number at i.
func number(data []byte, i int) int {
	if i < len(data) && data[i] == '-' {
		i++
	}
	switch {
	case i >= len(data):
		return bad
	case data[i] == '0':
		i++
	default:
		start := i
		if i = digits(data, i); i == start {
			return bad
		}
	}
	if i < len(data) && data[i] == '.' {
		start := i + 1
		if i = digits(data, start); i == start {
			return bad
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start := i
		if i = digits(data, start); i == start {
			return bad
		}
	}
	return i
}

// digits is the end of the digits at i.
func digits(data []byte, i int) int {
	for i < len(data) && data[i]-'0' <= 9 {
		i++
	}
	return i
}

// rawString is a checked string between its quotes.
type rawString struct {
	start, end int
	escaped    bool // has escapes
	wide       bool // has bytes beyond ASCII
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, by the high bit of the lowest such byte at least, the bytes of w that a string scan must look at: quote, backslash,
// control characters and bytes beyond ASCII. Marks above the lowest one may be wrong.
func special(w uint64) uint64 {
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w | w) & highs
}

// scan checks the string whose content begins at i and says where its closing quote is passed.
func scan(data []byte, i int) (s rawString, end int) {
	s.start = i
	for {
		if i+8 <= len(data) {
			m := special(binary.LittleEndian.Uint64(data[i:]))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) / 8
		} else if i >= len(data) {
			return s, bad
		}
		switch c := data[i]; {
		case c == '"':
			s.end = i
			return s, i + 1
		case c == '\\':
			s.escaped = true
			n := escapeLen(data[i:])
			if n == 0 {
				return s, bad
			}
			i += n
		case c < ' ':
			return s, bad
		default:
			s.wide = s.wide || c >= utf8.RuneSelf
			i++
		}
	}
}

// escapeLen is the length of the escape sequence b begins with, 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b); ok {
			return 6
		}
	}
	return 0
}

// hex4 reads the \uXXXX that b begins with.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// match finds the child of n whose key is s. Configured keys are valid UTF-8 without U+FFFD, so only escapes must be resolved.
func (d *jsonDecoder) match(n *node, s rawString) *node {
	key := d.data[s.start:s.end]
	if !s.escaped && n.lengths>>min(len(key), 63)&1 == 0 {
		return nil
	}
	if s.escaped {
		mark := len(d.arena)
		key = d.text(s).text
		d.arena = d.arena[:mark]
	}
	for _, c := range n.children {
		if c.key == string(key) {
			return c
		}
	}
	return nil
}

// text is the content of a string: escapes resolved, a run of invalid UTF-8 and every lone surrogate replaced by U+FFFD.
func (d *jsonDecoder) text(s rawString) value {
	raw := d.data[s.start:s.end:s.end]
	if !s.escaped && (!s.wide || utf8.Valid(raw)) {
		return value{kind: kindString, text: raw}
	}
	start := len(d.arena)
	v := value{kind: kindString}
	invalid := false // inside a run of invalid UTF-8
	for i := 0; i < len(raw); {
		c := raw[i]
		if c == '\\' {
			n, replaced := d.unescape(raw[i:])
			v.replaced = v.replaced || replaced
			invalid = false
			i += n
			continue
		}
		if c < utf8.RuneSelf {
			d.arena = append(d.arena, c)
			invalid = false
			i++
			continue
		}
		r, n := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && n == 1 {
			if !invalid {
				d.arena = utf8.AppendRune(d.arena, utf8.RuneError)
			}
			invalid, v.replaced = true, true
		} else {
			d.arena = append(d.arena, raw[i:i+n]...)
			invalid = false
		}
		i += n
	}
	v.text = d.arena[start:len(d.arena):len(d.arena)]
	return v
}

// unescape appends what the checked escape sequence at the start of b stands for, and returns its length and whether it was a lone
// surrogate.
func (d *jsonDecoder) unescape(b []byte) (n int, replaced bool) {
	c := b[1]
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, _ := hex4(b)
		n = 6
		if r >= 0xd800 && r < 0xe000 {
			low, ok := hex4(b[6:])
			if ok && r < 0xdc00 && low >= 0xdc00 && low < 0xe000 {
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
				n = 12
			} else {
				r, replaced = utf8.RuneError, true
			}
		}
		d.arena = utf8.AppendRune(d.arena, r)
		return n, replaced
	}
	d.arena = append(d.arena, c)
	return 2, false
}
