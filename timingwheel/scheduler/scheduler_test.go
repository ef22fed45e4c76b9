package scheduler

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{MaxPending: -1}, "scheduler: Options.MaxPending is -1, must be 0 (no bound) or more"},
		{Options{Tick: -1}, "Options.Tick is -1ns, must be at least 1ns"},
		{Options{Workers: -1}, "Options.Workers is -1, must be 1 to 65536"},
		{Options{WheelSize: 1}, "Options.WheelSize is 1, must be 2 to 65536"},
		{Options{Shards: 257}, "Options.Shards is 257, must be 1 to 256"},
	} {
		s, err := New(c.o)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "scheduler: ")
		require.Nil(t, s)
	}
}

// Bad arguments are errors that name the argument, its value and its range; nothing is
// scheduled or counted.
func TestBadArguments(t *testing.T) {
	r := newFixture(t, Options{})
	c, err := r.AfterFunc(0, nil)
	require.EqualError(t, err, "scheduler: the function is nil")
	require.Zero(t, c)
	inAnHour := scheduleFunc(func(t time.Time) time.Time { return t.Add(time.Hour) })
	fail := func() error { return nil }
	for _, c := range []struct {
		want string
		do   func() (*Job, error)
	}{
		{"the function is nil", func() (*Job, error) { return r.Every(1, nil, JobOptions{}) }},
		{"the function is nil", func() (*Job, error) { return r.EveryDelay(1, nil, JobOptions{}) }},
		{"the function is nil", func() (*Job, error) { return r.At(time.Now(), nil, JobOptions{}) }},
		{"the function is nil", func() (*Job, error) { return r.OnSchedule(inAnHour, nil, JobOptions{}) }},
		{"the function is nil", func() (*Job, error) { return r.Retry(1, nil, RetryOptions{}) }},
		{"the period of Every is 0s, must be more than 0", func() (*Job, error) { return r.Every(0, r.record, JobOptions{}) }},
		{"the period of Every is -1s, must be more than 0", func() (*Job, error) { return r.Every(-time.Second, r.record, JobOptions{}) }},
		{"the delay of EveryDelay is 0s, must be more than 0", func() (*Job, error) { return r.EveryDelay(0, r.record, JobOptions{}) }},
		{"the schedule of OnSchedule is nil", func() (*Job, error) { return r.OnSchedule(nil, r.record, JobOptions{}) }},
		{"JobOptions.Missed is Missed(3), must be Skip, Coalesce or RunAll", func() (*Job, error) { return r.Every(1, r.record, JobOptions{Missed: 3}) }},
		{"JobOptions.Jitter is -1ns, must be at least 0", func() (*Job, error) { return r.At(time.Now(), r.record, JobOptions{Jitter: -1}) }},
		{"RetryOptions.Base is -1ns, must be at least 1ns", func() (*Job, error) { return r.Retry(1, fail, RetryOptions{Base: -1}) }},
		{"RetryOptions.Factor is 0.9, must be at least 1, and finite", func() (*Job, error) { return r.Retry(1, fail, RetryOptions{Factor: 0.9}) }},
		{"RetryOptions.Factor is NaN, must be at least 1, and finite", func() (*Job, error) { return r.Retry(1, fail, RetryOptions{Factor: math.NaN()}) }},
		{"RetryOptions.Factor is +Inf, must be at least 1, and finite", func() (*Job, error) { return r.Retry(1, fail, RetryOptions{Factor: math.Inf(1)}) }},
		{"RetryOptions.Max is 99ms, must be at least Base, 100ms", func() (*Job, error) { return r.Retry(1, fail, RetryOptions{Max: 99 * milli}) }},
		{"RetryOptions.MaxAttempts is -1, must be 0 (no bound) or more", func() (*Job, error) { return r.Retry(1, fail, RetryOptions{MaxAttempts: -1}) }},
	} {
		j, err := c.do()
		require.EqualError(t, err, "scheduler: "+c.want)
		require.Nil(t, j)
	}
	require.Zero(t, r.Len())
	st := r.Stats()
	require.Zero(t, st.Scheduled+st.RefusedFull+st.RefusedClosed)
	require.Nil(t, r.jobs.first)
	require.Nil(t, r.clock.timer)
}

func TestMissedString(t *testing.T) {
	require.Equal(t, "Skip Coalesce RunAll Missed(3)", Skip.String()+" "+Coalesce.String()+" "+RunAll.String()+" "+Missed(3).String())
}

