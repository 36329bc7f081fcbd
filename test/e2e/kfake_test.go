package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/sink/starrockstest"
)

func fake(t *testing.T, opts ...kfake.Opt) *kafkatest.Fake {
	return kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: append([]kfake.Opt{
		kfake.SeedTopics(partitions, topic), kfake.SeedTopics(1, deadTopic),
	}, opts...)})
}

// Fifty SIGKILLs at random moments: nothing is lost, nothing counts twice, and each restart consumes soon after its assignment.
func TestKillLoop(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 5
	}
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	// A name of its own lets a restarted worker have its partitions back at once; without it every kill costs a session timeout.
	w := r.worker("w", "KAFKA_INSTANCE_ID=w")
	rnd := rand.New(rand.NewPCG(1, 2))
	produced := make(chan error, 1)
	go func() { produced <- r.produce(t.Context(), threeDays(1), 2600*kills, 2000) }()
	for range kills {
		require.NoError(t, w.Start())
		time.Sleep(time.Duration(200+rnd.IntN(1600)) * time.Millisecond)
		w.Kill()
	}
	require.NoError(t, w.Start())
	require.NoError(t, <-produced)
	r.exact(60*time.Second, w)
	r.ready(w)
	r.identity(w)
	r.stop(w, 0)
	require.Equal(t, r.ends(), r.committed())
	slowest, n := resumes(t, w.Tail(64<<20))
	t.Logf("%d kills, %d resumes, slowest %.3f s after the assignment", kills, n, slowest)
	require.Less(t, slowest, 10.0, "about 1 s on a machine that does nothing else; this only finds what hangs")
}

// resumes finds in a worker's log how long after its assignment the slowest partition began to be read.
func resumes(t *testing.T, log string) (slowest float64, n int) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"partition resumed"`) {
			continue
		}
		var e struct {
			Since float64 `json:"since_assigned"`
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			continue // cut by a kill
		}
		slowest = max(slowest, e.Since)
		n++
	}
	require.NotZero(t, n)
	return slowest, n
}

// SIGTERM while there is much to do: everything read is loaded and committed, exit 0.
func TestStopDrains(t *testing.T) {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	r.extra["FLUSH_INTERVAL"] = "1h" // only the stop loads
	w := r.worker("w")
	require.NoError(t, w.Start())
	r.ready(w)
	require.NoError(t, r.produce(t.Context(), threeDays(2), 50000, 0))
	require.Eventually(t, func() bool {
		m, err := w.Metrics(t.Context())
		return err == nil && m.Sum("rollcall_source_records_total") == 50000
	}, 20*time.Second, 50*time.Millisecond)
	m := r.identity(w)
	require.Zero(t, m.Sum("rollcall_load_rows_total"))
	r.stop(w, 0)
	r.exact(time.Second)
	require.Equal(t, r.ends(), r.committed())
}

// A load that still fails when the time is up: exit 11, offsets not past it, and a healthy restart is exact.
func TestStopWithFailingLoads(t *testing.T) {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	r.extra["SHUTDOWN_TIMEOUT"] = "4s"
	w := r.worker("w")
	require.NoError(t, w.Start())
	r.ready(w)
	require.NoError(t, r.produce(t.Context(), threeDays(3), 5000, 0))
	r.exact(20*time.Second, w)
	require.Eventually(t, func() bool { return sum(r.committed()) == 5000 }, 10*time.Second, 50*time.Millisecond)
	before := r.committed()
	r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtHeader, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Fail("no luck")}})
	require.NoError(t, r.produce(t.Context(), threeDays(4), 5000, 0))
	require.Eventually(t, func() bool {
		m, err := w.Metrics(t.Context())
		return err == nil && m.Sum("rollcall_source_records_total") == 10000 && m.Sum("rollcall_load_retries_total") > 0
	}, 20*time.Second, 50*time.Millisecond)
	begun := time.Now()
	r.stop(w, 11)
	require.Less(t, time.Since(begun), 5*time.Second)
	require.Equal(t, before, r.committed())
	require.Contains(t, w.Tail(4<<10), "no luck")
	r.rocks.Heal()
	require.NoError(t, w.Start())
	r.exact(20*time.Second, w)
	r.stop(w, 0)
	require.Equal(t, r.ends(), r.committed())
}

// Loads go compressed if that is set and the server can read it, and as they are if not.
func TestCompressedLoads(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old release %v", old), func(t *testing.T) {
			r := newRig(t, fake(t).Addrs(), starrockstest.Config{NoCompression: old})
			r.extra["LOAD_COMPRESSION"] = "zstd"
			w := r.worker("w")
			require.NoError(t, w.Start())
			require.NoError(t, r.produce(t.Context(), threeDays(7), 20000, 0))
			r.exact(20*time.Second, w)
			r.stop(w, 0)
			require.Equal(t, r.ends(), r.committed())
			loads := r.rocks.Loads()
			require.NotEmpty(t, loads)
			for i, l := range loads {
				require.Equal(t, !old || i > 0, l.Committed)
				require.Equal(t, map[bool]string{true: "", false: "zstd"}[old], l.Compression)
			}
		})
	}
}

// A second SIGTERM ends it at once, and not with 0 if rows are open.
func TestSecondSignal(t *testing.T) {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	w := r.worker("w")
	r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtHeader, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Hang()}})
	require.NoError(t, w.Start())
	r.ready(w)
	require.NoError(t, r.produce(t.Context(), threeDays(5), 1000, 0))
	require.Eventually(t, func() bool {
		m, err := w.Metrics(t.Context())
		return err == nil && m.Sum("rollcall_source_records_total") == 1000
	}, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, w.Signal(15))
	time.Sleep(300 * time.Millisecond)
	begun := time.Now()
	r.stop(w, 11)
	require.Less(t, time.Since(begun), 6*time.Second) // leaving the group included
}

// The last batch of a bounded run fails: exit 11 and offsets before it; with a healthy server the same run ends with 0 and all rows.
func TestBoundedRun(t *testing.T) {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	require.NoError(t, r.produce(t.Context(), threeDays(6), 20000, 0))
	r.extra["KAFKA_STOP"], r.extra["SHUTDOWN_TIMEOUT"] = "latest", "4s"
	w := r.worker("w")
	r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Fail("quota")}})
	require.NoError(t, w.Start())
	code, err := w.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 11, code)
	require.Zero(t, sum(r.committed()))
	r.rocks.Heal()
	require.NoError(t, w.Start())
	code, err = w.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, code)
	r.exact(time.Second)
	require.Equal(t, r.ends(), r.committed())
	// Once more: nothing to do.
	require.NoError(t, w.Start())
	code, err = w.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0, code)
	r.exact(time.Second)
}

func sum(offsets map[int32]int64) int64 {
	n := int64(0)
	for _, o := range offsets {
		n += max(o, 0)
	}
	return n
}

// Settings that are wrong end with 10 and name every problem.
func TestWrongSettings(t *testing.T) {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	w := r.worker("w", "KAFKA_GROUP=", "FLUSH_INTERVAL=soon", "KAFKA_TOPIC=x")
	require.NoError(t, w.Start())
	code, err := w.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, code)
	log := w.Tail(8 << 10)
	for _, name := range []string{"KAFKA_GROUP", "FLUSH_INTERVAL", "KAFKA_TOPIC"} {
		require.Contains(t, log, name)
	}
}
