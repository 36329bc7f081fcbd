package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
)

// deadLetter sends a bad record to the dead-letter topic, or counts it if there is none.
func (o *owner) deadLetter(r *kgo.Record, reason aggregate.Reason) {
	if o.w.letters == nil {
		o.w.letterMetrics.Confirmed(string(reason))
		return
	}
	g, size := o.gate, int64(len(r.Key)+len(r.Value))
	g.add()
	o.letters.opened(size)
	o.w.letters.Publish(r, string(reason), func(err error) {
		o.letters.closed(size)
		g.confirmed(err)
	})
}

// openLetters counts the dead letters of a partition that its topic has not confirmed. The owner adds, the dead-letter client's
// goroutine takes off, the pressure loop pauses the partition while there are too many.
type openLetters struct {
	n, bytes atomic.Int64
	moved    atomic.Int64 // Unix ms of the last answer, or of the first letter since there was none open
}

func (l *openLetters) opened(size int64) {
	if l.n.Add(1) == 1 {
		l.moved.Store(time.Now().UnixMilli())
	}
	l.bytes.Add(size)
}

func (l *openLetters) closed(size int64) {
	l.moved.Store(time.Now().UnixMilli())
	l.n.Add(-1)
	l.bytes.Add(-size)
}

// stuck reports whether dead letters have been open for a while without any answer, and since when. The client repeats most refusals by
// itself and says nothing.
func (l *openLetters) stuck() (since time.Time, stuck bool) {
	since = time.UnixMilli(l.moved.Load())
	return since, l.n.Load() > 0 && time.Since(since) > lettersStuckAfter
}

const lettersStuckAfter = 10 * time.Second

// outcomeLog says what was not counted without flooding the log: the first of its kind at once, then one line per interval with how
// many there were meanwhile. The counters are exact.
type outcomeLog struct {
	next   [aggregate.Bad + 1]time.Time
	missed [aggregate.Bad + 1]int
}

const outcomeLogInterval = 30 * time.Second

func (l *outcomeLog) note(o *owner, r *kgo.Record, res aggregate.Result) {
	k := res.Outcome
	now := time.Now()
	if now.Before(l.next[k]) {
		l.missed[k]++
		return
	}
	fields := []zap.Field{
		zap.String("outcome", k.String()), zap.Int64("offset", r.Offset), zap.Time("record_time", r.Timestamp),
		zap.Int("more_since_last_line", l.missed[k]),
	}
	if k == aggregate.Bad {
		fields = append(fields, zap.String("reason", string(res.Reason)), zap.Bool("to_dead_letter_topic", o.w.letters != nil))
	}
	o.log.Warn("record not counted", fields...)
	l.next[k], l.missed[k] = now.Add(outcomeLogInterval), 0
}
