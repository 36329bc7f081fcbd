package source

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
)

const (
	group = "g"
	topic = "t"
)

// world is a Kafka in a synctest bubble: everything in it runs in virtual time, and a goroutine that outlives it fails the test.
type world struct {
	t     *testing.T
	net   kfake.VirtualNetwork
	kafka *kfake.Cluster // nil with real brokers
	seeds []string
	dial  []kgo.Opt
	prod  *kgo.Client
	log   *zap.Logger
}

// inBubble runs a test against a cluster of two brokers with one topic, in virtual time. No test may move the leader of a partition that was
// started without an epoch and has delivered nothing yet: the client then fetches again at once until it has new metadata
// (FENCED_LEADER_EPOCH, franz-go 1.22.3: source.handleReqResp), for which no time passes here.
func inBubble(t *testing.T, partitions int32, f func(t *testing.T, w *world), opts ...kfake.Opt) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))}
		var err error
		w.kafka, err = kfake.NewCluster(append([]kfake.Opt{
			kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(w.net.Listen), kfake.SeedTopics(partitions, topic),
		}, opts...)...)
		require.NoError(t, err)
		defer w.kafka.Close()
		w.seeds, w.dial = w.kafka.ListenAddrs(), []kgo.Opt{kgo.Dialer(w.net.DialContext)}
		w.prod = w.client()
		defer w.prod.Close()
		f(t, w)
	})
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	base := append([]kgo.Opt{
		kgo.SeedBrokers(w.seeds...), kgo.DisableClientMetrics(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}, w.dial...)
	c, err := kgo.NewClient(append(base, opts...)...)
	require.NoError(w.t, err)
	return c
}

// produce writes n records to each of the partitions.
func (w *world) produce(topic string, n int, partitions ...int32) {
	w.t.Helper()
	var rs []*kgo.Record
	for _, p := range partitions {
		for i := range n {
			rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%d", i)})
		}
	}
	require.NoError(w.t, w.prod.ProduceSync(w.t.Context(), rs...).FirstErr())
}

// member is a source that runs, with a handler that takes notes.
type member struct {
	*Source
	w      *world
	notes  *notes
	reg    *prometheus.Registry
	cancel context.CancelFunc
	done   chan error
}

// join starts a member; unless change says otherwise, every partition is started at 0.
func (w *world) join(change func(c *Config, n *notes)) *member {
	w.t.Helper()
	m := &member{w: w, notes: newNotes(), reg: prometheus.NewRegistry(), done: make(chan error, 1)}
	cfg := Config{
		Seeds: w.seeds, Group: group, Topics: []string{topic}, Log: w.log, Metrics: NewMetrics(m.reg), Security: w.dial,
	}
	m.notes.onAssigned = func(generation uint64, ps []Partition) {
		for _, p := range ps {
			require.NoError(w.t, m.Start(p, generation, 0, -1))
		}
	}
	if change != nil {
		change(&cfg, m.notes)
	}
	var err error
	m.Source, err = New(cfg, m.notes)
	m.notes.m = m
	require.NoError(w.t, err)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(w.t.Context())
	go func() { m.done <- m.Run(ctx) }()
	return m
}

// leave stops a member and waits for it.
func (m *member) leave() {
	m.w.t.Helper()
	m.cancel()
	require.NoError(m.w.t, <-m.done)
}

// eventually waits in virtual time until ok, for at most limit.
func (w *world) eventually(limit time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			require.FailNow(w.t, "did not happen in "+limit.String(), what)
		}
	}
}

func part(p int32) Partition { return Partition{Topic: topic, Partition: p} }

// notes is a Handler that remembers. Its fields are read under its lock.
type notes struct {
	m          *member // whose handler it is
	mu         sync.Mutex
	busy       bool // a handler call is under way
	overlapped bool
	generation map[Partition]uint64
	offsets    map[Partition][]int64 // of data records
	control    map[Partition]int
	next       map[Partition]int64
	epoch      map[Partition]int32 // of the last record
	chunks     []Chunk
	events     []Event
	revoked    []Partition
	lost       []Partition

	onAssigned func(generation uint64, ps []Partition)
	onRevoked  func(ctx context.Context, ps []Partition)
	onRecords  func(c Chunk)
	onEvent    func(e Event)
}

