package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/plugin/kzap"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// session is one client's life. Its callbacks count only while it is the source's.
type session struct {
	source *Source
	client *kgo.Client
	cancel context.CancelFunc // ends every request of the client

	// mu guards failing: the brokers whose trouble was said, and when they last failed. A leaf lock.
	mu      sync.Mutex
	failing map[brokerKey]time.Time

	around around
	dialer *dialer
	// heard is when a broker last answered anything, Unix ns; at first, when the client was made.
	heard atomic.Int64
}

func newSession(s *Source, cancel context.CancelFunc) *session {
	sess := &session{source: s, cancel: cancel, failing: make(map[brokerKey]time.Time), dialer: newDialer(s.dial)}
	sess.heard.Store(time.Now().UnixNano())
	return sess
}

const (
	retriesBase, retriesLimit = 100 * time.Millisecond, 4 * time.Second
	// awayAfter is how long no broker may answer before all count as away.
	awayAfter = 3 * time.Second
)

// retryBackoff is how long the client waits after the nth failure in a row. Several loops of the client count on their own and begin anew
// with every request; while no broker answers at all, each waits the whole limit, or brokers would be dialled more than once a second.
func (sess *session) retryBackoff(n int) time.Duration {
	if time.Since(time.Unix(0, sess.heard.Load())) > awayAfter {
		n = 30
	}
	return backoff(n, retriesBase, retriesLimit)
}

// The option set of the consumer: short limits so that a broker that is gone costs seconds, not minutes.
func (s *Source) options(ctx context.Context, sess *session) []kgo.Opt {
	s.mu.Lock()
	seeds, topics := s.seeds, s.topics
	s.mu.Unlock()
	c := s.cfg
	fetch, fetchPartition := s.packing.limits(c)
	opts := []kgo.Opt{
		kgo.WithContext(ctx),
		kgo.SeedBrokers(seeds...),
		kgo.ClientID(c.ClientID),
		kgo.RequestTimeoutOverhead(5 * time.Second),
		kgo.RetryBackoffFn(sess.retryBackoff),
		kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.MetadataMaxAge(time.Minute),
		kgo.ConnIdleTimeout(time.Minute),
		kgo.AlwaysRetryEOF(),
		kgo.DisableClientMetrics(),
		kgo.WithLogger(clientLogger(s.log)),
		kgo.WithHooks(s.hooks(sess)...),
		kgo.MaxVersions(versions()),

		kgo.FetchMaxWait(c.FetchMaxWait),
		kgo.FetchMaxBytes(fetch),
		kgo.FetchMaxPartitionBytes(fetchPartition),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		// Errors that metadata may cure come to us as well: the client would ask again at once, for as long as they last.
		kgo.KeepRetryableFetchErrors(),
		kgo.KeepControlRecords(), // positions move with them, also past an aborted tail
		// No silent reset: a position outside the log is an error of the partition. The start is never used, see positions.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),

		kgo.ConsumerGroup(c.Group),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(c.SessionTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, c.SessionTimeout/3)),
		kgo.RebalanceTimeout(30 * time.Second),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(sess.assigned),
		kgo.OnPartitionsRevoked(sess.revoked),
		kgo.OnPartitionsLost(sess.lost),
		kgo.OnOffsetsFetched(sess.commitsFetched),
		kgo.AdjustFetchOffsetsFn(sess.positions),
	}
	if c.readCommitted() {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if c.MaxConcurrentFetches > 0 {
		opts = append(opts, kgo.MaxConcurrentFetches(c.MaxConcurrentFetches))
	}
	if c.Protocol == ProtocolConsumer {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	if c.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(c.InstanceID))
	}
	if c.Pattern != nil {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(c.Pattern.String()))
		if len(c.Exclude) > 0 {
			opts = append(opts, kgo.ConsumeExcludeTopics(c.Exclude...))
		}
	} else {
		opts = append(opts, kgo.ConsumeTopics(topics...))
	}
	return append(append(opts, c.Security...), sess.dialer.options()...)
}

