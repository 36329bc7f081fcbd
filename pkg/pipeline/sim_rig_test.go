package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"rollcall/config"
	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
)

// The simulation: whole workers, a fake Kafka and a stand-in StarRocks on one network in memory, all in virtual time. Half an hour of
// outage costs a second, and a goroutine that outlives its worker fails the test.

const (
	simTopic = "events"
	simDead  = "events-dead"
	simGroup = "g"
)

// simOptions say what a world is made of. The zero value: two brokers, a topic of four partitions, one FE.
type simOptions struct {
	partitions int32
	rocks      starrockstest.Config
	// truncates leaves OffsetForLeaderEpoch to kfake, for tests of truncation.
	truncates bool
	// workersOnly leaves the topic out.
	noTopic bool
	kafka   []kfake.Opt
	seed    uint64
}

type sim struct {
	t     *testing.T
	opt   simOptions
	net   *simNet
	kafka *kfake.Cluster
	rocks *starrockstest.Cluster
	prod  *kgo.Client
	truth *oracle.Truth
	rnd   *rand.Rand
	gen   *oracle.Generator
	// settings are those of every worker that is made from now on.
	settings map[string]string
	workers  []*simWorker
	// events are the records written so far, by partition: the event, or nil for a record that does not count.
	events map[int32][]*oracle.Event
	ports  int
	faults []*kfake.FaultHandle
}

// simulate runs f in a bubble. Its clock stands at noon of 2026-03-10.
func simulate(t *testing.T, o simOptions, f func(t *testing.T, s *sim)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)))
		s := newSim(t, o)
		defer s.close()
		f(t, s)
	})
}

func newSim(t *testing.T, o simOptions) *sim {
	t.Helper()
	if o.partitions == 0 {
		o.partitions = 4
	}
	s := &sim{
		t: t, opt: o, net: newSimNet(), truth: oracle.NewTruth(time.UTC), rnd: rand.New(rand.NewPCG(o.seed, 99)),
		gen:    oracle.NewGenerator(o.seed+1, 300, time.Now().Add(-40*time.Hour), 40*time.Hour),
		events: map[int32][]*oracle.Event{}, ports: 18080,
	}
	opts := append([]kfake.Opt{
		kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(s.net.Listen), kfake.SeedTopics(1, simDead),
	}, o.kafka...)
	if !o.noTopic {
		opts = append(opts, kfake.SeedTopics(o.partitions, simTopic))
	}
	var err error
	s.kafka, err = kfake.NewCluster(opts...)
	require.NoError(t, err)
	if !o.truncates {
		kafkatest.FixEpochs(s.kafka)
	}
	o.rocks.Listen = s.net.Listen
	s.rocks = starrockstest.New(o.rocks)
	require.NoError(t, s.rocks.Start())
	require.NoError(t, s.rocks.Exec("CREATE DATABASE dau"))
	s.prod = s.client()
	s.settings = map[string]string{
		"KAFKA_BROKERS": "localhost:9092,localhost:9093", "KAFKA_TOPICS": simTopic, "KAFKA_GROUP": simGroup,
		"STARROCKS_HTTP": strings.Join(s.rocks.FEURLs(), ","), "STARROCKS_MYSQL": strings.Join(s.rocks.MySQLAddrs(), ","),
		"STARROCKS_USER": "root", "STARROCKS_DATABASE": "dau", "STARROCKS_TABLE": "daily",
		"ALLOWED_LATENESS": "96h", "FLUSH_INTERVAL": "2s", "LOAD_TIMEOUT": "5s",
		"DISCOVERY_INTERVAL": "10s", "DISCOVERY_REQUEST_TIMEOUT": "1s", "DISCOVERY_TIMEOUT": "5s",
	}
	for k, v := range oracle.Settings() {
		s.settings[k] = v
	}
	return s
}

func (s *sim) close() {
	for _, w := range s.workers {
		w.kill()
	}
	s.prod.Close()
	s.rocks.Close()
	s.kafka.Close()
	if s.t.Failed() {
		s.t.Logf("seed %d", s.opt.seed)
		for _, w := range s.workers {
			s.t.Logf("log of %s:\n%s", w.name, w.logs.tail(60))
		}
	}
}

func (s *sim) client(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers("localhost:9092", "localhost:9093"), kgo.Dialer(s.net.DialContext), kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, opts...)...)
	require.NoError(s.t, err)
	return c
}

// --- network

// simNet is a network in memory whose ports can refuse or swallow connections. Each worker dials through a view of its own, so that it can
// be cut off from everything.
type simNet struct {
	kfake.VirtualNetwork
	mu    sync.Mutex
	modes map[string]netMode // by port
	conns map[net.Conn]simConn
}

