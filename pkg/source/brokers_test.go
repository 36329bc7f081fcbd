package source

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The ways a broker can be gone for a client.
const (
	present = ""
	refused = "refused" // nobody listens, connections are cut
	unknown = "unknown" // the name is not known, connections are cut
	dropped = "dropped" // SYNs are dropped, connections say nothing more
	silent  = "silent"  // connections are accepted and say nothing
	slow    = "slow"    // each answer takes a second longer
)

// faultyNet is the virtual network with brokers that can be gone in a way of their own.
type faultyNet struct {
	w    *world
	mu   sync.Mutex
	gone map[string]string // by address
}

func (f *faultyNet) mode(addr string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone[addr]
}

func (f *faultyNet) set(mode string, addrs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range addrs {
		f.gone[a] = mode
	}
}

func (f *faultyNet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	switch f.mode(addr) {
	case refused:
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)} // as the net package
	case unknown:
		host, _, _ := net.SplitHostPort(addr)
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
	case dropped:
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // as kgo.DialTimeout, which a dialer of one's own does without
		defer cancel()
		<-ctx.Done()
		return nil, fmt.Errorf("dial %s: %w", addr, ctx.Err())
	}
	conn, err := f.w.net.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: conn, f: f, addr: addr}, nil
}

// faultyConn loses everything both ways while its broker is gone, or breaks if nobody is there.
type faultyConn struct {
	net.Conn
	f    *faultyNet
	addr string
}

func (c *faultyConn) Write(b []byte) (int, error) {
	switch c.f.mode(c.addr) {
	case present, slow:
		return c.Conn.Write(b)
	case refused, unknown:
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	}
	return len(b), nil
}

func (c *faultyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		switch mode := c.f.mode(c.addr); {
		case mode == refused || mode == unknown:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		case err != nil || mode == present:
			return n, err
		case mode == slow:
			time.Sleep(time.Second)
			return n, err
		}
	}
}

// gaps watches how long each partition goes without a hand-over.
type gaps struct {
	mu    sync.Mutex
	last  map[Partition]time.Time
	worst map[Partition]time.Duration
}

func (g *gaps) take(c Chunk) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if last, ok := g.last[c.Partition]; ok {
		g.worst[c.Partition] = max(g.worst[c.Partition], now.Sub(last))
	}
	g.last[c.Partition] = now
}

// Four of twelve brokers are gone: partitions of living leaders hardly notice, those that move go on soon after their election, and each
// record is handed over once. The gaps are exact, since time is virtual.
func TestFourOfTwelveBrokersGo(t *testing.T) {
	const partitions = 24
	for _, mode := range []string{refused, dropped, silent} {
		t.Run(mode, func(t *testing.T) {
			ports := make([]int, 12)
			for i := range ports {
				ports[i] = 9092 + i
			}
			inBubble(t, partitions, func(t *testing.T, w *world) {
				w.epochEnds(keepsAll)
				f := &faultyNet{w: w, gone: map[string]string{}}
				g := &gaps{last: map[Partition]time.Time{}, worst: map[Partition]time.Duration{}}
				all := make([]int32, partitions)
				for i := range all {
					all[i] = int32(i)
					require.NoError(t, w.kafka.MoveTopicPartition(topic, int32(i), int32(i%12)))
				}
				m := w.join(func(c *Config, n *notes) {
					c.Security = []kgo.Opt{kgo.Dialer(f.dial)}
					n.onRecords = g.take
				})
				stop, fed := make(chan struct{}), 0
				var feeding sync.WaitGroup
				feeding.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(200 * time.Millisecond):
						}
						w.produce(topic, 1, all...)
						fed++
					}
				})
				w.eventually(20*time.Second, "all read", func() bool { return m.notes.owned() == partitions && m.notes.at(part(partitions-1)) > 0 })
				time.Sleep(10 * time.Second)

				coordinator := w.kafka.CoordinatorFor(group)
				var dead []int32
				for n := int32(0); len(dead) < 4; n++ {
					if n != coordinator {
						dead = append(dead, n)
					}
				}
				g.mu.Lock()
				clear(g.worst)
				g.mu.Unlock()
				for _, n := range dead {
					f.set(mode, fmt.Sprintf("127.0.0.1:%d", 9092+n), fmt.Sprintf("localhost:%d", 9092+n))
				}
				time.Sleep(5 * time.Second)
				moved := map[Partition]bool{}
				for p := range int32(partitions) {
					if leader := w.kafka.LeaderFor(topic, p); leader == dead[0] || leader == dead[1] || leader == dead[2] || leader == dead[3] {
						moved[part(p)] = true
						require.NoError(t, w.kafka.MoveTopicPartition(topic, p, coordinator))
					}
				}
				elected := time.Now()
				require.Len(t, moved, 8)
				time.Sleep(30 * time.Second)
				g.mu.Lock()
				var worstLiving, worstMoved time.Duration
				for p, gap := range g.worst {
					if moved[p] {
						worstMoved = max(worstMoved, gap)
					} else {
						worstLiving = max(worstLiving, gap)
					}
				}
				g.mu.Unlock()
				t.Logf("%s: worst gap of living leaders %s, of moved ones %s after the election", mode, worstLiving, worstMoved-5*time.Second)
				require.LessOrEqual(t, worstLiving, 2*time.Second)
				require.LessOrEqual(t, worstMoved-5*time.Second, 10*time.Second)
				require.NotEmpty(t, m.notes.of(EventLeader))
				require.LessOrEqual(t, len(m.notes.of(EventLeader)), 12, "not said again and again")
				require.Greater(t, time.Since(elected), 20*time.Second)
				_, lost := m.notes.gone()
				require.Empty(t, lost)

				close(stop)
				feeding.Wait()
				f.set(present, w.kafka.ListenAddrs()...)
				for i := range 12 {
					f.set(present, fmt.Sprintf("localhost:%d", 9092+i))
				}
				w.eventually(20*time.Second, "all records", func() bool {
					for p := range int32(partitions) {
						if m.notes.at(part(p)) < int64(fed) {
							return false
						}
					}
					return true
				})
				m.leave()
				for p := range int32(partitions) {
					require.Equal(t, sequence(0, int64(fed)), m.notes.read(part(p)), "partition %d", p)
				}
			}, kfake.NumBrokers(12), kfake.Ports(ports...))
		})
	}
}

