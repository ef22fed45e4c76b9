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

// Coordinator looks after the consumer groups of this broker: those whose
// partition of the offsets topic it leads. Three things wait here:
//
//	a rebalance for its members to join     joins     delayedJoin, in 11_join_group.go
//	a generation for its members to sync    syncs     delayedSync, in 14_sync_group.go
//	a member's session for a sign of life   sessions  see 12_heartbeat.go
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
//	shard.mu         one shard's groups and queue  a leaf
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
type Coordinator struct {
	Options
	cfg Config

	joins    *purgatory.Purgatory[round]
	syncs    *purgatory.Purgatory[round]
	sessions *keyed.Table[sessionKey, struct{}]

	ctx    context.Context // done when the coordinator is shut down
	cancel context.CancelFunc

	rounds      atomic.Uint64
	arrivals    atomic.Uint64 // members that ever came; their order
	groups      atomic.Int64  // in all shards
	memberBytes budget
	offsetBytes budget

	loads sync.WaitGroup // shards being read

	mu     sync.RWMutex
	shards []*shard // guarded by mu; by partition of the offsets topic; nil: led elsewhere
	closed bool     // guarded by mu
}

// Options are what a coordinator works with.
type Options struct {
	Store      store
	Partitions int32            // of the offsets topic
	Clock      *purgatory.Clock // of joins and syncs
	Tick       time.Duration    // of the sessions' wheel
	OnPanic    func(purgatory.Panic)

	// OnHeartbeat is called when a member was heard of or its session has ended; see
	// 12_heartbeat.go.
	OnHeartbeat func(o purgatory.Outcome, since time.Duration)
}

// store is the topic of offsets, and what its coordinator needs to know of others. The
// partitions named are of the topic of offsets. Its methods are called with no lock held.
type store interface {
	// PartitionsOf returns how many partitions a topic has, 0 if there is none.
	PartitionsOf(topic string) int
	// records returns all batches in the log of a partition, and where it ends.
	Records(partition int32) (batches [][]byte, end int64)
	// AwaitReplicated blocks until every in-sync replica has what is below end, and
	// reports whether it came to that before the epoch or ctx was over.
	AwaitReplicated(ctx context.Context, partition, epoch int32, end int64) bool
	// replicate appends a batch, and calls done when every in-sync replica has it, or
	// it is known not to come to that, or the timeout is over. done is called exactly
	// once, with no lock held, possibly before replicate returns.
	Replicate(partition, epoch int32, batch []byte, timeout time.Duration, done func(base int64, err *kerr.Error))
	// DeleteBefore moves the start of the log up to offset.
	DeleteBefore(partition, epoch int32, offset int64)
}

// Reply is where the answer to a request goes: one call of either, from any goroutine.
type Reply interface {
	Now(kmsg.Response)
	Answer(build func() kmsg.Response) // build is called when the answer's turn has come
}

// Handle answers a request of a group, now or later. host is where its client is.
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

// New makes a coordinator that leads nothing yet. cfg is as WithDefaults has returned it.
func New(cfg Config, o Options) (*Coordinator, error) {
	co := &Coordinator{
		Options:     o,
		cfg:         cfg,
		memberBytes: budget{limit: cfg.MaxMemberBytes},
		offsetBytes: budget{limit: cfg.MaxOffsetBytes},
		shards:      make([]*shard, o.Partitions),
	}
	co.ctx, co.cancel = context.WithCancel(context.Background())
	// There is no bound on operations: a group has one at a time, and groups are
	// bounded.
	waiting := purgatory.Options{Clock: o.Clock, OnPanic: o.OnPanic}
	var joins, syncs, sessions error
	co.joins, joins = purgatory.New[round](waiting)
	co.syncs, syncs = purgatory.New[round](waiting)
	co.sessions, sessions = keyed.New(co.sessionEnded, timingwheel.Options{Tick: o.Tick, OnPanic: o.OnPanic})
	if err := errors.Join(joins, syncs, sessions); err != nil {
		return nil, err
	}
	return co, nil
}

func (co *Coordinator) nextRound() round { return round(co.rounds.Add(1)) }

// Lead begins this broker's time as coordinator of a partition's groups. They
// are read from its log first, on a goroutine of its own; until then clients are
// asked to come back.
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
		before.end() // the same broker in a new reign: others may have written in between
	}
	go s.load()
}

// Resign ends it. Whoever is parked hears at once that the coordinator is
// another broker now.
func (co *Coordinator) Resign(index, epoch int32) {
	co.mu.Lock()
	var gone *shard
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

// Shutdown ends all. What is parked ends as closed and is answered
// NOT_COORDINATOR, and no goroutine is left.
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

// Usage is what a coordinator holds.
type Usage struct {
	Groups, MemberBytes, OffsetBytes int64
}

// Usage returns what the coordinator holds now.
func (co *Coordinator) Usage() Usage {
	return Usage{co.groups.Load(), co.memberBytes.used.Load(), co.offsetBytes.used.Load()}
}

// Stats is what the purgatories say of themselves, by kind of operation.
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

// PartitionOf returns which partition of the offsets topic a group belongs to. All
// brokers must agree, and go on to.
func (co *Coordinator) PartitionOf(id string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int32(h.Sum32() % uint32(co.Partitions))
}

// shardOf is where a group is, if it is here.
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

// led lists the shards that are here.
func (co *Coordinator) led() (shards []*shard) {
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
func (co *Coordinator) onGroup(id string, create bool, f func(g *group, l *later)) *kerr.Error {
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
			if dead = g.state == stateDead; !dead {
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

// resize replaces what was taken by another number. It takes no more than the difference:
// what asks for nothing more gets it also while more is used than the limit, of what was
// read from a log.
func (b *budget) resize(from, to int64) bool {
	if to > from {
		return b.take(to - from)
	}
	b.give(from - to)
	return true
}