type netMode int

const (
	netOpen   netMode = iota
	netRefuse         // dials fail at once, connections are cut
	netHole           // dials hang until their context ends, connections are cut
)

type simConn struct{ who, port string }

func newSimNet() *simNet {
	return &simNet{modes: map[string]netMode{}, conns: map[net.Conn]simConn{}}
}

// dialer is the view of who.
func (n *simNet) dialer(who string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(addr)
		n.mu.Lock()
		mode := max(n.modes[port], n.modes[who])
		n.mu.Unlock()
		switch mode {
		case netRefuse:
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		case netHole:
			// A net.Dialer has its own limit; every client sets it to 3 s.
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		}
		c, err := n.DialContext(ctx, network, addr)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		tc := &trackedConn{Conn: c, net: n}
		n.mu.Lock()
		n.conns[tc] = simConn{who, port}
		n.mu.Unlock()
		return tc, nil
	}
}

type trackedConn struct {
	net.Conn
	net *simNet
}

func (c *trackedConn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// set puts ports or names in a mode; what is open to or from them is cut unless the mode is netOpen.
func (n *simNet) set(mode netMode, names ...string) {
	n.mu.Lock()
	var cut []net.Conn
	for _, name := range names {
		n.modes[name] = mode
		for c, k := range n.conns {
			if mode != netOpen && (k.who == name || k.port == name) {
				cut = append(cut, c)
			}
		}
	}
	n.mu.Unlock()
	for _, c := range cut {
		_ = c.Close()
	}
}

func kafkaPorts() []string { return []string{"9092", "9093"} }
func rocksPorts() []string { return []string{"8030", "8031", "8040", "9030", "9031"} }

// --- workers

// simWorker is one worker process.
type simWorker struct {
	s      *sim
	name   string
	port   int
	worker *Worker
	reg    *prometheus.Registry
	logs   *logBook
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
	killed bool
}

// worker makes and runs a worker with the world's settings and these ones ("NAME=value").
func (s *sim) worker(name string, extra ...string) *simWorker {
	s.t.Helper()
	s.ports++
	w := &simWorker{s: s, name: name, port: s.ports, reg: prometheus.NewRegistry(), logs: &logBook{}, done: make(chan struct{})}
	environ := slices.Clone(extra)
	for k, v := range s.settings {
		environ = append(environ, k+"="+v)
	}
	environ = append(environ, "HOSTNAME="+name, "HTTP_ADDR=localhost:"+strconv.Itoa(w.port))
	cfg, err := config.Load(environ, os.ReadFile)
	require.NoError(s.t, err)
	w.worker, err = New(Options{
		Config: cfg, Log: w.logs.logger(), Registry: w.reg, Version: "sim", ReadFile: os.ReadFile,
		Dial: s.net.dialer(name), Listen: s.net.Listen,
	})
	require.NoError(s.t, err)
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	s.workers = append(s.workers, w)
	go func() {
		w.err = w.worker.Run(ctx)
		close(w.done)
	}()
	return w
}

func (w *simWorker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// term is SIGTERM.
func (w *simWorker) term() { w.cancel() }

// wait waits for the end and returns the exit code.
func (w *simWorker) wait(limit time.Duration) int {
	w.s.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		require.FailNowf(w.s.t, "worker did not end", "%s did not end within %s", w.name, limit)
	}
	w.s.net.set(netOpen, w.name)
	return ExitCode(w.err)
}

// stop is SIGTERM and the exit code 0, or another one.
func (w *simWorker) stop(code int) {
	w.s.t.Helper()
	w.term()
	require.Equal(w.s.t, code, w.wait(40*time.Second), "%s: %v", w.name, w.err)
}

// kill ends a worker as SIGKILL does, for everybody else: from now on it can say nothing to anyone.
func (w *simWorker) kill() {
	if w.killed || w.ended() {
		return
	}
	w.killed = true
	w.s.net.set(netRefuse, w.name)
	w.cancel()
	w.worker.Abort()
	<-w.done
	w.s.net.set(netOpen, w.name)
}

func (w *simWorker) get(path string) (int, string) {
	w.s.t.Helper()
	tr := &http.Transport{DialContext: w.s.net.dialer("prober"), DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+strconv.Itoa(w.port)+path, nil)
	require.NoError(w.s.t, err)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.s.t, err)
	return resp.StatusCode, string(body)
}

