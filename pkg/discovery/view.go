package discovery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// view turns answers into snapshots. It is a pure state machine: no goroutine, no clock, no I/O, and one owner.
//
// Growth is believed at once. What takes away or replaces is a suspicion first: it must come back in `confirmations` answers in a row, from as
// many different brokers as there are, up to that number. An answer that does not repeat a suspicion ends it.
type view struct {
	confirmations int
	names         []string // topics that must exist, nil with a pattern

	snap     *Snapshot // nil until the first answer was accepted
	suspects map[suspect]*suspicion
	// gone remembers what was confirmed gone, so that a topic that comes back under another id is known to be re-created.
	gone map[string]goneTopic
	// gonePartitions are those of topics that still exist.
	gonePartitions map[TopicPartition]bool
}

type goneTopic struct {
	id         TopicID
	partitions int
}

// suspect is something that is only believed when confirmed.
type suspect struct {
	kind      suspectKind
	topic     string
	partition int32
	id        TopicID
}

type suspectKind uint8

const (
	suspectTopicGone suspectKind = iota + 1
	suspectPartitionGone
	suspectRecreated
	suspectOldEpoch // a leader epoch that went back
	suspectUnknown  // a configured topic that was never there
	suspectDenied   // a configured topic that was never visible
	suspectFirst    // a first answer with something odd about it
)

type suspicion struct {
	since  time.Time
	rounds int
	by     map[string]bool
	fresh  bool // repeated by the current answer
}

func newView(confirmations int, names []string) *view {
	return &view{
		confirmations: confirmations, names: names,
		suspects: map[suspect]*suspicion{}, gone: map[string]goneTopic{}, gonePartitions: map[TopicPartition]bool{},
	}
}

// application is one answer being applied.
type application struct {
	*view
	a   *answer
	at  time.Time
	c   Change
	top map[string]Topic // of the next snapshot
}

// apply takes an answer in. Before the first accepted answer it may return ErrUnconfirmed, and once confirmed ErrUnknownTopic or ErrDenied in
// a TopicsError; the change then has no snapshot. After that it returns no error.
func (v *view) apply(a *answer, at time.Time) (Change, error) {
	ap := &application{view: v, a: a, at: at, top: map[string]Topic{}}
	for _, s := range v.suspects {
		s.fresh = false
	}
	var err error
	if v.snap == nil {
		err = ap.first()
	}
	if err == nil {
		ap.next()
	}
	for k, s := range v.suspects {
		if !s.fresh {
			delete(v.suspects, k)
		}
	}
	ap.c.sort()
	return ap.c, err
}

// first decides whether an answer is good enough to begin with.
func (ap *application) first() error {
	unknown := ap.never(absent, suspectUnknown, ErrUnknownTopic)
	refused := ap.never(refused, suspectDenied, ErrDenied)
	// Both count their rounds; a confirmed one is reported even beside an unconfirmed one.
	if err := errors.Join(confirmedOnly(unknown), confirmedOnly(refused)); err != nil {
		return err
	}
	if err := errors.Join(unknown, refused); err != nil {
		return err
	}
	if odd := ap.odd(); len(odd) > 0 {
		ap.c.Suspicious = append(ap.c.Suspicious, odd...)
		if !ap.confirm(suspect{kind: suspectFirst}) {
			return fmt.Errorf("%w: %s", ErrUnconfirmed, odd[0])
		}
	}
	return nil
}

// plain says whether a first answer would be taken at its word.
func (v *view) plain(a *answer) bool {
	for _, name := range v.names {
		if ta := a.topics[name]; ta.verdict != present {
			return false
		}
	}
	ap := &application{view: v, a: a}
	return len(ap.odd()) == 0
}

// never finds configured topics with a verdict that makes a start useless, if it stays.
func (ap *application) never(what verdict, kind suspectKind, why error) error {
	var topics []string
	confirmed := true
	for _, name := range ap.names {
		ta, ok := ap.a.topics[name]
		if ta.verdict == what || (!ok && what == absent) {
			topics = append(topics, name)
			confirmed = ap.confirm(suspect{kind: kind, topic: name}) && confirmed
		}
	}
	if len(topics) == 0 {
		return nil
	}
	err := error(&TopicsError{Topics: topics, Err: why})
	if !confirmed {
		err = fmt.Errorf("%w: %s", ErrUnconfirmed, err.Error()) // not wrapped: not permanent yet
	}
	return err
}

