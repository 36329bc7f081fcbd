// Package kafkatest gives tests and scenario commands a Kafka to break.
//
// Two kinds are on offer:
//
//   - [Cluster]: Apache Kafka itself, N combined broker and controller processes in KRaft mode on loopback, from jars that Maven brings.
//     Each process can be killed, frozen, continued, restarted and moved to another address. Needs Java 17 or newer and Maven, see
//     [Available]; a test calls [SkipOrRequire] first.
//   - [Fake]: a kfake cluster with a [Proxy] in front of every broker. Brokers advertise the proxies' addresses, so each broker can refuse, drop
//     SYNs, accept and say nothing, or lose its connections, all without privileges. [FixEpochs] is applied.
//
// The core has no testing types: [StartCluster] and [StartFake] return errors. [Start] and [StartFakeT] wrap them for tests and end
// everything with the test. Broker processes also die when the process that started them does (Linux).
//
// Everything here may be called from several goroutines at once unless said otherwise, and everything that waits takes a context or has
// a deadline of its own.
package kafkatest
