package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// Source reads one consumer group's share of its topics. See the package comment for its contract.
type Source struct {
	cfg     Config
	handler Handler
	log     *zap.Logger
	dial    dialFunc

	// mu guards everything below it. It is never held while the handler is called, nor while a call of the client may wait for a callback.
	mu         sync.Mutex
	client     *kgo.Client // nil while there is none
	session    *session    // whose callbacks count
	generation uint64      // the last one given out
	parts      map[Partition]*partState
	troubles   map[Partition]*trouble
	seeds      []string
	topics     []string
	stalled    map[Partition]stall
	startedAt  time.Time // when positions were last set in the client
	lastPoll   time.Time
	lastErr    error
	lastErrAt  time.Time
	rebuilds   int

	// committing holds one token: whoever commits has it.
	committing chan struct{}

	in      inbox
	packing packing
	// lookups are the goroutines that ask for bounds; Run joins them.
	lookups sync.WaitGroup
}

// New checks the configuration and returns a Source that does nothing until Run. Anything wrong with cfg is said at once.
func New(cfg Config, h Handler) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("source settings: %w", err)
	}
	s := &Source{
		cfg: cfg, handler: h, log: cfg.Log,
		parts: make(map[Partition]*partState), troubles: make(map[Partition]*trouble), stalled: make(map[Partition]stall),
		seeds: slices.Clone(cfg.Seeds), topics: slices.Clone(cfg.Topics),
		committing: make(chan struct{}, 1), packing: packing{ratio: packedAtFirst},
	}
	var err error
	if s.dial, err = dialOf(cfg.Security); err != nil {
		return nil, fmt.Errorf("source settings: %w", err)
	}
	if err := kgo.ValidateOpts(s.options(context.Background(), newSession(s, nil))...); err != nil {
		return nil, fmt.Errorf("source settings: %w", err)
	}
	return s, nil
}

// inbox carries work to the poll goroutine and wakes it. Its lock is a leaf: hooks of the client may put while it holds its own locks.
type inbox struct {
	mu     sync.Mutex
	work   []func()
	woken  bool
	cancel context.CancelFunc // ends the poll under way
	reason string             // why the client should be replaced, empty if it should not
}

// put queues work, which runs on the poll goroutine while no rebalance can; nil only wakes.
func (in *inbox) put(work func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if work != nil {
		in.work = append(in.work, work)
	}
	in.wakeLocked()
}

func (in *inbox) wakeLocked() {
	in.woken = true
	if in.cancel != nil {
		in.cancel()
	}
}

// replace asks for a new client; the first reason is kept.
func (in *inbox) replace(reason string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.reason == "" {
		in.reason = reason
	}
	in.wakeLocked()
}

// polling returns the context of the next poll: it ends after max, or when something is put. A wake that came before counts.
func (in *inbox) polling(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.woken {
		cancel()
	}
	in.woken, in.cancel = false, cancel
	return ctx, cancel
}

func (in *inbox) take() []func() {
	in.mu.Lock()
	defer in.mu.Unlock()
	work := in.work
	in.work = nil
	return work
}

func (in *inbox) takeReason() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	reason := in.reason
	in.reason = ""
	return reason
}

// Run reads until ctx is done; then it gives up what it owns (Handler.Revoked, within Config.RevokeTimeout), leaves the group and returns
// nil, at the latest a little after Config.CloseTimeout. It must be called once. A client that failed is replaced, with a back-off.
func (s *Source) Run(ctx context.Context) error {
	defer s.lookups.Wait()
	for failures := 0; ; failures++ {
		if failures > 0 && !sleep(ctx, backoff(failures, time.Second, 30*time.Second)) {
			return nil
		}
		sess, err := s.open()
		if err != nil {
			s.failed(err)
			s.log.Error("cannot make a Kafka client", zap.Error(err))
			continue
		}
		if failures > 0 {
			s.mu.Lock()
			s.rebuilds++
			s.mu.Unlock()
		}
		reason, delivered := s.poll(ctx, sess)
		if ctx.Err() != nil {
			s.shutdown(sess)
			return nil
		}
		s.abandon(sess, reason)
		if delivered {
			failures = 0
		}
	}
}

// open makes a client; its callbacks count from its first moment, see session.OnNewClient.
func (s *Source) open() (*session, error) {
	ctx, cancel := context.WithCancel(context.Background())
	sess := newSession(s, cancel)
	if _, err := kgo.NewClient(s.options(ctx, sess)...); err != nil {
		cancel()
		return nil, fmt.Errorf("new client: %w", err)
	}
	return sess, nil
}

// shutdown gives up everything in an orderly way: the client leaves the group, which calls Revoked for what is owned.
func (s *Source) shutdown(sess *session) {
	if !s.close(sess, s.cfg.CloseTimeout) {
		s.log.Warn("the Kafka client did not close in time", zap.Duration("timeout", s.cfg.CloseTimeout))
	}
	s.mu.Lock()
	s.client, s.session = nil, nil
	s.mu.Unlock()
	s.loseAll()
}

// abandon replaces a client that is of no use: what it owned is lost at once, it leaves the group if it can.
func (s *Source) abandon(sess *session, reason string) {
	s.log.Warn("the Kafka client is replaced", zap.String("reason", reason))
	s.mu.Lock()
	s.client, s.session = nil, nil
	s.mu.Unlock()
	s.loseAll()
	if !s.close(sess, s.cfg.CloseTimeout/2) {
		s.log.Warn("the replaced Kafka client did not close in time")
	}
}

// loseAll tells the handler that everything that is still owned is gone. No callback of a client can run.
func (s *Source) loseAll() {
	s.mu.Lock()
	ps := s.ownedPartitionsLocked()
	s.dropLocked(ps)
	clear(s.troubles)
	s.mu.Unlock()
	if len(ps) > 0 {
		s.handler.Lost(ps)
	}
}

