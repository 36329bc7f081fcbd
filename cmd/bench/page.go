package main

import (
	"fmt"
	"io"
	"strings"
)

// page writes docs/benchmarks.md.
func (r report) page(out io.Writer) {
	f := r.flags
	fmt.Fprint(out, "# Benchmarks\n\nWritten by `bench -markdown`; do not edit.\n")
	fmt.Fprintf(out, "\nMachine: %s. It runs the broker, the stand-in StarRocks and the consumer at once.\n", r.machine)
	if len(r.speeds) > 0 {
		fmt.Fprintf(out, `
## Speed against a raw consumer

%s events of about 240 bytes by %s users over two days and 12 combinations of dimensions, in %d partitions of one kfake broker (one
process), batches of at most %d KiB. *raw* is a franz-go group consumer with the worker's own client options and garbage collection
(cooperative-sticky, read committed, control records kept, fetches of 4 MiB and 512 KiB per partition, GOGC=400) that looks at each
record's first byte, last byte and offset; the worker counts the limits of fetches after unpacking, to save memory. *worker* is the real binary with five measures (distinct, count, sum, min, max), loading into the
stand-in once a second; after each run its table is read by SQL and must equal the truth in every row. The two take turns, %d runs each.

%s
- events/s and MB/s: from when every partition is assigned and restored to the last record counted; starting and stopping are left out.
- µs CPU/event: user and system time of the whole process, starting, loading and stopping included, divided by the events. It depends
  far less than events/s on what else the machine does: compare that one.
- cores of others: what programs that have nothing to do with the benchmark took meanwhile (median). The raw consumer hardly uses more than one
  core with its broker, the worker uses all it is given: where others took one, the ratio is too low and no verdict on the worker.
- ratio: events/s of the worker to those of the raw consumer that ran just before it, the median of the pairs.
`, thousands(float64(f.events)), thousands(float64(f.users)), partitions, f.batch>>10, f.runs, markdown(r.speedRows()))
	}
	if len(r.memories) > 0 {
		fmt.Fprintf(out, `
## Memory for many users

Every user is seen for the first time within one flush interval, the worst case for memory: %s distinct users of one day in 100
combinations of dimensions, each user in one of them and in one partition, twice; default settings. Peak RSS is the kernel's VmHWM. With
*distinct* ids are integers spread thinly (one in 83); with *distinct_hash* the same are hashed to 64 bits, which no bitmap compresses.

%s`, thousands(float64(f.memoryUsers)), markdown(r.memoryRows()))
	}
	if s := r.starts; s != nil {
		fmt.Fprintf(out, `
## Start and idle

A worker whose %s keys are in the table starts with one new record in each of %d partitions, %d times: from exec to records counted, as its metrics show them
(asked every %d ms). In between it finds brokers and table, joins the group, reads commits and histories, restores the totals and fetches. Idle memory is VmRSS after
%d s without records, with all partitions assigned. Real brokers let the first member of an empty group wait first, 3 s by default (group.initial.rebalance.delay.ms); kfake does not.
Most of the time to the first record is the stand-in's, which reads its table row by row for every question: StarRocks answers sooner.

%s`, thousands(float64(s.keys)), startPartitions, len(s.starts), startPoll.Milliseconds(), int(idleAfter.Seconds()), markdown(r.startRows()))
	}
	if o := r.othersCores(); o >= 0.2 {
		fmt.Fprintf(out, "\n**Other programs took up to %.1f of the %d cores during these runs. Take ratios for a lower bound and times for an upper one, and measure again on a quiet machine.**\n",
			o, r.machine.cores)
	}
	fmt.Fprintf(out, `
## Repeat it

    make bench
    go run ./cmd/bench -worker bin/rollcall %s-markdown > docs/benchmarks.md

It exits other than 0 if a table is wrong, if the worker needs more than `+"`-max-rss`"+` MiB for the users above, more than `+"`-max-idle`"+` MiB idle
or more than `+"`-max-start`"+` to its first record, or if the ratio is below `+"`-min-ratio`"+` where one is given. The figures are of one machine whose cores are shared by all the processes; where they are
shared with others too, make more runs (`+"`-runs 9`"+`) and trust CPU per event most. A broker that runs elsewhere leaves more
of the machine to the worker, so rates grow with cores; CPU per event is what to plan with. The stand-in is not StarRocks: these figures say nothing about its speed.

How long partitions stand still while brokers or StarRocks fail is measured in [faults.md](faults.md).
`, r.changed())
}

// othersCores is the most that others took in the median of any side.
func (r report) othersCores() (most float64) {
	for _, s := range r.speeds {
		most = max(most, median(s.raw, others), median(s.worker, others))
	}
	if r.starts != nil {
		most = max(most, median(r.starts.starts, otherOf))
	}
	return most * float64(r.machine.cores)
}

// changed are the flags to repeat this run with.
func (r report) changed() string {
	var b strings.Builder
	f := r.flags
	fmt.Fprintf(&b, "-events %d -users %d -runs %d ", f.events, f.users, f.runs)
	return b.String()
}
