package aggregate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchEvent is an event of 242 bytes of which four fields are used.
func benchEvent(user uint64, platform string) []byte {
	return fmt.Appendf(nil, `{"event_id":"8f14e45f-ceea-467f-a0e6-9b1f2c3d4e5f","ts":%d,"user_id":%d,"platform":%q,"session":"0a1b2c3d4e5f6071",`+
		`"amount":%d.50,"page":"/shoes/running?ref=home","props":{"ab":[1,2,3],"dark":true,"w":1280,"h":720}}`, noon, 100_000_000+user, platform, user%100)
}

func benchProgram(b testing.TB) *Program {
	cfg := testConfig()
	cfg.Dimensions = []Dimension{{Name: "platform", Path: "platform"}}
	cfg.Measures = []Measure{{Name: "uv", Kind: Distinct, Field: "user_id"}, {Name: "pv", Kind: Count}, {Name: "revenue", Kind: Sum, Field: "amount", Scale: 2}}
	p, err := New(cfg)
	require.NoError(b, err)
	return p
}

// benchEvents are n events of users among the given number, on 100 platforms.
func benchEvents(n int, users uint64) [][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	events := make([][]byte, n)
	for i := range events {
		u := rnd.Uint64N(users)
		events[i] = benchEvent(u, fmt.Sprintf("platform-%02d", u%100))
	}
	return events
}

// BenchmarkValid is the yardstick for BenchmarkDecode on a machine of unknown speed: encoding/json only checking the syntax.
func BenchmarkValid(b *testing.B) {
	events := benchEvents(4096, 1_000_000)
	b.SetBytes(int64(len(events[0])))
	defer cpu(b)()
	for i := 0; b.Loop(); i++ {
		if !json.Valid(events[i%len(events)]) {
			b.Fatal("invalid")
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	p := benchProgram(b)
	events := benchEvents(4096, 1_000_000)
	d := &jsonDecoder{root: p.root}
	out := make([]value, p.slots)
	b.SetBytes(int64(len(events[0])))
	defer cpu(b)()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		clear(out)
		if reason := d.decode(events[i%len(events)], out); reason != "" {
			b.Fatal(reason)
		}
	}
}

// BenchmarkApply includes a seal every 300,000 events, about what one worker does in a second.
func BenchmarkApply(b *testing.B) {
	for _, users := range []uint64{1000, 1_000_000} {
		b.Run(fmt.Sprintf("users=%d", users), func(b *testing.B) {
			a := benchProgram(b).NewAggregator()
			events := benchEvents(100_000, users)
			b.ReportAllocs()
			defer cpu(b)()
			for i := 0; b.Loop(); i++ {
				if res := a.Apply(Record{Offset: int64(i), TimestampMs: noon, Value: events[i%len(events)]}, noon); res.Outcome != Counted {
					b.Fatal(res)
				}
				if i%300_000 == 299_999 {
					a.Seal()
				}
			}
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, keys := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			a := benchProgram(b).NewAggregator()
			rnd := rand.New(rand.NewPCG(1, 2))
			offset := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for range 100_000 {
					u := rnd.Uint64N(1_000_000)
					a.Apply(Record{Offset: offset, TimestampMs: noon, Value: benchEvent(u, fmt.Sprint("p", u%uint64(keys)))}, noon)
					offset++
				}
				b.StartTimer()
				a.Seal()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/event")
		})
	}
}

// BenchmarkMemory counts a day of 1,000,000 distinct users over 100 keys, 2,000,000 events sealed every 500,000 and merged while they
// wait, and reports what the heap needs for it.
func BenchmarkMemory(b *testing.B) {
	p := benchProgram(b)
	events := benchEvents(2_000_000, 1_000_000)
	for b.Loop() {
		before := heap()
		a := p.NewAggregator()
		waiting := map[string]*Row{}
		for i, doc := range events {
			a.Apply(Record{Offset: int64(i), TimestampMs: noon, Value: doc}, noon)
			if i%500_000 != 499_999 {
				continue
			}
			for _, r := range a.Seal().Rows {
				if have := waiting[r.Dims[0]]; have != nil {
					MergeRow(p.Measures(), have, r)
				} else {
					waiting[r.Dims[0]] = &r
				}
			}
		}
		held := heap() - before
		runtime.KeepAlive(a)
		users := 0
		for _, r := range waiting {
			users += r.Cells[0].Set.Len()
		}
		b.ReportMetric(float64(held)/(1<<20), "MiB")
		b.ReportMetric(float64(users), "ids")
	}
}

// cpu starts to measure the process's CPU time, which says more than the clock on a machine with other work; call the result at the end.
func cpu(b *testing.B) (stop func()) {
	used := func() int64 {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
