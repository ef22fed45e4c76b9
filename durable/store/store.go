package store

import (
	"context"
	"time"
)

// Store keeps timers. All methods are safe for concurrent use. Methods with a shard accept only
// items of that shard ([ShardOf]), at most [MaxItems] of them, and return one result for each, in
// the same order. The caller has checked the items with their Check methods, such as [Entry.Check],
// so an engine need not.
//
// A method that changes something returns once the change is as durable as the engine promises.
// If it returns an error it changed nothing, except with [ErrUnsure]: each of the items may have
// been changed or not; and [ErrUnconfirmed]: all were, on fewer replicas than asked for. An engine
// with a connection repeats a request, within ctx, if the reply was lost and the second answer
// would equal the first.
//
// A change that ended as ErrUnsure takes effect before the call's deadline by the engine's clock,
// and before any later change of the same Store to the shard, or never. A disk that hangs during
// the write can delay the change past the deadline; it takes effect then before any other call on
// the shard.
//
// No call outlasts ctx by more than a moment; if ctx has no deadline, the engine applies its own.
type Store interface {
	// Shards returns the number of shards, which never changes.
	Shards() int

	// Schedule adds timers, in order: a key may occur twice in entries. A waiting or dead timer of
	// the same key is replaced, with no attempts used. A leased one, cancelled or not, gets a
	// successor in place of any earlier one; a Cancel before the Schedule does not remove that
	// successor.
	Schedule(ctx context.Context, shard int, entries []Entry) ([]Receipt, Horizon, error)

	// Cancel removes waiting timers and marks leased ones; see [CancelResult]. If it was sent
	// again after a cut connection, it returns NotFound, with ErrUnsure, for timers that the first
	// request may have removed.
	Cancel(ctx context.Context, shard int, keys []string) ([]CancelResult, error)

	// Reschedule moves waiting timers.
	Reschedule(ctx context.Context, shard int, moves []Move) ([]MoveResult, Horizon, error)

	// Get returns one timer; ErrNotFound if there is none.
	Get(ctx context.Context, shard int, key string) (Record, error)

	// List returns a page of timers. It scans at most [MaxScan], and with the zero Filter at most
	// Query.Limit. It may or may not see concurrent changes.
	List(ctx context.Context, shard int, q Query) (Page, error)

	// Requeue makes dead letters wait again, due at the engine's present. They keep their last
	// errors.
	Requeue(ctx context.Context, shard int, keys []string) ([]RequeueResult, Horizon, error)

	// Purge removes dead letters, and returns how many there were.
	Purge(ctx context.Context, shard int, keys []string) (int, error)

	// SwapPlans changes plans, in order, each atomically; see [PlanSwap]. It can lease the
	// occurrences that it creates to the caller; see [SwapClaim].
	SwapPlans(ctx context.Context, shard int, swaps []PlanSwap, c SwapClaim) ([]SwapResult, []Lease, Horizon, error)

	// Plans returns the plans after a key, ordered by key, with their bodies: at most limit of
	// them, and at most [MaxClaim] bytes together unless it is one plan. If there are more plans
	// it returns at least one.
	Plans(ctx context.Context, shard int, after string, limit int) ([]Record, error)

	// Claim leases due timers, in each lane by due time. It first processes expired leases: a
	// cancelled timer is removed; a timer with a successor is replaced by it, which waits; a timer
	// without attempts left becomes a dead letter; and the rest are leased again, with higher
	// fences, as far as the claim has capacity. It also applies MaxDead and MaxDeadAge.
	Claim(ctx context.Context, shard int, c Claim) (Claimed, Horizon, error)

	// Extend renews leases, including expired ones: each then ends after the duration lease from
	// the engine's present. Extend returns that end.
	Extend(ctx context.Context, shard int, holders []Holder, lease time.Duration) ([]ExtendResult, Millis, error)

	// End ends runs, each with its outcome.
	End(ctx context.Context, shard int, outcomes []Outcome) ([]EndResult, Horizon, error)

	// Horizons returns the horizons of shards, in order. It is cheap. A shard that cannot be read
	// does not hide the others: if some have answered, Horizons returns the error together with the
	// horizons, in which a Now of 0 marks an unknown one, and does not wait for the rest until ctx
	// ends. If none has answered, it returns nil and the error.
	Horizons(ctx context.Context, shards []int) ([]Horizon, error)

	// Stats counts a shard.
	Stats(ctx context.Context, shard int) (Stats, error)

	// CountDue counts the waiting timers of a shard, without plans, by due time: from each edge
	// until before the next. The caller has checked the edges ([CheckEdges]). An engine that has
	// to read the timers counts at most [MaxCounted]; see [DueCounts].
	CountDue(ctx context.Context, shard int, edges []Millis) (DueCounts, error)

	// Heartbeat marks a worker as live for another TTL, and returns the names of all live
	// workers, in order. A TTL of 0 removes the worker. The caller has checked it.
	Heartbeat(ctx context.Context, h Heartbeat) ([]string, error)

	// Workers returns the workers that have sent heartbeats, by name: the live ones, and those
	// whose heartbeats expired without a last one of TTL 0. The latter are kept for [KeepWorker]
	// after that, and at most [MaxDeadWorkers] of them.
	Workers(ctx context.Context) ([]Worker, error)

	// Announce sends a Busy event to all subscribers. The engine sends the other kinds by itself.
	Announce(ctx context.Context, e Event) error

	// Subscribe calls f with each event, one at a time, until ctx ends, and then returns ctx's
	// cause. f must not block. Subscribe calls f with a Gap once the subscription is established,
	// and again after each interruption; it renews the subscription by itself.
	Subscribe(ctx context.Context, f func(Event)) error

	// Close releases the store's resources. Calls in flight complete normally or return ErrClosed.
	// A second Close does nothing.
	Close() error
}
