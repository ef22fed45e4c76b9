// Package purgatory holds requests until they can be answered or their timeout passes: a
// produce that waits for replicas, a fetch that waits for bytes, a group join that waits for
// members.
//
// An [Operation] waits on one or more watch keys for at most its timeout. A service that
// changes the state behind a key calls [Purgatory.CheckAndComplete] with the key, which asks
// the operations that watch it whether they can complete now. An operation ends exactly once,
// with one [Outcome], however many events race to end it.
//
// # How to use it
//
// Make the change visible first, then check:
//
//	partition.append(batch)          // under the partition's own lock
//	purgatory.CheckAndComplete(key)  // outside of it
//
// In the operation, check the current state, not the change:
//
//	func (f *fetch) TryComplete() bool { return f.available() >= f.minBytes }
//
// Then no order of events loses an operation. Either the change precedes the last check of
// TryCompleteElseWatch, which sees it, or the operation is already watched when
// CheckAndComplete runs.
//
// # Which call
//
// [Purgatory.CheckAndComplete] runs the checks, and completes the operations whose checks
// return true, on the calling goroutine. This is the fastest way to the waiting client. Use it
// when you hold no lock.
//
// [Purgatory.CheckAndCompleteLater] passes the key to a worker. It is for callers that hold a
// lock which a check or a completion also takes. Without it, two such callers deadlock:
//
//  1. T1 locks group A, changes it, and checks an operation that spans A and B.
//  2. T2 locks group B, changes it, and checks an operation that spans A and B.
//  3. T1's check locks B, and waits for T2.
//  4. T2's check locks A, and waits for T1.
//
// Kafka had this deadlock between groups (KAFKA-6042) and between a group and an operation's own
// lock (KAFKA-5970). No lock of the purgatory takes part in such a cycle: it holds none while an
// operation's methods run, and no goroutine waits for a check on another one. With the deferred
// call the caller's locks do not take part either.
//
// [Threshold] is for operations that wait for a number: for the high watermark to reach their
// last offset, or for a log to have their bytes. CheckAndComplete asks every watcher of a key
// whether it can complete; [Threshold.Advance] takes the number and finds the operations that
// it completes without visiting the others. With a hundred thousand followers of one partition
// that is the difference between milliseconds and less than a microsecond. Use it wherever the
// condition is "at least n". A Purgatory takes any condition.
//
//	produce, acks=all              the high watermark reaches its last offset  Threshold.Advance
//	fetch, min bytes               its partitions have enough bytes            Threshold.Advance
//	group join                     all members have joined                     CheckAndComplete
//	same, under the group's lock   all members have joined                     CheckAndCompleteLater
//	request to several brokers     each has answered                           Futures
//
// [Purgatory.Await] and [Threshold.Await] block a goroutine until the condition holds, for code
// that has a goroutine to spare.
//
// # Why an operation ended
//
// Complete receives the outcome and the cause. The cause of a completed operation is nil. The
// others have an error: [ErrExpired], which matches context.DeadlineExceeded; the argument of
// Cancel or CancelForKey, or the cause of the cancelled context; [ErrClosed]; a [*CheckError].
// Await returns it.
//
// # Many purgatories
//
// Each purgatory has its own timing wheel, unless it shares a clock with others ([NewClock],
// [Options.Clock]): then an idle purgatory costs less than 8 KiB and no goroutine.
//
// # Memory
//
// An ended operation leaves nothing behind. It leaves every key's list before its Complete is
// called, and the timing wheel within 100 ms. A key without watchers is removed. The handle
// refers only to a record, which serves the next operation. There is no purge, and no interval
// to tune. Memory follows the load, also while some of the load remains.
//
// # Cost
//
// Watching takes constant time for each key and allocates nothing if the record of an ended
// operation can be used again. A check takes constant time for each watcher of the key.
// Timeouts are those of package timingwheel, never early and up to a tick late. A timeout of
// 75 ms or more enters the wheel only after the operation has waited for 50 ms, because most
// operations end sooner.
//
// The design and the method names follow Kafka's request purgatory.
package purgatory
