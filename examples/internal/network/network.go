// Package network is where an example listens and dials: on the machine's network, or on one in
// memory, on which a whole example runs in virtual time.
package network

import (
	"context"
	"net"
)

// Network listens and dials, as net.ListenConfig and net.Dialer do.
type Network interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Machine is the network of this machine.
var Machine Network = &struct {
	net.ListenConfig
	net.Dialer
}{}
