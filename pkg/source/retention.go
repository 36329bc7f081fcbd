package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Retention asks for how long topics keep their records (Kafka: TopicConfig.java, retention.ms and cleanup.policy). A topic that keeps them for
// ever, or only compacts, is not in the result; nor is one whose settings may not be read (DESCRIBE_CONFIGS), which the error says. Retention by
// size is not seen: it may remove records sooner. May be called from anywhere while Run runs.
func (s *Source) Retention(ctx context.Context, topics []string) (map[string]time.Duration, error) {
	client, err := s.current()
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, t := range topics {
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeTopic, t, []string{"retention.ms", "cleanup.policy"}
		req.Resources = append(req.Resources, res)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("asking for retention: %w", err)
	}
	out := make(map[string]time.Duration)
	var errs []error
	for _, res := range resp.Resources {
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			errs = append(errs, fmt.Errorf("asking for the retention of %s: %w", res.ResourceName, err))
			continue
		}
		if d, ok := retentionIn(res.Configs); ok {
			out[res.ResourceName] = d
		}
	}
	return out, errors.Join(errs...)
}

// retentionIn is false for ever.
func retentionIn(configs []kmsg.DescribeConfigsResponseResourceConfig) (time.Duration, bool) {
	ms, deletes := int64(-1), true
	for _, c := range configs {
		switch {
		case c.Value == nil:
		case c.Name == "retention.ms":
			if n, err := strconv.ParseInt(*c.Value, 10, 64); err == nil {
				ms = n
			}
		case c.Name == "cleanup.policy":
			deletes = strings.Contains(*c.Value, "delete")
		}
	}
	const most = int64(1<<63-1) / int64(time.Millisecond) // retention.ms may be 2^63−1, which means for ever as well
	return time.Duration(ms) * time.Millisecond, deletes && ms >= 0 && ms < most
}
