package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// A wheel passes each value to one function when the value expires.
func Example() {
	timedOut := make(chan string)
	w, err := timingwheel.New(func(request string) { timedOut <- request }, timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	answered, _ := w.Schedule("the first request", time.Minute)
	w.Schedule("the second request", 2*time.Millisecond)
	fmt.Println(w.Stop(answered))
	fmt.Println(<-timedOut, "timed out")
	w.Shutdown(context.Background(), timingwheel.Discard)
	// Output:
	// true
	// the second request timed out
}

// A wheel of functions works like time.AfterFunc.
func ExampleNew() {
	w, err := timingwheel.New(func(f func()) { f() }, timingwheel.Options{Workers: 2})
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	w.Schedule(func() { close(done) }, time.Millisecond)
	<-done
	w.Shutdown(context.Background(), timingwheel.Discard)

	_, err = timingwheel.New(func(int) {}, timingwheel.Options{WheelSize: 1})
	fmt.Println(err)
	// Output: timingwheel: Options.WheelSize is 1, must be 2 to 65536
}

func ExampleWheel_Schedule() {
	ran := make(chan time.Time)
	w, _ := timingwheel.New(func(int) { ran <- time.Now() }, timingwheel.Options{MaxPending: 1})
	t, _ := w.Schedule(1, time.Minute)
	_, err := w.Schedule(2, time.Minute)
	fmt.Println(errors.Is(err, timingwheel.ErrFull))

	w.Stop(t)
	start := time.Now()
	w.Schedule(3, 3*time.Millisecond)
	fmt.Println("early:", (<-ran).Sub(start) < 3*time.Millisecond)

	w.Shutdown(context.Background(), timingwheel.Discard)
	_, err = w.Schedule(4, time.Minute)
	fmt.Println(errors.Is(err, timingwheel.ErrClosed))
	// Output:
	// true
	// early: false
	// true
}

// A series of deadlines does not drift, whereas a series of delays does.
func ExampleWheel_ScheduleAt() {
	start := time.Now()
	done := make(chan struct{})
	var w *timingwheel.Wheel[int]
	w, _ = timingwheel.New(func(round int) {
		if round == 3 {
			close(done)
			return
		}
		w.ScheduleAt(round+1, start.Add(time.Duration(round+1)*2*time.Millisecond))
	}, timingwheel.Options{})
	w.ScheduleAt(1, start.Add(2*time.Millisecond))
	<-done
	fmt.Println(time.Since(start) >= 6*time.Millisecond)
	w.Shutdown(context.Background(), timingwheel.Discard)
	// Output: true
}

func ExampleWheel_Stop() {
	w, _ := timingwheel.New(func(int) {}, timingwheel.Options{})
	t, _ := w.Schedule(1, time.Hour)
	fmt.Println(w.Stop(t))
	fmt.Println(w.Stop(t)) // stale now
	fmt.Println(w.Stop(timingwheel.Timer{}))
	w.Shutdown(context.Background(), timingwheel.Discard)
	// Output:
	// true
	// false
	// false
}

// A heartbeat extends the deadline: the cheapest use of Reset.
func ExampleWheel_Reset() {
	dead := make(chan string)
	w, _ := timingwheel.New(func(peer string) { dead <- peer }, timingwheel.Options{})
	t, _ := w.Schedule("peer", 5*time.Millisecond)
	for range 1000 {
		w.Reset(t, 5*time.Millisecond) // a beat
	}
	fmt.Println(<-dead, "went silent")
	fmt.Println(w.Reset(t, time.Hour)) // expired already
	w.Shutdown(context.Background(), timingwheel.Discard)
	// Output:
	// peer went silent
	// false
}

func ExampleWheel_Len() {
	w, _ := timingwheel.New(func(int) {}, timingwheel.Options{})
	t, _ := w.Schedule(1, time.Hour)
	w.Schedule(2, time.Hour)
	fmt.Println(w.Len())
	w.Stop(t)
	fmt.Println(w.Len())
	w.Shutdown(context.Background(), timingwheel.Discard)
	fmt.Println(w.Len())
	// Output:
	// 2
	// 1
	// 0
}

func ExampleWheel_Stats() {
	w, _ := timingwheel.New(func(int) {}, timingwheel.Options{})
	t, _ := w.Schedule(1, time.Hour)
	w.Schedule(2, math.MaxInt64)
	w.Stop(t)
	st := w.Stats()
	fmt.Println(st.Pending, st.Scheduled, st.Stopped, st.Expired, st.Ready, st.Overdue)
	w.Shutdown(context.Background(), timingwheel.Discard)
	fmt.Println(w.Stats().Discarded)
	// Output:
	// 1 2 1 0 0 0s
	// 1
}

// The default policy drops pending timers.
func ExampleWheel_Shutdown() {
	w, _ := timingwheel.New(func(v int) { fmt.Println("ran", v) }, timingwheel.Options{})
	w.Schedule(1, time.Hour)
	_, err := w.Shutdown(context.Background(), timingwheel.Discard)
	fmt.Println(err, w.Len())
	// Output: <nil> 0
}

// Return returns pending timers in order of deadline, for example to store them and schedule
// them again in the next process.
func ExampleWheel_Shutdown_return() {
	w, _ := timingwheel.New(func(string) {}, timingwheel.Options{})
	w.Schedule("tomorrow", 24*time.Hour)
	w.Schedule("soon", time.Hour)
	start := time.Now()
	pending, err := w.Shutdown(context.Background(), timingwheel.Return)
	for _, p := range pending {
		fmt.Println(p.Value, p.Deadline.Sub(start).Round(time.Hour))
	}
	fmt.Println(err)
	// Output:
	// soon 1h0m0s
	// tomorrow 24h0m0s
	// <nil>
}

// RunNow runs pending timers now: requests get their timeout answer at once.
func ExampleWheel_Shutdown_runNow() {
	w, _ := timingwheel.New(func(v string) { fmt.Println(v) }, timingwheel.Options{Workers: 1})
	w.Schedule("tomorrow", 24*time.Hour)
	w.Schedule("soon", time.Hour)
	w.Shutdown(context.Background(), timingwheel.RunNow)
	// Output:
	// soon
	// tomorrow
}

// Await runs pending timers at their time; a context bounds the wait.
func ExampleWheel_Shutdown_await() {
	ctx, giveUp := context.WithCancel(context.Background())
	w, _ := timingwheel.New(func(v string) {
		fmt.Println(v)
		giveUp()
	}, timingwheel.Options{})
	w.Schedule("soon", 2*time.Millisecond)
	w.Schedule("tomorrow", 24*time.Hour)
	_, err := w.Shutdown(ctx, timingwheel.Await)
	fmt.Println(err)
	pending, err := w.Shutdown(context.Background(), timingwheel.Return)
	fmt.Println(len(pending), pending[0].Value, err)
	// Output:
	// soon
	// context canceled
	// 1 tomorrow <nil>
}

func ExamplePolicy_String() {
	fmt.Println(timingwheel.Discard, timingwheel.Return, timingwheel.RunNow, timingwheel.Await)
	// Output: Discard Return RunNow Await
}

// A panic in the expiry function ends neither the process nor the worker.
func ExamplePanic() {
	reported := make(chan timingwheel.Panic)
	w, _ := timingwheel.New(func(v int) { panic(v) }, timingwheel.Options{
		OnPanic: func(p timingwheel.Panic) { reported <- p },
	})
	w.Schedule(42, 0)
	p := <-reported
	fmt.Println(p.Value, len(p.Stack) > 0, w.Stats().Panics)
	w.Shutdown(context.Background(), timingwheel.Discard)
	// Output: 42 true 1
}
