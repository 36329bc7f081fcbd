//go:build unix && !linux

package workerproc

import "syscall"

// dieWithParent keeps the terminal's Ctrl-C from the worker. Outside Linux a worker outlives a demo that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