func (s *Source) ownedPartitionsLocked() []Partition {
	ps := make([]Partition, 0, len(s.parts))
	for p := range s.parts {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, compare)
	return ps
}

// close closes the client within limit: past it, its context is cancelled, and past a second more its goroutine is left to itself. What
// leaving the group takes must not wait behind a request that is not answered.
func (s *Source) close(sess *session, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		sess.client.CloseAllowingRebalance()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	hurry := time.NewTicker(patience / 5)
	defer hurry.Stop()
	for late := false; !late; {
		select {
		case <-done:
			sess.cancel()
			return true
		case <-hurry.C:
			sess.dialer.hurry()
		case <-timer.C:
			late = true
		}
	}
	sess.cancel()
	timer.Reset(time.Second)
	select {
	case <-done:
	case <-timer.C:
	}
	return false
}

// Start sets the position of a partition and lets it be fetched, unless the handler paused it. leaderEpoch is that of the record before
// offset, -1 if unknown; with it the client notices a truncation when the leader changes. To be called after Assigned, and again after
// EventGap, EventTruncated, or to step over what EventStuck is about. It returns ErrNotAssigned if the generation is over. It does not
// wait: records follow by Handler.Records.
func (s *Source) Start(p Partition, generation uint64, offset int64, leaderEpoch int32) error {
	if offset < 0 {
		return &PartitionError{Partition: p, Err: fmt.Errorf("start at %d: an offset is not negative", offset)}
	}
	s.mu.Lock()
	st := s.ownedLocked(p, generation)
	if st != nil {
		st.start = &position{offset: offset, epoch: max(leaderEpoch, -1)}
		if offset < st.committed {
			st.committed = -1 // a new history begins behind the old one's end
		}
	}
	s.mu.Unlock()
	if st == nil {
		return &PartitionError{Partition: p, Err: ErrNotAssigned}
	}
	s.in.put(nil)
	return nil
}

// Pause stops the fetching of a partition for a reason, a short fixed word: it is fetched again when every reason is gone. What was taken
// before may still be handed over. Without effect if the generation is over.
func (s *Source) Pause(p Partition, generation uint64, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.ownedLocked(p, generation); st != nil {
		s.pauseLocked(st, reason)
	}
}

// Resume takes a reason of Pause away. Without effect if there is none, or if the generation is over.
func (s *Source) Resume(p Partition, generation uint64, reason string) {
	if reason == reasonRestoring || reason == reasonPosition || reason == reasonRetry {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.ownedLocked(p, generation); st != nil {
		s.resumeLocked(st, reason)
	}
}

// Refresh makes the client ask for metadata soon. It does not wait.
func (s *Source) Refresh() {
	if client, err := s.current(); err == nil {
		client.ForceMetadataRefresh()
	}
}

// UpdateSeeds sets the addresses the client falls back to, now and after it was replaced. An empty list changes nothing.
func (s *Source) UpdateSeeds(addrs []string) error {
	if len(addrs) == 0 {
		return nil
	}
	s.mu.Lock()
	same := slices.Equal(s.seeds, addrs)
	s.seeds = slices.Clone(addrs)
	client := s.client
	s.mu.Unlock()
	if same || client == nil {
		return nil
	}
	if err := client.UpdateSeedBrokers(addrs...); err != nil {
		return fmt.Errorf("seed brokers: %w", err)
	}
	return nil
}

// AddTopics adds topics to those read by name; with a pattern it only asks for metadata, which finds them.
func (s *Source) AddTopics(topics ...string) {
	s.mu.Lock()
	if s.cfg.Pattern == nil {
		for _, t := range topics {
			if !slices.Contains(s.topics, t) {
				s.topics = append(s.topics, t)
			}
		}
	}
	client := s.client
	s.mu.Unlock()
	if client == nil {
		return
	}
	if s.cfg.Pattern == nil {
		client.AddConsumeTopics(topics...)
	}
	client.ForceMetadataRefresh()
}

// ReplaceTopic makes the client forget a topic that was deleted or created anew, and read it again under its new id. Its partitions are
// revoked or lost, and come back under new generations; until then their commits are refused. If ctx ends before, the client goes on with
// it in the background.
func (s *Source) ReplaceTopic(ctx context.Context, topic string) error {
	client, err := s.current()
	if err != nil {
		return err
	}
	s.mu.Lock()
	for p, st := range s.parts {
		st.replaced = st.replaced || p.Topic == topic
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends at the latest with the client
		defer close(done)
		client.PurgeTopicsFromConsuming(topic) // waits for the metadata loop
		if s.cfg.Pattern == nil {
			client.AddConsumeTopics(topic)
		}
		client.ForceMetadataRefresh()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("replacing topic %s: %w", topic, ctx.Err())
	}
}

// Rebuild drops the client, with all its partitions lost, and starts a new one: for an answer from another cluster, or a client that is
// stuck. It does not wait.
func (s *Source) Rebuild(reason string) { s.in.replace(reason) }

// current returns the client, or ErrNoClient.
func (s *Source) current() (*kgo.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil, ErrNoClient
	}
	return s.client, nil
}

// failed remembers the last error for Status.
func (s *Source) failed(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr, s.lastErrAt = err, time.Now()
}

// backoff is base doubled n-1 times, at most limit, ± 20 %.
func backoff(n int, base, limit time.Duration) time.Duration {
	d := limit
	if n = max(n, 1); n < 30 {
		d = min(base<<(n-1), limit)
	}
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // jitter
}

// sleep waits for d and reports whether ctx lived through it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
