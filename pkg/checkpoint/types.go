package checkpoint

import (
	"context"

	"rollcall/pkg/aggregate"
)

// History names one interval of one Kafka partition of one incarnation of a topic, counted in offset order by one program. Its String
// is the value of the table's rollcall_source column: <topic>/<partition>/<topic id>/<start>.<epoch>-<program>.
type History struct {
	Topic     string
	Partition int32
	// TopicID is Kafka's text form (URL-safe base64 without padding), or ~<cluster id> where brokers have none.
	TopicID string
	// Start is the first offset of the interval, Epoch the leader epoch under which it began.
	Start int64
	Epoch int32
	// Program is aggregate.Program.ID.
	Program string
}

// Progress is how far one history is reflected in the store.
type Progress struct {
	History History
	// Next is T: the greatest next offset among the history's rows, always > 0 (rows with next offset 0 are not rows).
	Next int64
	// WatermarkMs is W: the greatest accepted event time, Unix ms.
	WatermarkMs int64
	// MaxDay is the greatest day of the rows that carry Next.
	MaxDay aggregate.Day
}

// Store is where an owner finds what it needs to resume. Implementations are safe for concurrent use by the owners of different
// partitions. Every call is bounded by ctx; an error means that nothing was learnt and the caller must wait and ask again, never start
// at zero.
type Store interface {
	// Progress lists every history of the partition (of any topic id and program) that has rows.
	Progress(ctx context.Context, topic string, partition int32) ([]Progress, error)
	// TopicProgress lists the histories of all partitions of the topic, as Progress does for one.
	TopicProgress(ctx context.Context, topic string) ([]Progress, error)
	// Restore reads the totals of one history for days ≥ from, in one consistent read. The Progress returned is that of the same read;
	// the caller accepts it only if it is not older than what it knew (a lagging front end may have answered).
	Restore(ctx context.Context, h History, from aggregate.Day) (aggregate.State, Progress, error)
	// Save is told of every batch that became durable, in order per history, before its offset is committed. Stores that are the table
	// itself do nothing.
	Save(ctx context.Context, h History, next int64, rows []aggregate.Row) error
	// Close releases connections and files. No call may follow.
	Close() error
}
