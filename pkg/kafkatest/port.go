package kafkatest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range the kernel gives to outgoing connections (32768 and up on Linux), so that the port of a dead broker
// is still free when it comes back.
const (
	portMin = 12000
	portMax = 32000
)

// freePorts finds n loopback ports nobody listens on at this moment.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 100 * n {
		port := portMin + rand.IntN(portMax-portMin)
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		// Held until all are found, so that they differ.
		defer ln.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free loopback port")
}
