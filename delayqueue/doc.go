// Package delayqueue provides Queue, a blocking heap keyed by deadline: values go in with the time from which they
// may come out, and Take blocks until the earliest is due.
//
// # When to use it
//
// Use it for up to a million things that each wait for their time and that a few goroutines deal with: the buckets of
// a timing wheel (the reason it exists), retries, leases, scheduled jobs. A Queue has no goroutine of its own and runs
// nothing: whoever takes an element decides what to do with it, and while nobody takes, nothing is lost.
//
// For many millions of timeouts of which most are cancelled, a timing wheel is cheaper: here every operation is
// O(log n) and under one lock. To run a function later, use time.AfterFunc or package timingwheel.
//
// # Cost
//
// Push, Remove, Move, Poll and Take are O(log n), Peek and Len O(1). The heap is a 4-ary array of keys without
// pointers; values lie in a table beside it, do not move while the heap is sifted, and are found by Handle without a
// search. An element costs 40 bytes and the size of T, rounded up; in the steady state nothing allocates. Memory
// follows the load down: the heap at once, the table as far as its last live element lets it, and all of it when the
// queue is empty.
//
// # Time
//
// An element is due if and only if its deadline is not after the clock's reading, so nothing comes out early.
// Deadlines are kept in nanoseconds since New by the monotonic clock; Push says what that means for a deadline without
// a monotonic reading. As with every timer of Go on Linux, that clock stands still while the machine is suspended.
//
// # Takers
//
// Any number of goroutines may call Take. One of them sleeps until the head is due; the others sleep until that one
// has left, and do not wake for pushes or deadlines. An earlier deadline, by Push or Move, wakes the first one to sleep
// less; a later one wakes nobody, and neither does Remove. The argument that no wake-up is lost is in take.go.
package delayqueue
