package main

import "testing"

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 12 << 20: 400, 16 << 20: 300, 32 << 20: 150, 256 << 20: 18, 1 << 30: 15} {
		if got := gcPercent(live); got != want {
			t.Errorf("live %d MiB: %d %%, want %d", live>>20, got, want)
		}
	}
}
