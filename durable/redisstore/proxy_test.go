package redisstore

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and its server, and does something to the next
// requests that are scripts.
type proxy struct {
	addr   string
	server string

	mu    sync.Mutex
	todo  []deed
	seen  int  // scripts that came
	came  int  // requests of any kind
	dumb  bool // replies are swallowed
	once  bool // until a client closes a connection
	conns map[net.Conn]bool
}

// deed is what is done to one request.
type deed struct {
	dropRequest bool   // it does not reach the server, and the connection is cut
	dropReply   bool   // it is executed, and the connection is cut
	answer      string // the server does not get it; this is the reply
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

// next is what is done to the next scripts.
func (p *proxy) next(deeds ...deed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.todo, p.seen, p.came = deeds, 0, 0
}

// hang makes it swallow all replies.
func (p *proxy) hang(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dumb = on
}

// hangOnce makes it swallow all replies until a client closes a connection.
func (p *proxy) hangOnce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dumb, p.once = true, true
}

func (p *proxy) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.once {
		p.dumb, p.once = false, false
	}
}

func (p *proxy) hangs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dumb
}

// scripts returns how many have come since next.
func (p *proxy) scripts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// requests returns how many requests of any kind have come since next.
func (p *proxy) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.came
}

func (p *proxy) deed(request []byte) deed {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came++
	if !bytes.Contains(request, []byte("\r\neval")) {
		return deed{}
	}
	p.seen++
	if len(p.todo) == 0 {
		return deed{}
	}
	d := p.todo[0]
	p.todo = p.todo[1:]
	return d
}

// serve takes requests as they come in one piece: tests that use it send small ones.
func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer s.Close()
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var drop atomic.Bool // the next reply
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := s.Read(buf)
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
		d := p.deed(buf[:n])
		switch {
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