// reasons are the failing checks as "check: reason"; none for a ready worker.
func (w *simWorker) reasons() []string {
	w.s.t.Helper()
	code, body := w.get("/readyz")
	if code == 0 {
		return []string{"http: " + body}
	}
	var a struct {
		Ready   bool
		Reasons []struct{ Check, Reason string }
	}
	require.NoError(w.s.t, json.Unmarshal([]byte(body), &a), body)
	require.Equal(w.s.t, a.Ready, code == http.StatusOK)
	var out []string
	for _, r := range a.Reasons {
		out = append(out, r.Check+": "+r.Reason)
	}
	return out
}

// live checks /livez: never anything but 200.
func (w *simWorker) live() {
	w.s.t.Helper()
	code, body := w.get("/livez")
	require.Equal(w.s.t, http.StatusOK, code, body)
}

// metrics is one scrape.
func (w *simWorker) metrics() scrape {
	w.s.t.Helper()
	fams, err := w.reg.Gather()
	require.NoError(w.s.t, err)
	out := scrape{}
	for _, f := range fams {
		out[f.GetName()] = f
	}
	return out
}

// identity checks that records read = counted + late + future + bad for every partition, at one scrape.
func (w *simWorker) identity() scrape {
	w.s.t.Helper()
	m := w.metrics()
	for p := range w.s.opt.partitions {
		n := strconv.Itoa(int(p))
		require.InDelta(w.s.t, m.sum("rollcall_source_records_total", "partition", n), m.sum("rollcall_events_total", "partition", n), 0.1, "%s, partition %d", w.name, p)
	}
	return m
}

type scrape map[string]*dto.MetricFamily

// sum adds up the series of a metric with these label values.
func (s scrape) sum(name string, labels ...string) float64 {
	total := 0.0
	f := s[name]
	if f == nil {
		return 0
	}
next:
	for _, m := range f.GetMetric() {
		for i := 0; i < len(labels); i += 2 {
			if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] }) {
				continue next
			}
		}
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}

// --- log

// logBook keeps a worker's log.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(bytes.TrimSpace(p)))
	return len(p), nil
}

func (b *logBook) Sync() error { return nil }

func (b *logBook) logger() *zap.Logger {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(enc), b, zap.InfoLevel))
}

func (b *logBook) has(parts ...string) bool { return b.count(parts...) > 0 }

// count counts the lines with all the parts.
func (b *logBook) count(parts ...string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(l, p)
		}
		if all {
			n++
		}
	}
	return n
}

func (b *logBook) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[max(0, len(b.lines)-n):], "\n")
}

// --- records

// produce writes n countable events to the partitions in turn and adds them to the truth.
func (s *sim) produce(n int, partitions ...int32) {
	s.t.Helper()
	if len(partitions) == 0 {
		for p := range s.opt.partitions {
			partitions = append(partitions, p)
		}
	}
	var batch []*kgo.Record
	for i := range n {
		e, p := s.gen.Next(), partitions[i%len(partitions)]
		s.truth.Add(e)
		s.events[p] = append(s.events[p], &e)
		batch = append(batch, record(p, e.AppendJSON(nil)))
	}
	s.write(batch...)
}

// produceBad writes records that do not count.
func (s *sim) produceBad(rs ...*kgo.Record) {
	s.t.Helper()
	for _, r := range rs {
		s.events[r.Partition] = append(s.events[r.Partition], nil)
	}
	s.write(rs...)
}

// write writes records and waits until Kafka has them.
func (s *sim) write(rs ...*kgo.Record) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(s.t, s.prod.ProduceSync(ctx, rs...).FirstErr())
}

func record(partition int32, value []byte) *kgo.Record {
	return &kgo.Record{Topic: simTopic, Partition: partition, Value: value}
}

// event is an event at a time; it is in no truth.
func (s *sim) event(at time.Time) oracle.Event {
	e := s.gen.Next()
	e.At = at.Truncate(time.Millisecond)
	return e
}

// expect makes the truth anew: the events of every partition from an offset on.
func (s *sim) expect(from map[int32]int64) {
	s.truth = oracle.NewTruth(time.UTC)
	for p, events := range s.events {
		s.add(p, from[p], int64(len(events)))
	}
}

// add adds the events of a range of offsets to the truth.
func (s *sim) add(partition int32, from, to int64) {
	for _, e := range s.events[partition][from:to] {
		if e != nil {
			s.truth.Add(*e)
		}
	}
}

// fault makes Kafka refuse requests until healKafka.
func (s *sim) fault(f kfake.Fault) {
	f.Count = -1
	s.faults = append(s.faults, s.kafka.Fault(f))
}

func (s *sim) healKafka() {
	for _, f := range s.faults {
		f.Remove()
	}
	s.faults = nil
}

// --- looking

// eventually waits in virtual time until ok, for at most limit.
func (s *sim) eventually(limit time.Duration, what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(max(100*time.Millisecond, min(time.Second, limit/100))) {
		if ok() {
			return
		}
		if !time.Now().Before(end) {
			require.FailNow(s.t, "did not happen in "+limit.String(), what)
		}
	}
}

