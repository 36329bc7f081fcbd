package pipeline

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"go.uber.org/zap"

	"rollcall/config"
	"rollcall/pkg/sink/starrockstest"
)

// checkWorld is what a check meets; each test breaks one thing of it.
type checkWorld struct {
	t     *testing.T
	kafka []kfake.Opt
	// topics are the topics that exist.
	topics []string
	rocks  starrockstest.Config
	// noDatabase leaves it out; noTable the table that a first start would have made.
	noDatabase, noTable bool
	settings            map[string]string
	cluster             *starrockstest.Cluster
	brokers             []string
}

func (w *checkWorld) set(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		w.settings[pairs[i]] = pairs[i+1]
	}
}

// start brings both up and fills in the settings that are not there.
func (w *checkWorld) start() {
	w.t.Helper()
	opts := append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(4, w.topics...)}, w.kafka...)
	k, err := kfake.NewCluster(opts...)
	require.NoError(w.t, err)
	w.t.Cleanup(k.Close)
	w.brokers = k.ListenAddrs()
	w.cluster = starrockstest.New(w.rocks)
	require.NoError(w.t, w.cluster.Start())
	w.t.Cleanup(w.cluster.Close)
	for name, value := range map[string]string{
		"KAFKA_BROKERS": strings.Join(w.brokers, ","), "KAFKA_TOPICS": "events", "KAFKA_GROUP": "g", "DEADLETTER_TOPIC": "dead",
		"STARROCKS_HTTP": strings.Join(w.cluster.FEURLs(), ","), "STARROCKS_MYSQL": strings.Join(w.cluster.MySQLAddrs(), ","),
		"STARROCKS_USER": "root", "STARROCKS_DATABASE": "dau", "STARROCKS_TABLE": "daily", "AGGREGATE_DIMENSIONS": "platform",
	} {
		if _, ok := w.settings[name]; !ok {
			w.settings[name] = value
		}
	}
	if w.noDatabase {
		return
	}
	require.NoError(w.t, w.cluster.Exec("CREATE DATABASE dau"))
	if !w.noTable {
		table, view, err := TableDDL(w.config())
		require.NoError(w.t, err)
		require.NoError(w.t, w.cluster.Exec(table, view))
	}
}

func (w *checkWorld) config() *config.Config {
	w.t.Helper()
	var environ []string
	for k, v := range w.settings {
		environ = append(environ, k+"="+v)
	}
	cfg, err := config.Load(environ, os.ReadFile)
	require.NoError(w.t, err)
	return cfg
}

// check runs the check and returns its lines and the exit code.
func (w *checkWorld) check(outagesPass bool) (string, int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 40*time.Second)
	defer cancel()
	var out bytes.Buffer
	err := CheckConnections(ctx, Options{Config: w.config(), Log: zap.NewNop(), Registry: prometheus.NewRegistry(), ReadFile: os.ReadFile}, outagesPass, &out)
	return out.String(), ExitCode(err)
}

// makeGroup makes the group by a commit of the superuser: kfake, unlike Kafka, looks at the rights only of a group that it knows.
func (w *checkWorld) makeGroup() {
	w.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.SASL(plain.Auth{User: "admin", Pass: "admin"}.AsMechanism()), kgo.DisableClientMetrics())
	require.NoError(w.t, err)
	defer cl.Close()
	var offsets kadm.Offsets
	offsets.AddOffset("events", 0, 0, -1)
	require.NoError(w.t, kadm.NewClient(cl).CommitAllOffsets(w.t.Context(), "g", offsets))
}

// closedPort is an address on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func acl(resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: resource, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
}

// withUser makes brokers that want SASL and know one user with some rights; all of them unless said otherwise.
func (w *checkWorld) withUser(acls ...kfake.ACL) {
	w.kafka = append(w.kafka, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "w", "right", acls...))
	w.set("KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "w", "KAFKA_SASL_PASSWORD", "right")
}

func checkRights() []kfake.ACL {
	return []kfake.ACL{
		acl(kmsg.ACLResourceTypeTopic, "events", kmsg.ACLOperationRead),
		acl(kmsg.ACLResourceTypeTopic, "dead", kmsg.ACLOperationWrite),
		acl(kmsg.ACLResourceTypeGroup, "g", kmsg.ACLOperationRead),
	}
}

func lacking(i int) []kfake.ACL {
	all := checkRights()
	return append(all[:i:i], all[i+1:]...)
}

