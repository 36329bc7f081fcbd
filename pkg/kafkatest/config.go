package kafkatest

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Options of a real [Cluster]. The zero value is a three-broker cluster.
type Options struct {
	// Brokers is the number of combined broker and controller processes; 3 if 0. With fewer than three, replication factors shrink with it and
	// a killed node may take the controller quorum with it.
	Brokers int
	// Dir is where data and logs live. Empty: a temporary directory that Close removes.
	Dir string
	// Properties are added to every node's server.properties and win over the defaults here.
	Properties map[string]string
	// Client is added to the clients this package uses itself, for clusters that Properties make ask for credentials.
	Client []kgo.Opt
	// HeapMiB is each process's -Xmx; 256 if 0.
	HeapMiB int
	// StartTimeout bounds StartCluster (without Maven's first download) and how long a process is waited for after a signal; 90 s if 0.
	StartTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Brokers <= 0 {
		o.Brokers = 3
	}
	if o.HeapMiB <= 0 {
		o.HeapMiB = 256
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = 90 * time.Second
	}
	return o
}

// defaults are the broker settings that make a cluster small and quick to notice a dead node.
func defaults(brokers int) map[string]string {
	rf := strconv.Itoa(min(3, brokers))
	isr := strconv.Itoa(max(1, min(3, brokers)-1))
	return map[string]string{
		"process.roles":                  "broker,controller",
		"listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "BROKER",

		// Noticing and electing. Not tighter: on two busy cores a JVM pauses for a second now and then, and a
		// flapping cluster tests nothing.
		"broker.session.timeout.ms":             "3000",
		"broker.heartbeat.interval.ms":          "500",
		"controller.quorum.fetch.timeout.ms":    "1500",
		"controller.quorum.election.timeout.ms": "1000",
		"replica.lag.time.max.ms":               "4000",
		"replica.fetch.wait.max.ms":             "200",
		"replica.socket.timeout.ms":             "5000",
		"auto.leader.rebalance.enable":          "false", // leaders move when a test says so
		"unclean.leader.election.enable":        "false",

		// Groups.
		"group.initial.rebalance.delay.ms":         "0",
		"group.min.session.timeout.ms":             "1000",
		"group.consumer.min.session.timeout.ms":    "3000",
		"group.consumer.session.timeout.ms":        "12000",
		"group.consumer.min.heartbeat.interval.ms": "500",
		"group.consumer.heartbeat.interval.ms":     "1000",

		// Small.
		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       rf,
		"offsets.topic.num.partitions":                     "4",
		"offsets.topic.replication.factor":                 rf,
		"transaction.state.log.num.partitions":             "4",
		"transaction.state.log.replication.factor":         rf,
		"transaction.state.log.min.isr":                    isr,
		"share.coordinator.state.topic.num.partitions":     "4",
		"share.coordinator.state.topic.replication.factor": rf,
		"share.coordinator.state.topic.min.isr":            isr,
		"log.segment.bytes":                                "33554432",
		"log.index.size.max.bytes":                         "1048576",
		"log.cleaner.dedupe.buffer.size":                   "8388608",
		"num.network.threads":                              "2",
		"num.io.threads":                                   "2",
		"background.threads":                               "2",
		"num.recovery.threads.per.data.dir":                "1",
		"offsets.load.buffer.size":                         "1048576",
	}
}

// properties writes a server.properties file, sorted so that two of them can be compared.
func properties(m map[string]string) []byte {
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(m)) {
		// Paths are the only values that could need escaping, and only on systems with backslashes.
		fmt.Fprintf(&b, "%s=%s\n", k, strings.ReplaceAll(m[k], `\`, `\\`))
	}
	return b.Bytes()
}

// newClusterID makes a random id in Kafka's own form: 16 bytes, URL-safe base64 without padding, no leading dash (the tools would take it for
// an option).
func newClusterID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	b[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(b[:])
}
