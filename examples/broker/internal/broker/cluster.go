package broker

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Cluster is a set of brokers, numbered from 0, with their common controller and links.
type Cluster struct {
	cluster
	Nodes []*Node // by id; the list never changes
}

// cluster holds the parts that all brokers of a cluster share.
type cluster struct {
	Controller *meta.Controller
	Links      *fault.Links // between the brokers
}

// StartCluster starts a broker on each listener. It takes ownership of the listeners, and closes
// them if there is an error. cfg must be a result of WithDefaults.
func StartCluster(cfg Config, listeners []net.Listener) (*Cluster, error) {
	c := &Cluster{cluster: cluster{Links: fault.NewLinks(cfg.Network)}}
	var err error
	if c.Controller, err = meta.NewController(cfg.Meta); err != nil {
		CloseAll(listeners)
		return nil, err
	}
	for i, l := range listeners {
		n := newNode(int32(i), cfg, c.cluster)
		c.Nodes = append(c.Nodes, n)
		if err := n.run(l); err != nil {
			CloseAll(listeners[i:])
			return nil, errors.Join(err, c.Shutdown(context.Background()))
		}
	}
	return c, nil
}

// CloseAll closes listeners that no broker owns.
func CloseAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// Shutdown stops all brokers concurrently, as Node.Stop does, and the controller. It may be called
// more than once.
func (c *Cluster) Shutdown(ctx context.Context) error {
	c.Controller.Close()
	var stopping errgroup.Group
	for _, n := range c.Nodes {
		stopping.Go(func() error { return n.Stop(ctx) })
	}
	err := stopping.Wait()
	return errors.Join(err, c.Controller.Shutdown(ctx))
}

// Healthy reports whether every running broker knows the controller's latest decisions, and every
// partition is led by its preferred leader and has all its replicas in sync.
func (c *Cluster) Healthy() bool {
	img := c.Controller.Image()
	for _, n := range c.Nodes {
		if s := n.Server(); s != nil && s.image().Version != img.Version {
			return false
		}
	}
	for _, t := range img.ByID {
		for _, a := range t.Partitions {
			if len(a.ISR) < len(a.Replicas) || a.Leader != a.Replicas[0] {
				return false
			}
		}
	}
	return true
}
