// Package store defines what an engine must do that keeps durable timers: the
// interface [Store], the records that pass through it, the bounds that every
// engine checks, and its errors.
//
// Package durable has what a program uses, Timers and Worker, on top of any
// Store; packages pebblestore and redisstore are the engines; package storetest
// is the suite that each of them passes.
//
// # The way of a timer
//
//	Schedule ─────────────▶ waiting ◀── Requeue ── dead
//	   Cancel: gone            │ Claim, when due        ▲
//	                           ▼                        │ Bury, or a lease that ran out
//	         gone ◀─ Done ── leased ────────────────────┘ in the last attempt
//	                           │ Retry, Snooze, GiveBack
//	                           ▼
//	                        waiting
//
// A timer is in one of these three homes, or gone: never in two, and its body is
// nowhere else, after any crash. What is scheduled under the key of a leased timer
// is that timer's successor: it has no home of its own until the run ends, and
// waits then.
//
// # Shards
//
// A store is divided into shards, by a hash of the key ([ShardOf]). Each call is
// about one shard, and atomic in it: for each of its items by itself, not for all
// of them together. A shard's waiting timers stand in [Lanes] lanes, by a hash of
// the topic ([LaneOf]), so that one topic cannot keep all others waiting.
//
// # Time
//
// Only the engine's clock decides, in whole milliseconds ([Millis]), never before
// the time asked for: deadlines are rounded up, and so is the present that they are
// counted from; the present that they are compared with is rounded down. Each
// reply about a shard carries its [Horizon]: the engine's time, and when there is
// something to do next. So nobody needs to poll.
//
// # Leases
//
// A claim leases what is due. A lease has a fence, a number that only grows in a
// shard, and the token of its claim. A worker that extends or ends a run shows
// both; another's change nothing. A lease is lost when the timer was leased
// anew, cancelled or ended, not when it merely ran out.
package store
