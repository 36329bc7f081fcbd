package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// badKinds is one value of every kind of bad record, by the reason it is given.
func badKinds(s *sim) map[string][]byte {
	good := func(old, now string) []byte {
		e := s.event(time.Now())
		e.User = 4711
		return bytes.Replace(e.AppendJSON(nil), []byte(old), []byte(now), 1)
	}
	ts := `"ts":` + strconv.FormatInt(time.Now().UnixMilli(), 10)
	return map[string][]byte{
		"tombstone":         nil,
		"unparsable":        {0xFF, 0x00, '{'},
		"not_an_object":     []byte(`[1,2]`),
		"wrong_type":        good(`"user_id":4711`, `"user_id":{"no":1}`),
		"missing_time":      good(ts, `"was":1`),
		"bad_time":          good(ts, `"ts":"yesterday"`),
		"time_before_2000":  good(ts, `"ts":12345`),
		"too_many_decimals": good(`"amount":`, `"amount":1.23456,"was":`),
		"negative_sum":      good(`"amount":`, `"amount":-5,"was":`),
	}
}

// letters reads the dead-letter topic from its beginning.
func (s *sim) letters() []*kgo.Record {
	s.t.Helper()
	end := s.kafka.PartitionInfo(simDead, 0).HighWatermark
	c := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{simDead: {0: kgo.NewOffset().AtStart()}}))
	defer c.Close()
	var out []*kgo.Record
	for int64(len(out)) < end {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		fs := c.PollFetches(ctx)
		cancel()
		require.NoError(s.t, fs.Err0())
		out = append(out, fs.Records()...)
	}
	return out
}

func headers(r *kgo.Record) map[string]string {
	out := map[string]string{}
	for _, h := range r.Headers {
		out[h.Key] = string(h.Value)
	}
	return out
}

// Ten of each kind of bad record, the first at offset 0: counted, dead-lettered with where they came from, and nothing else suffers.
func TestSimEveryKindOfBadRecord(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		kinds := badKinds(s)
		s.settings["DEADLETTER_TOPIC"] = simDead
		values := map[string][]byte{} // by partition/offset
		want := map[string]int{}
		for range 10 {
			for kind, v := range kinds {
				p := int32(s.rnd.IntN(4))
				at := len(s.events[p])
				values[fmt.Sprintf("%d/%d", p, at)] = v
				want[kind]++
				s.produceBad(&kgo.Record{
					Topic: simTopic, Partition: p, Key: []byte("k" + strconv.Itoa(at)), Value: v, Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("t")}},
				})
			}
			s.produce(100)
		}
		w := s.worker("w")
		s.exact(time.Minute)
		s.eventually(20*time.Second, "commits", func() bool { return fmt.Sprint(s.committed()) == fmt.Sprint(s.ends()) })
		m := w.identity()
		require.InDelta(t, 90, m.sum("rollcall_events_total", "outcome", "bad"), 0.1)
		require.InDelta(t, 1000, m.sum("rollcall_events_total", "outcome", "counted"), 0.1)
		got := map[string]int{}
		for _, r := range s.letters() {
			h := headers(r)
			got[h["rollcall.reason"]]++
			require.Equal(t, simTopic, h["rollcall.topic"])
			require.Equal(t, "t", h["trace"])
			require.Equal(t, "k"+h["rollcall.offset"], string(r.Key))
			v := values[h["rollcall.partition"]+"/"+h["rollcall.offset"]]
			require.Equal(t, v, r.Value)
			require.Equal(t, v == nil, r.Value == nil, "a tombstone stays one")
			require.Empty(t, h["rollcall.truncated"])
		}
		require.Equal(t, 90, sumOf(got))
		require.Equal(t, want, got)
		for kind, n := range got {
			require.InDelta(t, n, m.sum("rollcall_deadletter_records_total", "reason", kind), 0.1)
		}
		w.stop(0)
	})
}

