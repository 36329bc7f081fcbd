// Package source reads the records of a Kafka consumer group and commits offsets.
//
// # Contract
//
// A Source owns one group consumer (franz-go). Its Run polls, and hands each partition's records to the Handler chunk by chunk, in offset
// order. It never decides what to read: a partition that is assigned stays paused until its owner has restored its totals and calls Start
// with the position to go on from. Nothing is committed but by Commit.
//
//   - A chunk begins at the position, or after it where no readable record is missing: compaction, aborted transactions. Records that
//     retention removed are an EventGap and a log that lost what was read is an EventTruncated; then the partition is not handed over any
//     more until Start is called again. The client never resets an offset by itself.
//   - Generations never repeat. Every call that names a generation which is over does nothing, or returns ErrNotAssigned.
//   - No error of the brokers, of the group or of authorization ends Run; only its context does. Errors that repeat are paced, said once
//     (Event) and ended by EventRecovered.
//   - Handler calls never overlap each other. The methods of Source may be called from any goroutine and from inside Handler calls.
//
// The goroutines: Run's own (poll), those of the client, one for a look-up of bounds while a position is out of range or a partition
// makes no progress, and one that closes a client. Run joins its own before it returns.
package source
