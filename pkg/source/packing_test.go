package source

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Fetches ask for as many bytes as become the configured ones once they are unpacked.
func TestFetchesShrinkAsBatchesGrow(t *testing.T) {
	client, err := kgo.NewClient()
	require.NoError(t, err)
	defer client.Close()
	limits := func() [2]int32 {
		all, _ := client.OptValue(kgo.FetchMaxBytes).(int32)
		part, _ := client.OptValue(kgo.FetchMaxPartitionBytes).(int32)
		return [2]int32{all, part}
	}
	c := Config{FetchMaxBytes: 4 << 20, FetchMaxPartitionBytes: 512 << 10}
	p := packing{ratio: packedAtFirst}
	all, part := p.limits(c)
	require.Equal(t, [2]int32{1 << 20, 128 << 10}, [2]int32{all, part}, "before anything is known")

	read := func(wire, unpacked int) {
		p.OnFetchBatchRead(kgo.BrokerMetadata{}, "t", 0, kgo.FetchBatchMetrics{CompressedBytes: wire, UncompressedBytes: unpacked})
		p.fit(client, c)
	}
	before := limits()
	read(1000, 1000)
	require.Equal(t, before, limits(), "too few to say anything")
	for range 40 {
		read(packedSample, packedSample)
	}
	require.InDelta(t, 4<<20, limits()[0], 1<<10, "nothing is packed")
	read(packedSample, 8*packedSample)
	require.Equal(t, [2]int32{512 << 10, 64 << 10}, limits(), "at once")
	read(packedSample, 4*packedSample)
	require.Greater(t, limits()[0], int32(512<<10))
	require.Less(t, limits()[0], int32(1<<20), "by and by")
	read(packedSample, 1000*packedSample)
	require.Equal(t, [2]int32{fetchLeast, fetchLeastPartition}, limits())
}

// A limit that is set lower than what a fetch asks for at least is kept.
func TestFetchLimitsBelowTheLeast(t *testing.T) {
	p := packing{ratio: packedAtFirst}
	all, part := p.limits(Config{FetchMaxBytes: 1000, FetchMaxPartitionBytes: 100})
	require.Equal(t, [2]int32{1000, 100}, [2]int32{all, part})
}
