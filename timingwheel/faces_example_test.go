package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Sessions that end when nobody has used them for a while.
func ExampleKeyed() {
	ended := make(chan string)
	sessions, err := timingwheel.NewKeyed(func(id, user string) {
		ended <- id + " of " + user
	}, timingwheel.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sessions.Shutdown(context.Background(), timingwheel.Discard)

	_ = sessions.Set("s1", "ada", 10*time.Millisecond)
	_ = sessions.Set("s2", "bob", 10*time.Millisecond)
	sessions.Touch("s2", time.Hour) // bob is there still
	fmt.Println(<-ended)
	user, ok := sessions.Get("s2")
	fmt.Println(user, ok)
	// Output:
	// s1 of ada
	// bob true
}

func ExampleNewKeyed() {
	_, err := timingwheel.NewKeyed[string, int](nil, timingwheel.Options{})
	fmt.Println(err)
	// Output: timingwheel: the expiry function is nil
}

func ExampleKeyed_Set() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	_ = table.Set("k", 2, time.Minute) // another value, and sooner
	fmt.Println(table.Get("k"))
	fmt.Println(table.Len())
	// Output:
	// 2 true
	// 1
}

func ExampleKeyed_SetAt() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.SetAt("k", 1, time.Now().AddDate(1, 0, 0))
	fmt.Println(table.Get("k"))
	// Output: 1 true
}

func ExampleKeyed_Move() {
	expired := make(chan string)
	table, _ := timingwheel.NewKeyed(func(key string, _ int) { expired <- key }, timingwheel.Options{})
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	fmt.Println(table.Move("k", time.Millisecond)) // pulls the deadline in
	fmt.Println(<-expired)
	fmt.Println(table.Move("k", time.Hour))
	// Output:
	// true
	// k
	// false
}

func ExampleKeyed_Touch() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Minute)
	fmt.Println(table.Touch("k", time.Hour))
	fmt.Println(table.Touch("k", 0)) // a deadline that is later stays
	fmt.Println(table.Touch("none", time.Hour))
	fmt.Println(table.Get("k"))
	// Output:
	// true
	// true
	// false
	// 1 true
}

func ExampleKeyed_Remove() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	fmt.Println(table.Remove("k"))
	fmt.Println(table.Remove("k"))
	// Output:
	// 1 true
	// 0 false
}

func ExampleKeyed_Get() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("k", 1, time.Hour)
	fmt.Println(table.Get("k"))
	fmt.Println(table.Get("none"))
	// Output:
	// 1 true
	// 0 false
}

func ExampleKeyed_Len() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	fmt.Println(table.Len())
	// Output: 2
}

func ExampleKeyed_Stats() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	table.Remove("a")
	st := table.Stats()
	fmt.Println(st.Pending, st.Scheduled, st.Stopped)
	// Output: 1 2 1
}

func ExampleKeyed_Range() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	sum := 0
	table.Range(func(key string, value int) bool {
		sum += value
		table.Touch(key, 2*time.Hour)
		return true
	})
	fmt.Println(sum)
	// Output: 3
}

func ExampleKeyed_Drain() {
	table := facesTable()
	defer table.Shutdown(context.Background(), timingwheel.Discard)
	_ = table.Set("a", 1, time.Hour)
	_ = table.Set("b", 2, time.Hour)
	sum := 0
	fmt.Println(table.Drain(func(_ string, value int) { sum += value }))
	fmt.Println(sum, table.Len())
	// Output:
	// 2
	// 3 0
}

func ExampleKeyed_Shutdown() {
	table := facesTable()
	_ = table.Set("later", 2, 2*time.Hour)
	_ = table.Set("sooner", 1, time.Hour)
	left, err := table.Shutdown(context.Background(), timingwheel.HandBack)
	fmt.Println(left, err)
	fmt.Println(errors.Is(table.Set("k", 3, time.Hour), timingwheel.ErrClosed))
	// Output:
	// [{sooner 1} {later 2}] <nil>
	// true
}

func facesTable() *timingwheel.Keyed[string, int] {
	table, err := timingwheel.NewKeyed(func(string, int) {}, timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	return table
}

func ExampleScheduler() {
	s, err := timingwheel.NewScheduler(timingwheel.Options{})
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

func ExampleNewScheduler() {
	_, err := timingwheel.NewScheduler(timingwheel.Options{Workers: -1})
	fmt.Println(err)
	// Output: timingwheel: Options.Workers is -1, must be 1 to 65536
}

func ExampleScheduler_AfterFunc() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	done := make(chan string)
	_, _ = s.AfterFunc(time.Millisecond, func() { done <- "called" })
	fmt.Println(<-done)
	// Output: called
}

func ExampleCall_Stop() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	call, _ := s.AfterFunc(time.Hour, func() {})
	fmt.Println(call.Stop(), call.Stop())
	fmt.Println(timingwheel.Call{}.Stop())
	// Output:
	// true false
	// false
}

func ExampleCall_Reset() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	done := make(chan string)
	call, _ := s.AfterFunc(time.Hour, func() { done <- "called" })
	fmt.Println(call.Reset(time.Millisecond))
	fmt.Println(<-done)
	fmt.Println(call.Reset(time.Millisecond)) // it has been called: nothing is armed
	// Output:
	// true
	// called
	// false
}

func ExampleScheduler_Every() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	runs := make(chan int)
	n := 0
	job, _ := s.Every(2*time.Millisecond, func() {
		n++ // runs of one job never overlap
		runs <- n
	}, timingwheel.JobOptions{Missed: timingwheel.RunAll})
	fmt.Println(<-runs, <-runs, <-runs)
	fmt.Println(job.Stop())
	go func() { <-runs }() // one may have begun
	// Output:
	// 1 2 3
	// true
}

