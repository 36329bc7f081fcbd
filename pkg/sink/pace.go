package sink

import (
	"math/rand/v2"
	"time"
)

const (
	widestFactor = 10
	widest       = 5 * time.Minute
	limitFloor   = 4 << 10
	limitMemory  = time.Hour
	backoffStep  = time.Second
	backoffMax   = 10 * time.Second
	// transientMax leaves room for jitter and for the attempt itself in the 10 s after which a worker goes on once StarRocks is back.
	transientMax  = 8 * time.Second
	permanentMax  = 30 * time.Second
	refusedWait   = 9 * time.Second
	closingMax    = 5 * time.Second
	retryAfterMax = 5 * time.Minute
	jitterShare   = 0.1
)

// pace is what the flusher has learnt about how often and how much the target takes. A plain state machine; the Flusher guards it.
type pace struct {
	base, interval time.Duration
	maxBytes       int64
	// limit bounds a body; halved when the target says that one was too large.
	limit int64
	// refused is the length of the smallest body refused lately, at refusedAt.
	refused   int64
	refusedAt time.Time
	// ratio is encoded bytes per estimated byte.
	ratio float64
	// lastDuration is how long the last done attempt took.
	lastDuration time.Duration
}

func newPace(interval time.Duration, maxBytes int64) *pace {
	return &pace{base: interval, interval: interval, maxBytes: maxBytes, limit: maxBytes, ratio: 1}
}

// widened reports whether overload has made the interval longer than configured.
func (p *pace) widened() bool { return p.interval > p.base }

// overloaded doubles the interval, up to ten times the configured one or five minutes.
func (p *pace) overloaded() {
	p.interval = min(p.interval*2, max(p.base, min(p.base*widestFactor, widest)))
}

// done notes a load that got through: the interval narrows by a quarter, and the limit grows by an eighth, but for an hour not up to what was
// refused.
func (p *pace) done(now time.Time, bytes int64, took time.Duration) {
	p.lastDuration = took
	p.interval = max(p.base, p.interval*3/4)
	if p.limit == p.maxBytes || bytes < p.limit/2 {
		return
	}
	top := p.maxBytes
	if now.Sub(p.refusedAt) < limitMemory {
		top = min(top, p.refused*7/8)
	}
	p.limit = max(p.limit, min(top, p.limit+p.limit/8))
}

// tooLarge learns that a body of this length is too large.
func (p *pace) tooLarge(now time.Time, bytes int64) {
	if now.Sub(p.refusedAt) >= limitMemory || bytes < p.refused {
		p.refused = bytes
	}
	p.refusedAt = now
	p.limit = max(min(p.limit, bytes/2), min(limitFloor, p.maxBytes))
}

// encoded learns from a body how good the estimate was.
func (p *pace) encoded(estimate, bytes int64) {
	if estimate <= 0 {
		return
	}
	r := float64(bytes) / float64(estimate)
	p.ratio = min(4, max(0.1, p.ratio*0.7+r*0.3))
}

// wait is the time before attempt n+1, after n failed ones, the last of this class.
func wait(class Class, n int, retryAfter time.Duration) time.Duration {
	d := backoffStep * time.Duration(n)
	switch class {
	case ClassOverload:
		d = min(2*d, 3*backoffMax)
	case ClassPermanent, ClassTooLarge:
		d = min(3*d, permanentMax)
	case ClassRefused:
		if n > 1 {
			d = refusedWait
		}
	case ClassTransient, ClassUnreadable:
		d = min(d, transientMax)
	default:
		d = min(d, transientMax)
	}
	return max(jitter(d), min(retryAfter, retryAfterMax))
}

// jitter spreads d by a tenth to both sides, so that workers do not come back all at once.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitterShare + 2*jitterShare*rand.Float64()))
}
