package group

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// shard holds the groups of one partition of the offsets topic, for one leader epoch of this
// broker. A later leader epoch has a shard of its own, which reads the log again.
type shard struct {
	co           *Coordinator
	index, epoch int32
	ctx          context.Context // cancelled when the leader epoch ends here
	cancel       context.CancelFunc

	mu     sync.Mutex
	groups map[string]*group // guarded by mu
	loaded bool              // guarded by mu
	ended  bool              // guarded by mu
	writes writeQueue        // guarded by mu; see queue.go
}

func newShard(co *Coordinator, index, epoch int32) *shard {
	s := &shard{co: co, index: index, epoch: epoch, groups: map[string]*group{}}
	s.ctx, s.cancel = context.WithCancel(co.ctx)
	return s
}

// refusalLocked returns the reason to refuse requests, or nil.
func (s *shard) refusalLocked() *kerr.Error {
	switch {
	case s.ended:
		return kerr.NotCoordinator
	case !s.loaded:
		return kerr.CoordinatorLoadInProgress
	}
	return nil
}

// find returns a group. With create it creates a missing one.
func (s *shard) find(id string, create bool) (*group, *kerr.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusalLocked(); err != nil {
		return nil, err
	}
	g := s.groups[id]
	switch {
	case g != nil:
		return g, nil
	case !create:
		return nil, kerr.GroupIDNotFound
	}
	if s.co.groups.Add(1) > int64(s.co.cfg.MaxGroups) {
		s.co.groups.Add(-1)
		return nil, kerr.GroupMaxSizeReached // the Kafka error for a lack of capacity
	}
	g = newGroup(s, id)
	s.groups[id] = g
	return g, nil
}

// remove removes a group that is no longer needed. The caller holds the group's lock.
func (s *shard) remove(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[g.id] == g {
		delete(s.groups, g.id)
		s.co.groups.Add(-1)
	}
}

// all lists the groups by id.
func (s *shard) all() ([]*group, *kerr.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusalLocked(); err != nil {
		return nil, err
	}
	groups := make([]*group, 0, len(s.groups))
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		groups = append(groups, s.groups[id])
	}
	return groups, nil
}

// open makes the shard accept requests, with the groups that were read from the log. It returns
// false if the shard has ended.
func (s *shard) open(groups map[string]*group, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.groups, s.loaded = groups, true
	s.writes.sinceSnapshot = size
	s.co.groups.Add(int64(len(groups)))
	return true
}

// end ends the leader epoch: waiting requests are told to find another coordinator.
func (s *shard) end() {
	s.cancel()
	s.mu.Lock()
	groups, queued := s.groups, s.writes.queue
	s.co.groups.Add(-int64(len(groups)))
	s.ended, s.groups, s.writes.queue = true, nil, nil
	s.mu.Unlock()
	for _, g := range groups {
		g.change(func(l *deferred) { g.abandonLocked(l) })
	}
	for _, w := range queued {
		w.done(-1, kerr.NotLeaderForPartition)
	}
}