func ExampleScheduler_EveryAfter() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	start := time.Now()
	done := make(chan time.Duration)
	var once sync.Once
	first := true
	_, _ = s.EveryAfter(5*time.Millisecond, func() {
		if first {
			first = false
			time.Sleep(10 * time.Millisecond)
			return
		}
		once.Do(func() { done <- time.Since(start) })
	}, timingwheel.JobOptions{})
	fmt.Println(<-done >= 20*time.Millisecond) // 5, the run's 10, and 5 more
	// Output: true
}

// facesQuarters is a schedule: any type with this method is one, those of
// github.com/robfig/cron among them.
type facesQuarters struct{}

func (facesQuarters) Next(t time.Time) time.Time {
	return t.Truncate(15 * time.Minute).Add(15 * time.Minute)
}

func ExampleScheduler_Run() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	job, _ := s.Run(facesQuarters{}, func() {}, timingwheel.JobOptions{Jitter: time.Minute})
	fmt.Println(job.Next().Minute()%15, job.Next().Second())
	// Output: 0 0
}

func ExampleScheduler_At() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	done := make(chan string)
	_, _ = s.At(time.Now().Add(2*time.Millisecond), func() { done <- "the time has come" })
	fmt.Println(<-done)
	// Output: the time has come
}

func ExampleJob_Stop() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	job, _ := s.Every(time.Hour, func() {}, timingwheel.JobOptions{})
	fmt.Println(job.Stop(), job.Stop())
	// Output: true false
}

func ExampleJob_Next() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	when := time.Date(2999, 1, 1, 12, 0, 0, 0, time.UTC)
	job, _ := s.At(when, func() {})
	fmt.Println(job.Next())
	job.Stop()
	fmt.Println(job.Next().IsZero())
	// Output:
	// 2999-01-01 12:00:00 +0000 UTC
	// true
}

func ExampleJob_Err() {
	s := facesScheduler()
	job, _ := s.Every(time.Hour, func() {}, timingwheel.JobOptions{})
	fmt.Println(job.Err())
	_, _ = s.Shutdown(context.Background(), timingwheel.Discard)
	fmt.Println(job.Err())
	// Output:
	// <nil>
	// timingwheel: closed
}

func ExampleScheduler_Len() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	_, _ = s.AfterFunc(time.Hour, func() {})
	_, _ = s.Every(time.Hour, func() {}, timingwheel.JobOptions{})
	fmt.Println(s.Len())
	// Output: 2
}

func ExampleScheduler_Stats() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	call, _ := s.AfterFunc(time.Hour, func() {})
	call.Stop()
	st := s.Stats()
	fmt.Println(st.Scheduled, st.Stopped, st.Pending)
	// Output: 1 1 0
}

func ExampleScheduler_Shutdown() {
	s := facesScheduler()
	for i := range 3 {
		_, _ = s.AfterFunc(time.Duration(3-i)*time.Hour, func() { fmt.Println("function", i) })
	}
	functions, err := s.Shutdown(context.Background(), timingwheel.HandBack)
	for _, f := range functions { // those that were due first come first
		f()
	}
	fmt.Println(err)
	// Output:
	// function 2
	// function 1
	// function 0
	// <nil>
}

func ExampleScheduler_WithTimeout() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	ctx, cancel := s.WithTimeout(context.Background(), 2*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	fmt.Println(ctx.Err())
	// Output: context deadline exceeded
}

func ExampleScheduler_WithTimeoutCause() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	ctx, cancel := s.WithTimeoutCause(context.Background(), 2*time.Millisecond, errors.New("the replica is slow"))
	defer cancel()
	child, cancelChild := context.WithCancel(ctx)
	defer cancelChild()
	<-child.Done()
	fmt.Println(child.Err(), "-", context.Cause(child))
	// Output: context deadline exceeded - the replica is slow
}

func ExampleScheduler_WithDeadline() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	deadline := time.Date(2999, 1, 1, 12, 0, 0, 0, time.UTC)
	ctx, cancel := s.WithDeadline(context.Background(), deadline)
	fmt.Println(ctx.Deadline())
	cancel()
	fmt.Println(ctx.Err(), s.Len())
	// Output:
	// 2999-01-01 12:00:00 +0000 UTC true
	// context canceled 0
}

func ExampleScheduler_WithDeadlineCause() {
	s := facesScheduler()
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	parent, cancelParent := context.WithCancelCause(context.Background())
	ctx, cancel := s.WithDeadlineCause(parent, time.Now().Add(time.Hour), errors.New("late"))
	defer cancel()
	cancelParent(errors.New("hung up"))
	fmt.Println(ctx.Err(), "-", context.Cause(ctx))
	// Output: context canceled - hung up
}

func facesScheduler() *timingwheel.Scheduler {
	s, err := timingwheel.NewScheduler(timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	return s
}

// An entry is what a shutdown hands back.
func ExampleEntry() {
	table := facesTable()
	_ = table.Set("b", 2, time.Hour)
	_ = table.Set("a", 1, time.Hour)
	left, _ := table.Shutdown(context.Background(), timingwheel.HandBack)
	sort.Slice(left, func(i, j int) bool { return left[i].Key < left[j].Key })
	for _, e := range left {
		fmt.Println(e.Key, e.Value)
	}
	// Output:
	// a 1
	// b 2
}
