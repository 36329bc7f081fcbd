//go:build !unix

package starrockstest

import "net"

// narrow cannot drop SYNs here: connections are taken and never answered.
func narrow(net.Listener) (filler net.Conn, err error) { return nil, nil }
