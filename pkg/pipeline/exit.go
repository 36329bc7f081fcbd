package pipeline

import (
	"errors"
	"fmt"
)

// Exit codes of the worker (DESIGN §6). 1 and 2 are Go's own and never used.
const (
	ExitOK         = 0  // all that was read is durable, or nothing was open
	ExitSettings   = 10 // settings are wrong
	ExitNotDurable = 11 // rows were not durable when the time was up
	ExitCheckpoint = 12 // the checkpoint cannot be used
	ExitTable      = 13 // the table cannot be used
	ExitSource     = 14 // the source cannot be used
	ExitBug        = 70 // a bug in the worker
)

// ExitError is the reason for which the worker ends with a code other than 0.
type ExitError struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("exit %d: %v", e.Code, e.Err) }

// Unwrap gives the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode maps the error of Run to the process's exit code. An error nobody gave a code is a bug.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	return ExitBug
}

func exitf(code int, format string, args ...any) error {
	return &ExitError{Code: code, Err: fmt.Errorf(format, args...)}
}
