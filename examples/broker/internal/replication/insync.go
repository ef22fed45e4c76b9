package replication

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// KeepInSync maintains the in-sync sets of the partitions that a broker leads, until ctx ends: four
// times per Lag, when a follower may rejoin, and at each new image. A follower may have caught up
// before the image that lists it as live, and does not fetch again if there is nothing new.
func KeepInSync(ctx context.Context, b *Broker) {
	t := time.NewTicker(b.Lag / 4)
	defer t.Stop()
	changed := b.Changed()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.Rejoining:
		case <-changed:
		}
		if b.Gate.Pass(ctx) != nil {
			return
		}
		changed = b.Changed() // before the image, so that the next round sees later changes
		// Iterate over the image, which is read without a lock, so that partitions without
		// followers are not even looked up.
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
	current, isr, ok := p.ProposedISR(b.Image(), b.Uptime(), b.Lag)
	if !ok {
		return
	}
	// The next image brings the granted set and any newer decision. Only an ineligible replica has
	// to be handled here.
	if err := b.Controller.AlterISR(b.ID, p.Key, current, isr); err == kerr.IneligibleReplica {
		p.WithdrawISR(current)
	}
}
