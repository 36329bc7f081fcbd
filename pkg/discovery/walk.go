package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// plan is what a round starts from.
type plan struct {
	clusterID string   // pinned, empty for any
	known     []string // topics a pattern found before
	brokers   []Broker // of the last snapshot
	hedge     time.Duration
	// enough says whether an answer ends the round. Others are asked too otherwise, and the first answer is taken if none is enough. nil: any.
	enough func(*answer) bool
	// rank orders addresses: lower is asked earlier.
	rank func(addr string) int
}

// walk is one round: candidates come in as they become known, tries go out one after the other, the first good answer ends it. It belongs to
// one goroutine; tries and look-ups run in their own, which have all ended when run returns.
type walk struct {
	asker *asker
	plan  plan
	wg    sync.WaitGroup

	found chan lookup
	tried chan outcome

	queue     []candidate
	seen      map[string]bool
	resolving int
	inFlight  map[string]time.Time // addresses being tried, since when
	causes    []Cause
	good      []string // addresses that answered
	fallback  *answer  // the first answer that was not enough
}

type lookup struct {
	host    string
	cands   []candidate
	err     error
	elapsed time.Duration
}

type outcome struct {
	c       candidate
	a       *answer
	err     error
	elapsed time.Duration
}

// run returns the first good answer, a RoundError with what each broker did, or errEnded if ctx ended.
func (w *walk) run(ctx context.Context) (*answer, error) {
	a, err := w.loop(ctx)
	if cause := ended(ctx); err != nil && cause != nil {
		// Tries fail when the round is cancelled, and may do so before the loop sees it: nobody's fault.
		return nil, fmt.Errorf("%w: %w", errEnded, cause)
	}
	return a, err
}

// ended is why ctx is over, nil if it is not. Connections watch a deadline with clocks of their own, so it counts as soon as it has passed.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return nil
}

func (w *walk) loop(ctx context.Context) (*answer, error) {
	begin := time.Now()
	tctx, cancel := context.WithTimeout(ctx, w.asker.s.Timeout)
	defer w.wg.Wait() // after cancel: tries and look-ups end with the context
	defer cancel()
	w.found, w.tried = make(chan lookup), make(chan outcome)
	w.seen, w.inFlight = map[string]bool{}, map[string]time.Time{}

	var known []candidate
	for _, b := range w.plan.brokers {
		known = append(known, candidate{addr: b.Addr})
	}
	w.add(known)
	for _, hp := range w.asker.s.seeds {
		w.seed(tctx, hp)
	}

	timer := time.NewTimer(w.plan.hedge)
	defer timer.Stop()
	ready := true
	for {
		if ready && w.start(tctx) {
			ready = false
			timer.Reset(w.plan.hedge)
		}
		if len(w.inFlight) == 0 && w.resolving == 0 && len(w.queue) == 0 {
			return w.exhausted(begin, nil)
		}
		select {
		case l := <-w.found:
			w.resolved(l)
		case o := <-w.tried:
			if w.finished(o) {
				return o.a, nil
			}
			ready = true
		case <-timer.C:
			ready = true
			timer.Reset(w.plan.hedge)
		case <-tctx.Done():
			return w.exhausted(begin, context.DeadlineExceeded)
		}
	}
}

// finished takes the outcome of a try and says whether the round is over.
func (w *walk) finished(o outcome) bool {
	delete(w.inFlight, o.c.addr)
	if o.err != nil {
		w.causes = append(w.causes, Cause{Broker: o.c.addr, Elapsed: o.elapsed, Err: o.err})
		return false
	}
	w.good = append(w.good, o.c.addr)
	if w.plan.enough == nil || w.plan.enough(o.a) {
		return true
	}
	if w.fallback == nil {
		w.fallback = o.a
	}
	return false
}

// exhausted ends a round in which nobody gave an answer that was enough.
func (w *walk) exhausted(begin time.Time, ctxErr error) (*answer, error) {
	if w.fallback != nil {
		return w.fallback, nil
	}
	for addr, since := range w.inFlight { // the budget ran out before they could fail by themselves
		w.causes = append(w.causes, Cause{Broker: addr, Elapsed: time.Since(since), Err: &tryError{"try", context.DeadlineExceeded}})
	}
	return nil, &RoundError{Causes: w.causes, Elapsed: time.Since(begin), Budget: w.asker.s.Timeout, ctx: ctxErr}
}

// poor are the addresses that failed, and those that were slow to answer when another one did.
func (w *walk) poor() []string {
	var addrs []string
	for _, c := range w.causes {
		addrs = append(addrs, c.Broker)
	}
	for addr, since := range w.inFlight {
		if time.Since(since) >= w.plan.hedge {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// start begins the next try, if there is one and room for it.
func (w *walk) start(ctx context.Context) bool {
	if len(w.queue) == 0 || len(w.inFlight) >= maxInFlight {
		return false
	}
	c := w.queue[0]
	w.queue = w.queue[1:]
	w.inFlight[c.addr] = time.Now()
	w.wg.Go(func() {
		begin := time.Now()
		a, err := w.asker.ask(ctx, c, w.plan.clusterID, w.plan.known)
		select {
		case w.tried <- outcome{c: c, a: a, err: err, elapsed: time.Since(begin)}:
		case <-ctx.Done():
		}
	})
	return true
}

// seed makes candidates of a configured broker, looking its name up if that is ours to do.
func (w *walk) seed(ctx context.Context, hp hostPort) {
	if !w.asker.expand || net.ParseIP(hp.host) != nil {
		w.add([]candidate{{addr: hp.addr()}})
		return
	}
	w.resolving++
	w.wg.Go(func() {
		l := w.asker.lookup(ctx, hp)
		select {
		case w.found <- l:
		case <-ctx.Done():
		}
	})
}

// lookup resolves a name within the time of one try.
func (a *asker) lookup(ctx context.Context, hp hostPort) lookup {
	ctx, cancel := context.WithTimeout(ctx, a.s.RequestTimeout)
	defer cancel()
	begin := time.Now()
	hosts, err := a.s.Resolve(ctx, hp.host)
	if err == nil && len(hosts) == 0 {
		err = errors.New("name has no address")
	}
	l := lookup{host: hp.host, err: err, elapsed: time.Since(begin)}
	for _, h := range hosts {
		l.cands = append(l.cands, candidate{addr: net.JoinHostPort(h, hp.port), serverName: hp.host})
	}
	return l
}

func (w *walk) resolved(l lookup) {
	w.resolving--
	if l.err != nil {
		w.causes = append(w.causes, Cause{Broker: l.host, Elapsed: l.elapsed, Err: &tryError{"look up", l.err}})
		return
	}
	w.add(l.cands)
}

// add queues candidates that are new, mixed with those that wait: by rank, and in random order within one.
func (w *walk) add(cands []candidate) {
	for _, c := range cands {
		if !w.seen[c.addr] {
			w.seen[c.addr] = true
			w.queue = append(w.queue, c)
		}
	}
	rand.Shuffle(len(w.queue), func(i, j int) { w.queue[i], w.queue[j] = w.queue[j], w.queue[i] })
	slices.SortStableFunc(w.queue, func(a, b candidate) int { return w.plan.rank(a.addr) - w.plan.rank(b.addr) })
}
