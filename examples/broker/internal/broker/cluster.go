package broker

import (
	"context"
	"errors"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Cluster is some brokers, numbered from 0, and what they have in common.
type Cluster struct {
	cluster
	Nodes []*Node // by id; the list never changes
}

// cluster is what the brokers of one have in common.
type cluster struct {
	Controller *meta.Controller
	Links      *fault.Links // between the brokers
}

// StartCluster starts a broker on each listener. It takes the listeners over, and closes them
// if there is an error. cfg is as WithDefaults has returned it.
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

// CloseAll closes listeners that no broker has taken over.
func CloseAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// Shutdown stops all brokers at once, as Node.Stop does, and the controller. It may be called
// again.
func (c *Cluster) Shutdown(ctx context.Context) error {
	c.Controller.Close()
	var stopping errgroup.Group
	for _, n := range c.Nodes {
		stopping.Go(func() error { return n.Stop(ctx) })
	}
	err := stopping.Wait()
	return errors.Join(err, c.Controller.Shutdown(ctx))
}

// Settled reports whether every broker that runs knows what the controller has decided,
// and every partition is led by its preferred leader and has all its replicas in sync.
func (c *Cluster) Settled() bool {
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
