package config

import "time"

// Config is the whole configuration of one worker, checked and ready to use.
//
// The tags of its groups mean: env (the name), envDefault, required, secret
// (also readable from the file named by <name>_FILE), min and max, oneof (the
// words allowed), zero (a word that means 0), format (what is allowed, where
// the type does not say it) and doc, in which 'quotes' become code.
type Config struct {
	Kafka        Kafka      `group:"Kafka"`
	KafkaTLS     TLS        `group:"Kafka TLS" envPrefix:"KAFKA_TLS_" about:"Connections to the brokers are plain unless KAFKA_TLS_ENABLED is true."`
	KafkaSASL    SASL       `group:"Kafka SASL" about:"How the worker proves who it is to the brokers. Without a mechanism it does not."`
	Discovery    Discovery  `group:"Discovery" about:"Which topics and partitions exist is found out beside consumption and never stops it."`
	Event        Event      `group:"Events"`
	Aggregate    Aggregate  `group:"Aggregation" about:"Changing a setting of this group changes what totals mean; see PROGRAM_CHANGE."`
	StarRocks    StarRocks  `group:"StarRocks"`
	StarRocksTLS TLS        `group:"StarRocks TLS" envPrefix:"STARROCKS_TLS_" about:"STARROCKS_TLS_ENABLED is about the MySQL connections. The HTTP addresses say https:// themselves, and the files below serve both."`
	Table        Table      `group:"Table"`
	Load         Loads      `group:"Loads"`
	Checkpoint   Checkpoint `group:"Checkpoint"`
	DeadLetter   DeadLetter `group:"Dead letters"`
	Process      Process    `group:"Process"`

	// Worker is this process's name in load labels, log lines and the status
	// page: the host name (in Kubernetes the pod's), reduced to letters,
	// digits, '-' and '_'. It is no setting and nothing depends on it for
	// correctness.
	Worker string
	// Warnings are remarks on settings that are allowed but probably not
	// meant, one sentence or two each, in no need of an answer.
	Warnings []string

	raw map[string]rawValue // what Load used, by setting name
}

// Kafka says what is read and how the group works together.
type Kafka struct {
	Brokers       Addresses     `env:"KAFKA_BROKERS" required:"true" doc:"Addresses of some brokers; the others are found through them. Give at least two, better all."`
	Topics        Topics        `env:"KAFKA_TOPICS" required:"true" doc:"The topics to read: their names, or one '/regular expression/' that must match the whole name."`
	TopicsExclude Topics        `env:"KAFKA_TOPICS_EXCLUDE" doc:"Topics not to read although KAFKA_TOPICS matches them."`
	Group         string        `env:"KAFKA_GROUP" required:"true" doc:"The consumer group. All workers of one deployment share it; two deployments never do."`
	Start         Start         `env:"KAFKA_START" envDefault:"earliest" doc:"Where to begin on the very first start, when neither the table nor the group knows a position. 'group' means the committed offset, else the earliest. Partitions added later are always read from their beginning."`
	Stop          Stop          `env:"KAFKA_STOP" doc:"Ends the worker there: a bounded run, which exits 0 only when everything up to that point is durable. Without it the worker runs until it is stopped."`
	OffsetReset   string        `env:"KAFKA_OFFSET_RESET" envDefault:"earliest" oneof:"earliest latest fail" doc:"What to do when retention has removed records that were not read yet: go on at the log start, at its end, or stop that partition. The gap is logged and counted in any case."`
	Isolation     string        `env:"KAFKA_ISOLATION" envDefault:"read_committed" oneof:"read_committed read_uncommitted" doc:"Whether records of aborted transactions are left out."`
	NewTopic      string        `env:"KAFKA_NEW_TOPIC" envDefault:"refuse" oneof:"refuse add" doc:"What to do at start when the table holds rows of a topic of the same name but another topic id. Use 'add' only when the topic was re-created empty; a migrated or mirrored topic would be counted twice."`
	GroupProtocol string        `env:"KAFKA_GROUP_PROTOCOL" envDefault:"classic" oneof:"classic consumer" doc:"The group protocol: 'classic' (cooperative-sticky) works everywhere, 'consumer' (KIP-848) needs Kafka 4.0 or later."`
	Session       time.Duration `env:"KAFKA_SESSION_TIMEOUT" envDefault:"12s" min:"6s" max:"30m" doc:"After how long without a heartbeat a worker is taken for dead and its partitions move. Raise it if pauses of the machine cause rebalances. With the 'consumer' protocol the broker decides."`
	InstanceID    string        `env:"KAFKA_INSTANCE_ID" doc:"Static membership: a restart within the session timeout keeps its partitions. Only where names are stable and unique (a StatefulSet), never in a Deployment."`
}

