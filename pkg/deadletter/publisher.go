package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// ErrStopped is what a record's callback gets when the publisher ended before the topic had confirmed the record.
var ErrStopped = errors.New("dead-letter publisher stopped before the record was confirmed")

const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
	// cutBytes is what is kept of the value of a record that the topic refuses for its size. It is far below any broker's limit
	// (message.max.bytes is 1 MiB by default), and halved again if even that is refused.
	cutBytes = 256 << 10
)

// Config is what a Publisher needs.
type Config struct {
	// Topic receives the records.
	Topic string
	// Seeds are the brokers to begin with.
	Seeds []string
	// Client are further client options: security, dialer, client id.
	Client []kgo.Opt
	Log    *zap.Logger
	// Metrics may not be nil.
	Metrics *Metrics
}

// Publisher writes records to the dead-letter topic. Publish, Status and UpdateSeeds are safe for concurrent use.
type Publisher struct {
	cfg Config
	cl  *kgo.Client
	// single sends records one by one. A batch is refused for its size as a whole, so only a record that is refused alone is too large itself.
	single *kgo.Client
	// callbacks counts the records whose done has not returned.
	callbacks sync.WaitGroup

	mu      sync.Mutex
	alone   []letter // to be sent by single, one after the other
	under   bool     // single has one under way
	anew    bool     // the topic is another than the clients know
	open    int      // records not confirmed yet
	stopped bool
	failing error     // last error, nil after a confirmation
	since   time.Time // of failing
	retry   []letter
	wake    chan struct{}
}

type letter struct {
	rec    *kgo.Record
	reason string
	done   func(error)
	tries  int
	at     time.Time // not before
	alone  bool      // a batch with it was too large: to be sent by itself
}

// New checks the options and makes the clients, which dial only when the first record is published. Run closes them.
func New(cfg Config) (*Publisher, error) {
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(cfg.Seeds...),
		kgo.DefaultProduceTopic(cfg.Topic),
		// A missing topic is a state that somebody mends, not an error of the record.
		kgo.UnknownTopicRetries(-1),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(10 * time.Millisecond),
		kgo.DialTimeout(3 * time.Second),
		kgo.RequestTimeoutOverhead(5 * time.Second),
		kgo.DisableClientMetrics(),
	}, cfg.Client...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("dead-letter client: %w", err)
	}
	single, err := kgo.NewClient(append(opts, kgo.ProducerLinger(0))...)
	if err != nil {
		cl.Close()
		return nil, fmt.Errorf("dead-letter client for single records: %w", err)
	}
	return &Publisher{cfg: cfg, cl: cl, single: single, wake: make(chan struct{}, 1)}, nil
}

// Publish sends a copy of rec with the reason and its origin in headers. done is called once, from another goroutine: with nil when
// the topic has the record, or with ErrStopped. Publish does not block; the caller bounds what it has open.
func (p *Publisher) Publish(rec *kgo.Record, reason string, done func(error)) {
	l := letter{rec: p.copyOf(rec, reason), reason: reason, done: done}
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		done(ErrStopped)
		return
	}
	p.open++
	p.callbacks.Add(1)
	p.mu.Unlock()
	p.send(l)
}

func (p *Publisher) copyOf(rec *kgo.Record, reason string) *kgo.Record {
	h := make([]kgo.RecordHeader, 0, len(rec.Headers)+5)
	h = append(h, rec.Headers...)
	add := func(k, v string) { h = append(h, kgo.RecordHeader{Key: k, Value: []byte(v)}) }
	add("rollcall.reason", reason)
	add("rollcall.topic", rec.Topic)
	add("rollcall.partition", strconv.Itoa(int(rec.Partition)))
	add("rollcall.offset", strconv.FormatInt(rec.Offset, 10))
	add("rollcall.timestamp", rec.Timestamp.UTC().Format(time.RFC3339Nano))
	// Key and value are copied: they point into a whole fetch response, which must not stay in memory for one bad record.
	out := &kgo.Record{Topic: p.cfg.Topic, Headers: h}
	if rec.Key != nil {
		out.Key = append([]byte{}, rec.Key...)
	}
	if rec.Value != nil {
		out.Value = append([]byte{}, rec.Value...)
	}
	return out
}

func (p *Publisher) send(l letter) {
	// TryProduce: a full client buffer is one more reason to wait, never to block an owner.
	p.cl.TryProduce(context.Background(), l.rec, func(_ *kgo.Record, err error) { p.answered(l, err) })
}

// sendAlone sends the next record that has to go by itself, if none is under way.
func (p *Publisher) sendAlone() {
	p.mu.Lock()
	if p.under || len(p.alone) == 0 {
		p.mu.Unlock()
		return
	}
	l := p.alone[0]
	p.alone, p.under = p.alone[1:], true
	p.mu.Unlock()
	p.single.TryProduce(context.Background(), l.rec, func(_ *kgo.Record, err error) {
		p.mu.Lock()
		p.under = false
		p.mu.Unlock()
		p.answered(l, err)
		p.kick()
	})
}

func (p *Publisher) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func isTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

