package broker

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replication"
)

// local finds this broker's replica of a partition.
func (s *Server) local(key meta.PartitionKey) *replica.Partition { return s.partitions.Get(key) }

// image returns the latest image of the cluster that this broker has applied.
func (s *Server) image() *meta.Image { return s.applied.Load() }

// followController applies the controller's decisions, one image after the other.
func (s *Server) followController(ctx context.Context) {
	for {
		_, err := s.Controller.Newer(ctx, s.image().Version)
		if err != nil || s.gate.Pass(ctx) != nil {
			return
		}
		s.apply(s.Controller.Image()) // includes decisions made while the gate was closed
	}
}

// apply puts an image into effect: it opens, reassigns and closes replicas. It completes operations
// that wait for such a change (a leader epoch that ended, a topic that now exists), with no lock
// held.
func (s *Server) apply(img *meta.Image) {
	before := s.image()
	now := s.uptime.Now()
	var startEpochs []func() // start the new leader epochs of groups' partitions
	for _, p := range s.partitions.All() {
		if t, a := img.Assignment(p.Key); t == nil || !slices.Contains(a.Replicas, s.id) {
			s.closeReplica(p)
		}
	}
	for id, t := range img.ByID {
		if before.ByID[id] == t {
			continue // the topic has not changed
		}
		for i, a := range t.Partitions {
			if !slices.Contains(a.Replicas, s.id) {
				continue
			}
			key := meta.PartitionKey{Topic: id, Index: int32(i)}
			p := s.local(key)
			if p == nil {
				p = replica.New(&s.cfg.Replica, key, s.id, &s.partitions.LogBytes, s.uptime.Now, s.disk.Take(key))
				s.partitions.Put(p)
			}
			if startEpoch := s.assign(p, t, a, now); startEpoch != nil {
				startEpochs = append(startEpochs, startEpoch)
			}
		}
	}
	s.applied.Store(img)
	for _, startEpoch := range startEpochs {
		startEpoch() // it starts a load, which finds the partition in the image
	}
	// The low watermark depends on the live brokers: a broker that has left no longer delays a
	// deletion.
	if !slices.Equal(before.Nodes, img.Nodes) {
		s.startFollowers(img)
		for _, p := range s.partitions.All() {
			if r, leads := p.LeaderEpoch(); leads {
				s.deletes.Advance(r, s.deleted(r))
			}
		}
	}
	s.announceRoles()
	s.announceTopics(before, img)
}

// assign passes a decision on to a replica, and completes the operations that it affects. It
// returns a function that starts a leader epoch of the coordinator, or nil.
func (s *Server) assign(p *replica.Partition, t *meta.Topic, a meta.Assignment, now time.Duration) (startEpoch func()) {
	change := p.Assign(t, a, now)
	if change.EndedEpoch >= 0 {
		s.onEpochEnd(p.Key, change.EndedEpoch)
	}
	if change.Raised {
		s.onHighWatermark(p, a.Epoch)
	}
	switch {
	case t.Name != meta.OffsetsTopic:
	case change.StartedEpoch >= 0:
		return func() { s.groups.Lead(p.Key.Index, change.StartedEpoch) }
	case change.EndedEpoch >= 0:
		s.groups.Resign(p.Key.Index, a.Epoch)
	}
	return nil
}

// closeReplica closes a replica that is no longer assigned to this broker, because its topic was
// deleted.
func (s *Server) closeReplica(p *replica.Partition) {
	s.partitions.Delete(p.Key)
	_, lost := p.Close()
	if lost >= 0 {
		s.onEpochEnd(p.Key, lost)
		if p.Key.Topic == s.offsetsTopicID() {
			s.groups.Resign(p.Key.Index, -1)
		}
	}
}

// rolesChanged returns a channel that is closed when this broker's roles, or the brokers it knows
// of, next change.
func (s *Server) rolesChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roles
}

func (s *Server) announceRoles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.roles)
	s.roles = make(chan struct{})
}

// startFollowers ensures one follower for each other broker that an image has ever listed.
func (s *Server) startFollowers(img *meta.Image) {
	for _, n := range img.Nodes {
		if n.ID == s.id || s.followers[n.ID] {
			continue
		}
		s.followers[n.ID] = true
		s.background.Go(func() { replication.Follow(s.ctx, &s.replication, n.ID) })
	}
}

// keepAlive sends heartbeats, and registers again when the controller has fenced this broker.
func (s *Server) keepAlive(ctx context.Context) {
	t := time.NewTicker(s.cfg.Meta.BrokerSession / 8)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.gate.Pass(ctx) != nil {
			return
		}
		if s.Controller.Heartbeat(s.id, meta.Incarnation(s.registered.Load())) || s.wire.Draining.Load() {
			continue
		}
		if s.register() != nil {
			return // the cluster is shutting down
		}
	}
}

// lookup finds this broker's replica of a partition that a client names, by topic name or by topic
// id depending on the request's version. It returns the error that fits that version.
func (s *Server) lookup(name string, id meta.TopicID, byID bool, index int32) (*replica.Partition, *kerr.Error) {
	img := s.image()
	found, unknown := img.ByName[name], kerr.UnknownTopicOrPartition
	if byID {
		if found = img.ByID[id]; found == nil {
			unknown = kerr.UnknownTopicID
		}
	}
	if found == nil || index < 0 || int(index) >= len(found.Partitions) {
		return nil, unknown
	}
	p := s.local(meta.PartitionKey{Topic: found.ID, Index: index})
	if p == nil {
		return nil, kerr.NotLeaderForPartition
	}
	return p, nil
}

// offsetsTopicID returns zero while the offsets topic does not exist.
func (s *Server) offsetsTopicID() meta.TopicID {
	if t := s.image().ByName[meta.OffsetsTopic]; t != nil {
		return t.ID
	}
	return meta.TopicID{}
}
