package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// keepInSync looks after the in-sync sets of what this broker leads: now and
// then, and when a follower is there to come back.
func (s *Server) keepInSync(ctx context.Context) {
	t := time.NewTicker(s.cfg.ReplicaLag / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.rejoining:
		}
		if s.gate.Pass(ctx) != nil {
			return
		}
		// By the image: it is read without a lock, and what has no followers is not
		// even looked up.
		for id, t := range s.image().ByID {
			for i := range t.Partitions {
				if a := &t.Partitions[i]; a.Leader != s.id || len(a.Replicas) < 2 {
					continue
				}
				if p := s.local(meta.PartitionKey{Topic: id, Index: int32(i)}); p != nil {
					s.keepPartitionInSync(p)
				}
			}
		}
	}
}

// retentionCheck is how often records are looked for that are older than their topic
// keeps them.
const retentionCheck = 5 * time.Second

// keepRetention drops what is older than its topic keeps it.
func (s *Server) keepRetention(ctx context.Context) {
	for fault.Sleep(ctx, retentionCheck) && s.gate.Pass(ctx) == nil {
		for id, t := range s.image().ByID {
			if t.RetentionTime == 0 {
				continue
			}
			for i := range t.Partitions {
				if p := s.local(meta.PartitionKey{Topic: id, Index: int32(i)}); p != nil {
					p.Expire(time.Now())
					s.sessions.startMoved(p.Key)
				}
			}
		}
	}
}

func (s *Server) keepPartitionInSync(p *replica.Partition) {
	believed, isr, ok := p.Wanted(s.image(), s.uptime.Now(), s.cfg.ReplicaLag)
	if !ok {
		return
	}
	// What is granted comes with the next image, and so does what else the
	// controller knows better, but for one thing.
	if err := s.controller.AlterISR(s.id, p.Key, believed, isr); err == kerr.IneligibleReplica {
		p.Withdraw(believed)
	}
}
