package workerproc

import "syscall"

// dieWithParent lets the kernel kill the worker when the process that started it is killed, and keeps the terminal's Ctrl-C from it: who
// started it stops it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
