// Package store defines the contract of an engine for durable timers: the interface [Store], its
// records and errors, and the bounds that every engine checks.
//
// Programs use Timers and Worker of package durable, which work with any Store; packages
// pebblestore and redisstore are the engines; package storetest is the suite that each of them
// passes.
//
// # The lifecycle of a timer
//
//	Schedule ─────────────▶ waiting ◀── Requeue ── dead
//	   Cancel: removed         │ Claim, when due        ▲
//	                           ▼                        │ DeadLetter, or an expired lease
//	      removed ◀─ Done ── leased ────────────────────┘ in the last attempt
//	                           │ Retry, Snooze, Release
//	                           ▼
//	                        waiting
//
// A timer is in exactly one of these three states, or removed, even after a crash, and its body is
// stored once. A timer that is scheduled under the key of a leased timer is that timer's successor:
// it has no state of its own until the run ends, and then waits.
//
// # Shards
//
// A store is divided into shards, by a hash of the key ([ShardOf]). Each call applies to one shard.
// It is atomic for each of its items, not for all of them together. A shard's waiting timers are
// in [Lanes] lanes, by a hash of the topic ([LaneOf]), so that one topic cannot starve the others.
//
// # Time
//
// Only the engine's clock counts, in whole milliseconds ([Millis]). Nothing happens before the
// requested time: deadlines are rounded up, and so is the present from which they are counted; the
// present with which they are compared is rounded down. The replies of most calls carry the shard's
// [Horizon]: the engine's time, and when the shard next has work. So workers need not poll.
//
// # Leases
//
// A claim leases due timers. A lease has a fence, a number that only grows in a shard, and the
// token of its claim. A worker that extends or ends a run presents both; with any others the call
// changes nothing. A lease is lost when the timer is leased again, cancelled or ended, not when
// the lease merely expires.
package store
