package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/config"
)

// least is the smallest environment that loads.
func least() map[string]string {
	return map[string]string{
		"KAFKA_BROKERS":      "k1:9092,k2:9092",
		"KAFKA_TOPICS":       "events",
		"KAFKA_GROUP":        "dau",
		"STARROCKS_HTTP":     "http://fe1:8030",
		"STARROCKS_MYSQL":    "fe1:9030",
		"STARROCKS_USER":     "rollcall",
		"STARROCKS_DATABASE": "dw",
		"STARROCKS_TABLE":    "dau",
	}
}

// files is a file system of a test.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	data, ok := f[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(data), nil
}

// load loads the least environment with NAME=value overrides.
func load(f files, overrides ...string) (*config.Config, error) {
	env := least()
	for _, o := range overrides {
		name, value, _ := strings.Cut(o, "=")
		env[name] = value
	}
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	return config.Load(environ, f.read)
}

// problems are the lines of the error, without the first.
func problems(t *testing.T, err error) []string {
	t.Helper()
	var e *config.Error
	require.ErrorAs(t, err, &e)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, len(e.Problems)+1, "one line per problem:\n%s", err)
	return lines[1:]
}

func TestDefaults(t *testing.T) {
	c, err := load(nil)
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Equal(t, config.Addresses{"k1:9092", "k2:9092"}, c.Kafka.Brokers)
	require.Equal(t, config.Start{Mode: config.ModeEarliest}, c.Kafka.Start)
	require.Equal(t, config.Stop{}, c.Kafka.Stop)
	require.Equal(t, config.Discovery{
		Interval: 30 * time.Second, Timeout: 10 * time.Second, RequestTimeout: 3 * time.Second,
		BreakerFailures: 3, BreakerCooldown: 30 * time.Second,
	}, c.Discovery)
	require.Equal(t, config.Measures{
		{Name: "uv", Kind: config.Distinct, Field: "user_id"}, {Name: "pv", Kind: config.Count},
	}, c.Aggregate.Measures)
	require.Equal(t, time.UTC, c.Aggregate.TimeZone.Location)
	require.Equal(t, config.Loads{
		FlushInterval: 10 * time.Second, FlushMaxBytes: 64 << 20, BufferMaxBytes: 512 << 20, Compression: "none", Timeout: 20 * time.Second,
	}, c.Load)
	require.Equal(t, "dau_view", c.StarRocks.View)
	require.Equal(t, config.Table{Mode: "create"}, c.Table)
	require.Equal(t, config.Checkpoint{ProgramChange: "refuse"}, c.Checkpoint)
	require.Equal(t, config.DeadLetter{MaxRatio: 0.5}, c.DeadLetter)
	require.Equal(t, config.Process{HTTPAddr: ":8080", ShutdownTimeout: 25 * time.Second, LogLevel: "info", LogFormat: "json"}, c.Process)
	require.Equal(t, "rollcall", c.Worker)
}

