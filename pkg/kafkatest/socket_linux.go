package kafkatest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// boundSocket holds a loopback port in one of two ways that need no privileges and no firewall:
//
//   - bound but not listening: connections are refused;
//   - listening with a full accept queue: the kernel drops further SYNs, so connecting hangs, as with a host that is gone.
//     listen(2) with backlog 0 leaves room for one connection, which the filler takes and nobody accepts.
type boundSocket struct {
	fd     int
	filler net.Conn
}

// refuseOn makes connections to the port be refused.
func refuseOn(port int) (*boundSocket, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &boundSocket{fd: fd}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt", err), s.Close())
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, errors.Join(fmt.Errorf("port %d: %w", port, os.NewSyscallError("bind", err)), s.Close())
	}
	return s, nil
}

// dropOn makes connections to the port hang.
func dropOn(port int) (*boundSocket, error) {
	s, err := refuseOn(port)
	if err != nil {
		return nil, err
	}
	if err := syscall.Listen(s.fd, 0); err != nil {
		return nil, errors.Join(os.NewSyscallError("listen", err), s.Close())
	}
	if s.filler, err = net.DialTimeout("tcp", loopback(port), time.Second); err != nil {
		return nil, errors.Join(fmt.Errorf("fill the accept queue: %w", err), s.Close())
	}
	return s, nil
}

func (s *boundSocket) Close() error {
	err := os.NewSyscallError("close", syscall.Close(s.fd))
	if s.filler != nil {
		err = errors.Join(err, s.filler.Close())
	}
	return err
}
