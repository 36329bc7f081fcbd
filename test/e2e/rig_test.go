package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

const (
	topic      = "events"
	deadTopic  = "events-dead"
	partitions = 12
	view       = "dau.daily_view"
)

// binary builds the worker once per test run.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rollcall-e2e-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rollcall")
	cmd := exec.Command("go", "build", "-o", path, "rollcall/cmd/rollcall") //nolint:noctx // bounded by the test's own limit
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the worker: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// rig is a stand-in StarRocks, a producer and the settings for workers that read the given brokers.
type rig struct {
	t     *testing.T
	topic string
	group string
	addrs []string
	rocks *starrockstest.Cluster
	db    *sql.DB
	prod  *kgo.Client
	truth *oracle.Truth
	extra map[string]string

	mu   sync.Mutex
	seen map[string]int64 // rows last scraped, by what the labels of a worker's start begin with
}

func newRig(t *testing.T, addrs []string, rocks starrockstest.Config) *rig {
	t.Helper()
	r := &rig{t: t, topic: topic, group: "g", addrs: addrs, rocks: starrockstest.New(rocks), truth: oracle.NewTruth(time.UTC), extra: map[string]string{}, seen: map[string]int64{}}
	require.NoError(t, r.rocks.Start())
	t.Cleanup(r.rocks.Close)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.InterpolateParams = "tcp", r.rocks.MySQLAddr(1), "root", true
	conn, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	r.db = sql.OpenDB(conn)
	t.Cleanup(func() { _ = r.db.Close() })
	_, err = r.db.ExecContext(t.Context(), "CREATE DATABASE dau")
	require.NoError(t, err)
	r.prod, err = kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.MaxBufferedRecords(100000), kgo.MetadataMinAge(200*time.Millisecond), kgo.DisableClientMetrics(), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	require.NoError(t, err)
	t.Cleanup(r.prod.Close)
	return r
}

// worker is a worker process with its own name.
func (r *rig) worker(name string, extra ...string) *workerproc.Process {
	r.t.Helper()
	path, err := binary()
	require.NoError(r.t, err)
	log, err := os.Create(filepath.Join(r.t.TempDir(), name+".log"))
	require.NoError(r.t, err)
	env := map[string]string{
		"HOSTNAME": name, "KAFKA_BROKERS": strings.Join(r.addrs, ","), "KAFKA_TOPICS": r.topic, "KAFKA_GROUP": r.group, "KAFKA_SESSION_TIMEOUT": "6s",
		"DISCOVERY_INTERVAL": "2s", "DISCOVERY_REQUEST_TIMEOUT": "1s", "DISCOVERY_TIMEOUT": "10s",
		"STARROCKS_HTTP": strings.Join(r.rocks.FEURLs(), ","), "STARROCKS_MYSQL": strings.Join(r.rocks.MySQLAddrs(), ","), "STARROCKS_USER": "root",
		"STARROCKS_DATABASE": "dau", "STARROCKS_TABLE": "daily", "ALLOWED_LATENESS": "96h", "FLUSH_INTERVAL": "500ms", "LOAD_TIMEOUT": "5s",
	}
	for _, m := range []map[string]string{oracle.Settings(), r.extra} {
		for k, v := range m {
			env[k] = v
		}
	}
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	p, err := workerproc.New(workerproc.Config{Binary: path, Env: append(list, extra...), Log: log})
	require.NoError(r.t, err)
	r.t.Cleanup(func() {
		p.Kill()
		if r.t.Failed() {
			r.t.Logf("end of the log of %s:\n%s", name, p.Tail(12<<10))
		}
		_ = log.Close()
	})
	r.t.Cleanup(func() { // before the one above
		if !r.t.Failed() {
			r.ledger(p, name)
		}
	})
	return p
}

// produce writes n events in order of the partitions and adds them to the truth; rate 0 is as fast as it goes.
func (r *rig) produce(ctx context.Context, gen *oracle.Generator, n, rate int) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	begun := time.Now()
	for i := range n {
		if rate > 0 && i%100 == 0 {
			if ahead := time.Duration(float64(i)/float64(rate)*float64(time.Second)) - time.Since(begun); ahead > 0 {
				select {
				case <-time.After(ahead):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		e := gen.Next()
		r.truth.Add(e)
		wg.Add(1)
		r.prod.Produce(ctx, &kgo.Record{Topic: r.topic, Partition: int32(i % partitions), Value: e.AppendJSON(nil)}, func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				first = err
				mu.Unlock()
			}
			wg.Done()
		})
	}
	wg.Wait()
	return first
}

// threeDays makes events of the last three calendar days.
func threeDays(seed uint64) *oracle.Generator {
	return oracle.NewGenerator(seed, 100000, time.Now().Add(-60*time.Hour), 60*time.Hour)
}

// exact waits until the view shows as many events as the truth has, and then compares every number.
func (r *rig) exact(limit time.Duration, alive ...*workerproc.Process) {
	r.t.Helper()
	deadline := time.Now().Add(limit)
	var rows []oracle.Row
	for {
		var err error
		if rows, err = oracle.Query(r.t.Context(), r.db, view); err == nil && pv(rows) >= r.truth.Events() {
			break
		}
		for _, p := range alive {
			require.NoError(r.t, p.Alive())
		}
		if time.Now().After(deadline) {
			require.FailNowf(r.t, "the table did not get there in time", "%d of %d events after %s (%v)", pv(rows), r.truth.Events(), limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Empty(r.t, r.truth.Diff(rows))
}

func pv(rows []oracle.Row) int64 {
	n := int64(0)
	for _, r := range rows {
		n += r.PV
	}
	return n
}

// identity checks: records read = counted + late + future + bad, per partition, at one scrape.
func (r *rig) identity(p *workerproc.Process) workerproc.Metrics {
	r.t.Helper()
	m, err := p.Metrics(r.t.Context())
	require.NoError(r.t, err)
	for i := range partitions {
		label := fmt.Sprint(i)
		require.Equal(r.t, m.Sum("rollcall_source_records_total", "partition", label), m.Sum("rollcall_events_total", "partition", label), "partition %d", i)
	}
	return m
}

// committed is the group's offset by partition.
func (r *rig) committed() map[int32]int64 {
	r.t.Helper()
	offs, err := kadm.NewClient(r.prod).FetchOffsets(r.t.Context(), r.group)
	require.NoError(r.t, err)
	out := map[int32]int64{}
	offs.Each(func(o kadm.OffsetResponse) { out[o.Partition] = o.At })
	return out
}

// ends is the log end by partition.
func (r *rig) ends() map[int32]int64 {
	r.t.Helper()
	ends, err := kadm.NewClient(r.prod).ListEndOffsets(r.t.Context(), r.topic)
	require.NoError(r.t, err)
	out := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out
}

// stop ends a worker with SIGTERM and checks the exit code.
func (r *rig) stop(p *workerproc.Process, code int) {
	r.t.Helper()
	got, err := p.Stop(40 * time.Second)
	require.NoError(r.t, err)
	require.Equal(r.t, code, got)
}

func (r *rig) ready(ps ...*workerproc.Process) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 40*time.Second)
	defer cancel()
	for _, p := range ps {
		require.NoError(r.t, p.Ready(ctx))
	}
}
