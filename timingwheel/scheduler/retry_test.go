package scheduler

import (
	"errors"
	"io/fs"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

var errTry = errors.New("try again")

// failing returns a function for Retry that fails n times.
func (r *fixture) failing(n int) func() error {
	return func() error {
		r.record()
		if n--; n >= 0 {
			return errTry
		}
		return nil
	}
}

// The waits of a fixed backoff, from the end of each attempt.
func TestRetryBackoff(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		o    RetryOptions
		want durations
	}{
		{RetryOptions{}, durations{1000 * milli, 1100 * milli, 1300 * milli, 1700 * milli, 2500 * milli}},
		{RetryOptions{Base: second}, durations{second, 2 * second, 4 * second, 8 * second, 16 * second}},
		{RetryOptions{Base: second, Factor: 1}, durations{second, 2 * second, 3 * second, 4 * second, 5 * second}},
		{RetryOptions{Base: second, Factor: 1.5}, durations{second, 2 * second, 3500 * milli, 5750 * milli, 9125 * milli}},
		{RetryOptions{Base: second, Max: 3 * second}, durations{second, 2 * second, 4 * second, 7 * second, 10 * second}},
		{RetryOptions{Base: 40 * second}, durations{second, 41 * second, 101 * second, 161 * second, 221 * second}},
		{RetryOptions{Base: 100 * second}, durations{second, 101 * second, 201 * second, 301 * second, 401 * second}},
		{RetryOptions{Base: second, Factor: 1e300, Max: 2 * second}, durations{second, 2 * second, 4 * second, 6 * second, 8 * second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var e ends
			c.o.FixedBackoff, c.o.OnEnd = true, e.record
			j := r.job(r.Retry(second, r.failing(4), c.o))
			require.Equal(t, r.created.Add(second), j.Next())
			require.Equal(t, 1, r.Len())
			// On the wheel, which rounds up to the millisecond.
			require.Equal(t, c.want, r.advance(time.Hour), "%+v", c.o)
			require.NoError(t, j.Err())
			require.Equal(t, []error{nil}, e.recorded())
			require.Zero(t, j.Next())
			require.Zero(t, r.Len())
			require.False(t, j.Stop())
		})
	}
	// A long attempt shifts the following ones.
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		fail := r.failing(2)
		r.job(r.Retry(-1, func() error { defer time.Sleep(time.Minute); return fail() }, RetryOptions{Base: time.Second, FixedBackoff: true}))
		require.Equal(t, durations{0, 61 * time.Second, 123 * time.Second}, r.advance(time.Hour))
	})
}

// Full jitter: each wait is between zero and the backoff, and comes near both.
func TestRetryFullJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		j := r.job(r.Retry(0, func() error { r.record(); return errTry }, RetryOptions{Base: time.Second, Factor: 1}))
		runs := r.advance(time.Hour)
		require.True(t, j.Stop())
		low, high := 0, 0
		for i := range len(runs) - 1 {
			wait := runs[i+1] - runs[i]
			require.LessOrEqual(t, wait, time.Second)
			if wait < 300*milli {
				low++
			}
			if wait > 700*milli {
				high++
			}
		}
		require.Greater(t, low, 1000)
		require.Greater(t, high, 1000)
	})
}

// The longest possible backoff neither wraps nor ends.
func TestRetryLongestBackoff(t *testing.T) {
	for _, factor := range []float64{2, 3} { // factor 2 reaches 2^63, the float64 of the longest
		for _, fixed := range []bool{true, false} {
			r := retry{options: RetryOptions{Factor: factor, Max: math.MaxInt64, FixedBackoff: fixed}, backoff: 1}
			for range 100 {
				require.GreaterOrEqual(t, r.wait(), time.Duration(0))
			}
			require.Equal(t, time.Duration(math.MaxInt64), r.backoff)
		}
	}
}

// The shortest possible backoff grows by any factor except 1.
func TestRetryShortestBackoff(t *testing.T) {
	for _, c := range []struct {
		base   time.Duration
		factor float64
		want   durations
	}{
		{1, 1.5, durations{1, 2, 3, 5, 8, 12}},
		{9, 1.1, durations{9, 10, 11, 13, 15, 17}},
		{1, 1.0001, durations{1, 2, 3, 4, 5, 6}},
		{1, 1, durations{1, 1, 1, 1, 1, 1}},
		{100 * milli, 1, durations{100 * milli, 100 * milli, 100 * milli}},
	} {
		r := retry{options: RetryOptions{Factor: c.factor, Max: time.Minute, FixedBackoff: true}, backoff: c.base}
		var waits durations
		for range c.want {
			waits = append(waits, r.wait())
		}
		require.Equal(t, c.want, waits, "%+v", c)
		if c.factor > 1.1 {
			for range 1000 {
				r.wait()
			}
			require.Equal(t, time.Minute, r.backoff)
		}
	}
}

func TestRetryGivesUp(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var e ends
			j := r.job(r.Retry(0, r.failing(99), RetryOptions{MaxAttempts: attempts, OnEnd: e.record}))
			require.Len(t, r.advance(time.Hour), attempts)
			require.ErrorIs(t, j.Err(), ErrGaveUp)
			require.ErrorIs(t, j.Err(), errTry)
			require.Equal(t, []error{j.Err()}, e.recorded())
			require.Zero(t, r.Len())
			require.Equal(t, uint64(1), r.Stats().Ended)

			j = r.job(r.Retry(0, r.failing(attempts-1), RetryOptions{MaxAttempts: attempts, OnEnd: e.record}))
			require.Len(t, r.advance(time.Hour), attempts)
			require.NoError(t, j.Err())
			require.Equal(t, []error{nil}, e.recorded())
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		j := r.job(r.Retry(0, r.failing(99), RetryOptions{MaxAttempts: 3}))
		r.advance(time.Hour)
		require.EqualError(t, j.Err(), "scheduler: gave up after 3 attempts: try again")
	})
}

// An attempt that panics, or ends its goroutine, has failed.
func TestRetryPanics(t *testing.T) {
	for _, crash := range []func(){func() { panic("boo") }, runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{OnPanic: func(timingwheel.Panic) {}})
			n := 0
			j := r.job(r.Retry(0, func() error {
				r.record()
				if n++; n == 2 {
					crash()
				}
				if n < 4 {
					return errTry
				}
				return nil
			}, RetryOptions{}))
			require.Len(t, r.advance(time.Hour), 4)
			require.NoError(t, j.Err())

			j = r.job(r.Retry(0, func() error { crash(); return nil }, RetryOptions{MaxAttempts: 2}))
			r.advance(time.Hour)
			require.ErrorIs(t, j.Err(), ErrGaveUp)
			require.ErrorIs(t, j.Err(), ErrPanicked)
		})
	}
}

// countingError is an error that records calls of its methods, and matches any error.
type countingError struct{ calls *[]string }

func (e countingError) record(method string) { *e.calls = append(*e.calls, method) }

func (e countingError) Error() string { e.record("Error"); return "asked" }

func (e countingError) Is(error) bool { e.record("Is"); return true }

func (e countingError) Unwrap() error { e.record("Unwrap"); return nil }