func (p *Publisher) answered(l letter, err error) {
	if err == nil {
		p.mu.Lock()
		p.open--
		recovered := p.failing != nil
		p.failing = nil
		p.mu.Unlock()
		if recovered {
			p.cfg.Log.Info("dead-letter topic accepts records again", zap.String("topic", p.cfg.Topic))
		}
		p.cfg.Metrics.Confirmed(l.reason)
		p.tell(l, nil)
		return
	}
	p.cfg.Metrics.retries.Inc()
	l.tries++
	switch {
	case isTooLarge(err) && l.alone:
		l.rec = cut(l.rec)
	case isTooLarge(err):
		l.alone = true
	}
	wait := min(firstRetry<<min(l.tries-1, 6), lastRetry)
	l.at = time.Now().Add(time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())))
	p.mu.Lock()
	if p.stopped {
		p.open--
		p.mu.Unlock()
		p.tell(l, fmt.Errorf("%w: %w", ErrStopped, err))
		return
	}
	p.anew = p.anew || errors.Is(err, kerr.UnknownTopicID)
	first := p.failing == nil && !isTooLarge(err) && !errors.Is(err, kgo.ErrMaxBuffered)
	if first {
		p.failing, p.since = err, time.Now()
	}
	p.retry = append(p.retry, l)
	p.mu.Unlock()
	if first {
		p.cfg.Log.Error("dead-letter topic refuses records: partitions with bad records wait for it",
			zap.String("topic", p.cfg.Topic), zap.Error(err))
	}
	p.kick()
}

func (p *Publisher) tell(l letter, err error) {
	defer p.callbacks.Done()
	l.done(err)
}

// cut keeps the beginning of a value that is too large and says so. A value that is small already cannot be the reason; then key and
// headers are, and they go.
func cut(r *kgo.Record) *kgo.Record {
	out := *r
	switch {
	case len(out.Value) > cutBytes:
		out.Value = out.Value[:cutBytes]
	case len(out.Value) > 1024:
		out.Value = out.Value[:len(out.Value)/2]
	default:
		out.Key = nil
		var keep []kgo.RecordHeader
		for _, h := range out.Headers {
			if len(h.Key) > 9 && h.Key[:9] == "rollcall." && len(h.Value) <= 1024 {
				keep = append(keep, h)
			}
		}
		out.Headers = keep
	}
	for _, h := range out.Headers {
		if h.Key == "rollcall.truncated" {
			return &out
		}
	}
	out.Headers = append(append([]kgo.RecordHeader{}, out.Headers...), kgo.RecordHeader{Key: "rollcall.truncated", Value: []byte("true")})
	return &out
}

// Run sends again what was refused, until ctx is done; then every record not confirmed gets ErrStopped. It owns and closes the clients, and
// returns after the last callback.
func (p *Publisher) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.forgetTopic()
		next := p.resend()
		p.sendAlone()
		timer.Reset(next)
		select {
		case <-ctx.Done():
			p.stop()
			return nil
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// forgetTopic lets the clients ask for the topic again once it was deleted and created anew: they never adopt a new topic id by themselves.
// What they hold of it fails, and is sent again.
func (p *Publisher) forgetTopic() {
	p.mu.Lock()
	anew := p.anew
	p.anew = false
	p.mu.Unlock()
	if anew {
		p.cl.PurgeTopicsFromProducing(p.cfg.Topic)
		p.single.PurgeTopicsFromProducing(p.cfg.Topic)
	}
}

// resend sends what is due and says how long nothing else will be.
func (p *Publisher) resend() time.Duration {
	now := time.Now()
	next := time.Hour
	var due []letter
	p.mu.Lock()
	rest := p.retry[:0]
	for _, l := range p.retry {
		if wait := l.at.Sub(now); wait > 0 {
			next = min(next, wait)
			rest = append(rest, l)
			continue
		}
		if l.alone {
			p.alone = append(p.alone, l)
			continue
		}
		due = append(due, l)
	}
	p.retry = rest
	p.mu.Unlock()
	for _, l := range due {
		p.send(l)
	}
	return next
}

func (p *Publisher) stop() {
	p.mu.Lock()
	p.stopped = true
	left := append(p.retry, p.alone...)
	p.retry, p.alone = nil, nil
	p.open -= len(left)
	p.mu.Unlock()
	p.cl.Close() // fails what the client holds: answered gives each ErrStopped
	p.single.Close()
	for _, l := range left {
		p.tell(l, ErrStopped)
	}
	p.callbacks.Wait() // the clients call back from goroutines of their own
}

// UpdateSeeds replaces the brokers to fall back to.
func (p *Publisher) UpdateSeeds(addrs []string) error {
	return errors.Join(p.cl.UpdateSeedBrokers(addrs...), p.single.UpdateSeedBrokers(addrs...))
}

// Status says how many records are not confirmed and, while the topic refuses, why and since when.
type Status struct {
	Open  int
	Err   error
	Since time.Time
}

// Status reports the publisher's state.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{Open: p.open, Err: p.failing, Since: p.since}
}
