package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
	"rollcall/pkg/workerproc"
)

// size is how large a scenario of broker faults is: the full size, which takes minutes, with ROLLCALL_LONG=1 and a small one otherwise.
func size[T any](t *testing.T, full, small T) T {
	t.Helper()
	if os.Getenv("ROLLCALL_LONG") != "" {
		return full
	}
	t.Logf("%v instead of %v; ROLLCALL_LONG=1 runs the full size", small, full)
	return small
}

// patient replaces the rig's producer by one that gives up no record and none twice, whatever brokers do, so that the truth is known: it
// waits for all replicas in sync, is idempotent, and leaves brokers that do not answer soon.
func (r *rig) patient(opts ...kgo.Opt) {
	r.t.Helper()
	r.prod.Close()
	var err error
	r.prod, err = kgo.NewClient(append(opts, kgo.SeedBrokers(r.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(500000), kgo.MetadataMinAge(200*time.Millisecond), kgo.DisableClientMetrics(),
		kgo.RequestTimeoutOverhead(2*time.Second), kgo.ProduceRequestTimeout(3*time.Second), kgo.AlwaysRetryEOF(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.ProducerBatchCompression(kgo.Lz4Compression()))...)
	require.NoError(r.t, err)
	r.t.Cleanup(r.prod.Close)
}

// behind makes the producer one that writes past the proxies: faults concern the worker alone, and there is always something to read.
func (r *rig) behind(f *kafkatest.Fake) {
	r.t.Helper()
	named := r.addrs // what workers are told
	r.addrs = f.Addrs()
	r.patient(kgo.Dialer(f.Behind))
	r.addrs = named
}

// stream writes events to all partitions until it is ended. The truth is its own until then.
type stream struct {
	r    *rig
	quit chan struct{}
	done chan error
}

// stream begins to write so many events a second.
func (r *rig) stream(seed uint64, rate int) *stream {
	s := &stream{r: r, quit: make(chan struct{}), done: make(chan error, 1)}
	go func() { s.done <- s.run(threeDays(seed), rate) }()
	return s
}

func (s *stream) run(gen *oracle.Generator, rate int) error {
	var first error
	var mu sync.Mutex
	var open sync.WaitGroup
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for n := 0; ; {
		select {
		case <-s.quit:
			open.Wait()
			return first
		case <-tick.C:
		}
		for due := int(time.Since(begun).Seconds() * float64(rate)); n < due; n++ {
			e := gen.Next()
			s.r.truth.Add(e)
			open.Add(1)
			s.r.prod.Produce(context.Background(), &kgo.Record{Topic: s.r.topic, Partition: int32(n % partitions), Value: e.AppendJSON(nil)}, func(_ *kgo.Record, err error) {
				defer open.Done()
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			})
		}
	}
}

// end stops writing, waits until Kafka has everything, and checks that it has it once.
func (s *stream) end(limit time.Duration) {
	s.r.t.Helper()
	close(s.quit)
	select {
	case err := <-s.done:
		require.NoError(s.r.t, err)
	case <-time.After(limit):
		require.FailNow(s.r.t, "Kafka has not confirmed everything that was written")
	}
	require.Equal(s.r.t, s.r.truth.Events(), sum(s.r.ends()), "records in Kafka; the producer promises each once")
}

// birth tells one start of a worker from another.
type birth struct {
	pid   int
	start float64
}

func (r *rig) birth(p *workerproc.Process) birth {
	r.t.Helper()
	m, err := p.Metrics(r.t.Context())
	require.NoError(r.t, err)
	return birth{p.PID(), m.Sum("process_start_time_seconds")}
}

// never restarted: the worker is the process it was.
func (r *rig) same(p *workerproc.Process, b birth) {
	r.t.Helper()
	require.NoError(r.t, p.Alive())
	require.Equal(r.t, b, r.birth(p), "the worker was started anew")
}

// glance is what /status says of a worker's partitions and of discovery.
type glance struct {
	Ready      bool `json:"ready"`
	Partitions []struct {
		Topic     string   `json:"topic"`
		Partition int32    `json:"partition"`
		State     string   `json:"state"`
		Problem   string   `json:"problem"`
		Paused    []string `json:"paused"`
		Position  int64    `json:"position"`
	} `json:"partitions"`
	Discovery struct {
		Breaker     string    `json:"breaker"`
		LastSuccess time.Time `json:"last_success"`
		LastError   string    `json:"last_error"`
		Brokers     int       `json:"brokers"`
		Known       int       `json:"known"`
		Leaderless  int       `json:"leaderless"`
	} `json:"discovery"`
}

func statusOf(ctx context.Context, p *workerproc.Process) (g glance, err error) {
	code, body, err := p.Get(ctx, "/status")
	if err == nil && code != 200 {
		err = fmt.Errorf("status %d", code)
	}
	if err == nil {
		err = json.Unmarshal(body, &g)
	}
	return g, err
}

// watch looks at workers many times a second and keeps how long nothing was read where there was something to read: by partition, whoever
// owns it, and by worker, as soon as it owns partitions. What it says is late by one look at most.
type watch struct {
	ends func() map[int32]int64
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex
	ps      map[string]*workerproc.Process
	at      map[int32]int64 // position by partition
	waits   map[int32]time.Time
	worst   map[int32]time.Duration
	byName  map[string]map[int32]int64
	idle    map[string]time.Time
	slowest map[string]time.Duration
}

const lookEvery = 50 * time.Millisecond

// watch begins to look. ends is asked for what there is to read.
func (r *rig) watch(ends func() map[int32]int64, ps map[string]*workerproc.Process) *watch {
	w := &watch{
		ends: ends, ps: maps.Clone(ps), quit: make(chan struct{}), done: make(chan struct{}),
		at: map[int32]int64{}, byName: map[string]map[int32]int64{},
	}
	w.forget()
	go w.run()
	r.t.Cleanup(w.stop)
	return w
}

// add watches one more worker.
func (w *watch) add(name string, p *workerproc.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ps[name] = p
}

// forget begins anew: gaps so far, those under way too, do not count.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits, w.worst, w.idle, w.slowest = map[int32]time.Time{}, map[int32]time.Duration{}, map[string]time.Time{}, map[string]time.Duration{}
}

func (w *watch) stop() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	<-w.done
}

