// Package sink collects sealed batches of all partitions into loads and says when each is durable.
package sink