// The zero Scheduler panics; the zero Job has ended; the zero Call is no call.
func TestZeroValues(t *testing.T) {
	const want = "scheduler: the zero Scheduler is not usable, make one with New"
	var s Scheduler
	for _, do := range []func(){
		func() { _, _ = s.AfterFunc(0, func() {}) },
		func() { _, _ = s.Every(1, func() {}, JobOptions{}) },
		func() { _, _ = s.EveryDelay(1, func() {}, JobOptions{}) },
		func() { _, _ = s.OnSchedule(multiples{time.Hour, 0}, func() {}, JobOptions{}) },
		func() { _, _ = s.At(time.Now(), func() {}, JobOptions{}) },
		func() { _, _ = s.Retry(1, func() error { return nil }, RetryOptions{}) },
		func() { s.Len() },
		func() { s.Stats() },
		func() { s.Levels() },
		func() { _, _ = s.Close(timingwheel.Discard) },
		func() { _, _ = s.Shutdown(t.Context(), timingwheel.Discard) },
	} {
		require.PanicsWithValue(t, want, do)
	}
	var j Job
	require.False(t, j.Stop())
	require.Zero(t, j.Next())
	require.NoError(t, j.Err())
	var c Call
	require.False(t, c.Stop())
	require.False(t, c.Reset(time.Hour))
	at, ok := c.Deadline()
	require.False(t, ok)
	require.Zero(t, at)
}

// Waiting calls and jobs are on the levels of their own wheels.
func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{Shards: 1})
		count := func(levels []timingwheel.Level) (n int) {
			for _, l := range levels {
				n += l.Pending
			}
			return n
		}
		calls, jobs := r.Levels()
		require.Empty(t, calls)
		require.Empty(t, jobs, "before the first job")
		r.after(time.Second, r.record)
		r.after(time.Minute, r.record)
		r.every(time.Hour, r.record, JobOptions{})
		calls, jobs = r.Levels()
		require.Equal(t, []int{2, 1}, []int{count(calls), count(jobs)})
	})
}

func TestAfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		c := r.after(10*milli, r.record)
		require.Equal(t, 1, r.Len())
		at, ok := c.Deadline() // T17
		require.True(t, ok)
		require.Equal(t, 10*milli, at.Sub(r.created))
		require.Empty(t, r.advance(10*milli-1)) // T1
		require.Equal(t, durations{10 * milli}, r.advance(1))
		require.Zero(t, r.Len())
		require.False(t, c.Stop())
		require.False(t, c.Reset(milli), "unlike time.Timer's, it arms nothing (T5)")
		_, ok = c.Deadline()
		require.False(t, ok)
		require.Empty(t, r.advance(time.Hour))

		r.after(0, r.record)
		r.after(-1, r.record)
		r.after(math.MinInt64, r.record)
		require.Len(t, r.advance(0), 3) // T7
		never := r.after(math.MaxInt64, r.record)
		require.Empty(t, r.advance(1000*time.Hour)) // T8
		require.True(t, never.Stop())
	})
}

// T4, T5: Stop and Reset, and from within the function itself.
func TestCallStopReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		c := r.after(10*milli, r.record)
		require.True(t, c.Stop())
		require.False(t, c.Stop())
		require.False(t, c.Reset(milli))
		require.Empty(t, r.advance(time.Second))

		r.created = time.Now()
		c = r.after(10*milli, r.record)
		require.True(t, c.Reset(5*milli))
		require.Equal(t, durations{5 * milli}, r.advance(time.Second))

		r.created = time.Now()
		c = r.after(10*milli, r.record)
		require.Empty(t, r.advance(9*milli))
		require.True(t, c.Reset(10*milli))
		require.Equal(t, durations{19 * milli}, r.advance(time.Second))

		r.created = time.Now()
		c = r.after(10*milli, r.record)
		require.True(t, c.Touch(5*milli), "no deadline is pulled in")
		require.Empty(t, r.advance(9*milli))
		require.True(t, c.Touch(10*milli))
		require.Equal(t, durations{19 * milli}, r.advance(time.Second))
		require.False(t, c.Touch(milli))
		require.False(t, Call{}.Touch(milli))

		handle := make(chan Call, 1)
		handle <- r.after(milli, func() {
			c := <-handle
			if c.Stop() || c.Reset(milli) {
				t.Error("true from within")
			}
			r.record()
		})
		require.Len(t, r.advance(time.Second), 1)
	})
}

// A Call that is returned with an error is no call, whichever scheduler it names.
func TestRefusedCall(t *testing.T) {
	r := newFixture(t, Options{MaxPending: 1})
	first := r.after(time.Hour, r.record)
	full, err := r.AfterFunc(0, r.record)
	require.ErrorIs(t, err, ErrFull)
	require.Zero(t, full)
	require.True(t, first.Stop())
	_, err = r.Shutdown(t.Context(), timingwheel.Discard)
	require.NoError(t, err)
	closed, err := r.AfterFunc(0, r.record)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, closed)
	require.Empty(t, r.recorded())
	st := r.verify()
	require.Equal(t, []uint64{1, 1}, []uint64{st.RefusedFull, st.RefusedClosed}) // T17
}

