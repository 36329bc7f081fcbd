package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
)

// brokerSpec says what the broker's topic holds.
type brokerSpec struct {
	Workload    workload
	Compression string
	Batch       int
}

// brokerReady is the broker's line.
type brokerReady struct {
	Addr  string
	Bytes int64 // of the records' values
}

func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	}
	return kgo.NoCompression(), fmt.Errorf("compression %q: want none, zstd, lz4, snappy or gzip", name)
}

// playBroker is one kfake broker without proxies, filled before anybody reads.
func playBroker(ctx context.Context, arg string) error {
	var spec brokerSpec
	if err := json.Unmarshal([]byte(arg), &spec); err != nil {
		return err
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(spec.Workload.partitions(), topic))
	if err != nil {
		return fmt.Errorf("kfake: %w", err)
	}
	defer c.Close()
	kafkatest.FixEpochs(c)
	n, err := fill(ctx, c.ListenAddrs(), spec)
	if err != nil {
		return err
	}
	if err := tell(brokerReady{Addr: c.ListenAddrs()[0], Bytes: n}); err != nil {
		return err
	}
	parentGone(ctx)
	return nil
}

// producer is a client that writes to the topic, to the partition that each record names.
func producer(addrs []string, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
	}, more...)...)
}

// fill produces the workload as an ordinary producer does.
func fill(ctx context.Context, addrs []string, spec brokerSpec) (int64, error) {
	comp, err := codec(spec.Compression)
	if err != nil {
		return 0, err
	}
	cl, err := producer(addrs, kgo.ProducerBatchCompression(comp), kgo.ProducerBatchMaxBytes(int32(spec.Batch)), kgo.ProducerLinger(50*time.Millisecond), //nolint:gosec // small
		kgo.MaxBufferedRecords(200_000))
	if err != nil {
		return 0, fmt.Errorf("producer: %w", err)
	}
	defer cl.Close()
	var bytes int64
	var failed atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	spec.Workload.each(func(e oracle.Event) bool {
		value := e.AppendJSON(make([]byte, 0, 256))
		bytes += int64(len(value))
		cl.Produce(ctx, &kgo.Record{Partition: spec.Workload.partitionOf(e), Value: value}, done)
		return failed.Load() == nil
	})
	if err := cl.Flush(ctx); err != nil {
		return 0, fmt.Errorf("fill the topic: %w", err)
	}
	if err := failed.Load(); err != nil {
		return 0, fmt.Errorf("fill the topic: %w", *err)
	}
	return bytes, nil
}
