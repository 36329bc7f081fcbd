package preflight

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TryKafka tries everything of Kafka and returns one result for each.
func TryKafka(ctx context.Context, cfg KafkaConfig) []Result {
	t := &kafkaTry{cfg: cfg, lines: lines{part: Kafka}}
	t.run(ctx)
	return t.all
}

type kafkaTry struct {
	lines
	cfg KafkaConfig
}

func (t *kafkaTry) run(ctx context.Context) {
	tries := each(t.cfg.Brokers, func(addr string) attempt { return t.seed(ctx, addr) })
	if t.equals(tries) == 0 {
		return
	}
	var seeds []string
	for i, a := range tries {
		if a.fault == nil {
			seeds = append(seeds, t.cfg.Brokers[i])
		}
	}
	cl, err := kgo.NewClient(append(slices.Clone(t.cfg.Security), kgo.SeedBrokers(seeds...), kgo.ClientID("rollcall-check"),
		kgo.DialTimeout(tryTimeout), kgo.RequestTimeoutOverhead(tryTimeout), kgo.RetryTimeout(tryTimeout), kgo.DisableClientMetrics())...)
	if err != nil {
		t.fail("Kafka client", fault{cause: err.Error(), remedy: "correct the KAFKA_ settings"})
		return
	}
	defer cl.Close()
	meta, err := t.metadata(ctx, cl)
	if err != nil {
		t.fail("topics", t.cfg.broker(err))
		return
	}
	t.advertised(ctx, meta)
	t.topics(meta)
	t.group(ctx, cl)
	t.deadLetter(meta)
}

// each calls f for every item side by side and keeps their order.
func each[T, R any](items []T, f func(T) R) []R {
	out := make([]R, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { out[i] = f(item) })
	}
	wg.Wait()
	return out
}

// seed asks one broker of the settings, with a client of its own that ends with the try.
func (t *kafkaTry) seed(ctx context.Context, addr string) attempt {
	a := attempt{name: "broker " + addr}
	bad := func(f fault) attempt { a.fault = &f; return a }
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(strings.Trim(addr, "[]"), "9092")
	}
	// Without Kafka's client first: it would say of every trouble below that time ran out.
	if err := reach(ctx, t.cfg.Dial, addr); err != nil {
		return bad(t.cfg.broker(err))
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	cl, err := kgo.NewClient(append(slices.Clone(t.cfg.Security), kgo.SeedBrokers(addr), kgo.ClientID("rollcall-check"),
		kgo.DialTimeout(tryTimeout), kgo.RequestTimeoutOverhead(tryTimeout), kgo.DisableClientMetrics())...)
	if err != nil {
		return bad(fault{cause: err.Error(), remedy: "correct the KAFKA_ settings"})
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	kresp, err := cl.SeedBrokers()[0].Request(ctx, req)
	switch {
	case err != nil && timedOut(err): // it was reached a moment ago
		return bad(t.cfg.mute())
	case err != nil:
		return bad(t.cfg.broker(err))
	}
	resp, ok := kresp.(*kmsg.MetadataResponse)
	if !ok {
		return bad(fault{cause: fmt.Sprintf("it answered with a %T", kresp), remedy: "see the broker's log"})
	}
	a.detail = fmt.Sprintf("answers, %d brokers", len(resp.Brokers))
	if resp.ClusterID != nil {
		a.detail += ", cluster " + *resp.ClusterID
	}
	return a
}

// metadata asks for the topics, all of them for a pattern, with what we may do to each (KIP-430).
func (t *kafkaTry) metadata(ctx context.Context, cl *kgo.Client) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	if t.cfg.Pattern == nil {
		for _, name := range t.cfg.wanted() {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, rt)
		}
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

func (k KafkaConfig) wanted() []string {
	names := slices.Clone(k.Topics)
	if k.DeadLetter != "" && !slices.Contains(names, k.DeadLetter) {
		names = append(names, k.DeadLetter)
	}
	return names
}

// advertised reaches the addresses that brokers give themselves: these, not the seeds, are where records are read.
func (t *kafkaTry) advertised(ctx context.Context, meta *kmsg.MetadataResponse) {
	tries := each(meta.Brokers, func(b kmsg.MetadataResponseBroker) attempt {
		addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		a := attempt{name: fmt.Sprintf("broker %d at its advertised address %s", b.NodeID, addr), detail: "reached"}
		if err := reach(ctx, t.cfg.Dial, addr); err != nil {
			f := t.cfg.broker(err)
			f.remedy = "the worker must reach the addresses of the brokers' advertised.listeners: choose the listener for its network in KAFKA_BROKERS, or open the way"
			a.fault = &f
		}
		return a
	})
	t.equals(tries)
}

// may says whether an answer with authorized operations (a bit for each) allows one. Brokers that do not say leave it open.
func may(ops int32, op kmsg.ACLOperation) bool { return ops == math.MinInt32 || ops&(1<<op) != 0 }

func (t *kafkaTry) topics(meta *kmsg.MetadataResponse) {
	found := 0
	for _, topic := range meta.Topics {
		name := ""
		if topic.Topic != nil {
			name = *topic.Topic
		}
		if t.cfg.Pattern != nil && (topic.IsInternal || !t.cfg.Pattern.MatchString(name) || t.cfg.excluded(name)) {
			continue
		}
		if t.cfg.Pattern == nil && !slices.Contains(t.cfg.Topics, name) {
			continue
		}
		found++
		t.topic("topic "+name, name, topic)
	}
	if found == 0 {
		t.fail("topics", fault{cause: "no topic that this user may see matches the pattern", remedy: "correct KAFKA_TOPICS and KAFKA_TOPICS_EXCLUDE, create the topic, or allow the user to READ it"})
	}
}

func (k KafkaConfig) excluded(topic string) bool { return k.Excluded != nil && k.Excluded(topic) }

func (t *kafkaTry) topic(line, name string, m kmsg.MetadataResponseTopic) {
	err := kerr.ErrorForCode(m.ErrorCode)
	allow := "allow the user READ and DESCRIBE on topic " + name
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		t.fail(line, fault{cause: "it does not exist (or this user may not see it)", remedy: "create the topic, correct KAFKA_TOPICS, or " + allow})
		return
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		t.fail(line, fault{cause: "the user may not see it", remedy: allow})
		return
	case err != nil:
		t.fail(line, t.cfg.broker(err))
		return
	case !may(m.AuthorizedOperations, kmsg.ACLOperationRead):
		t.fail(line, fault{cause: "the user may see it and may not read it", remedy: allow})
		return
	}
	leaderless := 0
	for _, p := range m.Partitions {
		if p.Leader < 0 {
			leaderless++
		}
	}
	if leaderless > 0 {
		t.add(Warn, line, fault{cause: fmt.Sprintf("%d of %d partitions have no leader", leaderless, len(m.Partitions)), remedy: "bring the brokers back that have their replicas; the worker reads the others meanwhile", outage: true})
		return
	}
	t.ok(line, "%d partitions", len(m.Partitions))
}

