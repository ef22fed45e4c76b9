// Package hashedwheel is the design of Netty 4.1's HashedWheelTimer written out in Go: a rival
// for limbo's benchmarks, complete enough to be fair to it.
//
// It has one circle of buckets, a power of two of them, and one worker that visits the next
// bucket at each tick, even if nothing is due. A timeout that is further away than one round of
// the circle waits in its bucket for a number of rounds, which the worker counts down at each
// visit.
//
// Only the worker accesses the buckets. A goroutine that starts a timeout puts it into a queue;
// a goroutine that cancels one changes its state and puts it into another queue. The worker
// drains both queues at the next tick, and takes at most 100,000 new timeouts. So starting and
// cancelling take no lock, and a timeout's memory is held until a tick after its end.
//
// This port omits three features that no benchmark uses: an executor for the tasks, a limit of
// pending timeouts, and the list of unprocessed timeouts at the end. It also omits Netty's detectors
// of too many instances and of leaks, because they concern the JVM. Two things differ: the worker
// leaves a cancelled timeout in its bucket to the queue of cancelled ones, so that the pending
// count is never decremented twice (netty #14959), and a timeout no longer counts as pending while
// its task runs.
package hashedwheel
