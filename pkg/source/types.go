package source

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Partition names one partition of one topic.
type Partition struct {
	Topic     string
	Partition int32
}

// Chunk is a run of records of one partition in offset order, control records included (they move the position and count nothing).
// Handing it over moves it.
type Chunk struct {
	Partition Partition
	// Generation is that of the assignment the records were fetched under (see Handler.Assigned).
	Generation uint64
	Records    []*kgo.Record
	// Bytes is the size of keys and values.
	Bytes int64
	// From is the position before the chunk, Next the one after it: chunks of one generation follow each other without a hole.
	From, Next int64
	// HighWatermark, StableOffset (last stable offset, the end for read_committed) and LogStart are the broker's as of this fetch.
	HighWatermark, StableOffset, LogStart int64
}

// Handler receives what happens to partitions. All calls come from the source's poll goroutine or from a rebalance callback, one at a
// time; none may block except Revoked, which may take up to its ctx's deadline (≤ 3 s).
type Handler interface {
	// Assigned says that the partitions are ours now. They are paused until Source.Start is called for each with the same generation,
	// which never repeats, so that work for an earlier assignment can be told from this one.
	Assigned(generation uint64, ps []Partition)
	// Revoked says that the partitions are about to be given up in an orderly way: stop, seal, hand over, commit what is durable.
	Revoked(ctx context.Context, ps []Partition)
	// Lost says that the partitions are gone: drop, commit nothing.
	Lost(ps []Partition)
	// Records hands a chunk over. The handler pauses the partition by Source.Pause if it has enough.
	Records(c Chunk)
	// Event tells of something that needs a decision or a log line; see Event.
	Event(e Event)
}

// EventKind says what an Event is about. The zero value is invalid on purpose.
type EventKind uint8

// The kinds of events.
const (
	// EventTruncated: the broker's log diverges below the position; Divergence is the first offset that differs, -1 if unknown.
	EventTruncated EventKind = iota + 1
	// EventGap: the next readable record is beyond the position since retention removed some: [From, To) are gone.
	EventGap
	// EventLeader: fetching from a partition's leader failed in a way that new metadata may cure; discovery should look soon.
	EventLeader
	// EventUnknownTopicID: the topic was deleted or re-created; the client will not recover by itself.
	EventUnknownTopicID
	// EventDenied: authorization or authentication was refused; Err says for what.
	EventDenied
	// EventGroupLost: the group session ended; the client rejoins by itself.
	EventGroupLost
	// EventStuck: a batch cannot be decoded or decompressed; the partition makes no progress. To is the offset after it, -1 if unknown.
	EventStuck
	// EventRecovered ends EventDenied, EventLeader and EventStuck for the partition.
	EventRecovered
)

// Event is something that happened to a partition (or, with an empty topic, to the whole client).
type Event struct {
	Kind       EventKind
	Partition  Partition
	Generation uint64
	From, To   int64
	Divergence int64
	Err        error
}

// Committed is a partition's committed offset as the group holds it.
type Committed struct {
	// Offset is the next offset to read.
	Offset int64
	// LeaderEpoch is -1 if none was committed.
	LeaderEpoch int32
	Metadata    string
}

// Commit is an offset to commit with its metadata. Only forward, only for the assignment it names (Generation 0: for a first start,
// where the owner of partition 0 commits the start of all partitions of the topic).
type Commit struct {
	Partition   Partition
	Generation  uint64
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// Bounds are a partition's offsets as its leader gave them: the log start, the high watermark and the last stable offset.
type Bounds struct {
	Start, High, Stable int64
	LeaderEpoch         int32
}
