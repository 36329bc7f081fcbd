package e2e

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

const (
	mebibyte = 1 << 20
	// memoryBeside is what the worker may take beside BUFFER_MAX_BYTES.
	memoryBeside = 150 * mebibyte
	// backWithin is how soon a worker must go on when StarRocks is back: 10 s, and a fifth for a busy machine.
	backWithin = 12 * time.Second
)

// outageLength is ten minutes and a large buffer with ROLLCALL_LONG=1, and a scaled-down outage otherwise.
func outageLength(t *testing.T) (d time.Duration, buffer int) {
	t.Helper()
	if os.Getenv("ROLLCALL_LONG") != "" {
		return 10 * time.Minute, 128 * mebibyte
	}
	t.Log("a short outage and a small buffer; ROLLCALL_LONG=1 makes it ten minutes and 128 MiB")
	t.Parallel()
	return 12 * time.Second, 16 * mebibyte
}

// StarRocks is away while input comes as fast as the worker reads it, from a fixed population of users and keys: what waits is merged, so
// reading never stops and memory does not grow. Probes say what is wrong and restart nothing. When StarRocks is back, one load or a few
// catch up with everything.
func TestOutageThatMergingCarries(t *testing.T) {
	length, buffer := outageLength(t)
	o := newOutage(t, buffer)
	gen := oracle.NewGenerator(31, 20000, time.Now().Add(-60*time.Hour), 60*time.Hour)
	const sets, n = 8, 4000
	var events [sets][partitions][]oracle.Event
	var batches [sets][partitions][]byte
	var times [sets]int64
	for s := range sets {
		for p := range partitions {
			for range n {
				events[s][p] = append(events[s][p], gen.Next())
			}
			batches[s][p] = o.feed.batch(events[s][p])
		}
	}
	i := 0
	o.start(800_000, func(ctx context.Context) error {
		s := i % sets
		i++
		if err := o.feed.send(ctx, n, batches[s]); err != nil {
			return err
		}
		times[s]++
		return nil
	})
	time.Sleep(3 * time.Second) // normal work first
	before := o.look()
	begun := time.Now()
	grew := begun // when reading last went on; a busy machine may take its time
	o.away(length, func(last, now sighting) {
		if now.read > last.read {
			grew = time.Now()
		}
		require.Less(t, time.Since(grew), 6*time.Second, "reading stopped %s after StarRocks went away", time.Since(begun))
		require.Zero(t, now.paused, "partitions are paused")
	})
	during := o.look()
	loads := committedLoads(o.r)
	back := time.Now()
	o.back()
	require.Eventually(t, func() bool { return o.counted() >= during.read }, 30*time.Second, 20*time.Millisecond)
	caught, took := committedLoads(o.r)-loads, time.Since(back)
	require.LessOrEqual(t, took, backWithin)
	require.LessOrEqual(t, caught, 4, "loads until everything of the outage was in the table")
	time.Sleep(3 * time.Second)
	require.NoError(t, o.stop())
	for s := range sets {
		for p := range partitions {
			for _, e := range events[s][p] {
				if times[s] > 0 {
					o.r.truth.AddTimes(e, times[s])
				}
			}
		}
	}
	o.finish()
	t.Logf("%.0f s away at %.0f records/s (before: %d read): peak RSS %.0f MiB while away and %.0f MiB in all (buffer %d MiB); %d load(s) caught up with %d records %.1f s after the return",
		back.Sub(begun).Seconds(), float64(during.read-before.read)/back.Sub(begun).Seconds(), before.read, o.past, o.peakMiB(), buffer/mebibyte, caught, during.read-before.read, took.Seconds())
}