// selfSigned makes a certificate for names and the PEM file with which to trust it.
func selfSigned(t *testing.T, names ...string) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, DNSNames: names,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, file
}

// brokenSetUp is one set-up with one fault in it.
type brokenSetUp struct {
	name  string
	build func(w *checkWorld)
	// later breaks something that runs.
	later func(w *checkWorld)
	// line begins the one line that says so; cause and remedy are in it.
	line, cause, remedy string
	code                int
	// outage: time may mend it, so that an init container lets it pass.
	outage bool
	// more says that other lines fail of the same cause.
	more bool
}

func kafkaSetUps() []brokenSetUp {
	return []brokenSetUp{
		{
			name: "wrong broker port", build: func(w *checkWorld) { w.set("KAFKA_BROKERS", closedPort(w.t)) },
			line: "FAIL  broker 127.0.0.1:", cause: "nothing listens on that port", remedy: "KAFKA_BROKERS", code: ExitSource, outage: true,
		},
		{
			name: "broker name does not resolve", build: func(w *checkWorld) { w.set("KAFKA_BROKERS", "kafka.invalid:9092") },
			line: "FAIL  broker kafka.invalid:9092", cause: `"kafka.invalid" cannot be resolved`, remedy: "KAFKA_BROKERS", code: ExitSource, outage: true,
		},
		{
			name: "a port that is no broker", build: func(*checkWorld) {}, later: func(w *checkWorld) { w.set("KAFKA_BROKERS", w.cluster.MySQLAddr(1)) },
			line: "FAIL  broker localhost:", cause: "does not answer as a Kafka broker", remedy: "a broker's port", code: ExitSource,
		},
		{
			name: "wrong Kafka password", build: func(w *checkWorld) { w.withUser(checkRights()...); w.set("KAFKA_SASL_PASSWORD", "wrong") },
			line: "FAIL  broker ", cause: "wrong user, password", remedy: "KAFKA_SASL_PASSWORD", code: ExitSource, more: true,
		},
		{
			name: "mechanism of another kind", build: func(w *checkWorld) { w.withUser(checkRights()...); w.set("KAFKA_SASL_MECHANISM", "SCRAM-SHA-512") },
			line: "FAIL  broker ", cause: "mechanism", remedy: "KAFKA_SASL_MECHANISM", code: ExitSource, more: true,
		},
		{name: "SASL required and none set", build: func(w *checkWorld) {
			w.withUser(checkRights()...)
			w.set("KAFKA_SASL_MECHANISM", "", "KAFKA_SASL_USERNAME", "", "KAFKA_SASL_PASSWORD", "")
		}, line: "FAIL  broker ", cause: "wants SASL", remedy: "KAFKA_SASL_MECHANISM", code: ExitSource, more: true},
		{name: "TLS required and none set", build: func(w *checkWorld) {
			conf, _ := selfSigned(w.t, "localhost")
			w.kafka = append(w.kafka, kfake.TLS(conf))
		}, line: "FAIL  broker ", cause: "TLS", remedy: "KAFKA_TLS_ENABLED=true", code: ExitSource, more: true},
		{
			name: "TLS set and none spoken", build: func(w *checkWorld) { w.set("KAFKA_TLS_ENABLED", "true") },
			line: "FAIL  broker ", cause: "without TLS", remedy: "KAFKA_TLS_ENABLED=false", code: ExitSource, more: true, outage: true,
		},
		{name: "certificate of an unknown authority", build: func(w *checkWorld) {
			conf, _ := selfSigned(w.t, "localhost")
			w.kafka = append(w.kafka, kfake.TLS(conf))
			w.set("KAFKA_TLS_ENABLED", "true", "KAFKA_TLS_SERVER_NAME", "localhost")
		}, line: "FAIL  broker ", cause: "not trusted", remedy: "KAFKA_TLS_CA_FILE", code: ExitSource, more: true},
		{name: "certificate for another name", build: func(w *checkWorld) {
			conf, ca := selfSigned(w.t, "kafka.example.com")
			w.kafka = append(w.kafka, kfake.TLS(conf))
			w.set("KAFKA_TLS_ENABLED", "true", "KAFKA_TLS_CA_FILE", ca, "KAFKA_TLS_SERVER_NAME", "localhost")
		}, line: "FAIL  broker ", cause: "for another name", remedy: "KAFKA_TLS_SERVER_NAME", code: ExitSource, more: true},
		{
			name: "missing topic", build: func(w *checkWorld) { w.topics = []string{"dead"} },
			line: "FAIL  topic events", cause: "does not exist", remedy: "create the topic", code: ExitSource,
		},
		{
			name: "no topic of the pattern", build: func(w *checkWorld) { w.set("KAFKA_TOPICS", "/clicks-.*/") },
			line: "FAIL  topics", cause: "matches the pattern", remedy: "KAFKA_TOPICS", code: ExitSource,
		},
		{name: "topic may not be read", build: func(w *checkWorld) {
			w.withUser(append(lacking(0), acl(kmsg.ACLResourceTypeTopic, "events", kmsg.ACLOperationDescribe))...)
		}, line: "FAIL  topic events", cause: "may not read it", remedy: "READ", code: ExitSource},
		{
			name: "group denied", build: func(w *checkWorld) { w.withUser(lacking(2)...) },
			line: "FAIL  group g", cause: "may not use this group", remedy: "READ and DESCRIBE on group g", code: ExitSource,
		},
		{name: "group may only be described", build: func(w *checkWorld) {
			w.withUser(append(lacking(2), acl(kmsg.ACLResourceTypeGroup, "g", kmsg.ACLOperationDescribe))...)
		}, later: func(w *checkWorld) { w.makeGroup() }, line: "FAIL  group g", cause: "may not use this group", remedy: "READ and DESCRIBE on group g", code: ExitSource},
		{
			name: "dead-letter topic missing", build: func(w *checkWorld) { w.topics = []string{"events"} },
			line: "FAIL  dead-letter topic dead", cause: "does not exist", remedy: "DEADLETTER_TOPIC", code: ExitSource,
		},
		{name: "dead-letter topic may not be written", build: func(w *checkWorld) {
			w.withUser(append(lacking(1), acl(kmsg.ACLResourceTypeTopic, "dead", kmsg.ACLOperationRead))...)
		}, line: "FAIL  dead-letter topic dead", cause: "may not write", remedy: "WRITE", code: ExitSource},
	}
}

