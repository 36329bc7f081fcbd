package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	adminTry  = 5 * time.Second        // one request to one broker
	adminPoll = 100 * time.Millisecond // between two looks at the cluster
)

// target is a running broker.
type target struct {
	id     int32
	addr   string
	client []kgo.Opt
}

func (c *Cluster) targets() ([]target, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	ts := c.snapshot()
	if len(ts) == 0 {
		return nil, errors.New("no broker runs")
	}
	return ts, nil
}

// request asks one running broker after the other until one answers. Brokers forward what only the controller can do.
func request(ctx context.Context, ts []target, req kmsg.Request) (kmsg.Response, error) {
	errs := []error{errors.New("no broker answered")}
	for _, t := range ts {
		resp, err := requestOne(ctx, t, req)
		if err == nil {
			return resp, nil
		}
		errs = append(errs, fmt.Errorf("broker %d: %w", t.id, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func requestOne(ctx context.Context, t target, req kmsg.Request) (kmsg.Response, error) {
	cl, err := kgo.NewClient(append(slices.Clone(t.client), kgo.SeedBrokers(t.addr),
		kgo.DialTimeout(adminTry), kgo.RequestTimeoutOverhead(adminTry), kgo.DisableClientMetrics())...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, adminTry)
	defer cancel()
	return cl.SeedBrokers()[0].Request(ctx, req)
}

// poll calls f until it returns nil or ctx is done; then the error of the last call is returned with ctx's.
func poll(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		if serr := sleep(ctx, adminPoll); serr != nil {
			return errors.Join(serr, err)
		}
	}
}

// metadata asks for topics; nil means all, an empty list none.
func metadata(ctx context.Context, ts []target, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	if topics != nil {
		req.Topics = []kmsg.MetadataRequestTopic{} // nil would ask for all
	}
	for _, name := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := request(ctx, ts, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// WaitReady waits until every running broker answers and knows every running broker. Frozen and dead ones are not waited for.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return poll(ctx, func() error {
		ts, err := c.targets()
		if err != nil {
			return err
		}
		return c.waitReady(ctx, ts)
	})
}

func (c *Cluster) waitReady(ctx context.Context, ts []target) error {
	for _, t := range ts {
		err := poll(ctx, func() error {
			meta, err := metadata(ctx, []target{t}, []string{})
			if err != nil {
				return err
			}
			for _, want := range ts {
				if !slices.ContainsFunc(meta.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == want.id }) {
					return fmt.Errorf("broker %d does not see broker %d", t.id, want.id)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// WaitInSync waits until every partition of every topic, internal ones too, has a leader and all its replicas in sync, so that any one
// broker may be lost next.
func (c *Cluster) WaitInSync(ctx context.Context) error {
	return poll(ctx, func() error {
		ts, err := c.targets()
		if err != nil {
			return err
		}
		meta, err := metadata(ctx, ts, nil)
		if err != nil {
			return err
		}
		for _, t := range meta.Topics {
			for _, p := range t.Partitions {
				if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
					return fmt.Errorf("%s/%d: leader %d, in sync %v of %v", *t.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
				}
			}
		}
		return nil
	})
}

// CreateTopic creates a topic with replication factor min(3, brokers) and waits until every running broker knows a leader for each partition.
// configs are topic settings and may be nil.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions int32, configs map[string]string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(adminTry.Milliseconds())
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, int16(min(3, c.opts.Brokers))
	for k, v := range configs {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = k, kmsg.StringPtr(v)
		rt.Configs = append(rt.Configs, rc)
	}
	req.Topics = append(req.Topics, rt)
	err := poll(ctx, func() error {
		ts, err := c.targets()
		if err != nil {
			return err
		}
		resp, err := request(ctx, ts, req)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		if errors.Is(err, kerr.TopicAlreadyExists) { // a try before this one whose answer was lost
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return c.waitLeaders(ctx, name, int(partitions))
}

func (c *Cluster) waitLeaders(ctx context.Context, topic string, partitions int) error {
	return poll(ctx, func() error {
		ts, err := c.targets()
		if err != nil {
			return err
		}
		for _, t := range ts {
			leaders, err := leaders(ctx, []target{t}, topic)
			if err != nil {
				return err
			}
			if len(leaders) < partitions {
				return fmt.Errorf("broker %d knows %d of %d partitions of %s", t.id, len(leaders), partitions, topic)
			}
			for p, l := range leaders {
				if l < 0 {
					return fmt.Errorf("broker %d knows no leader of %s/%d", t.id, topic, p)
				}
			}
		}
		return nil
	})
}

// Leaders returns the leader's node id of each partition of a topic, -1 where there is none, as the first running broker that answers knows it.
func (c *Cluster) Leaders(ctx context.Context, topic string) (map[int32]int32, error) {
	ts, err := c.targets()
	if err != nil {
		return nil, err
	}
	return leaders(ctx, ts, topic)
}

func leaders(ctx context.Context, ts []target, topic string) (map[int32]int32, error) {
	t, err := topicMetadata(ctx, ts, topic)
	if err != nil {
		return nil, err
	}
	m := make(map[int32]int32, len(t.Partitions))
	for _, p := range t.Partitions {
		m[p.Partition] = p.Leader
	}
	return m, nil
}

func topicMetadata(ctx context.Context, ts []target, topic string) (kmsg.MetadataResponseTopic, error) {
	meta, err := metadata(ctx, ts, []string{topic})
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	t := meta.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return t, fmt.Errorf("topic %s: %w", topic, err)
	}
	return t, nil
}

// MoveLeader makes broker to the preferred replica of one partition and its leader, and returns when it leads. It must hold a replica, be
// running and come into sync before ctx is done.
func (c *Cluster) MoveLeader(ctx context.Context, topic string, partition int32, to int) error {
	err := poll(ctx, func() error {
		ts, err := c.targets()
		if err != nil {
			return err
		}
		t, err := topicMetadata(ctx, ts, topic)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == partition })
		if i < 0 {
			return errors.New("no such partition")
		}
		p := t.Partitions[i]
		if p.Leader == int32(to) {
			return nil
		}
		if p.Replicas[0] != int32(to) {
			if err := reorder(ctx, ts, topic, p, int32(to)); err != nil {
				return err
			}
		}
		if err := elect(ctx, ts, map[string][]int32{topic: {partition}}); err != nil {
			return err
		}
		return fmt.Errorf("leader is %d", p.Leader)
	})
	if err != nil {
		return fmt.Errorf("move leader of %s/%d to %d: %w", topic, partition, to, err)
	}
	return nil
}

// reorder makes to the first replica of p; the set of replicas stays.
func reorder(ctx context.Context, ts []target, topic string, p kmsg.MetadataResponseTopicPartition, to int32) error {
	if !slices.Contains(p.Replicas, to) {
		return fmt.Errorf("replicas are %v", p.Replicas)
	}
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = int32(adminTry.Milliseconds())
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Partition = p.Partition
	rp.Replicas = append([]int32{to}, slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool { return r == to })...)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := request(ctx, ts, req)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.AlterPartitionAssignmentsResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return err
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// ElectPreferred asks for the first replica of every partition of all topics to lead, as an operator does after a rolling restart. Partitions
// whose first replica is away keep their leader.
func (c *Cluster) ElectPreferred(ctx context.Context) error {
	ts, err := c.targets()
	if err != nil {
		return err
	}
	return elect(ctx, ts, nil)
}

// elect runs a preferred election; nil means all partitions.
func elect(ctx context.Context, ts []target, partitions map[string][]int32) error {
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis = int32(adminTry.Milliseconds())
	for topic, ps := range partitions {
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic, rt.Partitions = topic, ps
		req.Topics = append(req.Topics, rt)
	}
	resp, err := request(ctx, ts, req)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.ElectLeadersResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return err
	}
	var errs []error
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err == nil, errors.Is(err, kerr.ElectionNotNeeded):
			case errors.Is(err, kerr.PreferredLeaderNotAvailable) && partitions == nil:
			default:
				errs = append(errs, fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err))
			}
		}
	}
	return errors.Join(errs...)
}
