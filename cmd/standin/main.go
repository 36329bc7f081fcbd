// Command standin runs the stand-in StarRocks of package starrockstest by itself, for clients that are not in Go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"rollcall/pkg/sink/starrockstest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "standin: %v\n", err)
		os.Exit(3)
	}
}

func run() error {
	var cfg starrockstest.Config
	var user, password, statements string
	var publish time.Duration
	var verbose bool
	flag.IntVar(&cfg.HTTPPort, "http", 8030, "HTTP port of the first FE")
	flag.IntVar(&cfg.BEPort, "be", 8040, "HTTP port of the BE")
	flag.IntVar(&cfg.MySQLPort, "mysql", 9030, "MySQL port of the first FE")
	flag.IntVar(&cfg.FEs, "fes", 1, "number of FEs; further ones count their ports up")
	flag.BoolVar(&cfg.FEKeepAlive, "old", false, "FEs keep connections open after a redirect, as before 3.1.16")
	flag.DurationVar(&publish, "publish", 0, "time from commit to visible")
	flag.StringVar(&user, "user", "root", "the one login")
	flag.StringVar(&password, "password", "", "its password")
	flag.StringVar(&statements, "init", "", "statements to run at the start, separated by semicolons at line ends")
	flag.BoolVar(&verbose, "v", false, "show what the MySQL library logs")
	flag.Parse()
	if !verbose {
		log.SetOutput(io.Discard)
	}
	cfg.Users = []starrockstest.User{{Name: user, Password: password}}
	cfg.PublishDelay = func(string, string) time.Duration { return publish }

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := starrockstest.New(cfg)
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Close()
	for s := range strings.SplitSeq(statements, ";\n") {
		if strings.TrimSpace(s) == "" {
			continue
		}
		if err := c.Exec(s); err != nil {
			return err
		}
	}
	fmt.Printf("stand-in StarRocks (not the real one): FE %s, BE %s, MySQL %s\n",
		strings.Join(c.FEURLs(), ","), c.BEURL(), strings.Join(c.MySQLAddrs(), ","))
	<-ctx.Done()
	loads, rows := c.Committed()
	fmt.Printf("%d loads committed, %d rows\n", len(loads), rows)
	return nil
}