// TestDefaultsOfTheDesign holds names and defaults still: other people's
// manifests depend on them.
func TestDefaultsOfTheDesign(t *testing.T) {
	want := map[string]string{
		"KAFKA_BROKERS": "!", "KAFKA_TOPICS": "!", "KAFKA_GROUP": "!", "KAFKA_TOPICS_EXCLUDE": "",
		"KAFKA_START": "earliest", "KAFKA_STOP": "", "KAFKA_OFFSET_RESET": "earliest", "KAFKA_ISOLATION": "read_committed",
		"KAFKA_NEW_TOPIC": "refuse", "KAFKA_GROUP_PROTOCOL": "classic", "KAFKA_SESSION_TIMEOUT": "12s", "KAFKA_INSTANCE_ID": "",
		"KAFKA_TLS_ENABLED": "false", "KAFKA_TLS_CA_FILE": "", "KAFKA_TLS_CERT_FILE": "", "KAFKA_TLS_KEY_FILE": "", "KAFKA_TLS_SERVER_NAME": "",
		"KAFKA_SASL_MECHANISM": "", "KAFKA_SASL_USERNAME": "", "KAFKA_SASL_PASSWORD": "", "KAFKA_SASL_TOKEN": "",
		"KAFKA_SASL_AWS_ACCESS_KEY_ID": "", "KAFKA_SASL_AWS_SECRET_ACCESS_KEY": "", "KAFKA_SASL_AWS_SESSION_TOKEN": "", "KAFKA_SASL_AWS_REGION": "",
		"DISCOVERY_INTERVAL": "30s", "DISCOVERY_TIMEOUT": "10s", "DISCOVERY_REQUEST_TIMEOUT": "3s",
		"DISCOVERY_BREAKER_FAILURES": "3", "DISCOVERY_BREAKER_COOLDOWN": "30s",
		"EVENT_TIME_FIELD": "", "EVENT_TIME_FORMAT": "unix_ms",
		"AGGREGATE_DIMENSIONS": "", "AGGREGATE_MAX_KEYS": "100000", "AGGREGATE_MEASURES": "uv=distinct(user_id),pv=count", "AGGREGATE_TIMEZONE": "UTC",
		"ALLOWED_LATENESS": "72h", "MAX_FUTURE_SKEW": "1h",
		"STARROCKS_HTTP": "!", "STARROCKS_MYSQL": "!", "STARROCKS_USER": "!", "STARROCKS_PASSWORD": "", "STARROCKS_DATABASE": "!", "STARROCKS_TABLE": "!",
		"STARROCKS_VIEW":        "<table>_view",
		"STARROCKS_TLS_ENABLED": "false", "STARROCKS_TLS_CA_FILE": "", "STARROCKS_TLS_CERT_FILE": "", "STARROCKS_TLS_KEY_FILE": "", "STARROCKS_TLS_SERVER_NAME": "", "STARROCKS_TLS_ALLOW_PLAIN_REDIRECT": "false",
		"TABLE_MODE": "create", "TABLE_BUCKETS": "auto", "TABLE_REPLICATION": "server", "TABLE_RETENTION_DAYS": "",
		"FLUSH_INTERVAL": "10s", "FLUSH_MAX_BYTES": "64MiB", "BUFFER_MAX_BYTES": "512MiB", "LOAD_COMPRESSION": "none", "LOAD_TIMEOUT": "20s",
		"CHECKPOINT_STORE": "starrocks", "CHECKPOINT_ALLOW_EMPTY": "false", "PROGRAM_CHANGE": "refuse",
		"DEADLETTER_TOPIC": "", "DEADLETTER_MAX_RATIO": "0.5",
		"HTTP_ADDR": ":8080", "STARTUP_TIMEOUT": "0", "SHUTDOWN_TIMEOUT": "25s", "LOG_LEVEL": "info", "LOG_FORMAT": "json",
	}
	got := make(map[string]string)
	for _, s := range config.Describe() {
		got[s.Name] = s.Default
		if s.Required {
			got[s.Name] = "!"
		}
		require.NotEmpty(t, s.Doc, s.Name)
		require.NotEmpty(t, s.Allowed, s.Name)
		require.Zero(t, strings.Count(s.Doc, "'")%2, "quotes of %s", s.Name)
	}
	require.Equal(t, want, got)
}

