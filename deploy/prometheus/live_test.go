package prometheus_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

// A real Prometheus with our rules scrapes a real worker: every panel query and every variable has a result, every rule is evaluated
// without an error and uses metrics that exist, no alert fires while all is well, and a worker that is gone is noticed.
func TestAgainstRealPrometheus(t *testing.T) {
	binary := tool(t, "prometheus")
	worker, db := startWorker(t)
	api := startPrometheus(t, binary, worker.Addr())

	// Rates need a few scrapes, and recording rules as many evaluations.
	require.Eventually(t, func() bool {
		return api.number(`count_over_time(rollcall:source_records:rate5m[1m])`) >= 5 &&
			api.number(`sum(rollcall_source_records_total)`) > 0 && api.number(`sum(rollcall_loads_total{status="done"})`) > 0
	}, 90*time.Second, 500*time.Millisecond, "Prometheus does not see the worker's numbers")

	t.Run("panels", func(t *testing.T) {
		for _, p := range panels(t) {
			require.NotEmpty(t, p.Targets, p.Title)
			for _, q := range p.Targets {
				if q.RawSQL != "" {
					require.NotZero(t, rows(t, db, strings.ReplaceAll(q.RawSQL, "${table}", "dau.daily")), "panel %q: no rows from %s", p.Title, q.RawSQL)
					continue
				}
				expr := substitute(q.Expr)
				api.knows(t, expr)
				require.NotEmpty(t, api.query(t, expr), "panel %q: nothing from %s", p.Title, expr)
			}
		}
	})
	t.Run("variables", func(t *testing.T) {
		for name, want := range map[string]string{"namespace": "dau", "job": "rollcall", "group": "g", "topic": "events"} {
			require.Equal(t, []string{want}, api.labelValues(t, substitute(variableQuery(t, name))), name)
		}
	})
	t.Run("rules", func(t *testing.T) {
		for _, r := range rules(t) {
			api.knows(t, r.Expr)
			api.query(t, r.Expr)
		}
		loaded := 0
		for _, g := range api.rules(t) {
			for _, r := range g.Rules {
				require.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
				require.NotEqual(t, "firing", r.State, "%s fires although all is well", r.Name)
				loaded++
			}
		}
		require.Equal(t, len(rules(t)), loaded)
	})
	t.Run("a worker that is gone", func(t *testing.T) {
		worker.Kill()
		require.Eventually(t, func() bool {
			return api.state(t, "RollcallTargetDown") == "pending" && api.state(t, "RollcallNoMembers") == "pending"
		}, 30*time.Second, 500*time.Millisecond)
	})
}

// substitute puts the values of the scrape's labels for the dashboard's variables.
func substitute(expr string) string {
	return strings.NewReplacer("$__rate_interval", "10s", "$__range", "1m", "$namespace", "dau", "$job", "rollcall", "$group", "g", "$topic", "events").Replace(expr)
}

// startWorker starts brokers, the stand-in, a producer and a worker, and waits until it is ready.
func startWorker(t *testing.T) (*workerproc.Process, *sql.DB) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "rollcall")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "rollcall/cmd/rollcall")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	kafka, err := kafkatest.StartFake(kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(4, "events"), kfake.SeedTopics(1, "events-dead")}})
	require.NoError(t, err)
	t.Cleanup(kafka.Close)
	rocks := starrockstest.New(starrockstest.Config{})
	require.NoError(t, rocks.Start())
	t.Cleanup(rocks.Close)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User = "tcp", rocks.MySQLAddr(1), "root"
	conn, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(conn)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE dau")
	require.NoError(t, err)

	log, err := os.Create(filepath.Join(dir, "worker.log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	env := []string{
		"HOSTNAME=worker", "KAFKA_BROKERS=" + strings.Join(kafka.Addrs(), ","), "KAFKA_TOPICS=events", "KAFKA_GROUP=g", "KAFKA_SESSION_TIMEOUT=6s",
		"STARROCKS_HTTP=" + rocks.FEURL(1), "STARROCKS_MYSQL=" + rocks.MySQLAddr(1), "STARROCKS_USER=root", "STARROCKS_DATABASE=dau",
		"STARROCKS_TABLE=daily", "STARROCKS_VIEW=daily_view", "DEADLETTER_TOPIC=events-dead", "ALLOWED_LATENESS=96h", "FLUSH_INTERVAL=1s", "LOAD_TIMEOUT=5s",
		"DISCOVERY_INTERVAL=2s",
	}
	for k, v := range oracle.Settings() {
		env = append(env, k+"="+v)
	}
	w, err := workerproc.New(workerproc.Config{Binary: path, Env: env, Log: log})
	require.NoError(t, err)
	require.NoError(t, w.Start())
	t.Cleanup(w.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := w.Ready(ctx); err != nil {
		t.Fatalf("%v\n%s", err, w.Tail(8<<10))
	}
	feed(t, kafka.Addrs())
	return w, db
}

// feed produces a hundred events five times a second, one in a hundred of them unreadable, until the test ends.
func feed(t *testing.T, addrs []string) {
	t.Helper()
	prod, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // joined by the cleanup
		defer close(done)
		gen := oracle.NewGenerator(1, 1000, time.Now().Add(-time.Hour), time.Hour)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			for i := range 100 {
				e := gen.Next()
				r := &kgo.Record{Topic: "events", Partition: int32(i % 4), Value: e.AppendJSON(nil)}
				if i == 0 {
					r.Value = []byte("not JSON")
				}
				prod.Produce(ctx, r, nil)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done; prod.Close() })
}