// AfterFunc allocates only the closure.
func TestAfterFuncAllocations(t *testing.T) {
	r := newFixture(t, Options{})
	f := func() {}
	per := func(do func()) float64 {
		do()
		return testing.AllocsPerRun(1000, do)
	}
	require.Zero(t, per(func() { r.after(time.Hour, f).Stop() }))
	n := 0
	closure := per(func() { closureSink = func() { n++ } })
	require.LessOrEqual(t, per(func() { r.after(time.Hour, func() { n++ }).Stop() }), closure)
	// Pending, not stopped: memory grows by many at a time.
	require.Less(t, per(func() { r.after(time.Hour, f) }), 0.5)
}

var closureSink func()

// T10: a function that panics, or ends its goroutine, affects nothing else.
func TestFunctionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []any
		r := newFixture(t, Options{Workers: 1, OnPanic: func(p timingwheel.Panic) {
			require.Contains(t, string(p.Stack), "TestFunctionPanics")
			panics = append(panics, p.Value)
		}})
		r.after(milli, func() { panic("boo") })
		r.after(milli, runtime.Goexit)
		r.after(2*milli, r.record)
		require.Equal(t, durations{2 * milli}, r.advance(time.Second))
		require.Equal(t, []any{"boo"}, panics)
		require.Equal(t, uint64(1), r.Stats().Panics)
	})
}

// Panics of hooks go to OnPanic too; a panic in OnPanic goes to the log, and so do all panics
// without OnPanic.
func TestHookPanics(t *testing.T) {
	var buf bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&buf, nil)))
	defer slog.SetDefault(old)
	for _, onPanic := range []func(timingwheel.Panic){nil, func(timingwheel.Panic) { panic("in the handler") }} {
		synctest.Test(t, func(t *testing.T) {
			buf.Reset()
			r := newFixture(t, Options{OnPanic: onPanic})
			r.job(r.At(time.Now(), r.record, JobOptions{OnEnd: func(*Job, error) { panic("in the hook") }}))
			require.Len(t, r.advance(0), 1)
			require.Equal(t, uint64(1), r.Stats().Panics)
			require.Contains(t, buf.String(), "in the hook")
			want := 1
			if onPanic != nil {
				require.Contains(t, buf.String(), "in the handler")
				want = 2
			}
			require.Equal(t, want, bytes.Count(buf.Bytes(), []byte("level=ERROR")), buf.String())
		})
	}
}

// T14, timers 16: setting the wall clock changes no delay.
func TestMonotonicIgnoresWallClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			j := r.at(100*time.Hour, func() {}) // so that the clock is checked
			r.after(10*time.Minute, r.record)
			r.every(3*time.Minute, r.record, JobOptions{})
			require.Empty(t, r.advance(time.Minute))
			require.Equal(t, []*Job{j}, r.jobs.byWallClock())
			r.setWall(by)
			const minute = time.Minute
			require.Equal(t, durations{3 * minute, 6 * minute, 9 * minute, 10 * minute, 12 * minute}, r.advance(11*minute))
			require.Equal(t, uint64(1), r.Stats().ClockSteps)
			require.True(t, j.Stop())
		})
	}
}

// timers 9: a function that reschedules itself, also at the bound.
func TestReschedulesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1})
		var f func()
		f = func() {
			r.record()
			if len(r.runs) < 1000 {
				r.after(milli, f)
			}
		}
		r.after(milli, f)
		require.Equal(t, times(milli, time.Second, milli), r.advance(time.Minute))
		require.Zero(t, r.Stats().RefusedFull)
	})
}

// T12: a function may call everything, and Len and Stats are right there.
func TestMethodsFromFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{Workers: 1})
		other := r.every(time.Hour, r.record, JobOptions{})
		r.after(milli, func() {
			require.Equal(t, 1, r.Len(), "a call does not count any more when it is called")
			require.Equal(t, uint64(1), r.verify().Ended)
			require.True(t, other.Stop())
			require.Zero(t, r.Len())
			r.after(milli, r.record)
			r.at(3*milli, r.record)
		})
		require.Equal(t, durations{2 * milli, 3 * milli}, r.advance(time.Second))

		r.created = time.Now()
		var within []int
		j := r.every(milli, func() { within = append(within, r.Len()) }, JobOptions{})
		r.advance(2 * milli)
		require.Equal(t, []int{1, 1}, within, "a job counts while it runs")
		require.True(t, j.Stop())
	})
}

