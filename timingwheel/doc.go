// Package timingwheel holds values until their time is up: any number of
// timers, each started and stopped in constant time, whose values are passed to
// one expiry function by a bounded pool of workers.
//
// The package is one type, [Wheel]. Two packages stand on its exported methods:
// [github.com/seed-782fa212/limbo/timingwheel/scheduler] calls functions, once,
// periodically, by a schedule or until they succeed;
// [github.com/seed-782fa212/limbo/timingwheel/keyed] is a table of keys with
// deadlines, for sessions and idle connections.
//
// # When to use it
//
// For many timers, most of which are stopped or pushed out before they expire:
// timeouts of requests, idle limits of connections, leases. With fewer than a
// thousand timers, or where a millisecond is too late, time.AfterFunc is as good
// and is there already. For contexts with deadlines use package context: contexts
// on a wheel were built here once, and cost more than those.
//
// # What holds
//
//   - A timer never expires early, by the monotonic clock, and at most one tick
//     late, plus what the machine takes to wake a goroutine and to find a free
//     worker.
//   - Each timer that was accepted ends exactly once: its value is passed to the
//     expiry function, it is stopped, or a shutdown discards it or hands it back.
//   - Stop reports true if and only if the function will never be called for that
//     timer, also when the timer is due and waits for a worker.
//   - A handle goes stale for good when its timer ends. It never affects a timer
//     that came later.
//   - A wheel does not tick: it wakes for buckets whose timers are due or move to
//     a lower level. Its memory follows the number of timers, up and down.
//
// # A simple wheel
//
// Take a circle of n buckets, each for one tick of length u, and a clock that
// stands at tick c. A timer due at tick d, with d-c < n, goes into bucket
// d mod n. When the clock comes to d, that bucket is flushed: all timers in it
// are due. To start or stop a timer is to link or unlink a list node: O(1), where
// a heap takes O(log m) with m timers, and m is large. But such a wheel covers
// the next n ticks and no more.
//
// # Its overflow
//
// Timers beyond those go to a second wheel, each of whose buckets spans n ticks;
// what that one does not cover, to a third whose buckets span n² ticks, and so
// on. A few levels of 2,048 cover any deadline that an int64 holds; they are made
// when a timer first needs them. The timers of a higher level's bucket are not
// due when its span begins, as a rule: to flush such a bucket is to move each of
// its timers down to where its deadline belongs by then. This is a cascade, and a
// timer goes through at most one for every level.
//
// In Kafka's wheel, and in the paper's, a bucket cascades when its span begins.
// With a million timers in it that takes the advancer a while, and what is due
// meanwhile is late. Here each circle has 2n places, so that a bucket's timers
// fit into the level below when the bucket is still half its span ahead. It
// begins to cascade then, a few timers at a time, whenever nothing is due.
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
// The wheel in a textbook is driven by a ticker, and the processor wakes a
// thousand times a second to find empty buckets. Here a bucket enters a
// [github.com/seed-782fa212/limbo/delayqueue.Queue] when its first timer comes,
// with the time at which it is to be flushed, and one goroutine, the advancer,
// sleeps until the first of them is due. With the default options, a wheel whose
// next timer is ten minutes ahead sleeps until about a second before that, moves
// the timer to the lowest level, and sleeps again until it is due. The queue
// holds buckets, not timers, so it is small, whatever the number of timers: its
// O(log) is one of hundreds.
//
// # Where the cost goes
//
//	Schedule           O(1): a clock reading, a lock, a slot in a chunk
//	Stop               O(1): a lock
//	Reset further out  O(1): a clock reading, a lock, one store
//	expiry             at most one move a level, 256 under one lock
//	memory             16 bytes and the value for each timer, 7 in its chunk, 8 for its handle
//	garbage collector  nothing, if the value has no pointers
//
// A chunk is a cache line that names nine timers of a bucket. Timers, chunks and
// buckets lie in slabs of up to 1,024 and name each other by index.
//
// # Concurrency
//
// Every method is safe for use from any goroutine, and all but Shutdown may be
// called from the expiry function; no lock is held while that runs. Timers are
// spread over shards, each with its own lock, levels and memory, so that cores do
// not wait for each other. The expiry function runs on up to Options.Workers
// goroutines, so it must be safe for concurrent use; a slow call delays others
// only once all workers are taken. A panic in it is recovered and reported.
//
// All of it works as is inside a testing/synctest bubble, on virtual time.
//
// # Sources
//
// Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987);
// Kafka's request purgatory for driving the wheel by a delay queue.
package timingwheel