// ready waits until the workers are ready.
func (s *sim) ready(limit time.Duration, ws ...*simWorker) {
	s.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(max(200*time.Millisecond, min(time.Second, limit/100))) {
		var open []string
		for _, w := range ws {
			require.False(s.t, w.ended(), "%s ended: %v", w.name, w.err)
			for _, r := range w.reasons() {
				open = append(open, w.name+" "+r)
			}
		}
		if len(open) == 0 {
			return
		}
		if !time.Now().Before(end) {
			require.FailNow(s.t, "not ready in "+limit.String(), strings.Join(open, "\n"))
		}
	}
}

// view is what a reader of the table sees.
func (s *sim) view() []oracle.Row {
	_, rows, err := s.rocks.Query("SELECT dt, platform, channel, uv, pv, amount, least, most FROM dau.daily_view ORDER BY dt, platform, channel")
	if err != nil {
		return nil // the table is not there yet
	}
	out := make([]oracle.Row, len(rows))
	for i, r := range rows {
		out[i] = oracle.Row{
			Key: oracle.Key{Day: r[0].(string), Platform: r[1].(string), Channel: r[2].(string)},
			UV:  number(r[3]), PV: number(r[4]), Amount: number(r[5]), Least: number(r[6]), Most: number(r[7]),
		}
	}
	return out
}

func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case *big.Int:
		return v.Int64()
	}
	return -1
}

func counted(rows []oracle.Row) (pv int64) {
	for _, r := range rows {
		pv += r.PV
	}
	return pv
}

// exact waits until the table has as many events as the truth and then compares every number.
func (s *sim) exact(limit time.Duration) {
	s.t.Helper()
	s.eventually(limit, "all events in the table", func() bool { return counted(s.view()) >= s.truth.Events() })
	require.Empty(s.t, s.truth.Diff(s.view()), "seed %d", s.opt.seed)
}

// committed is the group's offset by partition; -1 where there is none.
func (s *sim) committed() map[int32]int64 {
	s.t.Helper()
	offs, err := kadm.NewClient(s.prod).FetchOffsets(context.Background(), simGroup)
	out := map[int32]int64{}
	for p := range s.opt.partitions {
		out[p] = -1
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return out
	}
	require.NoError(s.t, err)
	offs.Each(func(o kadm.OffsetResponse) {
		if o.Topic == simTopic {
			out[o.Partition] = o.At
		}
	})
	return out
}

// metadata is what the group's commits say besides the offset.
func (s *sim) metadata() map[int32]string {
	s.t.Helper()
	offs, err := kadm.NewClient(s.prod).FetchOffsets(context.Background(), simGroup)
	require.NoError(s.t, err)
	out := map[int32]string{}
	offs.Each(func(o kadm.OffsetResponse) { out[o.Partition] = o.Metadata })
	return out
}

func (s *sim) ends() map[int32]int64 {
	s.t.Helper()
	out := map[int32]int64{}
	for p := range s.opt.partitions {
		if i := s.kafka.PartitionInfo(simTopic, p); i != nil {
			out[p] = i.HighWatermark
		}
	}
	return out
}

// commit sets the group's offset by hand, as some other tool does.
func (s *sim) commit(partition int32, at int64, metadata string) {
	s.t.Helper()
	var offs kadm.Offsets
	offs.Add(kadm.Offset{Topic: simTopic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: metadata})
	require.NoError(s.t, kadm.NewClient(s.prod).CommitAllOffsets(context.Background(), simGroup, offs))
}

// grow adds partitions to the topic.
func (s *sim) grow(to int32) {
	s.t.Helper()
	_, err := kadm.NewClient(s.prod).UpdatePartitions(context.Background(), int(to), simTopic)
	require.NoError(s.t, err)
	s.opt.partitions = to
	s.prod.Close() // or it takes a while to see them
	s.prod = s.client()
}

// recreate deletes the topic and creates it again; the producer starts anew with it.
func (s *sim) recreate() {
	s.t.Helper()
	require.NoError(s.t, s.kafka.DeleteTopic(simTopic))
	require.NoError(s.t, s.kafka.CreateTopic(simTopic, s.opt.partitions, nil))
	s.prod.Close()
	s.prod = s.client()
}

// histories lists the sources in the table.
func (s *sim) histories() []string {
	s.t.Helper()
	_, rows, err := s.rocks.Query("SELECT DISTINCT rollcall_source FROM dau.daily ORDER BY rollcall_source")
	require.NoError(s.t, err)
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprint(r[0]))
	}
	return out
}
