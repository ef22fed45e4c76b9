// Package pebblestore keeps durable timers in a folder, with Pebble: the store for a program that
// runs on one machine. It needs no server, and one process at a time can open the folder.
//
//	s, err := pebblestore.Open("/var/lib/shop/timers", pebblestore.Options{})
//
// A call that changes something returns when its change is on disk, by fsync. Calls that arrive
// during an fsync share the next one, so many callers, or calls with many items, are as fast as the
// disk can write. An acknowledged change survives a crash of the process and of the machine, as far
// as the disk keeps the data that it has confirmed. On opening, all leases have expired, so timers
// that were running are claimed again at once.
//
// # Layout
//
// Each shard has five lanes, in which its timers wait: four for timers, and one for plans. A
// shard's keys begin with 1, its number (two bytes) and their kind (a letter):
//
//	config                  0                     format, number of shards
//	shard's record          1 shard m             last fence, counts, fronts of the lanes
//	timer                   1 shard r key         ID, topic, due, attempts, last error, body up to 256 bytes
//	body                    1 shard b number      of more than 256 bytes
//	waiting                 1 shard w lane due key
//	leased                  1 shard l key         token, fence, attempt, whether cancelled
//	successor               1 shard s key         as a timer
//	dead letter             1 shard d died key
//	plan                    1 shard p key         what wakes it, counts of ends, the last ten ends
//
// Times and numbers are big-endian. A timer's record is written when the timer is scheduled, and
// again when it dies or goes back to waiting with another due time or number of attempts; a claim
// leaves the record as it is and writes a lease. A large body is written once, under a number that
// no other body of the shard has had, and removed with its timer. The lifecycle of a timer without
// incident sets or removes six keys, and each call sets one more: the shard's record.
//
// A plan is a timer with an additional key of its own kind, which holds the fields that change when
// one of its occurrences ends. So such an end rewrites a few hundred bytes, not the plan's body. A
// call that ends an occurrence reads its plan, and the plan's timer if the end wakes it; the call
// writes the plan once, however many occurrences it ends. Timers whose keys have no zero byte cost
// none of this.
//
// Invariants, which the tests check by reading the whole folder after each crash:
//
//   - a timer that is not dead is either in one lane, once, under its own due time and topic, or
//     leased; a dead timer is among the dead, once;
//   - each entry of a lane, each lease and each dead letter has a timer; a successor has a lease;
//   - a key of kind p has a timer, which waits or is leased; and each timer whose key ends with
//     a zero byte has a key of kind p;
//   - each body has one timer or successor with its number and length, and each timer or
//     successor with a number has that body;
//   - the shard's record has the true counts, no lane begins before its front, and no
//     fence or number is above the last.
//
// # In memory
//
// Pebble answers reads from memory and its cache. For each shard the store itself keeps the record
// above, the leases, and where each lane begins. There are as many leases as handlers that run, or
// were to run, in this process or the one before. The end of a lease is only in memory, because a
// restart ends it anyway: extending a lease writes nothing. The workers, and the count of scheduled
// timers, are also only in memory. So opening reads the records of the shards, the leases, and the
// part of the log that Pebble has not made into tables yet, but not the timers.
//
// A queue is the worst workload for an LSM tree: taken entries leave tombstones at the front, where
// every iterator starts. Two things keep that small. Iterators start at the front that is kept in
// memory. And no key is set where one exists, so that a single deletion (Pebble's SingleDelete)
// removes it: the key and its deletion vanish as soon as they meet. For short-lived timers that is
// in memory, before anything was written to a table.
//
// # Durability
//
// Each call applies one Pebble batch, which includes the shard's record. Pebble writes a batch to
// its log as one record with a checksum, and on opening reads the log up to the first incomplete
// record. So after a crash a call has happened as a whole or not at all; and if it has, so have all
// calls applied before it, in all shards. An answer is given after an fsync of the log that came
// after the batch: everything that an answer contains or was derived from is on disk. That includes
// Get and calls that found nothing to change: they wait for the fsync of the last change that the
// shard saw. Horizons and the extension of leases do not wait; they promise nothing that a crash
// could break.
//
// A call changes nothing if its ctx has ended by the time it has read its input. If ctx ends later,
// while the disk delays the write, the call returns store.ErrUnsure, and the change is made: each
// later call on the shard finds it, and waits until it is on disk.
//
// When a write or an fsync fails, the store does not retry it: after a failed fsync a kernel may
// have dropped the data that it could not write, and report success the next time. The store closes
// itself (store.ErrClosed), and calls in progress return store.ErrUnsure. gate.go explains how
// the store keeps Pebble from ending the process.
//
// # Locks
//
// In this order, each held while the next is taken: a shard's lock; Pebble's own; the gate's mutex.
// The mutexes of the subscribers, the workers, the count of calls and the free space are taken
// alone. A shard's lock is a channel, so that a caller whose context ends gives up. A call holds it
// while it reads and applies, not while it waits for the fsync. A call runs in its own goroutine
// (call.go): a disk that hangs holds that goroutine, not the caller.
package pebblestore
