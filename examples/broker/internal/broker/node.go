package broker

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// Node is the slot of one broker in a cluster. It exists before the broker starts and after it has
// stopped. All methods are safe for concurrent use.
type Node struct {
	ID   int32
	Gate fault.Gate // pauses or slows the broker
	cfg  Config
	cluster
	disk replica.Disk

	lifecycle sync.Mutex // held while the broker starts or stops

	mu      sync.Mutex
	addr    string    // host:port, the same after a restart; guarded by mu
	srv     *Server   // nil while stopped; guarded by mu
	history []*Server // all brokers that have run here; guarded by mu
}

func newNode(id int32, cfg Config, c cluster) *Node {
	return &Node{ID: id, cfg: cfg, cluster: c}
}

// run starts the broker on a listener, and takes ownership of it unless there is an error.
func (n *Node) run(l net.Listener) error {
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	return n.runLocked(l)
}

func (n *Node) runLocked(l net.Listener) error {
	s, err := startServer(n, l)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr, n.srv = l.Addr().String(), s
	n.history = append(n.history, s)
	return nil
}

// Start restarts a stopped broker, on the same address and with the same logs. It has no effect on
// a running broker.
func (n *Node) Start() error {
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	if n.Server() != nil {
		return nil
	}
	l, err := n.cfg.Network.Listen(context.Background(), "tcp", n.Addr())
	if err != nil {
		return err
	}
	if err := n.runLocked(l); err != nil {
		_ = l.Close()
		return err
	}
	return nil
}

// Stop shuts the broker down: see Server.Shutdown. It has no effect on a stopped broker.
func (n *Node) Stop(ctx context.Context) error {
	return n.end(func(s *Server) error { return s.Shutdown(ctx) })
}

// Kill ends the broker as a power cut would, except that its logs stay intact. It has no effect on
// a stopped broker.
func (n *Node) Kill() error { return n.end((*Server).kill) }

func (n *Node) end(shutdown func(*Server) error) error {
	n.lifecycle.Lock()
	defer n.lifecycle.Unlock()
	s := n.Server()
	if s == nil {
		return nil
	}
	n.mu.Lock()
	n.srv = nil
	n.mu.Unlock()
	n.Gate.Resume()
	return shutdown(s)
}

// Server returns the running broker, or nil while it is stopped.
func (n *Node) Server() *Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv
}

// Addr returns the host:port of the broker, also while it is stopped.
func (n *Node) Addr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// History returns all brokers that have run here.
func (n *Node) History() []*Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.history)
}
