//go:build !linux

package kafkatest

import "errors"

// boundSocket needs Linux's listen(2), see socket_linux.go.
type boundSocket struct{}

var errLinux = errors.New("refusing and dropping connections on a held port needs Linux")

func refuseOn(int) (*boundSocket, error) { return nil, errLinux }

func dropOn(int) (*boundSocket, error) { return nil, errLinux }

func (*boundSocket) Close() error { return nil }
