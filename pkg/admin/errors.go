package admin

import "errors"

// errNoAnswer is a question that was not answered in time.
var errNoAnswer = errors.New("no answer in time")
