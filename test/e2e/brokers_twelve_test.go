package e2e

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

// Bounds of the incident, each with room for a machine that does other things at the same time; docs/faults.md has what was measured.
const (
	livingPause = 2*time.Second + time.Second
	movedPause  = 10*time.Second + 2*time.Second
	firstRecord = 3*time.Second + time.Second
)

var goneModes = []kafkatest.Mode{kafkatest.Refuse, kafkatest.Drop, kafkatest.Silent}

// twelve is a cluster of twelve brokers behind proxies, of which broker p leads partition p.
func twelve(t *testing.T) *kafkatest.Fake {
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 12, Opts: []kfake.Opt{kfake.SeedTopics(partitions, topic)}})
	for p := range int32(partitions) {
		require.NoError(t, f.Cluster.MoveTopicPartition(topic, p, p))
	}
	return f
}

// Four of twelve brokers go for good while a worker reads: it stays the process it is, partitions of living leaders hardly pause, those
// that moved go on soon after their election, and every number is right.
func TestFourOfTwelveBrokersGo(t *testing.T) {
	var cells []cell
	for _, mode := range goneModes {
		cells = append(cells,
			cell{mode.String(), func(t *testing.T) { fourOfTwelve(t, mode, false) }},
			cell{mode.String() + ", the coordinator among them", func(t *testing.T) { fourOfTwelve(t, mode, true) }})
	}
	sideBySide(t, cells)
}

func fourOfTwelve(t *testing.T, mode kafkatest.Mode, coordinatorToo bool) {
	f := twelve(t)
	r := newRig(t, f.Addrs(), starrockstest.Config{})
	r.behind(f)
	p := r.worker("w")
	require.NoError(t, p.Start())
	r.ready(p)
	b := r.birth(p)
	s := r.stream(51, 600)
	w := r.watch(fakeEnds(f, topic), map[string]*workerproc.Process{"w": p})
	r.eventuallyRead(p, 3000, 20*time.Second)
	coordinator := f.Cluster.CoordinatorFor(r.group)
	var dead, living []int32 // the last broker is the controller and stays
	if coordinatorToo {
		if dead = append(dead, coordinator); coordinator == 11 {
			t.Skip("the coordinator is kfake's controller, which must stay") // never so for this group; see the check below
		}
	}
	for n := range int32(partitions) {
		if n != coordinator && len(dead) < 4 && n != 11 {
			dead = append(dead, n)
		} else if !slices.Contains(dead, n) {
			living = append(living, n)
		}
	}
	w.forget()
	require.NoError(t, f.Set(mode, dead...))
	time.Sleep(4 * time.Second) // nobody leads the partitions of the dead
	pause := w.worstOf(living...)
	before := ends(f)
	elected := time.Now()
	for _, n := range dead {
		if coordinatorToo {
			// The cluster forgets the dead, and gives leaders and coordinators to others.
			require.NoError(t, f.RemoveNode(n, mode))
		} else {
			require.NoError(t, f.Cluster.MoveTopicPartition(topic, n, living[int(n)%len(living)]))
		}
	}
	moved := r.movesOn(p, dead, before, elected)
	time.Sleep(size(t, 2*time.Minute, 3*time.Second))
	if !coordinatorToo {
		pause = max(pause, w.worstOf(living...))
	}
	s.end(30 * time.Second)
	r.exact(30*time.Second, p)
	r.same(p, b)
	r.identity(p)
	r.ready(p)
	g, err := statusOf(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "closed", g.Discovery.Breaker, "eight brokers answer")
	t.Logf("4 of 12 %s: partitions of living leaders paused for at most %.2f s, moved ones went on %.2f s after their election at the latest", mode, pause.Seconds(), moved.Seconds())
	require.LessOrEqual(t, pause, livingPause)
	require.LessOrEqual(t, moved, movedPause)
	r.behind(f) // a client that knows nobody who is gone
	// Commits go on by themselves, also if the silence of the coordinator was longer than the session.
	require.Eventually(t, func() bool { return maps.Equal(ends(f), r.committed()) }, 20*time.Second, 100*time.Millisecond)
	r.stop(p, 0)
	require.Equal(t, ends(f), r.committed())
}

// movesOn waits until records beyond before were read from all the partitions and returns how long after since.
func (r *rig) movesOn(p *workerproc.Process, ps []int32, before map[int32]int64, since time.Time) time.Duration {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		g, err := statusOf(r.t.Context(), p)
		require.NoError(r.t, err)
		on := 0
		for _, q := range g.Partitions {
			if slices.Contains(ps, q.Partition) && q.Position > before[q.Partition] {
				on++
			}
		}
		return on == len(ps)
	}, time.Minute, 20*time.Millisecond, "partitions that moved are not read")
	return time.Since(since)
}

