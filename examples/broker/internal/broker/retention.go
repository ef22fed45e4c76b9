package broker

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

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
