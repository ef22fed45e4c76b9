// Package keyed provides Table: keys with values and deadlines, which leave by
// themselves when their time is up.
//
// # When to use it
//
// Use it for what has a name and ends unless somebody keeps it alive: sessions,
// idle connections, leases and locks, the members of a group that send
// heartbeats, entries of a cache with a time to live, requests that wait for an
// answer by number. [Table.Set] puts a key in, [Table.Touch] keeps it alive,
// [Table.Remove] ends it early, and the expiry function is called with each key
// that nobody kept alive.
//
// Where a caller can keep a handle, there is no need for a key: use
// [timingwheel.Wheel], which takes half the memory and a third of the time. A
// table does not choose what to evict when it is full: it refuses, with
// [timingwheel.ErrFull].
//
// # What holds
//
// A key is in the table from Set until one of four things happens, and each
// value of a key ends in one way: it expires, and the expiry function is called
// with it once; it is taken out by Remove or Drain; Set puts another in its
// place; or a shutdown drops it or hands it back. So when Remove or Drain has
// returned a value, the expiry function is never called with it, however close
// its deadline was. A key expires never early, by the monotonic clock, and at
// most one tick late (500 µs by default), plus what the machine takes to wake a
// goroutine and to find a free worker. A key that is due and waits for a worker
// is still in the table: it can be touched, and lives.
//
// When the expiry function is called, its key has left the table, and it may set
// the key again. Another goroutine may have done so before: whoever asks the
// table in the expiry function finds that newer entry.
//
// # Durations
//
// A ttl is counted from the call. Zero or less means at once: Set and Reset let
// the key expire, on a worker, as soon as one is free, and Touch, which never
// pulls a deadline in, changes nothing. The longest ttl does not overflow.
// Deadlines are kept in whole ticks, rounded up.
//
// # Absent and closed
//
// Reset and Touch return [ErrAbsent] for a key that is not in the table: it has
// expired, was removed, or never came. Once a shutdown has begun they return
// [timingwheel.ErrClosed] instead, as Set does for a key that is not in the table:
// then there is no point in setting it again. Keys that a shutdown with Await
// waits for are in the table still, and every method works on them.
//
// # Cost
//
// Every method on one key is constant time: a hash of the key, a part's lock
// around a search, and an operation of the wheel. Nothing allocates while the
// number of keys stays. A key takes the wheel's memory for an Entry (some 25
// bytes, a key and a value), and to be found 10 bytes and a key once more, in
// tables that are between a quarter and seven eighths full. If neither keys nor
// values have pointers, the garbage collector looks at none of them.
//
// Memory follows the number of keys down, too. The tables in which keys are
// found grow and shrink by a hundred keys at a time, so no call has to move many,
// and none waits for one that does.
//
// # Concurrency
//
// All methods are safe for use from any goroutine. Keys are spread over parts,
// each with a lock of its own, and their timers over the wheel's shards. No lock
// is held while the expiry function or a function given to All or Drain runs.
// The expiry function is called on up to Options.Workers goroutines at once; a
// slow call delays others only once all of them are busy. Panics in it are
// recovered and reported.
//
// All of it runs as is inside a testing/synctest bubble, on virtual time.
//
// The table uses nothing of the wheel but its exported methods: what it does,
// anybody could write. The package's example of a lease table is such a front
// end, in some fifty lines.
package keyed
