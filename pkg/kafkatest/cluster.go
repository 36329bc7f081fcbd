package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// State of a broker process as this package left it; it does not ask the process.
type State int

// The states of a broker process.
const (
	Dead    State = iota + 1 // never started, killed, shut down, or ended by itself
	Running                  // started and not stopped since
	Stopped                  // frozen by SIGSTOP: the kernel still accepts its connections, nobody answers
)

// Cluster is a running Apache Kafka cluster. Broker i has node id i, i from 0.
type Cluster struct {
	opts Options
	dist *dist
	id   string
	dir  string
	own  bool // dir is ours to remove

	mu     sync.Mutex
	nodes  []*node
	closed bool
	last   string // what Logs returns after Close
}

// node is one broker; its fields are guarded by Cluster.mu.
type node struct {
	id         int
	port       int // of the listener clients use; Replace changes it
	controller int // of the controller listener; part of the voter set, never changes
	dir        string
	proc       *process
	stopped    bool
}

func (n *node) state() State {
	switch {
	case n.proc == nil || n.proc.ended():
		return Dead
	case n.stopped:
		return Stopped
	default:
		return Running
	}
}

// StartCluster brings the jars if they are not there yet, starts all brokers and waits until all have joined. On an error nothing is left
// running. The first call on a machine may take minutes in Maven; after that a start takes a few seconds.
func StartCluster(ctx context.Context, o Options) (*Cluster, error) {
	o = o.withDefaults()
	d, err := resolve(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: o, dist: d, id: newClusterID(), dir: o.Dir}
	if c.dir == "" {
		c.own = true
		if c.dir, err = os.MkdirTemp("", "rollcall-kafka-"); err != nil {
			return nil, err
		}
	}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("start kafka: %w\n%s", err, c.Logs(2000))
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.StartTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	ports, err := freePorts(2 * c.opts.Brokers)
	if err != nil {
		return err
	}
	for i := range c.opts.Brokers {
		c.nodes = append(c.nodes, &node{
			id: i, port: ports[2*i], controller: ports[2*i+1], dir: filepath.Join(c.dir, "node-"+strconv.Itoa(i)),
		})
	}
	for _, n := range c.nodes {
		if err := c.format(n); err != nil {
			return fmt.Errorf("format broker %d: %w", n.id, err)
		}
		if err := c.launch(n); err != nil {
			return err
		}
	}
	for {
		if err := c.died(); err != nil {
			return err
		}
		tctx, tcancel := context.WithTimeout(ctx, time.Second)
		err := c.waitReady(tctx, c.snapshot())
		tcancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// died names a broker whose process has ended, so that a start that cannot succeed is not waited for. The caller holds c.mu.
func (c *Cluster) died() error {
	for _, n := range c.nodes {
		if n.proc.ended() {
			return fmt.Errorf("broker %d ended: %w", n.id, n.proc.err)
		}
	}
	return nil
}

// format lays out a node's storage as "kafka-storage format" does.
func (c *Cluster) format(n *node) error {
	boot := filepath.Join(n.dir, "data", bootstrapFile)
	if err := os.MkdirAll(filepath.Dir(boot), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(boot, c.dist.bootstrap, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.dir, "data", "meta.properties"), properties(map[string]string{
		"version": "1", "cluster.id": c.id, "node.id": strconv.Itoa(n.id), "directory.id": newClusterID(),
	}), 0o600)
}

// launch writes a node's settings and starts its process. The caller holds c.mu.
func (c *Cluster) launch(n *node) error {
	voters := make([]string, len(c.nodes))
	for i, v := range c.nodes {
		voters[i] = fmt.Sprintf("%d@127.0.0.1:%d", v.id, v.controller)
	}
	props := defaults(c.opts.Brokers)
	maps.Copy(props, map[string]string{
		"node.id":                  strconv.Itoa(n.id),
		"controller.quorum.voters": strings.Join(voters, ","),
		"listeners":                fmt.Sprintf("BROKER://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", n.port, n.controller),
		"log.dirs":                 filepath.Join(n.dir, "data"),
	})
	maps.Copy(props, c.opts.Properties)
	conf := filepath.Join(n.dir, "server.properties")
	if err := os.WriteFile(conf, properties(props), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("java", "-Xmx"+strconv.Itoa(c.opts.HeapMiB)+"m",
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS", "-Dorg.slf4j.simpleLogger.showThreadName=false",
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn", // hundreds of lines of settings
		"-cp", c.dist.classpath, "kafka.Kafka", conf)
	cmd.Dir = n.dir
	p, err := startProcess(cmd, filepath.Join(n.dir, "log"))
	if err != nil {
		return fmt.Errorf("start broker %d: %w", n.id, err)
	}
	n.proc, n.stopped = p, false
	return nil
}

// ClusterID is the id the brokers answer with.
func (c *Cluster) ClusterID() string { return c.id }

// Addrs are the host:port of all brokers, living or not, in order of node id.
func (c *Cluster) Addrs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.addr()
	}
	return addrs
}

func (n *node) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

// State says what became of broker i.
func (c *Cluster) State(i int) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].state()
}

