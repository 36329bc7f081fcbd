package source

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRetentionInSettings(t *testing.T) {
	for _, c := range []struct {
		ms, policy string
		want       time.Duration
		ok         bool
	}{
		{"604800000", "delete", 7 * 24 * time.Hour, true},
		{"60000", "compact,delete", time.Minute, true},
		{"60000", "", time.Minute, true},
		{"60000", "compact", 0, false},
		{"-1", "delete", 0, false},
		{"9223372036854775807", "delete", 0, false},
		{"", "delete", 0, false},
		{"a week", "delete", 0, false},
	} {
		var configs []kmsg.DescribeConfigsResponseResourceConfig
		for name, v := range map[string]string{"retention.ms": c.ms, "cleanup.policy": c.policy} {
			if v != "" {
				configs = append(configs, kmsg.DescribeConfigsResponseResourceConfig{Name: name, Value: &v})
			}
		}
		got, ok := retentionIn(configs)
		require.Equal(t, c.ok, ok, "%+v", c)
		if ok {
			require.Equal(t, c.want, got, "%+v", c)
		}
	}
}
