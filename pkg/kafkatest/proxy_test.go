package kafkatest

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String()
}

func newProxy(t *testing.T) *Proxy {
	t.Helper()
	target := echo(t)
	p, err := NewProxy(target)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// say writes a byte and reads it back within d.
func say(c net.Conn, d time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", p.Addr(), 5*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestProxyModes(t *testing.T) {
	const short = 200 * time.Millisecond
	for _, tc := range []struct {
		mode Mode
		live func(error) bool // what saying something on a connection from before gives
		dial func(error) bool
		say  func(error) bool // on a new connection, where dialling works
	}{
		{Refuse, isReset, isRefused, nil},
		{Drop, isTimeout, isTimeout, nil},
		{Silent, isTimeout, isNil, isTimeout},
	} {
		t.Run(tc.mode.String(), func(t *testing.T) {
			p := newProxy(t)
			live := dial(t, p)
			require.NoError(t, say(live, 5*time.Second))

			require.NoError(t, p.Set(tc.mode))
			err := say(live, short)
			require.True(t, tc.live(err), "live connection: %v", err)
			c, err := net.DialTimeout("tcp", p.Addr(), short)
			require.True(t, tc.dial(err), "new connection: %v", err)
			if err == nil {
				defer c.Close()
				require.True(t, tc.say(say(c, short)))
			}

			require.NoError(t, p.Set(Pass))
			require.NoError(t, say(dial(t, p), 5*time.Second), "after the mode passed")
			if tc.mode != Refuse {
				// What was frozen goes on where it was: the byte written before comes first.
				require.NoError(t, live.SetDeadline(time.Now().Add(5*time.Second)))
				_, err := io.ReadFull(live, make([]byte, 1))
				require.NoError(t, err, "frozen connection after the mode passed")
			}
		})
	}
}

func isNil(err error) bool     { return err == nil }
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) || isNetTimeout(err) }

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}

func isNetTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestProxyCut(t *testing.T) {
	p := newProxy(t)
	c := dial(t, p)
	require.NoError(t, say(c, 5*time.Second))
	p.Cut()
	require.True(t, isReset(say(c, 5*time.Second)))
	require.NoError(t, say(dial(t, p), 5*time.Second))
	require.Equal(t, 2, p.Accepted())
}

// A proxy whose target is away ends the connection, and one that is closed while frozen leaves nothing behind (goleak).
func TestProxyEnds(t *testing.T) {
	p, err := NewProxy("127.0.0.1:1")
	require.NoError(t, err)
	defer p.Close()
	c, err := net.DialTimeout("tcp", p.Addr(), 5*time.Second)
	if err == nil { // else the reset was faster than the dial
		err = say(c, 5*time.Second)
		require.NoError(t, c.Close())
	}
	require.True(t, isReset(err), err)

	q := newProxy(t)
	live := dial(t, q)
	require.NoError(t, q.Set(Silent))
	q.Close()
	require.True(t, isReset(say(live, 5*time.Second)))
	require.Error(t, q.Set(Pass))
}

func TestProxySwitchesOften(t *testing.T) {
	p := newProxy(t)
	for range 20 {
		for _, m := range []Mode{Refuse, Drop, Silent, Pass, Drop, Refuse, Pass} {
			require.NoError(t, p.Set(m))
		}
	}
	require.NoError(t, say(dial(t, p), 5*time.Second))
}

// A process that is being started holds copies of this one's sockets until its exec, so a port is free only then.
func TestModesWhileProcessesStart(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	p, err := NewProxy("127.0.0.1:1")
	require.NoError(t, err)
	defer p.Close()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command(self, "-test.run=^$").Run()
				}
			}
		})
	}
	for range 100 {
		for _, m := range []Mode{Drop, Pass, Refuse, Silent} {
			if err := p.Set(m); err != nil {
				close(stop)
				wg.Wait()
				require.NoError(t, err)
			}
		}
	}
	close(stop)
	wg.Wait()
}
