package store

import (
	"context"
	"time"
)

// Store keeps timers. All methods are safe for concurrent use. Those with a shard
// take items of that shard only ([ShardOf]), at most [MaxItems] of them, and
// return one result for each, in the same order; the caller has checked them
// ([Entry.Check] and its like), so an engine need not.
//
// A method that changes something returns once the change is as durable as the
// engine promises. After an error, nothing was changed, but for [ErrUnsure]:
// each of the items may have been changed or not; and [ErrUnconfirmed]: all were,
// on fewer replicas than asked for. An engine that has a connection sends a
// request again, within ctx, when the reply was lost and the second answer would
// be that of the first.
//
// A change that ended as ErrUnsure takes effect before the call's deadline by the engine's
// clock, and before any later change of the same Store to the shard, or never. A disk that
// hangs during the write can delay the change past the deadline; it takes effect then before
// any other call on the shard.
//
// No call outlasts ctx by more than a moment; without a deadline there, the engine
// has one of its own.
type Store interface {
	// Shards is how many shards there are; it never changes.
	Shards() int

	// Schedule adds timers, in order: a key can stand in entries twice. A waiting
	// timer of the same key is replaced, attempts from 0; so is a dead one. A
	// leased one, not cancelled or cancelled, gets a successor, instead of the one
	// that it may have; a Cancel before does not take that away.
	Schedule(ctx context.Context, shard int, entries []Entry) ([]Receipt, Horizon, error)

	// Cancel removes waiting timers and marks leased ones; see [CancelResult]. Sent
	// again after a cut connection, it returns NotFound for what the first may have
	// removed, with ErrUnsure.
	Cancel(ctx context.Context, shard int, keys []string) ([]CancelResult, error)

	// Reschedule moves waiting timers.
	Reschedule(ctx context.Context, shard int, moves []Move) ([]MoveResult, Horizon, error)

	// Get returns one timer; ErrNotFound if there is none.
	Get(ctx context.Context, shard int, key string) (Record, error)

	// List returns a page of timers. It looks at [MaxLook] at most, and with the zero
	// Filter at Query.Limit. A change that is made meanwhile is seen or not.
	List(ctx context.Context, shard int, q Query) (Page, error)

	// Requeue makes dead letters wait again, due at the engine's present, with their
	// last errors.
	Requeue(ctx context.Context, shard int, keys []string) ([]RequeueResult, Horizon, error)

	// Purge removes dead letters, and returns how many there were.
	Purge(ctx context.Context, shard int, keys []string) (int, error)

	// SwapPlans changes plans, in order, each as a whole or not; see [PlanSwap]. It leases
	// occurrences that it creates to the caller; see [Take].
	SwapPlans(ctx context.Context, shard int, swaps []PlanSwap, take Take) ([]SwapResult, []Lease, Horizon, error)

	// Plans returns plans in order of their keys, those after a key, with their bodies: at
	// most limit of them, and of [MaxClaim] bytes together unless it is one. If there are
	// more it returns one at least.
	Plans(ctx context.Context, shard int, after string, limit int) ([]Record, error)

	// Claim leases what is due: of each lane in order of due times. It first deals
	// with leases that have run out: what was cancelled is gone, a successor waits
	// in its place, what has no attempts left is dead, and the rest is leased
	// anew, with a higher fence, as far as there is room. It also applies MaxDead and
	// MaxDeadAge.
	Claim(ctx context.Context, shard int, c Claim) (Claimed, Horizon, error)

	// Extend makes leases end lease from now, also of those that have run out, and
	// returns the new end.
	Extend(ctx context.Context, shard int, holders []Holder, lease time.Duration) ([]ExtendResult, Millis, error)

	// End ends runs.
	End(ctx context.Context, shard int, ends []End) ([]EndResult, Horizon, error)

	// Look returns the horizons of shards, in order. It is cheap. A shard that cannot
	// be read does not hide the others: if some have answered, it returns the error
	// and the horizons beside it, those that are unknown with a Now of 0, and it does
	// not wait for the rest until ctx ends. If none has, it returns nil and the error.
	Look(ctx context.Context, shards []int) ([]Horizon, error)

	// Stats counts a shard.
	Stats(ctx context.Context, shard int) (Stats, error)

	// CountDue counts the timers of a shard, no plans, that wait, by when they are due: those from
	// each edge on and before the next. The caller has checked the edges ([CheckEdges]). An
	// engine that has to read the timers counts [MaxCounted] at most; see [DueCounts].
	CountDue(ctx context.Context, shard int, edges []Millis) (DueCounts, error)

	// Heartbeat marks a worker as live for another TTL, and returns the names of all live
	// workers, in order. A TTL of 0 removes the worker. The caller has checked it.
	Heartbeat(ctx context.Context, h Heartbeat) ([]string, error)

	// Workers returns the workers that have sent heartbeats, by name: the live ones, and those
	// whose heartbeats have expired without a last one of TTL 0, for [KeepWorker] after that
	// and at most [MaxDeadWorkers] of them.
	Workers(ctx context.Context) ([]Worker, error)

	// Announce sends a Busy event to all that subscribe. The other kinds the engine
	// sends by itself.
	Announce(ctx context.Context, e Event) error

	// Subscribe calls f with each event, one at a time, until ctx ends, and then
	// returns its cause. f must not block. It first calls f with a Gap once the
	// subscription stands, and again after each time that it did not; it renews it
	// by itself.
	Subscribe(ctx context.Context, f func(Event)) error

	// Close frees what the store holds of the machine. Calls under way end, with
	// ErrClosed or as they would have. A second Close does nothing.
	Close() error
}
