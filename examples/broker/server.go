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

// server is one running broker of a cluster.
//
// Lock order: server.mu, then conn.mu or links.mu; replicas.evicting, then replicas.mu or a
// partition's; a partition's and conn.mu are leaves. None of them is held when a
// purgatory is called.
type server struct {
	id         int32
	cfg        config
	cluster    *cluster
	self       nodeInfo
	registered atomic.Uint64 // the incarnation the controller knows this broker by
	gate       *gate
	disk       *disk

	listener   net.Listener
	known      atomic.Pointer[image]
	partitions replicas
	metrics    metrics

	// What waits, a purgatory for each kind; groups has those of joins and syncs.
	wheel    *purgatory.Wheel // of all that waits
	fetches  *purgatory.Purgatory[watchKey]
	produces *purgatory.Threshold[reign, int64]
	deletes  *purgatory.Threshold[reign, int64]
	changes  *purgatory.Purgatory[string] // of topics, by name
	groups   *coordinator

	inbound  *semaphore.Weighted // bytes of large frames, from before they are read until they are handled
	outbound atomic.Int64        // bytes of fetch answers between build and write

	queuedSum atomic.Int64 // bytes of requests between read and answered: see queuedSize

	ctx       context.Context // parent of every connection's
	cancel    context.CancelFunc
	draining  atomic.Bool
	killed    atomic.Bool
	drain     chan struct{} // closed when draining is set
	drainOnce sync.Once
	seats     chan struct{} // one per open connection
	conns     sync.WaitGroup
	accepted  chan struct{} // closed when the accept loop has ended

	background  sync.WaitGroup // replicators, heartbeats, and who follows the controller
	replicators map[int32]bool // only who follows the controller uses it
	rejoining   chan struct{}  // capacity 1: a follower may be in sync again

	mu    sync.Mutex
	open  map[*conn]struct{} // guarded by mu
	roles chan struct{}      // closed when they change; guarded by mu

	loggedMu sync.Mutex
	logged   map[string]bool // complaints already made; guarded by loggedMu
}

// startServer starts a broker of a cluster on a listener, which it takes over,
// and returns when it has acted on what the controller has decided so far.
func startServer(c *cluster, n *node, l net.Listener) (*server, error) {
	s := &server{
		id:          n.id,
		cfg:         c.cfg,
		cluster:     c,
		self:        nodeOf(n.id, l.Addr()),
		gate:        &n.gate,
		disk:        &n.disk,
		listener:    l,
		partitions:  replicas{byKey: map[partitionKey]*partition{}},
		inbound:     semaphore.NewWeighted(c.cfg.maxInboundSum),
		seats:       make(chan struct{}, c.cfg.maxConnections),
		accepted:    make(chan struct{}),
		drain:       make(chan struct{}),
		replicators: map[int32]bool{},
		rejoining:   make(chan struct{}, 1),
		open:        map[*conn]struct{}{},
		roles:       make(chan struct{}),
		logged:      map[string]bool{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.known.Store(&image{})
	if err := s.openPurgatories(); err != nil {
		return nil, err
	}
	if err := s.register(); err != nil {
		return nil, errors.Join(err, s.closePurgatories(context.Background()))
	}
	s.apply(c.controller.image())
	s.background.Go(func() { s.followController(s.ctx) })
	s.background.Go(func() { s.keepAlive(s.ctx) })
	s.background.Go(func() { s.keepInSync(s.ctx) })
	go s.accept()
	return s, nil
}

func (s *server) register() error {
	i, err := s.cluster.controller.register(s.self)
	s.registered.Store(uint64(i))
	return err
}

func (s *server) openPurgatories() error {
	var err error
	if s.wheel, err = purgatory.NewWheel(purgatory.WheelOptions{Name: "broker", Tick: s.cfg.tick}); err != nil {
		return err
	}
	o := purgatory.Options{
		Wheel:         s.wheel,
		MaxOperations: s.cfg.maxParked,
		OnPanic: func(p purgatory.Panic) {
			s.metrics.panics.Add(1)
			s.cfg.logger.Error("broker: operation panicked", "panic", fmt.Sprintf("%+v", p))
		},
	}
	var errs [5]error
	s.fetches, errs[0] = purgatory.New[watchKey](o)
	s.produces, errs[1] = purgatory.NewThreshold(s.committed, o)
	s.deletes, errs[2] = purgatory.NewThreshold(s.deleted, o)
	s.changes, errs[3] = purgatory.New[string](o)
	s.groups, errs[4] = newCoordinator(s)
	return errors.Join(errs[:]...)
}

// closePurgatories ends everything that waits: each operation is closed, and
// answers with what there is.
func (s *server) closePurgatories(ctx context.Context) error {
	return errors.Join(
		s.fetches.Shutdown(ctx),
		s.groups.shutdown(ctx), // before the produces it makes
		s.produces.Shutdown(ctx),
		s.deletes.Shutdown(ctx),
		s.changes.Shutdown(ctx),
		s.wheel.Shutdown(ctx),
	)
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

// Shutdown leaves the cluster, stops accepting and reading, answers everything
// that is parked with what there is, lets the answers out and closes the
// connections. What is not out when ctx ends is cut off. No goroutine is left,
// and what the logs hold is on the disk. It may be called again.
func (s *server) Shutdown(ctx context.Context) error {
	s.beginDraining()
	s.cluster.controller.unregister(s.id, incarnation(s.registered.Load()))
	s.catchUp(ctx)
	return s.end(ctx)
}

// catchUp waits until this broker has acted on all that is decided now.
func (s *server) catchUp(ctx context.Context) {
	for decided := s.cluster.controller.image().version; ; {
		changed := s.rolesChanged()
		if s.image().version >= decided {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// kill is how a process ends that is not asked: connections break, nothing is
// answered, and the controller is not told.
func (s *server) kill() error {
	s.killed.Store(true) // before anybody learns of it
	s.beginDraining()
	s.cancel()
	s.mu.Lock()
	for c := range s.open {
		c.hangUp()
	}
	s.mu.Unlock()
	return s.end(context.Background())
}

func (s *server) beginDraining() {
	s.drainOnce.Do(func() {
		s.draining.Store(true)
		close(s.drain)
	})
	_ = s.listener.Close()
	// A seat may be all that the accept loop waits for; once there is one, the
	// closed listener ends it. Connections drain later and free theirs, so the
	// loop is waited for only after them. New ones are told to drain as they start.
	s.mu.Lock()
	for c := range s.open {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
}

func (s *server) end(ctx context.Context) error {
	err := s.closePurgatories(ctx)

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
		c.hangUp()
	}
	s.mu.Unlock()
	<-done
	s.background.Wait()
	for _, p := range s.partitions.all() {
		s.partitions.delete(p.key)
		kept, _ := p.close()
		s.disk.put(p.key, kept)
	}
	return err
}

// queued is how many requests of clients were read and are not answered yet,
// over all connections.
func (s *server) queued() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if _, broker := s.cluster.links.caller(c.nc); broker {
			continue
		}
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
