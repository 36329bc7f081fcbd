package e2e

import (
	"bytes"
	"context"
	endian "encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
)

// feed writes whole batches that were encoded once, so that a test process can keep a worker busy at the speed at which it reads. One broker
// has all partitions, and forgets what the worker has read if it is told to.
type feed struct {
	r    *rig
	cl   *kgo.Client
	id   [16]byte
	comp kgo.Compressor
	// sent is how many records each partition has.
	sent [partitions]int64
}

// loneBroker is a kfake cluster for a feed.
func loneBroker(t *testing.T) *kafkatest.Fake {
	return kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 1, Opts: []kfake.Opt{
		kfake.SeedTopics(partitions, topic), kfake.BrokerConfigs(map[string]string{"log.segment.bytes": fmt.Sprint(4 << 20)}),
	}})
}

func newFeed(r *rig) *feed {
	r.t.Helper()
	f := &feed{r: r}
	var err error
	f.cl, err = kgo.NewClient(kgo.SeedBrokers(r.addrs...), kgo.DisableClientMetrics())
	require.NoError(r.t, err)
	r.t.Cleanup(f.cl.Close)
	topics, err := kadm.NewClient(f.cl).ListTopics(r.t.Context(), r.topic)
	require.NoError(r.t, err)
	f.id = topics[r.topic].ID
	f.comp, err = kgo.DefaultCompressor(kgo.Lz4Compression())
	require.NoError(r.t, err)
	return f
}

// batch encodes events as one record batch, as a producer without idempotence sends it.
func (f *feed) batch(events []oracle.Event) []byte {
	var raw, value []byte
	for i, e := range events {
		value = e.AppendJSON(value[:0])
		rec := kmsg.Record{OffsetDelta: int32(i), Value: value} //nolint:gosec // small
		rec.Length = int32(len(rec.AppendTo(nil)) - 1)          //nolint:gosec // a length of 0 takes one byte
		raw = rec.AppendTo(raw)
	}
	packed, codec := f.comp.Compress(new(bytes.Buffer), raw)
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: int16(codec), LastOffsetDelta: int32(len(events) - 1), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(events)), Records: packed,
	}
	out := b.AppendTo(nil)
	endian.BigEndian.PutUint32(out[8:], uint32(len(out)-12))                                          //nolint:gosec // small
	endian.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli))) // everything after itself
	return out
}

// send writes a batch of n records to each partition and waits for the answer.
func (f *feed) send(ctx context.Context, n int, batches [partitions][]byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = f.r.topic, f.id
	for p, b := range batches {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = int32(p), b
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := f.cl.Broker(0).RetriableRequest(ctx, req)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	for _, p := range resp.(*kmsg.ProduceResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return fmt.Errorf("produce to partition %d: error %d", p.Partition, p.ErrorCode)
		}
	}
	for p := range f.sent {
		f.sent[p] += int64(n)
	}
	return nil
}

// total is how many records were sent in all.
func (f *feed) total() int64 {
	n := int64(0)
	for _, s := range f.sent {
		n += s
	}
	return n
}

// forget lets the broker drop what was read.
func (f *feed) forget(ctx context.Context, read [partitions]int64) error {
	offs := kadm.Offsets{}
	for p, at := range read {
		if at > 0 {
			offs.AddOffset(f.r.topic, int32(p), at, -1) //nolint:gosec // small
		}
	}
	_, err := kadm.NewClient(f.cl).DeleteRecords(ctx, offs)
	return err
}