func confirmedOnly(err error) error {
	if errors.Is(err, ErrUnconfirmed) {
		return nil
	}
	return err
}

// odd says what is strange about a first answer.
func (ap *application) odd() []string {
	var odd []string
	if len(ap.a.brokers) == 0 {
		odd = append(odd, "no brokers in it")
	}
	if len(ap.a.topics) == 0 {
		odd = append(odd, "no topic matches")
	}
	for name, ta := range ap.a.topics {
		if ta.verdict == unclear {
			odd = append(odd, "topic "+name+" has no partitions yet")
		}
		if gaps := ta.gaps(); len(gaps) > 0 {
			odd = append(odd, fmt.Sprintf("topic %s lacks partitions %v", name, gaps))
		}
	}
	slices.Sort(odd)
	return odd
}

// confirm counts one more round for a suspicion and says whether it is believed now.
func (ap *application) confirm(k suspect) bool {
	s := ap.suspects[k]
	if s == nil {
		s = &suspicion{since: ap.at, by: map[string]bool{}}
		ap.suspects[k] = s
	}
	s.rounds++
	s.by[ap.a.from] = true
	s.fresh = true
	brokers := len(ap.a.brokers)
	if ap.snap != nil {
		brokers = max(brokers, len(ap.snap.Brokers)) // an odd answer may list fewer
	}
	return s.rounds >= ap.confirmations && len(s.by) >= min(ap.confirmations, max(1, brokers))
}

// next builds the next snapshot from the last one and the answer.
func (ap *application) next() {
	var old *Snapshot
	if old = ap.snap; old == nil {
		old = &Snapshot{}
	}
	for name, t := range old.Topics {
		ap.known(name, t)
	}
	for name, ta := range ap.a.topics {
		if _, ok := old.Topics[name]; !ok {
			ap.unknown(name, ta)
		}
	}
	for name, ta := range ap.a.topics {
		if ta.verdict == refused {
			ap.c.Denied = append(ap.c.Denied, name)
		}
	}
	brokers := ap.a.brokers
	if len(brokers) == 0 {
		ap.doubt("no brokers in the answer")
		brokers = old.Brokers
	}
	ap.c.BrokersChanged = !slices.Equal(brokers, old.Brokers)
	id := ap.a.clusterID
	ap.snap = &Snapshot{ClusterID: id, At: ap.at, Brokers: brokers, Topics: ap.top}
	ap.c.Snapshot = ap.snap
}

func (ap *application) doubt(format string, args ...any) {
	ap.c.Suspicious = append(ap.c.Suspicious, fmt.Sprintf(format, args...))
}

// known carries a topic of the last snapshot over.
func (ap *application) known(name string, t Topic) {
	ta, listed := ap.a.topics[name]
	switch {
	case !listed || ta.verdict == absent:
		if ap.confirm(suspect{kind: suspectTopicGone, topic: name}) {
			ap.c.GoneTopics = append(ap.c.GoneTopics, name)
			ap.gone[name] = goneTopic{id: t.ID, partitions: len(t.Partitions)}
			maps.DeleteFunc(ap.gonePartitions, func(tp TopicPartition, _ bool) bool { return tp.Topic == name })
			return
		}
		ap.doubt("topic %s is missing", name)
		t = t.clone()
		for p := range t.Partitions {
			ap.setState(name, t, p, Missing)
		}
		ap.top[name] = t
	case ta.verdict == present && !ta.id.IsZero() && !t.ID.IsZero() && ta.id != t.ID:
		if ap.confirm(suspect{kind: suspectRecreated, topic: name, id: ta.id}) {
			ap.c.Recreated = append(ap.c.Recreated, Recreation{Topic: name, OldID: t.ID, NewID: ta.id})
			maps.DeleteFunc(ap.gonePartitions, func(tp TopicPartition, _ bool) bool { return tp.Topic == name })
			ap.top[name] = ap.incarnation(name, ta)
			return
		}
		ap.doubt("topic %s has another id, %s instead of %s", name, ta.id, t.ID)
		ap.top[name] = t
	case ta.verdict == present:
		ap.top[name] = ap.merge(name, t, ta)
	default: // refused or unclear: it says nothing about what exists
		ap.top[name] = t
	}
}

