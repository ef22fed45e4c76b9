package cluster

import (
	"fmt"
	"io"
)

// WriteStatus writes who leads what, and what waits, for a person to read.
func (c *Cluster) WriteStatus(out io.Writer) {
	img := c.controller.Image()
	for _, n := range c.nodes {
		s := n.Server()
		if s == nil {
			_, _ = fmt.Fprintf(out, "broker %d at %s: stopped\n", n.ID, n.Addr())
			continue
		}
		_, _ = fmt.Fprintf(out, "broker %d at %s: alive %v; waiting: %d fetches, %d produces, %d deletions\n",
			n.ID, n.Addr(), img.Lives(n.ID), s.Fetches.Delayed(), s.Produces.Delayed(), s.Deletes.Delayed())
	}
	for _, p := range c.Partitions() {
		_, _ = fmt.Fprintf(out, "%s/%d: leader %d (epoch %d), in sync %v of %v\n", p.Topic, p.Index, p.Leader, p.Epoch, p.InSync, p.Replicas)
	}
}
