// Package scheduler calls functions when their time has come: once after a
// delay or at a time of day, repeatedly by a rate, a delay or any schedule, or
// until they succeed.
//
// # When to use it
//
// Use [Scheduler.AfterFunc] where there are many timers, most of which are
// stopped before they fire: it does what time.AfterFunc does, for less memory
// and processor time, on a bounded number of goroutines. For a few thousand
// timers time.AfterFunc is as good. For many timers of one kind a
// [timingwheel.Wheel] of values needs no closure for each. For deadlines of
// contexts the standard library's are better.
//
// Jobs are for work that recurs in this process, while it runs: nothing is kept
// beyond its end. For work that must survive a restart or be shared by processes use
// the durable module's schedules: Timers.PutSchedule of
// github.com/seed-782fa212/limbo/durable.
//
// # Cron
//
// The times of [Scheduler.OnSchedule] can be those of a cron spec: package cron
// parses it, and its Every has fixed periods on which all processes agree. A spec
// with fixed hours runs each wall-clock time it names once a day, also when the
// clocks change: at the end of the gap when the time does not exist, and at its first
// occurrence when it comes twice. A spec whose hour field is * or */n follows elapsed
// time. Other parsers' schedules will do too, if they have the method of [Schedule].
//
// # What holds
//
// Nothing is called early, by the clock that it goes by, nor later than one tick,
// plus what the machine takes to wake a goroutine and to find a free worker.
// Each call that was accepted ends exactly once: its function is called, or it
// is stopped, or a shutdown discards it or hands it back. Stop reports exactly
// whether the function will not be called. Runs of one job never overlap.
//
// # Two clocks
//
// AfterFunc, Every, EveryDelay and Retry go by the monotonic clock: setting the
// machine's clock changes nothing for them, and on most systems the time while
// the machine is suspended does not count.
//
// At and OnSchedule go by the wall clock. While there are such jobs it is
// compared with the monotonic clock once a second; if it was set, or the machine
// was suspended, the jobs follow. No comparison is made, and nothing wakes up,
// while there are none.
//
// # A run that comes late, and runs that are missed
//
// A job is planned from run to run: the next time is the schedule's first after
// the planned time of the last run, not after the time at which that was made.
// So neither lateness nor jitter shifts a schedule. A time that has passed by
// then was missed, and [Missed] determines what becomes of it. Of a job every 10 s,
// whose run of 10 takes until 45:
//
//	Skip      10                50  60
//	Coalesce  10            45  50  60
//	RunAll    10  45 45 45      50  60
//
// When the workers were busy until 45, or the process was stopped, the run of 10
// is made at 45: by Skip and Coalesce that alone, by RunAll as the first of four.
// When the wall clock was set ahead from before 10 to 45, there is no run at 45
// by Skip, one by Coalesce, and four by RunAll.
//
// # The bound
//
// [Options.MaxPending] bounds calls and jobs together, exactly. A call gives its
// place back just before its function is called, so that the function can make
// another at the bound. A job has its place from its start to its end: it
// is refused at once or never, and does not end because the scheduler is full
// when a run is over.
//
// # Concurrency
//
// Functions are called on up to Options.Workers goroutines, those of jobs on as
// many others. One that blocks for long should start a goroutine. A panic is
// recovered and reported to Options.OnPanic, and ends neither the worker nor,
// unless it is the schedule's, the job. No lock is held while a function, a
// schedule or a hook is called.
//
// All of it runs as is inside a testing/synctest bubble, on virtual time.
package scheduler