func (w *watch) run() {
	defer close(w.done)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
			w.step()
		}
	}
}

func (w *watch) step() {
	ends := w.ends()
	seen := map[string]map[int32]int64{}
	w.mu.Lock()
	ps := maps.Clone(w.ps)
	w.mu.Unlock()
	for name, p := range ps {
		g, err := statusOf(context.Background(), p)
		if err != nil {
			continue // it does not run just now
		}
		seen[name] = map[int32]int64{}
		for _, q := range g.Partitions {
			at := int64(-1) // there is something to read, also while it is not known from where
			if q.State == "running" {
				at = q.Position
			}
			seen[name][q.Partition] = at
		}
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := map[int32]bool{}
	for name, ps := range seen {
		last := w.byName[name]
		more, progress := false, len(last) == 0
		for p, at := range ps {
			old, owned := last[p]
			more = more || ends[p] > max(at, 0)
			if at >= 0 && owned && at != old || !owned {
				progress = true
			}
			if at >= 0 && at != w.at[p] {
				moved[p] = true
				w.at[p] = at
			}
		}
		since := track(w.idle, name, more, progress, now)
		w.slowest[name] = max(w.slowest[name], since)
	}
	w.byName = seen
	for p, end := range ends {
		w.worst[p] = max(w.worst[p], track(w.waits, p, end > w.at[p], moved[p], now))
	}
	for name := range ps {
		if seen[name] == nil {
			delete(w.idle, name)
		}
	}
}

// track keeps since when something waits and returns for how long it did, or does so far.
func track[K comparable](waits map[K]time.Time, k K, more, progress bool, now time.Time) time.Duration {
	since, waiting := waits[k]
	gap := time.Duration(0)
	if waiting {
		gap = now.Sub(since)
	}
	switch {
	case !more:
		delete(waits, k)
	case progress || !waiting:
		waits[k] = now
	}
	return gap
}

// gaps is the worst gap of each partition since forget, those under way included.
func (w *watch) gaps() map[int32]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[int32]time.Duration{}
	for p, d := range w.worst {
		out[p] = d
	}
	return out
}

// worstOf is the longest of some partitions' gaps, of all if none are named.
func (w *watch) worstOf(ps ...int32) time.Duration {
	out := time.Duration(0)
	for p, d := range w.gaps() {
		if len(ps) == 0 || slices.Contains(ps, p) {
			out = max(out, d)
		}
	}
	return out
}

// worstWorker is the longest time for which a worker read nothing although it owned something to read.
func (w *watch) worstWorker() (name string, worst time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, d := range w.slowest {
		if d > worst {
			name, worst = n, d
		}
	}
	return name, worst
}

// fakeEnds are the log ends as the fake cluster itself knows them, whatever its brokers' addresses do.
func fakeEnds(f *kafkatest.Fake, topic string) func() map[int32]int64 {
	return func() map[int32]int64 {
		out := map[int32]int64{}
		for p := range int32(partitions) {
			if info := f.Cluster.PartitionInfo(topic, p); info != nil {
				out[p] = info.HighWatermark
			}
		}
		return out
	}
}

// askedEnds are the log ends as brokers tell them; the last known ones while they do not. Kept for a while, since asking costs them something.
func (r *rig) askedEnds() func() map[int32]int64 {
	adm := kadm.NewClient(r.prod)
	var asked time.Time
	last := map[int32]int64{}
	return func() map[int32]int64 {
		if time.Since(asked) < 250*time.Millisecond {
			return last
		}
		asked = time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
		defer cancel()
		listed, _ := adm.ListEndOffsets(ctx, r.topic)
		out := map[int32]int64{}
		for p, at := range last {
			out[p] = at
		}
		listed.Each(func(o kadm.ListedOffset) {
			if o.Err == nil && o.Partition >= 0 {
				out[o.Partition] = max(out[o.Partition], o.Offset)
			}
		})
		last = out
		return last
	}
}
