package checkpoint

import (
	"errors"
	"fmt"
)

// ExitUnusable is the exit code for a checkpoint that cannot be used (DESIGN §6).
const ExitUnusable = 12

// UnusableError says that the checkpoint is there but cannot be used: asking again gives the same answer until somebody acts. At start
// it ends the worker with ExitUnusable; while running the partition waits. Every other error of a Store is worth another try.
type UnusableError struct {
	// What names the thing that is unusable: a file, a row, a commit.
	What string
	// Remedy says what somebody may do about it.
	Remedy string
	Err    error
}

func (e *UnusableError) Error() string {
	s := "checkpoint unusable: " + e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// Unwrap gives the cause.
func (e *UnusableError) Unwrap() error { return e.Err }

// NewerFormatError says that something was written by a later version of rollcall.
type NewerFormatError struct {
	// Where names the commit or file.
	Where      string
	Got, Known int
}

func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("%s is of format %d; this version knows %d", e.Where, e.Got, e.Known)
}

// IsPermanent reports whether asking the store again is pointless until somebody acts.
func IsPermanent(err error) bool {
	var unusable *UnusableError
	var newer *NewerFormatError
	return errors.As(err, &unusable) || errors.As(err, &newer)
}

// ErrStale is returned by a restore whose read was older than what was known before: a lagging front end answered. It is worth another
// try.
var ErrStale = errors.New("the read is older than what was known: a lagging front end answered")
