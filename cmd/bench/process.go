package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// The roles a process started by bench can have. Each prints one line of JSON when it is ready or done.
const (
	roleBroker = "broker"
	roleRaw    = "raw"
	roleRocks  = "starrocks"
)

func play(ctx context.Context, role, spec string) error {
	switch role {
	case roleBroker:
		return playBroker(ctx, spec)
	case roleRaw:
		return playRaw(ctx, spec)
	case roleRocks:
		return playRocks(ctx)
	}
	return fmt.Errorf("no role %q", role)
}

// tell prints the one line.
func tell(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// parentGone returns when the process that started this one closes the pipe to it, or is no more.
func parentGone(ctx context.Context) {
	gone := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(gone) }()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

// child is a process in one of the roles.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	err   bytes.Buffer
}

// spawn starts this program again in a role.
func spawn(ctx context.Context, role string, spec any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own program: %w", err)
	}
	js, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "-role", role, "-spec", string(js))} //nolint:gosec // ourselves
	c.cmd.Stderr = &c.err
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return c, nil
}

// hear waits for the child's line.
func (c *child) hear(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		return fmt.Errorf("%w; it said: %s", err, bytes.TrimSpace(c.err.Bytes()))
	}
	return nil
}

// end lets the child go and waits for it.
func (c *child) end() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}

// cpu is what an ended process has used, its threads and the kernel's work for it included.
func cpu(p *os.ProcessState) time.Duration { return p.UserTime() + p.SystemTime() }

// peakRSS is the greatest resident memory a living process has had. The resource usage of an ended one does not say it: on Linux that also
// counts what the parent had when it forked.
func peakRSS(pid int) (bytes int64, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	return field(b, "VmHWM:")
}

// field reads a line of /proc/<pid>/status that is in kB.
func field(status []byte, name string) (int64, error) {
	_, rest, ok := bytes.Cut(status, []byte(name))
	if !ok {
		return 0, errors.New("no " + name)
	}
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0, errors.New("nothing after " + name)
	}
	kb, err := strconv.ParseInt(string(f[0]), 10, 64)
	return kb << 10, err
}

// dieWithParent makes the kernel kill the process when the one that started it is gone.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
