package discovery

import (
	"errors"
	"maps"
	"time"
)

// PartitionCounts are numbers of partitions by what discovery knows of them.
type PartitionCounts struct {
	// Known exist; Leaderless and Missing ones are among them.
	Known int `json:"known"`
	// Leaderless exist and have no leader.
	Leaderless int `json:"leaderless"`
	// Missing were not in the last answers, which is not confirmed.
	Missing int `json:"missing"`
	// Gone are confirmed not to exist any more.
	Gone int `json:"gone"`
}

// Status is how discovery itself is doing, for readiness and the status page. Times are zero where there is nothing to tell.
type Status struct {
	// Breaker is closed, half_open or open, since BreakerSince.
	Breaker      string    `json:"breaker"`
	BreakerSince time.Time `json:"breaker_since"`
	ClusterID    string    `json:"cluster_id"`
	Brokers      int       `json:"brokers"`

	LastRound   time.Time `json:"last_round"`
	LastSuccess time.Time `json:"last_success"`
	// FailedRounds is the number of rounds in a row without an answer.
	FailedRounds int `json:"failed_rounds"`
	// LastError is why the last round was not good, empty if it was; LastErrorBroker the broker to look at first. Err is the same, for
	// errors.Is with ErrDenied, ErrUnknownTopic and so on.
	LastError       string `json:"last_error,omitempty"`
	LastErrorBroker string `json:"last_error_broker,omitempty"`
	Err             error  `json:"-"`

	Partitions PartitionCounts `json:"partitions"`
	// OldestLeaderless is since when the partition that has been without a leader longest has none, and which.
	OldestLeaderless          time.Time      `json:"oldest_leaderless"`
	OldestLeaderlessPartition TopicPartition `json:"oldest_leaderless_partition"`
	// Denied are topics we may not describe, GoneTopics those confirmed gone, Suspicious what is not confirmed.
	Denied     []string `json:"denied,omitempty"`
	GoneTopics []string `json:"gone_topics,omitempty"`
	Suspicious []string `json:"suspicious,omitempty"`
}

// Status returns how discovery is doing. It never blocks on a round and may be called at any time.
func (d *Discoverer) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// Snapshot returns the last one, nil before the first. It may be called at any time.
func (d *Discoverer) Snapshot() *Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.snap
}

// publish makes the state after a round visible to others. c is nil for a round without an answer.
func (d *Discoverer) publish(at time.Time, c *Change, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := &d.status
	st.LastRound = at
	st.Err, st.LastError, st.LastErrorBroker = err, "", ""
	if err != nil {
		st.LastError = err.Error()
	}
	var re *RoundError
	if errors.As(err, &re) {
		st.LastErrorBroker = re.worst().Broker
	}
	if c == nil {
		st.FailedRounds++
		return
	}
	st.FailedRounds = 0
	st.Denied, st.Suspicious = c.Denied, c.Suspicious
	if err == nil && len(c.Suspicious) == 0 {
		st.LastSuccess = at
		d.s.Metrics.lastSuccess.Set(float64(at.UnixMilli()) / 1000)
	}
	st.Partitions = d.view.counts()
	d.s.Metrics.setPartitions(st.Partitions)
	st.GoneTopics = sortedKeys(maps.Keys(d.view.gone))
	if c.Snapshot == nil {
		return
	}
	d.snap = c.Snapshot
	st.ClusterID, st.Brokers = c.Snapshot.ClusterID, len(c.Snapshot.Brokers)
	st.OldestLeaderless, st.OldestLeaderlessPartition = oldestLeaderless(c.Snapshot)
}

func oldestLeaderless(s *Snapshot) (since time.Time, which TopicPartition) {
	for name, t := range s.Topics {
		for p, part := range t.Partitions {
			tp := TopicPartition{name, p}
			if part.State != Leaderless {
				continue
			}
			if since.IsZero() || part.Since.Before(since) || (part.Since.Equal(since) && compareTP(tp, which) < 0) {
				since, which = part.Since, tp
			}
		}
	}
	return since, which
}
