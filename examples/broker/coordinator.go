package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// coordinator looks after the consumer groups of this broker: those whose
// partition of the offsets topic it leads. Three things wait here:
//
//	a rebalance for its members to join     joins     delayedJoin, in join.go
//	a generation for its members to sync    syncs     delayedSync, in sync.go
//	a member's session for a sign of life   sessions  see heartbeat.go
//
// Joins and syncs are keyed by their round, a number that each rebalance is
// given and that never comes again. The group's id would do for a start, but a
// group goes on to its next rebalance while a check or a cancel of the last one
// is still on its way, and that must not meet the next one's operation. The
// generation does not tell them apart either: a group that was empty is
// forgotten, and begins with generation 1 again.
//
// # Locks
//
//	coordinator.mu   which shards there are        guards a table; a leaf
//	group.mu         one group                     may be held when shard.mu is taken
//	groupShard.mu    one shard's groups and queue  a leaf
//
// Nothing else is locked under any of these, and no group's lock is ever taken
// under another's. Above all, none of them is held when a purgatory, sessions,
// server.replicate or a reply is called: each may come back to a group by way of
// TryComplete, Complete, an expiry or a done function, and those take its lock.
// Kafka did hold the group's lock there, and had KAFKA-5970 and KAFKA-6042 for
// it. Here a change of a group writes down what is to be done about it (later,
// in group.go), and does it when the lock is free. By then somebody else may
// have changed the group again, so whatever is put off must be right in any
// order: operations look at the group as it is when they are checked, and one
// whose round is over completes at once and does nothing.
type coordinator struct {
	srv        *server
	cfg        *groupConfig
	partitions uint32 // of the offsets topic

	joins    *purgatory.Purgatory[round]
	syncs    *purgatory.Purgatory[round]
	sessions *keyed.Table[string, *group] // by member id

	rounds      atomic.Uint64
	arrivals    atomic.Uint64 // members that ever came; their order
	groups      atomic.Int64  // in all shards
	memberBytes budget
	offsetBytes budget

	loads sync.WaitGroup // shards being read

	mu     sync.RWMutex
	shards []*groupShard // guarded by mu; by partition of the offsets topic; nil: led elsewhere
	closed bool          // guarded by mu
}

// round numbers the rebalances of this coordinator.
type round uint64

func newCoordinator(s *server) (*coordinator, error) {
	cfg := &s.cfg.groups
	co := &coordinator{
		srv:         s,
		cfg:         cfg,
		partitions:  uint32(s.cfg.offsetsPartitions),
		memberBytes: budget{limit: cfg.maxMemberBytes},
		offsetBytes: budget{limit: cfg.maxOffsetBytes},
		shards:      make([]*groupShard, s.cfg.offsetsPartitions),
	}
	// There is no bound on operations: a group has one at a time, and groups are
	// bounded.
	waiting := purgatory.Options{Wheel: s.wheel, OnPanic: co.panicked}
	var joins, syncs, sessions error
	co.joins, joins = purgatory.New[round](waiting)
	co.syncs, syncs = purgatory.New[round](waiting)
	co.sessions, sessions = keyed.New(co.sessionEnded, timingwheel.Options{Tick: s.cfg.tick, OnPanic: co.panicked})
	if err := errors.Join(joins, syncs, sessions); err != nil {
		return nil, err
	}
	return co, nil
}

func (co *coordinator) panicked(p timingwheel.Panic) {
	co.srv.metrics.panics.Add(1)
	co.srv.cfg.logger.Error("broker: group operation panicked", "panic", p.Value, "stack", string(p.Stack))
}

func (co *coordinator) nextRound() round { return round(co.rounds.Add(1)) }

// lead begins this broker's time as coordinator of a partition's groups. They
// are read from its log first, on a goroutine of its own; until then clients are
// asked to come back.
func (co *coordinator) lead(p *partition, index, epoch int32) {
	co.mu.Lock()
	if co.closed || int(index) >= len(co.shards) {
		co.mu.Unlock()
		return
	}
	before := co.shards[index]
	s := newGroupShard(co, p, index, epoch)
	co.shards[index] = s
	co.loads.Add(1)
	co.mu.Unlock()
	if before != nil {
		before.end() // the same broker in a new reign: others may have written in between
	}
	go s.load()
}

// resign ends it. Whoever is parked hears at once that the coordinator is
// another broker now.
func (co *coordinator) resign(index, epoch int32) {
	co.mu.Lock()
	var gone *groupShard
	if int(index) < len(co.shards) {
		if s := co.shards[index]; s != nil && (epoch == -1 || s.epoch < epoch) {
			gone, co.shards[index] = s, nil
		}
	}
	co.mu.Unlock()
	if gone != nil {
		gone.end()
	}
}

