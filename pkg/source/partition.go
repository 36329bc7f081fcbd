package source

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The reasons the source itself has for not fetching a partition. Those of the Handler share the metric with them.
const (
	reasonRestoring = "restoring" // assigned, Start was not called yet
	reasonPosition  = "position"  // the position is outside the log or the log changed below it: waits for Start
	reasonRetry     = "retry"     // an error that repeats is being paced
)

// position is where to go on from, waiting for the poll goroutine to apply it.
type position struct {
	offset int64
	epoch  int32
}

// partState is what the source knows of one assigned partition. Source.mu guards it; it exists from Assigned until Revoked or Lost has
// returned.
type partState struct {
	p          Partition
	generation uint64
	// reasons why it is not fetched, and since when. It is fetched while there are none.
	reasons map[string]time.Time
	// start is a position to go on from that is not applied yet.
	start *position
	// initial is the position the client itself gives the partition, -1 before it has.
	initial int64
	// moved says that a position was applied under this assignment already, so the client may stand anywhere.
	moved bool
	// unfetched says that the client could not read the commit and so does not fetch the partition at all, whatever is resumed or set.
	unfetched bool
	// next is the offset of the next record, epoch that of the last one (-1: none read). Valid once a position was applied.
	next  int64
	epoch int32
	// committed is the greatest offset committed under this assignment, -1 before the first and after a Start below it.
	committed int64
	// replaced says that the topic of this assignment is no more: nothing may be committed under its name, which a new topic has.
	replaced bool
	// high, stable and logStart are the leader's as of its last answer, -1 before the first.
	high, stable, logStart int64
	// progress is when it last delivered, was resumed, or was seen to have nothing to deliver.
	progress time.Time
	lag      prometheus.Gauge
}

func newPartState(p Partition, generation uint64, m *Metrics) *partState {
	return &partState{
		p: p, generation: generation, reasons: make(map[string]time.Time, 2),
		initial: -1, next: -1, epoch: -1, committed: -1, high: -1, stable: -1, logStart: -1, lag: m.lagOf(p),
	}
}

// handing reports whether records may be handed over: a position was applied and holds. A pause by the handler does not count, since it
// may come after the records were taken.
func (st *partState) handing() bool {
	_, restoring := st.reasons[reasonRestoring]
	_, parked := st.reasons[reasonPosition]
	return !restoring && !parked && st.start == nil
}

// compare orders partitions.
func compare(a, b Partition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

// pauseLocked adds a reason; the client stops fetching with the first. Source.mu is held.
func (s *Source) pauseLocked(st *partState, reason string) {
	if _, ok := st.reasons[reason]; ok {
		return
	}
	if len(st.reasons) == 0 && s.client != nil {
		s.client.PauseFetchPartitions(clientMap([]Partition{st.p}))
	}
	st.reasons[reason] = time.Now()
	s.cfg.Metrics.paused.WithLabelValues(reason).Inc()
}

// resumeLocked takes a reason away; the client fetches again after the last. Source.mu is held.
func (s *Source) resumeLocked(st *partState, reason string) {
	if _, ok := st.reasons[reason]; !ok {
		return
	}
	delete(st.reasons, reason)
	s.cfg.Metrics.paused.WithLabelValues(reason).Dec()
	if len(st.reasons) > 0 {
		return
	}
	if reason != reasonRetry {
		st.progress = time.Now()
	}
	if s.client != nil {
		s.client.ResumeFetchPartitions(clientMap([]Partition{st.p}))
	}
}

// ownedLocked returns the state of the assignment that generation names, nil if it is over. Source.mu is held.
func (s *Source) ownedLocked(p Partition, generation uint64) *partState {
	if st := s.parts[p]; st != nil && st.generation == generation {
		return st
	}
	return nil
}

// dropLocked forgets partitions and their series. Source.mu is held.
func (s *Source) dropLocked(ps []Partition) {
	for _, p := range ps {
		st := s.parts[p]
		if st == nil {
			continue
		}
		for reason := range st.reasons {
			s.cfg.Metrics.paused.WithLabelValues(reason).Dec()
		}
		s.cfg.Metrics.forget(p)
		delete(s.parts, p)
		delete(s.troubles, p)
	}
	s.cfg.Metrics.assigned.Set(float64(len(s.parts)))
}

// clientMap writes partitions as the client wants them.
func clientMap(ps []Partition) map[string][]int32 {
	m := make(map[string][]int32, 1)
	for _, p := range ps {
		m[p.Topic] = append(m[p.Topic], p.Partition)
	}
	return m
}

// partitionsOf lists the client's map in order.
func partitionsOf(m map[string][]int32) []Partition {
	var ps []Partition
	for t, ids := range m {
		for _, id := range ids {
			ps = append(ps, Partition{Topic: t, Partition: id})
		}
	}
	slices.SortFunc(ps, compare)
	return ps
}

// offsetsOf writes positions as the client wants them.
func offsetsOf(ps map[Partition]position) map[string]map[int32]kgo.EpochOffset {
	m := make(map[string]map[int32]kgo.EpochOffset, 1)
	for p, at := range ps {
		if m[p.Topic] == nil {
			m[p.Topic] = make(map[int32]kgo.EpochOffset)
		}
		m[p.Topic][p.Partition] = kgo.EpochOffset{Epoch: at.epoch, Offset: at.offset}
	}
	return m
}

// String is topic/partition.
func (p Partition) String() string { return p.Topic + "/" + strconv.Itoa(int(p.Partition)) }
