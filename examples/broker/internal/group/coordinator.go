package group

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// Coordinator maintains the consumer groups of this broker: those whose partition of the offsets
// topic it leads. Three kinds of operations wait here:
//
//	a rebalance for its members to join     joins     delayedJoin, in 11_join_group.go
//	a generation for its members to sync    syncs     delayedSync, in 14_sync_group.go
//	a member's session for a heartbeat      sessions  see 12_heartbeat.go
//
// Joins and syncs are keyed by their round, a number that is unique to each rebalance. The group's
// id would not do: a group may begin its next rebalance while a check or a cancel of the last one
// is still in progress, which must not affect the next one's operation. The generation is no key
// either: an empty group is forgotten, and begins with generation 1 again.
//
// # Locks
//
//	Coordinator.mu   which shards there are        guards a table; a leaf
//	group.mu         one group                     may be held when shard.mu is taken
//	shard.mu         one shard's groups and queue  a leaf
//
// No other lock is taken under any of these, and no group's lock is ever taken under another
// group's. Above all, none of them is held when a purgatory, sessions, Store.Replicate or a reply
// is called: each may call back into a group by way of TryComplete, Complete, an expiry or a done
// function, and those take its lock. Kafka held the group's lock there, which led to KAFKA-5970 and
// KAFKA-6042. Here a change of a group records the calls to make (deferred, in group.go), and makes
// them when the lock is free. By then another goroutine may have changed the group again, so
// postponed calls must be correct in any order: operations check the current state of the group,
// and an operation whose round has ended completes at once without effect.
type Coordinator struct {
	Options
	cfg Config

	joins    *purgatory.Purgatory[round]
	syncs    *purgatory.Purgatory[round]
	sessions *keyed.Table[sessionKey, struct{}]

	ctx    context.Context // cancelled by Shutdown
	cancel context.CancelFunc

	rounds      atomic.Uint64
	arrivals    atomic.Uint64 // number of members so far; gives their order
	groups      atomic.Int64  // in all shards
	memberBytes budget
	offsetBytes budget

	loads sync.WaitGroup // shards that are loading

	mu     sync.RWMutex
	shards []*shard // guarded by mu; by partition of the offsets topic; nil: led elsewhere
	closed bool     // guarded by mu
}

// Options are the dependencies of a coordinator.
type Options struct {
	Store      store
	Partitions int32            // of the offsets topic
	Clock      *purgatory.Clock // of joins and syncs
	Tick       time.Duration    // of the sessions' wheel
	OnPanic    func(purgatory.Panic)

	// OnHeartbeat is called after each heartbeat of a member and at the end of its session; see
	// 12_heartbeat.go.
	OnHeartbeat func(o purgatory.Outcome, since time.Duration)
}

// store is the offsets topic, and the coordinator's view of other topics. Partitions are those of
// the offsets topic. Its methods are called with no lock held.
type store interface {
	// PartitionsOf returns the number of partitions of a topic, 0 if there is no such topic.
	PartitionsOf(topic string) int
	// Records returns all batches in the log of a partition, and the log's end.
	Records(partition int32) (batches [][]byte, end int64)
	// AwaitReplicated blocks until every in-sync replica has the log up to end. It returns false if
	// the epoch or ctx ends before that.
	AwaitReplicated(ctx context.Context, partition, epoch int32, end int64) bool
	// Replicate appends a batch. It calls done when every in-sync replica has the batch, when that
	// can no longer happen, or after the timeout. done is called exactly once, with no lock held,
	// possibly before Replicate returns.
	Replicate(partition, epoch int32, batch []byte, timeout time.Duration, done func(base int64, err *kerr.Error))
	// DeleteBefore moves the start of the log up to offset.
	DeleteBefore(partition, epoch int32, offset int64)
}

// Reply receives the answer to a request: one call of either method, from any goroutine.
type Reply interface {
	Now(kmsg.Response)
	Answer(build func() kmsg.Response) // build is called when it is the answer's turn
}

// Handle answers a group request, now or later. host is the client's.
func (co *Coordinator) Handle(req kmsg.Request, host string, r Reply) {
	switch q := req.(type) {
	case *kmsg.JoinGroupRequest:
		co.joinGroup(q, host, r)
	case *kmsg.SyncGroupRequest:
		co.syncGroup(q, r)
	case *kmsg.HeartbeatRequest:
		co.heartbeat(q, r)
	case *kmsg.LeaveGroupRequest:
		co.leaveGroup(q, r)
	case *kmsg.OffsetCommitRequest:
		co.offsetCommit(q, r)
	case *kmsg.OffsetFetchRequest:
		co.offsetFetch(q, r)
	case *kmsg.DescribeGroupsRequest:
		co.describeGroups(q, r)
	case *kmsg.ListGroupsRequest:
		co.listGroups(q, r)
	case *kmsg.DeleteGroupsRequest:
		co.deleteGroups(q, r)
	default:
		panic(fmt.Sprintf("broker: %s is not a request of a group", kmsg.NameForKey(req.Key())))
	}
}

// round numbers the rebalances of this coordinator.
type round uint64

