package broker

import (
	"errors"
	"fmt"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/observe"
)

// observed adds the timing wheel and all purgatories of this broker to Config.Observe, and records
// how to remove them.
func (s *Server) observed() error {
	r := s.cfg.Observe
	if r == nil {
		return nil
	}
	var errs []error
	add := func(what string, source observe.Source) {
		remove, err := r.Add(fmt.Sprintf("broker %d%s", s.id, what), source)
		if err != nil {
			errs = append(errs, err)
			return
		}
		s.unobserve = append(s.unobserve, remove)
	}
	leaderEpoch := func(at replica.LeaderEpoch) string {
		return fmt.Sprintf("%s, epoch %d", s.partitionName(at.PartitionKey), at.Epoch)
	}
	add("", observe.Wheel(s.clock))
	add(": fetches", observe.Purgatory(s.fetches, s.watchName))
	add(": fetches of followers", observe.Purgatory(s.followerFetches, s.watchName))
	add(": produces", observe.Threshold(s.produces, leaderEpoch))
	add(": deletions", observe.Threshold(s.deletes, leaderEpoch))
	add(": changes of topics", observe.Purgatory(s.topicChanges, nil))
	s.groups.Observe(add)
	return errors.Join(errs...)
}

// watchName returns a readable name of a watch key.
func (s *Server) watchName(k watchKey) string {
	switch k.watermark {
	case noWatermark:
		return fmt.Sprintf("fetch session %d", k.Index)
	case logEndOffset:
		return s.partitionName(k.PartitionKey) + ", end"
	default:
		return s.partitionName(k.PartitionKey)
	}
}

func (s *Server) partitionName(k meta.PartitionKey) string {
	if t := s.image().ByID[k.Topic]; t != nil {
		return fmt.Sprintf("%s/%d", t.Name, k.Index)
	}
	return fmt.Sprintf("%x/%d", k.Topic, k.Index)
}
