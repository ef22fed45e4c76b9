package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/examples/internal/network"
)

// Fault injection. A broker passes its gate before each step that it takes on its own (read a
// request, write a response, fetch, send a heartbeat, learn of a decision). The gate holds up a
// paused broker and slows a slow one. Links between brokers can be cut. broker.Node stops and
// restarts brokers.

// Gate belongs to one broker. The zero value is open.
type Gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil when open; closed when the gate opens
	delay  time.Duration
}

// Open reports whether Pass would return without waiting.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed == nil && g.delay == 0
}

// Pass waits until the broker may go on.
func (g *Gate) Pass(ctx context.Context) error {
	g.mu.Lock()
	closed, delay := g.closed, g.delay
	g.mu.Unlock()
	if delay > 0 && !Sleep(ctx, delay) {
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

// Pause closes the gate. Operations that already wait elsewhere, with their own timers, go on, as
// they would in a process that is stopped and continued.
func (g *Gate) Pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

// Resume opens the gate.
func (g *Gate) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// Slow delays each Pass by that much; 0 means full speed.
func (g *Gate) Slow(by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = by
}

// Links are the connections between brokers. They also tell a leader which broker is calling: there
// is no authentication, but only a broker of this process can be the peer of a listed connection.
type Links struct {
	network network.Network

	mu   sync.Mutex
	cut  map[[2]int32]bool
	open map[string]linked // by the caller's address
}

type linked struct {
	from, to int32
	nc       net.Conn
}

// NewLinks returns links over a network, none of them cut.
func NewLinks(n network.Network) *Links {
	return &Links{network: n, cut: map[[2]int32]bool{}, open: map[string]linked{}}
}

func pair(a, b int32) [2]int32 { return [2]int32{min(a, b), max(a, b)} }

// Dial connects broker from to broker to, unless their link is cut.
func (l *Links) Dial(ctx context.Context, from, to int32, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	nc, err := l.network.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut[pair(from, to)] {
		_ = nc.Close()
		return nil, fmt.Errorf("the link between brokers %d and %d is cut", from, to)
	}
	l.open[nc.LocalAddr().String()] = linked{from, to, nc}
	return nc, nil
}

// HangUp closes a connection that Dial made.
func (l *Links) HangUp(nc net.Conn) {
	l.mu.Lock()
	delete(l.open, nc.LocalAddr().String())
	l.mu.Unlock()
	_ = nc.Close()
}

// Caller returns the broker that dialed a connection, by the connection's remote address.
func (l *Links) Caller(addr string) (id int32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.open[addr]
	return found.from, ok
}

// Cut cuts the link between two brokers and closes its connections.
func (l *Links) Cut(a, b int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[pair(a, b)] = true
	for _, c := range l.open {
		if pair(c.from, c.to) == pair(a, b) {
			_ = c.nc.Close()
		}
	}
}

// Heal ends a Cut.
func (l *Links) Heal(a, b int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cut, pair(a, b))
}

// Sleep waits for d and reports true, or false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Dialer dials until it is broken; after that, no connection works.
type Dialer struct {
	Network network.Network

	mu     sync.Mutex
	broken bool
	conns  []net.Conn
}

var errBroken = errors.New("this member has crashed")

// Dial connects, unless the Dialer is broken. It has the signature that kgo.Dialer takes.
func (b *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := b.Network.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		_ = nc.Close()
		return nil, errBroken
	}
	b.conns = append(b.conns, nc)
	return nc, nil
}

// Break closes all connections and makes Dial refuse new ones.
func (b *Dialer) Break() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = true
	for _, nc := range b.conns {
		_ = nc.Close()
	}
}