// New returns a coordinator that leads no partition yet. cfg must be a result of WithDefaults.
func New(cfg Config, o Options) (*Coordinator, error) {
	co := &Coordinator{
		Options:     o,
		cfg:         cfg,
		memberBytes: budget{limit: cfg.MaxMemberBytes},
		offsetBytes: budget{limit: cfg.MaxOffsetBytes},
		shards:      make([]*shard, o.Partitions),
	}
	co.ctx, co.cancel = context.WithCancel(context.Background())
	// MaxPending is not set: a group has one operation at a time, and the number of groups is
	// limited.
	waiting := purgatory.Options{Clock: o.Clock, OnPanic: o.OnPanic}
	var joins, syncs, sessions error
	co.joins, joins = purgatory.New[round](waiting)
	co.syncs, syncs = purgatory.New[round](waiting)
	co.sessions, sessions = keyed.New(co.sessionExpired, timingwheel.Options{Tick: o.Tick, OnPanic: o.OnPanic})
	if err := errors.Join(joins, syncs, sessions); err != nil {
		return nil, err
	}
	return co, nil
}

func (co *Coordinator) nextRound() round { return round(co.rounds.Add(1)) }

// Lead makes this broker the coordinator of a partition's groups. A new goroutine first reads them
// from the log; until that is done, clients are asked to retry.
func (co *Coordinator) Lead(index, epoch int32) {
	co.mu.Lock()
	if co.closed || int(index) >= len(co.shards) {
		co.mu.Unlock()
		return
	}
	before := co.shards[index]
	s := newShard(co, index, epoch)
	co.shards[index] = s
	co.loads.Add(1)
	co.mu.Unlock()
	if before != nil {
		before.end() // this broker was re-elected: another one may have written in between
	}
	go s.load()
}

// Resign ends this broker's leadership of a partition. Parked requests are answered NOT_COORDINATOR
// at once.
func (co *Coordinator) Resign(index, epoch int32) {
	co.mu.Lock()
	var ended *shard
	if int(index) < len(co.shards) {
		if s := co.shards[index]; s != nil && (epoch == -1 || s.epoch < epoch) {
			ended, co.shards[index] = s, nil
		}
	}
	co.mu.Unlock()
	if ended != nil {
		ended.end()
	}
}

// Shutdown ends all shards. Parked operations are closed and answered NOT_COORDINATOR. When it
// returns, no goroutine is left.
func (co *Coordinator) Shutdown(ctx context.Context) error {
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
	co.cancel()
	_, sessions := co.sessions.Shutdown(ctx, timingwheel.Discard)
	return errors.Join(joins, syncs, sessions, co.awaitLoads(ctx))
}

// Usage is the amount of data that a coordinator holds.
type Usage struct {
	Groups, MemberBytes, OffsetBytes int64
}

// Usage returns the current usage.
func (co *Coordinator) Usage() Usage {
	return Usage{co.groups.Load(), co.memberBytes.used.Load(), co.offsetBytes.used.Load()}
}

// Stats returns the statistics of the purgatories, by kind of operation.
func (co *Coordinator) Stats() map[string]purgatory.Stats {
	return map[string]purgatory.Stats{"join": co.joins.Stats(), "sync": co.syncs.Stats()}
}

func (co *Coordinator) awaitLoads(ctx context.Context) error {
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

// PartitionOf returns the partition of the offsets topic that a group belongs to. All brokers must
// agree on it, and it must never change.
func (co *Coordinator) PartitionOf(id string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int32(h.Sum32() % uint32(co.Partitions))
}

// shardOf returns the shard of a group, if this broker coordinates the group.
func (co *Coordinator) shardOf(id string) (*shard, *kerr.Error) {
	if len(id) > co.cfg.MaxID {
		return nil, kerr.InvalidGroupID
	}
	co.mu.RLock()
	defer co.mu.RUnlock()
	if s := co.shards[co.PartitionOf(id)]; s != nil {
		return s, nil
	}
	return nil, kerr.NotCoordinator
}

// ledShards lists the shards of the partitions that this broker leads.
func (co *Coordinator) ledShards() (shards []*shard) {
	co.mu.RLock()
	defer co.mu.RUnlock()
	for _, s := range co.shards {
		if s != nil {
			shards = append(shards, s)
		}
	}
	return shards
}

// onGroup finds a group and runs f on it, under its lock. With create it creates a missing group.
// If there is no group, or this broker does not coordinate it, onGroup does not run f and returns
// the reason: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID,
// GROUP_MAX_SIZE_REACHED.
func (co *Coordinator) onGroup(id string, create bool, f func(g *group, l *deferred)) *kerr.Error {
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
		g.change(func(l *deferred) {
			if dead = g.state == stateDead; !dead {
				f(g, l)
			}
		})
		if !dead {
			return nil
		}
		// The group was removed after it was found. By now it is out of the shard's table, or the
		// shard has ended: look it up again.
	}
}

// budget limits a sum.
type budget struct {
	used  atomic.Int64
	limit int64
}

func (b *budget) acquire(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) release(n int64) { b.used.Add(-n) }

// resize replaces an amount that was taken by another one. It takes no more than the difference, so
// a request for no more than before succeeds even while usage exceeds the limit, as it may after a
// load.
func (b *budget) resize(from, to int64) bool {
	if to > from {
		return b.acquire(to - from)
	}
	b.release(from - to)
	return true
}
