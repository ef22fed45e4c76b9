package timingwheel

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// schedRig is a scheduler whose wall clock can be set, and a list of when
// things ran.
type schedRig struct {
	*Scheduler
	t    testing.TB
	born time.Time
	set  atomic.Int64 // how far the wall clock was set ahead of the real one

	mu   sync.Mutex
	runs []time.Duration // after born
}

func schedStart(t testing.TB, o Options) *schedRig {
	t.Helper()
	r := &schedRig{t: t, born: time.Now()}
	s, err := NewScheduler(plain(o))
	require.NoError(t, err)
	s.wall.now = func() time.Time { return time.Now().Round(0).Add(time.Duration(r.set.Load())) }
	r.Scheduler = s
	t.Cleanup(func() {
		_, err := s.Shutdown(context.Background(), Discard)
		require.NoError(t, err)
		require.Zero(t, s.Len())
	})
	return r
}

// note is a function to schedule: it writes down when it runs.
func (r *schedRig) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, time.Since(r.born))
}

// noted is what note has written since the last call.
func (r *schedRig) noted() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs
	r.runs = nil
	return runs
}

func (r *schedRig) pass(d time.Duration) []time.Duration {
	r.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	return r.noted()
}

func (r *schedRig) after(delay time.Duration, f func()) Call {
	r.t.Helper()
	c, err := r.AfterFunc(delay, f)
	require.NoError(r.t, err)
	return c
}

// setWall sets the wall clock forward, or back.
func (r *schedRig) setWall(by time.Duration) { r.set.Add(int64(by)) }

func TestSchedulerBadArguments(t *testing.T) {
	_, err := NewScheduler(Options{Tick: -1})
	require.ErrorContains(t, err, "Options.Tick is -1ns")
	r := schedStart(t, Options{})
	c, err := r.AfterFunc(0, nil)
	require.EqualError(t, err, "timingwheel: the function is nil")
	require.Zero(t, c)
	for want, do := range map[string]func() (*Job, error){
		"timingwheel: the function is nil":                       func() (*Job, error) { return r.Every(1, nil, JobOptions{}) },
		"timingwheel: the function is nil ":                      func() (*Job, error) { return r.EveryAfter(1, nil, JobOptions{}) },
		"timingwheel: the function is nil  ":                     func() (*Job, error) { return r.At(time.Now(), nil) },
		"timingwheel: the function is nil   ":                    func() (*Job, error) { return r.Run(pause(1), nil, JobOptions{}) },
		"timingwheel: Every's period is 0s, must be more than 0": func() (*Job, error) { return r.Every(0, r.note, JobOptions{}) },
		"timingwheel: Every's period is -1s, must be more than 0": func() (*Job, error) {
			return r.Every(-time.Second, r.note, JobOptions{})
		},
		"timingwheel: EveryAfter's delay is 0s, must be more than 0": func() (*Job, error) {
			return r.EveryAfter(0, r.note, JobOptions{})
		},
		"timingwheel: Run's schedule is nil": func() (*Job, error) { return r.Run(nil, r.note, JobOptions{}) },
		"timingwheel: JobOptions.Missed is 3, must be Skip, Coalesce or RunAll": func() (*Job, error) {
			return r.Every(1, r.note, JobOptions{Missed: 3})
		},
		"timingwheel: JobOptions.Jitter is -1ns, must be at least 0": func() (*Job, error) {
			return r.Every(1, r.note, JobOptions{Jitter: -1})
		},
	} {
		j, err := do()
		for want[len(want)-1] == ' ' {
			want = want[:len(want)-1]
		}
		require.EqualError(t, err, want)
		require.Nil(t, j)
	}
	require.Zero(t, r.Len())
	require.Zero(t, r.Stats().Scheduled)
}

func TestSchedulerAfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		c := r.after(10*milli, r.note)
		require.Equal(t, 1, r.Len())
		require.Empty(t, r.pass(10*milli-1))
		require.Equal(t, []time.Duration{10 * milli}, r.pass(1))
		require.Zero(t, r.Len())
		require.False(t, c.Stop())
		require.False(t, c.Reset(milli), "unlike time.Timer's, it arms nothing (T5)")
		require.Empty(t, r.pass(time.Hour))

		r.after(0, r.note)
		r.after(-1, r.note)
		r.after(math.MinInt64, r.note)
		require.Len(t, r.pass(0), 3) // T7
		never := r.after(math.MaxInt64, r.note)
		require.Empty(t, r.pass(1000*time.Hour)) // T8
		require.True(t, never.Stop())
	})
}

func TestSchedulerCallStopReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		c := r.after(10*milli, r.note)
		require.True(t, c.Stop())
		require.False(t, c.Stop())
		require.False(t, c.Reset(milli))
		require.Empty(t, r.pass(time.Second))

		r.born = time.Now()
		c = r.after(10*milli, r.note)
		require.True(t, c.Reset(5*milli))
		require.Equal(t, []time.Duration{5 * milli}, r.pass(time.Second))

		r.born = time.Now()
		c = r.after(10*milli, r.note)
		require.Empty(t, r.pass(9*milli))
		require.True(t, c.Reset(10*milli))
		require.Equal(t, []time.Duration{19 * milli}, r.pass(time.Second))

		// From within itself: it has been called.
		handle := make(chan Call, 1)
		handle <- r.after(milli, func() {
			c := <-handle
			if c.Stop() || c.Reset(milli) {
				t.Error("true from within")
			}
			r.note()
		})
		require.Len(t, r.pass(time.Second), 1)
	})
}

// The zero Call is no call.
func TestSchedulerZeroCall(t *testing.T) {
	var c Call
	require.False(t, c.Stop())
	require.False(t, c.Reset(time.Hour))

	// Nor is what comes with an error, whichever scheduler it names.
	r := schedStart(t, Options{MaxPending: 1})
	first := r.after(time.Hour, r.note)
	full, err := r.AfterFunc(0, r.note)
	require.ErrorIs(t, err, ErrFull)
	require.False(t, full.Stop())
	require.False(t, full.Reset(0))
	require.True(t, first.Stop())
	_, err = r.Shutdown(t.Context(), Discard)
	require.NoError(t, err)
	closed, err := r.AfterFunc(0, r.note)
	require.ErrorIs(t, err, ErrClosed)
	require.False(t, closed.Stop())
	require.Empty(t, r.noted())
}

// AfterFunc allocates nothing but what the closure is.
func TestSchedulerAfterFuncAllocations(t *testing.T) {
	r := schedStart(t, Options{})
	f := func() {}
	per := func(do func()) float64 {
		do()
		return testing.AllocsPerRun(1000, do)
	}
	require.Zero(t, per(func() { r.after(time.Hour, f).Stop() }))
	n := 0
	closure := per(func() { schedSink = func() { n++ } })
	require.LessOrEqual(t, per(func() { r.after(time.Hour, func() { n++ }).Stop() }), closure)
	// Held, not stopped: slabs grow by the thousand.
	require.Less(t, per(func() { r.after(time.Hour, f) }), 0.5)
}

var schedSink func()

// A function that panics, or ends its goroutine, takes nothing with it (T10).
func TestSchedulerFunctionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []any
		r := schedStart(t, Options{Workers: 1, OnPanic: func(p Panic) { panics = append(panics, p.Value) }})
		r.after(milli, func() { panic("boo") })
		r.after(milli, runtime.Goexit)
		r.after(2*milli, r.note)
		require.Equal(t, []time.Duration{2 * milli}, r.pass(time.Second))
		require.Equal(t, []any{"boo"}, panics)
		require.Equal(t, uint64(1), r.Stats().Panics)
	})
}

// Setting the wall clock changes no delay (T14; timers 16).
func TestSchedulerAfterFuncIgnoresWallClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{})
			j, err := r.At(time.Now().Add(100*time.Hour), func() {}) // so that somebody looks
			require.NoError(t, err)
			r.after(10*time.Minute, r.note)
			_, err = r.Every(3*time.Minute, r.note, JobOptions{})
			require.NoError(t, err)
			require.Empty(t, r.pass(time.Minute))
			r.setWall(by)
			require.Equal(t, []time.Duration{3 * time.Minute, 6 * time.Minute, 9 * time.Minute, 10 * time.Minute, 12 * time.Minute},
				r.pass(11*time.Minute))
			require.True(t, j.Stop())
		})
	}
}

// Len counts calls, jobs and contexts, and nothing of the scheduler's own.
func TestSchedulerLen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		at, err := r.At(time.Now().Add(time.Hour), r.note)
		require.NoError(t, err)
		require.Equal(t, 1, r.Len())
		call := r.after(time.Hour, r.note)
		_, cancel := r.WithTimeout(t.Context(), time.Hour)
		require.Equal(t, 3, r.Len())
		r.pass(10 * time.Second)
		require.Equal(t, 3, r.Len())
		cancel()
		require.Equal(t, 2, r.Len())
		require.True(t, at.Stop())
		require.Equal(t, 1, r.Len())
		require.True(t, call.Stop())
		require.Zero(t, r.Len())

		var within int
		j, err := r.Every(milli, func() { within = r.Len() }, JobOptions{})
		require.NoError(t, err)
		require.Equal(t, 1, r.Len())
		r.pass(time.Second)
		require.Zero(t, within, "a job counts while it waits")
		require.True(t, j.Stop())
	})
}

