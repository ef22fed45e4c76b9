package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

func newScheduler() *scheduler.Scheduler {
	s, err := scheduler.New(scheduler.Options{})
	if err != nil {
		panic(err)
	}
	return s
}

func discard(s *scheduler.Scheduler) { _, _ = s.Shutdown(context.Background(), timingwheel.Discard) }

func Example() {
	s, err := scheduler.New(scheduler.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Shutdown(context.Background(), timingwheel.Discard)

	done := make(chan struct{})
	_, _ = s.AfterFunc(2*time.Millisecond, func() {
		fmt.Println("time is up")
		close(done)
	})
	reminder, _ := s.AfterFunc(time.Hour, func() { fmt.Println("never") })
	<-done
	fmt.Println(reminder.Stop())
	// Output:
	// time is up
	// true
}

func ExampleNew() {
	_, err := scheduler.New(scheduler.Options{MaxPending: -1})
	fmt.Println(err)
	// Output: scheduler: Options.MaxPending is -1, must be 0 (no bound) or more
}

func ExampleScheduler_AfterFunc() {
	s := newScheduler()
	defer discard(s)
	done := make(chan string)
	_, _ = s.AfterFunc(time.Millisecond, func() { done <- "called" })
	fmt.Println(<-done)
	// Output: called
}

func ExampleCall_Stop() {
	s := newScheduler()
	defer discard(s)
	call, _ := s.AfterFunc(time.Hour, func() {})
	fmt.Println(call.Stop(), call.Stop())
	// Output: true false
}

func ExampleCall_Reset() {
	s := newScheduler()
	defer discard(s)
	done := make(chan string)
	call, _ := s.AfterFunc(time.Hour, func() { done <- "called" })
	fmt.Println(call.Reset(time.Millisecond))
	fmt.Println(<-done)
	fmt.Println(call.Reset(time.Millisecond)) // it has been called, so nothing is armed
	// Output:
	// true
	// called
	// false
}

func ExampleScheduler_Every() {
	s := newScheduler()
	defer discard(s)
	runs := make(chan int, 3)
	n := 0
	job, _ := s.Every(2*time.Millisecond, func() {
		if n++; n <= 3 { // runs of one job never overlap
			runs <- n
		}
	}, scheduler.JobOptions{Missed: scheduler.RunAll})
	fmt.Println(<-runs, <-runs, <-runs)
	fmt.Println(job.Stop())
	// Output:
	// 1 2 3
	// true
}

func ExampleScheduler_EveryDelay() {
	s := newScheduler()
	defer discard(s)
	polls := make(chan string)
	n := 0
	_, _ = s.EveryDelay(time.Millisecond, func() {
		if n++; n <= 2 {
			polls <- "polled" // takes any time: the next comes 1 ms later
		}
	}, scheduler.JobOptions{})
	fmt.Println(<-polls, <-polls)
	// Output: polled polled
}

// quarters is a schedule: any type with this method is one.
type quarters struct{}

func (quarters) Next(t time.Time) time.Time {
	return t.Truncate(15 * time.Minute).Add(15 * time.Minute)
}

func ExampleScheduler_OnSchedule() {
	s := newScheduler()
	defer discard(s)
	job, _ := s.OnSchedule(quarters{}, func() {}, scheduler.JobOptions{Jitter: time.Minute})
	fmt.Println(job.Next().Minute()%15, job.Next().Second())
	// Output: 0 0
}

// A cron spec is a schedule.
func ExampleScheduler_OnSchedule_cron() {
	s := newScheduler()
	defer discard(s)
	noon, err := cron.Parse("0 12 * * mon-fri")
	if err != nil {
		fmt.Println(err)
		return
	}
	job, _ := s.OnSchedule(noon.In(time.UTC), func() {}, scheduler.JobOptions{Missed: scheduler.Coalesce})
	fmt.Println(job.Next().Format("15:04 MST"))
	// Output: 12:00 UTC
}

func ExampleScheduler_At() {
	s := newScheduler()
	defer discard(s)
	done := make(chan string)
	_, _ = s.At(time.Now().Add(2*time.Millisecond), func() { done <- "the time has come" }, scheduler.JobOptions{})
	fmt.Println(<-done)
	// Output: the time has come
}

func ExampleScheduler_Retry() {
	s := newScheduler()
	defer discard(s)
	attempts := 0
	send := func() error {
		if attempts++; attempts < 3 {
			fmt.Println("attempt", attempts, "fails")
			return errors.New("no connection")
		}
		return nil
	}
	ended := make(chan error)
	_, _ = s.Retry(0, send, scheduler.RetryOptions{
		Base:        time.Millisecond,
		MaxAttempts: 5,
		OnEnd:       func(_ *scheduler.Job, err error) { ended <- err },
	})
	fmt.Println(<-ended)
	// Output:
	// attempt 1 fails
	// attempt 2 fails
	// <nil>
}

func ExampleScheduler_Retry_gaveUp() {
	s := newScheduler()
	defer discard(s)
	ended := make(chan error)
	_, _ = s.Retry(0, func() error { return errors.New("no connection") }, scheduler.RetryOptions{
		Base:        time.Millisecond,
		MaxAttempts: 2,
		OnEnd:       func(_ *scheduler.Job, err error) { ended <- err },
	})
	err := <-ended
	fmt.Println(err)
	fmt.Println(errors.Is(err, scheduler.ErrGaveUp))
	// Output:
	// scheduler: gave up after 2 attempts: no connection
	// true
}

func ExampleJob_Stop() {
	s := newScheduler()
	defer discard(s)
	job, _ := s.Every(time.Hour, func() {}, scheduler.JobOptions{})
	fmt.Println(job.Stop(), job.Stop())
	// Output: true false
}

func ExampleJob_Next() {
	s := newScheduler()
	defer discard(s)
	when := time.Date(2999, 1, 1, 12, 0, 0, 0, time.UTC)
	job, _ := s.At(when, func() {}, scheduler.JobOptions{})
	fmt.Println(job.Next())
	job.Stop()
	fmt.Println(job.Next().IsZero())
	// Output:
	// 2999-01-01 12:00:00 +0000 UTC
	// true
}

func ExampleJob_Err() {
	s := newScheduler()
	job, _ := s.Every(time.Hour, func() {}, scheduler.JobOptions{})
	fmt.Println(job.Err())
	discard(s)
	fmt.Println(job.Err())
	// Output:
	// <nil>
	// scheduler: closed
}

// OnEnd receives the error of a job that ended by itself.
func ExampleJobOptions_onEnd() {
	s := newScheduler()
	_, _ = s.Every(time.Hour, func() {}, scheduler.JobOptions{
		OnEnd: func(_ *scheduler.Job, err error) { fmt.Println("ended:", err) },
	})
	discard(s)
	// Output: ended: scheduler: closed
}

func ExampleScheduler_Len() {
	s := newScheduler()
	defer discard(s)
	_, _ = s.AfterFunc(time.Hour, func() {})
	_, _ = s.Every(time.Hour, func() {}, scheduler.JobOptions{})
	fmt.Println(s.Len())
	// Output: 2
}

func ExampleScheduler_Stats() {
	s := newScheduler()
	defer discard(s)
	call, _ := s.AfterFunc(time.Hour, func() {})
	call.Stop()
	_, _ = s.Every(time.Hour, func() {}, scheduler.JobOptions{})
	st := s.Stats()
	fmt.Println(st.Scheduled, st.Stopped, st.Pending, st.Jobs)
	// Output: 2 1 1 1
}

func ExampleScheduler_Shutdown() {
	s := newScheduler()
	for i := range 3 {
		_, _ = s.AfterFunc(time.Duration(3-i)*time.Hour, func() { fmt.Println("function", i) })
	}
	_, _ = s.Every(150*time.Minute, func() { fmt.Println("job") }, scheduler.JobOptions{})
	left, err := s.Shutdown(context.Background(), timingwheel.Return)
	for _, p := range left { // in order of time
		p.Func()
	}
	fmt.Println(err)
	// Output:
	// function 2
	// function 1
	// job
	// function 0
	// <nil>
}

// A function of the scheduler begins its shutdown with Close.
func ExampleScheduler_Close() {
	s := newScheduler()
	_, _ = s.AfterFunc(time.Hour, func() { fmt.Println("at once") })
	_, _ = s.AfterFunc(time.Millisecond, func() { _, _ = s.Close(timingwheel.RunNow) })
	_, err := s.Shutdown(context.Background(), timingwheel.Await)
	fmt.Println(err)
	// Output:
	// at once
	// <nil>
}
