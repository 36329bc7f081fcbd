package checkpoint

import (
	"go.uber.org/zap/zapcore"

	"rollcall/pkg/aggregate"
)

// OffsetReset is what happens when retention removed records that were not read (KAFKA_OFFSET_RESET).
type OffsetReset uint8

// The policies. The zero value loses nothing without being asked to.
const (
	// ResetFail stops the partition.
	ResetFail OffsetReset = iota
	// ResetEarliest begins a new history at the log start.
	ResetEarliest
	// ResetLatest begins a new history at the log end.
	ResetLatest
)

// Commit is the group's committed offset of a partition.
type Commit struct {
	// Offset is the next offset to read.
	Offset int64
	// Metadata is what ParseMark reads.
	Metadata string
}

// Bounds are the log's: Start the first offset, High the high watermark, Stable the last stable offset (-1 if not known). They must come
// from ListOffsets, not from a fetch: only there a new leader keeps silent until its high watermark has caught up (KIP-207).
type Bounds struct {
	Start, High, Stable int64
}

// Running is an owner that is asked about: what it counts and where it has read to.
type Running struct {
	History History
	// Position is the next offset to read.
	Position int64
}

// Policy is what the operator chose.
type Policy struct {
	// AllowEmpty goes on although the table lost rows that were known loaded (CHECKPOINT_ALLOW_EMPTY).
	AllowEmpty bool
	// ProgramContinue begins a new history when the program changed (PROGRAM_CHANGE=continue).
	ProgramContinue bool
	// NewTopicAdd counts a topic of another id beside the old one (KAFKA_NEW_TOPIC=add).
	NewTopicAdd bool
	Reset       OffsetReset
}

// Input is everything Resume decides by. It holds no clock: what has been waited for is said by Reread and Settled.
type Input struct {
	Topic     string
	Partition int32
	// TopicID is Kafka's text form of the topic id, empty where brokers have none. StandIn is StandInID(cluster id): it is used without
	// topic ids and for as long as a history of it exists and none of the real id.
	TopicID, StandIn string
	// Program is aggregate.Program.ID, Target the <database>.<table>.
	Program, Target string
	// Epoch is the partition's leader epoch now, -1 if brokers do not say.
	Epoch int32
	// Commit is nil if the group has none.
	Commit *Commit
	// Histories is what Store.Progress answered.
	Histories []Progress
	// Bounds is nil while nobody could be asked.
	Bounds *Bounds
	// Diverged says that the log differs from what was read, first at Divergence (OffsetForLeaderEpoch).
	Diverged   bool
	Divergence int64
	// DataLoss says that the client reported lost data without saying where.
	DataLoss bool
	// Running is the owner in memory, nil at a (re)start. It and the divergence are given again until the decision is carried out.
	Running *Running
	// AtStart says that the worker is starting (or bounded): refusals end it.
	AtStart bool
	// TopicStarted says that some partition of the topic has a commit (of this topic id, or foreign) or rows: see Started.
	TopicStarted bool
	// Recreated says that the topic was seen to be created again while running: TopicID is the new one.
	Recreated bool
	// Retention says that the table drops days before OldestDay.
	Retention bool
	OldestDay aggregate.Day
	// Reread says that ReadAgain decisions have lasted for RereadFor.
	Reread bool
	// Settled says that T has not moved for LOAD_TIMEOUT + 30 s.
	Settled bool
	Policy  Policy
}

// Action is what to do. The zero value is invalid on purpose.
type Action uint8

const (
	// Continue the History at Position: with Keep as it is in memory, with Restore after its totals were restored, otherwise with none.
	Continue Action = iota + 1
	// NewHistory begins History at Position, its start. With Settle only after T has not moved for LOAD_TIMEOUT + 30 s, and asking again.
	NewHistory
	// ReadAgain waits a little, reads commit and store again, and asks again.
	ReadAgain
	// ResolveFirstStart asks the owner of partition 0 of a topic that nobody has begun to resolve the start of every partition without
	// a commit (Counts) by the start mode, commit them all (FirstMark) and ask again.
	ResolveFirstStart
	// AwaitFirstStart waits for the owner of partition 0 to do so and asks again.
	AwaitFirstStart
	// StopPartition leaves the partition unread: records are gone and the policy is ResetFail.
	StopPartition
	// Refuse ends a starting worker with ExitUnusable. While running the partition waits, not ready, and is asked about again.
	Refuse
)

