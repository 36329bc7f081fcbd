package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
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
	keep  bool     // leave the log when the stage is closed

	worker *workerproc.Process
}

// newStage starts everything but the worker. Close what it returns, also with an error.
func newStage(f flags, rocks starrockstest.Config, httpPort int) (*stage, error) {
	s := &stage{}
	if _, err := os.Stat(f.worker); err != nil {
		return nil, fmt.Errorf("the worker's binary: %w (make demo builds it)", err)
	}
	var err error
	if s.log, err = os.CreateTemp("", "rollcall-demo-*.log"); err != nil {
		return s, err
	}
	s.kafka, err = kafkatest.StartFake(kafkatest.FakeOptions{Opts: []kfake.Opt{kfake.SeedTopics(partitions, topic), kfake.SeedTopics(1, deadTopic)}})
	if err != nil {
		return s, err
	}
	s.rocks = starrockstest.New(rocks)
	if err := s.rocks.Start(); err != nil {
		return s, portTaken(fmt.Errorf("stand-in StarRocks: %w", err))
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.InterpolateParams = "tcp", s.rocks.MySQLAddr(1), "root", true
	conn, err := mysql.NewConnector(cfg)
	if err != nil {
		return s, err
	}
	s.db = sql.OpenDB(conn)
	if _, err := s.db.ExecContext(context.Background(), "CREATE DATABASE "+database); err != nil {
		return s, fmt.Errorf("create the database: %w", err)
	}
	s.prod, err = kgo.NewClient(kgo.SeedBrokers(s.kafka.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond), kgo.MaxBufferedRecords(200000), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.DisableClientMetrics(), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(2*time.Second))
	if err != nil {
		return s, err
	}
	s.worker, err = workerproc.New(workerproc.Config{Binary: f.worker, Env: s.settings(), Log: s.log, Port: httpPort})
	return s, portTaken(err)
}

// portTaken adds what to do about a fixed port that somebody else uses.
func portTaken(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; make play uses the ports 8030, 8040, 8080 and 9030: end what has it (ss -ltnp shows it; another make play?)", err)
	}
	return err
}

// settings are the worker's environment.
func (s *stage) settings() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOSTNAME=demo",
		"KAFKA_BROKERS=" + strings.Join(s.kafka.Addrs(), ","), "KAFKA_TOPICS=" + topic, "KAFKA_GROUP=demo",
		"KAFKA_SESSION_TIMEOUT=6s", "DISCOVERY_INTERVAL=2s", "DISCOVERY_REQUEST_TIMEOUT=1s", "DISCOVERY_TIMEOUT=5s",
		"STARROCKS_HTTP=" + s.rocks.FEURL(1), "STARROCKS_MYSQL=" + s.rocks.MySQLAddr(1), "STARROCKS_USER=root",
		"STARROCKS_DATABASE=" + database, "STARROCKS_TABLE=" + table,
		"DEADLETTER_TOPIC=" + deadTopic, "ALLOWED_LATENESS=96h", "FLUSH_INTERVAL=1s", "LOAD_TIMEOUT=5s",
	}
	for k, v := range oracle.Settings() {
		env = append(env, k+"="+v)
	}
	return env
}

// stop ends the worker with SIGTERM and returns an error unless it exits 0.
func (s *stage) stop(limit time.Duration) error {
	code, err := s.worker.Stop(limit)
	if err == nil && code != 0 {
		err = fmt.Errorf("the worker exited %d, want 0; its log: %s", code, s.log.Name())
	}
	s.keep = s.keep || err != nil
	return err
}

func (s *stage) close() {
	if s.worker != nil {
		s.worker.Kill()
	}
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
		if !s.keep {
			_ = os.Remove(s.log.Name())
		}
	}
}

// showLog prints the end of the worker's log, and keeps the whole for whoever wants to know more.
func (s *stage) showLog(out io.Writer) {
	if s.worker == nil {
		return // it never ran
	}
	s.keep = true
	fmt.Fprintf(out, "\n--- end of the worker's log (%s)\n%s\n", s.log.Name(), s.worker.Tail(8<<10))
}
