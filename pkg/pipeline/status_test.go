package pipeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/discovery"
	"rollcall/pkg/source"
)

// The page says of a partition that its leader is away, by the broker's number and address.
func TestLeaderProblem(t *testing.T) {
	s := &discovery.Snapshot{
		Brokers: []discovery.Broker{{ID: 1, Addr: "b1:9092"}, {ID: 2, Addr: "b2:9092"}},
		Topics:  map[string]discovery.Topic{"t": {Partitions: map[int32]discovery.Partition{0: {Leader: 1}, 1: {Leader: 2}, 2: {Leader: -1}, 3: {Leader: 9}}}},
	}
	failing := map[string]time.Time{"b1:9092": time.Now()}
	of := func(topic string, p int32) string {
		return leaderProblem(s, source.Partition{Topic: topic, Partition: p}, failing)
	}
	require.Equal(t, "its leader, broker 1 at b1:9092, does not answer", of("t", 0))
	require.Empty(t, of("t", 1))
	require.Equal(t, "it has no leader", of("t", 2))
	require.Empty(t, of("t", 3), "a broker that is not listed yet")
	require.Empty(t, of("t", 4))
	require.Empty(t, of("u", 0))
	require.Empty(t, leaderProblem(nil, source.Partition{Topic: "t"}, failing))
}