func TestSchedulerShutdown(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		ran    []string // and when
		back   []string
	}{
		{Discard, nil, nil},
		{HandBack, nil, []string{"after", "at"}},
		{RunNow, []string{"after 1ms", "after delay 1ms", "at 1ms", "every 1ms", "run 1ms"}, nil},
		{Await, []string{"after 10ms", "after delay 30ms", "at 40ms", "every 20ms", "run 1s"}, nil},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := schedStart(t, Options{})
				var mu sync.Mutex
				var ran, names []string
				note := func(name string) func() {
					return func() {
						mu.Lock()
						defer mu.Unlock()
						ran = append(ran, name+" "+time.Since(r.born).String())
						names = append(names, name)
					}
				}
				must := func(j *Job, err error) *Job { require.NoError(t, err); return j }
				r.after(10*milli, note("after"))
				jobs := []*Job{
					must(r.Every(20*milli, note("every"), JobOptions{})),
					must(r.EveryAfter(30*milli, note("after delay"), JobOptions{})),
					must(r.At(r.wall.now().Add(40*milli), note("at"))),
					must(r.Run(schedSecondly{}, note("run"), JobOptions{})),
				}
				ctx, cancel := r.WithTimeoutCause(t.Context(), 50*milli, errBecause)
				defer cancel()
				r.pass(milli)
				back, err := r.Shutdown(t.Context(), c.policy)
				require.NoError(t, err)
				if c.policy == Await {
					require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				} else {
					require.Equal(t, milli, time.Since(r.born))
					require.NoError(t, ctx.Err(), "contexts live on")
				}
				slices.Sort(ran)
				require.Equal(t, c.ran, ran)
				names = nil
				for _, f := range back {
					f()
				}
				require.Equal(t, c.back, names)
				for i, j := range jobs {
					require.False(t, j.Stop(), i)
					require.Zero(t, j.Next(), i)
					if i == 2 && (c.policy == RunNow || c.policy == Await) {
						require.NoError(t, j.Err(), "it ran: nothing was refused")
					} else {
						require.ErrorIs(t, j.Err(), ErrClosed, i)
					}
				}
				require.Zero(t, r.Len())
				_, err = r.AfterFunc(0, r.note)
				require.ErrorIs(t, err, ErrClosed)
				_, err = r.Every(milli, r.note, JobOptions{})
				require.ErrorIs(t, err, ErrClosed)
				_, err = r.At(time.Now(), r.note)
				require.ErrorIs(t, err, ErrClosed)

				// The context ends at its deadline, by the standard library's timer.
				time.Sleep(50*milli - 1 - time.Since(r.born))
				synctest.Wait()
				if c.policy != Await {
					require.NoError(t, ctx.Err())
				}
				time.Sleep(1 * time.Nanosecond)
				synctest.Wait()
				require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				require.ErrorIs(t, context.Cause(ctx), errBecause)
				before := len(ran)
				r.pass(time.Hour)
				require.Len(t, ran, before)
			})
		})
	}
}

// schedSecondly is each full second of the wall clock.
type schedSecondly struct{}

func (schedSecondly) Next(t time.Time) time.Time { return t.Truncate(time.Second).Add(time.Second) }

// An unknown policy is an error and changes nothing: the wall clock is still
// looked at.
func TestSchedulerShutdownUnknownPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		_, err := r.At(r.wall.now().Add(2*time.Hour), r.note)
		require.NoError(t, err)
		_, err = r.Shutdown(t.Context(), 4)
		require.ErrorContains(t, err, "Policy(4)")
		require.Empty(t, r.pass(time.Minute))
		r.setWall(time.Hour)
		require.Equal(t, []time.Duration{time.Hour}, r.pass(2*time.Hour))
	})
}

// From a function, while another shutdown waits.
func TestSchedulerShutdownFromWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		_, err := r.Every(milli, func() {
			r.note()
			_, err := r.Shutdown(context.Background(), RunNow)
			require.NoError(t, err)
		}, JobOptions{})
		require.NoError(t, err)
		r.after(time.Hour, r.note)
		require.Equal(t, []time.Duration{milli, milli}, r.pass(milli))
		_, err = r.Shutdown(t.Context(), Await)
		require.NoError(t, err)
	})
}

// AfterFunc's handle under fire: true from Stop if and only if it never runs.
func TestSchedulerStopHammer(t *testing.T) {
	const calls = 20_000
	r := schedStart(t, Options{Tick: 50 * time.Microsecond})
	var ended [calls]atomic.Int32
	start := time.Now()
	for i := range calls {
		c := r.after(time.Duration(i%7)*20*time.Microsecond, func() { ended[i].Add(1) })
		if i%3 == 0 {
			c.Reset(time.Duration(i%5) * 20 * time.Microsecond)
		}
		if i%2 == 0 {
			runtime.Gosched()
		}
		if c.Stop() {
			ended[i].Add(100)
		}
	}
	_, err := r.Shutdown(t.Context(), Await)
	require.NoError(t, err)
	counts := map[int32]int{}
	for i := range ended {
		counts[ended[i].Load()]++
	}
	require.Equal(t, calls, counts[1]+counts[100], "ended once: %v", counts)
	t.Logf("called %d, stopped %d in %v", counts[1], counts[100], time.Since(start))
}
