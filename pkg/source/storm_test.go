package source

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Five minutes of random trouble: members join, leave and are thrown out, clients are replaced, leaders and coordinators move, requests
// fail, partitions are paused. In each generation records come without a hole from where it was started; in the end every record was handed
// over. SOURCE_STORMS sets the number of seeds.
func TestStorm(t *testing.T) {
	seeds := 2
	if n, err := strconv.Atoi(os.Getenv("SOURCE_STORMS")); err == nil { //nolint:forbidigo // a test's own switch
		seeds = n
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			inBubble(t, stormPartitions, func(t *testing.T, w *world) {
				w.epochEnds(keepsAll)
				s := &storm{t: t, w: w, r: rand.New(rand.NewPCG(uint64(seed), 1)), seen: &ledger{seen: map[string]int{}}} //nolint:gosec // a test
				if seed%2 == 1 {
					s.protocol = ProtocolConsumer
				}
				s.run()
			})
		})
	}
}

const stormPartitions = 6

type storm struct {
	t        *testing.T
	w        *world
	r        *rand.Rand
	protocol string
	seen     *ledger
	members  []*member
	past     []*member
}

func (s *storm) run() {
	stop, fed := make(chan struct{}), 0
	var feeding sync.WaitGroup
	feeding.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
			for p := range int32(stormPartitions) {
				r := &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%d/%d", p, fed)}
				require.NoError(s.t, s.w.prod.ProduceSync(s.t.Context(), r).FirstErr())
			}
			fed++
		}
	})
	s.join()
	for range 40 {
		s.step()
		time.Sleep(time.Duration(1+s.r.IntN(15)) * time.Second)
	}
	close(stop)
	feeding.Wait()
	if len(s.members) == 0 {
		s.join()
	}
	s.w.eventually(3*time.Minute, "all records", func() bool { return s.seen.missing(fed*stormPartitions) == 0 })
	for len(s.members) > 0 {
		s.leave(0)
	}
	for _, m := range s.past {
		s.check(m)
	}
}

func (s *storm) join() {
	s.members = append(s.members, s.w.keeper(topic, s.protocol, s.seen))
}

func (s *storm) leave(i int) {
	s.members[i].leave()
	s.past = append(s.past, s.members[i])
	s.members = append(s.members[:i], s.members[i+1:]...)
}

// step does one thing.
func (s *storm) step() {
	fault := func(f kfake.Fault) { f.Count = 1 + s.r.IntN(4); s.w.kafka.Fault(f) }
	if len(s.members) == 0 {
		s.join()
		return
	}
	i := s.r.IntN(len(s.members))
	m := s.members[i]
	p := part(int32(s.r.IntN(stormPartitions)))
	switch s.r.IntN(12) {
	case 0, 1:
		if len(s.members) < 3 {
			s.join()
		}
	case 2:
		s.leave(i)
	case 3:
		m.Rebuild("storm")
	case 4: // not before it has delivered: see inBubble
		if m.notes.gen(p) == 0 || m.notes.at(p) == 0 {
			return
		}
		_ = s.w.kafka.MoveTopicPartition(topic, p.Partition, int32(s.r.IntN(2)))
	case 5:
		s.w.kafka.RehashCoordinators()
	case 6:
		fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat}, TopLevel: true, Err: kerr.UnknownMemberID})
	case 7:
		fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit, kmsg.OffsetFetch}, Err: kerr.CoordinatorLoadInProgress})
	case 8:
		fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{p.Partition}, Err: kerr.NotLeaderForPartition})
	case 9:
		fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{p.Partition}, Err: kerr.TopicAuthorizationFailed})
	case 10:
		g := m.notes.gen(p)
		m.Pause(p, g, "storm")
		time.AfterFunc(time.Duration(s.r.IntN(20))*time.Second, func() { m.Resume(p, g, "storm") })
	case 11:
		fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.LeaderNotAvailable})
	}
}

// check looks at what one member was given.
func (s *storm) check(m *member) {
	n := m.notes
	require.False(s.t, n.overlapped, "handler calls overlapped")
	require.Empty(s.t, n.of(EventGap))
	require.Empty(s.t, n.of(EventTruncated))
	type life struct {
		p Partition
		g uint64
	}
	next := map[life]int64{}
	for _, c := range n.chunks {
		l := life{c.Partition, c.Generation}
		if at, ok := next[l]; ok {
			require.Equal(s.t, at, c.Records[0].Offset, "%s in generation %d", c.Partition, c.Generation)
		}
		for i, r := range c.Records {
			require.Equal(s.t, c.Records[0].Offset+int64(i), r.Offset)
		}
		next[l] = c.Next
	}
}
