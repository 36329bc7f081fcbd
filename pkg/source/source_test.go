package source

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Nothing is handed over before Start, whatever the group has committed, and then from there.
func TestReadsFromWhereItIsStarted(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 10, 0, 1)
		m := w.join(func(_ *Config, n *notes) { n.onAssigned = nil })
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 2 })
		time.Sleep(5 * time.Second)
		require.Empty(t, m.notes.read(part(0)))

		g := m.notes.gen(part(0))
		require.NoError(t, m.Start(part(0), g, 4, 0))
		w.eventually(3*time.Second, "records", func() bool { return m.notes.at(part(0)) == 10 })
		require.Equal(t, sequence(4, 10), m.notes.read(part(0)))
		require.Empty(t, m.notes.read(part(1)), "the other partition is still being restored")
		require.ErrorIs(t, m.Start(part(0), g+1, 4, 0), ErrNotAssigned)
		require.Error(t, m.Start(part(0), g, -1, 0))

		require.Equal(t, 2.0, value(t, m.cfg.Metrics.assigned))
		require.Equal(t, 1.0, value(t, m.cfg.Metrics.paused.WithLabelValues(reasonRestoring)))
		require.Equal(t, 0.0, value(t, m.cfg.Metrics.lagOf(part(0))))

		// The commit is there now: another member that starts elsewhere must not begin at it.
		require.NoError(t, m.Commit(t.Context(), []Commit{{Partition: part(0), Generation: g, Offset: 10, LeaderEpoch: 0}}))
		w.produce(topic, 1, 0)
		w.eventually(3*time.Second, "one more", func() bool { return m.notes.at(part(0)) == 11 })
	})
}

// A start below, above and at the commit reads exactly from there, whether it comes at once or after a restore.
func TestStartWinsOverTheCommit(t *testing.T) {
	for name, at := range map[string]int64{"below": 3, "at": 5, "above": 8} {
		for _, restore := range []time.Duration{0, 4 * time.Second} {
			t.Run(name+" after "+restore.String(), func(t *testing.T) {
				inBubble(t, 1, func(t *testing.T, w *world) {
					w.produce(topic, 10, 0)
					first := w.join(nil)
					w.eventually(5*time.Second, "records", func() bool { return first.notes.at(part(0)) == 10 })
					require.NoError(t, first.Commit(t.Context(), []Commit{{Partition: part(0), Generation: first.notes.gen(part(0)), Offset: 5, LeaderEpoch: 0}}))
					first.leave()

					second := w.join(func(_ *Config, n *notes) {
						n.onAssigned = func(g uint64, ps []Partition) {
							start := func() { require.NoError(t, n.m.Start(ps[0], g, at, -1)) }
							if restore > 0 {
								time.AfterFunc(restore, start)
								return
							}
							start()
						}
					})
					defer second.leave()
					w.eventually(10*time.Second, "records", func() bool { return second.notes.at(part(0)) == 10 })
					require.Equal(t, sequence(at, 10), second.notes.read(part(0)))
				})
			})
		}
	}
}

// A partition is fetched only while no reason to pause is left; pauses of one partition do not touch the other.
func TestPauseReasons(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 2 })
		g := m.notes.gen(part(0))
		m.Pause(part(0), g, "buffer")
		m.Pause(part(0), g, "deadletter")
		m.Pause(part(0), g, "buffer")
		m.Pause(part(1), g+7, "buffer") // of another life: nothing
		time.Sleep(2 * time.Second)     // a fetch under way may still deliver
		w.produce(topic, 5, 0, 1)
		w.eventually(3*time.Second, "the other", func() bool { return m.notes.at(part(1)) == 5 })
		m.Resume(part(0), g, "buffer")
		time.Sleep(3 * time.Second)
		require.Empty(t, m.notes.read(part(0)))
		require.Contains(t, m.Status().Partitions[0].Paused, "deadletter")
		require.Equal(t, 1.0, value(t, m.cfg.Metrics.paused.WithLabelValues("deadletter")))
		require.Equal(t, 0.0, value(t, m.cfg.Metrics.paused.WithLabelValues("buffer")))
		m.Resume(part(0), g, "deadletter")
		w.eventually(3*time.Second, "resumed", func() bool { return m.notes.at(part(0)) == 5 })
		require.Equal(t, sequence(0, 5), m.notes.read(part(0)))
	})
}

