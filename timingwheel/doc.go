// Package timingwheel holds values until they expire: any number of timers, each started and
// stopped in constant time. A bounded pool of workers passes each expired value to one expiry
// function.
//
// The package has one type, [Wheel]. Two packages build on its exported methods:
// [github.com/seed-782fa212/limbo/timingwheel/scheduler] calls functions once, periodically, on
// a schedule or until they succeed; [github.com/seed-782fa212/limbo/timingwheel/keyed] is a
// table of keys with deadlines, for sessions and idle connections.
//
// # When to use it
//
// Use a wheel for many timers, most of which are stopped or extended before they expire:
// request timeouts, idle limits of connections, leases. For fewer than a thousand timers
// time.AfterFunc is as good, unless it must not be a millisecond late, and needs no dependency.
// For contexts with deadlines use package context: limbo once had contexts on a wheel, and they
// cost more.
//
// # Guarantees
//
//   - A timer never expires early, by the monotonic clock, and at most one tick late, plus
//     the time to wake a goroutine and to find a free worker.
//   - Each accepted timer ends exactly once: its value is passed to the expiry function, it
//     is stopped, or a shutdown discards or returns it.
//   - Stop reports true if and only if the function will never be called for that timer,
//     even if the timer is due and waits for a worker.
//   - A handle becomes stale permanently when its timer ends. It never affects a later
//     timer.
//   - A wheel does not tick: it wakes for buckets whose timers are due or move to a lower
//     level. Its memory follows the number of timers, up and down.
//
// # A simple wheel
//
// Take a circle of n buckets, each for one tick of length u, and a clock at tick c. A timer due
// at tick d, with d-c < n, goes into bucket d mod n. When the clock reaches d, that bucket is
// flushed: all its timers are due. Starting or stopping a timer links or unlinks a list node:
// O(1), whereas a heap takes O(log m) for m timers, and m is large. But such a wheel covers
// only the next n ticks.
//
// # Its overflow
//
// Later timers go to a second wheel, each of whose buckets spans n ticks; timers beyond that go
// to a third, whose buckets span n² ticks, and so on. A few levels of 2,048 cover any deadline
// that an int64 holds; each level is created when a timer first needs it. The timers of a
// higher level's bucket are usually not due when its span begins: flushing it moves each timer
// down to the bucket that its deadline then belongs to. This is a cascade, and a timer goes
// through at most one per level.
//
// In Kafka's wheel, and in the paper's, a bucket cascades when its span begins. With a million
// timers in it that takes the advancer a while, and timers that come due in that time are late.
// Here each circle has 2n slots, so a bucket's timers fit into the level below while the bucket
// is still half its span ahead. Its cascade begins then, a few timers at a time, whenever no
// timer is due.
//
// With n = 4, the clock at 0, and timers due at ticks 2, 6, 30 and 100:
//
//	clock   level 0 (1 tick)   level 1 (4 ticks)    level 2 (16 ticks)
//	  0     2: in 2, 6: in 6   30: in [28,32)       100: in [96,112)
//	  2     2 expires
//	  6     6 expires
//	 26     30: in 30          [28,32) cascades
//	 30     30 expires
//	 88                        100: in [100,104)    [96,112) cascades
//	 98     100: in 100        [100,104) cascades
//	100     100 expires
//
// The clock did not stop at 1, 3, 5, ...: see the next section.
//
// # No tick without a timer
//
// A textbook wheel is driven by a ticker: the processor wakes a thousand times a second to find
// empty buckets. Here a bucket enters a [github.com/seed-782fa212/limbo/delayqueue.Queue] with
// its flush time when its first timer arrives, and one goroutine, the advancer, sleeps until
// the first bucket is due. With the default options, a wheel whose next timer is ten minutes
// ahead sleeps until about a second before that, moves the timer to the lowest level, and
// sleeps again until it is due. The queue holds buckets, not timers, so it stays small for any
// number of timers: its O(log n) is for hundreds of elements.
//
// # Where the cost goes
//
//	Schedule           O(1): a clock reading, a lock, a slot in a chunk
//	Stop               O(1): a lock
//	Reset further out  O(1): a clock reading, a lock, one store
//	expiry             at most one move per level, 256 under one lock
//	memory             16 bytes and the value for each timer, 7 in its chunk, 8 for its handle
//	garbage collector  nothing, if the value has no pointers
//
// A chunk is a cache line that names nine timers of a bucket. Timers, chunks and buckets are
// stored in slabs of up to 1,024 and refer to each other by index.
//
// # Concurrency
//
// Every method is safe for use from any goroutine, and all but Shutdown may be called from the
// expiry function, which runs without any lock held. Timers are spread over shards, each with
// its own lock, levels and memory, so that cores do not contend. The expiry function runs on up
// to Options.Workers goroutines, so it must be safe for concurrent use; a slow call delays
// others only when all workers are busy. A panic in it is recovered and reported.
//
// The package works unchanged inside a testing/synctest bubble, on virtual time.
//
// # Sources
//
// Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987);
// Kafka's request purgatory for driving the wheel by a delay queue.
package timingwheel
