package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
)

// demo runs the story and returns nil only if the table is the truth.
func demo(ctx context.Context, f flags) (err error) {
	begun := time.Now()
	s, err := newStage(f, starrockstest.Config{}, 0)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil || f.verbose {
			s.showLog(os.Stderr)
		}
	}()
	say := func(format string, args ...any) {
		fmt.Printf("%5.1fs  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	say("three Kafka brokers (kfake), a stand-in StarRocks and one worker process; %d partitions", partitions)
	if err := s.worker.Start(); err != nil {
		return err
	}
	if err := s.worker.Ready(ctx); err != nil {
		return err
	}
	say("the worker is ready: it made the table and owns the partitions")

	length := time.Duration(f.seconds) * time.Second
	fd := newFeed(s, time.Now(), f.sabotage)
	fed := make(chan error, 1)
	go func() { fed <- fd.run(ctx, f.rate, length) }()
	step := length / 5
	for _, act := range []func() error{
		func() error {
			say("a broker is taken away for good")
			return s.kafka.RemoveNode(0, kafkatest.Refuse)
		},
		func() error {
			say("StarRocks refuses every load for %s", step)
			s.rocks.Inject(starrockstest.Fault{
				At: starrockstest.AtHeader, Times: starrockstest.Forever,
				Do: []starrockstest.Action{starrockstest.Fail("too many versions, current/limit: 1002/1000")},
			})
			return nil
		},
		func() error {
			say("StarRocks takes loads again; the worker is killed with SIGKILL and started again")
			s.rocks.Heal()
			s.worker.Kill()
			return s.worker.Start()
		},
	} {
		if err := sleep(ctx, step); err != nil {
			return err
		}
		if err := s.worker.Alive(); err != nil {
			return err
		}
		if err := act(); err != nil {
			return err
		}
	}
	if err := <-fed; err != nil {
		return err
	}
	say("input ends: %d events and %d records that cannot be read", fd.truth.Events(), fd.bad)
	if err := s.settled(ctx, fd); err != nil {
		return err
	}
	if err := s.stop(30 * time.Second); err != nil {
		return err
	}
	say("the worker was stopped with SIGTERM and exited 0")
	return s.verdict(ctx, fd, begun)
}

// settled waits until the table shows every event, or has not moved for a while: then the verdict says what differs.
func (s *stage) settled(ctx context.Context, fd *feed) error {
	last, moved := int64(-1), time.Now()
	for {
		if rows, err := oracle.Query(ctx, s.db, database+"."+table+"_view"); err == nil {
			n := int64(0)
			for _, r := range rows {
				n += r.PV
			}
			if n >= fd.truth.Events() {
				return nil
			}
			if n != last {
				last, moved = n, time.Now()
			}
			if time.Since(moved) > 15*time.Second {
				return nil
			}
		}
		if err := s.worker.Alive(); err != nil {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the table (%d of %d events): %w", last, fd.truth.Events(), err)
		}
	}
}

// verdict prints the table beside the truth.
func (s *stage) verdict(ctx context.Context, fd *feed, begun time.Time) error {
	rows, err := oracle.Query(ctx, s.db, database+"."+table+"_view")
	if err != nil {
		return err
	}
	diff := fd.truth.Diff(rows)
	printTable(rows, fd.truth)
	dead, err := s.deadLetters(ctx)
	if err != nil {
		return err
	}
	if dead < fd.bad {
		diff = append(diff, fmt.Sprintf("dead-letter topic has %d records, want at least %d", dead, fd.bad))
	}
	for _, d := range diff {
		fmt.Println("DIFFERENT", d)
	}
	if len(diff) > 0 {
		return errors.New("the table is not the truth")
	}
	fmt.Printf("\nEvery number of %d rows equals the truth, %d events; %d bad records are in the dead-letter topic. %.1f s.\n",
		len(rows), fd.truth.Events(), fd.bad, time.Since(begun).Seconds())
	return nil
}

// deadLetters counts the records in the dead-letter topic; one may be there more than once.
func (s *stage) deadLetters(ctx context.Context) (int64, error) {
	ends, err := kadm.NewClient(s.prod).ListEndOffsets(ctx, deadTopic)
	if err != nil {
		return 0, fmt.Errorf("read the dead-letter topic: %w", err)
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, nil
}

// printTable shows the sums per day, which is what people look at, each beside the truth.
func printTable(rows []oracle.Row, truth *oracle.Truth) {
	fmt.Printf("\n%-12s %-9s %-9s | %9s %9s %12s %7s %7s | %s\n", "dt", "platform", "channel", "uv", "pv", "amount", "least", "most", "truth")
	want := map[oracle.Key]oracle.Row{}
	for _, r := range truth.Rows() {
		want[r.Key] = r
	}
	for _, r := range rows {
		mark := "equal"
		if w := want[r.Key]; w != r {
			mark = fmt.Sprintf("uv=%d pv=%d amount=%d least=%d most=%d", w.UV, w.PV, w.Amount, w.Least, w.Most)
		}
		fmt.Printf("%-12s %-9s %-9s | %9d %9d %12d %7d %7d | %s\n", r.Day, r.Platform, r.Channel, r.UV, r.PV, r.Amount, r.Least, r.Most, mark)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
