package kafkatest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed pom.xml
var pom []byte

// resolveTimeout bounds one Maven run and one storage format: minutes on a machine with an empty repository, seconds after that.
const resolveTimeout = 8 * time.Minute

// bootstrapFile is where KRaft storage keeps the feature levels of a fresh cluster (Kafka 4.4: "kafka-storage format").
const bootstrapFile = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"

// dist is a Kafka distribution ready to run.
type dist struct {
	classpath string
	// bootstrap is the content of a freshly formatted node's first metadata checkpoint. It holds feature levels only, no ids, so one
	// format serves every node of every cluster and saves a JVM start for each.
	bootstrap []byte
}

// Available reports whether real Kafka can be tried here: nil, or an error that wraps [ErrUnavailable] and names what is missing.
// It starts nothing and resolves nothing.
func Available() error {
	for _, name := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil
}

// resolve brings the jars through Maven and formats one storage directory, both once per user, machine and pom.xml: the result is kept in
// the user's cache directory and a file lock makes concurrent test processes wait for the first one.
func resolve(ctx context.Context) (*dist, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()

	sum := sha256.Sum256(pom)
	root, err := os.UserCacheDir()
	if err != nil {
		root = os.TempDir()
	}
	dir := filepath.Join(root, "rollcall-kafkatest", hex.EncodeToString(sum[:8]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("kafka distribution: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("kafka distribution: %w", err)
	}
	defer unlock()

	cp, err := classpath(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("kafka distribution: %w", err)
	}
	boot, err := bootstrapCheckpoint(ctx, dir, cp)
	if err != nil {
		return nil, fmt.Errorf("kafka distribution: %w", err)
	}
	return &dist{classpath: cp, bootstrap: boot}, nil
}

// classpath returns the cached class path if every jar on it still exists, else asks Maven.
func classpath(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "classpath")
	if b, err := os.ReadFile(file); err == nil && allExist(string(b)) {
		return string(b), nil
	}
	pomFile := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pomFile, pom, 0o600); err != nil {
		return "", err
	}
	tmp := file + ".tmp"
	if err := run(ctx, dir, "mvn", "-q", "-B", "-f", pomFile, "dependency:build-classpath",
		"-Dmdep.outputFile="+tmp, "-Dmdep.includeScope=runtime"); err != nil {
		return "", err
	}
	b, err := os.ReadFile(tmp)
	if err != nil {
		return "", err
	}
	cp := strings.TrimSpace(string(b))
	if !allExist(cp) {
		return "", errors.New("maven named jars that do not exist")
	}
	if err := os.WriteFile(tmp, []byte(cp), 0o600); err != nil {
		return "", err
	}
	return cp, os.Rename(tmp, file)
}

func allExist(cp string) bool {
	if cp == "" {
		return false
	}
	for _, jar := range filepath.SplitList(cp) {
		if _, err := os.Stat(jar); err != nil {
			return false
		}
	}
	return true
}

// bootstrapCheckpoint formats a throw-away directory with Kafka's own tool and keeps the checkpoint it wrote.
func bootstrapCheckpoint(ctx context.Context, dir, cp string) ([]byte, error) {
	file := filepath.Join(dir, "bootstrap.checkpoint")
	if b, err := os.ReadFile(file); err == nil && len(b) > 0 {
		return b, nil
	}
	data, err := os.MkdirTemp(dir, "format")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(data)
	conf := filepath.Join(data, "server.properties")
	// The addresses are never used: the format only needs a valid combined node.
	props := properties(map[string]string{
		"log.dirs": filepath.Join(data, "log"), "node.id": "0", "process.roles": "broker,controller",
		"controller.quorum.voters": "0@127.0.0.1:2", "listeners": "BROKER://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
		"listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":      "CONTROLLER", "inter.broker.listener.name": "BROKER",
	})
	if err := os.WriteFile(conf, props, 0o600); err != nil {
		return nil, err
	}
	if err := run(ctx, data, "java", "-cp", cp, "kafka.tools.StorageTool", "format", "-t", newClusterID(), "-c", conf); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(data, "log", bootstrapFile))
	if err != nil {
		return nil, fmt.Errorf("storage format left no bootstrap checkpoint: %w", err)
	}
	if err := os.WriteFile(file+".tmp", b, 0o600); err != nil {
		return nil, err
	}
	return b, os.Rename(file+".tmp", file)
}

// run runs a command to its end; the error carries the end of its output.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return fmt.Errorf("%s: %w: %s", name, err, tail(out.Bytes(), 2000))
	}
	return nil
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return bytes.TrimSpace(b)
}

// lockFile takes an exclusive lock between processes. flock blocks without a deadline, so it polls.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing releases the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
}

// sleep waits for d or until ctx is done, whose cause it then returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
