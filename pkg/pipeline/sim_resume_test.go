package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"rollcall/pkg/checkpoint"
	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/source"
)

// The Resume table of DESIGN §1 through the whole worker. Each test ends with the table being exactly the truth.

// A first start obeys KAFKA_START; a partition added later is read from its beginning in every mode, and a restart never looks at the mode.
func TestSimFirstStart(t *testing.T) {
	const before, after = 100, 60 // records per mode, 4 partitions
	for _, mode := range []string{"earliest", "latest", "group", "timestamp", "offsets"} {
		t.Run(mode, func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				s.produce(before)
				time.Sleep(time.Hour)
				cut := time.Now()
				time.Sleep(time.Second)
				start, from := mode, map[int32]int64{}
				switch mode {
				case "timestamp":
					start += ":" + cut.Format(time.RFC3339)
				case "offsets":
					start += ":events/0=7;events/2=25"
					from = map[int32]int64{0: 7, 2: 25}
				}
				if mode == "latest" {
					from = map[int32]int64{0: 25, 1: 25, 2: 25, 3: 25}
				} else {
					s.produce(after)
				}
				if mode == "timestamp" {
					from = map[int32]int64{0: 25, 1: 25, 2: 25, 3: 25}
				}
				s.settings["KAFKA_START"] = start
				w := s.worker("w")
				s.ready(time.Minute, w)
				if mode == "latest" {
					s.produce(after)
				}
				s.expect(from)
				s.exact(20 * time.Second)

				s.grow(6)
				s.produce(120)
				s.exact(time.Minute)
				w.stop(0)
				require.Equal(t, s.ends(), s.committed())

				s.produce(120)
				s.settings["KAFKA_START"] = "latest"
				again := s.worker("again")
				s.exact(time.Minute)
				require.InDelta(t, 120, again.identity().sum("rollcall_source_records_total"), 0.1)
				again.stop(0)
			})
		})
	}
}

// Explicit offsets outside the log begin at its ends, they are no truncation and no gap.
func TestSimFirstStartOutsideTheLog(t *testing.T) {
	simulate(t, simOptions{partitions: 2}, func(t *testing.T, s *sim) {
		s.produce(60)
		require.NoError(t, s.kafka.DeleteRecords(simTopic, 1, 10))
		s.settings["KAFKA_START"] = "offsets:events/0=500;events/1=3"
		w := s.worker("w")
		s.ready(time.Minute, w)
		s.produce(20)
		s.expect(map[int32]int64{0: 30, 1: 10})
		s.exact(20 * time.Second)
		w.stop(0)
		require.False(t, w.logs.has("truncated"))
	})
}

// A foreign commit is taken over: a new history there, whatever the mode.
func TestSimTakeOver(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		for p := range s.opt.partitions {
			s.commit(p, 5, "other tool")
		}
		s.settings["KAFKA_START"] = "latest"
		w := s.worker("w")
		s.expect(map[int32]int64{0: 5, 1: 5, 2: 5, 3: 5})
		s.exact(2 * time.Minute)
		require.Equal(t, 4, w.logs.count("is not ours: taking over"))
		w.stop(0)
	})
}

// Rows and no commit: on at the table's offset. Nothing but bad records after the last row: on at the commit, nothing is read again.
func TestSimRowsAndCommits(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		w := s.worker("w")
		s.exact(time.Minute)
		w.stop(0)

		_, err := kadm.NewClient(s.prod).DeleteGroups(t.Context(), simGroup)
		require.NoError(t, err)
		s.produce(40)
		w = s.worker("without-commit")
		s.exact(time.Minute)
		require.InDelta(t, 40, w.identity().sum("rollcall_source_records_total"), 0.1)
		require.Equal(t, 4, w.logs.count(checkpoint.LineRowsNone, "partition resumed"))
		for i := range 8 {
			s.produceBad(record(int32(i%4), []byte("no")))
		}
		s.eventually(10*time.Second, "commits pass the bad records", func() bool { return s.committed()[0] == 37 })
		w.stop(0)

		w = s.worker("nothing-to-read")
		s.ready(time.Minute, w)
		time.Sleep(10 * time.Second)
		require.Zero(t, w.identity().sum("rollcall_source_records_total"))
		s.produce(40)
		s.exact(20 * time.Second)
		w.stop(0)
		require.Len(t, s.histories(), 4)
	})
}