// versions are the client's own, but for Fetch: from version 16 on a broker that is not the leader says who is (KIP-951), and the client
// (franz-go 1.22.3: kip951move, source.handleReqResp) asks it again at once, without an end, until its metadata loop has moved the partition.
// While that loop waits for a broker that is silent, this takes a whole core and a goroutine per answer. Below 16 the error comes to us, who
// pause the partition for a moment, and the metadata that it triggers moves it.
func versions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.Fetch), 15)
	return v
}

// clientLogger is the client's own log at warn, thinned out: it writes a line per retry.
func clientLogger(log *zap.Logger) kgo.Logger {
	thin := zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, 30*time.Second, 2, 0)
	})
	return kzap.New(log.Named("kgo").WithOptions(thin), kzap.Level(kgo.LogLevelWarn))
}

// positions gives every partition an exact position without an epoch, so that the client neither lists offsets nor checks the commit: the
// partition is paused, and Start will set where it really goes on; what is started already keeps its position. The client calls it after
// assigned, before it fetches.
func (sess *session) positions(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	s := sess.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, ps := range offsets {
		for p, o := range ps {
			at := max(o.EpochOffset().Offset, 0) // no commit is below zero
			if st := s.parts[Partition{t, p}]; st != nil {
				if st.moved {
					at = st.next
				} else {
					st.initial = at
				}
				st.unfetched = false
			}
			ps[p] = kgo.NewOffset().At(at).WithEpoch(-1)
		}
	}
	return offsets, nil
}

// commitsFetched notes the partitions whose commit could not be read: the client leaves them out until it is replaced. It is called by the
// client before positions.
func (sess *session) commitsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	s := sess.source
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if st := s.parts[Partition{t.Topic, p.Partition}]; st != nil && p.ErrorCode != 0 {
					st.unfetched = true
				}
			}
		}
	}
	return nil
}

// assigned is called by the client with the partitions that are new, while no poll is under way.
func (sess *session) assigned(_ context.Context, client *kgo.Client, added map[string][]int32) {
	s, ps := sess.source, partitionsOf(added)
	s.mu.Lock()
	if s.session != sess {
		s.mu.Unlock()
		return
	}
	// A topic that was purged and found again may come back without having been revoked.
	var again []Partition
	for _, p := range ps {
		if s.parts[p] != nil {
			again = append(again, p)
		}
	}
	s.dropLocked(again)
	s.mu.Unlock()
	if len(again) > 0 {
		s.handler.Lost(again)
	}
	s.groupBack()
	if len(ps) == 0 {
		return
	}
	s.mu.Lock()
	s.generation++
	generation := s.generation
	client.PauseFetchPartitions(clientMap(ps))
	for _, p := range ps {
		st := newPartState(p, generation, s.cfg.Metrics)
		s.parts[p] = st
		st.reasons[reasonRestoring] = time.Now()
		s.cfg.Metrics.paused.WithLabelValues(reasonRestoring).Inc()
	}
	s.cfg.Metrics.assigned.Set(float64(len(s.parts)))
	s.mu.Unlock()
	s.log.Info("partitions assigned", zap.Stringers("partitions", ps), zap.Uint64("generation", generation))
	s.handler.Assigned(generation, ps)
}

// revoked is called by the client with the partitions it is about to give up, while no poll is under way. Commits pass until it returns.
func (sess *session) revoked(ctx context.Context, _ *kgo.Client, gone map[string][]int32) {
	s := sess.source
	ps := sess.owned(gone)
	if len(ps) == 0 {
		return
	}
	s.log.Info("partitions revoked", zap.Stringers("partitions", ps))
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RevokeTimeout)
	defer cancel()
	s.handler.Revoked(ctx, ps)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(ps)
}

// lost is called by the client with the partitions that were taken away.
func (sess *session) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	s := sess.source
	ps := sess.owned(gone)
	if len(ps) == 0 {
		return
	}
	s.log.Warn("partitions lost", zap.Stringers("partitions", ps))
	s.mu.Lock()
	s.dropLocked(ps)
	s.mu.Unlock()
	s.handler.Lost(ps)
}