// SASL is how the worker authenticates to the brokers.
type SASL struct {
	Mechanism          string `env:"KAFKA_SASL_MECHANISM" oneof:"PLAIN SCRAM-SHA-256 SCRAM-SHA-512 OAUTHBEARER AWS_MSK_IAM" doc:"The mechanism the brokers expect."`
	Username           string `env:"KAFKA_SASL_USERNAME" doc:"The user, for PLAIN and SCRAM."`
	Password           Secret `env:"KAFKA_SASL_PASSWORD" doc:"The password, for PLAIN and SCRAM."`
	Token              Secret `env:"KAFKA_SASL_TOKEN" doc:"The token, for OAUTHBEARER. From a file it is read again for every new connection, so a rotated token needs no restart."`
	AWSAccessKeyID     string `env:"KAFKA_SASL_AWS_ACCESS_KEY_ID" doc:"The access key, for AWS_MSK_IAM. Without it the usual AWS credential chain is used (environment, web identity, instance role)."`
	AWSSecretAccessKey Secret `env:"KAFKA_SASL_AWS_SECRET_ACCESS_KEY" doc:"The secret that belongs to the access key."`
	AWSSessionToken    Secret `env:"KAFKA_SASL_AWS_SESSION_TOKEN" doc:"The session token, if the access key is a temporary one."`
	AWSRegion          string `env:"KAFKA_SASL_AWS_REGION" doc:"The region, where the AWS credential chain does not find it by itself."`
}

// Discovery is the budget of finding out which partitions exist.
type Discovery struct {
	Interval        time.Duration `env:"DISCOVERY_INTERVAL" envDefault:"30s" min:"100ms" max:"1h" doc:"How often topics and partitions are looked up (with some jitter)."`
	Timeout         time.Duration `env:"DISCOVERY_TIMEOUT" envDefault:"10s" min:"100ms" max:"10m" doc:"Limit of one whole round, over all brokers tried."`
	RequestTimeout  time.Duration `env:"DISCOVERY_REQUEST_TIMEOUT" envDefault:"3s" min:"50ms" max:"5m" doc:"Limit of one try at one broker, connecting included."`
	BreakerFailures int           `env:"DISCOVERY_BREAKER_FAILURES" envDefault:"3" min:"1" max:"1000" doc:"After how many failed rounds in a row rounds are suspended."`
	BreakerCooldown time.Duration `env:"DISCOVERY_BREAKER_COOLDOWN" envDefault:"30s" min:"100ms" max:"1h" doc:"For how long they are suspended before one round probes again."`
}

// Event says which time an event has.
type Event struct {
	TimeField  string     `env:"EVENT_TIME_FIELD" format:"a path like ts or meta.ts" doc:"Path of the field with the event time. Without it the time of the Kafka record counts."`
	TimeFormat TimeFormat `env:"EVENT_TIME_FORMAT" envDefault:"unix_ms" doc:"How that field is written. A Go layout shows the reference time, as in '2006-01-02 15:04:05'; without a zone in it, times are in AGGREGATE_TIMEZONE."`
}

// Aggregate says what is counted.
type Aggregate struct {
	Dimensions      Dimensions    `env:"AGGREGATE_DIMENSIONS" doc:"The dimensions beside the day, as fields of the event: 'platform,channel', or 'os=device.os' to name one by its path. A missing field counts as the empty string."`
	MaxKeys         int           `env:"AGGREGATE_MAX_KEYS" envDefault:"100000" min:"1" max:"100000000" doc:"How many combinations of dimensions one partition may have per day; further ones fold into '__other__'. Guards memory against a field that is no dimension."`
	Measures        Measures      `env:"AGGREGATE_MEASURES" envDefault:"uv=distinct(user_id),pv=count" doc:"What is computed per day and dimensions, as 'name=kind'. 'distinct' takes integers (as numbers or as text), 'distinct_hash' any text; 'sum(f,2)' keeps two decimals, scaled by 100."`
	TimeZone        TimeZone      `env:"AGGREGATE_TIMEZONE" envDefault:"UTC" doc:"The time zone whose calendar days are counted. The zone of the process is never used."`
	AllowedLateness time.Duration `env:"ALLOWED_LATENESS" envDefault:"72h" min:"0s" max:"8760h" doc:"How far an event may lie behind the latest one of its partition and still be counted. Longer means more days to restore at a start."`
	MaxFutureSkew   time.Duration `env:"MAX_FUTURE_SKEW" envDefault:"1h" min:"0s" max:"720h" doc:"How far an event may lie ahead of its record and the wall clock. Events beyond are refused, so one wrong clock cannot make all others late."`
}

// StarRocks says where the table is.
type StarRocks struct {
	HTTP     URLs      `env:"STARROCKS_HTTP" required:"true" doc:"HTTP addresses of the FEs, for Stream Load. Several are used in turn."`
	MySQL    Addresses `env:"STARROCKS_MYSQL" required:"true" doc:"MySQL addresses of the FEs, for table work and restoring."`
	User     string    `env:"STARROCKS_USER" required:"true" doc:"The user. It needs SELECT and INSERT on the table, and CREATE TABLE, CREATE VIEW and ALTER with 'TABLE_MODE=create'."`
	Password Secret    `env:"STARROCKS_PASSWORD" doc:"Its password. May be empty."`
	Database string    `env:"STARROCKS_DATABASE" required:"true" format:"an identifier" doc:"The database. With 'TABLE_MODE=create' it is created if missing, otherwise it must exist."`
	Table    string    `env:"STARROCKS_TABLE" required:"true" format:"an identifier" doc:"The table the loads go to."`
	View     string    `env:"STARROCKS_VIEW" show:"<table>_view" format:"an identifier, or none" doc:"The view for readers, which adds up the rows of all sources. 'none' for no view."`
	// PlainRedirect has its name beside those of TLS, where people look for it.
	PlainRedirect bool `env:"STARROCKS_TLS_ALLOW_PLAIN_REDIRECT" envDefault:"false" doc:"Let a load that reached an FE by https go on to a BE by http. FEs redirect to http whatever the client came by, so password and data then travel in clear text from there. Without it such a redirect is an error."`
}

