package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	if !clockRuns {
		t.Skip("needs -tags synctests (make test): without it a mutex of the Kafka client can stop virtual time")
	}
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
	if s.t.Failed() {
		s.t.Logf("group: %+v", s.kafka.GroupInfo(simGroup))
	}
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

// unwedge gets kfake's group going again if it is stuck. Unlike a broker it never ends the session of a member that died while it waited to
// join or for its assignment, and it begins the wait of a rebalance anew with everyone who tries to join.
func (s *sim) unwedge() {
	s.t.Helper()
	for range 5 {
		time.Sleep(40 * time.Second) // longer than a session or a rebalance may take
		info := s.kafka.GroupInfo(simGroup)
		if info == nil {
			return
		}
		var out []string
		for _, m := range info.Members {
			if !s.lives(m.ClientID) || info.State == "PreparingRebalance" {
				out = append(out, m.MemberID)
			}
		}
		if len(out) == 0 {
			return
		}
		s.evict(out)
	}
}

// lives reports whether a client of the group is a worker that has not ended.
func (s *sim) lives(client string) bool {
	for _, w := range s.workers {
		if "rollcall-"+w.name == client {
			return !w.ended()
		}
	}
	return false
}

// evict takes members out of the group; those that live join again.
func (s *sim) evict(members []string) {
	s.t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = simGroup
	for _, id := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		req.Members = append(req.Members, m)
	}
	_, err := s.prod.Request(context.Background(), req)
	require.NoError(s.t, err)
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
