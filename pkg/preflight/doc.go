// Package preflight tries everything that a worker's settings name, before the worker runs, and says of each what is wrong and what to do
// about it. It changes nothing anywhere: no record is written, no offset committed, no statement run but reads, no load sent.
//
//   - Kafka: every address of KAFKA_BROKERS (name, TCP, TLS, SASL, one answer), the addresses that brokers themselves advertise, the topics
//     and the right to read them, the group (its coordinator, its commits, the right to take part), the dead-letter topic.
//   - StarRocks: every front end over MySQL and over HTTP, the back end that a load would be sent on to, the database, the table's shape,
//     the right to read it, the view.
//
// Of several equal addresses one that fails is a warning while another works: the worker goes on with those that answer.
package preflight
