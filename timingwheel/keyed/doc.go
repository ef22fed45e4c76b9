// Package keyed provides Table: a table of keys with values and deadlines, which removes each
// key when its deadline has passed.
//
// # When to use it
//
// Use it for named things that expire unless they are kept alive: sessions, idle connections,
// leases and locks, group members that send heartbeats, entries of a cache with a time to live,
// requests that wait for an answer by number. [Table.Set] adds a key, [Table.Touch] keeps it
// alive, [Table.Remove] ends it early, and the expiry function is called with each key that was
// not kept alive.
//
// A caller that can keep a handle needs no key: use [timingwheel.Wheel], which takes about half
// the memory and less than half the time. A table does not choose keys to evict when it is
// full: it refuses new ones with [timingwheel.ErrFull].
//
// # Guarantees
//
// Each value that a key is given ends once, in one of four ways: the key expires, and the
// expiry function is called with the value; Remove or Drain removes the key; Set gives the key
// another value; or a shutdown drops or returns the key. So when Remove or Drain has returned a
// value, the expiry function is never called with it, however close the deadline was.
//
// A key never expires early, by the monotonic clock, and at most one tick late (500 µs by
// default), plus the time to wake a goroutine and to find a free worker. A key that is due and
// waits for a worker is still in the table: Touch keeps it alive.
//
// When the expiry function is called, its key has left the table, and the function may set the
// key again. Another goroutine may have done so already; then the key that the expiry function
// finds in the table is the new one.
//
// # Durations
//
// A ttl is counted from the call. Zero or less means at once: Set and Reset make the key expire
// on the next free worker, and Touch, which never shortens a deadline, changes nothing. The
// longest ttl does not overflow. Deadlines are kept in whole ticks, rounded up.
//
// # Absent and closed
//
// Reset and Touch return [ErrAbsent] for a key that is not in the table, because it has
// expired, was removed, or was never set. Once a shutdown has begun they return
// [timingwheel.ErrClosed] instead, as Set does for a key that is not in the table: the key can
// then no longer be set. Keys that a shutdown with Await waits for are still in the table, and
// every method works on them.
//
// # Cost
//
// Every method on one key takes constant time: a hash of the key, a search under the lock of one
// part of the index, and an operation of the wheel. Nothing allocates while the number of keys does not change. A
// key takes the wheel's memory for an Entry (some 25 bytes, a key and a value) and, in the
// index, 10 bytes and the key once more, in tables that are between a quarter and seven eighths
// full. If neither keys nor values have pointers, the garbage collector scans none of them.
//
// Memory follows the number of keys down, too. The index grows and shrinks by a hundred keys at
// a time, so no call has to move many keys, or waits for a call that does.
//
// # Concurrency
//
// All methods are safe for use from any goroutine. The keys are spread over the parts of the
// index, each with its own lock, and their timers over the wheel's shards. No lock is held while the expiry function
// or a function given to All or Drain runs. The expiry function is called on up to
// Options.Workers goroutines at once; a slow call delays others only when all of them are busy.
// Panics in it are recovered and reported.
//
// The package works unchanged inside a testing/synctest bubble, on virtual time.
//
// The table uses only the wheel's exported methods. The package's example FrontEnd shows how to
// write another front end, a table of leases.
package keyed
