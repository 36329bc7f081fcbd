// Package deadletter sends records that cannot be counted to a Kafka topic and says when the topic has them.
//
// A record is published until its topic has acknowledged it: errors are retried with a back-off for as long as the publisher runs, a
// record that is too large for the topic is cut and marked. Only then is the record's callback called without an error; the owner of
// the partition keeps its totals out of loads until that has happened (DESIGN §1 rule 6), so a record is never both skipped and lost.
package deadletter
