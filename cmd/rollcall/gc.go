package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcMaxPercent halves the CPU of the fetch path, whose live heap is small, for about 25 MB (DESIGN §8).
	gcMaxPercent = 400
	// gcMinPercent keeps a full buffer of the default size, and what is needed beside it, within BUFFER_MAX_BYTES + 150 MiB. It costs little:
	// with a full buffer nothing is read, and id sets hold few pointers.
	gcMinPercent = 15
	// gcHeadroom is how much garbage may wait whatever the live heap: with much of it live, 400 percent of that would be memory for nothing,
	// since what costs is the number of collections per byte allocated.
	gcHeadroom = 48 << 20
	// gcLargeHeap is from where on the headroom shrinks, by a quarter of what is more and down to half: most of such a heap is what waits for
	// StarRocks, and little is allocated until it is gone.
	gcLargeHeap = 96 << 20
	gcEvery     = 500 * time.Millisecond
	// gcIdlePercent is for a worker that allocates less than gcIdleAllocs between two looks, gcIdleLooks times in a row: collecting costs it
	// nothing, and the garbage of its start and of its last work need not stay.
	gcIdlePercent = 50
	gcIdleAllocs  = 1 << 20
	gcIdleLooks   = 10
)

// gcPercent is the pace of collection for a live heap of so many bytes.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcMaxPercent
	}
	headroom := uint64(gcHeadroom)
	if live > gcLargeHeap {
		headroom -= min((live-gcLargeHeap)/4, gcHeadroom/2)
	}
	return int(min(max(headroom*100/live, gcMinPercent), gcMaxPercent))
}

// gcPace follows what the program allocates.
type gcPace struct {
	allocs uint64 // as of the last look
	quiet  int    // looks in a row
}

// percent is the pace of collection for a live heap of so many bytes and all bytes allocated so far.
func (p *gcPace) percent(live, allocs uint64) int {
	if allocs-p.allocs < gcIdleAllocs {
		p.quiet++
	} else {
		p.quiet = 0
	}
	p.allocs = allocs
	if p.quiet >= gcIdleLooks {
		return min(gcIdlePercent, gcPercent(live))
	}
	return gcPercent(live)
}

// tuneGC keeps the pace of garbage collection at what the live heap asks for, until ctx is done.
func tuneGC(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	var pace gcPace
	now := gcMaxPercent
	debug.SetGCPercent(now)
	tick := time.NewTicker(gcEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindUint64 || sample[1].Value.Kind() != metrics.KindUint64 {
			return // a Go release without these metrics: the start value stays
		}
		if want := pace.percent(sample[0].Value.Uint64(), sample[1].Value.Uint64()); want > now+now/10 || want < now-now/10 {
			debug.SetGCPercent(want)
			now = want
		}
	}
}
