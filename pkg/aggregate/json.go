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
type jsonDecoder struct {
	root  *node
	data  []byte
	pos   int
	depth int
	out   []value
	arena []byte // texts that differ from the raw bytes
}

func (d *jsonDecoder) decode(data []byte, out []value) Reason {
	d.data, d.pos, d.depth, d.out, d.arena = data, 0, 0, out, d.arena[:0]
	c := d.space()
	var ok bool
	if c == '{' {
		ok = d.object(d.root)
	} else {
		ok = d.value(c, nil)
	}
	d.space()
	end := d.pos
	d.data, d.out = nil, nil
	switch {
	case !ok || end != len(data):
		return ReasonUnparsable
	case c != '{':
		return ReasonNotObject
	default:
		return ""
	}
}

// space skips white space and returns the byte after it, 0 at the end (0 is no byte of JSON outside strings).
func (d *jsonDecoder) space() byte {
	for d.pos < len(d.data) {
		c := d.data[d.pos]
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return 0
		}
		d.pos++
	}
	return 0
}

// object reads an object at pos, whose fields go to the children of n; without n it is only checked.
func (d *jsonDecoder) object(n *node) bool {
	if d.depth++; d.depth > maxDepth {
		return false
	}
	d.pos++
	c := d.space()
	if c == '}' {
		d.pos++
		d.depth--
		return true
	}
	for {
		if c != '"' {
			return false
		}
		s, ok := d.string()
		if !ok {
			return false
		}
		var child *node
		if n != nil {
			child = d.match(n, s)
		}
		if d.space() != ':' {
			return false
		}
		d.pos++
		if !d.value(d.space(), child) {
			return false
		}
		switch d.space() {
		case ',':
			d.pos++
			c = d.space()
		case '}':
			d.pos++
			d.depth--
			return true
		default:
			return false
		}
	}
}

// array checks an array at pos.
func (d *jsonDecoder) array() bool {
	if d.depth++; d.depth > maxDepth {
		return false
	}
	d.pos++
	c := d.space()
	if c == ']' {
		d.pos++
		d.depth--
		return true
	}
	for {
		if !d.value(c, nil) {
			return false
		}
		switch d.space() {
		case ',':
			d.pos++
			c = d.space()
		case ']':
			d.pos++
			d.depth--
			return true
		default:
			return false
		}
	}
}

// value reads the value at pos, which begins with c, into the slots of n.
func (d *jsonDecoder) value(c byte, n *node) bool {
	slot := -1
	if n != nil {
		slot = n.slot
		if len(n.children) > 0 {
			clear(d.out[n.lo:n.hi]) // what an earlier object of the same key left
		}
	}
	switch c {
	case '"':
		s, ok := d.string()
		if ok && slot >= 0 {
			d.out[slot] = d.text(s)
		}
		return ok
	case '{':
		if slot >= 0 {
			d.out[slot] = value{kind: kindComposite}
		}
		return d.object(n)
	case '[':
		if slot >= 0 {
			d.out[slot] = value{kind: kindComposite}
		}
		return d.array()
	case 't':
		return d.literal("true", kindBool, slot)
	case 'f':
		return d.literal("false", kindBool, slot)
	case 'n':
		return d.literal("null", kindNone, slot)
	default:
		start := d.pos
		if !d.number() {
			return false
		}
		if slot >= 0 {
			d.out[slot] = value{kind: kindNumber, text: d.data[start:d.pos:d.pos]}
		}
		return true
	}
}

func (d *jsonDecoder) literal(word string, kind valueKind, slot int) bool {
	end := d.pos + len(word)
	if end > len(d.data) || string(d.data[d.pos:end]) != word {
		return false
	}
	if slot >= 0 {
		d.out[slot] = value{kind: kind, text: d.data[d.pos:end:end]}
		if kind == kindNone {
			d.out[slot].text = nil
		}
	}
	d.pos = end
	return true
}

// number checks a number at pos and moves behind it.
func (d *jsonDecoder) number() bool {
	data, i := d.data, d.pos
	if i < len(data) && data[i] == '-' {
		i++
	}
	switch {
	case i >= len(data):
		return false
	case data[i] == '0':
		i++
	default:
		start := i
		if i = digits(data, i); i == start {
			return false
		}
	}
	if i < len(data) && data[i] == '.' {
		start := i + 1
		if i = digits(data, start); i == start {
			return false
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start := i
		if i = digits(data, start); i == start {
			return false
		}
	}
	d.pos = i
	return true
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

// string checks the string at pos and moves behind it.
func (d *jsonDecoder) string() (rawString, bool) {
	data, i := d.data, d.pos+1
	s := rawString{start: i}
	for {
		if i+8 <= len(data) {
			m := special(binary.LittleEndian.Uint64(data[i:]))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) / 8
		} else if i >= len(data) {
			return s, false
		}
		switch c := data[i]; {
		case c == '"':
			s.end = i
			d.pos = i + 1
			return s, true
		case c == '\\':
			s.escaped = true
			n := escapeLen(data[i:])
			if n == 0 {
				return s, false
			}
			i += n
		case c < ' ':
			return s, false
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
