// Package delayqueue provides Queue, a blocking priority queue keyed by
// deadline: a value is put in with the time from which it may come out, and Take
// blocks until the earliest is due.
//
// # When to use it
//
// Use it for up to a million things that each wait for their time and that a few
// goroutines deal with: the buckets of a timing wheel (the reason it exists),
// retries, leases, scheduled jobs. A Queue has no goroutine of its own and calls
// nothing: whoever takes an element decides what to do with it, and while nobody
// takes, nothing is lost.
//
// For many millions of timeouts of which most are cancelled, a timing wheel is
// cheaper: here every operation is O(log n) and under one lock. To run a function
// later, use time.AfterFunc or package timingwheel.
//
// # Values and elements
//
// An element is a value with its deadline and its Handle. Take, Poll, PollN and
// PollAll return values only: that is what the taker of a job wants, and nothing
// is computed that it did not ask for. TakeElement and PollElement return the
// Element instead. Peek and All, which leave it in the queue, and Clear and Close,
// which hand back what was not due as well, always return Elements: so the head can
// be removed or reset by what Peek returned, and what was handed back can be
// stored, or pushed elsewhere, with its deadline.
//
// # Cost
//
// Push, Remove, Reset, Poll and Take are O(log n), Peek and Len O(1). The heap is a
// 4-ary array of keys without pointers; values lie in a table beside it, do not
// move while the heap is sifted, and are found by Handle without a search. An
// element costs 40 bytes and the size of T, rounded up. In the steady state
// nothing allocates.
//
// Memory follows the load down, whichever elements remain: what is kept is at most
// twice what they need, and room for 256 more. To give memory back, the call that
// finds too much of it unused copies what remains, under the lock, as the call that
// finds none left does when the queue grows: O(1) amortised for each element that
// leaves, but some 30 ms for one call while a queue of a million empties. Emptying it
// costs a fifth more than it would without. A Handle stays valid when its element was
// copied; Remove and Reset then take some nanoseconds longer to find it.
//
// # Time
//
// An element is due if and only if its deadline is not after the clock's reading,
// so nothing comes out early. Deadlines are kept in nanoseconds since New by the
// monotonic clock; Push says what that means for a deadline without a monotonic
// reading. As with every timer of Go on Linux, that clock stands still while the
// machine is suspended.
//
// # Takers
//
// Any number of goroutines may call Take. One of them sleeps until the head is due;
// the others sleep until that one has left, and do not wake for pushes or
// deadlines. An earlier deadline, by Push or Reset, shortens the sleep of the first
// one; a later one wakes nobody, and neither do Remove and Clear. The argument that
// no wake-up is lost is in take.go.
package delayqueue