// However a Retry ends, no method of its errors is called for that, and the error does not
// determine how it ended.
func TestRetryCallsNoMethodOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		var calls []string
		var e ends
		j := r.job(r.Retry(0, func() error { return countingError{&calls} }, RetryOptions{MaxAttempts: 2, OnEnd: e.record}))
		r.advance(time.Hour)
		require.Empty(t, calls)
		require.Len(t, e.recorded(), 1)
		require.EqualError(t, j.Err(), "scheduler: gave up after 2 attempts: asked")
		require.ErrorIs(t, j.Err(), ErrGaveUp)
		var last countingError
		require.ErrorAs(t, j.Err(), &last)
	})
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var calls []string
			j := r.job(r.Retry(0, func() error { return countingError{&calls} }, RetryOptions{Base: time.Minute, FixedBackoff: true}))
			r.advance(time.Second)
			_, err := r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
			require.Empty(t, calls)
			require.EqualError(t, j.Err(), "scheduler: closed; the last attempt: asked")
			require.ErrorIs(t, j.Err(), ErrClosed)
		})
	}
	// An error that matches one of this package: another scheduler was closed.
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		j := r.job(r.Retry(0, func() error { return ErrClosed }, RetryOptions{MaxAttempts: 2}))
		k := r.job(r.Retry(0, func() error { return errNoRun }, RetryOptions{MaxAttempts: 2}))
		r.advance(time.Hour)
		require.EqualError(t, j.Err(), "scheduler: gave up after 2 attempts: scheduler: closed")
		require.EqualError(t, k.Err(), "scheduler: gave up after 2 attempts: no further run")
	})
	// An error whose methods panic.
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		f := func() error { var e *fs.PathError; return e }
		j := r.job(r.Retry(0, f, RetryOptions{MaxAttempts: 1}))
		k := r.job(r.Retry(0, f, RetryOptions{Base: time.Hour, FixedBackoff: true}))
		r.advance(time.Second)
		require.Equal(t, 1, r.Len())
		_, err := r.Shutdown(t.Context(), timingwheel.Discard)
		require.NoError(t, err)
		require.EqualError(t, j.Err(), "scheduler: gave up after 1 attempts: <nil>")
		require.EqualError(t, k.Err(), "scheduler: closed; the last attempt: <nil>")
	})
}

// Stopped between two attempts, and within one.
func TestRetryStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1})
		j := r.job(r.Retry(0, r.failing(99), RetryOptions{Base: time.Minute, FixedBackoff: true}))
		require.Len(t, r.advance(time.Second), 1)
		_, err := r.AfterFunc(0, r.record)
		require.ErrorIs(t, err, ErrFull, "it keeps its slot between attempts")
		require.Equal(t, r.created.Add(time.Minute), j.Next())
		require.True(t, j.Stop())
		require.NoError(t, j.Err())
		require.Empty(t, r.advance(time.Hour))
	})
}

// Each policy, with a Retry that waits for its second attempt, and with one during an attempt.
func TestRetryShutdown(t *testing.T) {
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var e ends
			attempts := 0
			j := r.job(r.Retry(0, func() error { attempts++; return errTry }, RetryOptions{Base: time.Minute, FixedBackoff: true, OnEnd: e.record}))
			r.advance(time.Second)
			returned, err := r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
			require.ErrorIs(t, j.Err(), ErrClosed)
			require.ErrorIs(t, j.Err(), errTry)
			require.Equal(t, []error{j.Err()}, e.recorded())
			if policy == timingwheel.Return {
				require.Len(t, returned, 1)
				require.Equal(t, j, returned[0].Job)
				require.Equal(t, r.created.Add(time.Minute), returned[0].Deadline)
				returned[0].Func()
				require.Equal(t, 2, attempts)
				require.Equal(t, 1, j.planner.(*retry).attempts, "that was none of the job's")
				return
			}
			require.Empty(t, returned)
			require.Equal(t, policy >= timingwheel.RunNow, attempts == 2)
		})
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			j := r.job(r.Retry(time.Second, func() error { time.Sleep(time.Minute); return nil }, RetryOptions{}))
			k := r.job(r.Retry(time.Second, func() error { time.Sleep(time.Minute); return errTry }, RetryOptions{}))
			never := r.job(r.Retry(time.Hour, func() error { return nil }, RetryOptions{}))
			r.advance(2 * time.Second)
			returned, err := r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
			require.Equal(t, policy == timingwheel.Return, len(returned) == 1)
			require.NoError(t, j.Err(), "it succeeded")
			require.ErrorIs(t, k.Err(), ErrClosed)
			require.ErrorIs(t, k.Err(), errTry)
			if policy < timingwheel.RunNow {
				require.Equal(t, ErrClosed, never.Err(), "there was no attempt")
			} else {
				require.NoError(t, never.Err())
			}
		})
	}
}