// unknown adds a topic that is not in the last snapshot.
func (ap *application) unknown(name string, ta topicAnswer) {
	if ta.verdict != present {
		return
	}
	if was, ok := ap.gone[name]; ok && !was.id.IsZero() && !ta.id.IsZero() && was.id != ta.id {
		ap.c.Recreated = append(ap.c.Recreated, Recreation{Topic: name, OldID: was.id, NewID: ta.id})
	} else {
		ap.c.AddedTopics = append(ap.c.AddedTopics, name)
	}
	delete(ap.gone, name)
	ap.top[name] = ap.incarnation(name, ta)
}

// incarnation is a topic as an answer has it.
func (ap *application) incarnation(name string, ta topicAnswer) Topic {
	t := Topic{ID: ta.id, Partitions: make(map[int32]Partition, len(ta.partitions))}
	for p, pa := range ta.partitions {
		ap.add(name, t, p, pa)
	}
	return t
}

// add adds a partition to a topic.
func (ap *application) add(name string, t Topic, p int32, pa partitionAnswer) {
	if pa.unclear {
		pa.leader = -1
	}
	t.Partitions[p] = Partition{Leader: pa.leader, LeaderEpoch: pa.epoch}
	ap.setState(name, t, p, stateOf(pa))
}

func stateOf(pa partitionAnswer) PartitionState {
	if pa.leader < 0 {
		return Leaderless
	}
	return Live
}

// merge brings a topic that is still the same one up to date.
func (ap *application) merge(name string, t Topic, ta topicAnswer) Topic {
	t = t.clone()
	if t.ID.IsZero() {
		t.ID = ta.id // brokers that learned topic ids meanwhile
	}
	for p := range maps.Clone(t.Partitions) {
		if _, ok := ta.partitions[p]; ok {
			continue
		}
		tp := TopicPartition{name, p}
		if ap.confirm(suspect{kind: suspectPartitionGone, topic: name, partition: p}) {
			ap.c.GonePartitions = append(ap.c.GonePartitions, tp)
			ap.gonePartitions[tp] = true
			delete(t.Partitions, p)
			continue
		}
		ap.doubt("partition %s/%d is missing", name, p)
		ap.setState(name, t, p, Missing)
	}
	for p, pa := range ta.partitions {
		ap.update(name, t, p, pa)
	}
	return t
}

// update brings one partition that the answer has up to date.
func (ap *application) update(name string, t Topic, p int32, pa partitionAnswer) {
	was, ok := t.Partitions[p]
	if !ok {
		ap.c.AddedPartitions = append(ap.c.AddedPartitions, TopicPartition{name, p})
		delete(ap.gonePartitions, TopicPartition{name, p})
		ap.add(name, t, p, pa)
		return
	}
	stale := pa.epoch >= 0 && pa.epoch < was.LeaderEpoch &&
		!ap.confirm(suspect{kind: suspectOldEpoch, topic: name, partition: p})
	if pa.unclear || stale { // it exists, and that is all this broker knows better than we do
		pa = partitionAnswer{leader: was.Leader, epoch: was.LeaderEpoch}
	}
	was.Leader, was.LeaderEpoch = pa.leader, pa.epoch
	t.Partitions[p] = was
	ap.setState(name, t, p, stateOf(pa))
}

// setState changes a partition's state, and says so where a leader went or came.
func (ap *application) setState(name string, t Topic, p int32, now PartitionState) {
	part := t.Partitions[p]
	if part.State == now {
		return
	}
	switch {
	case now == Leaderless:
		ap.c.Leaderless = append(ap.c.Leaderless, TopicPartition{name, p})
	case now == Live && part.State != 0:
		ap.c.Led = append(ap.c.Led, TopicPartition{name, p})
	}
	part.State, part.Since = now, ap.at
	t.Partitions[p] = part
}

// asked says which brokers have already confirmed something that is still open; others should be asked first.
func (v *view) asked() map[string]bool {
	m := map[string]bool{}
	for _, s := range v.suspects {
		maps.Copy(m, s.by)
	}
	return m
}

// counts are the partitions by state.
func (v *view) counts() PartitionCounts {
	c := PartitionCounts{Gone: len(v.gonePartitions)}
	for _, g := range v.gone {
		c.Gone += g.partitions
	}
	if v.snap == nil {
		return c
	}
	for _, t := range v.snap.Topics {
		for _, p := range t.Partitions {
			c.Known++
			switch p.State {
			case Leaderless:
				c.Leaderless++
			case Missing:
				c.Missing++
			case Live:
			}
		}
	}
	return c
}
