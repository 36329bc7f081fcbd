package bitmap

import "encoding/binary"

// reader walks over the containers of an encoding made by writer. It trusts its input: foreign bytes go through Decode.
type reader struct {
	rest   []byte // groups not yet begun
	groups int    // how many of them
	bare   bool   // the only group has no key (code 2)

	high  uint64 // key of the open group
	n, i  int    // containers of the open group, and the next of them
	flags []byte // run flags, nil if there are none
	descs []byte
	body  []byte // payloads from container i on
}

func newReader(enc []byte) *reader {
	if enc[0] == codeBitmap32 {
		return &reader{rest: enc[1:], groups: 1, bare: true}
	}
	groups, n := binary.Uvarint(enc[1:])
	return &reader{rest: enc[1+n:], groups: int(groups)}
}

func (r *reader) next(c *container) bool {
	if r.i == r.n {
		if r.n > 0 {
			r.rest = r.body
			r.n = 0
		}
		if r.groups == 0 {
			return false
		}
		r.open()
	}
	desc := r.descs[4*r.i:]
	c.key = r.high<<16 | uint64(binary.LittleEndian.Uint16(desc))
	c.card = int(binary.LittleEndian.Uint16(desc[2:])) + 1
	size := 0
	switch {
	case r.flags != nil && r.flags[r.i/8]>>(r.i%8)&1 == 1:
		c.kind, size = kindRuns, 2+4*int(binary.LittleEndian.Uint16(r.body))
	case c.card <= maxArray:
		c.kind, size = kindArray, 2*c.card
	default:
		c.kind, size = kindBits, bitsBytes
	}
	c.data, r.body = r.body[:size:size], r.body[size:]
	r.i++
	return true
}

// open reads the header of the next group.
func (r *reader) open() {
	r.groups--
	at := 0
	r.high = 0
	if !r.bare {
		r.high = uint64(binary.LittleEndian.Uint32(r.rest))
		at = 4
	}
	cookie := binary.LittleEndian.Uint32(r.rest[at:])
	at += 4
	offsets := true
	if cookie&0xffff == cookieRuns {
		r.n = int(cookie>>16) + 1
		r.flags = r.rest[at : at+(r.n+7)/8]
		at += len(r.flags)
		offsets = r.n >= noOffsetBelow
	} else {
		r.n = int(binary.LittleEndian.Uint32(r.rest[at:]))
		r.flags = nil
		at += 4
	}
	r.descs = r.rest[at : at+4*r.n]
	at += 4 * r.n
	if offsets {
		at += 4 * r.n
	}
	r.body = r.rest[at:]
	r.i = 0
}
