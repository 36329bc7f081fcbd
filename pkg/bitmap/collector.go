package bitmap

import "slices"

// spillBytes is the size of the pending buffer from which on it is merged into the known set instead of growing further.
const spillBytes = 32 << 10

// Collector gathers ids. Its zero value is empty and ready; it has one owner and must not be copied once used.
//
// Ids are appended and only sorted, freed of doubles and packed when the buffer is full: adding to a Roaring bitmap one by one is
// slow for random ids and quadratic for 64-bit hashes. The buffer never outgrows what is known to be distinct by more than a factor
// of two or so, so memory follows the number of distinct ids, not of additions.
type Collector struct {
	pending []uint64
	known   Set
}

// Add takes an id and returns by how many bytes the memory held has changed (negative after doubles were removed).
func (c *Collector) Add(id uint64) int64 {
	n := len(c.pending)
	if n < cap(c.pending) {
		if n > 0 && c.pending[n-1] == id {
			return 0
		}
		c.pending = append(c.pending, id)
		return 0
	}
	before := c.Bytes()
	c.makeRoom()
	c.pending = append(c.pending, id)
	return c.Bytes() - before
}

// makeRoom leaves at least one free place in pending.
func (c *Collector) makeRoom() {
	c.pending = slices.Compact(sorted(c.pending))
	n, room := len(c.pending), cap(c.pending)
	if n <= room/2 && room > 0 {
		return
	}
	if int64(room)*8 < max(spillBytes, c.known.Bytes()) {
		bigger := make([]uint64, n, max(2, 2*room))
		copy(bigger, c.pending)
		c.pending = bigger
		return
	}
	c.known = Union(c.known, FromSorted(slices.Clone(c.pending)))
	c.pending = c.pending[:0]
}

// Len is an upper bound for the number of distinct ids.
func (c *Collector) Len() int { return len(c.pending) + c.known.Len() }

// Bytes is the memory held beyond the Collector value itself.
func (c *Collector) Bytes() int64 { return 8*int64(cap(c.pending)) + c.known.Bytes() }

// Take moves the ids out and leaves the collector empty.
func (c *Collector) Take() Set {
	ids := slices.Compact(sorted(c.pending))
	if cap(ids)-len(ids) > len(ids)/4 {
		ids = slices.Clone(ids) // also gives no memory to an empty set
	}
	s := Union(c.known, FromSorted(ids))
	*c = Collector{}
	return s
}
