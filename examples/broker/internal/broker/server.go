package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/group"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replication"
	"github.com/seed-782fa212/limbo/examples/broker/internal/uptime"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// Server is one running broker.
//
// Lock order: partitions.evicting, then partitions.mu or the mutex of a partition. Server.mu and
// the mutexes of partitions are leaves. No purgatory is called with any of them held.
type Server struct {
	cluster
	id         int32
	cfg        Config
	gate       *fault.Gate
	disk       *replica.Disk
	self       meta.Node
	registered atomic.Uint64 // the incarnation under which the controller knows this broker

	wire        *wire.Server
	applied     atomic.Pointer[meta.Image]
	partitions  replica.Set
	replication replication.Broker
	metrics     metric.Counters

	// One purgatory for each kind of waiting request; groups has those of joins and syncs.
	clock           *purgatory.Clock               // shared by all purgatories
	fetches         *purgatory.Purgatory[watchKey] // of consumers
	followerFetches *purgatory.Purgatory[watchKey] // fetches of followers
	produces        *purgatory.Threshold[replica.LeaderEpoch, int64]
	deletes         *purgatory.Threshold[replica.LeaderEpoch, int64]
	topicChanges    *purgatory.Purgatory[string] // of topics, by name
	watched         atomic.Int64                 // (fetch, partition) pairs that wait
	groups          *group.Coordinator
	sessions        fetchSessions

	uptime     uptime.Clock    // measures the silence of other brokers
	ctx        context.Context // of the background goroutines
	cancel     context.CancelFunc
	background sync.WaitGroup // all background goroutines
	followers  map[int32]bool // used only by the goroutine that follows the controller
	rejoining  chan struct{}  // capacity 1: a follower may be in sync again

	unobserve []func() // undoes observed

	mu    sync.Mutex
	roles chan struct{} // closed when they change; guarded by mu
}

