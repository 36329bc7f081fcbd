package pipeline

import (
	"context"
	"time"

	"rollcall/pkg/admin"
	"rollcall/pkg/source"
)

const (
	pressureEvery = 100 * time.Millisecond
	lettersHigh   = 1000 // unconfirmed dead letters of one partition above which it waits for them
	lettersLow    = 500
)

// pressureLoop keeps memory within BUFFER_MAX_BYTES by pausing partitions, and asks for a load before its time when enough for a full
// one has been counted. Paused partitions stay assigned and resume by themselves. It is the only one that sets or lifts these pauses.
func (w *worker) pressureLoop(ctx context.Context, beats *admin.Heartbeats) {
	beat := beats.Register("pressure", liveLimit)
	defer beat.Stop()
	tick := time.NewTicker(pressureEvery)
	defer tick.Stop()
	p := pressure{w: w, paused: map[source.Partition]map[string]uint64{}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.look(w.owners.all())
			beat.Beat()
		}
	}
}

// pressure is the loop's memory: which partition it has paused for what, under which assignment.
type pressure struct {
	w      *worker
	full   bool
	paused map[source.Partition]map[string]uint64
}

func (p *pressure) look(all []*owner) {
	var total, delta int64
	keys := 0
	held := make([]int64, len(all))
	for i, o := range all {
		v := o.view.Load()
		held[i] = v.deltaBytes
		if v.history != "" {
			held[i] += p.w.flusher.SourceBytes(v.history)
		}
		total += v.deltaBytes + o.mailbox.queued() + o.letters.bytes.Load()
		delta += v.deltaBytes
		keys += v.keys
	}
	total += p.w.flusher.Bytes() + p.w.flusher.BodyBytes()
	p.w.metrics.buffer.Set(float64(total))
	p.w.metrics.keys.Set(float64(keys))
	p.w.found.SetAssigned(len(all))
	limit := p.w.opt.bufferMax()
	p.full = hysteresis(p.full, total, limit, limit/10*9)
	if delta >= p.w.opt.flushMax() || p.full {
		p.w.flusher.Request()
	}
	// One partition may not fill the buffer for all: with few of them it may use more than its even share, never the whole.
	share := limit
	if len(all) > 1 {
		share = max(limit/int64(len(all)), limit/4)
	}
	for i, o := range all {
		p.set(o, pauseBuffer, p.full)
		p.set(o, pauseShare, hysteresis(p.has(o, pauseShare), held[i], share, share/10*9))
		p.set(o, pauseDeadLetters, hysteresis(p.has(o, pauseDeadLetters), o.letters.n.Load(), lettersHigh, lettersLow))
	}
	p.forget(all)
}

// hysteresis is on from high until below low.
func hysteresis(on bool, value, high, low int64) bool {
	return value >= high || on && value >= low
}

func (p *pressure) has(o *owner, reason string) bool {
	gen, ok := p.paused[o.p][reason]
	return ok && gen == o.gen
}

func (p *pressure) set(o *owner, reason string, on bool) {
	switch has := p.has(o, reason); {
	case on && !has:
		if p.paused[o.p] == nil {
			p.paused[o.p] = map[string]uint64{}
		}
		p.paused[o.p][reason] = o.gen
		p.w.source.Pause(o.p, o.gen, reason)
	case !on && has:
		delete(p.paused[o.p], reason)
		p.w.source.Resume(o.p, o.gen, reason)
	}
}

// forget drops what is remembered of partitions that are gone; the source clears its own pauses with the assignment.
func (p *pressure) forget(all []*owner) {
	if len(p.paused) <= len(all) {
		return
	}
	keep := make(map[source.Partition]bool, len(all))
	for _, o := range all {
		keep[o.p] = true
	}
	for q := range p.paused {
		if !keep[q] {
			delete(p.paused, q)
		}
	}
}