func rocksSetUps() []brokenSetUp {
	only := func(p ...starrockstest.Privilege) starrockstest.Config {
		return starrockstest.Config{Users: []starrockstest.User{{Name: "root"}, {Name: "w", Password: "right", Privileges: p}}}
	}
	login := func(w *checkWorld, password string) { w.set("STARROCKS_USER", "w", "STARROCKS_PASSWORD", password) }
	return []brokenSetUp{
		{
			name: "wrong MySQL port", build: func(w *checkWorld) { w.set("STARROCKS_MYSQL", closedPort(w.t)) },
			line: "FAIL  StarRocks MySQL 127.0.0.1:", cause: "nothing listens on that port", remedy: "STARROCKS_MYSQL", code: ExitTable, outage: true,
		},
		{
			name: "wrong HTTP port", build: func(w *checkWorld) { w.set("STARROCKS_HTTP", "http://"+closedPort(w.t)) },
			line: "FAIL  StarRocks HTTP http://127.0.0.1:", cause: "nothing listens on that port", remedy: "STARROCKS_HTTP", code: ExitTable, outage: true,
		},
		{name: "HTTP and MySQL addresses swapped", build: func(*checkWorld) {}, later: func(w *checkWorld) {
			w.set("STARROCKS_HTTP", "http://"+w.cluster.MySQLAddr(1))
		}, line: "FAIL  StarRocks HTTP http://localhost:", cause: "does not answer in HTTP", remedy: "http_port (8030)", code: ExitTable},
		{
			name: "TLS over MySQL that is not offered", build: func(w *checkWorld) { w.set("STARROCKS_TLS_ENABLED", "true") },
			line: "FAIL  StarRocks MySQL localhost:", cause: "does not offer TLS", remedy: "STARROCKS_TLS_ENABLED=false", code: ExitTable,
		},
		{name: "https that is not spoken", build: func(*checkWorld) {}, later: func(w *checkWorld) {
			w.set("STARROCKS_HTTP", strings.Replace(w.cluster.FEURL(1), "http", "https", 1))
		}, line: "FAIL  StarRocks HTTP https://localhost:", cause: "TLS", remedy: "http://", code: ExitTable},
		{
			name: "front end does not resolve", build: func(w *checkWorld) { w.set("STARROCKS_MYSQL", "fe.invalid:9030") },
			line: "FAIL  StarRocks MySQL fe.invalid:9030", cause: "cannot be resolved", remedy: "STARROCKS_MYSQL", code: ExitTable, outage: true,
		},
		{
			name: "wrong StarRocks password", build: func(w *checkWorld) { w.rocks = only(); login(w, "wrong") },
			line: "FAIL  StarRocks MySQL localhost:", cause: "refuses the user or the password", remedy: "STARROCKS_PASSWORD", code: ExitTable, more: true,
		},
		{
			name: "front end reached and back end not", build: func(*checkWorld) {}, later: func(w *checkWorld) { w.cluster.StopBE() },
			line: "FAIL  StarRocks HTTP http://localhost:", cause: "which cannot be reached", remedy: "SHOW BACKENDS", code: ExitTable, outage: true,
		},
		{
			name: "no back end alive", build: func(*checkWorld) {}, later: func(w *checkWorld) { w.cluster.SetBackends(0) },
			line: "FAIL  StarRocks HTTP http://localhost:", cause: "no back end is alive", remedy: "SHOW BACKENDS", code: ExitTable, outage: true,
		},
		{
			name: "wrong database", build: func(w *checkWorld) { w.noDatabase = true; w.set("TABLE_MODE", "verify") },
			line: "FAIL  database dau", cause: "does not exist", remedy: "CREATE DATABASE dau", code: ExitTable, more: true,
		},
		{
			name: "missing INSERT", build: func(w *checkWorld) { w.rocks = only(starrockstest.Select, starrockstest.Create); login(w, "right") },
			line: "FAIL  StarRocks HTTP http://localhost:", cause: "INSERT", remedy: "GRANT SELECT, INSERT", code: ExitTable,
		},
		{
			name: "missing SELECT", build: func(w *checkWorld) { w.rocks = only(starrockstest.Insert, starrockstest.Create); login(w, "right") },
			line: "FAIL  table dau.daily", cause: "not allowed", remedy: "GRANT SELECT, INSERT", code: ExitTable, more: true,
		},
		{
			name: "table missing and not to be made", build: func(w *checkWorld) { w.noTable = true; w.set("TABLE_MODE", "verify") },
			line: "FAIL  table dau.daily", cause: "does not exist", remedy: "rollcall table", code: ExitTable,
		},
		{name: "table of another shape", build: func(w *checkWorld) { w.noTable = true }, later: func(w *checkWorld) {
			require.NoError(w.t, w.cluster.Exec("CREATE TABLE dau.daily (dt DATE, pv BIGINT) DUPLICATE KEY(dt) DISTRIBUTED BY HASH(dt) BUCKETS 1"))
		}, line: "FAIL  table dau.daily", cause: "AGGREGATE KEY", remedy: "STARROCKS_TABLE", code: ExitTable, more: true},
		{name: "view missing and not to be made", build: func(w *checkWorld) { w.set("TABLE_MODE", "verify") }, later: func(w *checkWorld) {
			require.NoError(w.t, w.cluster.Exec("DROP VIEW dau.daily_view"))
		}, line: "FAIL  table dau.daily", cause: "view", remedy: "STARROCKS_VIEW=none", code: ExitTable},
	}
}

