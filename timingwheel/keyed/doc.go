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
// [timingwheel.Wheel], which takes about half the memory and less than half the
// time. A table does not choose what to evict when it is full: it refuses, with
// [timingwheel.ErrFull].
//
// # What holds
//
// Each value that a key is given ends once, in one of four ways: the key
// expires, and the expiry function is called with the value; Remove or Drain
// takes the key out; Set gives the key another value; or a shutdown drops or
// hands back the key. So when Remove or Drain has returned a value, the expiry
// function is never called with it, however close the deadline was.
//
// A key never expires early, by the monotonic clock, and at most one tick late
// (500 µs by default), plus what the machine takes to wake a goroutine and to
// find a free worker. A key that is due and waits for a worker is still in the
// table: Touch keeps it alive.
//
// When the expiry function is called, its key has left the table, and it may set
// the key again. Another goroutine may have done so already; then the key that
// the expiry function finds in the table is the new one.
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
// Reset and Touch return [ErrAbsent] for a key that is not in the table, because
// it has expired, was removed, or was never set. Once a shutdown has begun they return
// [timingwheel.ErrClosed] instead, as Set does for a key that is not in the table:
// the key cannot be set again then. Keys that a shutdown with Await
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
// The table uses nothing of the wheel but its exported methods. The package's
// example FrontEnd shows how to write another front end, a table of leases.
package keyed
