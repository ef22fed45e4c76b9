package scheduler

import "github.com/seed-782fa212/limbo/timingwheel"

// Stats describes a scheduler's contents and history. The values from Pending to RefusedClosed
// are exact for one moment; the others are exact too, but may be from a later moment.
type Stats struct {
	Pending int // calls and jobs held, = Len; a call until its function is called
	Jobs    int // of these, jobs

	// Scheduled counts the calls and jobs accepted. It is the sum of Pending, Stopped, Ended,
	// Discarded and Returned.
	Scheduled uint64
	Stopped   uint64 // by Stop
	// Ended counts the calls whose function was called, and the jobs that had no further run:
	// by their schedule, an error, or a shutdown during a run.
	Ended         uint64
	Discarded     uint64 // by Close and Shutdown
	Returned      uint64 // by Close and Shutdown
	RefusedFull   uint64 // with ErrFull
	RefusedClosed uint64 // with ErrClosed

	Panics     uint64 // of functions, schedules and OnEnd hooks
	ClockSteps uint64 // how often the wall clock was found to have been set

	// CallWheel is the statistics of the wheel that holds the calls. With Options.MaxPending
	// each job has a timer there too, which holds its slot.
	CallWheel timingwheel.Stats
	// JobWheel is the statistics of the wheel that holds the jobs that wait for their next run,
	// each wait a timer. Zero before the first job.
	JobWheel timingwheel.Stats
}

// Stats returns the scheduler's statistics. It changes nothing.
func (s *Scheduler) Stats() Stats {
	s.mustBeMade()
	// Under the lock no job is added, ends, or takes or frees a slot: so the job counts are
	// from the moment at which the wheel is read.
	l := &s.jobs
	l.mu.Lock()
	c, w := l.counts, s.calls.Stats()
	live, slots, jobs := l.live, l.slots, l.wheel
	l.mu.Unlock()
	st := Stats{
		Pending:       w.Pending - slots + live,
		Jobs:          live,
		Scheduled:     w.Scheduled - uint64(slots) - c.slotsFreed + c.started,
		Stopped:       w.Stopped - c.slotsFreed + c.stopped,
		Ended:         w.Expired + c.ended,
		Discarded:     w.Discarded + c.discarded,
		Returned:      w.Returned + c.returned,
		RefusedFull:   w.RefusedFull + c.refusedFull,
		RefusedClosed: w.RefusedClosed + c.refusedClosed,
		ClockSteps:    s.clock.stepCount(),
		CallWheel:     w,
	}
	if jobs != nil {
		st.JobWheel = jobs.Stats()
	}
	st.Panics = w.Panics + st.JobWheel.Panics + s.panics.Load()
	return st
}

// Levels returns the number of timers in each slot, of the calls and of the jobs that wait for
// their next run; see [timingwheel.Wheel.Levels].
func (s *Scheduler) Levels() (calls, jobs []timingwheel.Level) {
	s.mustBeMade()
	s.jobs.mu.Lock()
	w := s.jobs.wheel
	s.jobs.mu.Unlock()
	if w != nil {
		jobs = w.Levels()
	}
	return s.calls.Levels(), jobs
}