func sumOf(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// Without a dead-letter topic bad records are counted and logged, but not one line each.
func TestSimBadRecordsWithoutATopic(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		for range 10 {
			for _, v := range badKinds(s) {
				s.produceBad(record(0, v))
			}
		}
		s.produce(200)
		w := s.worker("w")
		s.exact(time.Minute)
		m := w.identity()
		require.InDelta(t, 90, m.sum("rollcall_events_total", "outcome", "bad", "partition", "0"), 0.1)
		require.InDelta(t, 90, m.sum("rollcall_deadletter_records_total"), 0.1)
		require.Equal(t, 1, w.logs.count("record not counted"))
		time.Sleep(31 * time.Second)
		s.produceBad(record(0, []byte("no")))
		s.eventually(5*time.Second, "said again", func() bool { return w.logs.has("record not counted", `"more_since_last_line":89`) })
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// Late and future records are told from the others, also after a restart: the watermark is restored.
func TestSimLateAndFuture(t *testing.T) {
	simulate(t, simOptions{partitions: 1}, func(t *testing.T, s *sim) {
		late := func() *kgo.Record {
			return record(0, s.event(time.Now().Add(-97*time.Hour-40*time.Hour)).AppendJSON(nil))
		}
		future := func() *kgo.Record { return record(0, s.event(time.Now().Add(2*time.Hour)).AppendJSON(nil)) }
		s.produce(100)
		s.produceBad(late(), future(), late())
		w := s.worker("w")
		s.exact(time.Minute)
		m := w.identity()
		require.InDelta(t, 2, m.sum("rollcall_events_total", "outcome", "late"), 0.1)
		require.InDelta(t, 1, m.sum("rollcall_events_total", "outcome", "future"), 0.1)
		w.stop(0)
		w = s.worker("again")
		s.ready(time.Minute, w)
		s.produceBad(late(), late(), future())
		s.produce(50)
		s.exact(time.Minute)
		m = w.identity()
		require.InDelta(t, 2, m.sum("rollcall_events_total", "outcome", "late"), 0.1)
		require.InDelta(t, 1, m.sum("rollcall_events_total", "outcome", "future"), 0.1)
		w.stop(0)
	})
}

// Too many bad records among the last thousand stop the partition: not ready with the reason, the others go on, nothing is stepped over.
func TestSimDeadLetterRatio(t *testing.T) {
	simulate(t, simOptions{partitions: 2}, func(t *testing.T, s *sim) {
		s.settings["DEADLETTER_TOPIC"] = simDead
		w := s.worker("w")
		s.produce(600)
		s.exact(time.Minute)
		// 300 good ones are among the last thousand; the partition stops as soon as there are a thousand.
		bad := make([]*kgo.Record, 2000)
		for i := range bad {
			bad[i] = record(1, []byte("garbage"))
		}
		s.produceBad(bad...)
		s.eventually(10*time.Second, "stopped", func() bool { return strings.Contains(join(w.reasons()), "DEADLETTER_MAX_RATIO") })
		require.Contains(t, join(w.reasons()), "partition_stopped: events/1")
		w.live()
		s.produce(100, 0)
		s.exact(20 * time.Second)
		m := w.identity()
		n := m.sum("rollcall_events_total", "partition", "1", "outcome", "bad")
		require.InDelta(t, 700, n, 0.1)
		require.InDelta(t, n, len(s.letters()), 0.1)
		time.Sleep(10 * time.Second)
		require.Equal(t, int64(300), s.committed()[1], "what made it stop is read again")
		w.stop(0)

		// The topic is mended as the operator says, or the check turned off.
		s.produce(100, 1)
		w = s.worker("off", "DEADLETTER_MAX_RATIO=1")
		s.exact(time.Minute)
		s.ready(time.Second, w)
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// The same in a bounded run is exit 14, every time, until the settings fit: what made it stop is never stepped over.
func TestSimDeadLetterRatioBounded(t *testing.T) {
	simulate(t, simOptions{partitions: 2}, func(t *testing.T, s *sim) {
		s.produce(600)
		bad := make([]*kgo.Record, 1000)
		for i := range bad {
			bad[i] = record(1, []byte("garbage"))
		}
		s.produceBad(bad...)
		for range 2 {
			w := s.worker("w", "KAFKA_STOP=latest")
			require.Equal(t, ExitSource, w.wait(time.Minute), "%v", w.err)
			require.ErrorContains(t, w.err, "DEADLETTER_MAX_RATIO")
			require.Zero(t, s.committed()[1])
		}
		w := s.worker("w", "KAFKA_STOP=latest", "DEADLETTER_MAX_RATIO=1")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		s.exact(time.Second)
		require.Equal(t, s.ends(), s.committed())
	})
}

// Dead letters are confirmed before the load that passes them: while the topic refuses them, only their partition waits.
func TestSimDeadLetterTopicAway(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.settings["DEADLETTER_TOPIC"] = simDead
		w := s.worker("w")
		s.produce(100)
		s.exact(time.Minute)
		time.Sleep(2 * time.Second)
		s.kafkaRefusesDeadLetters()
		s.produceBad(record(2, []byte("garbage")))
		s.produce(100) // 25 of partition 2, behind the bad one
		for range 6 {
			time.Sleep(10 * time.Second)
			w.live()
			w.identity()
			at := s.committed()
			require.Equal(t, int64(25), at[2], "not past the bad record")
			require.Equal(t, int64(50), at[0])
			require.Equal(t, int64(175), counted(s.view()), "only that partition waits")
		}
		require.Contains(t, join(w.reasons()), "deadletter: ")
		// A stop cannot wait for ever: the rows are open, and read again.
		w.stop(ExitNotDurable)
		require.Equal(t, int64(25), s.committed()[2])
		w = s.worker("again")
		time.Sleep(20 * time.Second)
		require.Equal(t, int64(175), counted(s.view()))
		s.healKafka()
		s.exact(40 * time.Second)
		s.ready(30*time.Second, w)
		require.NotEmpty(t, s.letters())
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// A trickle of dead letters that are never confirmed pauses their partition after a while, and it goes on by itself.
func TestSimManyOpenDeadLetters(t *testing.T) {
	simulate(t, simOptions{partitions: 2}, func(t *testing.T, s *sim) {
		s.settings["DEADLETTER_TOPIC"], s.settings["DEADLETTER_MAX_RATIO"] = simDead, "1"
		w := s.worker("w")
		s.ready(time.Minute, w)
		s.kafkaRefusesDeadLetters()
		for range 30 {
			bad := make([]*kgo.Record, 100)
			for i := range bad {
				bad[i] = record(1, []byte("garbage"))
			}
			s.produceBad(bad...)
			s.produce(10)
			time.Sleep(time.Second)
		}
		m := w.identity()
		require.InDelta(t, 1, m.sum("rollcall_source_paused", "reason", "deadletters"), 0.1)
		require.Less(t, m.sum("rollcall_events_total", "partition", "1", "outcome", "bad"), 2000.0)
		s.healKafka()
		s.exact(2 * time.Minute)
		s.eventually(time.Minute, "all letters", func() bool { return s.kafka.PartitionInfo(simDead, 0).HighWatermark == 3000 })
		require.Zero(t, w.identity().sum("rollcall_source_paused", "reason", "deadletters"))
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// A dead letter that the broker finds too large is cut and marked.
func TestSimDeadLetterTooLarge(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		require.NoError(t, s.kafka.CreateTopic("small", 1, map[string]string{"max.message.bytes": "300000"}))
		s.settings["DEADLETTER_TOPIC"] = "small"
		value := make([]byte, 700_000) // the client compresses, so it must not be compressible
		for i := range value {
			value[i] = byte(s.rnd.IntN(256))
		}
		s.produceBad(&kgo.Record{Topic: simTopic, Partition: 1, Key: []byte("key"), Value: value})
		s.produce(100)
		w := s.worker("w")
		s.exact(time.Minute)
		w.stop(0)
		require.Equal(t, int64(1), s.kafka.PartitionInfo("small", 0).HighWatermark)
		c := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"small": {0: kgo.NewOffset().AtStart()}}))
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r := c.PollFetches(ctx).Records()[0]
		h := headers(r)
		require.Equal(t, "true", h["rollcall.truncated"])
		require.Equal(t, "key", string(r.Key))
		require.Equal(t, value[:256<<10], r.Value)
		require.Equal(t, "0", h["rollcall.offset"])
	})
}

func (s *sim) kafkaRefusesDeadLetters() {
	s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: simDead, Err: kerr.NotEnoughReplicas})
}
