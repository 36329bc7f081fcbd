package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink/starrockstest"
)

// A worker is killed with SIGKILL at each step of a load and of a restart, in each of several kinds of trouble that leave a load's
// outcome open. Each time the restarted worker is exact soon, and the ledger holds.
func TestKilledAtEachStep(t *testing.T) {
	var mu sync.Mutex
	var slowest time.Duration
	var cells []cell
	for _, w := range weathers() {
		for _, s := range steps() {
			cells = append(cells, cell{w.name + "/" + s.name, func(t *testing.T) {
				took := killCell(t, w, s)
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, took)
			}})
		}
	}
	sideBySide(t, cells)
	t.Logf("%d cells, slowest: exact %.1f s after the restart", len(cells), slowest.Seconds())
}

// cell is one independent scenario of a table of them.
type cell struct {
	name string
	run  func(*testing.T)
}

// sideBySide runs scenarios that mostly wait, more of them at once than t.Parallel would on two cores.
func sideBySide(t *testing.T, cells []cell) {
	t.Helper()
	const atOnce = 5
	todo := make(chan cell)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for c := range todo {
				t.Run(c.name, c.run)
			}
		})
	}
	for _, c := range cells {
		todo <- c
	}
	close(todo)
	wg.Wait()
}

// step is the moment of the kill.
type step struct {
	name string
	// at is where the stand-in stops the worker. During a load, unless restoring is set.
	at starrockstest.Fault
	// lost: the step needs a load without a reply to come about.
	lost bool
	// restoring: the worker is killed while it loads, too, and then again while it restores.
	restoring bool
	// release says when the stand-in goes on with what it held.
	release moment
}

type moment int

const (
	atOnce      moment = iota // before the worker is started again
	whenResumed               // once the next worker has read the table: the load lands behind its back
	never                     // the server holds it until its transaction times out
)

func steps() []step {
	held := []starrockstest.Action{starrockstest.Hang()}
	return []step{
		{name: "before the body is complete", at: starrockstest.Fault{At: starrockstest.AtBegun, Do: []starrockstest.Action{starrockstest.ReadBody(100), starrockstest.Hang()}}},
		{name: "before the commit, which comes at once", at: starrockstest.Fault{At: starrockstest.AtCommit, Do: held}},
		{name: "before the commit, which comes behind the next worker's back", at: starrockstest.Fault{At: starrockstest.AtCommit, Do: held}, release: whenResumed},
		{name: "before the commit, which never comes", at: starrockstest.Fault{At: starrockstest.AtCommit, Do: held}, release: never},
		{name: "after the commit", at: starrockstest.Fault{At: starrockstest.AtCommitted, Do: held}},
		{name: "while asking for the label", at: starrockstest.Fault{At: starrockstest.AtState, Do: held}, lost: true},
		{name: "while restoring", at: starrockstest.Fault{At: starrockstest.AtSQL, Statement: "rollcall_next_offset", Do: held}, restoring: true},
	}
}

// weather is trouble that goes on while a worker is killed.
type weather struct {
	name string
	// commit and committed are added to what happens to the loads of this worker there.
	commit, committed []starrockstest.Action
	// running: an older start's load hangs before its commit for the whole cell, and lands last of all.
	running bool
	// stale: one of two front ends answers reads from before the trouble.
	stale bool
}

func weathers() []weather {
	lost := []starrockstest.Action{starrockstest.CloseConn()}
	late := []starrockstest.Action{starrockstest.PublishTimeout(700 * time.Millisecond)}
	return []weather{
		{name: "calm"},
		{name: "reply lost after commit", committed: lost},
		{name: "publish timeout", commit: late},
		{name: "label running for ever", running: true},
		{name: "stale reads", stale: true},
		{name: "all of it", commit: late, committed: lost, running: true, stale: true},
	}
}

// killCell returns how long after the restart the table was exact.
func killCell(t *testing.T, w weather, s step) time.Duration {
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{FEs: 2, History: 1 << 20})
	r.extra["FLUSH_INTERVAL"], r.extra["LOAD_TIMEOUT"] = "200ms", "3s"
	p := r.worker("w", "KAFKA_INSTANCE_ID=w")
	gen := threeDays(11)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hit := func(rule *starrockstest.Rule, n int) {
		t.Helper()
		require.NoError(t, rule.WaitHits(ctx, n))
		r.counted(p)
		p.Kill()
	}
	require.NoError(t, p.Start())
	require.NoError(t, r.produce(ctx, gen, 2400, 0))
	r.exact(20*time.Second, p)
	if w.stale {
		r.rocks.FreezeFE(2)
	}
	var running *starrockstest.Rule
	if w.running {
		running = r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Do: []starrockstest.Action{starrockstest.Hang()}})
		require.NoError(t, r.produce(ctx, gen, 1200, 0))
		hit(running, 1)
		require.NoError(t, p.Start())
	}
	rule := r.trouble(w, s)
	require.NoError(t, r.produce(ctx, gen, 2400, 0))
	if s.restoring {
		require.NoError(t, r.rocks.WaitLoads(ctx, committedLoads(r)+1))
		p.Kill()
		require.NoError(t, p.Start())
	}
	hit(rule, 1)
	if s.release == atOnce {
		rule.Release()
	}
	begun := time.Now()
	require.NoError(t, p.Start())
	if s.release == whenResumed {
		r.ready(p)
		rule.Release()
	}
	require.NoError(t, r.produce(ctx, gen, 1200, 0))
	r.exact(20*time.Second, p)
	took := time.Since(begun)
	if running != nil { // the zombie lands in a table that is complete
		running.Release()
		time.Sleep(100 * time.Millisecond)
		r.exact(time.Second, p)
	}
	r.ready(p)
	r.identity(p)
	r.stop(p, 0)
	require.Equal(t, r.ends(), r.committed())
	r.exact(time.Second)
	return took
}

func committedLoads(r *rig) int {
	loads, _ := r.rocks.Committed()
	return len(loads)
}

// trouble lets the weather begin and returns the rule that stops the worker at the step. The rule that is injected first decides an event,
// and a rule that holds a load does so after what the weather does there.
func (r *rig) trouble(w weather, s step) *starrockstest.Rule {
	at := s.at
	switch at.At {
	case starrockstest.AtCommit:
		at.Do = append(append([]starrockstest.Action{}, w.commit...), at.Do...)
	case starrockstest.AtCommitted:
		at.Do = append(append([]starrockstest.Action{}, at.Do...), w.committed...)
	}
	rule := r.rocks.Inject(at)
	if len(w.commit) > 0 {
		r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Times: 3, Do: w.commit})
	}
	committed := w.committed
	if s.lost {
		committed = []starrockstest.Action{starrockstest.CloseConn()}
	}
	if len(committed) > 0 {
		r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommitted, Times: 3, Do: committed})
	}
	return rule
}