// shutdown ends all. What is parked ends as closed and is answered
// NOT_COORDINATOR, and no goroutine is left.
func (co *coordinator) shutdown(ctx context.Context) error {
	co.mu.Lock()
	co.closed = true
	shards := slices.Clone(co.shards)
	clear(co.shards)
	co.mu.Unlock()
	joins, syncs := co.joins.Shutdown(ctx), co.syncs.Shutdown(ctx)
	for _, s := range shards {
		if s != nil {
			s.end()
		}
	}
	_, sessions := co.sessions.Shutdown(ctx, timingwheel.Discard)
	return errors.Join(joins, syncs, sessions, co.awaitLoads(ctx))
}

// stats is what the purgatories of joins and of syncs say of themselves.
func (co *coordinator) stats() []purgatory.Stats {
	return []purgatory.Stats{co.joins.Stats(), co.syncs.Stats()}
}

func (co *coordinator) awaitLoads(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		co.loads.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("broker: groups are still being read: %w", ctx.Err())
	}
}

// partitionOf returns which partition of the offsets topic a group belongs to. All
// brokers must agree, and go on to.
func (co *coordinator) partitionOf(id string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int32(h.Sum32() % co.partitions)
}

// shardOf is where a group is, if it is here.
func (co *coordinator) shardOf(id string) (*groupShard, *kerr.Error) {
	if len(id) > co.cfg.maxID {
		return nil, kerr.InvalidGroupID
	}
	co.mu.RLock()
	defer co.mu.RUnlock()
	if s := co.shards[co.partitionOf(id)]; s != nil {
		return s, nil
	}
	return nil, kerr.NotCoordinator
}

// led lists the shards that are here.
func (co *coordinator) led() (shards []*groupShard) {
	co.mu.RLock()
	defer co.mu.RUnlock()
	for _, s := range co.shards {
		if s != nil {
			shards = append(shards, s)
		}
	}
	return shards
}

// onGroup finds a group and runs f on it, under its lock; with create, a group
// that is not there is made. Otherwise, and if this broker does not coordinate
// it, f is not run and the error says why: GROUP_ID_NOT_FOUND, NOT_COORDINATOR,
// COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID, GROUP_MAX_SIZE_REACHED.
func (co *coordinator) onGroup(id string, create bool, f func(g *group, l *later)) *kerr.Error {
	for {
		s, err := co.shardOf(id)
		if err != nil {
			return err
		}
		g, err := s.find(id, create)
		if err != nil {
			return err
		}
		dead := false
		g.change(func(l *later) {
			if dead = g.state == groupDead; !dead {
				f(g, l)
			}
		})
		if !dead {
			return nil
		}
		// It was removed after it was found. By now it is out of the shard's table,
		// or the shard has ended: look again.
	}
}

// budget bounds a sum.
type budget struct {
	used  atomic.Int64
	limit int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// Kinds of keys in FindCoordinator.
const groupKeyType = 0

// handleFindCoordinator answers which broker leads the partition of a group. The
// first one who asks makes the topic.
func handleFindCoordinator(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.FindCoordinatorRequest)
	var failed *kerr.Error
	if q.CoordinatorType == groupKeyType {
		failed = c.srv.cluster.controller.createOffsetsTopic()
	}
	r.answer(func() kmsg.Response { // it is longer than its request
		resp := q.ResponseKind().(*kmsg.FindCoordinatorResponse)
		if q.Version < 4 {
			k := c.locate(q.CoordinatorKey, q.CoordinatorType, failed)
			resp.NodeID, resp.Host, resp.Port, resp.ErrorCode, resp.ErrorMessage = k.NodeID, k.Host, k.Port, k.ErrorCode, k.ErrorMessage
			return resp
		}
		for _, key := range q.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, c.locate(key, q.CoordinatorType, failed))
		}
		return resp
	})
}

// locate answers for one key.
func (c *conn) locate(key string, kind int8, failed *kerr.Error) kmsg.FindCoordinatorResponseCoordinator {
	k := kmsg.NewFindCoordinatorResponseCoordinator()
	k.Key, k.NodeID, k.Port = key, -1, -1
	refuse := func(err *kerr.Error, why string) kmsg.FindCoordinatorResponseCoordinator {
		k.ErrorCode, k.ErrorMessage = code(err), &why
		return k
	}
	if kind != groupKeyType {
		return refuse(kerr.InvalidRequest, "this broker coordinates consumer groups only: it has no transactions and no share groups")
	}
	if failed != nil {
		return refuse(kerr.CoordinatorNotAvailable, "the topic of offsets cannot be made: "+failed.Message)
	}
	img, index := c.srv.image(), c.srv.groups.partitionOf(key)
	t := img.byName[offsetsTopic]
	if t == nil || int(index) >= len(t.partitions) {
		return refuse(kerr.CoordinatorNotAvailable, "the topic of offsets is being made")
	}
	leader, ok := img.node(t.partitions[index].leader)
	if !ok {
		return refuse(kerr.CoordinatorNotAvailable, "the group's partition has no leader now")
	}
	b := c.broker(leader)
	k.NodeID, k.Host, k.Port = b.NodeID, b.Host, b.Port
	return k
}