// startServer starts a broker on a listener, which it then owns. It returns when the broker has
// applied the controller's decisions so far.
func startServer(n *Node, l net.Listener) (*Server, error) {
	s := &Server{
		cluster:   n.cluster,
		id:        n.ID,
		cfg:       n.cfg,
		gate:      &n.Gate,
		disk:      &n.disk,
		self:      meta.NodeAt(n.ID, l.Addr()),
		followers: map[int32]bool{},
		sessions:  fetchSessions{maxSessions: n.cfg.MaxFetchSessions, maxParts: n.cfg.MaxSessionPartitions},
		rejoining: make(chan struct{}, 1),
		roles:     make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.applied.Store(&meta.Image{})
	s.wire = wire.NewServer(l, wire.Options{
		Limits: s.cfg.Wire,
		Handle: func(c *wire.Conn, req kmsg.Request, r *wire.Reply) { handlers[req.Key()](s, c, req, r) },
		Gate:   s.gate,
		Logger: s.cfg.Logger,
	})
	if err := s.openPurgatories(); err != nil {
		return nil, err
	}
	if err := errors.Join(s.observed(), s.register()); err != nil {
		return nil, errors.Join(err, s.closePurgatories(context.Background()))
	}
	s.replication = replication.Broker{
		ID: s.id, Gate: s.gate, Links: s.Links, Partitions: &s.partitions, Controller: s.Controller, Image: s.image, Changed: s.rolesChanged,
		MaxFetch: s.cfg.MaxFetch, MaxAnswer: s.cfg.MaxFetch + s.cfg.MaxBatch + s.cfg.Wire.MaxSmallFrame,
		OnLost: func(records int64) { s.metrics.LostCommitted.Add(records) },
		Uptime: s.uptime.Now, Lag: s.cfg.ReplicaLag, Rejoining: s.rejoining,
	}
	s.apply(s.Controller.Image())
	s.background.Go(func() { s.uptime.Run(s.ctx, s.cfg.ReplicaLag/16, s.gate.Pass) })
	s.background.Go(func() { s.followController(s.ctx) })
	s.background.Go(func() { s.keepAlive(s.ctx) })
	s.background.Go(func() { replication.KeepInSync(s.ctx, &s.replication) })
	s.background.Go(func() { s.keepRetention(s.ctx) })
	s.wire.Serve()
	return s, nil
}

func (s *Server) register() error {
	i, err := s.Controller.Register(s.self)
	s.registered.Store(uint64(i))
	return err
}

func (s *Server) openPurgatories() error {
	var err error
	if s.clock, err = purgatory.NewClock(purgatory.ClockOptions{Name: "broker", Tick: s.cfg.Tick}); err != nil {
		return err
	}
	o := purgatory.Options{Clock: s.clock, MaxPending: s.cfg.MaxParked, OnPanic: s.panicked}
	var errs [6]error
	s.fetches, errs[0] = purgatory.New[watchKey](o)
	s.produces, errs[1] = purgatory.NewThreshold(s.committed, o)
	s.deletes, errs[2] = purgatory.NewThreshold(s.deleted, o)
	s.topicChanges, errs[3] = purgatory.New[string](o)
	s.followerFetches, errs[4] = purgatory.New[watchKey](o)
	s.groups, errs[5] = group.New(s.cfg.Groups, group.Options{
		Store:       offsetsStore{s},
		Partitions:  s.cfg.Meta.OffsetsPartitions,
		Clock:       s.clock,
		Tick:        s.cfg.Tick,
		OnPanic:     s.panicked,
		OnHeartbeat: func(o purgatory.Outcome, waited time.Duration) { s.metrics.Heartbeats[o].Add(waited) },
	})
	return errors.Join(errs[:]...)
}

func (s *Server) panicked(p purgatory.Panic) {
	s.metrics.Panics.Add(1)
	s.cfg.Logger.Error("broker: operation panicked", "panic", fmt.Sprintf("%+v", p))
}

// closePurgatories shuts all purgatories down: each waiting operation is closed, and answers with
// the result it has so far.
func (s *Server) closePurgatories(ctx context.Context) error {
	for _, remove := range s.unobserve {
		remove()
	}
	return errors.Join(
		s.fetches.Shutdown(ctx),
		s.followerFetches.Shutdown(ctx),
		s.groups.Shutdown(ctx), // before produces, which it uses
		s.produces.Shutdown(ctx),
		s.deletes.Shutdown(ctx),
		s.topicChanges.Shutdown(ctx),
		s.clock.Shutdown(ctx),
	)
}

// Addr returns the broker's host:port.
func (s *Server) Addr() string { return s.wire.Addr().String() }

// Shutdown leaves the cluster, stops accepting and reading, answers all parked requests with the
// results they have so far, sends the answers and closes the connections. It cuts off answers that
// are not sent when ctx ends. When it returns, no goroutine is left, and the node keeps the logs.
// It may be called more than once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.wire.Drain()
	s.Controller.Unregister(s.id, meta.Incarnation(s.registered.Load()))
	s.catchUp(ctx)
	return s.end(ctx)
}

// catchUp waits until this broker has applied all decisions made before the call.
func (s *Server) catchUp(ctx context.Context) {
	for decided := s.Controller.Image().Version; ; {
		changed := s.rolesChanged()
		if s.image().Version >= decided {
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

// kill ends the broker like a killed process: connections break, no request is answered, and the
// controller is not told.
func (s *Server) kill() error {
	s.wire.Kill()
	s.cancel()
	return s.end(context.Background())
}

func (s *Server) end(ctx context.Context) error {
	err := errors.Join(s.closePurgatories(ctx), s.wire.Finish(ctx))
	s.cancel()
	s.background.Wait()
	for _, p := range s.partitions.All() {
		s.partitions.Delete(p.Key)
		kept, _ := p.Close()
		s.disk.Put(p.Key, kept)
	}
	return err
}

// Stopping reports whether the broker is being stopped, or has stopped.
func (s *Server) Stopping() bool { return s.wire.Draining.Load() }

// Queued returns the number of client requests that were read and are not answered yet.
func (s *Server) Queued() int {
	return s.wire.Queued(func(c *wire.Conn) bool {
		_, broker := s.Links.Caller(c.RemoteAddr())
		return broker
	})
}
