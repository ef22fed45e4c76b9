// Package observed has package observe show durable timers and their workers. It is a
// package of its own so that who does without does not have to import Prometheus.
//
// # Metrics
//
// Each has the label name, with the name under which the source was added. Times are in
// seconds, the others are numbers of what they say. Those of [Timers]:
//
//	limbo_durable_readable               gauge    1 if the figures below are here, otherwise 0
//	limbo_durable_age_seconds            gauge    how long ago the store was asked for them
//	limbo_durable_waiting                gauge    timers that wait for their time or for another attempt
//	limbo_durable_overdue                gauge    of these, those that are due
//	limbo_durable_overdue_seconds        gauge    how long ago the first of these came due; 0 if there is none
//	limbo_durable_leased                 gauge    timers that a worker runs
//	limbo_durable_dead                   gauge    dead letters
//	limbo_durable_dropped_total          counter  dead letters that were removed because of their number or age, ever
//	limbo_durable_invalid_figures        gauge    0, or something is wrong with this package
//
// They are the store's. Each process that shares it publishes the same ones, so across
// processes take their maximum: a sum counts every timer once for each process.
//
// Those of [Worker] are of one worker, and can be summed:
//
//	limbo_durable_worker_running             gauge    handlers that run
//	limbo_durable_worker_ending              gauge    handlers that have returned, whose ends are not written yet or whose OnDead has not returned
//	limbo_durable_worker_members             gauge    workers of the store that live, this one included; 0 if that is not known (not to be summed)
//	limbo_durable_worker_preferred_shards    gauge    shards that this worker is the first to claim from
//	limbo_durable_worker_claimed_total       counter  leases that this worker got
//	limbo_durable_worker_ended_total         counter  runs, by the label how: done, retried, snoozed, given_back, buried, buried_lost, cancelled, lost, unwritten; see [durable.WorkerStats]
//	limbo_durable_worker_panics_total        counter  panics of handlers
//	limbo_durable_worker_repaired_total      counter  records without a home that claims have removed
//	limbo_durable_worker_invalid_figures     gauge    0, or something is wrong with this package
//
// # What to alert on
//
//   - limbo_durable_dead grows, or is not 0 where nobody expects dead letters: their timers
//     will not run unless somebody requeues them. If limbo_durable_dropped_total grows, dead
//     letters are removed that perhaps nobody has seen.
//   - limbo_durable_overdue_seconds is above a minute for five: no worker runs, all are
//     full (limbo_durable_worker_running is at their Concurrency), or they cannot claim. Some
//     milliseconds are normal.
//   - limbo_durable_readable is 0 for five minutes: the store does not answer, or needs
//     longer than 2 s to count. The other rules see nothing then.
//   - limbo_durable_worker_ended_total with how="lost" or "unwritten" grows: leases end
//     before their handlers do, or ends cannot be written, so timers run again.
package observed
