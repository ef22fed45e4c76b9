package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
)

// Handler handles a request. For each connection, the reader calls it with one request after the
// other. It answers through r, now or later, from any goroutine; r is nil for a request that
// expects no response.
type Handler func(c *Conn, req kmsg.Request, r *Reply)

// Gate is where a server waits before it reads a request and before it writes responses. Tests and
// the fault tour hold it up there.
type Gate interface {
	Open() bool // reports whether Pass would return at once
	Pass(context.Context) error
}

// Options configure a Server.
type Options struct {
	Limits Config
	Handle Handler
	Gate   Gate
	Logger *slog.Logger
}

// Server speaks Kafka's protocol on a listener: it reads the requests of each connection, passes
// them to the Handler, and writes their responses in the order of the requests.
//
// Lock order: mu, then conn.mu, which is a leaf.
type Server struct {
	Options
	listener net.Listener
	Metrics  Metrics

	inbound   *semaphore.Weighted // bytes of large frames, from before they are read until they are handled
	inboundBy atomic.Int64        // the bytes acquired from inbound
	outbound  atomic.Int64        // bytes of fetch responses between build and write
	queuedSum atomic.Int64        // bytes of requests between read and response: see queuedSize

	ctx       context.Context // parent of every connection's ctx
	cancel    context.CancelFunc
	Draining  atomic.Bool
	killed    atomic.Bool
	drained   chan struct{} // closed when Draining is set
	drainOnce sync.Once
	conns     sync.WaitGroup
	accepted  chan struct{} // closed when the accept loop has ended

	mu    sync.Mutex
	open  map[*Conn]struct{} // guarded by mu
	hosts map[string]int     // number of open connections by host; guarded by mu
	freed chan struct{}      // closed when a connection ends; guarded by mu

	loggedMu sync.Mutex
	logged   map[string]bool // messages already logged; guarded by loggedMu
}