// startPrometheus scrapes the worker every second and evaluates our rules as often.
func startPrometheus(t *testing.T, binary, target string) prometheusAPI {
	t.Helper()
	dir := t.TempDir()
	rulesFile, err := filepath.Abs("rules.yml")
	require.NoError(t, err)
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: rollcall
    static_configs: [{targets: [%q], labels: {namespace: dau, group: g}}]
`, rulesFile, target)), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	require.NoError(t, err)
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		_ = log.Close()
	})
	api := prometheusAPI{base: "http://" + addr}
	require.Eventually(t, func() bool { return api.get("/-/ready", nil, nil) == nil }, 60*time.Second, 200*time.Millisecond, "Prometheus does not start")
	return api
}

type prometheusAPI struct{ base string }

// get asks and decodes the data of the answer into out, if that is not nil.
func (a prometheusAPI) get(path string, args url.Values, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path+"?"+args.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", args.Encode(), answer.Error)
	}
	return json.Unmarshal(answer.Data, out)
}

type series struct {
	Metric map[string]string
	Value  [2]any
}

func (a prometheusAPI) ask(expr string) ([]series, error) {
	var data struct{ Result []series }
	err := a.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

func (a prometheusAPI) query(t *testing.T, expr string) []series {
	t.Helper()
	s, err := a.ask(expr)
	require.NoError(t, err)
	return s
}

// number is the value of the first series, 0 without one.
func (a prometheusAPI) number(expr string) float64 {
	s, err := a.ask(expr)
	if err != nil || len(s) == 0 {
		return 0
	}
	var v float64
	_, _ = fmt.Sscan(s[0].Value[1].(string), &v)
	return v
}

// knows fails unless every metric in expr has been seen. ALERTS exists only while an alert is pending or fires.
func (a prometheusAPI) knows(t *testing.T, expr string) {
	t.Helper()
	names := regexp.MustCompile(`\b(rollcall[_:][a-z0-9_:]+|process_[a-z_]+|go_[a-z_]+|up)\b`).FindAllString(expr, -1)
	require.True(t, len(names) > 0 || strings.Contains(expr, "ALERTS"), "no metric in %s", expr)
	for _, n := range names {
		require.NotZero(t, a.number("count(last_over_time("+n+"[5m]))"), "metric %s of %s does not exist", n, expr)
	}
}

func (a prometheusAPI) labelValues(t *testing.T, q string) []string {
	t.Helper()
	m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(q)
	require.Len(t, m, 3, q)
	var out []string
	require.NoError(t, a.get("/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {m[1]}}, &out))
	return out
}

type ruleState struct{ Name, Health, LastError, State string }

func (a prometheusAPI) rules(t *testing.T) []struct{ Rules []ruleState } {
	t.Helper()
	var data struct {
		Groups []struct{ Rules []ruleState }
	}
	require.NoError(t, a.get("/api/v1/rules", nil, &data))
	return data.Groups
}

func (a prometheusAPI) state(t *testing.T, alert string) string {
	t.Helper()
	for _, g := range a.rules(t) {
		for _, r := range g.Rules {
			if r.Name == alert {
				return r.State
			}
		}
	}
	return ""
}

func rows(t *testing.T, db *sql.DB, q string) int {
	t.Helper()
	r, err := db.QueryContext(t.Context(), q)
	require.NoError(t, err, q)
	defer r.Close()
	n := 0
	for r.Next() {
		n++
	}
	require.NoError(t, r.Err())
	return n
}
