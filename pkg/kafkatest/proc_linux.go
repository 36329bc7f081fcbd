package kafkatest

import "syscall"

// dieWithParent makes the kernel kill the child when the thread that started it ends; see process.run for the thread.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
