package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// Faults on purpose. A gate stands where a broker would do something on its own
// (read a request, write an answer, fetch, send a heartbeat, learn of a
// decision); it holds a paused broker up and slows a slow one down. The links
// between brokers can be cut. Stopping and starting again is in cluster.go.

// gate is one broker's. The zero value is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil when open; closed when it opens
	delay  time.Duration
}

// pass waits until the broker may go on.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	closed, delay := g.closed, g.delay
	g.mu.Unlock()
	if delay > 0 && !pause(ctx, delay) {
		return ctx.Err()
	}
	for closed != nil {
		select {
		case <-closed:
		case <-ctx.Done():
			return ctx.Err()
		}
		g.mu.Lock()
		closed = g.closed
		g.mu.Unlock()
	}
	return nil
}

// pause closes the gate; what is waiting elsewhere, with timers of its own,
// goes on, as it would for a process that is stopped and continued.
func (g *gate) pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// slow makes each passage take that much longer; 0 is full speed.
func (g *gate) slow(by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = by
}

// links are the connections that brokers have to each other. They also tell a
// leader who is calling: there is no authentication, but only a broker of this
// process can be at the other end of a connection that is listed here.
type links struct {
	mu   sync.Mutex
	cut  map[[2]int32]bool
	open map[string]linked // by the caller's address
}

type linked struct {
	from, to int32
	nc       net.Conn
}

func newLinks() *links {
	return &links{cut: map[[2]int32]bool{}, open: map[string]linked{}}
}

func pair(a, b int32) [2]int32 { return [2]int32{min(a, b), max(a, b)} }

// dial connects a broker to another, unless their link is cut.
func (l *links) dial(ctx context.Context, from int32, to nodeInfo) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second}
	nc, err := d.DialContext(ctx, "tcp", net.JoinHostPort(to.host, strconv.Itoa(int(to.port))))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut[pair(from, to.id)] {
		_ = nc.Close()
		return nil, fmt.Errorf("the link between brokers %d and %d is cut", from, to.id)
	}
	l.open[nc.LocalAddr().String()] = linked{from, to.id, nc}
	return nc, nil
}

func (l *links) hangUp(nc net.Conn) {
	l.mu.Lock()
	delete(l.open, nc.LocalAddr().String())
	l.mu.Unlock()
	_ = nc.Close()
}

// caller returns which broker is at the other end of a connection.
func (l *links) caller(nc net.Conn) (id int32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.open[nc.RemoteAddr().String()]
	return found.from, ok
}

// sever cuts the link between two brokers, and what is connected over it.
func (l *links) sever(a, b int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[pair(a, b)] = true
	for _, c := range l.open {
		if pair(c.from, c.to) == pair(a, b) {
			_ = c.nc.Close()
		}
	}
}

func (l *links) heal(a, b int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cut, pair(a, b))
}
