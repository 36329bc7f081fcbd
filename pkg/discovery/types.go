package discovery

import (
	"encoding/base64"
	"maps"
	"slices"
	"time"
)

// TopicID identifies one incarnation of a topic. Zero where brokers know no topic ids.
type TopicID [16]byte

// String is Kafka's own text form, URL-safe base64 without padding.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero says that the brokers gave no id.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// Snapshot is what was known to exist at one time. It is immutable: nobody may change it or its maps and slices, anybody may read it.
type Snapshot struct {
	ClusterID string
	// At is when the last answer that went into it arrived.
	At      time.Time
	Brokers []Broker // ordered by id
	Topics  map[string]Topic
}

// Broker as the cluster advertises it.
type Broker struct {
	ID   int32
	Addr string // host:port
	Rack string // empty if none
}

// Topic is one incarnation of a topic.
type Topic struct {
	ID         TopicID
	Partitions map[int32]Partition
}

// Partition is one partition as the last answers had it.
type Partition struct {
	// Leader is a broker id, -1 while there is none.
	Leader int32
	// LeaderEpoch is -1 where brokers give none.
	LeaderEpoch int32
	State       PartitionState
	// Since is when State began.
	Since time.Time
}

// PartitionState says how a partition is. The zero value is invalid on purpose.
type PartitionState uint8

// The states of a partition.
const (
	// Live: it has a leader.
	Live PartitionState = iota + 1
	// Leaderless: it exists and has no leader.
	Leaderless
	// Missing: the last answers did not have it, and that is not confirmed yet.
	Missing
)

// String is the state's name in metrics and logs.
func (s PartitionState) String() string {
	switch s {
	case Live:
		return "live"
	case Leaderless:
		return "leaderless"
	case Missing:
		return "missing"
	default:
		return "invalid"
	}
}

// Addrs are the brokers' addresses, for a client's seed list.
func (s *Snapshot) Addrs() []string {
	addrs := make([]string, len(s.Brokers))
	for i, b := range s.Brokers {
		addrs[i] = b.Addr
	}
	return addrs
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Recreation says that a topic is no longer the one it was.
type Recreation struct {
	Topic        string
	OldID, NewID TopicID
}

// Change is a snapshot and what differs from the one before it. Lists are sorted.
type Change struct {
	Snapshot *Snapshot
	// BrokersChanged says that brokers came, went or moved.
	BrokersChanged bool
	// AddedTopics are new with all partitions they have in Snapshot. Those that come back under another id after having been gone are in
	// Recreated instead.
	AddedTopics []string
	// AddedPartitions are new partitions of topics that were known before.
	AddedPartitions []TopicPartition
	// Recreated topics are confirmed to have another id; their partitions in Snapshot are the new ones.
	Recreated []Recreation
	// GoneTopics and GonePartitions are confirmed gone and no longer in Snapshot; the partitions of a gone topic are not listed.
	GoneTopics     []string
	GonePartitions []TopicPartition
	// Leaderless partitions have just lost their leader or are new without one. Led ones have a leader again after having been leaderless or
	// missing.
	Leaderless, Led []TopicPartition
	// Suspicious says why the answer was not taken at its word, one line each; empty for a plain one.
	Suspicious []string
	// Denied are topics we may not describe; what was known of them stays in Snapshot.
	Denied []string
}

// Empty says that nothing differs.
func (c *Change) Empty() bool {
	return !c.BrokersChanged && len(c.AddedTopics)+len(c.AddedPartitions)+len(c.Recreated)+len(c.GoneTopics)+len(c.GonePartitions)+
		len(c.Leaderless)+len(c.Led) == 0
}

// sort brings the lists in order; they were filled from maps.
func (c *Change) sort() {
	slices.Sort(c.AddedTopics)
	slices.Sort(c.GoneTopics)
	slices.Sort(c.Suspicious)
	slices.Sort(c.Denied)
	for _, l := range [][]TopicPartition{c.AddedPartitions, c.GonePartitions, c.Leaderless, c.Led} {
		slices.SortFunc(l, compareTP)
	}
	slices.SortFunc(c.Recreated, func(a, b Recreation) int { return compareTP(TopicPartition{a.Topic, 0}, TopicPartition{b.Topic, 0}) })
}

func compareTP(a, b TopicPartition) int {
	switch {
	case a.Topic < b.Topic:
		return -1
	case a.Topic > b.Topic:
		return 1
	default:
		return int(a.Partition) - int(b.Partition)
	}
}

// clone copies what apply changes.
func (t Topic) clone() Topic {
	return Topic{ID: t.ID, Partitions: maps.Clone(t.Partitions)}
}