func newCheckWorld(t *testing.T) *checkWorld {
	return &checkWorld{t: t, topics: []string{"events", "dead"}, settings: map[string]string{}}
}

// Each broken set-up is named by one line with its cause and its remedy, and nothing that is well is called broken.
func TestCheckNamesTheFault(t *testing.T) {
	for _, c := range append(kafkaSetUps(), rocksSetUps()...) {
		t.Run(c.name, func(t *testing.T) {
			w := newCheckWorld(t)
			c.build(w)
			w.start()
			if c.later != nil {
				c.later(w)
			}
			out, code := w.check(false)
			require.Equal(t, c.code, code, out)
			var failed []string
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "FAIL  ") {
					failed = append(failed, line)
				}
			}
			require.NotEmpty(t, failed, out)
			if !c.more {
				require.Len(t, failed, 1, out)
			}
			t.Log(strings.TrimSpace(failed[0]))
			require.True(t, strings.HasPrefix(failed[0], c.line), "%q begins %q", failed[0], c.line)
			cause, remedy, ok := strings.Cut(failed[0], " — ")
			require.True(t, ok, failed[0])
			require.Contains(t, cause, c.cause)
			require.Contains(t, remedy, c.remedy)
			require.NotContains(t, out, "right\n", "no password in the output")
			_, code = w.check(true)
			if c.outage {
				require.Equal(t, ExitOK, code, "an outage is left to the worker")
			} else {
				require.Equal(t, c.code, code)
			}
			require.Empty(t, w.cluster.Loads(), "the check loads nothing")
		})
	}
}

