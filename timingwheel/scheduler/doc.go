// Package scheduler calls functions at their time: once after a delay or at a time of day,
// repeatedly at a rate, with a delay or on any schedule, or until they succeed.
//
// # When to use it
//
// Use [Scheduler.AfterFunc] for many timers, most of which are stopped before they fire: it
// does the same as time.AfterFunc, with less memory and processor time, on a bounded number of
// goroutines. For a few thousand timers time.AfterFunc is as good. For many timers of one kind,
// a [timingwheel.Wheel] of values needs no closure for each. For deadlines of contexts the
// standard library is better.
//
// Jobs are for recurring work in this process, while it runs: they are not persisted. For work
// that must survive a restart or be shared by processes use the durable module's schedules:
// Timers.PutSchedule of github.com/seed-782fa212/limbo/durable.
//
// # Cron
//
// The times of [Scheduler.OnSchedule] can be those of a cron spec: package cron parses it, and
// its Every has fixed periods on which all processes agree. A spec with fixed hours runs each
// wall-clock time that it names once a day, also when the clocks change: at the end of the gap
// when the time does not exist, and at its first occurrence when it occurs twice. A spec whose
// hour field is * or */n follows elapsed time. Other parsers' schedules work too, if they have
// the method of [Schedule].
//
// # Guarantees
//
// No function is called early, by the clock that it follows, nor later than one tick, plus the
// time to wake a goroutine and to find a free worker. Each accepted call ends exactly once: its
// function is called, or it is stopped, or a shutdown discards or returns it. Stop reports
// exactly whether the function will not be called. Runs of one job never overlap.
//
// # Two clocks
//
// AfterFunc, Every, EveryDelay and Retry follow the monotonic clock: setting the machine's
// clock does not affect them, and on most systems the time while the machine is suspended does
// not count.
//
// At and OnSchedule follow the wall clock. While there are such jobs, the scheduler compares it
// with the monotonic clock once a second; if it was set, or the machine was suspended, the jobs
// follow. While there are none, the scheduler makes no comparison and does not wake up for one.
//
// # Late and missed runs
//
// A job is planned from run to run: the next time is the schedule's first after the planned
// time of the last run, not after the time at which that run was made. So neither lateness nor
// jitter shifts a schedule. A time that has already passed was missed, and [Missed] determines
// the treatment. For a job every 10 s, whose run of 10 takes until 45:
//
//	Skip      10                50  60
//	Coalesce  10            45  50  60
//	RunAll    10  45 45 45      50  60
//
// When the workers were busy until 45, or the process was stopped, the run of 10 is made at 45:
// as the only one with Skip and Coalesce, as the first of four with RunAll. When the wall clock was
// set ahead from before 10 to 45, there is no run at 45 with Skip, one with Coalesce, and four
// with RunAll.
//
// # The bound
//
// [Options.MaxPending] bounds calls and jobs together, exactly. A call frees its slot just
// before its function is called, so that the function can make another call at the bound. A job
// holds its slot from its start to its end: it is refused at once or never, and does not end
// because the scheduler is full after a run.
//
// # Concurrency
//
// Functions are called on up to Options.Workers goroutines, those of jobs on as many others. A
// function that blocks for long should start a goroutine. A panic is recovered and reported to
// Options.OnPanic, and ends neither the worker nor, unless the schedule panics, the job. No
// lock is held while a function, a schedule or a hook is called.
//
// The package works unchanged inside a testing/synctest bubble, on virtual time.
package scheduler