// NewServer takes ownership of the listener. Serve starts accepting.
func NewServer(l net.Listener, o Options) *Server {
	s := &Server{
		Options:  o,
		listener: l,
		inbound:  semaphore.NewWeighted(o.Limits.MaxInboundSum),
		drained:  make(chan struct{}),
		accepted: make(chan struct{}),
		open:     map[*Conn]struct{}{},
		hosts:    map[string]int{},
		freed:    make(chan struct{}),
		logged:   map[string]bool{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Addr returns the listener's address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve accepts connections in a goroutine, until Drain or Kill.
func (s *Server) Serve() { go s.accept() }

// accept accepts connections. At the limit it closes the connection that has been idle the longest,
// so that a flood of silent connections cannot lock out other clients. While none is idle, further
// ones wait in the kernel's backlog and cost this process nothing.
func (s *Server) accept() {
	defer close(s.accepted)
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely out of file descriptors: neither exit nor spin.
			s.logOnce("accept", err)
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		s.Metrics.Connections.Add(1)
		if !s.waitForSlot(nc) {
			_ = nc.Close()
			continue
		}
		go s.begin(nc).serve()
	}
}

// waitForSlot waits until the limits allow another connection. It returns false if they will not:
// the host has its maximum number and none of them is idle, or the server ends.
func (s *Server) waitForSlot(nc net.Conn) bool {
	host := hostOf(nc)
	for {
		s.mu.Lock()
		total, ofHost, freed := len(s.open), s.hosts[host], s.freed
		if total < s.Limits.MaxConnections && ofHost < s.Limits.MaxPerHost {
			s.mu.Unlock()
			return true
		}
		idle := s.idleLocked(host, ofHost >= s.Limits.MaxPerHost)
		s.mu.Unlock()
		switch {
		case idle != nil:
			s.logOnce("full", fmt.Errorf("%d connections are open, %d of them from %s: the one that was idle for longest makes room", total, ofHost, host))
			idle.hangUp()
		case total < s.Limits.MaxConnections:
			s.logOnce("host full", fmt.Errorf("%s has %d connections open, and each waits for an answer", host, ofHost))
			return false
		}
		select {
		case <-freed:
		case <-s.drained:
			return true // its reader finds the drain at its start
		case <-s.ctx.Done():
			return false
		}
	}
}

// idleLocked returns the connection that has been idle the longest, of a host or of all; nil if
// none is idle.
func (s *Server) idleLocked(host string, ofHost bool) (idle *Conn) {
	var longest int64
	for c := range s.open {
		since := c.idleSince.Load()
		if since != busy && (!ofHost || c.host == host) && (idle == nil || since < longest) {
			idle, longest = c, since
		}
	}
	return idle
}

func hostOf(nc net.Conn) string {
	host, _, _ := net.SplitHostPort(nc.RemoteAddr().String())
	return host
}

// ServeConn serves a connection that the listener did not accept, until it ends.
func (s *Server) ServeConn(nc net.Conn) { s.begin(nc).serve() }

// begin registers a connection until its serve returns.
func (s *Server) begin(nc net.Conn) *Conn {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	s.hosts[c.host]++
	s.conns.Add(1)
	return c
}

func (s *Server) end(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	if s.hosts[c.host]--; s.hosts[c.host] == 0 {
		delete(s.hosts, c.host)
	}
	close(s.freed)
	s.freed = make(chan struct{})
	s.conns.Done()
}

// Drain stops accepting and reading. Responses are still sent.
func (s *Server) Drain() {
	s.drainOnce.Do(func() {
		s.Draining.Store(true)
		close(s.drained)
	})
	_ = s.listener.Close()
	// A connection that is just being accepted finds the drain at its start.
	s.mu.Lock()
	for c := range s.open {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
}

// Kill breaks all connections without answering.
func (s *Server) Kill() {
	s.killed.Store(true) // before any goroutine learns of it
	s.Drain()
	s.cancel()
	s.hangUpAll()
}

// Finish waits, after Drain, until every response is sent, and closes the connections. It drops
// responses that are not sent when ctx ends. It leaves no goroutine behind.
func (s *Server) Finish(ctx context.Context) (err error) {
	done := make(chan struct{})
	go func() {
		<-s.accepted
		s.conns.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.cancel()
	s.hangUpAll()
	<-done
	return err
}

func (s *Server) hangUpAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.hangUp()
	}
}

// Queued returns the number of requests read and not answered yet, over all connections except
// those for which skip returns true.
func (s *Server) Queued(skip func(*Conn) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if skip(c) {
			continue
		}
		c.mu.Lock()
		n += len(c.queue)
		c.mu.Unlock()
	}
	return n
}

// Usage is what a server currently holds.
type Usage struct {
	Open                      int   // number of connections
	Inbound, Queued, Outbound int64 // bytes: of large frames, of waiting requests, of fetch responses
}

// Usage returns the server's current usage.
func (s *Server) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{len(s.open), s.inboundBy.Load(), s.queuedSum.Load(), s.outbound.Load()}
}

// logEnd logs why a connection ended, unless the client simply left. It logs each message once, so
// that a hostile client cannot fill the log.
func (s *Server) logEnd(err error) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, errIdle):
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.logOnce("slow", fmt.Errorf("broker: frame not complete in time: %w", err))
	default:
		var op *net.OpError
		if errors.As(err, &op) {
			return // reset by peer and the like
		}
		s.Metrics.Refused.Add(1)
		s.logOnce(err.Error(), err)
	}
}

// maxLogged bounds the number of logged messages, and so their memory.
const maxLogged = 64

func (s *Server) logOnce(key string, err error) {
	s.loggedMu.Lock()
	defer s.loggedMu.Unlock()
	if len(s.logged) >= maxLogged || s.logged[key] {
		return
	}
	s.logged[key] = true
	s.Logger.Warn("broker: connection closed", "reason", err)
}

// Metrics counts the traffic of a server. Counters never decrease.
type Metrics struct {
	Connections atomic.Uint64
	Requests    atomic.Uint64    // decoded and handled
	Answers     atomic.Uint64    // written
	Refused     atomic.Uint64    // connections closed for invalid input
	Panics      atomic.Uint64    // bugs: recovered in a handler, or while a response was built
	Wake        metric.Histogram // from the event that completed a parked request to the write of its response
}

// answered records that replies have been written.
func (m *Metrics) answered(sent []*Reply) {
	m.Answers.Add(uint64(len(sent)))
	now := time.Now()
	for _, r := range sent {
		if !r.woken.IsZero() {
			m.Wake.Add(now.Sub(r.woken))
		}
	}
}
