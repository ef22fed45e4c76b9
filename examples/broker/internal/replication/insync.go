package replication

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// KeepInSync looks after the in-sync sets of what a broker leads, until ctx ends: now and
// then, and when a follower is there to come back.
func KeepInSync(ctx context.Context, b *Broker) {
	t := time.NewTicker(b.Lag / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.Rejoining:
		}
		if b.Gate.Pass(ctx) != nil {
			return
		}
		// By the image: it is read without a lock, and what has no followers is not
		// even looked up.
		for id, t := range b.Image().ByID {
			for i := range t.Partitions {
				if a := &t.Partitions[i]; a.Leader != b.ID || len(a.Replicas) < 2 {
					continue
				}
				if p := b.Partitions.Get(meta.PartitionKey{Topic: id, Index: int32(i)}); p != nil {
					b.keepInSync(p)
				}
			}
		}
	}
}

func (b *Broker) keepInSync(p *replica.Partition) {
	believed, isr, ok := p.Wanted(b.Image(), b.Uptime(), b.Lag)
	if !ok {
		return
	}
	// What is granted comes with the next image, and so does what else the
	// controller knows better, but for one thing.
	if err := b.Controller.AlterISR(b.ID, p.Key, believed, isr); err == kerr.IneligibleReplica {
		p.Withdraw(believed)
	}
}
