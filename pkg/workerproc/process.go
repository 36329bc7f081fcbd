// Package workerproc runs the worker's binary as a process and looks at it from outside, as Kubernetes would: for the demo, the
// benchmark and tests that kill it.
package workerproc

import (
	"context"
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

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Config says what to run.
type Config struct {
	// Binary is the path of the worker.
	Binary string
	// Env is its whole environment, NAME=value. HTTP_ADDR is added.
	Env []string
	// Log receives its output.
	Log *os.File
	// Port is that of its HTTP server, 0 for a free one.
	Port int
}

// Process is one worker that may be started again and again. Its methods are safe for concurrent use.
type Process struct {
	cfg  Config
	addr string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // how, valid once done is closed
}

// New chooses the port and starts nothing.
func New(cfg Config) (*Process, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", cfg.Port)) //nolint:noctx // closed at once
	if err != nil {
		return nil, fmt.Errorf("choose a port: %w", err)
	}
	defer l.Close() //nolint:errcheck // nothing was written
	if cfg.Binary, err = filepath.Abs(cfg.Binary); err != nil {
		return nil, err
	}
	return &Process{cfg: cfg, addr: l.Addr().String()}, nil
}

// Addr is where its HTTP server listens.
func (p *Process) Addr() string { return p.addr }

// Start runs the worker; extra is added to its environment for this run.
func (p *Process) Start(extra ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return errors.New("the worker runs already")
	}
	cmd := exec.Command(p.cfg.Binary, "run") //nolint:noctx // it outlives this call; Stop and Kill end it
	cmd.Env = append(append(append([]string{}, p.cfg.Env...), "HTTP_ADDR="+p.addr), extra...)
	cmd.Stdout, cmd.Stderr = p.cfg.Log, p.cfg.Log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.err = cmd, done, nil
	go func() { // ends with the process
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// running returns the process and its end; cmd is nil if there is none.
func (p *Process) running() (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.done
}

// PID is the process id of the worker, 0 if it does not run.
func (p *Process) PID() int {
	if cmd, _ := p.running(); cmd != nil {
		return cmd.Process.Pid
	}
	return 0
}

// Signal sends sig to the worker, if it runs.
func (p *Process) Signal(sig syscall.Signal) error {
	cmd, _ := p.running()
	if cmd == nil {
		return errors.New("the worker does not run")
	}
	return cmd.Process.Signal(sig)
}

// Kill ends the worker with SIGKILL and waits for it.
func (p *Process) Kill() {
	if cmd, done := p.running(); cmd != nil {
		_ = cmd.Process.Kill()
		<-done
		p.forget()
	}
}

// Wait waits until the worker has ended by itself and returns its exit code.
func (p *Process) Wait(ctx context.Context) (int, error) {
	cmd, done := p.running()
	if cmd == nil {
		return 0, errors.New("the worker does not run")
	}
	select {
	case <-done:
		p.forget()
		return cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the worker has not ended: %w", ctx.Err())
	}
}

// Stop sends SIGTERM and returns the exit code; a worker that has not ended after limit is killed and an error.
func (p *Process) Stop(limit time.Duration) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("stop the worker: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		p.Kill()
	}
	return code, err
}

func (p *Process) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = nil
}

// Alive returns an error if the worker was started and has ended by itself.
func (p *Process) Alive() error {
	cmd, done := p.running()
	if cmd == nil {
		return nil
	}
	select {
	case <-done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Errorf("the worker ended by itself: %w", cause(p.err))
	default:
		return nil
	}
}

func cause(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// Get asks the worker's HTTP server and returns status and body.
func (p *Process) Get(ctx context.Context, path string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read whole below
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, body, err
}

// Ready waits until the worker says that it is ready. The error says what it said last.
func (p *Process) Ready(ctx context.Context) error {
	last := "it does not answer"
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if code, body, err := p.Get(ctx, "/readyz"); err == nil {
			if code == http.StatusOK {
				return nil
			}
			last = strings.TrimSpace(string(body))
		}
		if err := p.Alive(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the worker is not ready: %s: %w", last, ctx.Err())
		case <-tick.C:
		}
	}
}

// Metrics scrapes the worker.
func (p *Process) Metrics(ctx context.Context) (Metrics, error) {
	code, body, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("scrape: status %d", code)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	return m, nil
}

// Metrics is one scrape.
type Metrics map[string]*dto.MetricFamily

// Sum adds up the series of a counter or gauge whose labels have the given values, name, value, name, value…
func (m Metrics) Sum(name string, labels ...string) float64 {
	total := 0.0
	f := m[name]
	if f == nil {
		return 0
	}
series:
	for _, s := range f.Metric {
		for i := 0; i+1 < len(labels); i += 2 {
			if !hasLabel(s, labels[i], labels[i+1]) {
				continue series
			}
		}
		total += s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue()
	}
	return total
}

func hasLabel(s *dto.Metric, name, value string) bool {
	for _, l := range s.Label {
		if l.GetName() == name {
			return l.GetValue() == value
		}
	}
	return false
}

// Tail is the end of the log, at most n bytes.
func (p *Process) Tail(n int64) string {
	st, err := p.cfg.Log.Stat()
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(n, st.Size()))
	_, _ = p.cfg.Log.ReadAt(b, st.Size()-int64(len(b)))
	return string(b)
}
