package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"rollcall/pkg/aggregate"
)

const (
	restoreFirstWait = 100 * time.Millisecond
	restoreLastWait  = 5 * time.Second
	// restoreStale is how many stale reads are taken for a lagging front end: the rows may also be gone.
	restoreStale = 10
)

// RestoreRequest is what Restore reads and what it accepts.
type RestoreRequest struct {
	History History
	// Table and Watermark are T and W as Progress gave them (Decision.Table, Decision.Watermark): an older read is not accepted.
	Table, Watermark int64
	// Lateness and Location are the program's: days before day(Watermark − Lateness) cannot change any more and are not read.
	Lateness time.Duration
	Location *time.Location
	// OnRetry is told of every attempt that failed or was stale; may be nil.
	OnRetry func(err error, wait time.Duration)
}

// restorer is the part of a Store that Restore uses, from the caller's goroutine.
type restorer interface {
	Restore(ctx context.Context, h History, from aggregate.Day) (aggregate.State, Progress, error)
}

// Restore is the second step of DESIGN §1's restore: it reads the totals of a history that has rows, in one read, until a read is not
// older than what the first step (Progress) knew. Failures are tried again with back-off until ctx is done; it ends earlier only with an
// error for which IsPermanent holds, and with ErrStale after ten stale reads: retention may have dropped what was known, so Progress has
// to be read again. The State's Next and the Progress are of the same read; T may have moved on meanwhile, so the
// caller asks Resume again with this Progress in place of the former.
func Restore(ctx context.Context, store restorer, req RestoreRequest) (aggregate.State, Progress, error) {
	type result struct {
		state    aggregate.State
		progress Progress
	}
	from := dayOf(req.Watermark-req.Lateness.Milliseconds(), req.Location)
	var last error
	stale := 0
	attempt := func() (_ result, err error) {
		defer func() { last = err }()
		s, p, err := store.Restore(ctx, req.History, from)
		switch {
		case err != nil && IsPermanent(err):
			return result{}, backoff.Permanent(err)
		case err != nil:
			return result{}, err
		case p.Next < req.Table || p.WatermarkMs < req.Watermark:
			err = fmt.Errorf("%w: T = %d, W = %d; known were %d and %d", ErrStale, p.Next, p.WatermarkMs, req.Table, req.Watermark)
			if stale++; stale == restoreStale {
				err = backoff.Permanent(err)
			}
			return result{}, err
		}
		return result{s, p}, nil
	}
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = restoreFirstWait, restoreLastWait
	opts := []backoff.RetryOption{backoff.WithBackOff(waits), backoff.WithMaxElapsedTime(0)}
	if req.OnRetry != nil {
		opts = append(opts, backoff.WithNotify(req.OnRetry))
	}
	r, err := backoff.Retry(ctx, attempt, opts...)
	if err != nil {
		if ctx.Err() != nil && last != nil && !errors.Is(last, err) {
			err = fmt.Errorf("%w; last: %w", err, last)
		}
		return aggregate.State{}, Progress{}, fmt.Errorf("restore %s: %w", req.History, err)
	}
	return r.state, r.progress, nil
}

// dayOf is the calendar day of a Unix time in ms.
func dayOf(ms int64, loc *time.Location) aggregate.Day {
	_, offset := time.UnixMilli(ms).In(loc).Zone()
	s := ms + int64(offset)*1000
	day := s / 86_400_000
	if s%86_400_000 < 0 {
		day--
	}
	return aggregate.Day(day)
}
