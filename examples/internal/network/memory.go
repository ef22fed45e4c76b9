package network

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Memory is a network in memory, independent of the kernel: a goroutine that waits on it is durably
// blocked in the sense of testing/synctest, so time is virtual in a bubble. Its connections behave
// like TCP on loopback: a dial succeeds before it is accepted; a write blocks when the peer has
// socketBuffer unread bytes; closing a connection with unread bytes, or with a linger of 0, resets
// its peer. Connections have the relevant methods of a *net.TCPConn: CloseWrite and SetLinger. The
// zero Memory is empty.
type Memory struct {
	// Latency is the time from a write until the data arrives. Without it, a client that retries at
	// once stops the time of a bubble.
	Latency time.Duration

	mu        sync.Mutex
	listeners map[string]*listener // by host:port; guarded by mu
	ports     int                  // ports assigned; guarded by mu
}

const (
	firstPort    = 20_000
	socketBuffer = 256 << 10 // bytes
)

// Listen listens on a host:port; port 0 picks a free port.
func (m *Memory) Listen(_ context.Context, network, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if port == "0" {
		address = net.JoinHostPort(host, strconv.Itoa(m.portLocked()))
	}
	l := &listener{of: m, addr: addrOf(address)}
	l.cond = sync.NewCond(&l.mu)
	if m.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: l.addr, Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	if m.listeners == nil {
		m.listeners = map[string]*listener{}
	}
	m.listeners[address] = l
	return l, nil
}

func (m *Memory) portLocked() int {
	m.ports++
	return firstPort + m.ports
}

// DialContext connects to a listener's address.
func (m *Memory) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	failed := func(err error) error {
		return &net.OpError{Op: "dial", Net: network, Addr: addrOf(address), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, failed(err)
	}
	m.mu.Lock()
	l, port := m.listeners[address], m.portLocked()
	m.mu.Unlock()
	near, far := m.newPair(addrOf(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))), addrOf(address))
	if l == nil || !l.offer(far) {
		return nil, failed(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	return near, nil
}

func addrOf(address string) net.Addr {
	host, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return &net.TCPAddr{IP: net.ParseIP(host), Port: n}
}

type listener struct {
	of   *Memory
	addr net.Addr

	mu      sync.Mutex
	cond    *sync.Cond
	backlog []net.Conn // guarded by mu
	closed  bool       // guarded by mu
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) offer(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.backlog = append(l.backlog, c)
	l.cond.Broadcast()
	return true
}

func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && len(l.backlog) == 0 {
		l.cond.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	c := l.backlog[0]
	l.backlog = l.backlog[1:]
	return c, nil
}

// Close resets the connections that were not accepted.
func (l *listener) Close() error {
	l.of.mu.Lock()
	if address := l.addr.String(); l.of.listeners[address] == l {
		delete(l.of.listeners, address)
	}
	l.of.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.cond.Broadcast()
	for _, c := range l.backlog {
		_ = c.(*conn).SetLinger(0)
		_ = c.Close()
	}
	l.backlog = nil
	return nil
}

// conn is one end of a connection. Both ends share a lock and a condition variable.
type conn struct {
	local, remote net.Addr
	peer          *conn
	mu            *sync.Mutex
	cond          *sync.Cond

	latency time.Duration

	unread      []byte    // guarded by mu, as all below
	arrives     time.Time // when the first byte of unread arrives
	ended       bool      // the peer will write no more
	reset       bool      // by the peer
	closed      bool      // by this side
	hard        bool      // closing resets the peer
	read, write deadline  // of this side's calls
}

func (m *Memory) newPair(a, b net.Addr) (near, far *conn) {
	mu := new(sync.Mutex)
	cond := sync.NewCond(mu)
	near = &conn{local: a, remote: b, mu: mu, cond: cond, latency: m.Latency}
	far = &conn{local: b, remote: a, mu: mu, cond: cond, latency: m.Latency, peer: near}
	near.peer = far
	return near, far
}

// deadline is a time and a timer that wakes the waiting calls at that time.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// set must be called with the connection's lock held.
func (d *deadline) set(at time.Time, cond *sync.Cond) {
	d.at = at
	if d.timer != nil {
		d.timer.Stop()
	}
	if left := time.Until(at); !at.IsZero() && left > 0 {
		if d.timer == nil {
			d.timer = time.AfterFunc(left, func() {
				cond.L.Lock() // otherwise it could fall between a check and its wait
				defer cond.L.Unlock()
				cond.Broadcast()
			})
		} else {
			d.timer.Reset(left)
		}
	}
	cond.Broadcast()
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (c *conn) failed(op string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case c.read.passed():
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		case c.reset:
			return 0, c.failed("read", syscall.ECONNRESET)
		case len(c.unread) > 0 && time.Now().Before(c.arrives):
			c.mu.Unlock()
			time.Sleep(time.Until(c.arrives))
			c.mu.Lock()
			continue
		case len(c.unread) > 0 || len(b) == 0:
			n := copy(b, c.unread)
			if c.unread = c.unread[n:]; len(c.unread) == 0 {
				c.unread = nil
			}
			c.cond.Broadcast()
			return n, nil
		case c.ended:
			return 0, io.EOF
		}
		c.cond.Wait()
	}
}

func (c *conn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		room := socketBuffer - len(c.peer.unread)
		switch {
		case c.closed:
			return n, c.failed("write", net.ErrClosed)
		case c.write.passed():
			return n, c.failed("write", os.ErrDeadlineExceeded)
		case c.reset || c.peer.ended || c.peer.closed:
			return n, c.failed("write", syscall.EPIPE)
		case n == len(b):
			return n, nil
		case room > 0:
			if len(c.peer.unread) == 0 {
				c.peer.arrives = time.Now().Add(c.latency)
			}
			some := b[n:min(len(b), n+room)]
			c.peer.unread = append(c.peer.unread, some...)
			n += len(some)
			c.cond.Broadcast()
			continue
		}
		c.cond.Wait()
	}
}

func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.failed("close", net.ErrClosed)
	}
	c.closed = true
	if c.hard || len(c.unread) > 0 {
		c.peer.reset, c.peer.unread = true, nil
	}
	c.peer.ended, c.unread = true, nil
	c.read.set(time.Time{}, c.cond)
	c.write.set(time.Time{}, c.cond)
	return nil
}

// CloseWrite ends the stream that the peer reads.
func (c *conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.failed("close", net.ErrClosed)
	}
	c.peer.ended = true
	c.cond.Broadcast()
	return nil
}

// SetLinger makes Close reset the peer if seconds is 0.
func (c *conn) SetLinger(seconds int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hard = seconds == 0
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, &c.read, &c.write)
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.read) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.write) }

func (c *conn) setDeadlines(t time.Time, which ...*deadline) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.failed("set", net.ErrClosed)
	}
	for _, d := range which {
		d.set(t, c.cond)
	}
	return nil
}