func newNotes() *notes {
	return &notes{
		generation: map[Partition]uint64{}, offsets: map[Partition][]int64{}, control: map[Partition]int{}, next: map[Partition]int64{}, epoch: map[Partition]int32{},
	}
}

// enter notices when two handler calls overlap.
func (n *notes) enter() func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy {
		n.overlapped = true
	}
	n.busy = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.busy = false
	}
}

func (n *notes) Assigned(generation uint64, ps []Partition) {
	defer n.enter()()
	n.mu.Lock()
	for _, p := range ps {
		n.generation[p] = generation
	}
	n.mu.Unlock()
	if n.onAssigned != nil && len(ps) > 0 {
		n.onAssigned(generation, ps)
	}
}

func (n *notes) Revoked(ctx context.Context, ps []Partition) {
	defer n.enter()()
	if n.onRevoked != nil {
		n.onRevoked(ctx, ps)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revoked = append(n.revoked, ps...)
	for _, p := range ps {
		delete(n.generation, p)
	}
}

func (n *notes) Lost(ps []Partition) {
	defer n.enter()()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = append(n.lost, ps...)
	for _, p := range ps {
		delete(n.generation, p)
	}
}

func (n *notes) Records(c Chunk) {
	defer n.enter()()
	n.mu.Lock()
	n.chunks = append(n.chunks, c)
	for _, r := range c.Records {
		if r.Attrs.IsControl() {
			n.control[c.Partition]++
		} else {
			n.offsets[c.Partition] = append(n.offsets[c.Partition], r.Offset)
		}
	}
	n.next[c.Partition], n.epoch[c.Partition] = c.Next, c.Records[len(c.Records)-1].LeaderEpoch
	n.mu.Unlock()
	if n.onRecords != nil {
		n.onRecords(c)
	}
}

func (n *notes) Event(e Event) {
	defer n.enter()()
	n.mu.Lock()
	n.events = append(n.events, e)
	n.mu.Unlock()
	if n.onEvent != nil {
		n.onEvent(e)
	}
}

func (n *notes) gen(p Partition) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.generation[p]
}

func (n *notes) owned() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.generation)
}

func (n *notes) read(p Partition) []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.offsets[p])
}

func (n *notes) at(p Partition) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next[p]
}

func (n *notes) epochOf(p Partition) int32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.epoch[p]
}

// of lists the events of a kind.
func (n *notes) of(kind EventKind) []Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	var es []Event
	for _, e := range n.events {
		if e.Kind == kind {
			es = append(es, e)
		}
	}
	return es
}

func (n *notes) gone() (revoked, lost []Partition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.revoked), slices.Clone(n.lost)
}

// sequence is from, from+1 … to-1.
func sequence(from, to int64) []int64 {
	var s []int64
	for o := from; o < to; o++ {
		s = append(s, o)
	}
	return s
}

// epochEnds answers OffsetForLeaderEpoch with the same end for every epoch; kfake itself answers "unknown" after a leader moved, which a real
// broker does not.
func (w *world) epochEnds(end int64) {
	w.kafka.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.KeepControl()
		req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, p.LeaderEpoch, end
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

// keepsAll is an epochEnds that shows no truncation.
const keepsAll = 1 << 40

// value reads one metric.
func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	require.NoError(t, m.Write(&out))
	if out.Counter != nil {
		return out.Counter.GetValue()
	}
	return out.Gauge.GetValue()
}

// series counts what a collector has.
func series(c prometheus.Collector) int {
	ch := make(chan prometheus.Metric, 100)
	c.Collect(ch)
	return len(ch)
}

// regexpT matches the topic, regexpT2 its relatives too.
var (
	regexpT  = regexp.MustCompile("^" + topic + "$")
	regexpT2 = regexp.MustCompile("^" + topic)
)