// Kill ends broker i with SIGKILL and waits until the process is gone. A dead broker stays dead.
func (c *Cluster) Kill(i int) error {
	return c.with(i, func(n *node) error {
		if n.proc == nil {
			return nil
		}
		return n.proc.kill(c.opts.StartTimeout)
	})
}

// Shutdown ends broker i with SIGTERM, as a rolling restart does: it moves its leaders away first. A broker that has not ended when ctx is
// done is left running and reported.
func (c *Cluster) Shutdown(ctx context.Context, i int) error {
	return c.with(i, func(n *node) error {
		if n.state() != Running {
			return errors.New("not running")
		}
		if err := n.proc.signal(syscall.SIGTERM); err != nil {
			return err
		}
		return n.proc.wait(ctx)
	})
}

// Stop freezes broker i with SIGSTOP: connections to it stay open and new ones are accepted by the kernel, but nothing answers.
func (c *Cluster) Stop(i int) error {
	return c.with(i, func(n *node) error {
		if n.state() == Dead {
			return errors.New("dead")
		}
		n.stopped = true
		return n.proc.signal(syscall.SIGSTOP)
	})
}

// Continue lets a broker that Stop froze go on.
func (c *Cluster) Continue(i int) error {
	return c.with(i, func(n *node) error {
		if n.state() == Dead {
			return errors.New("dead")
		}
		n.stopped = false
		return n.proc.signal(syscall.SIGCONT)
	})
}

// Restart starts broker i at its old address with its old data, killing it first if it lives. It does not wait for it to join; see WaitReady.
func (c *Cluster) Restart(i int) error {
	return c.with(i, func(n *node) error { return c.relaunch(n) })
}

// Replace starts broker i at a new address with its old data and node id, killing it first if it lives, as when a broker's pod is
// rescheduled. The old address is free afterwards. It does not wait for the broker to join.
func (c *Cluster) Replace(i int) error {
	return c.with(i, func(n *node) error {
		ports, err := freePorts(1)
		if err != nil {
			return err
		}
		n.port = ports[0]
		return c.relaunch(n)
	})
}

func (c *Cluster) relaunch(n *node) error {
	if n.state() != Dead {
		if err := n.proc.kill(c.opts.StartTimeout); err != nil {
			return err
		}
	}
	return c.launch(n)
}

// with runs f for broker i with the lock held.
func (c *Cluster) with(i int, f func(*node) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	if err := f(c.nodes[i]); err != nil {
		return fmt.Errorf("broker %d: %w", i, err)
	}
	return nil
}

// snapshot is what admin calls need to know about the brokers. The caller holds c.mu.
func (c *Cluster) snapshot() []target {
	var ts []target
	for _, n := range c.nodes {
		if n.state() == Running {
			ts = append(ts, target{id: int32(n.id), addr: n.addr(), client: c.opts.Client})
		}
	}
	return ts
}

// Logs returns the last max bytes of each broker's log; after Close the last few thousand, whatever max is.
func (c *Cluster) Logs(max int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.last
	}
	return c.logs(max)
}

func (c *Cluster) logs(max int) string {
	var b bytes.Buffer
	for _, n := range c.nodes {
		text, err := readTail(filepath.Join(n.dir, "log"), int64(max))
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "--- kafka broker %d (%s)\n%s\n", n.id, n.addr(), text)
	}
	return b.String()
}

func readTail(name string, max int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > max {
		if _, err := f.Seek(-max, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(f)
}

// Close kills every broker, frozen ones too, waits for them and removes the data. It may be called twice.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for _, n := range c.nodes {
		if n.proc == nil {
			continue
		}
		if err := n.proc.kill(10 * time.Second); err != nil {
			errs = append(errs, fmt.Errorf("broker %d: %w", n.id, err))
		}
	}
	c.last = c.logs(4000)
	if c.own {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
