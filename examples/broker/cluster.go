package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// cluster is a few brokers of one process, each on a port of its own, and the
// controller they listen to. What they say to each other about records goes over
// TCP, as between machines.
type cluster struct {
	cfg        config
	controller *controller
	links      *links
	nodes      []*node // by id, from 0 on

	mu      sync.Mutex
	started []*server // all there ever were, for what they have counted; guarded by mu
}

// node is the place of one broker: what stays when the broker stops.
type node struct {
	cluster *cluster
	id      int32
	addr    string // host:port, the same after a restart
	gate    gate
	disk    disk

	changing sync.Mutex // held while the broker starts or stops

	mu  sync.Mutex
	srv *server // nil while stopped; guarded by mu
}

// disk keeps a stopped broker's logs. Nothing is written to a real one.
type disk struct {
	mu   sync.Mutex
	logs map[partitionKey]stored // guarded by mu
}

func (d *disk) put(key partitionKey, s stored) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs == nil {
		d.logs = map[partitionKey]stored{}
	}
	d.logs[key] = s
}

// take hands a log over to a running broker; an empty one if there is none.
func (d *disk) take(key partitionKey) stored {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer delete(d.logs, key)
	return d.logs[key]
}

// newCluster listens on cfg.addr and the ports after it, or on any if its port
// is 0, and serves until Shutdown.
func newCluster(cfg config) (*cluster, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var listeners []net.Listener
	for i := range cfg.brokers {
		addr, err := nthAddr(cfg.addr, i)
		if err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", addr); err == nil {
				listeners = append(listeners, l)
			}
		}
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, fmt.Errorf("broker %d: %w", i, err)
		}
	}
	return startCluster(cfg, listeners)
}

// nthAddr is the address of a cluster's nth broker.
func nthAddr(addr string, n int) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	first, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port %q: %w", port, err)
	}
	if first == 0 {
		return addr, nil
	}
	return net.JoinHostPort(host, strconv.FormatUint(first+uint64(n), 10)), nil
}

// startCluster takes the listeners over.
func startCluster(cfg config, listeners []net.Listener) (*cluster, error) {
	c := &cluster{cfg: cfg, links: newLinks()}
	var err error
	if c.controller, err = newController(&c.cfg); err != nil {
		for _, l := range listeners {
			_ = l.Close()
		}
		return nil, err
	}
	for i, l := range listeners {
		n := &node{cluster: c, id: int32(i), addr: l.Addr().String()}
		c.nodes = append(c.nodes, n)
		s, err := startServer(c, n, l)
		if err != nil {
			for _, l := range listeners[i:] {
				_ = l.Close()
			}
			return nil, errors.Join(err, c.Shutdown(context.Background()))
		}
		n.set(s)
	}
	return c, nil
}

// Shutdown stops all brokers at once, as server.Shutdown says, and the
// controller. It may be called again.
func (c *cluster) Shutdown(ctx context.Context) error {
	c.controller.close()
	var stopping errgroup.Group
	for _, n := range c.nodes {
		stopping.Go(func() error { return n.stop(ctx) })
	}
	err := stopping.Wait()
	return errors.Join(err, c.controller.shutdown(ctx))
}

// history lists all brokers that ever ran, stopped ones too.
func (c *cluster) history() []*server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.started)
}

// running lists the brokers that are not stopped.
func (c *cluster) running() (list []*server) {
	for _, n := range c.nodes {
		if s := n.server(); s != nil {
			list = append(list, s)
		}
	}
	return list
}

// addrs are those of all brokers, also of those that are stopped.
func (c *cluster) addrs() (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.addr)
	}
	return list
}

// server is the one that runs here, or nil.
func (n *node) server() *server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.srv
}

// stop shuts the broker down as an operator would: it says goodbye and answers
// what it holds.
func (n *node) stop(ctx context.Context) error {
	return n.end(func(s *server) error { return s.Shutdown(ctx) })
}

// kill ends it as a power cut would, but that its logs are kept whole.
func (n *node) kill() error { return n.end((*server).kill) }

func (n *node) end(how func(*server) error) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	s := n.server()
	if s == nil {
		return nil
	}
	n.set(nil)
	n.gate.resume()
	return how(s)
}

func (n *node) set(s *server) {
	n.mu.Lock()
	n.srv = s
	n.mu.Unlock()
	if s != nil {
		n.cluster.mu.Lock()
		n.cluster.started = append(n.cluster.started, s)
		n.cluster.mu.Unlock()
	}
}

// start brings a stopped broker back, with the logs it had.
func (n *node) start() error {
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.server() != nil {
		return nil
	}
	l, err := net.Listen("tcp", n.addr)
	if err != nil {
		return err
	}
	s, err := startServer(n.cluster, n, l)
	if err != nil {
		_ = l.Close()
		return err
	}
	n.set(s)
	return nil
}

// nodeOf is a broker's entry in the metadata.
func nodeOf(id int32, addr net.Addr) nodeInfo {
	n := nodeInfo{id: id, host: "127.0.0.1"}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		n.port = int32(tcp.Port)
		if tcp.IP != nil && !tcp.IP.IsUnspecified() {
			n.host = tcp.IP.String()
		}
	}
	return n
}

// settled waits until every broker knows what the controller has decided, and
// every partition has all its replicas in sync.
func (c *cluster) settled(ctx context.Context) bool {
	for !c.isSettled() {
		if !pause(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return true
}

func (c *cluster) isSettled() bool {
	img := c.controller.image()
	for _, s := range c.running() {
		if s.image().version != img.version {
			return false
		}
	}
	for _, t := range img.byID {
		for _, a := range t.partitions {
			if len(a.isr) < len(a.replicas) || a.leader != a.replicas[0] {
				return false
			}
		}
	}
	return true
}
