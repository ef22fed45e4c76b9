package scheduler

import "github.com/seed-782fa212/limbo/timingwheel"

// Stats is what a scheduler holds and has done. The figures from Pending to
// RefusedClosed are those of one moment, exactly; the others are exact too, and
// of a moment later.
type Stats struct {
	Pending int // calls and jobs held, = Len; a call until its function is called
	Jobs    int // of these, jobs

	// Scheduled is the calls and jobs accepted. It is the sum of Pending,
	// Stopped, Ended, Discarded and HandedBack.
	Scheduled uint64
	Stopped   uint64 // by Stop
	// Ended is the calls whose function was called, and the jobs that had no
	// further run: by their schedule, an error, or a shutdown during a run.
	Ended         uint64
	Discarded     uint64 // by Close and Shutdown
	HandedBack    uint64 // by Close and Shutdown
	RefusedFull   uint64 // with ErrFull
	RefusedClosed uint64 // with ErrClosed

	Panics     uint64 // of functions, schedules and OnEnd hooks
	ClockSteps uint64 // how often the wall clock was found to have been set

	// CallWheel is the figures of the wheel that holds the calls. With
	// Options.MaxPending each job has a timer there too, which holds its place.
	CallWheel timingwheel.Stats
	// JobWheel is those of the wheel that holds the jobs that wait for their next
	// run, each wait a timer. Zero before the first job.
	JobWheel timingwheel.Stats
}

// Stats returns the scheduler's figures. It changes nothing.
func (s *Scheduler) Stats() Stats {
	s.mustBeMade()
	// Under the lock no job comes, goes, or takes or leaves a place: so all that
	// is known of jobs is of the moment in which the wheel is read.
	l := &s.jobs
	l.mu.Lock()
	c, w := l.counts, s.calls.Stats()
	live, places, jobs := l.live, l.places, l.wheel
	l.mu.Unlock()
	st := Stats{
		Pending:       w.Pending - places + live,
		Jobs:          live,
		Scheduled:     w.Scheduled - uint64(places) - c.placesLeft + c.started,
		Stopped:       w.Stopped - c.placesLeft + c.stopped,
		Ended:         w.Expired + c.ended,
		Discarded:     w.Discarded + c.discarded,
		HandedBack:    w.HandedBack + c.handedBack,
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

// Levels returns where the timers of the calls stand, and those of the jobs that wait for
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