// A partition without a leader, at the start and later, waits alone and is read when it has one again.
func TestPartitionWithoutALeader(t *testing.T) {
	for _, when := range []string{"at the start", "later"} {
		t.Run(when, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, w *world) {
				w.epochEnds(keepsAll)
				w.produce(topic, 5, 0, 1, 2)
				leaderless := func() *kfake.FaultHandle {
					return w.kafka.Fault(
						kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Partitions: []int32{0}, Err: kerr.LeaderNotAvailable, Count: -1},
						kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Partitions: []int32{0}, Err: kerr.NotLeaderForPartition, Count: -1},
					)
				}
				var h *kfake.FaultHandle
				if when == "at the start" {
					h = leaderless()
				}
				m := w.join(nil)
				defer m.leave()
				w.eventually(5*time.Second, "the others", func() bool { return m.notes.at(part(1)) == 5 && m.notes.at(part(2)) == 5 })
				if h == nil {
					w.eventually(5*time.Second, "all", func() bool { return m.notes.at(part(0)) == 5 })
					h = leaderless()
				}
				time.Sleep(time.Minute)
				before := m.notes.at(part(0))
				require.Len(t, m.notes.of(EventLeader), 1)
				require.Equal(t, part(0), m.notes.of(EventLeader)[0].Partition)
				require.Empty(t, m.notes.of(EventRecovered))
				require.Equal(t, "leader", m.Status().Partitions[0].Trouble)
				// The others are written to: a producer would wait for the leader of the first.
				w.produce(topic, 5, 1, 2)
				w.eventually(5*time.Second, "the others", func() bool { return m.notes.at(part(1)) == 10 && m.notes.at(part(2)) == 10 })
				h.Remove()
				w.produce(topic, 5, 0)
				w.eventually(10*time.Second, "back", func() bool { return m.notes.at(part(0)) == 10 })
				require.Equal(t, sequence(0, 10), m.notes.read(part(0)))
				require.LessOrEqual(t, before, int64(5))
				require.Len(t, m.notes.of(EventRecovered), 1)
				require.Zero(t, m.Status().Rebuilds)
			})
		})
	}
}

// Four of twelve brokers say nothing more, and the cluster forgets them: whichever broker the client would ask next, it finds out soon who
// leads now. Several worlds, since the client asks in random order.
func TestForgottenBrokersHoldNothingUp(t *testing.T) {
	for _, mode := range []string{dropped, silent} {
		for range 6 {
			t.Run(mode, func(t *testing.T) { deadBrokers(t, mode, false) })
		}
	}
}

