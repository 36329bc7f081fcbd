package sink

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// slowPublish is when a load that does not become visible is worth a log line.
	slowPublish = 10 * time.Second
	// forgottenAfter and forgottenAnswers bound how long a committed load whose label nobody knows any more is waited for.
	forgottenAfter   = 30 * time.Second
	forgottenAnswers = 3
)

// hiddenLoad is a load that is committed and not visible yet, as far as we know. The sources in it wait, the others do not.
type hiddenLoad struct {
	label string
	since time.Time
	next  time.Time
	polls int
	// lost is since when, and lostAnswers how often in a row, the server has not known the label.
	lost        time.Time
	lostAnswers int
	slow        bool
}

type pollResult struct {
	h     *hiddenLoad
	state LabelState
	err   error
}

// panicked is the panic the question ended with, nil if it did not.
func (p pollResult) panicked() error {
	if _, ok := p.err.(*PanicError); ok { //nolint:errorlint // made by guard, not wrapped
		return p.err
	}
	return nil
}

// startPoll asks for the state of the hidden load whose turn it is, one at a time.
func (r *runner) startPoll(ctx context.Context) {
	if r.polling || len(r.hidden) == 0 {
		return
	}
	h := slices.MinFunc(r.hidden, func(a, b *hiddenLoad) int { return a.next.Compare(b.next) })
	if time.Now().Before(h.next) {
		return
	}
	r.polling = true
	go func() {
		res := pollResult{h: h, err: errExited}
		defer func() { r.polls <- res }()
		if err := guard(func() error { res.state, res.err = r.ask(ctx, h.label); return nil }); err != nil {
			res.err = err
		}
	}()
}

// pollEnded takes an answer. COMMITTED never goes back (StarRocks: a committed transaction is only ever published), so a label that the server
// does not know any more was published and forgotten, unless a lagging FE answered: that is why it must say so several times for a while.
// An ABORTED after a commit cannot be; it is treated the same and said loudly. Everything else is asked again for as long as Run runs.
func (r *runner) pollEnded(p pollResult) error {
	r.polling = false
	if err := p.panicked(); err != nil {
		return err
	}
	now := time.Now()
	h := p.h
	h.polls++
	h.next = now.Add(pollWait(h.polls))
	visible := p.err == nil && p.state == LabelVisible
	lost := p.err == nil && (p.state == LabelUnknown || p.state == LabelAborted)
	switch {
	case p.err != nil || visible:
	case !lost:
		h.lostAnswers = 0
	case h.lostAnswers == 0:
		h.lost, h.lostAnswers = now, 1
	default:
		h.lostAnswers++
	}
	if lost && h.lostAnswers >= forgottenAnswers && now.Sub(h.lost) >= forgottenAfter {
		visible = true
		r.log.Warn("state of a committed load is no longer known, taken as visible",
			zap.String("label", h.label), zap.String("state", string(p.state)), zap.Duration("since", now.Sub(h.since)))
	}
	if !visible {
		if !h.slow && now.Sub(h.since) >= slowPublish {
			h.slow = true
			r.log.Warn("load is committed but not visible yet, its sources wait", zap.String("label", h.label),
				zap.String("state", string(p.state)), zap.NamedError("cause", p.err))
		}
		return nil
	}
	if h.slow {
		r.log.Info("load is visible", zap.String("label", h.label), zap.Duration("after", now.Sub(h.since)))
	}
	r.hidden = slices.DeleteFunc(r.hidden, func(x *hiddenLoad) bool { return x == h })
	r.mu.Lock()
	r.q.revealed(h.label)
	r.mu.Unlock()
	return nil
}
