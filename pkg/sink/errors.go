package sink

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrClosed is returned by Offer after Close began or Run ended. The batch is not accepted and its Done is never called.
	ErrClosed = errors.New("sink is closed")
	// ErrDiscarded is the outcome of a batch dropped by Discard.
	ErrDiscarded = errors.New("batch discarded")
	// ErrNotDurable is what every error of Flush, Close and WaitSource about unfinished batches is, and the outcome of batches still
	// open when Run ends. See NotDurableError.
	ErrNotDurable = errors.New("not known to be durable")
	// errRunning is returned by a second Run.
	errRunning = errors.New("sink is running already or has run before")
	// errExited is a goroutine of the target's that ended with runtime.Goexit.
	errExited = errors.New("goroutine ended without a result")
)

// NotDurableError says what was still open when a wait or the run ended. errors.Is(err, ErrNotDurable) holds, and Unwrap also gives the cause of
// the end and the last failure of the load in flight.
type NotDurableError struct {
	// Labels are those under which the open batches were tried, if any.
	Labels []string
	// Sources are those of the open batches, with the next offset that was not reached. The text names the first ones only.
	Sources []string
	// Last is the last failure of the load in flight, nil if there was none.
	Last error
	// Cause is why the wait ended.
	Cause error
}

// Error lists labels and the first sources: a worker may have hundreds.
func (e *NotDurableError) Error() string {
	const shown = 3
	var b strings.Builder
	fmt.Fprintf(&b, "%d sources %v: %s", len(e.Sources), ErrNotDurable, strings.Join(e.Sources[:min(shown, len(e.Sources))], ", "))
	if more := len(e.Sources) - shown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if len(e.Labels) > 0 {
		fmt.Fprintf(&b, " (labels %s)", strings.Join(e.Labels, ", "))
	}
	if e.Last != nil {
		fmt.Fprintf(&b, ": %v", e.Last)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, " (%v)", e.Cause)
	}
	return b.String()
}

// Unwrap gives ErrNotDurable, the last failure and the cause.
func (e *NotDurableError) Unwrap() []error {
	errs := []error{ErrNotDurable}
	if e.Last != nil {
		errs = append(errs, e.Last)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return errs
}

// PanicError is a panic of the target, of a Done, of Seal or of the flusher itself, which ended the run.
type PanicError struct {
	Value any
	Stack []byte
}

// Error carries the stack: a panic is a bug, and this is all that is left of it.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic in the flusher: %v\n%s", e.Value, e.Stack)
}

// Unwrap gives the value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// innermost follows Unwrap to the cause that wraps nothing further; of several joined causes the first.
func innermost(err error) error {
	for {
		switch x := err.(type) { //nolint:errorlint // walks the chain itself
		case interface{ Unwrap() error }:
			next := x.Unwrap()
			if next == nil {
				return err
			}
			err = next
		case interface{ Unwrap() []error }:
			all := x.Unwrap()
			if len(all) == 0 || all[0] == nil {
				return err
			}
			err = all[0]
		default:
			return err
		}
	}
}
