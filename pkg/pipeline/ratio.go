package pipeline

// ratioWindow remembers which of the last records of a partition were bad or in the future (DEADLETTER_MAX_RATIO).
type ratioWindow struct {
	bits [(ratioSize + 63) / 64]uint64
	n    int // records seen, up to ratioSize
	at   int
	bad  int
}

// ratioSize is how many records the ratio is over (DESIGN §6). Fewer than that never stop a partition: one bad record at the
// beginning is a bad record, not a broken topic.
const ratioSize = 1000

// add remembers one record.
func (w *ratioWindow) add(bad bool) {
	word, bit := w.at/64, uint64(1)<<(w.at%64)
	if w.n == ratioSize {
		if w.bits[word]&bit != 0 {
			w.bad--
		}
	} else {
		w.n++
	}
	w.bits[word] &^= bit
	if bad {
		w.bits[word] |= bit
		w.bad++
	}
	w.at = (w.at + 1) % ratioSize
}

// exceeds reports whether the share of bad records among the last ratioSize is above limit; 1 turns the check off.
func (w *ratioWindow) exceeds(limit float64) bool {
	return limit < 1 && w.n == ratioSize && float64(w.bad) > limit*ratioSize
}
