package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

var durableWorkload = workload{
	name: "W13", title: "durable: timers that outlive the process, in a store that is synced", size: "timers",
	metrics: []string{"schedules_per_s", "lifecycles_per_s", "late_p50_ms", "late_p99_ms", "early", "bytes_per_timer"},
	full:    sizes("timers", 100_000),
	quick:   sizes("timers", 2_000),
}

const (
	durableProducers = 2
	durableBatch     = 100
	durableRate      = 5_000 // timers a second, for the measurement of lateness
	durableAhead     = time.Hour

	// durableWindow limits the lifecycles in progress, so that producers do not outrun the
	// worker.
	durableWindow = 10_000

	// durableLimit limits the wait for all timers to have run.
	durableLimit = 5 * time.Minute
)

// durableTimer is a timer with the key "timer-" and its number in 10 digits, and a
// body of 32 bytes that begins with the number.
type durableTimer struct {
	id  int
	due time.Time // in whole milliseconds
}

func (t durableTimer) key() string { return fmt.Sprintf("timer-%010d", t.id) }

func (t durableTimer) body() []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, 32), uint64(t.id))[:32]
}

// durableID returns the timer number in a body.
func durableID(body []byte) int { return int(binary.BigEndian.Uint64(body)) }

// durableTimers is an initially empty system of timers that outlive the process.
type durableTimers interface {
	// Schedule returns when the system has confirmed all timers. Several goroutines call it.
	Schedule(timers []durableTimer) error
	// Work starts to run timers: a run only calls ran with the timer's number. It is called
	// once.
	Work(ran func(id int)) error
	// Remaining returns how many timers the system holds: those that wait, and those whose outcome it
	// has not confirmed.
	Remaining() (int, error)
	// Bytes returns the size of the system's memory or files.
	Bytes() (int64, error)
	Close() error
}

// measureDurable measures each part on a new system:
//
//   - Two producers schedule timers an hour ahead, in batches of 100, each batch after the
//     previous one is confirmed. The bytes are the difference that these timers make.
//   - Two producers schedule timers that are due 1 to 2 ms later, while a worker runs them. The
//     delay keeps them timers: some systems handle tasks to be run at once differently. A
//     lifecycle ends when the system no longer holds the timer.
//   - Timers due evenly, 5,000 a second, are scheduled before the first is due, in random order.
//     A timer's lateness is from its due time until its run begins, by the machine's clock,
//     which all processes share.
func measureDurable(j Job, open func() (durableTimers, error)) (Result, error) {
	m := Metrics{}
	if err := withDurable(open, func(d durableTimers) error { return durableSchedules(j, d, m) }); err != nil {
		return Result{}, fmt.Errorf("schedules: %w", err)
	}
	if err := withDurable(open, func(d durableTimers) error { return durableLifecycles(j, d, m) }); err != nil {
		return Result{}, fmt.Errorf("lifecycles: %w", err)
	}
	res := Result{Metrics: m}
	err := withDurable(open, func(d durableTimers) error { return durableLateness(j, d, &res) })
	if err != nil {
		return Result{}, fmt.Errorf("lateness: %w", err)
	}
	return res, nil
}

func withDurable(open func() (durableTimers, error), do func(durableTimers) error) error {
	d, err := open()
	if err != nil {
		return err
	}
	return errors.Join(do(d), d.Close())
}

func durableSchedules(j Job, d durableTimers, m Metrics) error {
	n := j.Params["timers"]
	before, err := d.Bytes()
	if err != nil {
		return err
	}
	due := time.Now().Add(durableAhead).Truncate(time.Millisecond)
	begun := time.Now()
	err = produceDurables(n, func(batch []durableTimer) error {
		for i := range batch {
			batch[i].due = due.Add(time.Duration(batch[i].id%1000) * time.Millisecond)
		}
		return d.Schedule(batch)
	})
	m["schedules_per_s"] = float64(n) / time.Since(begun).Seconds()
	if err != nil {
		return err
	}
	after, err := d.Bytes()
	m["bytes_per_timer"] = float64(after-before) / float64(n)
	return err
}