// An FE that lags shows less than is known loaded: reading again from there is harmless.
func TestSimLaggingFrontEnd(t *testing.T) {
	simulate(t, simOptions{rocks: starrockstest.Config{History: 100}}, func(t *testing.T, s *sim) {
		w := s.worker("w")
		for range 5 {
			s.produce(100)
			s.exact(time.Minute)
		}
		time.Sleep(5 * time.Second)
		w.stop(0)
		s.rocks.LagFE(1, 2, 0)
		s.produce(50)
		w = s.worker("again")
		s.exact(time.Minute)
		require.Equal(t, 4, w.logs.count(checkpoint.LineRowsBehind, "partition resumed"))
		require.Greater(t, w.identity().sum("rollcall_source_records_total"), 60.0, "read again")
		w.stop(0)
		require.Equal(t, s.ends(), s.committed())
	})
}

// Nothing in the table and a commit with L > 0: the table was emptied. At a start that is an exit, unless it is allowed.
func TestSimEmptiedTable(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		w := s.worker("w")
		s.exact(time.Minute)
		time.Sleep(5 * time.Second)
		w.stop(0)
		at := s.committed()
		require.Equal(t, s.ends(), at)
		require.NoError(t, s.rocks.Exec("TRUNCATE TABLE dau.daily"))
		s.produce(40)

		begun := time.Now()
		w = s.worker("refused")
		time.Sleep(time.Minute)
		require.Contains(t, join(w.reasons()), "known loaded")
		require.Equal(t, ExitCheckpoint, w.wait(2*time.Minute), "%v", w.err)
		require.ErrorContains(t, w.err, "CHECKPOINT_ALLOW_EMPTY")
		require.GreaterOrEqual(t, time.Since(begun), 2*time.Minute)
		require.Equal(t, at, s.committed())

		w = s.worker("allowed", "CHECKPOINT_ALLOW_EMPTY=true")
		s.expect(at)
		s.exact(5 * time.Minute)
		time.Sleep(5 * time.Second)
		w.stop(0)
		s.produce(40)
		w = s.worker("then")
		s.exact(time.Minute)
		w.stop(0)
	})
}

// The same seen by a worker that has long been running: it stays, not ready, and goes on by itself when the rows are there again.
func TestSimEmptiedWhileRunning(t *testing.T) {
	simulate(t, simOptions{rocks: starrockstest.Config{History: 1000, FEs: 2}}, func(t *testing.T, s *sim) {
		a := s.worker("a")
		s.ready(time.Minute, a)
		s.rocks.FreezeFE(1) // from now on both show an empty table
		s.rocks.FreezeFE(2)
		s.produce(100)
		s.exact(time.Minute)
		time.Sleep(3 * time.Second)
		b := s.worker("b") // takes some partitions, cannot restore them, and ends
		require.Equal(t, ExitCheckpoint, b.wait(4*time.Minute), "%v", b.err)
		s.produce(40)
		time.Sleep(10 * time.Minute)
		require.False(t, a.ended())
		a.live()
		require.Contains(t, join(a.reasons()), "known loaded")
		s.rocks.ThawFE(1)
		s.rocks.ThawFE(2)
		s.exact(time.Minute)
		s.ready(30*time.Second, a)
		a.stop(0)
	})
}

// Another target, another program, a commit of a later version: exit 12 naming both sides.
func TestSimRefusals(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		w := s.worker("w")
		s.exact(time.Minute)
		time.Sleep(3 * time.Second)
		w.stop(0)
		at := s.committed()
		refused := func(code int, says []string, env ...string) {
			t.Helper()
			w := s.worker("refused", env...)
			require.Equal(t, code, w.wait(time.Minute), "%v", w.err)
			for _, what := range says {
				require.ErrorContains(t, w.err, what)
			}
			require.Equal(t, at, s.committed())
			require.Empty(t, s.truth.Diff(s.view()))
		}
		refused(ExitCheckpoint, []string{"dau.daily", "dau.other", "KAFKA_GROUP"}, "STARROCKS_TABLE=other")
		refused(ExitCheckpoint, []string{"PROGRAM_CHANGE"}, "AGGREGATE_TIMEZONE=Asia/Shanghai")
		refused(ExitCheckpoint, []string{"PROGRAM_CHANGE"}, "ALLOWED_LATENESS=95h")
		refused(ExitTable, []string{"country"}, "AGGREGATE_DIMENSIONS=platform,channel=props.channel,country")
		s.commit(2, 25, "rollcall/2 something new")
		refused(ExitCheckpoint, []string{"later"})
	})
}