func TestEverythingSet(t *testing.T) {
	c, err := load(files{"/run/secrets/pw": "s3cret\n"},
		"KAFKA_TOPICS=/events-.*/", "KAFKA_TOPICS_EXCLUDE=events-test", "KAFKA_START=timestamp:2026-01-31T00:00:00+08:00", "KAFKA_STOP=latest",
		"KAFKA_SASL_MECHANISM=scram-sha-512", "KAFKA_SASL_USERNAME=u", "KAFKA_SASL_PASSWORD_FILE=/run/secrets/pw",
		"EVENT_TIME_FIELD=meta.ts", "EVENT_TIME_FORMAT=2006-01-02 15:04:05",
		"AGGREGATE_DIMENSIONS=platform, os=device.os", "AGGREGATE_MEASURES=uv=distinct(user.id), amount = sum( amount , 2 ),lo=min(x),hi=max(x,3),d=distinct_hash(s),n=COUNT",
		"AGGREGATE_TIMEZONE=Asia/Kathmandu", "STARROCKS_HTTP=https://fe1:8443/,http://[::1]:8030", "STARROCKS_VIEW=none", "TABLE_BUCKETS=16",
		"TABLE_RETENTION_DAYS=90", "FLUSH_MAX_BYTES=10Mi", "BUFFER_MAX_BYTES=1 GB", "CHECKPOINT_STORE=file:/var/lib/rollcall", "LOG_LEVEL=WARN",
		"DEADLETTER_TOPIC=dead", "DEADLETTER_MAX_RATIO=1", "HOSTNAME=dau.worker-7d9", "KAFKA_GROUP=  dau  ", "STARTUP_TIMEOUT=",
	)
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.True(t, c.Kafka.Topics.Match("events-1"))
	require.False(t, c.Kafka.Topics.Match("old-events-1"), "a pattern matches whole names")
	require.True(t, c.Kafka.Start.At.Equal(time.Date(2026, 1, 30, 16, 0, 0, 0, time.UTC)))
	require.Equal(t, config.SCRAM512, c.KafkaSASL.Mechanism)
	require.Equal(t, "s3cret", c.KafkaSASL.Password.Value())
	require.Equal(t, "/run/secrets/pw", c.KafkaSASL.Password.File())
	require.Equal(t, config.Dimensions{{Name: "platform", Path: "platform"}, {Name: "os", Path: "device.os"}}, c.Aggregate.Dimensions)
	require.Equal(t, config.Measures{
		{Name: "uv", Kind: config.Distinct, Field: "user.id"},
		{Name: "amount", Kind: config.Sum, Field: "amount", Scale: 2},
		{Name: "lo", Kind: config.Min, Field: "x"},
		{Name: "hi", Kind: config.Max, Field: "x", Scale: 3},
		{Name: "d", Kind: config.DistinctHash, Field: "s"},
		{Name: "n", Kind: config.Count},
	}, c.Aggregate.Measures)
	require.Equal(t, "Asia/Kathmandu", c.Aggregate.TimeZone.String())
	require.Equal(t, config.URLs{"https://fe1:8443", "http://[::1]:8030"}, c.StarRocks.HTTP)
	require.Empty(t, c.StarRocks.View)
	require.Equal(t, config.Table{Mode: "create", Buckets: 16, RetentionDays: 90}, c.Table)
	require.Equal(t, config.Bytes(10<<20), c.Load.FlushMaxBytes)
	require.Equal(t, config.Bytes(1e9), c.Load.BufferMaxBytes)
	require.Equal(t, "/var/lib/rollcall", c.Checkpoint.Store.Dir)
	require.Equal(t, "warn", c.Process.LogLevel)
	require.Equal(t, "dau", c.Kafka.Group)
	require.Equal(t, "dau-worker-7d9", c.Worker)
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := config.Load([]string{"KAFKA_BROKERS=k1", "KAFKA_SESSION_TIMEOUT=3s", "TABLE_MODE=creat", "FLUSH_INTERVALL=3s"}, files{}.read)
	require.Equal(t, strings.Split(strings.TrimSpace(`
KAFKA_BROKERS: "k1" is not host:port; allowed: host:port, several by comma; write for example kafka-1:9092,kafka-2:9092 or fe-1:9030
KAFKA_TOPICS: not set; allowed: topic names by comma, or one /regular expression/; set it; there is no default
KAFKA_GROUP: not set; allowed: text; set it; there is no default
KAFKA_SESSION_TIMEOUT: "3s" is too little; allowed: a duration from 6s to 30m; write at least 6s
STARROCKS_HTTP: not set; allowed: http://host:port or https://host:port, several by comma; set it; there is no default
STARROCKS_MYSQL: not set; allowed: host:port, several by comma; set it; there is no default
STARROCKS_USER: not set; allowed: text; set it; there is no default
STARROCKS_DATABASE: not set; allowed: an identifier; set it; there is no default
STARROCKS_TABLE: not set; allowed: an identifier; set it; there is no default
TABLE_MODE: "creat"; allowed: create, verify, none; write one of these words
FLUSH_INTERVALL: there is no such setting; did you mean FLUSH_INTERVAL? Otherwise remove it
`), "\n"), trimmed(problems(t, err)))
}

func trimmed(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = strings.TrimSpace(line)
	}
	return out
}