// The same while the cluster goes on listing them, and while their partitions' bounds are asked for, as a worker does: such a question
// may not hold up what waits behind it on the connection.
func TestListedDeadBrokersHoldNothingUp(t *testing.T) {
	for _, mode := range []string{refused, dropped, silent} {
		for range 6 {
			t.Run(mode, func(t *testing.T) { deadBrokers(t, mode, true) })
		}
	}
}

func deadBrokers(t *testing.T, mode string, listed bool) {
	const partitions = 24
	ports := make([]int, 12)
	for i := range ports {
		ports[i] = 9092 + i
	}
	inBubble(t, partitions, func(t *testing.T, w *world) {
		w.epochEnds(keepsAll)
		f := &faultyNet{w: w, gone: map[string]string{}}
		all, every := make([]int32, partitions), make([]Partition, partitions)
		for i := range all {
			all[i], every[i] = int32(i), part(int32(i))
			require.NoError(t, w.kafka.MoveTopicPartition(topic, int32(i), int32(i%12)))
		}
		m := w.join(func(c *Config, _ *notes) { c.Security = []kgo.Opt{kgo.Dialer(f.dial)} })
		defer m.leave()
		w.produce(topic, 1, all...)
		read := func(n int64) bool {
			for _, p := range all {
				if m.notes.at(part(p)) < n {
					return false
				}
			}
			return true
		}
		w.eventually(20*time.Second, "all read", func() bool { return read(1) })
		coordinator := w.kafka.CoordinatorFor(group)
		var dead []int32
		for n := int32(0); len(dead) < 4; n++ {
			if n != coordinator {
				dead = append(dead, n)
			}
		}
		for _, n := range dead {
			f.set(mode, fmt.Sprintf("127.0.0.1:%d", 9092+n), fmt.Sprintf("localhost:%d", 9092+n))
		}
		if listed {
			asked, stop := make(chan struct{}), make(chan struct{})
			defer func() { close(stop); <-asked }()
			go func() { // as for lag and freshness
				defer close(asked)
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					_, _ = m.Bounds(ctx, every)
					cancel()
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
					}
				}
			}()
			time.Sleep(4 * time.Second)
			for p := range int32(partitions) {
				if leader := w.kafka.LeaderFor(topic, p); slices.Contains(dead, leader) {
					require.NoError(t, w.kafka.MoveTopicPartition(topic, p, coordinator))
				}
			}
		} else {
			time.Sleep(7 * time.Second) // the client has noticed
			for _, n := range dead {
				require.NoError(t, w.kafka.RemoveNode(n)) // others lead
			}
		}
		elected := time.Now()
		w.produce(topic, 1, all...)
		w.eventually(time.Minute, "all read on", func() bool { return read(2) })
		took := time.Since(elected)
		t.Logf("%s: all partitions read %s after the election", mode, took)
		require.LessOrEqual(t, took, 10*time.Second)
		_, lost := m.notes.gone()
		require.Empty(t, lost)
	}, kfake.NumBrokers(12), kfake.Ports(ports...))
}

// The group's coordinator and most of the other brokers are gone for less than a session: the client asks several of them in a row for the
// coordinator, and none of that may cost the group. Several worlds, since the client asks in random order.
func TestCoordinatorAwayKeepsTheGroup(t *testing.T) {
	for _, mode := range []string{refused, unknown} {
		for range 6 {
			t.Run(mode, func(t *testing.T) {
				inBubble(t, 2, func(t *testing.T, w *world) {
					w.epochEnds(keepsAll)
					f := &faultyNet{w: w, gone: map[string]string{}}
					m := w.join(func(c *Config, _ *notes) { c.Security = []kgo.Opt{kgo.Dialer(f.dial)} })
					defer m.leave()
					w.produce(topic, 1, 0, 1)
					w.eventually(20*time.Second, "all read", func() bool { return m.notes.at(part(0)) == 1 && m.notes.at(part(1)) == 1 })
					living := (w.kafka.CoordinatorFor(group) + 1) % 5
					for n := range int32(5) {
						if n != living {
							f.set(mode, fmt.Sprintf("127.0.0.1:%d", 9092+n), fmt.Sprintf("localhost:%d", 9092+n))
						}
					}
					time.Sleep(6 * time.Second)
					f.mu.Lock()
					clear(f.gone)
					f.mu.Unlock()
					time.Sleep(20 * time.Second)
					_, lost := m.notes.gone()
					require.Empty(t, lost)
					require.Equal(t, 2, m.notes.owned())
					require.Zero(t, m.Status().Rebuilds)
				}, kfake.NumBrokers(5), kfake.Ports(9092, 9093, 9094, 9095, 9096))
			})
		}
	}
}
