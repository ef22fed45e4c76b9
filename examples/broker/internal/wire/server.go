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

// Handler is what requests are handed to, one after the other for each connection, on
// its reader. It answers by r, now or later, from any goroutine; r is nil for a request
// that is owed no answer.
type Handler func(c *Conn, req kmsg.Request, r *Reply)

// Gate is where a server waits before it reads a request and before it writes
// answers: a test, or a tour of faults, holds it up there.
type Gate interface {
	Open() bool // reports whether Pass would not wait
	Pass(context.Context) error
}

// Options are what a Server needs.
type Options struct {
	Limits Config
	Handle Handler
	Gate   Gate
	Logger *slog.Logger
}

// Server speaks Kafka's protocol on a listener: it reads the requests of each
// connection, has them handled, and writes their answers in the order of the requests.
//
// Lock order: mu, then conn.mu, which is a leaf.
type Server struct {
	Options
	listener net.Listener
	Metrics  Metrics

	inbound   *semaphore.Weighted // bytes of large frames, from before they are read until they are handled
	inboundBy atomic.Int64        // those that are taken
	outbound  atomic.Int64        // bytes of fetch answers between build and write
	queuedSum atomic.Int64        // bytes of requests between read and answered: see queuedSize

	ctx       context.Context // parent of every connection's
	cancel    context.CancelFunc
	Draining  atomic.Bool
	killed    atomic.Bool
	drained   chan struct{} // closed when draining is set
	drainOnce sync.Once
	conns     sync.WaitGroup
	accepted  chan struct{} // closed when the accept loop has ended

	mu    sync.Mutex
	open  map[*Conn]struct{} // guarded by mu
	hosts map[string]int     // of open, by host; guarded by mu
	freed chan struct{}      // closed when a connection has gone; guarded by mu

	loggedMu sync.Mutex
	logged   map[string]bool // complaints already made; guarded by loggedMu
}

// NewServer takes the listener over; serve begins.
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

// Serve accepts connections until drain or kill, and returns at once.
func (s *Server) Serve() { go s.accept() }

// accept takes connections. Where there are as many as may be, the one that was idle for
// longest makes room: a flood of connections that say nothing locks nobody out. While none
// is idle, further ones wait in the kernel's backlog and cost this process nothing.
func (s *Server) accept() {
	defer close(s.accepted)
	for {
		nc, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely: not a reason to die, nor to spin.
			s.logOnce("accept", err)
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		s.Metrics.Connections.Add(1)
		if !s.makeRoom(nc) {
			_ = nc.Close()
			continue
		}
		go s.begin(nc).serve()
	}
}

// makeRoom waits until there is room for a connection. It returns false if there will be
// none: its host has as many as it may have, and none of them is idle; or the server ends.
func (s *Server) makeRoom(nc net.Conn) bool {
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
			return true // it is told to drain as it starts
		case <-s.ctx.Done():
			return false
		}
	}
}

// idleLocked returns the connection that was idle for longest, of a host or of all; nil if
// none is.
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

// ServeConn serves one connection that did not come by the listener, until it ends.
func (s *Server) ServeConn(nc net.Conn) { s.begin(nc).serve() }

// begin makes a connection one of the server's, until its serve returns.
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

// Drain stops accepting and reading. What is answered still goes out.
func (s *Server) Drain() {
	s.drainOnce.Do(func() {
		s.Draining.Store(true)
		close(s.drained)
	})
	_ = s.listener.Close()
	// One that is just being accepted is told to drain as it starts.
	s.mu.Lock()
	for c := range s.open {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
}

// Kill breaks all connections, and answers nothing.
func (s *Server) Kill() {
	s.killed.Store(true) // before anybody learns of it
	s.Drain()
	s.cancel()
	s.hangUpAll()
}

// Finish waits, after drain, until every answer is out, and closes the connections.
// What is not out when ctx ends is cut off. No goroutine is left.
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

// Queued is how many requests were read and are not answered yet, over all connections
// but those that skip returns true for.
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

// Usage is what a server holds now.
type Usage struct {
	Open                      int   // connections
	Inbound, Queued, Outbound int64 // bytes: of large frames, of requests that wait for their answers, of fetch answers
}

// Usage returns what the server holds now.
func (s *Server) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{len(s.open), s.inboundBy.Load(), s.queuedSum.Load(), s.outbound.Load()}
}

// logEnd logs why a connection ended, unless that is the client's good right.
// One line per kind of complaint: a hostile client cannot fill the log.
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

// maxLogged bounds the memory of complaints, and so the log.
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

// Metrics counts what goes over the wire. Its fields only ever grow.
type Metrics struct {
	Connections atomic.Uint64
	Requests    atomic.Uint64    // decoded and handled
	Answers     atomic.Uint64    // written
	Refused     atomic.Uint64    // connections closed for what they sent
	Panics      atomic.Uint64    // bugs: recovered in a handler, or while an answer was made
	Wake        metric.Histogram // from the event that completed a parked request to the write of its answer
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
