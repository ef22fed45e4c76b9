// Package hashedwheel is the design of Netty 4.1's HashedWheelTimer written out
// in Go: a rival for limbo's benchmarks, complete enough to be fair to it.
//
// One circle of buckets, a power of two of them, and one worker that visits
// the next bucket at each tick, whether or not anything is due. A timeout that
// is further away than the circle is long waits in its bucket for a number of
// rounds, which the worker counts down as it passes.
//
// Only the worker touches the buckets. Whoever starts a timeout puts it into a
// queue, whoever cancels one flips its state and puts it into another; the
// worker drains both at the next tick, the new ones up to 100,000 at a time.
// So starting and cancelling take no lock, and a timeout's memory is held
// until a tick after its end.
//
// What Netty has and this has not: the detector of too many instances and the
// leak detector, which speak about the JVM. What is different: a cancelled
// timeout that the worker meets in its bucket is left to the queue of cancelled
// ones, so that the number of pending ones is never taken down twice (netty
// #14959), and a timeout no longer counts as pending while its task runs.
package hashedwheel
