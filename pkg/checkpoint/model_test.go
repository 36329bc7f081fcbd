package checkpoint

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// modelEnvs are the worlds the model lives in; with aggregate the workers count by the real pkg/aggregate. Re-delivery, bitmaps sent ahead, folded keys and zombies are in all of them.
var modelEnvs = []string{
	"group2",
	"group2 retention",
	"latest",
	"latest logstart",
	"added logstart",
	"added unread",
	"foreign",
	"empty",
	"empty allowempty",
	"prog",
	"prog progcont",
	"prog progcont retention",
	"recreate",
	"recreate ntadd latest",
	"mirror",
	"unread",
	"truncate",
	"truncate prog progcont",
	"aggregate group2 retention",
	"aggregate truncate",
}

const modelAlways = "redeliver ahead zombie "

// firstFailure runs the seeds 1…n on all processors and gives the smallest that ended wrong, 0 if none.
func firstFailure(n int, sw switches) (seed int64, wrong string) {
	var next, found atomic.Int64
	found.Store(int64(n) + 1)
	var mu sync.Mutex
	why := map[int64]string{}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				s := next.Add(1)
				if s >= found.Load() {
					return
				}
				if w, _ := runModel(s, sw, nil); w != "" {
					mu.Lock()
					why[s] = w
					found.Store(min(found.Load(), s))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if s := found.Load(); s <= int64(n) {
		return s, why[s]
	}
	return 0, ""
}

// explain is the story of a run.
func explain(seed int64, sw switches) string {
	var story string
	runModel(seed, sw, func(f string, a ...any) { story += fmt.Sprintf(f, a...) + "\n" })
	return story
}

// TestModel: 20,000 random runs end in the truth.
func TestModel(t *testing.T) {
	n := 20_000 / len(modelEnvs)
	if testing.Short() {
		n /= 10
	}
	for _, env := range modelEnvs {
		t.Run(env, func(t *testing.T) {
			sw := switchesOf(modelAlways+env, "")
			seed, wrong := firstFailure(n, sw)
			if seed > 0 {
				t.Fatalf("seed %d: %s\n%s", seed, wrong, explain(seed, sw))
			}
		})
	}
}

// TestModelNeedsEveryRule: with any one rule of DESIGN §1 switched off, some run ends wrong.
func TestModelNeedsEveryRule(t *testing.T) {
	const base = "redeliver ahead zombie"
	for rule, env := range map[string]string{
		"rule1whole": base, "rule1order": "ahead foreign", "aheadwait": base, "mergecut": "ahead prog progcont", "rule2": base, "rule3": base,
		"rule4": base, "rule5": base, "rule6": base, "rule7": base, "twostep": base, "unknowndone": base,
		"TltL": base, "emptied": base + " empty", "foreign": base + " foreign", "rowsforeign": base + " foreign",
		"settle": base + " foreign", "commitstart": base + " added unread", "truncated": base + " truncate",
		"program": base + " prog progcont", "progwait": base + " prog progcont", "tidcommit": base + " recreate", "newtopic": base + " mirror",
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			seed, wrong := firstFailure(20_000, switchesOf(env, rule))
			require.Positive(t, seed, "no run needs the rule")
			t.Logf("seed %d: %s", seed, wrong)
		})
	}
}
