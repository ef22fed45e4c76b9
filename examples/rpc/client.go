package main

import (
	"bufio"
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/examples/internal/network"
)

// client is one connection to the server. Its calls form a group, with its own ids; they end
// together when the connection is lost.
type client struct {
	*link
	calls   *calls.Group[uint64, uint64]
	read    atomic.Uint64 // replies
	matched atomic.Uint64 // replies that matched a pending call
	lost    int           // calls ended by the loss of the connection; read it after running has ended
	running sync.WaitGroup
}

func dial(on network.Network, addr string, table *calls.Table[uint64, uint64]) (*client, error) {
	c, err := on.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newClient(c, table), nil
}

func newClient(conn net.Conn, table *calls.Table[uint64, uint64]) *client {
	c := &client{link: newLink(conn), calls: table.Group()}
	ended := make(chan struct{})
	c.running.Go(func() { c.write(ended) })
	c.running.Go(func() {
		defer close(ended)
		c.receive()
	})
	return c
}

// receive passes each reply to its pending call, until the connection is lost.
func (c *client) receive() {
	in := bufio.NewReaderSize(c, 1<<16)
	for {
		f, err := readFrame(in)
		if err != nil {
			lost := &lostError{c.cause(err)}
			_ = c.Close()
			c.lost = c.calls.CloseWithError(lost)
			return
		}
		c.read.Add(1)
		if c.calls.Reply(f.id, f.payload) {
			c.matched.Add(1)
		}
	}
}

func (c *client) shutdown() {
	_ = c.Close()
	c.running.Wait()
}

// lostError is the error of calls whose connection is lost.
type lostError struct{ err error }

func (e *lostError) Error() string { return "connection lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }
