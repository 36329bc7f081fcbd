package pipeline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
)

// transact writes events in a transaction; they count only if it is committed.
func (s *sim) transact(n int, commit bool, partitions ...int32) {
	s.t.Helper()
	c := s.client(kgo.TransactionalID(fmt.Sprint("txn", s.rnd.Uint64())))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(s.t, c.BeginTransaction())
	for i := range n {
		e := s.gen.Next()
		if commit {
			s.truth.Add(e)
		}
		c.Produce(ctx, record(partitions[i%len(partitions)], e.AppendJSON(nil)), nil)
	}
	require.NoError(s.t, c.Flush(ctx))
	require.NoError(s.t, c.EndTransaction(ctx, kgo.TransactionEndTry(commit)))
}

// A bounded run to the end of the log, with transactions aborted at the tail, an empty partition and what comes later: exit 0, exactly what
// was there at its start, and a second run finds nothing to do.
func TestSimStopAtLatest(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(90, 0, 1, 2) // partition 3 is empty
		s.transact(30, true, 0, 1)
		s.transact(30, false, 1, 2)
		w := s.worker("w", "KAFKA_STOP=latest")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		require.Empty(t, s.truth.Diff(s.view()))
		require.Equal(t, s.ends(), s.committed())
		w.identity()

		w = s.worker("again", "KAFKA_STOP=latest")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		require.Zero(t, w.identity().sum("rollcall_source_records_total"))

		s.produce(40)
		s.transact(20, false, 0, 3)
		w = s.worker("more", "KAFKA_STOP=latest")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		require.Empty(t, s.truth.Diff(s.view()))
		require.Equal(t, s.ends(), s.committed())
	})
}

// A topic without a single record.
func TestSimStopOnAnEmptyTopic(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		w := s.worker("w", "KAFKA_STOP=latest")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		require.Equal(t, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}, s.committed())
	})
}

// A bounded run to a time: what Kafka got from then on is not read, though it is there.
func TestSimStopAtATime(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		time.Sleep(10 * time.Minute)
		cut := time.Now()
		time.Sleep(time.Second)
		whole := s.truth
		s.truth = oracle.NewTruth(time.UTC)
		s.produce(100)
		s.truth = whole
		w := s.worker("w", "KAFKA_STOP=timestamp:"+cut.Format(time.RFC3339))
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		require.Empty(t, s.truth.Diff(s.view()))
		require.Equal(t, map[int32]int64{0: 25, 1: 25, 2: 25, 3: 25}, s.committed())
		for p := range s.opt.partitions {
			s.add(p, 25, 50)
		}
		w = s.worker("rest", "KAFKA_STOP=latest")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		require.Empty(t, s.truth.Diff(s.view()))
	})
}

// Two workers share a bounded run, and a third has nothing to do: all exit 0, none before everything is durable.
func TestSimStopTogether(t *testing.T) {
	simulate(t, simOptions{partitions: 2}, func(t *testing.T, s *sim) {
		s.produce(400)
		first := s.worker("first")
		s.exact(time.Minute) // the table is there
		first.stop(0)
		s.produce(400)
		s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Times: 3, Do: []starrockstest.Action{starrockstest.Fail(starrockstest.MsgMemory)}})
		for _, name := range []string{"a", "b", "c"} {
			s.worker(name, "KAFKA_STOP=latest", "KAFKA_SESSION_TIMEOUT=6s")
		}
		for _, w := range s.workers[1:] {
			require.Equal(t, ExitOK, w.wait(3*time.Minute), "%s: %v", w.name, w.err)
			require.Empty(t, s.truth.Diff(s.view()), "%s ended before everything was durable", w.name)
		}
		require.Equal(t, s.ends(), s.committed())
	})
}

// A bounded run whose last load never comes through gives up SHUTDOWN_TIMEOUT after its input ended: exit 11, never 0.
func TestSimStopGivesUp(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Fail("quota exceeded")}})
		begun := time.Now()
		w := s.worker("w", "KAFKA_STOP=latest", "SHUTDOWN_TIMEOUT=10s")
		require.Equal(t, ExitNotDurable, w.wait(time.Minute), "%v", w.err)
		require.ErrorContains(t, w.err, "quota exceeded")
		require.Greater(t, time.Since(begun), 10*time.Second)
		require.Less(t, time.Since(begun), 25*time.Second)
		require.Equal(t, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}, s.committed())
		s.rocks.Heal()
		w = s.worker("again", "KAFKA_STOP=latest")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		require.Empty(t, s.truth.Diff(s.view()))
	})
}

// A gap that may not be stepped over ends a bounded run with 14.
func TestSimStopAtAGap(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		w := s.worker("w", "KAFKA_STOP=latest")
		require.Equal(t, ExitOK, w.wait(time.Minute), "%v", w.err)
		s.produce(100)
		require.NoError(t, s.kafka.DeleteRecords(simTopic, 1, 35))
		w = s.worker("gap", "KAFKA_STOP=latest", "KAFKA_OFFSET_RESET=fail")
		require.Equal(t, ExitSource, w.wait(time.Minute), "%v", w.err)
		require.ErrorContains(t, w.err, "retention removed offsets from 25 to before 35")
	})
}