// String names the action for logs.
func (a Action) String() string {
	switch a {
	case Continue:
		return "continue"
	case NewHistory:
		return "new history"
	case ReadAgain:
		return "read again"
	case ResolveFirstStart:
		return "resolve first start"
	case AwaitFirstStart:
		return "await first start"
	case StopPartition:
		return "stop partition"
	case Refuse:
		return "refuse"
	default:
		return "invalid"
	}
}

// Range is a run of offsets, half-open.
type Range struct{ From, To int64 }

// Len is the number of offsets in the range.
func (r Range) Len() int64 { return max(0, r.To-r.From) }

// Decision is what Resume found.
type Decision struct {
	Action Action
	// Line names the line of DESIGN §1 that decided.
	Line string
	// History and Position are for Continue and NewHistory.
	History  History
	Position int64
	// Restore: the history has rows; its totals are read before anything is counted. Table is T and Watermark W as known so far.
	Restore   bool
	Table     int64
	Watermark int64
	// Keep: the partition goes on with what it has in memory.
	Keep bool
	// Settle: the new history waits first. See Waits.
	Settle bool
	// Missing: ReadAgain waits for rows that are known loaded; Input.Reread ends it.
	Missing bool
	// DropUnsent: what is in memory and not sent was counted from records that are not in the log any more. Without it, what a running
	// partition has in memory is sealed and may still be loaded, under its own history.
	DropUnsent bool
	// Skipped is what is never read: offsets removed by retention before they were read. Truncated is what was read and is not in the
	// log any more.
	Skipped, Truncated Range
	// Overlap are other histories in the table that count offsets of this one under the same epoch (checkpoint_overlap).
	Overlap []History
	// Level and Message are for the log, once per change of Line; the message of Refuse and StopPartition names the remedy.
	Level   zapcore.Level
	Message string
	// mark is what a commit at tracked says now; pending that the group does not hold it.
	mark    Mark
	tracked int64
	pending bool
}

// Tracker starts tracking for Continue and NewHistory. For a new history its start is pending and is committed before anything is
// counted, even if that is lower than the group's present commit.
func (d Decision) Tracker() *Tracker { return NewTracker(d.tracked, d.mark, d.pending) }

// Counts reports whether the group's commit of a partition is one for the topic as it is now: foreign, or ours of this topic id (or of
// the id that stands in). "One of another topic id is no commit": such a partition is resolved at a first start as if it had none.
func Counts(topic string, partition int32, c Commit, topicID, standIn string) bool {
	m, ours, err := ParseMark(topic, partition, c.Metadata)
	return err != nil || !ours || m.History.TopicID == topicID || m.History.TopicID == standIn
}

// Started reports whether a topic has begun: whether any partition has a commit that counts or rows of the topic id. Commits are those
// of the group, Histories those of all partitions (Store.TopicProgress).
func Started(topic, topicID, standIn string, commits map[int32]Commit, histories []Progress) bool {
	for _, p := range histories {
		if id := p.History.TopicID; id == topicID || id == standIn {
			return true
		}
	}
	for partition, c := range commits {
		if Counts(topic, partition, c, topicID, standIn) {
			return true
		}
	}
	return false
}

// FirstMark is the history of a partition's first start at offset start, and what is committed at that offset.
//
//nolint:revive // the fields of a history, in its order, and the target
func FirstMark(topic string, partition int32, topicID string, epoch int32, program, target string, start int64) Mark {
	return Mark{
		History: History{Topic: topic, Partition: partition, TopicID: topicID, Start: start, Epoch: epoch, Program: program},
		Target:  target,
	}
}
