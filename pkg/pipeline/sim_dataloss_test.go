package pipeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rollcall/pkg/sink/starrockstest"
)

// retain sets for how long the topic keeps its records.
func (s *sim) retain(ms string) {
	s.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, simTopic
	conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	conf.Name, conf.Value = "retention.ms", &ms
	res.Configs = append(res.Configs, conf)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(s.t.Context(), s.prod)
	require.NoError(s.t, err)
	require.Zero(s.t, resp.Resources[0].ErrorCode)
}

// The time to data loss is retention less the age of the oldest record that is not durable, follows retention when it is changed, and is absent
// where records stay for ever.
func TestSimTimeToDataLoss(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.retain("86400000")
		w := s.worker("w")
		s.ready(time.Minute, w)
		s.produce(100)
		s.exact(time.Minute)
		time.Sleep(20 * time.Second)
		left := func() float64 { return w.metrics().sum("rollcall_time_to_data_loss_seconds", "topic", simTopic) }
		require.InDelta(t, 86400, left(), 15, "nothing waits")
		require.InDelta(t, 86400, w.metrics().sum("rollcall_topic_retention_seconds", "topic", simTopic), 1)

		s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtHeader, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Fail("away")}})
		s.produce(20)
		time.Sleep(2 * time.Hour)
		require.InDelta(t, 22*3600, left(), 60)
		s.retain("10800000")
		time.Sleep(11 * time.Minute)
		require.InDelta(t, 3600-660, left(), 60, "retention was cut to three hours")
		s.rocks.Heal()
		s.exact(2 * time.Minute)
		time.Sleep(20 * time.Second)
		require.InDelta(t, 10800, left(), 15)

		s.retain("-1")
		time.Sleep(11 * time.Minute)
		require.False(t, len(w.metrics()["rollcall_time_to_data_loss_seconds"].GetMetric()) > 0)
		require.False(t, len(w.metrics()["rollcall_topic_retention_seconds"].GetMetric()) > 0)
		w.stop(0)
	})
}
