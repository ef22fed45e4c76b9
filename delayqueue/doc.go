// Package delayqueue provides Queue, a blocking priority queue ordered by deadline: Push adds a
// value with the time from which it may be taken, and Take blocks until the earliest is due.
//
// # When to use it
//
// Use it for up to a million items that each wait for their time and that a few goroutines
// process: the buckets of a timing wheel (the reason it exists), retries, leases, scheduled
// jobs. A Queue has no goroutine of its own and calls no user code: the goroutine that takes an
// element decides how to process it, and elements that are not taken are not lost.
//
// For many millions of timeouts, most of which are cancelled, a timing wheel is cheaper: here
// every operation is O(log n) under one lock. To run a function later, use time.AfterFunc or
// package timingwheel.
//
// # Values and elements
//
// An element is a value with its deadline and its Handle. Take, Poll, PollN and PollAll return
// only values: the taker of a job needs no more, and the rest is not computed. TakeElement and
// PollElement return the Element instead.
//
// Four methods always return Elements. Peek and All leave the elements in the queue, and a
// caller needs the Handle to remove or reset one. Clear and Close also return elements that are
// not due, and a caller needs the deadlines to store these or to push them elsewhere.
//
// # Cost
//
// Push, Remove, Reset, Poll and Take are O(log n), Peek and Len O(1). The heap is a 4-ary array
// of keys without pointers; values are stored in a separate table, do not move while the heap
// is sifted, and are found by Handle without a search. An element costs 40 bytes and the size
// of T, rounded up. In the steady state nothing allocates.
//
// Memory follows the load down, whichever elements remain: the queue keeps at most twice the
// memory that they need, plus capacity for 256 more. To release memory, the call that finds too
// much of it unused copies the remaining elements under the lock, just as a call copies them
// when the queue grows: O(1) amortised for each element that leaves, but one call copies some
// 600,000 elements while a queue of a million empties. A Handle stays valid when its element
// was copied; Remove and Reset then find it through an index.
//
// # Time
//
// An element is due if and only if its deadline is not after the clock's reading, so no element
// is taken early. Deadlines are kept in nanoseconds since New by the monotonic clock; Push
// documents the consequences for a deadline without a monotonic reading. As with every timer of
// Go on Linux, that clock stands still while the machine is suspended.
//
// On Linux a Take whose context cannot end, like context.Background, sleeps on a timerfd, and an
// idle process wakes within some 0.1 ms; otherwise Take sleeps on a timer of Go, and wakes up to
// 1.1 ms late. The descriptor stays open until Close, or until the queue is collected. The first
// 64 queues of a process that sleep get one each.
//
// # Takers
//
// Any number of goroutines may call Take. One of them sleeps until the head is due; the others
// sleep until the first has left, and do not wake for pushes or deadlines. An earlier deadline,
// by Push or Reset, shortens the sleep of the first one; a later one wakes no taker, and
// neither do Remove and Clear. The argument that no wake-up is lost is in take.go.
package delayqueue
