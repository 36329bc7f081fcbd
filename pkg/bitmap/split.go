package bitmap

import "slices"

// Split cuts the set into parts whose encodings have at most maxEncoded bytes each; their union is the set. A part has one id at
// least, whatever the limit (an encoded id takes up to 9 bytes, two ids up to 46). An empty set has one part, itself.
func (s Set) Split(maxEncoded int) []Set {
	if s.EncodedSizeMax() <= maxEncoded || s.Len() < 2 {
		return []Set{s}
	}
	var (
		parts []Set
		w     writer
		c     container
	)
	closePart := func() {
		if w.n > 0 {
			parts = append(parts, w.set())
		}
		w = writer{}
	}
	for r := s.containers(); r.next(&c); {
		grown := w.size
		grown.add(c.key, c.kind, len(c.data))
		if grown.size() > maxEncoded {
			closePart()
			grown = sizer{}
			grown.add(c.key, c.kind, len(c.data))
			if grown.size() > maxEncoded {
				parts = append(parts, splitContainer(&c, maxEncoded)...)
				continue
			}
		}
		w.add(&c)
	}
	closePart()
	return parts
}

// splitContainer cuts one container that is too big alone, which takes a limit below what any table has.
func splitContainer(c *container, maxEncoded int) []Set {
	var ids []uint64
	c.each(func(id uint64) bool {
		ids = append(ids, id)
		return true
	})
	per := max(1, (maxEncoded-headerSize(1, false)-4-2)/2) // as an array, under code 4
	var parts []Set
	for part := range slices.Chunk(ids, per) {
		parts = append(parts, FromSorted(slices.Clone(part)))
	}
	return parts
}
