package pipeline

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"rollcall/pkg/sink/starrockstest"
)

var simSeeds = flag.Int("sim.seeds", 24, "how many random plans to run")

// Workers join, leave and are killed, commits fail, loads fail, stay without an answer or show late: a random plan per seed. At the end
// every number is exact, and each worker that lives accounts for every record it read.
func TestSimRandomPlans(t *testing.T) {
	seeds := *simSeeds
	if testing.Short() {
		seeds = min(seeds, 4)
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			simulate(t, simOptions{seed: seed, partitions: 6, rocks: starrockstest.Config{History: 50}}, func(t *testing.T, s *sim) {
				s.settings["DEADLETTER_TOPIC"] = simDead
				p := &plan{s: s, t: t}
				p.join()
				for range 25 {
					p.step()
					for _, w := range p.live {
						require.False(t, w.ended(), "%s: %v", w.name, w.err)
						w.identity()
					}
					time.Sleep(time.Duration(500+s.rnd.IntN(9000)) * time.Millisecond)
				}
				p.heal()
				if len(p.live) == 0 {
					p.join()
				}
				s.unwedge()
				s.produce(30)
				s.exact(5 * time.Minute)
				s.ready(3*time.Minute, p.live...)
				for _, w := range p.live {
					w.live()
					w.identity()
				}
				require.GreaterOrEqual(t, len(s.letters()), p.bad, "every bad record is dead-lettered, some twice")
				for _, w := range p.live {
					w.stop(0)
				}
				require.Equal(t, s.ends(), s.committed(), "seed %d", seed)
			})
		})
	}
}

// plan is one run's choices.
type plan struct {
	s    *sim
	t    *testing.T
	live []*simWorker
	made int
	bad  int
}

// heal ends every fault.
func (p *plan) heal() {
	s := p.s
	s.healKafka()
	s.rocks.Heal()
	s.rocks.LagFE(1, 0, 0)
	s.net.set(netOpen, rocksPorts()...)
	for _, w := range p.live {
		s.net.set(netOpen, w.name)
	}
}

func (p *plan) join() {
	p.made++
	p.live = append(p.live, p.s.worker(fmt.Sprintf("w%d", p.made), "KAFKA_SESSION_TIMEOUT=6s"))
}

// leave takes a worker at random out of the list.
func (p *plan) leave() *simWorker {
	i := p.s.rnd.IntN(len(p.live))
	w := p.live[i]
	p.live = slices.Delete(p.live, i, i+1)
	return w
}

func (p *plan) step() {
	s, often := p.s, starrockstest.Fault{Times: 1 + p.s.rnd.IntN(4)}
	switch s.rnd.IntN(18) {
	case 0, 1, 2, 3:
		s.produce(20 + s.rnd.IntN(200))
	case 4:
		if len(p.live) < 3 {
			p.join()
		}
	case 5:
		if len(p.live) > 1 {
			w := p.leave()
			w.term()
			// 0 if everything was durable in time, 11 if a fault of the plan kept it.
			require.Contains(p.t, []int{ExitOK, ExitNotDurable}, w.wait(time.Minute), "%v", w.err)
		}
	case 6:
		if len(p.live) > 0 {
			p.leave().kill()
		}
		p.join()
	case 7:
		s.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: simGroup, Err: kerr.CoordinatorNotAvailable})
	case 8:
		p.heal()
	case 9:
		often.At, often.Do = starrockstest.AtCommit, []starrockstest.Action{starrockstest.Fail(starrockstest.MsgTooManyVersions)}
		s.rocks.Inject(often)
	case 10: // committed, and nobody hears of it
		often.At, often.Do = starrockstest.AtCommitted, []starrockstest.Action{starrockstest.Reset()}
		s.rocks.Inject(often)
	case 11:
		often.At, often.Do = starrockstest.AtCommit, []starrockstest.Action{starrockstest.PublishTimeout(time.Duration(1+s.rnd.IntN(20)) * time.Second)}
		s.rocks.Inject(often)
	case 12: // cut off from everything for a while, then back with what it had in mind
		if len(p.live) > 0 {
			w := p.live[s.rnd.IntN(len(p.live))]
			s.net.set(netRefuse, w.name)
			time.Sleep(time.Duration(1+s.rnd.IntN(30)) * time.Second)
			s.net.set(netOpen, w.name)
		}
	case 13:
		s.kafka.RehashCoordinators()
	case 14:
		s.kafka.ShufflePartitionLeaders()
	case 15:
		s.rocks.LagFE(1, s.rnd.IntN(3), time.Duration(s.rnd.IntN(20))*time.Second)
	case 16: // HTTP of the FE, the BE, or MySQL
		s.net.set(netRefuse, rocksPorts()[[]int{0, 2, 3}[s.rnd.IntN(3)]])
	case 17:
		for range 1 + s.rnd.IntN(5) {
			s.produceBad(record(int32(s.rnd.IntN(6)), []byte("garbage")))
			p.bad++
		}
	}
}
