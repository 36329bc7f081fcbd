//go:build !linux

package kafkatest

import "syscall"

// dieWithParent has no counterpart here: a killed test leaves its brokers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