// What is well is said to be well, with and without a table, and with rights just enough.
func TestCheckOfAWorkingSetUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(w *checkWorld)
		want  string
	}{
		{"everything there", func(*checkWorld) {}, "ok    table dau.daily: as expected"},
		{"before the first start", func(w *checkWorld) { w.noTable = true }, "the first start creates it"},
		{"several front ends", func(w *checkWorld) { w.rocks.FEs = 3 }, "ok    StarRocks HTTP"},
		{"rights just enough", func(w *checkWorld) {
			w.withUser(checkRights()...)
			w.rocks.Users = []starrockstest.User{{Name: "root"}, {Name: "w", Password: "right", Privileges: []starrockstest.Privilege{starrockstest.Insert, starrockstest.Select}}}
			w.set("STARROCKS_USER", "w", "STARROCKS_PASSWORD", "right")
		}, "ok    group g: may take part"},
		{"TLS to brokers", func(w *checkWorld) {
			conf, ca := selfSigned(w.t, "localhost")
			w.kafka = append(w.kafka, kfake.TLS(conf))
			w.set("KAFKA_TLS_ENABLED", "true", "KAFKA_TLS_CA_FILE", ca, "KAFKA_TLS_SERVER_NAME", "localhost")
		}, "ok    topic events: 4 partitions"},
		{"topics by pattern", func(w *checkWorld) { w.set("KAFKA_TOPICS", "/ev.*/", "KAFKA_TOPICS_EXCLUDE", "dead") }, "ok    topic events: 4 partitions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newCheckWorld(t)
			c.build(w)
			w.start()
			out, code := w.check(false)
			require.Equal(t, ExitOK, code, out)
			require.NotContains(t, out, "FAIL")
			require.NotContains(t, out, "warn")
			require.Contains(t, out, c.want)
			require.Empty(t, w.cluster.Loads(), "the check loads nothing")
		})
	}
}

// Of several equal addresses one that fails is a warning: the worker goes on with the others, and a start must not wait for all of them.
func TestCheckWarnsOfOneOfSeveral(t *testing.T) {
	w := newCheckWorld(t)
	w.rocks.FEs = 2
	w.start()
	w.set("KAFKA_BROKERS", w.settings["KAFKA_BROKERS"]+","+closedPort(t))
	w.cluster.StopFE(2)
	out, code := w.check(false)
	require.Equal(t, ExitOK, code, out)
	require.NotContains(t, out, "FAIL")
	require.Equal(t, 3, strings.Count(out, "warn  "), out)
}

// A database that the start creates is no failure; the warning says what it takes.
func TestCheckWarnsOfADatabaseThatIsCreated(t *testing.T) {
	w := newCheckWorld(t)
	w.noDatabase = true
	w.start()
	out, code := w.check(false)
	require.Equal(t, ExitOK, code, out)
	require.NotContains(t, out, "FAIL")
	require.Contains(t, out, "warn  database dau")
	require.Contains(t, out, "the first start creates it")
}

// The directory of CHECKPOINT_STORE=file is tried as the worker would use it, and nothing is left in it.
func TestCheckTriesTheCheckpointDirectory(t *testing.T) {
	w := newCheckWorld(t)
	w.start()
	dir := t.TempDir()
	w.set("CHECKPOINT_STORE", "file:"+dir)
	out, code := w.check(false)
	require.Equal(t, ExitOK, code, out)
	require.Contains(t, out, "ok    checkpoint directory "+dir)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	faults := map[string]string{filepath.Join(dir, "missing"): "it does not exist", file: "it is no directory", filepath.Join(file, "below"): "it is no directory"}
	if os.Getuid() != 0 {
		locked := filepath.Join(dir, "locked")
		require.NoError(t, os.Mkdir(locked, 0o500))
		faults[locked] = "this user may not write to it"
	}
	for path, cause := range faults {
		w.set("CHECKPOINT_STORE", "file:"+path)
		for _, outagesPass := range []bool{false, true} {
			out, code := w.check(outagesPass)
			require.Equal(t, ExitCheckpoint, code, out)
			require.Contains(t, out, "FAIL  checkpoint directory "+path+": "+cause+" — ")
		}
	}
}
