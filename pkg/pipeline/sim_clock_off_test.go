//go:build !synctests

package pipeline

// clockRuns: without the build tag a goroutine that waits for a mutex of the Kafka client can stop the clock of a bubble for ever.
const clockRuns = false