// PROGRAM_CHANGE=continue begins new histories where the old ones end: the sum is exact.
func TestSimProgramContinues(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		w := s.worker("w")
		s.exact(time.Minute)
		w.stop(0)
		s.produce(100)
		s.settings["ALLOWED_LATENESS"], s.settings["PROGRAM_CHANGE"] = "100h", "continue"
		w = s.worker("changed")
		time.Sleep(20 * time.Second)
		require.Contains(t, join(w.reasons()), "waiting until no load of the former history can land")
		s.exact(2 * time.Minute)
		require.Len(t, s.histories(), 8)
		s.produce(100)
		s.exact(time.Minute)
		w.stop(0)
		s.produce(100)
		w = s.worker("again")
		s.exact(30 * time.Second)
		w.stop(0)
		require.Len(t, s.histories(), 8)
	})
}

// The topic has another id at a start: exit 12, or beside the old one.
func TestSimNewTopicID(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		w := s.worker("w")
		s.exact(time.Minute)
		w.stop(0)
		s.recreate()
		s.produce(60)
		w = s.worker("refused")
		require.Equal(t, ExitCheckpoint, w.wait(time.Minute), "%v", w.err)
		require.ErrorContains(t, w.err, "KAFKA_NEW_TOPIC=add")
		s.settings["KAFKA_NEW_TOPIC"] = "add"
		s.settings["KAFKA_START"] = "latest"
		w = s.worker("added")
		s.exact(3 * time.Minute)
		w.stop(0)
		require.Len(t, s.histories(), 8)
	})
}

// The topic is created again while the worker runs: old totals stay, new ones add up, from the beginning whatever the mode.
func TestSimTopicRecreatedWhileRunning(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.settings["KAFKA_START"] = "latest"
		a, b := s.worker("a"), (*simWorker)(nil)
		s.ready(time.Minute, a)
		b = s.worker("b")
		s.ready(time.Minute, a, b)
		s.produce(100)
		s.exact(time.Minute)
		time.Sleep(3 * time.Second)
		for range 2 {
			s.recreate()
			s.produce(100)
			s.exact(5 * time.Minute)
			time.Sleep(20 * time.Second)
		}
		s.ready(time.Minute, a, b)
		require.Len(t, s.histories(), 12)
		a.stop(0)
		b.stop(0)
		s.produce(40)
		c := s.worker("c")
		s.exact(time.Minute)
		c.stop(0)
	})
}

// Retention removed records before they were read: by policy, said and counted, at a restart and while running.
func TestSimRetentionGap(t *testing.T) {
	for _, running := range []bool{false, true} {
		for _, policy := range []string{"earliest", "latest", "fail"} {
			t.Run(fmt.Sprintf("%s,running=%v", policy, running), func(t *testing.T) {
				simulate(t, simOptions{}, func(t *testing.T, s *sim) {
					s.settings["KAFKA_OFFSET_RESET"] = policy
					s.produce(100) // 25 each
					w := s.worker("w")
					s.exact(time.Minute)
					time.Sleep(3 * time.Second)
					if running {
						s.net.set(netRefuse, "w")
						time.Sleep(5 * time.Second)
					} else {
						w.stop(0)
					}
					s.produce(100) // 25 more
					require.NoError(t, s.kafka.DeleteRecords(simTopic, 1, 35))
					if running {
						s.net.set(netOpen, "w")
					} else {
						w = s.worker("again")
					}
					s.eventually(2*time.Minute, "the gap is said", func() bool { return w.logs.has("retention removed offsets from 25 to before 35") })
					from := map[int32]int64{}
					skipped := 10.0
					s.expect(from)
					s.truth = without(s, 1, 25, 35)
					switch policy {
					case "latest":
						s.truth = without(s, 1, 25, 50)
						skipped = 25
					case "fail":
						s.truth = without(s, 1, 25, 50)
						skipped = 0
					}
					s.exact(3 * time.Minute)
					time.Sleep(time.Minute)
					require.Empty(t, s.truth.Diff(s.view()))
					require.InDelta(t, skipped, w.identity().sum("rollcall_source_skipped_offsets_total", "partition", "1"), 0.1)
					if policy == "fail" {
						require.Contains(t, join(w.reasons()), "KAFKA_OFFSET_RESET")
						require.Equal(t, int64(25), s.committed()[1])
						w.stop(0)
						return
					}
					s.ready(time.Second, w)
					s.produce(100)
					s.exact(time.Minute)
					w.stop(0)
					require.Equal(t, s.ends(), s.committed())
				})
			})
		}
	}
}

