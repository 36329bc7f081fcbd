package source

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask writes a request and reads an answer as the client does.
func ask(c net.Conn, limit time.Duration) error {
	if _, err := c.Write([]byte{0, 0, 0, 4, 0, byte(kmsg.Metadata), 0, 0}); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 8))
	return errors.Join(err, c.SetReadDeadline(time.Time{}))
}

// broker answers each request after a while, with 0 at once.
func broker(c net.Conn, after func() time.Duration) {
	b := make([]byte, 8)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
		time.Sleep(after())
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// A dial that takes long and fails, a resolver's fault or a full backlog, does nothing to a connection that is alive, even if its answer
// takes longer than a broker may be silent.
func TestFailedDialsLeaveConnectionsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := 0
		d := newDialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			if answers++; answers > 1 {
				time.Sleep(time.Second)
				return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
			}
			client, server := net.Pipe()
			go broker(server, always(4*time.Second))
			return client, nil
		})
		alive, err := d.DialContext(t.Context(), "tcp", "b:1")
		require.NoError(t, err)
		defer func() { require.NoError(t, alive.Close()) }()
		done := make(chan error)
		go func() { done <- ask(alive, 10*time.Second) }()
		time.Sleep(3500 * time.Millisecond)
		for range 2 {
			begun := time.Now()
			_, err := d.DialContext(t.Context(), "tcp", "b:1")
			require.Error(t, err)
			require.LessOrEqual(t, time.Since(begun), time.Second)
		}
		require.NoError(t, <-done)
		require.NoError(t, ask(alive, 10*time.Second))
	})
}

// A broker whose new connections say nothing for a while, beside one that is busy, is dialled at a bounded rate, with the usual limit every
// fourth time, so that one which is only slow is found; its busy connection is left alone.
func TestSlowFirstAnswersBesideALivingConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		d := newDialer(func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			after := always(4 * time.Second)
			if dials++; dials == 1 {
				after = always(100 * time.Millisecond)
			}
			go broker(server, after)
			return client, nil
		})
		dial := func() (net.Conn, error) { return d.DialContext(t.Context(), "tcp", "b:1") }
		alive, err := dial()
		require.NoError(t, err)
		require.NoError(t, ask(alive, time.Second))
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					require.NoError(t, ask(alive, time.Second)) //nolint:testifylint // ends the test as well as any
				}
			}
		}()

		first, err := dial() // the first is given the client's limit, which here is too short
		require.NoError(t, err)
		require.ErrorIs(t, ask(first, 3*time.Second), os.ErrDeadlineExceeded)
		require.NoError(t, first.Close())
		begun, tried := time.Now(), 0
		for {
			c, err := dial()
			if err != nil {
				require.ErrorContains(t, err, "silent a moment ago")
				time.Sleep(250 * time.Millisecond)
				continue
			}
			tried++
			err = ask(c, 5*time.Second)
			require.NoError(t, c.Close())
			if err == nil {
				break
			}
		}
		require.Equal(t, 4, tried)
		require.Less(t, time.Since(begun), 25*time.Second)
		close(stop)
		<-stopped
		require.NoError(t, ask(alive, time.Second))
		require.NoError(t, alive.Close())
	})
}

// Leaving is patient with what it needs: the last commit and the goodbye reach a coordinator whose answers take a second, even while
// metadata is not answered at all.
func TestCloseWaitsForASlowCoordinator(t *testing.T) {
	for name, hang := range map[string]bool{"slow": false, "slow and metadata hangs": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, w *world) {
				defer time.Sleep(2 * time.Second) // slow reads end
				f := &faultyNet{w: w, gone: map[string]string{}}
				m := w.join(func(c *Config, n *notes) {
					c.Security = []kgo.Opt{kgo.Dialer(f.dial)}
					n.onRevoked = func(ctx context.Context, ps []Partition) {
						for _, p := range ps {
							require.NoError(t, n.m.Commit(ctx, []Commit{{Partition: p, Generation: n.gen(p), Offset: 5}}))
						}
					}
				})
				w.produce(topic, 5, 0, 1)
				w.eventually(20*time.Second, "all read", func() bool { return m.notes.at(part(0)) == 5 && m.notes.at(part(1)) == 5 })
				left := w.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.LeaveGroup}, TopLevel: true, Count: -1, Observe: true})
				if hang {
					w.kafka.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
						w.kafka.KeepControl()
						return nil, nil, true
					})
					m.Refresh()
					time.Sleep(2 * time.Second)
				}
				f.set(slow, w.kafka.ListenAddrs()...)
				f.set(slow, "localhost:9092", "localhost:9093")
				begun := time.Now()
				m.leave()
				require.Less(t, time.Since(begun), 8*time.Second)
				require.Equal(t, 1, left.Hits())
				offsets, err := kadm.NewClient(w.prod).FetchOffsets(t.Context(), group)
				require.NoError(t, err)
				for p := range int32(2) {
					o, ok := offsets.Lookup(topic, p)
					require.True(t, ok)
					require.Equal(t, int64(5), o.At)
				}
			})
		})
	}
}
