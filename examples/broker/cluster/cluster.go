package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
)

// Cluster is a few brokers in one process, each on its own port, and their controller. The brokers
// replicate records to each other over TCP, as between machines. Create one with New; it runs
// goroutines until it is shut down. All methods are safe for concurrent use. Brokers are numbered
// from 0.
type Cluster struct {
	brokers *broker.Cluster
}

// New listens on cfg.Addr and the ports after it, or on any free ports if its port is 0, and serves
// until Shutdown.
func New(cfg Config) (*Cluster, error) {
	cfg, err := cfg.WithDefaults()
	if err != nil {
		return nil, err
	}
	var listeners []net.Listener
	for i := range cfg.Brokers {
		addr, err := nthAddr(cfg.Addr, i)
		if err == nil {
			var l net.Listener
			if l, err = cfg.Network.Listen(context.Background(), "tcp", addr); err == nil {
				listeners = append(listeners, l)
			}
		}
		if err != nil {
			broker.CloseAll(listeners)
			return nil, fmt.Errorf("broker %d: %w", i, err)
		}
	}
	brokers, err := broker.StartCluster(cfg.Config, listeners)
	if err != nil {
		return nil, err
	}
	return &Cluster{brokers}, nil
}

// nthAddr returns the address of a cluster's nth broker.
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

// Shutdown stops all brokers at once, as Stop does, and the controller. It may be called again.
func (c *Cluster) Shutdown(ctx context.Context) error { return c.brokers.Shutdown(ctx) }

// Brokers returns the number of brokers, including stopped ones.
func (c *Cluster) Brokers() int32 { return int32(len(c.brokers.Nodes)) }

// Addrs returns the addresses of all brokers, including stopped ones.
func (c *Cluster) Addrs() (list []string) {
	for _, n := range c.brokers.Nodes {
		list = append(list, n.Addr())
	}
	return list
}

func (c *Cluster) node(id int32) (*broker.Node, error) {
	if id < 0 || int(id) >= len(c.brokers.Nodes) {
		return nil, fmt.Errorf("broker %d: they are numbered from 0 to %d", id, len(c.brokers.Nodes)-1)
	}
	return c.brokers.Nodes[id], nil
}

// on calls f with a broker's node.
func (c *Cluster) on(id int32, f func(*broker.Node) error) error {
	n, err := c.node(id)
	if err != nil {
		return err
	}
	return f(n)
}

// Stop shuts a broker down as an operator would: it leaves the cluster, completes its pending
// requests, and closes its connections. Responses that are not sent when ctx ends are dropped. Its
// logs are kept until Start. Stop does nothing if the broker is stopped.
func (c *Cluster) Stop(ctx context.Context, id int32) error {
	return c.on(id, func(n *broker.Node) error { return n.Stop(ctx) })
}

// Kill ends a broker as a power cut would, except that its logs are kept intact.
func (c *Cluster) Kill(id int32) error { return c.on(id, (*broker.Node).Kill) }

// Start restarts a stopped broker on the same address, with the logs it had. It does nothing if the
// broker is running.
func (c *Cluster) Start(id int32) error { return c.on(id, (*broker.Node).Start) }

// Pause suspends everything that a broker does by itself, until Resume or until the broker ends.
// Its clocks go on, like those of a process that is stopped and continued.
func (c *Cluster) Pause(id int32) error {
	return c.on(id, func(n *broker.Node) error { n.Gate.Pause(); return nil })
}

// Resume ends a Pause.
func (c *Cluster) Resume(id int32) error {
	return c.on(id, func(n *broker.Node) error { n.Gate.Resume(); return nil })
}

// Slow makes each step of a broker take that much longer, up to a minute; 0 restores full speed.
func (c *Cluster) Slow(id int32, by time.Duration) error {
	if by < 0 || by > time.Minute {
		return fmt.Errorf("broker %d: a step takes from 0s to 1m longer, not %v", id, by)
	}
	return c.on(id, func(n *broker.Node) error { n.Gate.Slow(by); return nil })
}

// Cut breaks the link between two brokers. Clients and the controller still reach both.
func (c *Cluster) Cut(a, b int32) error { return c.onLink(a, b, c.brokers.Links.Cut) }

// Heal ends a Cut.
func (c *Cluster) Heal(a, b int32) error { return c.onLink(a, b, c.brokers.Links.Heal) }

func (c *Cluster) onLink(a, b int32, f func(a, b int32)) error {
	return c.on(a, func(*broker.Node) error {
		return c.on(b, func(*broker.Node) error { f(a, b); return nil })
	})
}

// Partition is a partition as the controller knows it.
type Partition struct {
	Topic    string
	Index    int32
	Leader   int32 // a broker, -1 for none
	Epoch    int32 // of the leader
	Replicas []int32
	InSync   []int32 // the replicas that have every committed record
}

// Partitions returns all partitions, by topic and index.
func (c *Cluster) Partitions() (list []Partition) {
	for _, t := range c.brokers.Controller.Image().All() {
		for i, a := range t.Partitions {
			list = append(list, Partition{t.Name, int32(i), a.Leader, a.Epoch, slices.Clone(a.Replicas), slices.Clone(a.ISR)})
		}
	}
	return list
}

// Leader returns the broker that leads a partition, or nil if there is no leader or the leader has
// stopped.
func (c *Cluster) Leader(topic string, index int32) *Broker {
	t := c.brokers.Controller.Image().ByName[topic]
	if t == nil || index < 0 || int(index) >= len(t.Partitions) || t.Partitions[index].Leader == meta.NoLeader {
		return nil
	}
	return c.Running(t.Partitions[index].Leader)
}

// Running returns a broker's current run, or nil while it is stopped.
func (c *Cluster) Running(id int32) *Broker {
	n, err := c.node(id)
	if err != nil {
		return nil
	}
	if s := n.Server(); s != nil {
		return &Broker{s}
	}
	return nil
}

// Broker is one run of a broker, from a start to its end.
type Broker struct{ s *broker.Server }

// Addr returns its host:port.
func (b *Broker) Addr() string { return b.s.Addr() }

// Stopping reports whether it is stopping or has stopped.
func (b *Broker) Stopping() bool { return b.s.Stopping() }

// Queued returns the number of client requests that it has read and not answered yet.
func (b *Broker) Queued() int { return b.s.Queued() }

// Stats returns the brokers' state and counters, summed over all their runs.
func (c *Cluster) Stats() (sum metric.Stats) {
	for _, n := range c.brokers.Nodes {
		for _, s := range n.History() {
			s.AddTo(&sum)
		}
	}
	return sum
}

// WaitHealthy waits until every broker knows all decisions of the controller, and every partition
// is led by its preferred leader and has all replicas in sync.
func (c *Cluster) WaitHealthy(ctx context.Context) error {
	for !c.brokers.Healthy() {
		if !fault.Sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("the cluster is not healthy: %w", context.Cause(ctx))
		}
	}
	return nil
}
