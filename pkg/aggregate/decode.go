package aggregate

import "strings"

// decoder finds the configured fields of one record. Formats other than JSON come as further implementations. A decoder has one
// owner and may keep scratch space; what it puts into out is valid until its next call and as long as data is.
type decoder interface {
	// decode puts what it finds into out, one zero value per slot of the program, and returns why the record is bad, or "".
	decode(data []byte, out []value) Reason
}

// valueKind is the type of a decoded field. The zero value stands for absent and null alike.
type valueKind uint8

const (
	kindNone valueKind = iota
	kindString
	kindNumber
	kindBool
	kindComposite // object or array
)

// value is one decoded field.
type value struct {
	kind valueKind
	// replaced says that text had invalid UTF-8 or lone surrogates, now U+FFFD.
	replaced bool
	// text is a string's content or the raw text of a number or boolean.
	text []byte
}

// node is one key in the tree of configured paths.
type node struct {
	key      string
	children []*node
	lengths  uint64 // bit per length of the children's keys, 63 and more in one: most keys are none of ours
	slot     int    // of the value itself, −1 if only something below is configured
	lo, hi   int    // slots of the value and everything below
}

// add makes nodes for a path and marks its end.
func (n *node) add(path []string) {
	if len(path) == 0 {
		n.slot = 0
		return
	}
	c := n.child(path[0])
	if c == nil {
		c = &node{key: path[0], slot: -1}
		n.children = append(n.children, c)
		n.lengths |= 1 << min(len(c.key), 63)
	}
	c.add(path[1:])
}

func (n *node) child(key string) *node {
	for _, c := range n.children {
		if c.key == key {
			return c
		}
	}
	return nil
}

// number gives every marked node a slot from next on, depth first, so that what is below a node is one range.
func (n *node) number(next int) int {
	n.lo = next
	if n.slot >= 0 {
		n.slot = next
		next++
	}
	for _, c := range n.children {
		next = c.number(next)
	}
	n.hi = next
	return next
}

// find returns the slot of a path that was added.
func (n *node) find(path string) int {
	for key := range strings.SplitSeq(path, ".") {
		n = n.child(key)
	}
	return n.slot
}
