// Package loopback gives out addresses for servers that are stopped and started again
// at the same address.
package loopback

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
	ports     = 10_000 // below those that the kernel gives to any client
	bus       = 10_000 // how far above its port a node of a Redis Cluster listens for others
)

// host is an address of the loopback interface that no other process uses, so that
// nothing takes a port while its server is down. Where the interface has one address
// only, it is that.
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

// Addr returns a host:port on which nothing listens; the port 10,000 above it is free,
// too. No two calls of a process return the same.
func Addr() (string, error) {
	for range ports {
		port := firstPort + int(last.Add(1)%ports)
		addr := net.JoinHostPort(host(), strconv.Itoa(port))
		if free(addr) && free(net.JoinHostPort(host(), strconv.Itoa(port+bus))) {
			return addr, nil
		}
	}
	return "", errors.New("loopback: no port is free")
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
