package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
)

const (
	topic      = "events"
	deadTopic  = "events-dead"
	partitions = 12
	database   = "demo"
	table      = "dau"
)

// stage is everything the worker needs, in this process.
type stage struct {
	kafka *kafkatest.Fake
	rocks *starrockstest.Cluster
	db    *sql.DB
	prod  *kgo.Client
	log   *os.File // the worker's log
	http  string   // the worker's HTTP address
	bin   string
	extra []string

	mu     sync.Mutex
	worker *exec.Cmd
	exited chan error
}

func newStage(f flags, rocks starrockstest.Config, httpPort int) (*stage, error) {
	s := &stage{bin: f.worker}
	if _, err := os.Stat(f.worker); err != nil {
		return nil, fmt.Errorf("the worker's binary: %w (make demo builds it)", err)
	}
	var err error
	if s.log, err = os.CreateTemp("", "rollcall-demo-*.log"); err != nil {
		return nil, err
	}
	s.kafka, err = kafkatest.StartFake(kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(partitions, topic), kfake.SeedTopics(1, deadTopic)}})
	if err != nil {
		return nil, err
	}
	s.rocks = starrockstest.New(rocks)
	if err := s.rocks.Start(); err != nil {
		return nil, fmt.Errorf("stand-in StarRocks: %w", err)
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.InterpolateParams = "tcp", s.rocks.MySQLAddr(1), "root", true
	conn, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	s.db = sql.OpenDB(conn)
	if _, err := s.db.Exec("CREATE DATABASE " + database); err != nil {
		return nil, fmt.Errorf("create the database: %w", err)
	}
	s.prod, err = kgo.NewClient(kgo.SeedBrokers(s.kafka.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond), kgo.MaxBufferedRecords(200000), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.DisableClientMetrics(), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(2*time.Second))
	if err != nil {
		return nil, err
	}
	s.http, err = freeAddr(httpPort)
	return s, err
}

// freeAddr is a loopback address to listen on: the port given, or any.
func freeAddr(port int) (string, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // closed at once
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// settings are the worker's environment.
func (s *stage) settings() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOSTNAME=demo",
		"KAFKA_BROKERS=" + strings.Join(s.kafka.Addrs(), ","), "KAFKA_TOPICS=" + topic, "KAFKA_GROUP=demo",
		"KAFKA_SESSION_TIMEOUT=6s", "DISCOVERY_INTERVAL=2s", "DISCOVERY_REQUEST_TIMEOUT=1s", "DISCOVERY_TIMEOUT=5s",
		"STARROCKS_HTTP=" + s.rocks.FEURL(1), "STARROCKS_MYSQL=" + s.rocks.MySQLAddr(1), "STARROCKS_USER=root",
		"STARROCKS_DATABASE=" + database, "STARROCKS_TABLE=" + table,
		"DEADLETTER_TOPIC=" + deadTopic, "ALLOWED_LATENESS=96h", "FLUSH_INTERVAL=1s", "LOAD_TIMEOUT=5s", "HTTP_ADDR=" + s.http,
	}
	for k, v := range oracle.Settings() {
		env = append(env, k+"="+v)
	}
	return append(env, s.extra...)
}

// start runs the worker's binary.
func (s *stage) start() error {
	bin, err := filepath.Abs(s.bin)
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, "run") //nolint:noctx // it outlives this call; stop and kill end it
	cmd.Env, cmd.Stderr, cmd.Stdout = s.settings(), s.log, s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	s.mu.Lock()
	s.worker, s.exited = cmd, exited
	s.mu.Unlock()
	return nil
}

// kill ends the worker with SIGKILL.
func (s *stage) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker != nil {
		_ = s.worker.Process.Kill()
		<-s.exited
		s.worker = nil
	}
}

// stop ends the worker with SIGTERM and returns an error unless it exits 0.
func (s *stage) stop(limit time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == nil {
		return nil
	}
	if err := s.worker.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	defer func() { s.worker = nil }()
	select {
	case err := <-s.exited:
		if err != nil {
			return fmt.Errorf("the worker did not stop in order: %w", err)
		}
		return nil
	case <-time.After(limit):
		_ = s.worker.Process.Kill()
		<-s.exited
		return errors.New("the worker did not stop in time")
	}
}

// alive returns the worker's exit as an error if it has ended by itself.
func (s *stage) alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == nil {
		return nil
	}
	select {
	case err := <-s.exited:
		s.exited <- err
		return fmt.Errorf("the worker ended by itself: %v", err) //nolint:errorlint // the exit is the message
	default:
		return nil
	}
}

func (s *stage) close() {
	s.kill()
	if s.prod != nil {
		s.prod.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
	if s.rocks != nil {
		s.rocks.Close()
	}
	if s.kafka != nil {
		s.kafka.Close()
	}
	if s.log != nil {
		_ = s.log.Close()
	}
}

// showLog prints the end of the worker's log.
func (s *stage) showLog(out io.Writer, last int64) {
	if st, err := s.log.Stat(); err == nil {
		b := make([]byte, min(last, st.Size()))
		_, _ = s.log.ReadAt(b, st.Size()-int64(len(b)))
		fmt.Fprintf(out, "\n--- end of the worker's log (%s)\n%s\n", s.log.Name(), b)
	}
}

// ready waits until the worker says that it is ready.
func (s *stage) ready(ctx context.Context) error {
	last := "it does not answer"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = string(body)
		}
		if err := s.alive(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the worker is not ready: %s: %w", last, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