// Table says what the worker may do to the table's shape.
type Table struct {
	Mode          string `env:"TABLE_MODE" envDefault:"create" oneof:"create verify none" doc:"'create' makes what is missing and verifies the rest, 'verify' changes nothing, 'none' does not look."`
	Buckets       int    `env:"TABLE_BUCKETS" envDefault:"auto" zero:"auto" min:"1" max:"10000" doc:"Hash buckets per day, when the table is created."`
	Replication   int    `env:"TABLE_REPLICATION" envDefault:"server" zero:"server" min:"1" max:"100" doc:"Copies of each tablet, when the table is created. 'server' leaves it to StarRocks."`
	RetentionDays int    `env:"TABLE_RETENTION_DAYS" zero:"none" min:"1" max:"36500" doc:"How many days StarRocks keeps, when the table is created. Must be longer than events may be late."`
}

// Loads is how often and how much is loaded.
type Loads struct {
	FlushInterval  time.Duration `env:"FLUSH_INTERVAL" envDefault:"10s" min:"100ms" max:"1h" doc:"How often what was counted is loaded: how fresh the table is, against the number of versions StarRocks has to merge. Widens by itself while StarRocks asks for it."`
	FlushMaxBytes  Bytes         `env:"FLUSH_MAX_BYTES" envDefault:"64MiB" min:"1KiB" max:"95MiB" doc:"The largest body of one load. StarRocks takes no more than 100 MiB of JSON."`
	BufferMaxBytes Bytes         `env:"BUFFER_MAX_BYTES" envDefault:"512MiB" min:"64KiB" max:"1TiB" doc:"Memory for everything counted and not yet durable. When it is full, reading pauses. Keep it well below the memory limit of the container."`
	Compression    string        `env:"LOAD_COMPRESSION" envDefault:"none" oneof:"none gzip zstd lz4_frame" doc:"How loads are compressed on their way, for less traffic and more CPU of the worker. StarRocks reads it since 3.2.7; an older one is sent loads as they are."`
	Timeout        time.Duration `env:"LOAD_TIMEOUT" envDefault:"20s" min:"1s" max:"1h" doc:"After how long StarRocks gives a load up (its 'timeout' header). The worker itself waits a little longer."`
}

// Checkpoint is what the worker continues from.
type Checkpoint struct {
	Store         Store  `env:"CHECKPOINT_STORE" envDefault:"starrocks" doc:"Where totals are restored from: the table itself, or a local directory for targets the worker may not read."`
	AllowEmpty    bool   `env:"CHECKPOINT_ALLOW_EMPTY" envDefault:"false" doc:"Go on when the group says rows were loaded and the table has none: it was emptied on purpose. Counting begins anew at the committed offset. Set it for one start only."`
	ProgramChange string `env:"PROGRAM_CHANGE" envDefault:"refuse" oneof:"refuse continue" doc:"What to do when settings that decide what is counted differ from those the table was filled with: stop and say what changed, or go on under the new ones from the last durable offset."`
}

// DeadLetter is what happens to records that cannot be read.
type DeadLetter struct {
	Topic    string  `env:"DEADLETTER_TOPIC" format:"a topic name" doc:"The topic for bad records, with the reason in their headers. Without it they are counted and logged."`
	MaxRatio float64 `env:"DEADLETTER_MAX_RATIO" envDefault:"0.5" min:"0" max:"1" format:"a number above 0, up to 1" doc:"If more than this share of the last 1000 records of a partition is bad or in the future, that partition stops, because the producer or the settings are wrong and not the records. '1' turns it off."`
}

// Process is about the process itself.
type Process struct {
	HTTPAddr        ListenAddr    `env:"HTTP_ADDR" envDefault:":8080" doc:"Where probes, metrics and the status page are served."`
	StartupTimeout  time.Duration `env:"STARTUP_TIMEOUT" envDefault:"0" min:"0s" max:"24h" doc:"For how long a start may wait for Kafka or StarRocks before the worker exits. '0' waits for ever, not ready. Errors that no waiting mends exit at once."`
	ShutdownTimeout time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"25s" min:"1s" max:"1h" doc:"For how long a stop may take to make durable what was counted. The grace period of the pod must be longer."`
	LogLevel        string        `env:"LOG_LEVEL" envDefault:"info" oneof:"debug info warn error" doc:"The least level that is logged."`
	LogFormat       string        `env:"LOG_FORMAT" envDefault:"json" oneof:"json console" doc:"One JSON object per line, or text for people."`
}
