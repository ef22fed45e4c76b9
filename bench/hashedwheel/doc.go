// Package hashedwheel is the design of Netty 4.1's HashedWheelTimer written out
// in Go: a rival for limbo's benchmarks, complete enough to be fair to it.
//
// It has one circle of buckets, a power of two of them, and one worker that visits
// the next bucket at each tick, whether or not anything is due. A timeout that is
// further away than one round of the circle waits in its bucket for a number of
// rounds, which the worker counts down at each visit.
//
// Only the worker accesses the buckets. A goroutine that starts a timeout puts it
// into a queue; one that cancels a timeout changes its state and puts it into
// another queue. The worker drains both at the next tick, of the new ones up to
// 100,000. So starting and cancelling take no lock, and a timeout's memory is held
// until a tick after its end.
//
// Netty's detectors of too many instances and of leaks, which are about the JVM,
// are left out. Two things differ: a cancelled timeout that the worker meets in its
// bucket is left to the queue of cancelled ones, so that the number of pending ones
// is never decremented twice (netty #14959), and a timeout no longer counts as
// pending while its task runs.
package hashedwheel
