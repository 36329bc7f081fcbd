package checkpoint

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// reads records what was read together, answers n with n*n, and takes a second.
type reads struct {
	mu   sync.Mutex
	n    [][]int
	fail func(asked []int) error
}

func (r *reads) read(ctx context.Context, asked []int) ([]int, error) {
	r.mu.Lock()
	r.n = append(r.n, append([]int{}, asked...))
	fail := r.fail
	r.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Second):
	}
	if fail != nil {
		if err := fail(asked); err != nil {
			return nil, err
		}
	}
	out := make([]int, len(asked))
	for i, n := range asked {
		out[i] = n * n
	}
	return out, nil
}

func (r *reads) sizes() (out []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.n {
		out = append(out, len(n))
	}
	return out
}

func TestWhoAsksAtOnceSharesARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reads{}
		tg := newTogether(16, r.read)
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range 40 {
			wg.Go(func() {
				got, err := tg.ask(t.Context(), i)
				require.NoError(t, err)
				require.Equal(t, i*i, got)
			})
		}
		wg.Wait()
		require.Equal(t, time.Second+shareWait, time.Since(begun), "reads do not wait for each other")
		require.ElementsMatch(t, []int{16, 16, 8}, r.sizes())

		// A read that has begun is not joined: its answer may be older than the question.
		wg.Go(func() { _, _ = tg.ask(t.Context(), 1) })
		time.Sleep(shareWait + time.Millisecond)
		_, err := tg.ask(t.Context(), 2)
		require.NoError(t, err)
		wg.Wait()
		require.Equal(t, []int{1, 1}, r.sizes()[3:])
	})
}

// Who leaves takes only his own question away, also when he was to read.
func TestSomeLeaveASharedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reads{}
		tg := newTogether(16, r.read)
		why := errors.New("revoked")
		var wg sync.WaitGroup
		leave := func(n int, after time.Duration) {
			wg.Go(func() {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				time.AfterFunc(after, func() { cancel(why) })
				_, err := tg.ask(ctx, n)
				require.ErrorIs(t, err, why)
			})
			synctest.Wait()
		}
		stay := func(n int) {
			wg.Go(func() {
				got, err := tg.ask(t.Context(), n)
				require.NoError(t, err)
				require.Equal(t, n*n, got)
			})
			synctest.Wait()
		}
		leave(1, 500*time.Millisecond) // reads
		stay(2)
		leave(3, 300*time.Millisecond)
		stay(4)
		wg.Wait()
		require.Equal(t, []int{4, 2}, r.sizes())
		leave(5, shareWait/2)
		stay(6)
		wg.Wait()
		require.Equal(t, []int{2, 1}, r.sizes()[2:])
	})
}

// What is too much for one read comes through in several, and later in fewer again.
func TestSharedReadsShrinkWhereTheyFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooMuch := errors.New("too much")
		r := &reads{fail: func(asked []int) error {
			if len(asked) > 3 {
				return tooMuch
			}
			return nil
		}}
		tg := newTogether(16, r.read)
		all := func() {
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					got, err := tg.ask(t.Context(), i)
					for err != nil {
						require.ErrorIs(t, err, tooMuch)
						time.Sleep(time.Second)
						got, err = tg.ask(t.Context(), i)
					}
					require.Equal(t, i*i, got)
				})
			}
			wg.Wait()
		}
		all()
		r.mu.Lock()
		r.fail, r.n = nil, nil
		r.mu.Unlock()
		all()
		all()
		all()
		require.Contains(t, r.sizes(), 16)
	})
}
