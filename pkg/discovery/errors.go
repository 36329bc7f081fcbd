package discovery

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

var (
	// ErrDenied is wrapped where brokers refuse who we are or what we may see: SASL, TLS verification, topic authorization. Retrying cannot
	// help until somebody changes something.
	ErrDenied = errors.New("denied")
	// ErrUnknownTopic is wrapped where a configured topic does not exist.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrOtherCluster is wrapped where a broker belongs to another cluster than the one pinned.
	ErrOtherCluster = errors.New("broker of another cluster")
	// ErrUnconfirmed is wrapped where an answer was too suspicious to be the first.
	ErrUnconfirmed = errors.New("answer not confirmed yet")
	// errEnded is a round that was cancelled from outside, which says nothing about brokers.
	errEnded = errors.New("discovery was ended")
	// errNoAnswer stands for all kinds of time-outs in messages.
	errNoAnswer = errors.New("no answer in time")
	// errRunning is a second First or Run at the same time.
	errRunning = errors.New("discovery is already running")
)

// Permanent says whether trying again is useless until somebody changes something.
func Permanent(err error) bool { return errors.Is(err, ErrDenied) || errors.Is(err, ErrUnknownTopic) }

// TopicsError says which topics an [ErrDenied] or [ErrUnknownTopic] is about.
type TopicsError struct {
	Topics []string
	Err    error
}

// Error names the topics.
func (e *TopicsError) Error() string {
	return fmt.Sprintf("%v: %s", e.Err, strings.Join(e.Topics, ", "))
}

// Unwrap returns what is wrong with them.
func (e *TopicsError) Unwrap() error { return e.Err }

// Cause is what one broker did in a round that failed.
type Cause struct {
	// Broker is the address that was tried, or the name that could not be resolved.
	Broker  string
	Elapsed time.Duration
	Err     error
}

// RoundError says that no broker gave a good answer.
type RoundError struct {
	Causes          []Cause // in the order in which they failed
	Elapsed, Budget time.Duration
	// ctx is context.DeadlineExceeded when the budget ran out.
	ctx error
}

// Error names the first few brokers and their innermost causes.
func (e *RoundError) Error() string {
	const most = 4
	var b strings.Builder
	fmt.Fprintf(&b, "no good answer from %d brokers in %s (budget %s)", len(e.Causes), e.Elapsed.Round(time.Millisecond), e.Budget)
	for i, c := range e.Causes {
		if i == most {
			fmt.Fprintf(&b, "; and %d more", len(e.Causes)-most)
			break
		}
		fmt.Fprintf(&b, "; %s: %v", c.Broker, c.Err)
	}
	return b.String()
}

// Unwrap returns every broker's error, and context.DeadlineExceeded if the budget ran out.
func (e *RoundError) Unwrap() []error {
	var errs []error
	for _, c := range e.Causes {
		errs = append(errs, c.Err)
	}
	if e.ctx != nil {
		errs = append(errs, e.ctx)
	}
	return errs
}

// worst is the cause to put first in a log line: a refusal if there is one, else the last one.
func (e *RoundError) worst() Cause {
	for _, c := range e.Causes {
		if errors.Is(c.Err, ErrDenied) {
			return c
		}
	}
	if len(e.Causes) == 0 {
		return Cause{Broker: "none", Err: errors.New("no broker was tried")}
	}
	return e.Causes[len(e.Causes)-1]
}

// tryError is how one try of one broker failed: in which phase, and why.
type tryError struct {
	phase string
	err   error
}

// Error gives the phase and the innermost cause: the layers between are the client's and say nothing.
func (e *tryError) Error() string {
	return e.phase + ": " + innermost(e.err).Error()
}

// Unwrap keeps the whole chain for errors.Is.
func (e *tryError) Unwrap() error { return e.err }

// innermost follows the chain to its end, the first branch where it forks, and gives a time-out its name.
func innermost(err error) error {
	for {
		var next error
		switch x := err.(type) { //nolint:errorlint // walking the chain itself
		case interface{ Unwrap() error }:
			next = x.Unwrap()
		case interface{ Unwrap() []error }:
			if errs := x.Unwrap(); len(errs) > 0 {
				next = errs[0]
			}
		}
		if next == nil {
			break
		}
		err = next
	}
	var t interface{ Timeout() bool }
	if errors.As(err, &t) && t.Timeout() { // "context deadline exceeded" or "i/o timeout", whichever clock was first
		return errNoAnswer
	}
	return err
}

// denied classifies the error of a try.
func denied(err error) bool {
	var cert *tls.CertificateVerificationError
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) ||
		errors.Is(err, kerr.IllegalSaslState) || errors.Is(err, kerr.ClusterAuthorizationFailed) ||
		errors.Is(err, kerr.TopicAuthorizationFailed) || errors.As(err, &cert)
}