// StarRocks is away while ever new users come: nothing can be merged, so reading pauses when the buffer is full, memory stays in its
// bound, and reading goes on by itself soon after the return.
func TestOutageThatFillsTheBuffer(t *testing.T) {
	length, buffer := outageLength(t)
	o := newOutage(t, buffer)
	gen := threeDays(33)
	const n = 1000
	user := uint64(0)
	hurry := atomic.Bool{}
	hurry.Store(true)
	o.start(400_000, func(ctx context.Context) error {
		if !hurry.Load() { // the buffer is full: more input only makes the test's own memory grow
			time.Sleep(2 * time.Second)
		}
		var batches [partitions][]byte
		for p := range partitions {
			events := make([]oracle.Event, n)
			for i := range events {
				user++
				events[i] = gen.Next()
				events[i].User = user * 0x9E3779B97F4A7C15 // each once, all over the 64 bits
				o.r.truth.Add(events[i])
			}
			batches[p] = o.feed.batch(events)
		}
		return o.feed.send(ctx, n, batches)
	})
	time.Sleep(2 * time.Second)
	begun := time.Now()
	o.goAway(0)
	require.Eventually(t, func() bool { return o.look().paused > 0 }, 6*time.Minute, 50*time.Millisecond, "the buffer never filled")
	var full time.Time
	var still int64
	o.away(length, func(last, now sighting) {
		switch {
		case now.paused == 0 && full.IsZero():
		case full.IsZero():
			full = time.Now()
			hurry.Store(false)
		case time.Since(full) > 1500*time.Millisecond:
			if still == 0 {
				still = now.read
			}
			// Merging what waits may free a little, and that little is read.
			require.LessOrEqual(t, now.read, still+still/10, "reading went on with a full buffer")
		}
	})
	require.NotZero(t, still)
	during := o.look()
	back := time.Now()
	o.back()
	require.Eventually(t, func() bool { return o.look().read > during.read }, 30*time.Second, 20*time.Millisecond)
	took := time.Since(back)
	require.LessOrEqual(t, took, backWithin)
	require.NoError(t, o.stop())
	o.finish()
	t.Logf("%.0f s away: paused after %.1f s and %d records, peak RSS %.0f MiB while away and %.0f MiB in all (buffer %d MiB); reading again %.1f s after the return, %d records in all",
		back.Sub(begun).Seconds(), full.Sub(begun).Seconds(), during.read, o.past, o.peakMiB(), buffer/mebibyte, took.Seconds(), o.feed.total())
}

// outage is a worker that is fed, and a StarRocks that goes away.
type outage struct {
	t    *testing.T
	r    *rig
	p    *workerproc.Process
	feed *feed
	read atomic.Int64 // as last scraped
	peak float64      // bytes
	past float64      // peak when StarRocks came back
	max  float64
	halt context.CancelFunc
	done chan error
}

func newOutage(t *testing.T, buffer int) *outage {
	t.Helper()
	o := &outage{t: t, r: newRig(t, loneBroker(t).Addrs(), starrockstest.Config{}), max: float64(buffer + memoryBeside), done: make(chan error, 1)}
	o.r.extra["BUFFER_MAX_BYTES"], o.r.extra["FLUSH_MAX_BYTES"] = strconv.Itoa(buffer), strconv.Itoa(buffer/2)
	o.r.extra["FLUSH_INTERVAL"], o.r.extra["LOAD_TIMEOUT"] = "1s", "10s"
	o.feed = newFeed(o.r)
	o.p = o.r.worker("w")
	require.NoError(t, o.p.Start())
	o.r.ready(o.p)
	return o
}

// start feeds until stop, at most ahead records before the worker. The broker forgets what was read: ten minutes of it fit nowhere.
func (o *outage) start(ahead int64, send func(context.Context) error) {
	ctx, cancel := context.WithCancel(o.t.Context())
	o.halt = cancel
	go func() { // joined by stop
		for n := 0; ctx.Err() == nil; n++ {
			if o.feed.total()-o.read.Load() > ahead {
				time.Sleep(5 * time.Millisecond)
				continue
			}
			if err := send(o.t.Context()); err != nil {
				o.done <- err
				return
			}
		}
		o.done <- nil
	}()
	o.t.Cleanup(cancel)
}

func (o *outage) stop() error {
	o.halt()
	return <-o.done
}

// sighting is one look at the worker: records read, pauses, bytes not durable yet, and records read by partition.
type sighting struct {
	read, paused, buffer int64
	by                   [partitions]int64
}

// look scrapes the worker and checks its memory.
func (o *outage) look() sighting {
	o.t.Helper()
	m, err := o.p.Metrics(o.t.Context())
	require.NoError(o.t, err)
	v := sighting{read: int64(m.Sum("rollcall_source_records_total")), paused: int64(m.Sum("rollcall_source_paused")), buffer: int64(m.Sum("rollcall_buffer_bytes"))}
	for p := range partitions {
		v.by[p] = int64(m.Sum("rollcall_source_records_total", "partition", strconv.Itoa(p)))
	}
	o.read.Store(v.read)
	o.peak = max(o.peak, m.Sum("process_resident_memory_bytes"), highWater(o.p.PID()))
	require.LessOrEqual(o.t, o.peak, o.max, "resident memory")
	return v
}

