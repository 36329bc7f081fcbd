package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership is a hook of the Kafka client that notices that the group has answered with an assignment, of which the source says nothing if
// it is empty, and when any broker answered last. The client calls it, others look.
type membership struct {
	answered atomic.Bool
	heard    atomic.Int64 // Unix ns
}

// silence is longer than any broker lets a fetch wait: after it, nobody can be said to answer.
const silence = 10 * time.Second

// silent reports whether no broker has answered for a while. A worker without partitions has heartbeats.
func (m *membership) silent() bool { return time.Since(time.Unix(0, m.heard.Load())) > silence }

// OnBrokerRead implements kgo.HookBrokerRead.
func (m *membership) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	m.heard.Store(time.Now().UnixNano())
	if key == int16(kmsg.SyncGroup) || key == int16(kmsg.ConsumerGroupHeartbeat) {
		m.answered.Store(true)
	}
}
