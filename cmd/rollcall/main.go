// Command rollcall reads event topics from Kafka, computes distinct users, counts and sums per day and dimensions, and keeps them right
// in StarRocks. It is tuned by environment variables; see docs/settings.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"rollcall/pkg/pipeline"
)

// cli is the command line. Everything that changes what is counted is a setting, not a flag.
type cli struct {
	Run     runCmd     `cmd:"" default:"1" help:"Run the worker (also without a word)."`
	Check   checkCmd   `cmd:"" help:"Check the settings, and with --connect that everything they name can be reached."`
	Config  configCmd  `cmd:"" help:"Print the effective settings and where each came from; secrets are hidden."`
	Table   tableCmd   `cmd:"" help:"Print the statements that create the table and the view."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run parses args, runs the command and returns the exit code. It never returns 1 or 2, which are the Go runtime's.
func run(args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(stderr, "rollcall: panic: %v\n%s", r, debug.Stack())
			code = pipeline.ExitBug
		}
	}()
	helped := false
	parser, err := kong.New(&cli{}, kong.Name("rollcall"), kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }),
		kong.Description("Exact daily active users from Kafka into StarRocks. Settings are environment variables: docs/settings.md, or rollcall config --markdown, lists them."),
		kong.BindTo(stdout, (*io.Writer)(nil)))
	if err != nil {
		fmt.Fprintf(stderr, "rollcall: %v\n", err)
		return pipeline.ExitBug
	}
	ctx, err := parser.Parse(spelled(args))
	if helped {
		return pipeline.ExitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "rollcall: %v; see rollcall --help\n", err)
		return pipeline.ExitSettings
	}
	if err := ctx.Run(); err != nil {
		if cause, ok := errors.AsType[*pipeline.ExitError](err); ok {
			fmt.Fprintf(stderr, "rollcall: %v\n", cause.Err)
		} else {
			fmt.Fprintf(stderr, "rollcall: %v\n", err)
		}
		return pipeline.ExitCode(err)
	}
	return pipeline.ExitOK
}

// spelled takes other programs' spellings of help and version for ours.
func spelled(args []string) []string {
	if len(args) == 0 {
		return args
	}
	switch args[0] {
	case "help", "-help", "-?":
		return append(slices.Clone(args[1:]), "--help")
	case "--version", "-version", "-v", "-V":
		return []string{"version"}
	}
	return args
}

// signals returns a context that ends at the first SIGTERM or SIGINT; abort is called at the second.
func signals(abort func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() { // ends with the process or with the returned function
		for n := 0; ; n++ {
			select {
			case <-ch:
				if n == 0 {
					cancel()
				} else {
					abort()
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(ch); close(done); cancel() }
}
