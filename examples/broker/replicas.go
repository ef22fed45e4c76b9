package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// replicas is what a broker holds of partitions, led or followed.
type replicas struct {
	kept     atomic.Int64 // bytes in all logs; each partition adds its changes
	evicting sync.Mutex   // one goroutine at a time brings kept down

	mu    sync.RWMutex
	byKey map[partitionKey]*partition // guarded by mu
}

func (r *replicas) get(key partitionKey) *partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byKey[key]
}

func (r *replicas) all() []*partition {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.byKey))
}

func (r *replicas) put(p *partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byKey[p.key] = p
}

func (r *replicas) delete(key partitionKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
}

// limitSum keeps all logs together below a limit: the largest one loses a
// quarter, again and again, until a sixteenth is free. It is called after
// appends; it is a scan of all partitions, but once per sixteenth.
func (r *replicas) limitSum(limit int64) {
	if r.kept.Load() <= limit || !r.evicting.TryLock() {
		return
	}
	defer r.evicting.Unlock()
	for target := limit - limit/16; r.kept.Load() > target; {
		var largest *partition
		var size int64
		for _, p := range r.all() {
			if n := p.spare(); n > size {
				largest, size = p, n
			}
		}
		before := r.kept.Load()
		if largest == nil {
			return
		}
		largest.free(size - size/4)
		if r.kept.Load() >= before {
			return // single huge batches, or nothing committed; no more can go
		}
	}
}

// local finds this broker's replica of a partition.
func (s *server) local(key partitionKey) *partition { return s.partitions.get(key) }

// image is what this broker knows of the cluster.
func (s *server) image() *image { return s.known.Load() }

// followController learns of each decision, and acts on it, one after the other.
func (s *server) followController(ctx context.Context) {
	for {
		_, err := s.cluster.controller.newer(ctx, s.image().version)
		if err != nil || s.gate.pass(ctx) != nil {
			return
		}
		s.apply(s.cluster.controller.image()) // with what was decided while the gate was closed
	}
}

// apply makes this broker what an image says it is. What waits here for what is
// over, or now is, hears of it, with no lock held.
func (s *server) apply(img *image) {
	before := s.image()
	now := time.Now()
	for _, p := range s.partitions.all() {
		if t, a := img.assignment(p.key); t == nil || !slices.Contains(a.replicas, s.id) {
			s.giveUp(p)
		}
	}
	for id, t := range img.byID {
		if before.byID[id] == t {
			continue // nothing of it has changed
		}
		for i, a := range t.partitions {
			if !slices.Contains(a.replicas, s.id) {
				continue
			}
			key := partitionKey{id, int32(i)}
			p := s.local(key)
			if p == nil {
				p = newPartition(&s.cfg, key, s.id, &s.partitions.kept, s.disk.take(key))
				s.partitions.put(p)
			}
			s.assign(p, t, a, now)
		}
	}
	s.known.Store(img)
	// Who lives counts for the low watermark, and a broker that has gone does not
	// hold a deletion up any more.
	if !slices.Equal(before.nodes, img.nodes) {
		s.startReplicators(img)
		for _, p := range s.partitions.all() {
			if r, leads := p.reign(); leads {
				s.deletes.Advance(r, s.deleted(r))
			}
		}
	}
	s.announceRoles()
	s.announceTopics(before, img)
}

// assign passes a decision on to a replica, and what comes of it to those who
// wait.
func (s *server) assign(p *partition, t *topic, a assignment, now time.Time) {
	turn := p.assign(t, a, now)
	if turn.lost >= 0 {
		s.hasEnded(p.key, turn.lost)
	}
	if turn.raised {
		s.hasRaised(p, a.epoch)
	}
	if t.name != offsetsTopic {
		return
	}
	if turn.lost >= 0 && turn.begun < 0 {
		s.groups.resign(p.key.index, a.epoch)
	}
	if turn.begun >= 0 {
		s.groups.lead(p, p.key.index, turn.begun)
	}
}

// giveUp ends a replica that this broker is not to have any more: its topic is
// deleted.
func (s *server) giveUp(p *partition) {
	s.partitions.delete(p.key)
	_, lost := p.close()
	if lost >= 0 {
		s.hasEnded(p.key, lost)
		if p.topic.name == offsetsTopic { // only this goroutine ever changes it
			s.groups.resign(p.key.index, -1)
		}
	}
}

// reign is the one that this replica leads in, if it does.
func (p *partition) reign() (reign, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return reign{p.key, p.assigned.epoch}, p.leading
}

// rolesChanged returns a channel that is closed when this broker's roles, or the
// brokers it knows of, next change.
func (s *server) rolesChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roles
}

func (s *server) announceRoles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.roles)
	s.roles = make(chan struct{})
}

// startReplicators has one for each other broker there ever was.
func (s *server) startReplicators(img *image) {
	for _, n := range img.nodes {
		if n.id == s.id || s.replicators[n.id] {
			continue
		}
		s.replicators[n.id] = true
		r := &replicator{s: s, leader: n.id}
		s.background.Go(func() { r.run(s.ctx) })
	}
}

// keepAlive sends heartbeats, and comes back when the controller has given this
// broker up meanwhile.
func (s *server) keepAlive(ctx context.Context) {
	t := time.NewTicker(s.cfg.brokerSession / 8)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.gate.pass(ctx) != nil {
			return
		}
		if s.cluster.controller.heartbeat(s.id, incarnation(s.registered.Load())) || s.draining.Load() {
			continue
		}
		if s.register() != nil {
			return // the cluster ends
		}
	}
}

// lookup finds this broker's replica of a partition that a client names, by name
// or by id as the request's version has it; the error is the one that fits.
func (s *server) lookup(name string, id topicID, byID bool, index int32) (*partition, *kerr.Error) {
	img := s.image()
	found, unknown := img.byName[name], kerr.UnknownTopicOrPartition
	if byID {
		if found = img.byID[id]; found == nil {
			unknown = kerr.UnknownTopicID
		}
	}
	if found == nil || index < 0 || int(index) >= len(found.partitions) {
		return nil, unknown
	}
	p := s.local(partitionKey{found.id, index})
	if p == nil {
		return nil, kerr.NotLeaderForPartition
	}
	return p, nil
}

// offsetsTopicID is zero while there is no such topic.
func (s *server) offsetsTopicID() topicID {
	if t := s.image().byName[offsetsTopic]; t != nil {
		return t.id
	}
	return topicID{}
}
