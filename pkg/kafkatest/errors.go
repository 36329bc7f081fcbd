package kafkatest

import "errors"

// ErrUnavailable is wrapped by what [Available] returns where real Kafka cannot be started: java or mvn is missing.
var ErrUnavailable = errors.New("real Kafka is not available here")

// errClosed is returned by operations on a cluster or proxy that was closed.
var errClosed = errors.New("closed")
