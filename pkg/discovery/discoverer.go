package discovery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sony/gobreaker/v2"
)

// Discoverer finds topics and partitions. First and Run belong to one goroutine at a time; Kick, Snapshot and Status may be called from
// anywhere at any time.
type Discoverer struct {
	s       *settled
	asker   *asker
	breaker *gobreaker.CircuitBreaker[*answer]
	kick    chan struct{}
	turn    chan struct{} // holds one token while First or Run is at work

	// Owned by whoever holds the turn.
	view    *view
	cluster string            // pinned id
	failing map[string]bool   // addresses whose last try failed
	names   map[string]string // who answers at an address, as answers call themselves
	moved   *transition       // a breaker transition that is not logged yet
	said    said              // what has been logged and not ended
	started time.Time         // of the last round

	mu     sync.Mutex
	snap   *Snapshot
	status Status
}

type transition struct{ from, to gobreaker.State }

// New checks the configuration, all problems at once, and starts nothing.
func New(c Config) (*Discoverer, error) {
	s, err := c.settle()
	if err != nil {
		return nil, err
	}
	a, err := newAsker(s)
	if err != nil {
		return nil, err
	}
	d := &Discoverer{
		s: s, asker: a, kick: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		view: newView(s.GoneConfirmations, s.Topics), cluster: s.ClusterID, failing: map[string]bool{}, names: map[string]string{},
		status: Status{Breaker: breakerName(gobreaker.StateClosed)},
	}
	d.breaker = gobreaker.NewCircuitBreaker[*answer](gobreaker.Settings{
		Name: "discovery", MaxRequests: 1, Interval: 0, Timeout: s.BreakerCooldown,
		ReadyToTrip: func(n gobreaker.Counts) bool { return int(n.ConsecutiveFailures) >= s.BreakerFailures },
		// Refusals and our own end say nothing about whether brokers can be reached.
		IsExcluded: func(err error) bool { return Permanent(err) || errors.Is(err, errEnded) },
		// Called with the breaker's lock held, on the goroutine of the round: only note it.
		OnStateChange: func(_ string, from, to gobreaker.State) { d.moved = &transition{from, to} },
	})
	return d, nil
}

// First discovers at start-up: it tries until a round is good, with back-off, and returns the snapshot. It returns early with an error that
// satisfies [Permanent] when as many rounds as GoneConfirmations, answered by different brokers where there are several, were refused or lacked a
// configured topic, and with ctx's cause and the last round's error when ctx ends. A partition without a leader does not hold it up. With a
// pattern that nothing matches it returns an empty snapshot.
func (d *Discoverer) First(ctx context.Context) (*Snapshot, error) {
	if err := d.takeTurn(); err != nil {
		return nil, err
	}
	defer d.endTurn()
	wait := &backoff.ExponentialBackOff{
		InitialInterval: 250 * time.Millisecond, Multiplier: 2, MaxInterval: min(5*time.Second, d.s.Interval), RandomizationFactor: jitter,
	}
	refusals := 0
	for {
		c, err := d.round(ctx, firstHedge, d.walk)
		if err == nil {
			return c.Snapshot, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("discovery at start: %w", errors.Join(context.Cause(ctx), d.Status().Err))
		}
		var re *RoundError
		switch {
		case !Permanent(err):
			refusals = 0
		case !errors.As(err, &re): // confirmed by the view
			return nil, fmt.Errorf("discovery at start: %w", err)
		default:
			if refusals++; refusals >= d.s.GoneConfirmations {
				return nil, fmt.Errorf("discovery at start: %w", err)
			}
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return nil, fmt.Errorf("discovery at start: %w", errors.Join(err, d.Status().Err))
		}
	}
}

// Run makes rounds until ctx is done and then returns nil. After each round with an answer it calls report with the change, also an empty
// one, on this goroutine; report must not block. Without a First before it, the first round comes at once.
func (d *Discoverer) Run(ctx context.Context, report func(Change)) error {
	if err := d.takeTurn(); err != nil {
		return err
	}
	defer d.endTurn()
	var delay time.Duration
	if d.view.snap != nil {
		delay = jittered(d.s.Interval)
	}
	due := time.Now().Add(delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	kickable := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.kick:
			if at := d.earliest(); kickable && at.Before(due) {
				due = at
				timer.Reset(time.Until(due))
			}
			continue
		case <-timer.C:
		}
		c, err := d.round(ctx, hedge, d.guarded)
		if ctx.Err() != nil {
			return nil
		}
		delay, kickable = d.pause(c, err)
		due = time.Now().Add(delay)
		timer.Reset(delay)
		if c != nil && c.Snapshot != nil {
			report(*c)
		}
	}
}

// Kick asks for a round soon, as when fetching from a leader fails. It never blocks. Many kicks make one round, and none comes sooner than 2 s
// after the one before, nor while the breaker is open or while brokers refuse us.
func (d *Discoverer) Kick() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// earliest is when a round that was asked for may come.
func (d *Discoverer) earliest() time.Time {
	at := d.started.Add(min(confirmAfter, d.s.Interval))
	if now := time.Now(); at.Before(now) {
		return now
	}
	return at
}