// Pausing from inside a hand-over, with small chunks, loses nothing and repeats nothing.
func TestPauseWhileHandingOver(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		w.produce(topic, 100, 0)
		m := w.join(func(c *Config, n *notes) {
			c.MaxPollRecords = 7
			n.onRecords = func(ch Chunk) {
				n.m.Pause(ch.Partition, ch.Generation, "full")
				time.AfterFunc(100*time.Millisecond, func() { n.m.Resume(ch.Partition, ch.Generation, "full") })
			}
		})
		defer m.leave()
		w.eventually(time.Minute, "all", func() bool { return m.notes.at(part(0)) == 100 })
		require.Equal(t, sequence(0, 100), m.notes.read(part(0)))
		for _, c := range m.notes.chunks {
			require.LessOrEqual(t, len(c.Records), 7)
			require.Equal(t, c.Next, c.Records[len(c.Records)-1].Offset+1)
			require.Positive(t, c.Bytes)
		}
	})
}

// Two members share the partitions; what one gives up the other gets under its own generation, and each record is read once.
func TestMembersComeAndGo(t *testing.T) {
	for _, protocol := range []string{ProtocolClassic, ProtocolConsumer} {
		t.Run(protocol, func(t *testing.T) {
			inBubble(t, 8, func(t *testing.T, w *world) {
				w.epochEnds(keepsAll)
				// Each owner commits what it read when it is revoked; the next one starts there.
				seen := map[Partition][]int64{}
				member := func() *member {
					return w.join(func(c *Config, n *notes) {
						c.Protocol = protocol
						n.onAssigned = func(g uint64, ps []Partition) {
							for _, p := range ps {
								go func() {
									committed, err := n.m.Committed(t.Context(), p.Topic, []int32{p.Partition})
									if err == nil {
										err = n.m.Start(p, g, committed[p.Partition].Offset, -1)
									}
									if err != nil {
										require.ErrorIs(t, err, ErrNotAssigned)
									}
								}()
							}
						}
						n.onRevoked = func(ctx context.Context, ps []Partition) {
							var cs []Commit
							for _, p := range ps {
								if at := n.at(p); at > 0 {
									cs = append(cs, Commit{Partition: p, Generation: n.gen(p), Offset: at, LeaderEpoch: -1})
								}
							}
							require.NoError(t, n.m.Commit(ctx, cs))
						}
					})
				}
				stop := make(chan struct{})
				produced := 0
				go func() {
					defer close(stop)
					for range 200 {
						w.produce(topic, 1, 0, 1, 2, 3, 4, 5, 6, 7)
						produced++
						time.Sleep(500 * time.Millisecond)
					}
				}()
				a := member()
				time.Sleep(20 * time.Second)
				require.Equal(t, 8, a.notes.owned())
				b := member()
				time.Sleep(30 * time.Second)
				require.Equal(t, 4, a.notes.owned())
				require.Equal(t, 4, b.notes.owned())
				require.Equal(t, 4.0, value(t, a.cfg.Metrics.assigned))
				require.Equal(t, 4, series(a.cfg.Metrics.lag), "series of what was given up are gone")
				revoked, lost := a.notes.gone()
				require.Len(t, revoked, 4)
				require.Empty(t, lost)
				a.leave()
				time.Sleep(20 * time.Second)
				require.Equal(t, 8, b.notes.owned())
				<-stop
				time.Sleep(10 * time.Second)
				b.leave()
				for p := range int32(8) {
					seen[part(p)] = append(a.notes.read(part(p)), b.notes.read(part(p))...)
					require.Equal(t, sequence(0, int64(produced)), seen[part(p)], "partition %d", p)
				}
				require.False(t, a.notes.overlapped || b.notes.overlapped, "handler calls overlapped")
				require.Zero(t, a.Status().LastError)
			})
		})
	}
}

// A handler that does not come back from Revoked is given exactly its time.
func TestRevokedHasADeadline(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, w *world) {
		var took time.Duration
		a := w.join(func(_ *Config, n *notes) {
			n.onRevoked = func(ctx context.Context, _ []Partition) {
				start := time.Now()
				<-ctx.Done()
				took = time.Since(start)
				require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			}
		})
		w.eventually(10*time.Second, "assigned", func() bool { return a.notes.owned() == 4 })
		b := w.join(nil)
		w.eventually(20*time.Second, "shared", func() bool { return b.notes.owned() == 2 })
		require.Equal(t, 3*time.Second, took)
		begin := time.Now()
		a.leave()
		require.LessOrEqual(t, time.Since(begin), 4*time.Second)
		b.leave()
	})
}