// T3, T4: under load Stop is true if and only if the function never runs, and the statistics
// always add up.
func TestStopHammer(t *testing.T) {
	t.Parallel()
	const calls = 20_000
	for _, bound := range []int{0, calls + 1} {
		r := newFixture(t, Options{Tick: 50 * time.Microsecond, MaxPending: bound})
		var ended [calls]atomic.Int32
		stop := make(chan struct{})
		read := make(chan struct{})
		go func() {
			defer close(read)
			for {
				select {
				case <-stop:
					return
				default:
					st := r.Stats()
					if st.Scheduled != uint64(st.Pending)+st.Stopped+st.Ended || st.Pending < 0 || st.Jobs < 0 || st.Jobs > 1 {
						t.Errorf("%+v", st)
						return
					}
					runtime.Gosched()
				}
			}
		}()
		for i := range calls {
			c := r.after(time.Duration(i%7)*20*time.Microsecond, func() { ended[i].Add(1) })
			if i%3 == 0 {
				c.Reset(time.Duration(i%5) * 20 * time.Microsecond)
			}
			if i%2 == 0 {
				runtime.Gosched()
			}
			if i%16 == 0 {
				j := r.every(time.Duration(1+i%3)*50*time.Microsecond, func() {}, JobOptions{})
				runtime.Gosched()
				require.True(t, j.Stop())
			}
			if c.Stop() {
				ended[i].Add(100)
			}
		}
		close(stop)
		<-read
		_, err := r.Shutdown(t.Context(), timingwheel.Await)
		require.NoError(t, err)
		counts := map[int32]int{}
		for i := range ended {
			counts[ended[i].Load()]++
		}
		require.Equal(t, calls, counts[1]+counts[100], "ended once: %v", counts)
		st := r.verify()
		require.Equal(t, uint64(counts[1]), st.Ended)
		require.Equal(t, uint64(counts[100]+calls/16), st.Stopped)
	}
}

// timers 17, T13, T18: a scheduler that was shut down can be collected, and so can ended jobs
// while the scheduler is in use and others remain.
func TestCollected(t *testing.T) {
	s, err := New(Options{})
	require.NoError(t, err)
	inAnHour := time.Now().Add(time.Hour)
	kept, err := s.At(inAnHour, func() {}, JobOptions{})
	require.NoError(t, err)
	const n = 20_000
	collected := make([]weak.Pointer[Job], n)
	func() {
		all := make([]*Job, n)
		for i := range all {
			all[i], err = s.At(inAnHour, func() {}, JobOptions{})
			require.NoError(t, err)
			collected[i] = weak.Make(all[i])
		}
		for _, j := range all {
			require.True(t, j.Stop())
		}
	}()
	require.Equal(t, kept, s.jobs.first)
	require.Nil(t, kept.next)
	require.Nil(t, kept.prev)
	collectUntil(func() bool {
		for i := range collected {
			if collected[i].Value() != nil {
				return false
			}
		}
		return true
	})
	_, err = s.Shutdown(t.Context(), timingwheel.Discard)
	require.NoError(t, err)
	scheduler := weak.Make(s)
	s, kept = nil, nil
	collectUntil(func() bool { return scheduler.Value() == nil })
}

// collectUntil collects until done returns true; the test's timeout is its limit.
func collectUntil(done func() bool) {
	for !done() {
		runtime.GC()
		runtime.Gosched()
	}
}

// panickingHandler is a slog.Handler that panics.
type panickingHandler struct{ slog.Handler }

func (h panickingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h panickingHandler) Handle(context.Context, slog.Record) error { panic("in the logger") }

// A logger that panics while it logs a panic ends neither the process, nor the worker, nor the
// job.
func TestLoggerPanics(t *testing.T) {
	old, out, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(panickingHandler{slog.DiscardHandler}))
	defer func() { // SetDefault has changed the package log, too
		slog.SetDefault(old)
		log.SetOutput(out)
		log.SetFlags(flags)
	}()
	for _, onPanic := range []func(timingwheel.Panic){nil, func(timingwheel.Panic) { panic("in the handler") }} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{Workers: 1, OnPanic: onPanic})
			r.after(milli, func() { panic("in the function") })
			r.every(milli, func() { r.record(); panic("in the job") }, JobOptions{})
			r.on(scheduleFunc(func(at time.Time) time.Time {
				if at.After(r.created) {
					panic("in the schedule")
				}
				return at.Add(milli)
			}), func() {}, JobOptions{OnEnd: func(*Job, error) { panic("in the hook") }})
			r.after(2*milli, r.record)
			require.Equal(t, durations{milli, 2 * milli, 2 * milli, 3 * milli}, r.advance(3*milli))
			require.Equal(t, uint64(6), r.Stats().Panics)
		})
	}
}

// T9: an idle scheduler, and one whose jobs all follow the monotonic clock, reads no wall clock
// and arms no check.
func TestNoWallClockWithoutWallJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		r.every(time.Minute, r.record, JobOptions{})
		require.Len(t, r.advance(time.Hour), 60)
		require.Zero(t, r.readings.Load())
		require.Nil(t, r.clock.timer)
	})
}
