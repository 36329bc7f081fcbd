package discovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Whatever bytes decode as a metadata response: reading it neither panics nor makes a snapshot that contradicts itself.
func FuzzAnswer(f *testing.F) {
	seed := kmsg.NewPtrMetadataResponse()
	seed.Version = 12
	seed.ClusterID = kmsg.StringPtr("c")
	b := kmsg.NewMetadataResponseBroker()
	b.Host, b.Port = "b", 9092
	seed.Brokers = append(seed.Brokers, b)
	t := kmsg.NewMetadataResponseTopic()
	t.Topic = kmsg.StringPtr("t")
	for _, p := range []int32{0, 1, 3} {
		sp := kmsg.NewMetadataResponseTopicPartition()
		sp.Partition, sp.Leader = p, p-1
		t.Partitions = append(t.Partitions, sp)
	}
	seed.Topics = append(seed.Topics, t)
	f.Add(int16(12), seed.AppendTo(nil))
	seed.Topics[0].ErrorCode = 29
	f.Add(int16(12), seed.AppendTo(nil))
	s, err := Config{Seeds: []string{"b"}, Pattern: mustRegexp("."), GoneConfirmations: 1}.settle()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, version int16, data []byte) {
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = version & 15
		if resp.ReadFrom(data) != nil {
			return
		}
		v := newView(1, nil)
		_, err := v.apply(ans("b0 t:1:0,1,2,3"), time.Unix(1, 0))
		require.NoError(t, err)
		c, err := v.apply(s.parse("b:9092", resp), time.Unix(2, 0))
		require.NoError(t, err)
		for name, topic := range c.Snapshot.Topics {
			for p, part := range topic.Partitions {
				require.NotZero(t, part.State, "%s/%d", name, p)
				if part.State == Live {
					require.GreaterOrEqual(t, part.Leader, int32(0), "%s/%d", name, p)
				}
			}
		}
	})
}
