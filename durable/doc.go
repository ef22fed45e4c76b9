// Package durable keeps timers that survive: a restart of the program, the death of
// a machine, and a deployment while they run. Any number of processes can share them.
//
// [Timers] schedules a timer under a key, cancels it, and shows what waits; a
// [Worker] calls a [Handler] with each timer once its time has come. They stand on an
// engine, a [Store]. Each is a package, and a module, of its own: pebblestore is embedded, in
// a folder, for one process; redisstore is for many processes, on Redis or Valkey; memstore,
// in this module, is for tests.
//
// # When to use it
//
// For what must happen later though the process that wants it may be gone by then:
// reminders, the end of a trial, a payment that was not confirmed, call-backs, retries
// over hours. What may die with its process is held at a thousandth of the cost by
// [github.com/seed-782fa212/limbo/timingwheel].
//
// # What is promised
//
//   - A timer is never early, by the clock of the engine's machine. The clocks of
//     those that schedule and run it decide nothing, and may be hours off; only
//     Timer.At, as a point in time, is what its caller means by it.
//   - What Schedule has accepted runs, once at least, until its handler returns nil, it
//     is cancelled or replaced, or its attempts are used up; then it is a dead letter,
//     with its body and its last error, until it is requeued or purged.
//   - Attempts are calls of the handler. A worker that claims a timer and does not call its
//     handler, because it stops or the engine answered too late, gives the attempt back.
//     There is one exception: a worker dies, is paused or is cut off from the engine, and
//     another claim gets the timer after the lease has expired. That lease counts as an
//     attempt, because the engine cannot tell whether the handler was called.
//   - It runs exactly once as long as no lease is lost and the engine loses nothing.
//     Nobody can promise more: a machine that dies between the handler's last act and
//     its acknowledgement has to be assumed not to have acted. So a handler is
//     idempotent by [Fired].ID, which is the same in all attempts; Fired.Fence, which
//     grows with each, lets what it writes to refuse one that was paused and is late.
//   - Cancel tells the truth: after Cancelled no handler will run; after Running the
//     one that runs is told by its ctx, and nothing follows it.
//   - A key has one timer at a time. What is scheduled while it runs waits for the end
//     of that run, and never runs beside it while leases hold.
//   - What a worker had that died runs again within its lease and a second; what was
//     due meanwhile, in shards for which it was preferred, within 3.5 s.
//   - A topic with many timers does not keep those of others waiting. Of a worker's slots
//     that become free and go to a shard, a topic gets at most four in a row while timers
//     of other lanes are due there. (There are four lanes: two topics may share one.)
//   - Memory is bounded: a worker's by its Concurrency, a scan's by pages.
//
// # Schedules
//
// A [Schedule] is a timer that recurs, by cron in a time zone or every period. Each planned
// time creates exactly one occurrence, or is counted as skipped with a reason, whatever
// processes die or are paused meanwhile. [Timers.PutSchedule] tells more; the fields of
// Schedule tell what happens when occurrences overlap, when planned times were missed, and
// when the clocks change. An occurrence costs one more step of the engine than a timer, so
// for what recurs in one process, and may be missed while that is down, package
// [github.com/seed-782fa212/limbo/timingwheel/scheduler] is the better choice.
//
// # What is not
//
// A timer may be late: when no worker has room, while the engine does not answer, and
// by some milliseconds always. Order is by due time in a shard's lane, and handlers
// overlap, so there is no order between timers. Handlers that are slow can take all slots
// of a worker, and then every topic waits until one of them returns: a slot kept free for
// other topics would be lost to each worker for good. Put topics that are slow and topics
// that are urgent into stores of their own, with workers of their own. ScheduleMany adds
// each timer or not, not all of them together. A handler that ignores the end of its ctx
// may overlap with the next attempt.
//
// # What an engine can lose
//
// Embedded (pebblestore): nothing that was answered. Each answer follows the fsync of its
// commit; when one fails the store closes, what was not answered ends with [ErrUnsure],
// and Run with [ErrClosed]. A store that is opened again has no leases: what ran when
// the process died runs again at once.
//
// Redis: as much as it is set up to. With appendfsync always nothing, with everysec up
// to a second, without the append-only file what came after the last snapshot. A
// fail-over loses what was not replicated; asking for replicas narrows that, and no
// more: [ErrUnconfirmed] is returned when too few have confirmed. After such a loss a timer may
// run twice, or be cancelled and run; one whose Schedule was lost does not run.
//
// # Errors of the engine
//
// Methods of Timers return them. [ErrUnsure] means that the change may have been made:
// to schedule again is right for a timer that may replace itself, and with IfAbsent
// for one that may not. It is made before the call's deadline or never, and before a
// later change of the same Timers to the key or never: after Cancelled nothing runs,
// though a Schedule before has ended with ErrUnsure. A call whose ctx was cancelled can
// be made until its deadline, unless the same Timers changes something in that shard. There is
// one exception: if the disk of the embedded engine hangs during the write, the change is made
// when it goes on, before any other call on the shard.
//
// A worker tries again by itself, with growing pauses, extends the
// leases of what runs, and logs once when calls begin to fail and once when they
// succeed again. When it cannot extend a lease before its end, by its own clock, it
// ends the handler's ctx, for another may run the timer then.
//
// # How a worker knows when
//
// Nobody polls. Each reply of the engine carries its time, and when the shard has
// something to do next; a worker turns that into a wait of its own, on a wheel of
// package [github.com/seed-782fa212/limbo/timingwheel/keyed]. A timer that is
// scheduled for earlier is announced. Announcements can be lost, so once a second the
// worker that is preferred for a shard looks, in one call for all of its shards. Shards
// whose server does not answer are looked at apart, so that the others need not wait.
//
// Any worker may claim from any shard. Of those that live one is preferred for each,
// by a hash of its name and the shard's number, so that not all ask for what one gets.
// Each worker sends a heartbeat every tenth of its lease, at least once a second; the reply
// lists the live workers. A worker that stops withdraws its heartbeat. One that is
// full announces that, and whoever has room claims for it. That can be lost, and a worker
// may send heartbeats and yet not reach a shard's server. So every five seconds one of the
// others, in rotation, looks at each shard if it has room, and claims there if something
// has been due for more than two seconds; when only one worker of n has room, it comes to
// each shard every 5(n-1) seconds. If heartbeats fail, all claim. Leases, not
// this, keep two workers from one timer.
//
// # Cost
//
// Concurrent calls of Schedule are joined into one request for each shard; so are ends
// of runs, which wait up to 5 ms for others while handlers run. A timer's life is
// three steps of the engine, schedule, claim and end, each shared with others when
// there are many. An idle worker makes two calls a second, and one more in five.
//
// # What there is
//
// [Timers.Get] reads a timer. [Timers.List] lists the timers that wait, are leased or are dead
// letters, and [Timers.Count] counts them: all, or those of a [Filter] by the beginning of the key,
// topic and last error. [Timers.Bulk] cancels, moves, requeues or purges all that match, page by
// page, and can be resumed. [Timers.CountDue] counts what waits by when it is due. [Timers.Workers]
// lists the workers of all processes, and those that died in the last hour; Info.Worker tells
// which of them runs a timer.
//
// # Metrics
//
// [Timers.Stats] and [Worker.Stats] have the figures. Package observe publishes them for
// Prometheus and on a live page; its README lists the metrics and what to alert on.
//
// # Concurrency
//
// All methods of Timers and Worker are safe for concurrent use. Handlers run on
// goroutines of their own, up to WorkerOptions.Concurrency at once. Everything runs as
// it is in a testing/synctest bubble, on virtual time, over a store that does, as
// memstore's.
package durable
