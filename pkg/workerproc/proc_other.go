//go:build !linux

package workerproc

import "syscall"

// dieWithParent has nothing to offer outside Linux: a worker outlives a demo that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