// highWater is the greatest resident memory a process ever had, 0 where the system does not say.
func highWater(pid int) float64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		return 0
	}
	kb, _ := strconv.ParseFloat(string(m[1]), 64)
	return kb * 1024
}

func (o *outage) peakMiB() float64 { return o.peak / mebibyte }

// away takes StarRocks away for d: a third of the time it refuses loads, a third nobody listens, a third nobody answers. each is called
// about every second with the look before and the newest.
func (o *outage) away(d time.Duration, each func(last, now sighting)) {
	o.t.Helper()
	begun := time.Now()
	var unready bool
	last := o.look()
	step := -1
	for time.Since(begun) < d {
		if s := int(3 * time.Since(begun) / d); s != step {
			step = s
			o.goAway(step)
		}
		next := time.Now().Add(time.Second)
		for time.Now().Before(next) {
			time.Sleep(100 * time.Millisecond)
			o.look()
		}
		now := o.look()
		each(last, now)
		last = now
		require.NoError(o.t, o.feed.forget(o.t.Context(), now.by))
		code, _, err := o.p.Get(o.t.Context(), "/livez")
		require.NoError(o.t, err)
		require.Equal(o.t, http.StatusOK, code)
		code, body, err := o.p.Get(o.t.Context(), "/readyz")
		require.NoError(o.t, err)
		if unready = unready || code != http.StatusOK; unready || time.Since(begun) > 10*time.Second {
			require.Equal(o.t, http.StatusServiceUnavailable, code)
			require.Regexp(o.t, `"check":\s*"(sink|table)"`, string(body))
		}
	}
	require.True(o.t, unready)
}

func (o *outage) goAway(step int) {
	o.t.Helper()
	o.r.rocks.Heal()
	switch step {
	case 0:
		o.r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtHeader, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Fail("No backend alive.")}})
	case 1:
		o.r.rocks.StopFE(1)
		o.r.rocks.StopBE()
	default:
		require.NoError(o.t, o.r.rocks.StartFE(1))
		require.NoError(o.t, o.r.rocks.BlackholeFE(1))
	}
}

func (o *outage) back() {
	o.t.Helper()
	o.past = o.peakMiB()
	o.r.rocks.Heal()
	require.NoError(o.t, o.r.rocks.StartFE(1))
	require.NoError(o.t, o.r.rocks.StartBE())
}

// counted is how many events the view shows.
func (o *outage) counted() int64 {
	o.t.Helper()
	o.look()
	rows, err := oracle.Query(o.t.Context(), o.r.db, view)
	if err != nil {
		return 0
	}
	return pv(rows)
}

// finish waits until nothing is behind and compares every number.
func (o *outage) finish() {
	o.t.Helper()
	begun := time.Now()
	// The view is asked once: adding up millions of ids is work for a stand-in.
	// The buffer's size is up to 100 ms old, so it has to be empty for a while.
	empty := 0
	require.Eventually(o.t, func() bool {
		if v := o.look(); v.read != o.feed.total() || v.buffer != 0 {
			empty = -1
		}
		empty++
		return empty == 4
	}, 6*time.Minute, 100*time.Millisecond)
	took := time.Since(begun)
	o.r.exact(90*time.Second, o.p)
	require.Eventually(o.t, func() bool {
		m, err := o.p.Metrics(o.t.Context())
		return err == nil && m.Sum("rollcall_source_lag_records") == 0 && m.Sum("rollcall_freshness_seconds") < 5
	}, 20*time.Second, 50*time.Millisecond, "lag and freshness are back to normal")
	// The stand-in may still be at work on the questions of exact, and then does not tell the shape of its table in time.
	ctx, cancel := context.WithTimeout(o.t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(o.t, o.p.Ready(ctx))
	o.r.identity(o.p)
	o.t.Logf("everything durable %.1f s after the input ended", took.Seconds())
	o.r.stop(o.p, 0)
	require.Equal(o.t, o.r.ends(), o.r.committed())
}
