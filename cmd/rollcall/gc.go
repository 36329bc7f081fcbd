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
	gcEvery    = 500 * time.Millisecond
)

// gcPercent is the pace of collection for a live heap of so many bytes.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcMaxPercent
	}
	return int(min(max(gcHeadroom*100/live, gcMinPercent), gcMaxPercent))
}

// tuneGC keeps the pace of garbage collection at what the live heap asks for, until ctx is done.
func tuneGC(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
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
		if sample[0].Value.Kind() != metrics.KindUint64 {
			return // a Go release without this metric: the start value stays
		}
		if want := gcPercent(sample[0].Value.Uint64()); want > now+now/10 || want < now-now/10 {
			debug.SetGCPercent(want)
			now = want
		}
	}
}
