package pipeline

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

func TestReplacedClientKeepsItsMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	client := &replacing{reg: reg}
	open := func() *kgo.Client {
		c, err := kgo.NewClient(kgo.WithHooks(kprom.NewMetrics("x", kprom.Registerer(client), kprom.Gatherer(reg))))
		require.NoError(t, err)
		return c
	}
	first := open()
	second := open() // while the first one is still closing
	count := func() int {
		all, err := reg.Gather()
		require.NoError(t, err)
		return len(all)
	}
	before := count()
	require.NotZero(t, before)
	first.Close()
	require.Equal(t, before, count())
	second.Close()
	require.Zero(t, count())
}
