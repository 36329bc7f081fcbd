package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	// ErrNotAssigned says that the generation is over: the partition was revoked, lost, or assigned anew since.
	ErrNotAssigned = errors.New("partition is not assigned under this generation")
	// ErrBehind says that a commit would have moved the committed offset of this assignment backwards. Nothing was sent for it.
	ErrBehind = errors.New("commit is behind one already made under this assignment")
	// ErrNoClient says that there is no client at the moment: Run has not begun or is over, or the client is being replaced.
	ErrNoClient = errors.New("no Kafka client at the moment")
)

// PartitionError is an error of one partition within a request for several. The methods that return several of them join them with
// errors.Join; PartitionErrors takes them apart again.
type PartitionError struct {
	Partition Partition
	Err       error
}

// Error implements error.
func (e *PartitionError) Error() string {
	return fmt.Sprintf("%s/%d: %v", e.Partition.Topic, e.Partition.Partition, e.Err)
}

// Unwrap returns the cause.
func (e *PartitionError) Unwrap() error { return e.Err }

// PartitionErrors lists the errors by partition that err carries, directly or joined. What concerns no single partition is not in it.
func PartitionErrors(err error) map[Partition]error {
	out := make(map[Partition]error)
	collectPartitionErrors(err, out)
	return out
}

func collectPartitionErrors(err error, out map[Partition]error) {
	if err == nil {
		return
	}
	if pe, ok := err.(*PartitionError); ok { //nolint:errorlint // the tree is walked by hand
		out[pe.Partition] = pe.Err
		return
	}
	switch u := err.(type) { //nolint:errorlint // the tree is walked by hand
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			collectPartitionErrors(e, out)
		}
	case interface{ Unwrap() error }:
		collectPartitionErrors(u.Unwrap(), out)
	}
}

// pollClass is what an error from a poll asks for.
type pollClass uint8

const (
	classContext    pollClass = iota + 1 // our own poll context ended
	classClosed                          // the client is closed
	classGroup                           // the group session ended; the client joins again by itself
	classDataLoss                        // the log diverges below the position
	classOutOfRange                      // the position is outside the log
	classTopicID                         // the topic was deleted or created anew
	classDenied                          // authorization or authentication
	classStuck                           // a batch cannot be read
	classLeader                          // anything else the broker says
)

// classify puts an error from a poll into its class. The order matters: a group session that ended for lack of authorization is denied.
func classify(err error) pollClass {
	var (
		dataLoss *kgo.ErrDataLoss
		group    *kgo.ErrGroupSession
		broker   *kerr.Error
	)
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
		return classClosed
	case isDenied(err):
		return classDenied
	case errors.As(err, &group):
		return classGroup
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return classContext
	case errors.As(err, &dataLoss):
		return classDataLoss
	case errors.Is(err, kerr.OffsetOutOfRange):
		return classOutOfRange
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return classTopicID
	case errors.As(err, &broker), kgo.IsRetryableBrokerErr(err):
		return classLeader
	}
	return classStuck
}

// isDenied reports whether err is a refusal that only an operator can lift.
func isDenied(err error) bool {
	for _, e := range []error{
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
