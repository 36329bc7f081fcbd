package bitmap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// populations are the kinds of ids that matter: a dense dictionary, random 32-bit ids, 64-bit hashes.
func populations(n int) map[string][]uint64 {
	rnd := rand.New(rand.NewPCG(1, 2))
	out := map[string][]uint64{}
	for range n {
		out["dense"] = append(out["dense"], rnd.Uint64N(uint64(n)))
		out["random32"] = append(out["random32"], uint64(rnd.Uint32()))
		out["hash64"] = append(out["hash64"], rnd.Uint64())
	}
	return out
}

func forPopulations(b *testing.B, run func(b *testing.B, ids []uint64)) {
	for _, n := range []int{1000, 1_000_000} {
		all := populations(n)
		for _, name := range []string{"dense", "random32", "hash64"} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				run(b, all[name])
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/id")
			})
		}
	}
}

func BenchmarkAddTake(b *testing.B) {
	forPopulations(b, func(b *testing.B, ids []uint64) {
		for b.Loop() {
			var c Collector
			for _, id := range ids {
				c.Add(id)
			}
			s := c.Take()
			b.ReportMetric(float64(s.Bytes())/float64(s.Len()), "bytes/id")
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	forPopulations(b, func(b *testing.B, ids []uint64) {
		xs := slices.Compact(sorted(slices.Clone(ids)))
		var buf []byte
		for b.Loop() {
			buf = appendIDs(buf[:0], xs)
		}
	})
}

func BenchmarkUnion(b *testing.B) {
	forPopulations(b, func(b *testing.B, ids []uint64) {
		x, y := Of(ids[:len(ids)/2]...), Of(ids[len(ids)/2:]...)
		for b.Loop() {
			Union(x, y)
		}
	})
}
