// Package purgatory holds requests until they can be answered or their time is
// up: a produce that waits for replicas, a fetch that waits for bytes, a group
// join that waits for members.
//
// An [Operation] waits on one or more watch keys for at most its timeout. When
// something changes that it may be waiting for, the service that made the
// change calls [Purgatory.CheckAndComplete] with the key, and the operations
// which watch it are asked whether they can complete now. Whatever happens
// first, and however many things happen at once, an operation ends exactly
// once, with one [Outcome].
//
// # How to use it
//
// Make the change visible first, then check:
//
//	partition.append(batch)          // under the partition's own lock
//	purgatory.CheckAndComplete(key)  // outside of it
//
// and in the operation look at what is there now, not at what changed:
//
//	func (f *fetch) TryComplete() bool { return f.available() >= f.minBytes }
//
// Then no order of events loses an operation. Either the change comes before
// the last check of TryCompleteElseWatch, which sees it, or the operation is
// watched already when CheckAndComplete comes.
//
// # Which call
//
// [Purgatory.CheckAndComplete] runs the checks, and the completions of those
// that return true, on the calling goroutine: the fastest way to the waiting
// client, and the one to use when no lock is held.
//
// [Purgatory.CheckAndCompleteLater] hands the key to a worker. It is for
// callers that hold a lock which a check or a completion takes too. Without
// it, two such callers come to a standstill:
//
//  1. T1 locks group A, changes it, and checks an operation that spans A and B.
//  2. T2 locks group B, changes it, and checks an operation that spans A and B.
//  3. T1's check locks B, and waits for T2.
//  4. T2's check locks A, and waits for T1.
//
// Kafka met this between groups (KAFKA-6042) and between a group and an
// operation's own lock (KAFKA-5970). The purgatory has no lock of its own in
// such a circle: none is held while an operation's methods run, and nobody
// ever waits for another's check. With the deferred call the caller's
// locks are not in it either.
//
// [Threshold] is for operations that wait for a number: a high watermark to
// reach their last offset, a log to have their bytes. CheckAndComplete asks every
// watcher of a key whether it can complete; [Threshold.Advance] is told the
// number, and finds those that it completes without a look at the others. With
// a hundred thousand followers of one partition that is the difference between
// milliseconds and less than a microsecond. Use it wherever the condition is
// "at least n". A Purgatory takes any condition.
//
//	produce, acks=all   the high watermark to reach its last offset   Threshold.Advance
//	fetch, min bytes    the end of its partitions to be so far        Threshold.Advance
//	group join          all members to have come                      CheckAndComplete
//	under the group's own lock                                        CheckAndCompleteLater
//	an answer of each of several others                               Futures
//
// [Purgatory.Await] and [Threshold.Await] block a goroutine until it is so, for
// code that has one to spare.
//
// # Why it ended
//
// Complete is told the outcome and the cause: nil for an operation that completed,
// and otherwise an error: [ErrExpired], which matches context.DeadlineExceeded; what
// Cancel or CancelForKey was given, or the cause of the context that was done;
// [ErrClosed]; a [*CheckError]. Await returns it.
//
// # Many purgatories
//
// Each has a timing wheel of its own, unless it is given one that others share
// ([NewClock], [Options.Clock]): then an idle purgatory costs 6 KiB and no goroutine.
//
// # What is left behind
//
// Nothing: an operation that ends leaves every key's list before its Complete is
// called, and the timing wheel within 100 ms; a key without watchers is forgotten, and
// the handle holds on to nothing but memory that serves the next operation.
// There is no purge, and no interval to tune. Memory follows the load, also when some of
// it remains.
//
// # Cost
//
// Watching takes constant time for each key and allocates nothing: an operation's
// record is one that served before, if there is one. A check is constant time for each watcher of the key. Timeouts
// are those of package timingwheel, never early and up to a tick late; one that is not
// soon is entered there only when the operation has waited for 50 ms, for most end
// before.
//
// The design follows Kafka's request purgatory; its verbs are kept.
package purgatory
