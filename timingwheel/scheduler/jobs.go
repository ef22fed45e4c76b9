package scheduler

import (
	"math"
	"sync"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// jobs holds a scheduler's jobs that have not ended, and their counts.
//
// Their timers are on a separate wheel, made for the first job. On the calls' wheel, jobs could
// not be distinguished from calls at one moment: after a worker has taken a job's timer, and
// before the job notes it, the timer is counted nowhere. With two wheels, the calls' counts are
// exact, and AfterFunc costs no more than the wheel does.
//
// A bound on calls and jobs together is Options.MaxPending of the calls' wheel: there each job
// has a timer that never fires, and holds the job's slot from its start to its end, whatever
// its runs do.
type jobs struct {
	calls   *timingwheel.Wheel[func()]
	options timingwheel.Options // of the wheel to make
	bounded bool                // slots are held on calls

	mu sync.Mutex // taken before the wheels' locks, and no others

	// Guarded by mu.

	wheel  *timingwheel.Wheel[*Job] // nil: there was no job yet
	first  *Job                     // the list, linked through the jobs, so it takes no extra memory
	live   int                      // jobs that were admitted and have not ended
	slots  int                      // timers on calls that hold a slot
	counts jobCounts
	closed bool // no new jobs, and slots are freed
}

type jobCounts struct {
	started       uint64
	stopped       uint64
	ended         uint64
	discarded     uint64
	returned      uint64
	refusedFull   uint64 // by the jobs' wheel; jobs beyond the bound are in the count of calls
	refusedClosed uint64
	slotsFreed    uint64
}

func (l *jobs) init(calls *timingwheel.Wheel[func()], o Options) {
	l.calls, l.options, l.bounded = calls, o.wheel(0), o.MaxPending > 0
}

// neverDue is the function of a timer that holds a slot.
func neverDue() {}

// add puts a job on the list, before it is admitted.
func (l *jobs) add(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.next = l.first; j.next != nil {
		j.next.prev = j
	}
	l.first = j
}

// remove removes from the list a job that was not admitted.
func (l *jobs) remove(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlinkLocked(j)
}

// unlinkLocked removes a job from the list. It is called with mu held.
func (l *jobs) unlinkLocked(j *Job) {
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		l.first = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	}
	j.prev, j.next = nil, nil
}

// byWallClock returns the jobs that go by the wall clock.
func (l *jobs) byWallClock() []*Job {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*Job, 0, l.live)
	for j := l.first; j != nil; j = j.next {
		if j.wall {
			all = append(all, j)
		}
	}
	return all
}

// admitLocked takes a slot for a job, whose lock is held, and arms it.
func (l *jobs) admitLocked(j *Job) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkOpenLocked(); err != nil {
		return err
	}
	if l.wheel == nil {
		var err error
		if l.wheel, err = timingwheel.New((*Job).run, l.options); err != nil {
			return err // cannot happen: the calls' wheel was made with options like these
		}
	}
	if l.bounded {
		var err error
		if j.slot, err = l.calls.Schedule(neverDue, math.MaxInt64); err != nil {
			return convertError(err) // counted there
		}
		l.slots++
	}
	j.wheel = l.wheel
	if err := j.armLocked(); err != nil {
		l.freeSlotLocked(j)
		l.counts.refusedFull++
		return err
	}
	l.live++
	l.counts.started++
	return nil
}

// checkOpen refuses a job once a shutdown has begun. It is for a job that takes no slot, because
// it has no run.
func (l *jobs) checkOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkOpenLocked()
}

func (l *jobs) checkOpenLocked() error {
	if !l.closed {
		return nil
	}
	l.counts.refusedClosed++
	return ErrClosed
}

// freeSlotLocked frees the job's slot. It is called with mu held.
func (l *jobs) freeSlotLocked(j *Job) {
	if l.calls.Stop(j.slot) {
		l.slots--
		l.counts.slotsFreed++
	}
	j.slot = timingwheel.Timer{}
}

// removeEnded removes an admitted job and counts its end.
func (l *jobs) removeEnded(j *Job, how outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlinkLocked(j)
	l.live--
	l.freeSlotLocked(j)
	switch how {
	case endedByItself:
		l.counts.ended++
	case endedByStop:
		l.counts.stopped++
	case endedByDiscard:
		l.counts.discarded++
	case endedByReturn:
		l.counts.returned++
	}
}

// close refuses new calls and jobs, and frees the slots: the bound no longer matters, and the
// calls' wheel must become empty. It returns the jobs' wheel, or nil if there was none.
func (l *jobs) close() *timingwheel.Wheel[*Job] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		// First, or calls would take the slots. The only possible error is an unknown policy.
		_, _ = l.calls.Close(timingwheel.Await)
		for j := l.first; j != nil; j = j.next {
			l.freeSlotLocked(j)
		}
	}
	return l.wheel
}
