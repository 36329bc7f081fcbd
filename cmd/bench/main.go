// Command bench measures the worker against the least that a consumer can do: a franz-go client with the worker's own options that only
// touches each record. Both read the same topic of the same broker in turn, and everything runs in a process of its own: the broker (kfake),
// the raw consumer, the stand-in StarRocks and the worker's real binary, which does a bounded run whose table is compared with the truth.
//
// It also measures how much memory the worker needs for a million distinct users a day, how long it takes from exec to its first record with
// many keys to restore, and its memory when idle. It exits 0 only if every table is right, memory is within -max-rss and -max-idle, the start
// within -max-start, and the ratio not below -min-ratio.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

type flags struct {
	worker      string
	events      int
	users       int
	runs        int
	compression string
	batch       int
	quick       bool
	scenario    string
	memoryUsers int
	maxRSS      float64
	startKeys   int
	maxStart    time.Duration
	maxIdle     float64
	minRatio    float64
	markdown    bool
	timeout     time.Duration
	keep        bool
	env         []string

	role, spec string
}

func main() {
	var f flags
	flag.StringVar(&f.worker, "worker", "bin/rollcall", "the worker's binary")
	flag.IntVar(&f.events, "events", 5_000_000, "events per topic")
	flag.IntVar(&f.users, "users", 50_000, "users they are of")
	flag.IntVar(&f.runs, "runs", 5, "runs of each side per topic, in turn")
	flag.StringVar(&f.compression, "compression", "none,zstd", "topics to measure: none, zstd, lz4, snappy, gzip")
	flag.IntVar(&f.batch, "batch", 64<<10, "the producer's batch size in bytes")
	flag.BoolVar(&f.quick, "quick", false, "small and short: shows that it works, says little about speed")
	flag.StringVar(&f.scenario, "scenario", "all", "speed, memory, start or all")
	flag.IntVar(&f.memoryUsers, "memory-users", 1_000_000, "distinct users of the memory scenario, in 100 keys of one day")
	flag.Float64Var(&f.maxRSS, "max-rss", 200, "fail if the worker needs more MiB for them; 0: no check")
	flag.IntVar(&f.startKeys, "start-keys", 100_000, "keys to restore in the start scenario, over 64 partitions")
	flag.DurationVar(&f.maxStart, "max-start", 2*time.Second, "fail if a start takes longer to its first record (median); 0: no check")
	flag.Float64Var(&f.maxIdle, "max-idle", 40, "fail if an idle worker needs more MiB; 0: no check")
	flag.Float64Var(&f.minRatio, "min-ratio", 0, "fail if worker/raw is below this for any topic; 0: no check")
	flag.BoolVar(&f.markdown, "markdown", false, "write the page docs/benchmarks.md instead of the table")
	flag.DurationVar(&f.timeout, "timeout", 10*time.Minute, "when to give up")
	flag.BoolVar(&f.keep, "keep-log", false, "keep the logs of the worker's runs")
	flag.Func("env", "a variable for the worker, NAME=value; may be repeated", func(s string) error {
		if !strings.Contains(s, "=") {
			return errors.New("want NAME=value")
		}
		f.env = append(f.env, s)
		return nil
	})
	flag.StringVar(&f.role, "role", "", "what a process started by bench is; not for people")
	flag.StringVar(&f.spec, "spec", "", "what the role needs; not for people")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if f.role != "" {
		err = play(ctx, f.role, f.spec)
	} else {
		err = f.prepare()
		if err == nil {
			tctx, cancel := context.WithTimeout(ctx, f.timeout)
			err = bench(tctx, f)
			cancel()
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", f.role, err)
		stop()
		os.Exit(3) //nolint:gocritic // nothing else is deferred that matters
	}
}

// prepare checks the flags and applies -quick.
func (f *flags) prepare() error {
	if f.quick {
		f.events, f.users, f.runs, f.memoryUsers = min(f.events, 300_000), min(f.users, 10_000), 1, min(f.memoryUsers, 200_000)
		f.startKeys = min(f.startKeys, 20_000)
	}
	if f.events < 1 || f.users < 1 || f.runs < 1 || f.memoryUsers < 1 || f.startKeys < startPartitions {
		return errors.New("-events, -users, -runs and -memory-users must be at least 1, -start-keys at least 64")
	}
	if !slices.Contains([]string{"all", "speed", "memory", "start"}, f.scenario) {
		return fmt.Errorf("-scenario %q: want speed, memory, start or all", f.scenario)
	}
	for _, c := range f.codecs() {
		if _, err := codec(c); err != nil {
			return err
		}
	}
	if _, err := os.Stat(f.worker); err != nil {
		return fmt.Errorf("the worker's binary: %w (make build makes it)", err)
	}
	return nil
}

func (f *flags) wants(scenario string) bool { return f.scenario == scenario || f.scenario == "all" }

func (f *flags) codecs() []string { return strings.Split(f.compression, ",") }

// bench runs the scenarios and prints what came out, also what failed a check.
func bench(ctx context.Context, f flags) error {
	rep := report{flags: f, machine: describeMachine()}
	var errs []error
	if f.wants("speed") {
		for _, c := range f.codecs() {
			sp, err := speed(ctx, f, c)
			if err != nil {
				return err
			}
			rep.speeds = append(rep.speeds, sp)
			if r := sp.ratio(); f.minRatio > 0 && r < f.minRatio {
				errs = append(errs, fmt.Errorf("%s: the worker reaches %.2f of the raw consumer, want at least %.2f", c, r, f.minRatio))
			}
		}
	}
	if f.wants("memory") {
		for _, c := range f.codecs() {
			ms, err := memory(ctx, f, c)
			if err != nil {
				return err
			}
			rep.memories = append(rep.memories, ms...)
		}
		for _, m := range rep.memories {
			if m.kind == memoryIDs && f.maxRSS > 0 && m.run.rssMiB > f.maxRSS {
				errs = append(errs, fmt.Errorf("memory, %s: the worker needs %.0f MiB for %d users, want at most %.0f", m.compression, m.run.rssMiB, m.users, f.maxRSS))
			}
		}
	}
	if f.wants("start") {
		s, err := starting(ctx, f)
		if err != nil {
			return err
		}
		rep.starts = &s
		errs = append(errs, s.check(f))
	}
	rep.print(os.Stdout)
	return errors.Join(errs...)
}
