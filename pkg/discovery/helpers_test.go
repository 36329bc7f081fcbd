package discovery

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// tamper lets a test rewrite every Metadata answer of a kfake cluster. A nil rewrite leaves it alone.
type tamper struct {
	mu      sync.Mutex
	rewrite func(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse)
	silent  bool
	asked   []time.Time
	nodes   []int32
}

func (tm *tamper) set(f func(*kmsg.MetadataRequest, *kmsg.MetadataResponse)) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.rewrite = f
}

func (tm *tamper) setSilent(on bool) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.silent = on
}

// times are when metadata was asked for, since the last call.
func (tm *tamper) times() []time.Time {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	ts := tm.asked
	tm.asked, tm.nodes = nil, nil
	return ts
}

// install answers metadata itself, from what the cluster would say.
func (tm *tamper) install(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		tm.mu.Lock()
		defer tm.mu.Unlock()
		tm.asked = append(tm.asked, time.Now())
		tm.nodes = append(tm.nodes, c.CurrentNode())
		if tm.silent {
			return nil, nil, true
		}
		if tm.rewrite == nil {
			return nil, nil, false
		}
		req := kreq.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		tm.rewrite(req, resp)
		return resp, nil, true
	})
}

// fromCluster returns a rewrite that starts from the cluster's real state and then changes it. The state is read when called, outside of the
// cluster's goroutine, where it may not be asked.
func fromCluster(c *kfake.Cluster, topics []string, change func(*kmsg.MetadataRequest, *kmsg.MetadataResponse)) func(*kmsg.MetadataRequest, *kmsg.MetadataResponse) {
	base := kmsg.NewPtrMetadataResponse()
	base.ClusterID = kmsg.StringPtr("kfake")
	for i, addr := range c.ListenAddrs() {
		hp, err := parseSeed(addr)
		if err != nil {
			panic(err)
		}
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = int32(i), hp.host, int32(atoi(hp.port))
		base.Brokers = append(base.Brokers, b)
	}
	for _, name := range topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = kmsg.StringPtr(name)
		t.TopicID = c.TopicInfo(name).TopicID
		for _, p := range c.PartitionInfos(name) {
			sp := kmsg.NewMetadataResponseTopicPartition()
			sp.Partition, sp.Leader, sp.LeaderEpoch = p.Partition, p.Leader, p.Epoch
			t.Partitions = append(t.Partitions, sp)
		}
		base.Topics = append(base.Topics, t)
	}
	return func(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
		resp.ClusterID = base.ClusterID
		resp.Brokers = slices.Clone(base.Brokers)
		for _, t := range base.Topics {
			t.Partitions = slices.Clone(t.Partitions)
			resp.Topics = append(resp.Topics, t)
		}
		change(req, resp)
	}
}

// byName makes an answer to a request by name complete: what is not listed is unknown, or denied.
func byName(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, why *kerr.Error) {
	for _, rt := range req.Topics {
		if !slices.ContainsFunc(resp.Topics, func(t kmsg.MetadataResponseTopic) bool { return *t.Topic == *rt.Topic }) {
			t := kmsg.NewMetadataResponseTopic()
			t.Topic, t.ErrorCode = rt.Topic, why.Code
			resp.Topics = append(resp.Topics, t)
		}
	}
}

// drain collects the changes that Run reports.
type drain struct {
	mu sync.Mutex
	cs []Change
}

func (d *drain) report(c Change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cs = append(d.cs, c)
}

func (d *drain) take() []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	cs := d.cs
	d.cs = nil
	return cs
}

func newLog() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.InfoLevel)
	return zap.New(core), logs
}

func mustNew(t *testing.T, c Config) *Discoverer {
	t.Helper()
	d, err := New(c)
	require.NoError(t, err)
	return d
}

// quick are the times of the acceptance tests.
func quick(c Config) Config {
	c.Interval, c.RequestTimeout, c.Timeout = 2*time.Second, time.Second, 10*time.Second
	return c
}

func mustRegexp(s string) *regexp.Regexp { return regexp.MustCompile(s) }

func mustVersion(s string) *kversion.Versions {
	v := kversion.FromString(s)
	if v == nil {
		panic(s)
	}
	return v
}

func topicNames(s *Snapshot) string { return strings.Join(sortedKeys(maps.Keys(s.Topics)), " ") }
