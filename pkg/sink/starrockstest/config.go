package starrockstest

import (
	"net"
	"slices"
	"time"
)

// Config says how a Cluster behaves. The zero value is a usable cluster on ephemeral loopback ports with user root and
// an empty password.
type Config struct {
	// FEs is the number of frontends, at least 1. The first is the leader until SetLeader.
	FEs int
	// HTTPPort, BEPort and MySQLPort are the ports of the first FE's HTTP, the BE's HTTP and the first FE's MySQL
	// listener; further FEs count up from them. 0 asks the system for free ones (with Listen: 8030, 8040, 9030).
	HTTPPort, BEPort, MySQLPort int
	// Listen replaces net.Listen, so that the cluster runs on a virtual network. It is called with "localhost:port" for
	// an FE and "127.0.0.1:port" for the BE.
	Listen func(network, address string) (net.Listener, error)

	// Users are all who may log in; empty means root with an empty password and every privilege.
	Users []User
	// Version is what current_version() answers; default "3.3.5".
	Version string
	// Backends is the number of BEs said to be alive (one listener serves all); default 3. See SetBackends.
	Backends int
	// DefaultReplication is replication_num where a table does not say it; default 3.
	DefaultReplication int

	// FEKeepAlive makes FEs behave like those before 3.1.16/3.2.13/3.3.6: connections stay open after a 307, Expect is
	// not demanded, and what a client sends of the body is parsed as a new request and answered 401.
	FEKeepAlive bool
	// NoCompression makes loads behave as before 3.2.7: compression and Content-Encoding are not known, so that such a body is no JSON.
	NoCompression bool
	// BEContentType is the Content-Type of BE replies; default "text/html; charset=ISO-8859-1" (libevent's own).
	BEContentType string

	// PublishDelay is the time from commit to visible per table and partition; nil means none.
	PublishDelay func(table, partition string) time.Duration
	// PublishWait is how long a commit waits for the publish before it says Publish Timeout; default 45 s.
	PublishWait time.Duration
	// LabelKeep and LabelKeepNum bound how long finished transactions are remembered: by age (default 12 h) and by
	// transactions per database (default 1000).
	LabelKeep    time.Duration
	LabelKeepNum int
	// MaxRunningTxns is max_running_txn_num_per_db; default 1000.
	MaxRunningTxns int
	// DefaultTimeout is a transaction's timeout without the header; default 600 s. PreparedTimeout bounds the time in
	// PREPARED; default 24 h.
	DefaultTimeout, PreparedTimeout time.Duration
	// AllowEmptyLoad is empty_load_as_error = false.
	AllowEmptyLoad bool

	// MaxBodyBytes, MaxJSONBytes and MaxValueBytes are streaming_load_max_mb (100 GiB), streaming_load_max_batch_size_mb
	// (100 MiB) and the length of a temporary column (1048576).
	MaxBodyBytes, MaxJSONBytes, MaxValueBytes int64
	// MaxNewPartitions is auto_partition_max_creation_number_per_load; default 4096.
	MaxNewPartitions int

	// TTLInterval is dynamic_partition_check_interval_seconds, how often partition_live_number is honoured; 0 means never.
	TTLInterval time.Duration
	// AlterDuration is how long an ALTER TABLE job takes; default 0.
	AlterDuration time.Duration
	// History is the number of published loads per table that a lagging FE may be behind; default 0, which is cheaper:
	// rows are then merged in place.
	History int
}

// User is a login and what it may do.
type User struct {
	Name, Password string
	// Privileges are among Insert, Select, Create, Alter and Drop; nil means all.
	Privileges []Privilege
}

// Privilege is a right on every database.
type Privilege string

// The privileges that statements and loads ask for.
const (
	Insert Privilege = "INSERT"
	Select Privilege = "SELECT"
	Create Privilege = "CREATE"
	Alter  Privilege = "ALTER"
	Drop   Privilege = "DROP"
)

func (u User) may(p Privilege) bool { return u.Privileges == nil || slices.Contains(u.Privileges, p) }

func (c Config) withDefaults() Config {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	num := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	size := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	num(&c.FEs, 1)
	num(&c.Backends, 3)
	num(&c.DefaultReplication, 3)
	num(&c.LabelKeepNum, 1000)
	num(&c.MaxRunningTxns, 1000)
	num(&c.MaxNewPartitions, 4096)
	def(&c.PublishWait, 45*time.Second)
	def(&c.LabelKeep, 12*time.Hour)
	def(&c.DefaultTimeout, 600*time.Second)
	def(&c.PreparedTimeout, 24*time.Hour)
	size(&c.MaxBodyBytes, 102400<<20)
	size(&c.MaxJSONBytes, 100<<20)
	size(&c.MaxValueBytes, maxString)
	if c.Listen == nil {
		c.Listen = net.Listen
	} else {
		num(&c.HTTPPort, 8030)
		num(&c.BEPort, 8040)
		num(&c.MySQLPort, 9030)
	}
	if len(c.Users) == 0 {
		c.Users = []User{{Name: "root"}}
	}
	if c.Version == "" {
		c.Version = "3.3.5"
	}
	if c.BEContentType == "" {
		c.BEContentType = "text/html; charset=ISO-8859-1"
	}
	return c
}