// owned picks those of the client's partitions that the source has given to the handler.
func (sess *session) owned(m map[string][]int32) []Partition {
	s := sess.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != sess {
		return nil
	}
	var ps []Partition
	for _, p := range partitionsOf(m) {
		if s.parts[p] != nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// OnNewClient implements kgo.HookNewClient. It is called before the client does anything: the first callback may come before NewClient
// returns.
func (sess *session) OnNewClient(client *kgo.Client) {
	s := sess.source
	s.mu.Lock()
	defer s.mu.Unlock()
	sess.client = client
	s.client, s.session = client, sess
}

// OnBrokerConnect implements kgo.HookBrokerConnect: credentials that are refused show nowhere else, leaders that are gone show here first.
func (sess *session) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	switch {
	case err == nil:
		sess.over(brokerKey{denied: true, addr: address(meta)})
	case isDenied(err):
		as := ""
		if p := sess.source.cfg.Principal; p != "" {
			as = " as " + p
		}
		sess.broken(brokerKey{denied: true, addr: address(meta)},
			Event{Kind: EventDenied, Err: fmt.Errorf("log in%s to the broker at %s: %w", as, address(meta), err)})
	default:
		sess.leaderFailed(meta, err)
	}
}

// OnBrokerRead implements kgo.HookBrokerRead: a broker that answers, a fetch that was answered, or was not.
func (sess *session) OnBrokerRead(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil {
		sess.heard.Store(time.Now().UnixNano())
	}
	switch {
	case key != int16(kmsg.Fetch):
	case err == nil:
		sess.around.clear(meta.NodeID)
		sess.over(brokerKey{addr: address(meta)})
	default:
		sess.leaderFailed(meta, err)
	}
}

func address(meta kgo.BrokerMetadata) string {
	return net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
}

// leaderFailed says EventLeader. Seed addresses lead nothing, and what we closed ourselves is no trouble.
func (sess *session) leaderFailed(meta kgo.BrokerMetadata, err error) {
	if meta.NodeID < 0 || errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) {
		return
	}
	sess.around.suspect(meta.NodeID)
	sess.broken(brokerKey{addr: address(meta)}, Event{Kind: EventLeader, Err: fmt.Errorf("broker %d at %s: %w", meta.NodeID, address(meta), err)})
}

// brokerKey is a broker that fails, or that refuses us.
type brokerKey struct {
	denied bool
	addr   string
}

// broken says an event the first time.
func (sess *session) broken(k brokerKey, e Event) {
	sess.mu.Lock()
	_, known := sess.failing[k]
	sess.failing[k] = time.Now()
	sess.mu.Unlock()
	if !known {
		e.From, e.To, e.Divergence = -1, -1, -1
		sess.emit(e)
	}
}

// over ends it. The recovery of the whole client is said only if no broker refuses us any more.
func (sess *session) over(k brokerKey) {
	sess.mu.Lock()
	_, known := sess.failing[k]
	delete(sess.failing, k)
	for other := range sess.failing {
		known = known && !other.denied
	}
	sess.mu.Unlock()
	if known {
		sess.emit(recoveredEvent(Partition{}))
	}
}

// silent are the brokers that fail without refusing us.
func (sess *session) silent() map[string]time.Time {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	out := make(map[string]time.Time, len(sess.failing))
	for k, last := range sess.failing {
		if !k.denied {
			out[k.addr] = last
		}
	}
	return out
}

// forget ends the trouble with brokers that were not tried any more for a while: they have gone for good.
func (sess *session) forget() {
	sess.mu.Lock()
	var gone []brokerKey
	for k, last := range sess.failing {
		if time.Since(last) > forgetAfter {
			gone = append(gone, k)
		}
	}
	sess.mu.Unlock()
	for _, k := range gone {
		sess.over(k)
	}
}

// emit hands an event to the poll goroutine, which tells the handler.
func (sess *session) emit(e Event) {
	s := sess.source
	s.in.put(func() {
		s.mu.Lock()
		current := s.session == sess
		if _, still := s.troubles[Partition{}]; still && e.Kind == EventRecovered {
			current = false // the group still refuses us
		}
		s.mu.Unlock()
		if current {
			s.failed(e.Err)
			s.tell(e)
		}
	})
}

// hooks are the session's own and those of Config.Hooks.
func (s *Source) hooks(sess *session) []kgo.Hook {
	hooks := []kgo.Hook{sess, &s.packing}
	if s.cfg.Hooks != nil {
		hooks = append(hooks, s.cfg.Hooks()...)
	}
	return hooks
}
