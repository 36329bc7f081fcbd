package source

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// packedAtFirst is how much batches are taken to grow when they are unpacked, until some were.
	packedAtFirst = 4
	// packedSample is how much must have come over the wire for a new estimate.
	packedSample = 256 << 10
	// fetchLeast is the least a fetch asks for, and fetchLeastPartition of one partition. A broker sends a batch that is larger anyway.
	fetchLeast, fetchLeastPartition = 256 << 10, 32 << 10
)

// packing knows how much batches have grown lately when they were unpacked. Limits of fetches count bytes on the wire, and what takes memory is
// what becomes of them: a topic that is packed to a tenth would take ten times as much. The client's goroutines count, and the poll goroutine,
// which alone calls fit, brings the limits in line.
type packing struct {
	wire, unpacked atomic.Int64
	ratio          float64
}

// OnFetchBatchRead counts a batch (kgo.HookFetchBatchRead); the client calls it concurrently.
func (p *packing) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	p.wire.Add(int64(m.CompressedBytes))
	p.unpacked.Add(int64(m.UncompressedBytes))
}

// fit makes the next fetches as large as c allows once they are unpacked.
func (p *packing) fit(client *kgo.Client, c Config) {
	if p.wire.Load() < packedSample {
		return
	}
	seen := max(1, float64(p.unpacked.Swap(0))/float64(p.wire.Swap(0)))
	if seen > p.ratio { // what could take too much memory counts at once
		p.ratio = seen
	} else {
		p.ratio += (seen - p.ratio) / 4
	}
	client.UpdateFetchMaxBytes(p.limits(c))
}

// limits are those of a fetch, and of one partition in it, in bytes on the wire.
func (p *packing) limits(c Config) (all, partition int32) {
	part := func(unpacked, least int32) int32 { return max(int32(float64(unpacked)/p.ratio), min(unpacked, least)) }
	return part(c.FetchMaxBytes, fetchLeast), part(c.FetchMaxPartitionBytes, fetchLeastPartition)
}
