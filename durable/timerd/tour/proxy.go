package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxDelay = 300 * time.Millisecond // at most
	maxLate  = 3 * time.Second        // at most; workers give up a call after a quarter of their lease
	maxHeld  = 1 << 20                // bytes of a connection that are delivered late
)

// proxy is a faulty TCP proxy between the timerds and one server. It delays requests and cuts
// connections. It delivers a request late, after the client has given it up and sent it again or
// sent another one. It delivers all requests of some connections twice.
type proxy struct {
	addr       string // host:port
	server     string
	listener   net.Listener
	seed       uint64
	faultEvery time.Duration // mean time until a fault of a connection

	mu       sync.Mutex
	conns    map[net.Conn]bool
	flushing chan struct{} // closed when late requests must be delivered at once
	closed   bool          // set when all connections are cut
	wg       sync.WaitGroup
	counts   *proxyCounts
}

// proxyCounts count the faults of all proxies of a tour.
type proxyCounts struct {
	cut, late, twice atomic.Int64 // connections
}

// newProxy returns a proxy for an address. start opens the listener.
func newProxy(addr, server string, seed uint64, faultEvery time.Duration, counts *proxyCounts) *proxy {
	return &proxy{addr: addr, server: server, seed: seed, faultEvery: faultEvery, conns: make(map[net.Conn]bool), flushing: make(chan struct{}), counts: counts}
}

func (p *proxy) start() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() {
		for i := uint64(0); ; i++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			rng := rand.New(rand.NewPCG(p.seed, i))
			p.wg.Go(func() { p.serve(client, rng) })
		}
	})
	return nil
}

// flush delivers the late requests at once, and returns when all are delivered. No client is
// connected any more.
func (p *proxy) flush() {
	close(p.flushing)
	_ = p.listener.Close()
	p.wg.Wait()
}

// cutAll cuts all connections and closes the listener.
func (p *proxy) cutAll() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	_ = p.listener.Close()
}

// open registers a connection. The returned function closes it.
func (p *proxy) open(c net.Conn) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
	if p.closed {
		_ = c.Close()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		_ = c.Close()
	}
}

func (p *proxy) serve(client net.Conn, rng *rand.Rand) {
	defer p.open(client)()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return // the server is down: the client's connection is cut
	}
	defer p.open(server)()
	p.wg.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	send := func(b []byte) error { _, err := server.Write(b); return err }
	if rng.IntN(4) == 0 {
		if duplicate, end := p.duplicate(rng); end != nil {
			defer end()
			first := send
			send = func(b []byte) error { duplicate(b); return first(b) }
			p.counts.twice.Add(1)
		}
	}
	untilFault := func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(p.faultEvery)) }
	nextFault := time.Now().Add(untilFault())
	buf := make([]byte, 64<<10)
	for {
		k, err := client.Read(buf)
		if err != nil {
			return
		}
		if time.Now().After(nextFault) {
			nextFault = time.Now().Add(untilFault())
			switch roll := rng.IntN(8); {
			case roll < 2:
				p.counts.cut.Add(1)
				return
			case roll < 4:
				time.Sleep(time.Duration(rng.Int64N(int64(maxDelay))))
			default: // rarely without a cut, because then all callers of a shard wait
				p.deliverLate(client, server, buf[:k], roll < 7, rng)
				return
			}
		}
		if send(buf[:k]) != nil {
			return
		}
	}
}

// deliverLate delivers, after a delay, the data that was read and the data that the client sends
// until it closes. If cut is set, deliverLate closes the client's connection at once; otherwise the
// client waits for a reply until it gives up or the delay ends.
func (p *proxy) deliverLate(client, server net.Conn, first []byte, cut bool, rng *rand.Rand) {
	p.counts.late.Add(1)
	held := bytes.NewBuffer(bytes.Clone(first))
	until := time.Now().Add(time.Duration(rng.Int64N(int64(maxLate))))
	if cut {
		_ = client.Close()
	} else {
		_ = client.SetReadDeadline(until)
		_, _ = io.Copy(held, io.LimitReader(client, maxHeld))
		_ = client.Close()
	}
	select {
	case <-time.After(time.Until(until)):
	case <-p.flushing:
	}
	_, _ = server.Write(held.Bytes())
	halfClose(server)
}

// halfClose closes the sending side of a connection, and waits until the server closes its side.
func halfClose(server net.Conn) {
	_ = server.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, server)
}

// duplicate returns a function that delivers requests a second time, a little later over a
// connection of its own, and drops the replies.
func (p *proxy) duplicate(rng *rand.Rand) (send func([]byte), end func()) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return nil, nil
	}
	type delayedWrite struct {
		at   time.Time
		data []byte
	}
	writes := make(chan delayedWrite, 1024)
	closeServer := p.open(server)
	p.wg.Go(func() { _, _ = io.Copy(io.Discard, server) })
	p.wg.Go(func() {
		defer closeServer()
		for w := range writes {
			select {
			case <-time.After(time.Until(w.at)):
			case <-p.flushing:
			}
			_, _ = server.Write(w.data)
		}
		halfClose(server)
	})
	by := time.Duration(rng.Int64N(int64(maxDelay)))
	end = func() { close(writes) }
	full := false // the server is paused: stop for good, because skipping parts would mix requests
	send = func(b []byte) {
		if full {
			return
		}
		select {
		case writes <- delayedWrite{time.Now().Add(by), bytes.Clone(b)}:
		default:
			full = true
		}
	}
	return send, end
}
