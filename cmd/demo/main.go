// Command demo shows the worker's main job on embedded parts: three kfake brokers, the stand-in StarRocks and a real worker process.
//
// It feeds events with a known truth, takes a broker away, lets StarRocks refuse loads for a while, kills the worker with SIGKILL and
// starts it again, and then compares the table, read by SQL, with the truth. It exits 0 only if every number is equal. With -play it
// leaves everything running to be looked at.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type flags struct {
	worker   string
	play     bool
	sabotage bool
	rate     int
	seconds  int
	timeout  time.Duration
	verbose  bool
}

func main() {
	var f flags
	set := flag.NewFlagSet("demo", flag.ExitOnError) // its own: libraries add theirs to the default one
	set.StringVar(&f.worker, "worker", "bin/rollcall", "the worker's binary")
	set.BoolVar(&f.play, "play", false, "no faults, events for ever, fixed ports: to look at")
	set.BoolVar(&f.sabotage, "sabotage", false, "keep one event from the topic, so that the check must fail")
	set.IntVar(&f.rate, "rate", 20000, "events per second")
	set.IntVar(&f.seconds, "seconds", 12, "for how long events are produced")
	set.DurationVar(&f.timeout, "timeout", 60*time.Second, "when to give up")
	set.BoolVar(&f.verbose, "v", false, "show the worker's log")
	_ = set.Parse(os.Args[1:])

	if !f.verbose {
		log.SetOutput(io.Discard) // the stand-in's MySQL library logs every connection that ends
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if f.play {
		err = play(ctx, f)
	} else {
		tctx, cancel := context.WithTimeout(ctx, f.timeout)
		err = demo(tctx, f)
		cancel()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		stop()
		os.Exit(3) //nolint:gocritic // nothing else is deferred that matters
	}
}
