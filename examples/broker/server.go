package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-782fa212/limbo/purgatory"
)

// server is the whole broker: one node that leads every partition.
//
// Lock order: server.mu, then conn.mu; topics.evicting, then topics.mu or a
// partition's. conn.mu and partition.mu are leaves. None of them is held when
// the purgatory is called.
type server struct {
	cfg       config
	listener  net.Listener
	topics    *topics
	purgatory *purgatory.Purgatory[partitionKey] // the fetches that wait for data
	producers producerIDs
	metrics   metrics

	inbound  *semaphore.Weighted // bytes of large frames, from before they are read until they are handled
	outbound atomic.Int64        // bytes of fetch answers between build and write

	queuedSum atomic.Int64 // bytes of requests between read and answered: see queuedSize

	ctx       context.Context // parent of every connection's
	cancel    context.CancelFunc
	draining  atomic.Bool
	drain     chan struct{} // closed when draining is set
	drainOnce sync.Once
	seats     chan struct{} // one per open connection
	conns     sync.WaitGroup
	accepted  chan struct{} // closed when the accept loop has ended

	mu   sync.Mutex
	open map[*conn]struct{} // guarded by mu

	loggedMu sync.Mutex
	logged   map[string]bool // complaints already made; guarded by loggedMu
}

// newServer listens and serves until Shutdown.
func newServer(cfg config) (*server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	s, err := startServer(cfg, l)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return s, nil
}

func startServer(cfg config, l net.Listener) (*server, error) {
	s := &server{
		cfg:      cfg,
		listener: l,
		inbound:  semaphore.NewWeighted(cfg.maxInboundSum),
		seats:    make(chan struct{}, cfg.maxConnections),
		accepted: make(chan struct{}),
		drain:    make(chan struct{}),
		open:     map[*conn]struct{}{},
		logged:   map[string]bool{},
	}
	p, err := purgatory.New[partitionKey](purgatory.Options{
		Tick:          cfg.tick,
		MaxOperations: cfg.maxParked,
		OnPanic: func(p purgatory.Panic) {
			s.metrics.panics.Add(1)
			cfg.logger.Error("broker: operation panicked", "panic", fmt.Sprintf("%+v", p))
		},
	})
	if err != nil {
		return nil, err
	}
	s.purgatory = p
	s.topics = newTopics(&s.cfg)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.accept()
	return s, nil
}

func (s *server) addr() string { return s.listener.Addr().String() }

// accept takes a seat before it takes a connection: above the limit, clients
// wait in the kernel's backlog and cost this process nothing.
func (s *server) accept() {
	defer close(s.accepted)
	for {
		select {
		case s.seats <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		nc, err := s.listener.Accept()
		if err != nil {
			<-s.seats
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
		c := newConn(s, nc)
		s.mu.Lock()
		s.open[c] = struct{}{}
		s.conns.Add(1)
		s.mu.Unlock()
		s.metrics.connections.Add(1)
		go func() {
			defer func() {
				s.mu.Lock()
				delete(s.open, c)
				s.mu.Unlock()
				s.conns.Done()
				<-s.seats
			}()
			c.serve()
		}()
	}
}

// Shutdown stops accepting and reading, answers everything that is parked with
// what there is, lets the answers out and closes the connections. What is not
// out when ctx ends is cut off. No goroutine is left. It may be called again.
func (s *server) Shutdown(ctx context.Context) error {
	s.drainOnce.Do(func() {
		s.draining.Store(true)
		close(s.drain)
	})
	_ = s.listener.Close()
	// A seat may be all that the accept loop waits for; once there is one, the
	// closed listener ends it. Connections drain below and free theirs, so wait
	// for the loop only after them. New ones are told to drain as they start.
	s.mu.Lock()
	for c := range s.open {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()

	err := s.purgatory.Shutdown(ctx)

	done := make(chan struct{})
	go func() {
		<-s.accepted
		s.conns.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	s.cancel()
	s.mu.Lock()
	for c := range s.open {
		_ = c.nc.Close()
	}
	s.mu.Unlock()
	<-done
	return err
}

// queued is how many requests were read and are not answered yet, over all
// connections.
func (s *server) queued() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.mu.Lock()
		n += len(c.queue)
		c.mu.Unlock()
	}
	return n
}

// logEnd logs why a connection ended, unless that is the client's good right.
// One line per kind of complaint: a hostile client cannot fill the log.
func (s *server) logEnd(c *conn, err error) {
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
		s.metrics.refused.Add(1)
		s.logOnce(err.Error(), err)
	}
}

// maxLogged bounds the memory of complaints, and so the log.
const maxLogged = 64

func (s *server) logOnce(key string, err error) {
	s.loggedMu.Lock()
	defer s.loggedMu.Unlock()
	if len(s.logged) >= maxLogged || s.logged[key] {
		return
	}
	s.logged[key] = true
	s.cfg.logger.Warn("broker: connection closed", "reason", err)
}