// What is owned at the end is revoked, may be committed then, and the group is left at once.
func TestShutdownRevokesAndLeaves(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 3, 0)
		m := w.join(func(_ *Config, n *notes) {
			n.onRevoked = func(ctx context.Context, ps []Partition) {
				require.Len(t, ps, 2)
				require.NoError(t, n.m.Commit(ctx, []Commit{{Partition: part(0), Generation: n.gen(part(0)), Offset: 3, LeaderEpoch: 0, Metadata: "end"}}))
			}
		})
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 3 })
		begin := time.Now()
		m.leave()
		require.Less(t, time.Since(begin), 2*time.Second)
		require.Zero(t, m.notes.owned())
		require.ErrorIs(t, m.Commit(t.Context(), []Commit{{Partition: part(0), Generation: 1, Offset: 3}}), ErrNoClient)

		other := w.join(nil)
		defer other.leave()
		w.eventually(3*time.Second, "the next one has them at once", func() bool { return other.notes.owned() == 2 })
		c, err := other.Committed(t.Context(), topic, []int32{0, 1})
		require.NoError(t, err)
		require.Equal(t, map[int32]Committed{0: {Offset: 3, LeaderEpoch: 0, Metadata: "end"}}, c)
	})
}

// Brokers that do not answer do not hold up the end.
func TestShutdownWhileBrokersAreSilent(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		m := w.join(nil)
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 2 })
		w.kafka.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			w.kafka.KeepControl()
			return nil, nil, true
		})
		time.Sleep(3 * time.Second)
		begin := time.Now()
		m.leave()
		require.LessOrEqual(t, time.Since(begin), 9*time.Second)
		require.Zero(t, m.notes.owned(), "given up, one way or the other")
	})
}

// A static member keeps its partitions while it is away.
func TestStaticMemberDoesNotLeave(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world) {
		static := func(c *Config, _ *notes) { c.InstanceID = "worker-0" }
		m := w.join(static)
		w.eventually(5*time.Second, "assigned", func() bool { return m.notes.owned() == 1 })
		m.leave()
		other := w.join(nil)
		time.Sleep(5 * time.Second)
		require.Zero(t, other.notes.owned())
		again := w.join(static)
		w.eventually(15*time.Second, "back", func() bool { return again.notes.owned() == 1 })
		again.leave()
		other.leave()
	})
}

func TestRebuildLosesAndStartsAnew(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		w.produce(topic, 5, 0)
		m := w.join(nil)
		defer m.leave()
		w.eventually(5*time.Second, "records", func() bool { return m.notes.at(part(0)) == 5 })
		g := m.notes.gen(part(0))
		m.Rebuild("answers from another cluster")
		w.eventually(10*time.Second, "assigned anew", func() bool { return m.notes.owned() == 2 && m.notes.gen(part(0)) > g })
		revoked, lost := m.notes.gone()
		require.Empty(t, revoked)
		require.Equal(t, []Partition{part(0), part(1)}, lost)
		require.ErrorIs(t, m.Commit(t.Context(), []Commit{{Partition: part(0), Generation: g, Offset: 5}}), ErrNotAssigned)
		w.eventually(5*time.Second, "read again", func() bool { return len(m.notes.read(part(0))) == 10 })
		require.Equal(t, 1, m.Status().Rebuilds)
	})
}

func TestNewSaysAllThatIsWrong(t *testing.T) {
	_, err := New(Config{Protocol: "share", Isolation: "dirty", RevokeTimeout: time.Hour}, nil)
	for _, word := range []string{"seed", "group", "topics", "share", "dirty", "revoke"} {
		require.ErrorContains(t, err, word)
	}
	_, err = New(Config{Seeds: []string{"a:9092"}, Group: "g", Topics: []string{"t"}, FetchMaxBytes: 1 << 30}, nil)
	require.Error(t, err)
}

func TestPartitionErrorsAreFoundAgain(t *testing.T) {
	a, b := &PartitionError{part(0), ErrBehind}, &PartitionError{part(1), ErrNotAssigned}
	err := errors.Join(a, errors.Join(b), errors.New("other"))
	require.Equal(t, map[Partition]error{part(0): ErrBehind, part(1): ErrNotAssigned}, PartitionErrors(err))
	require.Empty(t, PartitionErrors(nil))
}
