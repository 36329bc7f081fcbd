//go:build synctests

package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// world is a publisher, its brokers and its topic in virtual time.
type world struct {
	t     *testing.T
	net   kfake.VirtualNetwork
	kafka *kfake.Cluster
	p     *Publisher
	m     *Metrics
	logs  *observer.ObservedLogs
	end   func()

	mu   sync.Mutex
	done map[int][]error // by record: the calls of its callback
}

func inWorld(t *testing.T, f func(t *testing.T, w *world), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, done: map[int][]error{}}
		var err error
		w.kafka, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(w.net.Listen)}, opts...)...)
		require.NoError(t, err)
		defer w.kafka.Close()
		core, logs := observer.New(zapcore.InfoLevel)
		w.logs, w.m = logs, NewMetrics(prometheus.NewRegistry(), []string{"not_json"})
		w.p, err = New(Config{
			Topic: "dead", Seeds: []string{"localhost:9092", "localhost:9093"}, Log: zap.New(core), Metrics: w.m,
			Client: []kgo.Opt{kgo.Dialer(w.net.DialContext), kgo.MetadataMinAge(100 * time.Millisecond)},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.p.Run(ctx) })
		w.end = func() { cancel(); wg.Wait() }
		defer w.end()
		f(t, w)
	})
}

func topicOf(partitions int32) kfake.Opt { return kfake.SeedTopics(partitions, "dead") }

func (w *world) publish(from, to int) {
	for i := from; i < to; i++ {
		w.p.Publish(&kgo.Record{Topic: "events", Offset: int64(i), Value: fmt.Appendf(nil, "bad %d", i)}, "not_json", func(err error) {
			if err == nil {
				if w.inTopic() == 0 {
					w.t.Errorf("record %d confirmed with nothing in the topic", i)
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.done[i] = append(w.done[i], err)
		})
	}
}

func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// inTopic is how many records the topic has.
func (w *world) inTopic() (n int64) {
	for p := range int32(8) {
		if i := w.kafka.PartitionInfo("dead", p); i != nil {
			n += i.HighWatermark
		}
	}
	return n
}

// confirmed counts callbacks without, refused those with an error; each record may have one.
func (w *world) results() (confirmed, refused int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, errs := range w.done {
		require.Len(w.t, errs, 1, "record %d", i)
		if errs[0] == nil {
			confirmed++
			continue
		}
		require.ErrorIs(w.t, errs[0], ErrStopped)
		refused++
	}
	return confirmed, refused
}

// A record is confirmed when the topic has it.
func TestConfirmedIsInTheTopic(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.publish(0, 100)
		time.Sleep(time.Second)
		confirmed, _ := w.results()
		require.Equal(t, 100, confirmed)
		require.Equal(t, int64(100), w.inTopic())
		require.Equal(t, Status{}, w.p.Status())
		require.InDelta(t, 100, value(t, w.m.records.WithLabelValues("not_json")), 0)
		require.InDelta(t, 0, value(t, w.m.retries), 0)
	}, topicOf(3))
}

// The topic is away for ten minutes: nothing is confirmed, each record is tried with a back-off, it is said once, and all is confirmed soon
// after. A topic that is missing or refuses is the same as brokers that do not answer.
func TestTopicAway(t *testing.T) {
	for name, away := range map[string]func(w *world) (back func()){
		"refuses": func(w *world) func() {
			h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			return func() { h.Remove() }
		},
		"not enough replicas": func(w *world) func() {
			h := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
			return func() { h.Remove() }
		},
		"missing": func(w *world) func() {
			require.NoError(w.t, w.kafka.DeleteTopic("dead"))
			return func() { require.NoError(w.t, w.kafka.CreateTopic("dead", 3, nil)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.publish(0, 10)
				time.Sleep(time.Second)
				before := w.inTopic()
				back := away(w)
				tries := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
				began := time.Now()
				w.publish(10, 25)
				for range 10 {
					time.Sleep(time.Minute)
					confirmed, refused := w.results()
					require.Equal(t, 10, confirmed)
					require.Zero(t, refused, "an outage is no reason to give a record up")
				}
				require.Less(t, tries.Hits(), 15*60, "tried with a back-off")
				s := w.p.Status()
				require.Equal(t, 15, s.Open)
				back()
				time.Sleep(time.Minute)
				confirmed, _ := w.results()
				require.Equal(t, 25, confirmed, "%+v", w.p.Status())
				require.Equal(t, Status{Since: w.p.Status().Since}, w.p.Status())
				require.GreaterOrEqual(t, w.inTopic()+before, int64(25))
				if name != "refuses" {
					return // the client waits for these by itself
				}
				require.ErrorIs(t, s.Err, kerr.TopicAuthorizationFailed)
				require.WithinDuration(t, began, s.Since, 5*time.Second)
				require.Len(t, w.logs.FilterMessage("dead-letter topic refuses records: partitions with bad records wait for it").All(), 1)
				require.Len(t, w.logs.FilterMessage("dead-letter topic accepts records again").All(), 1)
				require.NotZero(t, value(t, w.m.retries))
			}, topicOf(3))
		})
	}
}

