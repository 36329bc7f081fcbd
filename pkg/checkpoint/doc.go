// Package checkpoint says where the owner of a partition goes on: which history it continues or begins, at which offset, with which
// totals, and what it writes into Kafka's committed offset. It reads what the store (the StarRocks table, or a local directory) holds and
// decides; it never guesses: what cannot be learnt is asked again, what would count twice or lose records is refused.
//
// The contract, in the order an owner goes through it:
//
//  1. Store.Progress lists the histories of the partition that have rows; Kafka gives the committed offset and the log's bounds.
//  2. Resume, a pure function, turns these into one Decision: continue a history, begin one, read again, wait, stop or refuse.
//     Decisions that need waiting (re-reading, settling) are timed by Waits.
//  3. A Decision with Restore set is followed by Restorer.Restore for its history, whose Progress replaces the one of step 1; Resume is
//     asked once more with it, and if the history is still the same its position is where reading goes on.
//  4. A new history commits Decision.Mark at Decision.Position before anything is counted. This commit may be lower than the group's
//     present one.
//  5. Tracker turns what the sink completes into the next commit: forward only, coalesced.
//
// Rules that hold throughout (DESIGN §1): the live history of a partition is the greatest (epoch, start) among the store's and the
// commit's; rows with next offset 0 are not rows; a commit of another topic id or of a lesser history is no commit; a commit without our
// metadata is foreign.
//
// Limits: a new history trusts that no process of the old one wakes up after the wait (Waits). A truncation that nobody saw is noticed by
// the log end or by the leader epoch of the commit; if the commit lagged behind T by more than was truncated, and the log has grown beyond T
// again, it is not. The directory of File knows of a load only after its Save.
//
// Everything but the stores and Restorer is free of clocks, goroutines and I/O.
package checkpoint