// eventuallyRead waits until a worker has read so many records, and returns how long it took.
func (r *rig) eventuallyRead(p *workerproc.Process, n float64, limit time.Duration) time.Duration {
	r.t.Helper()
	begun := time.Now()
	require.Eventually(r.t, func() bool {
		require.NoError(r.t, p.Alive())
		m, err := p.Metrics(r.t.Context())
		return err == nil && m.Sum("rollcall_source_records_total") >= n
	}, limit, 20*time.Millisecond)
	return time.Since(begun)
}

// A worker starts while most of what KAFKA_BROKERS names is dead: four of twelve, eleven of twelve, in each of the ways.
func TestStartWithDeadBrokers(t *testing.T) {
	var cells []cell
	for _, mode := range goneModes {
		for _, dead := range []int32{4, 11} {
			cells = append(cells, cell{strconv.Itoa(int(dead)) + " " + mode.String(), func(t *testing.T) { startWithDead(t, mode, dead) }})
		}
	}
	sideBySide(t, cells)
}

func startWithDead(t *testing.T, mode kafkatest.Mode, dead int32) {
	f := twelve(t)
	r := newRig(t, f.Addrs(), starrockstest.Config{}) // the workers are told of all twelve
	r.behind(f)
	require.NoError(t, r.produce(t.Context(), threeDays(52), 12000, 0))
	for n := range dead {
		require.NoError(t, f.RemoveNode(n, mode))
	}
	p := r.worker("w")
	require.NoError(t, p.Start())
	took := r.eventuallyRead(p, 1, 20*time.Second)
	r.exact(20*time.Second, p)
	r.ready(p)
	t.Logf("%d of 12 %s at the start: first record after %.2f s", dead, mode, took.Seconds())
	require.LessOrEqual(t, took, firstRecord)
	r.stop(p, 0)
	r.behind(f) // a client that knows nobody who is gone
	require.Equal(t, ends(f), r.committed())
}

// ends are the log ends as the cluster itself knows them, for when the producer's brokers are gone.
func ends(f *kafkatest.Fake) map[int32]int64 { return fakeEnds(f, topic)() }

// Every broker is replaced, one after the other, by one at an address KAFKA_BROKERS does not name. The worker follows; another that starts
// when one named broker is left, or one new one is named, finds the rest.
func TestRollingReplacementOfAllBrokers(t *testing.T) {
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(partitions, topic)}})
	old := f.Addrs()
	r := newRig(t, old, starrockstest.Config{})
	r.behind(f)
	p := r.worker("w")
	require.NoError(t, p.Start())
	r.ready(p)
	b := r.birth(p)
	s := r.stream(53, 600)
	ps := map[string]*workerproc.Process{"w": p}
	w := r.watch(fakeEnds(f, topic), ps)
	r.eventuallyRead(p, 1200, 20*time.Second)
	w.forget()
	var second *workerproc.Process
	for n := range int32(3) {
		if n == 2 { // one of the three named is left
			second = r.worker("second")
			w.add("second", second)
			require.NoError(t, second.Start())
			r.ready(second)
		}
		_, err := f.AddNode()
		require.NoError(t, err)
		time.Sleep(size(t, 30*time.Second, time.Second)) // less than a discovery round in the small size: the worker learns it from brokers that stay
		require.NoError(t, f.RemoveNode(n, kafkatest.Refuse))
		time.Sleep(size(t, 30*time.Second, 3*time.Second))
	}
	for _, a := range old {
		require.NotContains(t, f.Addrs(), a)
	}
	third := r.worker("third", "KAFKA_BROKERS="+old[0]+","+f.Addrs()[0])
	w.add("third", third)
	require.NoError(t, third.Start())
	r.ready(third)
	time.Sleep(2 * time.Second)
	worst := w.worstOf()
	s.end(30 * time.Second)
	r.exact(30*time.Second, p, second, third)
	r.same(p, b)
	t.Logf("3 of 3 brokers replaced, 3 workers joined meanwhile: a partition stood still for at most %.2f s", worst.Seconds())
	require.LessOrEqual(t, worst, movedPause)
	for _, p := range []*workerproc.Process{p, second, third} {
		r.stop(p, 0)
	}
	r.behind(f)
	require.Equal(t, ends(f), r.committed())
}