// An acknowledgement that is lost leads to a second try, never to a loss.
func TestAnswerLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lost := 3
		w.kafka.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.kafka.KeepControl()
			if lost == 0 {
				return nil, nil, false
			}
			lost--
			return nil, errors.New("connection lost"), true
		})
		w.publish(0, 20)
		time.Sleep(2 * time.Minute)
		confirmed, _ := w.results()
		require.Equal(t, 20, confirmed)
		require.GreaterOrEqual(t, w.inTopic(), int64(20))
	}, topicOf(1))
}

// The end of the publisher: what is not confirmed hears so, once, whether it is under way or waits for its next try, and Publish takes
// nothing any more. The end does not wait for the topic.
func TestEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		fault *kfake.Fault
		wait  time.Duration
	}{
		"under way":           {nil, 0},
		"waiting for a retry": {&kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1}, 10 * time.Minute},
		"brokers are silent":  {&kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.BrokerNotAvailable, Count: -1}, time.Minute},
		"all confirmed":       {nil, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				if tc.fault != nil {
					w.kafka.Fault(*tc.fault)
				}
				w.publish(0, 30)
				time.Sleep(tc.wait)
				begun := time.Now()
				w.end()
				require.Less(t, time.Since(begun), 5*time.Second)
				confirmed, refused := w.results()
				require.Equal(t, 30, confirmed+refused, "each record has its answer")
				if name == "all confirmed" {
					require.Equal(t, 30, confirmed)
				}
				require.GreaterOrEqual(t, w.inTopic(), int64(confirmed))
				require.Zero(t, w.p.Status().Open)
				w.publish(30, 31)
				_, after := w.results()
				require.Equal(t, refused+1, after)
			}, topicOf(2))
		})
	}
}

// Records that the topic refuses for their size are cut and marked, and hold up nobody else.
func TestTooLarge(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		confirmed := make(chan error, 1)
		w.p.Publish(&kgo.Record{Topic: "events", Offset: 5, Value: noise(700 << 10)}, "not_json", func(err error) { confirmed <- err })
		w.publish(0, 10)
		time.Sleep(30 * time.Second)
		require.NoError(t, <-confirmed)
		small, _ := w.results()
		require.Equal(t, 10, small)
		require.Equal(t, int64(11), w.inTopic())
		require.Nil(t, w.p.Status().Err, "a size is no outage")
		cl, err := kgo.NewClient(kgo.SeedBrokers("localhost:9092"), kgo.Dialer(w.net.DialContext), kgo.ConsumeTopics("dead"), kgo.DisableClientMetrics())
		require.NoError(t, err)
		defer cl.Close()
		cut := 0
		for n := 0; n < 11; {
			cl.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) {
				n++
				h := headers(r)
				if len(r.Value) < 100 {
					require.NotContains(t, h, "rollcall.truncated", "it was only in one batch with a large one")
					return
				}
				cut++
				require.Equal(t, "true", h["rollcall.truncated"])
				require.Equal(t, "5", h["rollcall.offset"])
				require.LessOrEqual(t, len(r.Value), cutBytes)
			})
		}
		require.Equal(t, 1, cut)
	}, topicOf(1), kfake.BrokerConfigs(map[string]string{"message.max.bytes": fmt.Sprint(128 << 10)}))
}

// noise is bytes that no codec makes smaller.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// New brokers are found by the seeds given later.
func TestSeedsAreUpdated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, err := New(Config{Topic: "dead", Seeds: []string{"localhost:1"}, Log: zap.NewNop(), Metrics: w.m, Client: []kgo.Opt{kgo.Dialer(w.net.DialContext)}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = p.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		got := errors.New("not called")
		p.Publish(&kgo.Record{Value: []byte("x")}, "not_json", func(err error) { got = err })
		time.Sleep(time.Minute)
		require.Error(t, got)
		require.NoError(t, p.UpdateSeeds([]string{"localhost:9092"}))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NoError(t, got)
	}, topicOf(1))
}
