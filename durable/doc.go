// Package durable keeps timers that survive a restart of the program, the loss of a machine, and a
// deployment while they run. Any number of processes can share them.
//
// [Timers] schedules, cancels and lists timers, each under a key; a [Worker] calls a [Handler]
// with each timer once it is due. Both use an engine, a [Store]. Each engine is a package:
// pebblestore is embedded, stores its data in a folder, and serves one process; redisstore serves
// many processes, on Redis or Valkey; memstore is for tests. The first two are modules of their
// own; memstore is part of this one.
//
// # Terms
//
//   - A timer waits until it is due. Then a worker claims it under a lease, and calls the handler.
//     The worker extends the lease while the handler runs. When the lease expires, another worker
//     may claim the timer.
//   - A timer that is scheduled under a key whose timer is leased is the successor of that timer.
//   - An engine divides the timers into shards, by a hash of the key, and each shard into four
//     lanes, by a hash of the topic.
//   - A worker has WorkerOptions.Concurrency slots; each running handler occupies one.
//
// # When to use it
//
// Use it for work that must happen later even if the process that wants it is no longer running:
// reminders, the end of a trial, an unconfirmed payment, callbacks, retries over hours. For timers
// that may be lost with their process, [github.com/seed-782fa212/limbo/timingwheel] costs a
// twentieth of this or less (W2, W3 and W13 of limbo's bench).
//
// # Guarantees
//
//   - A timer is never early, by the clock of the engine's machine. The clocks of the machines
//     that schedule and run it have no effect and may be hours off; the caller's clock matters
//     only for Timer.At, which is a point in time.
//   - A timer that Schedule has accepted runs at least once, until its handler returns nil, it is
//     cancelled or replaced, or its attempts are used up. In the last case it becomes a dead
//     letter, with its body and its last error, until it is requeued or purged.
//   - Attempts are calls of the handler. A worker that claims a timer and does not call its
//     handler, because the worker stops or the engine answered too late, releases it: no attempt is
//     counted. There is one exception: a worker dies, is paused or is cut off from the engine, and
//     another claim gets the timer after the lease has expired. That lease counts as an attempt,
//     because the engine cannot tell whether the handler was called.
//   - A timer runs exactly once as long as no lease is lost and the engine loses nothing. No
//     system can promise more: if a machine dies between the handler's last action and its
//     acknowledgement, the engine must assume that the handler did not act. So handlers must be
//     idempotent by [Fired].ID, which is the same in all attempts. Fired.Fence grows with each
//     attempt, so the systems that a handler writes to can reject a handler that was paused and is
//     late.
//   - The result of Cancel is exact: after Cancelled no handler will run; after Running the ctx of
//     the running handler ends, and neither a retry nor a successor follows it.
//   - A key has one timer at a time. A successor waits for the end of the run, and never overlaps
//     with it while leases hold.
//   - When a worker dies, its timers run again within its lease plus one second. Timers that
//     become due in the meantime, in shards for which it was preferred, run within 3.5 s.
//   - A topic with many timers does not starve others. Of a worker's slots that become free and go
//     to a shard, a topic gets at most four in a row while timers of other lanes are due there.
//     Two topics may share a lane.
//   - Memory is bounded: a worker's by its Concurrency, a scan's by pages.
//
// # Schedules
//
// A [Schedule] is a recurring timer, by cron in a time zone or with a fixed period. Each planned
// time creates exactly one occurrence, or is counted as skipped with a reason, even if processes
// die or are paused. See [Timers.PutSchedule]; the fields of Schedule document overlapping
// occurrences, missed planned times, and daylight-saving changes. An occurrence costs one more
// engine step than a timer, so package [github.com/seed-782fa212/limbo/timingwheel/scheduler] is
// the better choice for work that recurs in one process and may be missed while that process is
// down.
//
// # Non-guarantees
//
// A timer may be late: while no worker has capacity, while the engine does not answer, and always
// by a few milliseconds. Order is by due time within a lane of a shard, and handlers overlap, so
// there is no order between timers. Slow handlers can take all slots of a worker, and every topic
// then waits until one of them returns: reserving a slot for other topics would permanently cost
// each worker that slot. Put slow topics and urgent topics into separate stores, with separate
// workers. ScheduleMany is not atomic: it adds or rejects each timer on its own. A handler that
// ignores the end of its ctx may overlap with the next attempt.
//
// # Data loss
//
// Embedded (pebblestore): nothing that was answered. Each answer follows the fsync of its commit.
// When an fsync fails the store closes, unanswered calls return [ErrUnsure], and Run returns
// [ErrClosed]. A store that is opened again has no leases: timers that were running when the
// process died run again at once.
//
// Redis: as much as its configuration allows. It can lose nothing with appendfsync always, up to a
// second with everysec, and everything since the last snapshot without the append-only file. A
// fail-over loses writes that were not replicated; asking for replicas narrows that but does not
// exclude it: [ErrUnconfirmed] is returned when too few have confirmed. After such a loss a timer
// may run twice, or run although it was cancelled; a timer whose Schedule was lost does not run.
//
// # Errors of the engine
//
// Methods of Timers return them. [ErrUnsure] means that the change may have been made. Schedule
// the timer again if it may replace itself; otherwise schedule it again with IfAbsent. The change
// is made before the call's deadline or never, and before a later change to the key by the same
// Timers or never: after Cancelled nothing runs, even if an earlier Schedule returned ErrUnsure. A
// call whose ctx was cancelled can take effect until its deadline, unless the same Timers changes
// something in that shard. There is one exception: if the disk of the embedded engine hangs during
// the write, the change is made when the disk recovers, before any other call on the shard.
//
// A worker retries by itself, with growing pauses, extends the leases of running timers, and logs
// once when calls begin to fail and once when they succeed again. When it cannot extend a lease
// before its end, by its own clock, it ends the handler's ctx, because another worker may run the
// timer then.
//
// # How workers find due timers
//
// Workers do not poll for timers. Each reply of the engine carries the engine's time and the time
// when the shard next has something to do; a worker waits for that time on a wheel of package
// [github.com/seed-782fa212/limbo/timingwheel/keyed]. The engine announces a timer that is
// scheduled for an earlier time. Announcements can be lost, so once a second each worker checks
// all shards for which it is preferred in one call. Shards whose server does not answer are
// checked separately, so that the others need not wait.
//
// Any worker may claim from any shard. For each shard one of the live workers is preferred, by a
// hash of its name and the shard's number, so that workers do not compete for the same timers.
// Each worker sends a heartbeat every tenth of its lease, at least once a second; the reply lists
// the live workers. A worker that stops withdraws its heartbeat. A worker without free slots
// announces that, and workers with free slots claim for it. The announcement can be lost, and a
// worker may send heartbeats and yet not reach a shard's server. So every five seconds one of the
// other workers, in rotation, checks each shard if it has free slots, and claims there if
// something has been due for more than two seconds; when only one worker of n has free slots, it
// checks each shard every 5(n-1) seconds. If heartbeats fail, all workers claim. Leases, not this
// preference, keep two workers from running one timer.
//
// # Cost
//
// Concurrent calls of Schedule are joined into one request for each shard; so are completed runs,
// which wait up to 5 ms for others while handlers run. A timer costs three steps of the engine,
// schedule, claim and end, each shared with others when there are many. An idle worker makes two
// calls a second, and one more every five seconds.
//
// # Inspection and bulk changes
//
// [Timers.Get] reads a timer. [Timers.List] lists the timers that are waiting, leased or dead
// letters, and [Timers.Count] counts them: all, or the ones matching a [Filter] by key prefix,
// topic and last error. [Timers.Bulk] cancels, moves, requeues or purges all that match, page by
// page, and can be resumed. [Timers.CountDue] counts waiting timers by due time. [Timers.Workers]
// lists the workers of all processes, including workers that died in the last hour; Info.Worker
// names the worker that runs a timer.
//
// # Metrics
//
// [Timers.Stats] and [Worker.Stats] return the statistics. Package observe publishes them for
// Prometheus and on a live page; its README lists the metrics and the recommended alerts.
//
// # Concurrency
//
// All methods of Timers and Worker are safe for concurrent use. Handlers run on goroutines of
// their own, up to WorkerOptions.Concurrency at once. In a testing/synctest bubble everything runs
// unchanged on virtual time, if the store does, as memstore's does.
package durable
