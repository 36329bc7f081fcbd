package source

import (
	"maps"
	"slices"
	"time"
)

// Status is what the source is doing, for the status page.
type Status struct {
	// Connected says that there is a client; it may still be looking for a broker.
	Connected bool
	// MemberID and MemberGeneration are the group's names for us.
	MemberID         string
	MemberGeneration int32
	// LastPoll is when the poll loop last turned; it turns at least every second but for a rebalance.
	LastPoll time.Time
	// LastError is the last error of any kind, which may be over; empty if there was none.
	LastError   string
	LastErrorAt time.Time
	// Failing has the brokers that did not answer a fetch lately, by host:port, and when last.
	Failing map[string]time.Time
	// Rebuilds counts how often the client was replaced.
	Rebuilds   int
	Partitions []PartitionStatus
}

// PartitionStatus is one assigned partition.
type PartitionStatus struct {
	Partition  Partition
	Generation uint64
	// Next is the position, -1 before Start.
	Next int64
	// High, Stable and LogStart are the leader's as of its last answer, -1 before the first.
	High, Stable, LogStart int64
	// Committed is the greatest offset committed under this assignment, -1 if none.
	Committed int64
	// Paused has the reasons why it is not fetched, and since when.
	Paused map[string]time.Time
	// Trouble is the kind of error that repeats, empty if there is none.
	Trouble string
}

// Status returns a copy.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{
		Connected: s.client != nil, MemberGeneration: -1, LastPoll: s.lastPoll, LastErrorAt: s.lastErrAt, Rebuilds: s.rebuilds,
		Partitions: make([]PartitionStatus, 0, len(s.parts)),
	}
	if s.client != nil {
		out.MemberID, out.MemberGeneration = s.client.GroupMetadata()
	}
	if s.lastErr != nil {
		out.LastError = s.lastErr.Error()
	}
	if s.session != nil {
		out.Failing = s.session.silent()
	}
	for p, st := range s.parts {
		ps := PartitionStatus{
			Partition: p, Generation: st.generation, Next: st.next, High: st.high, Stable: st.stable, LogStart: st.logStart,
			Committed: st.committed, Paused: maps.Clone(st.reasons),
		}
		if t := s.troubles[p]; t != nil {
			ps.Trouble = t.kind.String()
		}
		out.Partitions = append(out.Partitions, ps)
	}
	slices.SortFunc(out.Partitions, func(a, b PartitionStatus) int { return compare(a.Partition, b.Partition) })
	return out
}
