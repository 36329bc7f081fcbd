//go:build unix

package starrockstest

import (
	"fmt"
	"net"
	"syscall"
	"time"
)

// narrow makes a listener drop SYNs: its queue is cut to nothing and the one place that is left is filled with a
// connection nobody accepts. Other transports than TCP block a dial by themselves.
func narrow(ln net.Listener) (filler net.Conn, err error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("listener descriptor: %w", err)
	}
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = syscall.Listen(int(fd), 0) }); err != nil {
		return nil, fmt.Errorf("listener descriptor: %w", err)
	}
	if listenErr != nil {
		return nil, fmt.Errorf("shorten the queue: %w", listenErr)
	}
	filler, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("fill the queue: %w", err)
	}
	return filler, nil
}