// TestProblems has one refused value per line and what its one problem must say.
func TestProblems(t *testing.T) {
	pair := files{"/c": "x", "/k": "x", "/ca": "no certificate"}
	for _, c := range []struct{ set, want string }{
		{"KAFKA_BROKERS=a:9092,b:0", `KAFKA_BROKERS: "b:0" has a port that is not one`},
		{"KAFKA_BROKERS=a:9092,kafka://u:pw@b:9092", `KAFKA_BROKERS: "…@b:9092" has a scheme`},
		{"KAFKA_BROKERS=,", `names no address`},
		{"KAFKA_BROKERS=a b:9092", `has a host name that cannot be one`},
		{"KAFKA_TOPICS=a,b!", `KAFKA_TOPICS: "b!" is no topic name`},
		{"KAFKA_TOPICS=a,a", `"a" stands there twice`},
		{"KAFKA_TOPICS=/a(/", "does not compile: missing closing )"},
		{"KAFKA_TOPICS=/abc", "is no /regular expression/"},
		{"KAFKA_TOPICS_EXCLUDE=/ev.*/", `KAFKA_TOPICS_EXCLUDE: excludes "events", which KAFKA_TOPICS names`},
		{"KAFKA_START=yesterday", `KAFKA_START: "yesterday"; allowed: earliest, latest, group`},
		{"KAFKA_START=timestamp:2026-01-31 00:00:00", "is no RFC 3339 time with a zone"},
		{"KAFKA_START=timestamp:1969-01-01T00:00:00Z", "is before 1970"},
		{"KAFKA_START=offsets:", "names no partition"},
		{"KAFKA_START=offsets:events/0=1;events/0=2", `"events/0=2" stands there twice`},
		{"KAFKA_START=offsets:events/0", "has no offset"},
		{"KAFKA_START=offsets:events=1", "does not begin with <topic>/<partition>"},
		{"KAFKA_START=offsets:events/-1=1", "has a partition that is not a number"},
		{"KAFKA_START=offsets:events/0=-2", "has an offset that is not a number"},
		{"KAFKA_START=offsets:other/0=1", `KAFKA_START: has offsets of "other", which is not read`},
		{"KAFKA_STOP=earliest", `KAFKA_STOP: "earliest"; allowed: latest or`},
		{"KAFKA_GROUP_PROTOCOL=next", "allowed: classic, consumer"},
		{"KAFKA_SESSION_TIMEOUT=12", `"12" is no duration; allowed: a duration from 6s to 30m; give every number a unit`},
		{"KAFKA_SESSION_TIMEOUT=1h", "is too much; allowed: a duration from 6s to 30m"},
		{"ALLOWED_LATENESS=3d", "give every number a unit of ms, s, m or h"},
		{"ALLOWED_LATENESS=-1h", "is too little"},
		{"DISCOVERY_BREAKER_FAILURES=0", "is too little"},
		{"DISCOVERY_BREAKER_FAILURES=many", "is no whole number"},
		{"DISCOVERY_REQUEST_TIMEOUT=10s", "DISCOVERY_REQUEST_TIMEOUT: 10s is not below DISCOVERY_TIMEOUT (10s)"},
		{"EVENT_TIME_FIELD=a..b", `EVENT_TIME_FIELD: "a..b" has an empty name in its path`},
		{"AGGREGATE_TIMEZONE=Mars/Olympus", "is not in the tz database"},
		{"AGGREGATE_TIMEZONE=Local", "would be the zone of the process"},
		{"STARROCKS_HTTP=fe1:8030", "does not begin with http://"},
		{"STARROCKS_HTTP=http://root:pw@fe1:8030", `STARROCKS_HTTP: "…@fe1:8030" holds a user`},
		{"STARROCKS_HTTP=http://fe1:8030/api", "has something after the port"},
		{"STARROCKS_HTTP=http://fe1", "is not host:port"},
		{"STARROCKS_TABLE=da`u", "has back-ticks"},
		{"STARROCKS_TABLE=dw.dau", "is no identifier"},
		{"STARROCKS_VIEW=DAU", "is the table itself"},
		{"TABLE_BUCKETS=0", `is too little; allowed: a whole number from 1 to 10000, or auto`},
		{"TABLE_RETENTION_DAYS=4", "TABLE_RETENTION_DAYS: 4 days would drop days"},
		{"FLUSH_MAX_BYTES=64XB", "has an unknown unit"},
		{"FLUSH_MAX_BYTES=96MiB", "is too much; allowed: a size like 64MiB, 500KB or plain bytes from 1KiB to 95MiB"},
		{"BUFFER_MAX_BYTES=32MiB", "FLUSH_MAX_BYTES: 64MiB is more than BUFFER_MAX_BYTES (32MiB)"},
		{"CHECKPOINT_STORE=file:state", "has no absolute path"},
		{"CHECKPOINT_STORE=redis", "allowed: starrocks or file:"},
		{"CHECKPOINT_ALLOW_EMPTY=maybe", "allowed: true or false"},
		{"DEADLETTER_TOPIC=events", `"events" is one of the topics read`},
		{"DEADLETTER_TOPIC=a b", "is no topic name"},
		{"DEADLETTER_MAX_RATIO=0", "DEADLETTER_MAX_RATIO: 0 would stop at every record"},
		{"DEADLETTER_MAX_RATIO=1.5", "is too much; allowed: a number above 0, up to 1"},
		{"DEADLETTER_MAX_RATIO=NaN", "is no number"},
		{"HTTP_ADDR=8080", "is not host:port"},
		{"LOG_LEVEL=loud", "allowed: debug, info, warn, error"},
		{"KAFKA_TLS_CA_FILE=/ca", "KAFKA_TLS_ENABLED: not set, but KAFKA_TLS_CA_FILE is"},
		{"STARROCKS_PASSWORD_FILE=/none", `STARROCKS_PASSWORD_FILE: "/none" cannot be read: file does not exist`},
	} {
		t.Run(c.set, func(t *testing.T) {
			_, err := load(pair, c.set)
			lines := problems(t, err)
			require.Len(t, lines, 1, "%s", err)
			require.Contains(t, lines[0], c.want)
		})
	}
}

