// Package aggregate turns the events of one source into rows of day × dimensions × measures.
//
// A Program is the checked mapping from a record to a row and is immutable; its ID names everything that decides what is counted. An
// Aggregator is the running state of one source under a program: a state machine without goroutine, clock or I/O, owned by one
// goroutine. It takes records in offset order (Apply, Skip), hands over what changed (Seal) and starts from what a table holds
// (Restore). The same records after the same state always give the same rows, whatever the time, the process or the machine, with one
// exception: the wall clock may refuse an event that is ahead of it.
//
// A record meets, in this order: its offset (reread), its text (unparsable, not_an_object), its dimensions and then its measures in
// the order of the configuration (wrong_type, negative_sum, too_many_decimals), its time (missing_time, bad_time, time_before_2000),
// the watermark (late) and the clock (future). Only a record that passes all of them changes a row or the watermark, and it changes
// them as a whole.
//
// Every measure is a join-semilattice (see Kind and MergeRow), which is what makes loads repeatable.
package aggregate
