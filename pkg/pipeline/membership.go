package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership is a hook of the Kafka client that notices that the group has answered with an assignment, of which the source says nothing if
// it is empty. The client calls it, others look.
type membership struct{ answered atomic.Bool }

// OnBrokerRead implements kgo.HookBrokerRead.
func (m *membership) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil && (key == int16(kmsg.SyncGroup) || key == int16(kmsg.ConsumerGroupHeartbeat)) {
		m.answered.Store(true)
	}
}