func TestProblemsOfSeveral(t *testing.T) {
	pair := files{"/c": "x", "/k": "x", "/ca": "no certificate"}
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"KAFKA_START=timestamp:2026-01-02T00:00:00Z", "KAFKA_STOP=timestamp:2026-01-01T00:00:00Z"}, "KAFKA_STOP: is not after KAFKA_START"},
		{[]string{"KAFKA_TLS_ENABLED=true", "KAFKA_TLS_CA_FILE=/missing"}, `KAFKA_TLS_CA_FILE: "/missing" cannot be read`},
		{[]string{"KAFKA_TLS_ENABLED=true", "KAFKA_TLS_CA_FILE=/ca"}, "has no certificate in it"},
		{[]string{"KAFKA_TLS_ENABLED=true", "KAFKA_TLS_CERT_FILE=/c"}, "KAFKA_TLS_KEY_FILE: not set, but KAFKA_TLS_CERT_FILE is"},
		{[]string{"KAFKA_TLS_ENABLED=true", "KAFKA_TLS_CERT_FILE=/c", "KAFKA_TLS_KEY_FILE=/k"}, "do not make a pair"},
		{[]string{"KAFKA_SASL_MECHANISM=PLAIN", "KAFKA_SASL_USERNAME=u"}, "KAFKA_SASL_PASSWORD: not set; allowed: text; set it; KAFKA_SASL_MECHANISM=PLAIN needs it"},
		{[]string{"KAFKA_SASL_MECHANISM=OAUTHBEARER"}, "KAFKA_SASL_TOKEN: not set"},
		{[]string{"KAFKA_SASL_MECHANISM=AWS_MSK_IAM", "KAFKA_SASL_AWS_ACCESS_KEY_ID=x"}, "KAFKA_SASL_AWS_SECRET_ACCESS_KEY: not set, but KAFKA_SASL_AWS_ACCESS_KEY_ID is"},
		{[]string{"KAFKA_SASL_USERNAME=u"}, "KAFKA_SASL_USERNAME: set, but KAFKA_SASL_MECHANISM is not"},
		{[]string{"KAFKA_TOPICS=/events.*/", "DEADLETTER_TOPIC=events-dead"}, "is one of the topics read"},
		{[]string{"STARROCKS_PASSWORD=a", "STARROCKS_PASSWORD_FILE=/c"}, "STARROCKS_PASSWORD: set, and STARROCKS_PASSWORD_FILE too"},
		{[]string{"AGGREGATE_DIMENSIONS=uv"}, `AGGREGATE_MEASURES: "uv" is a column already in AGGREGATE_DIMENSIONS`},
		{[]string{"AGGREGATE_DIMENSIONS=a,A"}, `AGGREGATE_DIMENSIONS: "A" is a column already there`},
		{[]string{"STARROCKS_TABLE=" + strings.Repeat("t", 64)}, "STARROCKS_VIEW: not set, and"},
	} {
		t.Run(strings.Join(c.set, " "), func(t *testing.T) {
			_, err := load(pair, c.set...)
			lines := problems(t, err)
			require.Len(t, lines, 1, "%s", err)
			require.Contains(t, lines[0], c.want)
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"KAFKA_INSTANCE_ID=w", "HOSTNAME=rollcall-7d9f8b6c5d-x2k4z"}, "looks like a pod of a Deployment"},
		{[]string{"KAFKA_GROUP_PROTOCOL=consumer", "KAFKA_SESSION_TIMEOUT=10s"}, "KAFKA_SESSION_TIMEOUT has no effect"},
		{[]string{"KAFKA_START=latest", "KAFKA_STOP=latest"}, "reads nothing"},
		{[]string{"KAFKA_SASL_MECHANISM=PLAIN", "KAFKA_SASL_USERNAME=u", "KAFKA_SASL_PASSWORD=p"}, "in the clear"},
		{[]string{"KAFKA_SASL_MECHANISM=OAUTHBEARER", "KAFKA_SASL_USERNAME=u", "KAFKA_SASL_TOKEN=p"}, "KAFKA_SASL_USERNAME has no effect with KAFKA_SASL_MECHANISM=OAUTHBEARER"},
		{[]string{"DISCOVERY_INTERVAL=5s"}, "DISCOVERY_TIMEOUT (10s) is longer than DISCOVERY_INTERVAL (5s)"},
		{[]string{"EVENT_TIME_FORMAT=unix_s"}, "no effect without EVENT_TIME_FIELD"},
		{[]string{"AGGREGATE_DIMENSIONS=device,os=device.os"}, `"device" and "device.os" are both read`},
		{[]string{"TABLE_MODE=verify", "TABLE_BUCKETS=3"}, "TABLE_BUCKETS has no effect with TABLE_MODE=verify"},
		{[]string{"BUFFER_MAX_BYTES=100MiB"}, "is less than twice FLUSH_MAX_BYTES"},
		{[]string{"LOAD_TIMEOUT=30s"}, "SHUTDOWN_TIMEOUT (25s) is below LOAD_TIMEOUT + 3s (33s)"},
		{[]string{"KAFKA_HEAP_OPTS=-Xmx1g"}, "KAFKA_HEAP_OPTS is no setting of this program"},
		{[]string{
			"KAFKA_PORT=tcp://10.0.0.1:9092", "KAFKA_SERVICE_HOST=10.0.0.1", "KAFKA_SERVICE_PORT=9092", "KAFKA_SERVICE_PORT_PLAIN=9092",
			"KAFKA_PORT_9092_TCP=tcp://10.0.0.1:9092", "KAFKA_PORT_9092_TCP_ADDR=10.0.0.1", "KAFKA_PORT_9092_TCP_PORT=9092",
			"KAFKA_PORT_9092_TCP_PROTO=tcp", "STARROCKS_HTTP_SERVICE_HOST=10.0.0.2", "KAFKA_BROKERS_PORT=tcp://10.0.0.1:9092",
		}, "enableServiceLinks: false"},
	} {
		t.Run(strings.Join(c.set, " "), func(t *testing.T) {
			cfg, err := load(nil, c.set...)
			require.NoError(t, err)
			require.Len(t, cfg.Warnings, 1, "%q", cfg.Warnings)
			require.Contains(t, cfg.Warnings[0], c.want)
		})
	}
	for _, silent := range []string{"HTTP_PROXY=http://proxy:3128", "OTEL_SERVICE_NAME=x", "PATH=/bin", "KAFKA_TLS_ENABLED=true"} {
		cfg, err := load(nil, silent)
		require.NoError(t, err)
		require.Empty(t, cfg.Warnings)
	}
}

