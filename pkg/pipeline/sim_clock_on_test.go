//go:build synctests

package pipeline

// clockRuns says that the Kafka client's mutexes let the clock of a bubble go on.
const clockRuns = true
