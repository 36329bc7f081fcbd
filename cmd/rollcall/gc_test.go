package main

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 12 << 20: 400, 16 << 20: 300, 32 << 20: 150, 96 << 20: 50, 128 << 20: 31, 192 << 20: 15, 256 << 20: 15, 1 << 30: 15} {
		if got := gcPercent(live); got != want {
			t.Errorf("live %d MiB: %d %%, want %d", live>>20, got, want)
		}
	}
}

// A worker with nothing to do gives back what it does not need, and works at full pace as soon as it has something to do.
func TestGCPaceOfAnIdleWorker(t *testing.T) {
	var p gcPace
	allocs := uint64(0)
	look := func(bytes uint64, want int) {
		t.Helper()
		allocs += bytes
		if got := p.percent(8<<20, allocs); got != want {
			t.Errorf("%d %%, want %d", got, want)
		}
	}
	look(50<<20, 400)
	for range 9 {
		look(100<<10, 400)
	}
	look(100<<10, 50)
	look(0, 50)
	look(2<<20, 400)
	look(0, 400)
	if got := p.percent(1<<30, allocs); got != 15 {
		t.Errorf("%d %% with a full buffer", got)
	}
}
