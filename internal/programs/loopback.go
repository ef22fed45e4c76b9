package programs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	firstPort = 10_000
	ports     = 10_000 // below the kernel's range of ephemeral ports
	bus       = 10_000 // offset of the port on which a node of a Redis Cluster listens for other nodes
)

// host is an address of the loopback interface that no other process uses, so that no other
// process takes a port while its server is down. If the interface has only one address, host is
// that one.
var host = sync.OnceValue(func() string {
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "127.0.0.1"
	}
	_ = l.Close()
	return host
})

var last atomic.Uint32

func init() { last.Store(rand.Uint32N(ports)) }

// Addr returns a host:port on which no server listens; the port 10,000 above it is free, too. No
// two calls of a process return the same address.
func Addr() (string, error) {
	for range ports {
		port := firstPort + int(last.Add(1)%ports)
		addr := net.JoinHostPort(host(), strconv.Itoa(port))
		if free(addr) && free(net.JoinHostPort(host(), strconv.Itoa(port+bus))) {
			return addr, nil
		}
	}
	return "", errors.New("programs: no port is free")
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
