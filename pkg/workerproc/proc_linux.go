package workerproc

import "syscall"

// dieWithParent lets the kernel kill the worker when the process that started it is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