// without is the truth without a range of one partition.
func without(s *sim, partition int32, from, to int64) *oracle.Truth {
	s.expect(map[int32]int64{partition: int64(len(s.events[partition]))})
	s.add(partition, 0, from)
	s.add(partition, to, int64(len(s.events[partition])))
	return s.truth
}

// The commit is beyond the end of the log: it was truncated. What is in the log and was not read under the old history counts.
func TestSimTruncatedAtStart(t *testing.T) {
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.produce(100)
		w := s.worker("w")
		s.exact(time.Minute)
		time.Sleep(3 * time.Second)
		w.stop(0)
		mark := s.metadata()[2]
		s.commit(2, 40, mark)
		w = s.worker("again")
		s.ready(3*time.Minute, w)
		require.Equal(t, 1, w.logs.count("the log was truncated: offsets 25 to 40"))
		s.produce(100)
		s.exact(time.Minute)
		w.stop(0)
		require.Len(t, s.histories(), 5)
		require.Equal(t, s.ends(), s.committed())
	})
}

// A divergence while running: memory and unsent batches go, a new history begins at the divergence. A load in flight is waited for, however
// long StarRocks refuses it: it may still land.
func TestSimTruncatedWhileRunning(t *testing.T) {
	for _, sent := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent=%v", sent), func(t *testing.T) {
			simulate(t, simOptions{}, func(t *testing.T, s *sim) {
				s.produce(100)
				w := s.worker("w", "FLUSH_INTERVAL=10s")
				s.exact(time.Minute)
				time.Sleep(3 * time.Second)
				s.rocks.Inject(starrockstest.Fault{At: starrockstest.AtFE, Path: "_stream_load", Times: starrockstest.Forever, Do: []starrockstest.Action{starrockstest.Fail("not now")}})
				s.produce(100)
				s.eventually(20*time.Second, "read", func() bool {
					m := w.identity()
					return m.sum("rollcall_source_records_total") == 200 && (!sent || m.sum("rollcall_load_retries_total") > 0)
				})
				p := source.Partition{Topic: simTopic, Partition: 2}
				owners := w.worker.running.Load().owners
				// 45 and above are said to differ from what was read there.
				owners.Event(source.Event{Kind: source.EventTruncated, Partition: p, Generation: owners.all()[2].gen, From: 50, To: 45, Divergence: 45})
				time.Sleep(2 * time.Minute)
				if sent {
					require.Contains(t, join(w.reasons()), "waiting for the load in flight")
					// The load comes through at last, so the new history begins at 45 and has what came after again.
					s.add(2, 45, 50)
				}
				s.rocks.Heal()
				s.ready(3*time.Minute, w)
				s.exact(time.Minute)
				require.Equal(t, 1, w.logs.count("the log was truncated: offsets 45 to 50", `"action":"new history"`))
				s.produce(40)
				s.exact(time.Minute)
				require.Len(t, s.histories(), 5)
				w.stop(0)
			})
		})
	}
}

// A checkpoint in local files: a restart is exact without reading the table, and files that are all unusable are exit 12.
func TestSimFileStore(t *testing.T) {
	dir := t.TempDir()
	simulate(t, simOptions{}, func(t *testing.T, s *sim) {
		s.settings["CHECKPOINT_STORE"] = "file:" + dir
		for i := range 3 {
			w := s.worker(fmt.Sprint("w", i))
			s.produce(200)
			s.exact(time.Minute)
			if i == 1 {
				w.kill()
				continue
			}
			time.Sleep(2 * time.Second)
			w.stop(0)
		}
		for _, st := range s.rocks.Statements() {
			require.NotContains(t, st.SQL, "rollcall_next_offset) AS", "the table is not read")
		}
		require.Len(t, s.histories(), 4)
		files := 0
		require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "lock") {
				return err
			}
			files++
			return os.WriteFile(path, []byte("not a checkpoint"), 0o600)
		}))
		require.NotZero(t, files)
		w := s.worker("refused")
		require.Equal(t, ExitCheckpoint, w.wait(time.Minute), "%v", w.err)
		require.Empty(t, s.truth.Diff(s.view()))
	})
}
