// Package pipeline wires the parts of the worker and owns its run: which goroutines there are, in which order they start and stop, and
// what an exit means.
//
// Who owns what:
//   - source.Source owns the Kafka client and its poll goroutine. It calls owners (the Handler) from there; no call blocks but Revoked.
//   - owner: one goroutine per assigned partition. It restores, applies chunks, seals. Nobody else touches its aggregator.
//   - sink.Flusher owns every sealed batch until its outcome is known and calls back with a Completion.
//   - committer: one goroutine that turns completions into offset commits, forward only and only for the assignment they belong to.
//   - auxiliary loops (pressure, completeness, overlap, table compare, discovery) each have a deadline for every call and can only change a
//     metric, a pause or readiness.
//
// A record's way is: poll → owner's queue → Apply → Seal → Batch → load → Completion → commit. Whatever breaks before the Completion
// leaves the offset where it was, and the record is read again.
package pipeline