// pause says how long to wait after a round, and whether a kick may shorten that.
func (d *Discoverer) pause(c *Change, err error) (delay time.Duration, kickable bool) {
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), d.status.Breaker == breakerName(gobreaker.StateOpen):
		// Never before the breaker is ready: a probe that comes too early is a round lost.
		return d.s.BreakerCooldown + time.Duration(rand.Int64N(int64(d.s.BreakerCooldown/10)+1)) + time.Millisecond, false
	case Permanent(err):
		return jittered(d.s.Interval), false
	case errors.Is(err, ErrUnconfirmed), c != nil && len(c.Suspicious) > 0:
		return jittered(min(confirmAfter, d.s.Interval)), true
	default:
		return jittered(d.s.Interval), true
	}
}

// round is one round and its account: metrics, status, logs. The change is nil where no broker answered.
func (d *Discoverer) round(ctx context.Context, hedge time.Duration, walk func(context.Context, time.Duration) (*answer, error)) (*Change, error) {
	d.started = time.Now()
	a, err := walk(ctx, hedge)
	now := time.Now()
	elapsed := now.Sub(d.started)
	if errors.Is(err, errEnded) {
		return nil, err // nobody's fault, no result
	}
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		d.s.Metrics.rounds.WithLabelValues(resultSkipped).Inc()
		d.breakerMoved(nil, elapsed)
		return nil, err
	}
	var c *Change
	if err == nil {
		c, err = d.believe(a, now)
	}
	d.s.Metrics.round(result(c, err), elapsed)
	d.publish(now, c, err)
	d.tell(c, err)
	d.breakerMoved(err, elapsed)
	return c, err
}

// believe gives an answer to the view and pins its cluster once accepted.
func (d *Discoverer) believe(a *answer, now time.Time) (*Change, error) {
	c, err := d.view.apply(a, now)
	if err == nil && d.cluster == "" {
		d.cluster = a.clusterID
	}
	if err == nil && len(c.Denied) > 0 {
		err = &TopicsError{Topics: c.Denied, Err: ErrDenied}
	}
	return &c, err
}

func result(c *Change, err error) string {
	switch {
	case Permanent(err):
		return resultDenied
	case c == nil:
		return resultFailed
	case err != nil || len(c.Suspicious) > 0:
		return resultSuspicious
	default:
		return resultOK
	}
}

// guarded is walk behind the breaker. The walk's own deadline keeps a probe from holding the half-open slot.
func (d *Discoverer) guarded(ctx context.Context, hedge time.Duration) (*answer, error) {
	return d.breaker.Execute(func() (*answer, error) { return d.walk(ctx, hedge) })
}

// walk asks the brokers, once.
func (d *Discoverer) walk(ctx context.Context, hedge time.Duration) (*answer, error) {
	p := plan{clusterID: d.cluster, hedge: hedge, rank: d.ranking()}
	if snap := d.view.snap; snap != nil {
		p.brokers = snap.Brokers
		p.known = sortedKeys(maps.Keys(snap.Topics))
	} else {
		// What to begin with is worth asking everybody for: the first to answer may be the one that lags or is another cluster's.
		p.enough = d.view.plain
	}
	w := &walk{asker: d.asker, plan: p}
	a, err := w.run(ctx)
	if !errors.Is(err, errEnded) {
		d.remember(w, a)
	}
	return a, err
}

// ranking puts those that failed last time behind the others, and behind them those that have already had their say about what is to be
// confirmed.
func (d *Discoverer) ranking() func(addr string) int {
	asked := d.view.asked()
	return func(addr string) int {
		switch {
		case asked[d.names[addr]]:
			return 2
		case d.failing[addr]:
			return 1
		default:
			return 0
		}
	}
}

// remember keeps who failed and who is who, for the order of the next round. Addresses that are no candidates any more are forgotten. a is the
// round's answer, nil if there was none.
func (d *Discoverer) remember(w *walk, a *answer) {
	for _, addr := range w.poor() {
		d.failing[addr] = true
	}
	maps.DeleteFunc(d.failing, func(addr string, _ bool) bool { return !w.seen[addr] || slices.Contains(w.good, addr) })
	maps.DeleteFunc(d.names, func(addr, _ string) bool { return !w.seen[addr] })
	for addr := range w.seen {
		if d.names[addr] == "" {
			d.names[addr] = addr
		}
	}
	if a != nil {
		for _, b := range a.brokers {
			d.names[b.Addr] = nodeName(b.ID)
		}
	}
}

func (d *Discoverer) takeTurn() error {
	select {
	case d.turn <- struct{}{}:
		return nil
	default:
		return errRunning
	}
}

func (d *Discoverer) endTurn() { <-d.turn }

func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64()))
}

// sleep waits for d or until ctx is done, whose cause it then returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func sortedKeys(keys iter.Seq[string]) []string { return slices.Sorted(keys) }
