// Package discovery finds out which topics and partitions exist, and can do no harm while it fails.
//
// A [Discoverer] asks brokers for metadata over connections of its own, one round at a time: every known and every configured broker is a
// candidate, each gets one bounded try, the next one starts when a try fails or takes long, the first good answer wins and one budget is
// around everything. It does not lean on the client's retries, which cost twice the timeout for one silent broker and give up while
// live brokers remain. A circuit breaker spaces the rounds out while none succeeds.
//
// What comes out is a [Change]: an immutable [Snapshot] and the difference to the one before. Growth is believed at once. Anything that
// would take something away (a topic, a partition, everything) or turn it into something else (a re-created topic) may be a stale broker's
// answer and is believed only after several rounds agree, answered by different brokers where there are several. An answer from another
// cluster is an error, always.
//
// Contract: nothing here ends or stops anything. [Discoverer.First] returns an error at start-up if trying further is useless; after that
// [Discoverer.Run] only reports. Consumption must not depend on a round's success.
package discovery
