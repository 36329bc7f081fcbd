package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is one broker process. Its goroutine starts it, waits for it and is the only one to do so.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and err is set
	err  error
}

// startProcess starts a command whose output is appended to logFile. It returns when the process runs or could not be started.
func startProcess(cmd *exec.Cmd, logFile string) (*process, error) {
	f, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = dieWithParent()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(f, started)
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// run keeps its thread for as long as the process lives: the parent-death signal belongs to the thread that forked, not to the program.
func (p *process) run(log *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	defer log.Close()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
}

// signal sends a signal to a process that has not ended.
func (p *process) signal(s syscall.Signal) error {
	if p.ended() {
		return errors.New("process has ended")
	}
	return p.cmd.Process.Signal(s)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process with SIGKILL and waits for its end.
func (p *process) kill(timeout time.Duration) error {
	if err := p.signal(syscall.SIGKILL); err != nil && !p.ended() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return p.wait(ctx)
}

// wait returns when the process has ended, however it ended.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pid %d still runs: %w", p.cmd.Process.Pid, context.Cause(ctx))
	}
}
