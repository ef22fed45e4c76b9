// Package pebblestore keeps durable timers in a folder, by Pebble: the store of a
// program that runs on one machine. It needs no server, and one process at a time
// can open it.
//
//	s, err := pebblestore.Open("/var/lib/shop/timers", pebblestore.Options{})
//
// A call that changes something returns when what it changed is on disk, by fsync.
// Calls that come meanwhile share the next fsync, so that many callers, or calls
// with many items, are as fast as the disk can write. What was acknowledged
// survives a crash of the process and of the machine, as far as the disk keeps what
// it has confirmed. On opening, all leases have run out, so that what was
// running is claimed again at once.
//
// # Layout
//
// A key begins with the shard (two bytes) and a kind:
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
// Times and numbers are big-endian. A timer's record is written when it is
// scheduled, and again when it waits anew with another due time or number of
// attempts, or dies; a claim leaves it as it is and writes a lease. A large body is
// written once, under a number that no other body of the shard has had, and removed
// with its timer. In a life without incident, six keys are set or removed, and one
// more for the shard in each call.
//
// A plan is a timer with a key of its own kind in addition, which keeps what the ends of its
// occurrences change: so an end rewrites a few hundred bytes, not the plan's body. Plans
// wait in a fifth lane. A call that ends an occurrence reads its plan, and the plan's timer if the
// end wakes it; it writes the plan once, however many occurrences it ends. Timers whose keys
// have no zero byte cost nothing of this.
//
// Invariants, which the tests check by reading the whole folder after each crash:
//
//   - a timer that is not dead stands once in a lane, under its own due time and
//     topic, or is leased, and not both; one that is dead stands once among the dead;
//   - what stands in a lane, is leased or is dead has a timer; a successor has a lease;
//   - a key of kind p has a timer, which waits or is leased; and each timer whose key ends with
//     a zero byte has a key of kind p;
//   - each body has one timer or successor with its number and length, and the
//     reverse;
//   - the shard's record has the true counts, no lane begins before its front, and no
//     fence or number is above the last.
//
// # In memory
//
// Pebble answers reads from memory and its cache; the store itself keeps, for each
// shard, the record above, the leases, and where each lane begins. The leases are as
// many as handlers run, or were to run, in this process or the one before. When a
// lease ends is only in memory, since a restart ends it anyway: extending it writes
// nothing. The workers, and how many timers were scheduled, are only in memory, too. So
// opening reads the records of the shards, the leases, and the log that Pebble has not
// made into tables yet: not the timers.
//
// A queue is what a tree of sorted tables is worst at: what was taken leaves
// deletions at the front, where every reader begins. Two things keep that small.
// Readers begin at the front that is in memory. And no key is set where there is
// one, so that a single deletion (Pebble's SingleDelete) removes it: it and the key
// vanish as soon as they meet, which for short lives is in memory, before anything
// was written to a table.
//
// # Durability
//
// Each call applies one batch of Pebble's, with the shard's record in it. Pebble
// writes a batch to its log as one record with a checksum, and on opening reads the
// log up to the first record that is not whole. So after a crash a call has happened
// or not, as a whole; and if it has, so have all that were applied before it, in all
// shards. Answers are given after an fsync of the log that came after the batch: what
// an answer contains, and what it was derived from, is on disk. That holds for Get and for
// a call that found nothing to change, too: they wait for the fsync of the change that
// the shard saw last. Look and the extension of leases do not
// wait; they promise nothing that a crash could break.
//
// A call changes nothing if its ctx has ended when it has read what it needs. If ctx ends later,
// while the disk holds up the write, the call returns store.ErrUnsure, and the change is made:
// each later call on the shard finds it, and waits until it is on disk.
//
// When a write or an fsync fails, nothing is tried again: after a failed fsync a
// kernel may have dropped what it could not write, and report success the next time.
// The store closes itself (store.ErrClosed); calls under way are told store.ErrUnsure.
// gate.go tells how Pebble is kept from ending the process.
//
// # Locks
//
// In this order, each held while the next is taken: a shard's lock; Pebble's own; the
// gate's mutex. The mutexes of the subscribers, the workers, the count of calls
// and the free room are taken alone. A shard's lock is a channel, so that a caller
// whose context ends gives up; it is held while a call reads and applies, not while it
// waits for the fsync. A call runs in a goroutine of its own (call.go): a disk that
// hangs holds that goroutine, not the caller.
package pebblestore
