// Package sink collects sealed batches of all sources into loads and says when each is durable.
//
// The Flusher is a queue per source and one loop. Owners of sources hand batches over with Offer, which never blocks; at every
// flush interval, or when asked to, the loop takes the oldest unsent batch of every source that is ready, makes one load of them
// and repeats it under one label until the target has said what became of it. Meanwhile newer batches merge in the queue.
//
// What holds always (DESIGN §1):
//   - the totals of a batch travel whole, in one load, with its next offset; batches of a source merge only into its newest unsent
//     batch, and the next one is sent only when the one before is visible to readers;
//   - a load that is too big is split between sources; of a single source only bitmaps go ahead, with neutral totals and next offset
//     0, and are visible before the totals follow;
//   - a source whose dead letters are not confirmed stays out of loads (Batch.Ready), the others go;
//   - Done of every accepted batch is called exactly once, in offset order per source, with nil only after the target confirmed;
//   - nothing is dropped but by Discard, and a load that fails is repeated for as long as Run runs. Unknown is neither success nor
//     failure: the label's state is asked, and what cannot be told is sent again, which a merge makes harmless.
//
// Goroutines: Run's own, at most one for the load in flight and at most one asking for a label's state. Run joins both.
package sink
