package kafkatest

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Records are read once each while leaders move, a broker goes and another comes: the client sees only the proxies, and FixEpochs keeps it
// from reading again.
func TestFakeMovesLeaders(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	f := StartFakeT(t, FakeOptions{Brokers: 4, Opts: []kfake.Opt{kfake.SeedTopics(8, "t")}})
	addrs := f.Addrs()
	require.Len(t, addrs, 4)
	for i, a := range addrs {
		require.Equal(t, f.Proxy(int32(i)).Addr(), a)
	}

	opts := []kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}
	prod, err := kgo.NewClient(append(opts, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	require.NoError(t, err)
	defer prod.Close()
	cons, err := kgo.NewClient(append(opts, kgo.ConsumeTopics("t"), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))...)
	require.NoError(t, err)
	defer cons.Close()

	const rounds, each = 8, 20
	seen := map[string]int{}
	for r := range rounds {
		switch r {
		case 3:
			require.NoError(t, f.RemoveNode(1, Refuse))
		case 5:
			node, err := f.AddNode()
			require.NoError(t, err)
			require.True(t, slices.Contains(f.Addrs(), f.Proxy(node).Addr()))
		default:
			f.Cluster.ShufflePartitionLeaders()
		}
		for i := range each {
			require.NoError(t, prod.ProduceSync(ctx, kgo.StringRecord(strconv.Itoa(r*each+i))).FirstErr())
		}
		for len(seen) < (r+1)*each {
			fs := cons.PollFetches(ctx)
			require.NoError(t, fs.Err())
			fs.EachRecord(func(rec *kgo.Record) { seen[string(rec.Value)]++ })
		}
	}
	for v, n := range seen {
		require.Equal(t, 1, n, "record %s", v)
	}
}

func TestFakeUnknownNode(t *testing.T) {
	f := StartFakeT(t, FakeOptions{Brokers: 1})
	require.Nil(t, f.Proxy(7))
	require.Error(t, f.Set(Refuse, 7))
	require.NoError(t, f.Set(Silent, 0))
}