func TestDidYouMean(t *testing.T) {
	for name, near := range map[string]string{
		"KAFKA_BROKER":            "KAFKA_BROKERS",
		"KAFKA_TOPIC":             "KAFKA_TOPICS",
		"KAFKA_BROKERS_FILE":      "KAFKA_BROKERS",
		"KAFKA_TLS_CA":            "KAFKA_TLS_CA_FILE",
		"FLUSH_MAX":               "FLUSH_MAX_BYTES",
		"STARROCKS_PASSWORD_FIEL": "STARROCKS_PASSWORD_FILE",
		"LOG_LEVELS":              "LOG_LEVEL",
		"DEADLETTER_MAX_RATION":   "DEADLETTER_MAX_RATIO",
	} {
		_, err := load(nil, name+"=x")
		require.ErrorContains(t, err, name+": there is no such setting; did you mean "+near+"?")
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const pw, token = "hunter2@x", "tok3n"
	c, err := load(files{"/t": token + "\r\n"}, "STARROCKS_PASSWORD="+pw, "KAFKA_SASL_MECHANISM=OAUTHBEARER", "KAFKA_SASL_TOKEN_FILE=/t")
	require.NoError(t, err)
	require.Equal(t, pw, c.StarRocks.Password.Value())
	require.Equal(t, token, c.KafkaSASL.Token.Value())
	var shown strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&shown, verb+verb+verb, *c, c.StarRocks, &c.KafkaSASL.Token)
	}
	data, err := json.Marshal(c)
	require.NoError(t, err)
	shown.Write(data)
	for _, v := range c.Effective() {
		fmt.Fprintf(&shown, "%+v", v)
	}
	for _, verb := range []string{"%s", "%x"} {
		require.NotContains(t, shown.String(), fmt.Sprintf(verb, pw))
		require.NotContains(t, shown.String(), fmt.Sprintf(verb, token))
	}
	require.Contains(t, shown.String(), "(hidden)")

	_, err = load(files{"/t": token}, "STARROCKS_PASSWORD="+pw, "STARROCKS_PASSWORD_FILE=/t", "KAFKA_SASL_TOKEN="+token, "KAFKA_SASL_TOKEN_FILE=/none")
	require.Error(t, err)
	require.NotContains(t, err.Error(), pw)
	require.NotContains(t, err.Error(), token)
}

