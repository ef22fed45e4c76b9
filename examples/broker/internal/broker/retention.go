package broker

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// retentionCheck is the interval between searches for records past their topic's retention time.
const retentionCheck = 5 * time.Second

// keepRetention deletes records that have passed their topic's retention time.
func (s *Server) keepRetention(ctx context.Context) {
	for fault.Sleep(ctx, retentionCheck) && s.gate.Pass(ctx) == nil {
		for id, t := range s.image().ByID {
			if t.RetentionTime == 0 {
				continue
			}
			for i := range t.Partitions {
				if p := s.local(meta.PartitionKey{Topic: id, Index: int32(i)}); p != nil {
					p.Expire(time.Now())
					s.sessions.logStartMoved(p.Key)
				}
			}
		}
	}
}
