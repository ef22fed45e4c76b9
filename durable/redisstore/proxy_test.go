package redisstore

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and its server, and interferes with the next requests that are
// scripts.
type proxy struct {
	addr   string
	server string

	mu           sync.Mutex
	faults       []fault
	scriptCount  int  // received
	requestCount int  // of any kind, received
	muted        bool // replies are swallowed
	once         bool // until a client closes a connection
	conns        map[net.Conn]bool
	held         []*heldRequest
}

// heldRequest is a request that the proxy holds.
type heldRequest struct {
	request []byte
	to      net.Conn
	reply   chan []byte
}

// fault is the treatment of one request; the zero value passes it on.
type fault struct {
	dropRequest bool   // it does not reach the server, and the connection is cut
	dropReply   bool   // it is executed, and the connection is cut
	answer      string // the server does not get it; this is the reply
	hold        bool   // the server gets it when it is released, even if the client has left
	before      func() // is called first
}

func startProxy(t testing.TB, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: l.Addr().String(), server: server, conns: make(map[net.Conn]bool)}
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.conns {
			_ = c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// next sets the treatment of the next scripts.
func (p *proxy) next(faults ...fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.scriptCount, p.requestCount = faults, 0, 0
}

// hang makes the proxy swallow all replies.
func (p *proxy) hang(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = on
}

// hangOnce makes the proxy swallow all replies until a client closes a connection.
func (p *proxy) hangOnce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted, p.once = true, true
}

func (p *proxy) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.once {
		p.muted, p.once = false, false
	}
}

func (p *proxy) hangs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted
}

// holds returns how many requests are held.
func (p *proxy) holds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// holding waits until a request is held, and returns it.
func (p *proxy) holding(t testing.TB) *heldRequest {
	t.Helper()
	require.Eventually(t, func() bool { return p.holds() > 0 }, time.Minute, time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.held[0]
	p.held = p.held[1:]
	return l
}

// release sends the request to the server, and returns its reply.
func (l *heldRequest) release(t testing.TB) string {
	t.Helper()
	_, err := l.to.Write(l.request)
	require.NoError(t, err)
	select {
	case reply := <-l.reply:
		return string(reply)
	case <-time.After(time.Minute):
		require.Fail(t, "a late request is not answered")
		return ""
	}
}

// releaseTo is release to another server than the original one.
func (l *heldRequest) releaseTo(t testing.TB, srv *server) string {
	t.Helper()
	c, err := net.Dial("tcp", srv.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	l.to = c
	go func() {
		buf := make([]byte, 1<<16)
		n, _ := c.Read(buf)
		l.reply <- buf[:n]
	}()
	return l.release(t)
}

// scripts returns how many scripts have arrived since next.
func (p *proxy) scripts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.scriptCount
}

// requests returns how many requests of any kind have arrived since next.
func (p *proxy) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requestCount
}

// nextFault counts a request, and returns its treatment.
func (p *proxy) nextFault(request []byte) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requestCount++
	if !bytes.Contains(request, []byte("\r\neval")) {
		return fault{}
	}
	p.scriptCount++
	if len(p.faults) == 0 {
		return fault{}
	}
	d := p.faults[0]
	p.faults = p.faults[1:]
	return d
}

// serve expects each request in one piece: the tests send small ones.
func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	left := false // a held request goes to the server over this connection
	defer func() {
		if !left {
			_ = s.Close()
		}
	}()
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var drop atomic.Bool // the next reply
	var kept atomic.Pointer[heldRequest]
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := s.Read(buf)
			if l := kept.Load(); err == nil && l != nil {
				l.reply <- bytes.Clone(buf[:n])
				_, _ = c.Write(buf[:n]) // the client may still wait for it
				kept.Store(nil)
				continue
			}
			if err == nil && p.hangs() {
				continue
			}
			if err == nil && !drop.Load() {
				_, err = c.Write(buf[:n])
			}
			if err != nil || drop.Load() {
				_ = c.Close()
				return
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := c.Read(buf)
		if err != nil {
			p.lost()
			return
		}
		d := p.nextFault(buf[:n])
		if d.before != nil {
			d.before()
		}
		switch {
		case d.hold:
			l := &heldRequest{bytes.Clone(buf[:n]), s, make(chan []byte, 1)}
			kept.Store(l)
			left = true
			p.mu.Lock()
			p.held = append(p.held, l)
			p.mu.Unlock()
		case d.dropRequest:
			return
		case d.answer != "":
			_, err = io.WriteString(c, d.answer)
		default:
			drop.Store(d.dropReply)
			_, err = s.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}