// group finds the coordinator, reads the commits and asks for the right to take part, by a heartbeat of a member that does not exist: the
// broker looks at the rights first and then says that it knows no such member (Kafka: KafkaApis.handleHeartbeatRequest).
func (t *kafkaTry) group(ctx context.Context, cl *kgo.Client) {
	line := "group " + t.cfg.Group
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	fetch := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = t.cfg.Group
	fetch.Groups = append(fetch.Groups, g)
	resp, err := fetch.RequestWith(ctx, cl)
	if err == nil && len(resp.Groups) == 1 {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nobody has used it yet
		t.fail(line, t.groupFault(err))
		return
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID = t.cfg.Group, "rollcall-check"
	answer, err := beat.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.fail(line, t.groupFault(err))
		return
	}
	commits := 0
	for _, g := range resp.Groups {
		for _, topic := range g.Topics {
			commits += len(topic.Partitions)
		}
	}
	t.ok(line, "may take part, %d commits", commits)
}

func (t *kafkaTry) groupFault(err error) fault {
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fault{cause: "the user may not use this group", remedy: "allow the user READ and DESCRIBE on group " + t.cfg.Group + ", or correct KAFKA_GROUP"}
	case errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.CoordinatorLoadInProgress), timedOut(err):
		return fault{cause: "its coordinator does not answer (" + innermost(err) + ")", remedy: "bring the brokers back that have the topic __consumer_offsets", outage: true}
	}
	return t.cfg.broker(err)
}

func (t *kafkaTry) deadLetter(meta *kmsg.MetadataResponse) {
	name := t.cfg.DeadLetter
	if name == "" {
		return
	}
	line := "dead-letter topic " + name
	allow := "allow the user WRITE and DESCRIBE on topic " + name
	missing := fault{cause: "it does not exist (or this user may not see it): the first bad record would hold its partition up", remedy: "create the topic, correct DEADLETTER_TOPIC, or " + allow}
	for _, topic := range meta.Topics {
		if topic.Topic == nil || *topic.Topic != name {
			continue
		}
		err := kerr.ErrorForCode(topic.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			t.fail(line, missing)
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			t.fail(line, fault{cause: "the user may not see it", remedy: allow})
		case err != nil:
			t.fail(line, t.cfg.broker(err))
		case !may(topic.AuthorizedOperations, kmsg.ACLOperationWrite):
			t.fail(line, fault{cause: "the user may not write to it", remedy: allow})
		default:
			t.ok(line, "%d partitions, may be written", len(topic.Partitions))
		}
		return
	}
	t.fail(line, missing)
}