// produceDurables calls schedule with batches of the timers 0 to n-1, from the producers.
func produceDurables(n int, schedule func([]durableTimer) error) error {
	var next atomic.Int64
	var producers errgroup.Group
	for range durableProducers {
		producers.Go(func() error {
			for {
				first := int(next.Add(durableBatch)) - durableBatch
				if first >= n {
					return nil
				}
				batch := make([]durableTimer, min(durableBatch, n-first))
				for i := range batch {
					batch[i].id = first + i
				}
				if err := schedule(batch); err != nil {
					return err
				}
			}
		})
	}
	return producers.Wait()
}

// durableRuns counts timers that have run. Each counts once, even if it runs more often.
type durableRuns struct {
	ran       []atomic.Bool
	remaining atomic.Int64
	allRan    chan struct{} // closed when no timer is left
}

func newDurableRuns(n int) *durableRuns {
	r := &durableRuns{ran: make([]atomic.Bool, n), allRan: make(chan struct{})}
	r.remaining.Store(int64(n))
	return r
}

// first reports whether the timer has not run before. If so, the caller must call done.
func (r *durableRuns) first(id int) bool { return !r.ran[id].Swap(true) }

func (r *durableRuns) done() {
	if r.remaining.Add(-1) == 0 {
		close(r.allRan)
	}
}

func (r *durableRuns) wait() error {
	select {
	case <-r.allRan:
		return nil
	case <-time.After(durableLimit):
		return r.timeoutError()
	}
}

func (r *durableRuns) timeoutError() error {
	return fmt.Errorf("%d of %d timers have not run after %v", r.remaining.Load(), len(r.ran), durableLimit)
}

func durableLifecycles(j Job, d durableTimers, m Metrics) error {
	n := j.Params["timers"]
	runs := newDurableRuns(n)
	window := make(chan struct{}, durableWindow)
	begun := time.Now()
	if err := d.Work(func(id int) {
		if runs.first(id) {
			<-window
			runs.done()
		}
	}); err != nil {
		return err
	}
	if err := produceDurables(n, func(batch []durableTimer) error {
		for range batch {
			select {
			case window <- struct{}{}:
			case <-time.After(durableLimit):
				return runs.timeoutError()
			}
		}
		due := time.Now().Truncate(time.Millisecond).Add(2 * time.Millisecond)
		for i := range batch {
			batch[i].due = due
		}
		return d.Schedule(batch)
	}); err != nil {
		return err
	}
	if err := runs.wait(); err != nil {
		return err
	}
	if err := waitEmpty(d); err != nil {
		return err
	}
	m["lifecycles_per_s"] = float64(n) / time.Since(begun).Seconds()
	return nil
}

// waitEmpty waits until the system holds no timer.
func waitEmpty(d durableTimers) error {
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		left, err := d.Remaining()
		switch {
		case err != nil:
			return err
		case left == 0:
			return nil
		case time.Since(begun) > durableLimit:
			return fmt.Errorf("%d timers are left, %v after all have run", left, durableLimit)
		}
	}
}

func durableLateness(j Job, d durableTimers, res *Result) error {
	n := min(j.Params["timers"], 10*durableRate)
	r := j.seed()
	order := r.shuffled(n)
	runs := newDurableRuns(n)
	late := make([]time.Duration, n)
	lead := time.Duration(max(j.Slack, 1)) * (300*time.Millisecond + time.Duration(n)*200*time.Microsecond)
	base := time.Now().Add(lead).Truncate(time.Millisecond)
	due := func(id int) time.Time {
		return base.Add((time.Duration(id) * time.Second / durableRate).Truncate(time.Millisecond))
	}
	if err := d.Work(func(id int) {
		now := time.Now()
		if runs.first(id) {
			late[id] = now.Sub(due(id))
			runs.done()
		}
	}); err != nil {
		return err
	}
	if err := produceDurables(n, func(batch []durableTimer) error {
		for i := range batch {
			batch[i].id = int(order[batch[i].id])
			batch[i].due = due(batch[i].id)
		}
		return d.Schedule(batch)
	}); err != nil {
		return err
	}
	if time.Now().After(base.Add(-100 * time.Millisecond)) {
		*res = Result{TooSlow: true}
		return nil
	}
	if err := runs.wait(); err != nil {
		return err
	}
	res.addLateness(late)
	return nil
}
