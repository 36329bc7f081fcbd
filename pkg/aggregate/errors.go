package aggregate

import "errors"

// ErrConfig is wrapped by every error of New: the configuration cannot be used as it is.
var ErrConfig = errors.New("aggregate configuration")

// ErrState is wrapped by every error of Restore: the state does not belong to the program.
var ErrState = errors.New("aggregate state")
