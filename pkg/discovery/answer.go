package discovery

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answer is one broker's metadata, reduced to the topics that are ours.
type answer struct {
	// from tells brokers apart: the node id where the address that answered is advertised by one, else the address.
	from      string
	clusterID string
	brokers   []Broker
	topics    map[string]topicAnswer
}

// topicAnswer is what a broker said about one topic. A topic that was not asked for and not listed has none.
type topicAnswer struct {
	verdict    verdict
	id         TopicID
	partitions map[int32]partitionAnswer // for present
}

// verdict is what an answer means for a topic.
type verdict uint8

const (
	present verdict = iota + 1
	absent
	refused // not ours to see
	unclear // exists or not, this broker could not say
)

type partitionAnswer struct {
	leader int32 // -1: none
	epoch  int32 // -1: not given
	// unclear says that the broker could not say anything about it.
	unclear bool
}

// parse reads a metadata response. Topics that are not ours are dropped.
func (s *settled) parse(addr string, resp *kmsg.MetadataResponse) *answer {
	a := &answer{from: addr, topics: map[string]topicAnswer{}}
	if resp.ClusterID != nil {
		a.clusterID = *resp.ClusterID
	}
	for _, b := range resp.Brokers {
		br := Broker{ID: b.NodeID, Addr: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))}
		if b.Rack != nil {
			br.Rack = *b.Rack
		}
		if br.Addr == addr {
			a.from = nodeName(b.NodeID)
		}
		a.brokers = append(a.brokers, br)
	}
	slices.SortFunc(a.brokers, func(x, y Broker) int { return cmp.Compare(x.ID, y.ID) })
	s.addTopics(a, resp)
	return a
}

func nodeName(id int32) string { return "node " + strconv.Itoa(int(id)) }

// addTopics adds a response's topics to the answer.
func (s *settled) addTopics(a *answer, resp *kmsg.MetadataResponse) {
	for _, t := range resp.Topics {
		if t.Topic != nil && s.wants(*t.Topic, t.IsInternal) {
			a.topics[*t.Topic] = parseTopic(t)
		}
	}
}

func parseTopic(t kmsg.MetadataResponseTopic) topicAnswer {
	ta := topicAnswer{id: t.TopicID, verdict: present}
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case err == nil:
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.UnknownTopicID):
		ta.verdict = absent
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		ta.verdict = refused
	default: // LEADER_NOT_AVAILABLE while the topic is being created, and whatever else
		ta.verdict = unclear
	}
	if ta.verdict != present {
		return ta
	}
	ta.partitions = make(map[int32]partitionAnswer, len(t.Partitions))
	for _, p := range t.Partitions {
		pa := partitionAnswer{leader: p.Leader, epoch: p.LeaderEpoch}
		switch err := kerr.ErrorForCode(p.ErrorCode); {
		case err == nil, errors.Is(err, kerr.ReplicaNotAvailable): // the latter does not touch the leader
		case errors.Is(err, kerr.LeaderNotAvailable), errors.Is(err, kerr.ListenerNotFound):
			pa.leader = -1
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			continue // not there
		default:
			pa.unclear = true
		}
		pa.leader = max(pa.leader, -1)
		ta.partitions[p.Partition] = pa
	}
	if len(ta.partitions) == 0 { // no topic has none: it is being made or unmade
		ta.verdict = unclear
	}
	return ta
}

// gaps are the partition ids below the highest one that are not there; Kafka numbers them without gaps.
func (t topicAnswer) gaps() []int32 {
	top := int32(-1)
	for p := range t.partitions {
		top = max(top, p)
	}
	var missing []int32
	for p := range top {
		if _, ok := t.partitions[p]; !ok {
			missing = append(missing, p)
		}
	}
	return missing
}
