// Package timingwheel holds values until their time is up: any number of
// timers, each started and stopped in constant time, passed to one expiry
// function by a bounded pool of workers.
//
// [Wheel] holds values of one type; on it stand [Scheduler], which runs functions
// as time.AfterFunc does, and again and again, and [Keyed], a table of keys with
// deadlines.
//
// All three are for many timers, most of which are stopped or pushed out before
// they fire: timeouts of requests, idle limits of connections, sessions,
// leases. Up to a few thousand timers, or when each needs its own precision
// below a millisecond, time.AfterFunc is as good and is there already.
//
// # What holds
//
// A timer never fires early, by the monotonic clock (T1), and at most one tick
// late, plus what the machine takes to wake a goroutine and to find a free
// worker (T2). It ends exactly once: it runs, is stopped, or is dealt with by
// Shutdown (T3). Stop says true if and only if the function will never run
// (T4). A stale handle does nothing (T6). The numbers are those of DESIGN.md,
// and tests cite them.
//
// # A simple wheel
//
// Take a circle of n buckets, each for one tick of length u, and a clock that
// stands at tick c. A timer due at tick d, with d-c < n, goes into bucket
// d mod n. When the clock comes to d, that bucket is flushed: all in it are
// due. Starting and stopping a timer is linking and unlinking a list node:
// O(1), where a heap takes O(log m) with m timers, and m is large. But it
// reaches n ticks ahead, no further.
//
// # Its overflow
//
// Timers out of reach go to a second wheel, each of whose buckets spans n
// ticks; what that one does not reach, to a third whose buckets span n² ticks,
// and so on. A few levels of 2,048 reach any deadline that an int64 holds; they
// are made when a timer first needs them. The timers of a higher level's bucket
// are not due when its span begins, as a rule: flushing it moves each of them
// down to where its deadline belongs by then. This is a cascade, and a timer
// goes through at most one for every level.
//
// In Kafka's wheel, and in the paper's, a bucket cascades when its span begins.
// With a million timers in it that takes the advancer a while, and what is due
// meanwhile is late. Here each circle has 2n places, so that a bucket's timers
// fit into the level below when it is still half its span ahead. It begins to
// cascade then, a few timers at a time, whenever nothing is due.
//
// With n = 4, the clock at 0, and timers due at ticks 2, 6, 30 and 100:
//
//	clock   level 0 (1 tick)   level 1 (4 ticks)    level 2 (16 ticks)
//	  0     2: in 2, 6: in 6   30: in [28,32)       100: in [96,112)
//	  2     2 fires
//	  6     6 fires
//	 26     30: in 30          [28,32) cascades
//	 30     30 fires
//	 88                        100: in [100,104)    [96,112) cascades
//	 98     100: in 100        [100,104) cascades
//	100     100 fires
//
// The clock did not stop at 1, 3, 5, ...: see the next paragraph.
//
// # No tick without a timer
//
// The wheel in a textbook is driven by a ticker, and the processor wakes a
// thousand times a second to look at empty buckets. Here a bucket enters a
// [github.com/seed-782fa212/limbo/delayqueue.Queue] when its first timer
// comes, keyed by its expiration, and one goroutine, the advancer, sleeps
// until the first of them is due. A wheel whose next timer is ten minutes
// ahead sleeps for ten minutes (T9). The queue holds buckets, not timers, so
// it is small, whatever the number of timers: its O(log) is one of hundreds.
//
// # Where the cost goes
//
//	Schedule, Stop     O(1): a lock, a slot in a row, a clock reading
//	Reset, pushed out  O(1): a lock, a clock reading, one store
//	firing             O(levels) moves, amortised by chunks under one lock
//	memory             16 bytes and the value for each timer, 7 in its row, 8 for its handle
//	garbage collector  nothing, if the value has no pointers
//
// # Concurrency
//
// Every method is safe from any goroutine, the expiry function included; no
// lock is held while that runs (T12). Timers are spread over shards, each with
// its own lock, levels and memory, so cores do not queue up behind each other.
// The expiry function runs on up to Options.Workers goroutines, so it must be
// safe for concurrent use; a slow call delays others only once all workers are
// taken (T10). Panics in it are recovered and reported.
//
// All of it runs as is inside a testing/synctest bubble, on virtual time (T16).
//
// # Sources
//
// Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987);
// Kafka's request purgatory for driving the wheel by a delay queue.
package timingwheel