func TestOneNewlineIsCut(t *testing.T) {
	for content, want := range map[string]string{"a\n": "a", "a\r\n": "a", "a\n\n": "a\n", " a ": " a ", "\n": "", "": ""} {
		s, err := config.ReadSecretFile(files{"/s": content}.read, "/s")
		require.NoError(t, err)
		require.Equal(t, want, s.Value())
	}
	_, err := config.ReadSecretFile(files{}.read, "/s")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestEffective(t *testing.T) {
	c, err := load(files{"/t": "x"}, "KAFKA_SASL_MECHANISM=OAUTHBEARER", "KAFKA_SASL_TOKEN_FILE=/t", "FLUSH_INTERVAL=5s")
	require.NoError(t, err)
	got := make(map[string]string)
	for _, v := range c.Effective() {
		got[v.Setting.Name] = v.Value + " " + string(v.Source)
	}
	require.Equal(t, "5s environment", got["FLUSH_INTERVAL"])
	require.Equal(t, "20s default", got["LOAD_TIMEOUT"])
	require.Equal(t, "(hidden) from /t file", got["KAFKA_SASL_TOKEN"])
	require.Equal(t, " default", got["STARROCKS_PASSWORD"])
	require.Equal(t, "dau_view default", got["STARROCKS_VIEW"])
	require.Len(t, got, len(config.Describe()))
}

func TestTheFirstOfANameCounts(t *testing.T) {
	var environ []string
	for name, value := range least() {
		environ = append(environ, name+"="+value, name+"=!")
	}
	_, err := config.Load(append(environ, "noequals", "=", "=x"), files{}.read)
	require.NoError(t, err)
}

func TestFromOS(t *testing.T) {
	for name, value := range least() {
		t.Setenv(name, value)
	}
	t.Setenv("HOSTNAME", "pod-1")
	c, err := config.FromOS()
	require.NoError(t, err)
	require.Equal(t, "pod-1", c.Worker)
	t.Setenv("KAFKA_GROUP", "")
	_, err = config.FromOS()
	var e *config.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, "1 problem in the settings:\n  KAFKA_GROUP: not set; allowed: text; set it; there is no default", err.Error())
}
