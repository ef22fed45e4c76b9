package group

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// shard is the groups of one partition of the offsets topic, for one reign
// of this broker as its leader. A later reign has a shard of its own, which
// reads the log again.
type shard struct {
	co           *Coordinator
	index, epoch int32
	ctx          context.Context // done when the reign is over here
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

// refusalLocked is why nothing can be asked of the shard.
func (s *shard) refusalLocked() *kerr.Error {
	switch {
	case s.ended:
		return kerr.NotCoordinator
	case !s.loaded:
		return kerr.CoordinatorLoadInProgress
	}
	return nil
}

// find returns a group. With create, one that is not there is made.
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
		return nil, kerr.GroupMaxSizeReached // of Kafka's errors the one that says: there is no room
	}
	g = newGroup(s, id)
	s.groups[id] = g
	return g, nil
}

// remove takes a group out that is not needed any more. Its lock is held.
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

// open begins to answer, with the groups that were read from the log. False: the
// shard has ended before.
func (s *shard) open(groups map[string]*group, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.groups, s.loaded = groups, true
	s.writes.grown = size
	s.co.groups.Add(int64(len(groups)))
	return true
}

// end is the end of the reign: whoever waits for anything here is told to look
// for another coordinator.
func (s *shard) end() {
	s.cancel()
	s.mu.Lock()
	groups, queued := s.groups, s.writes.queue
	s.co.groups.Add(-int64(len(groups)))
	s.ended, s.groups, s.writes.queue = true, nil, nil
	s.mu.Unlock()
	for _, g := range groups {
		g.change(func(l *later) { g.abandonLocked(l) })
	}
	for _, w := range queued {
		w.done(-1, kerr.NotLeaderForPartition)
	}
}
