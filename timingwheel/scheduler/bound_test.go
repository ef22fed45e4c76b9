package scheduler

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

// A recurring job does not end when the scheduler is full: it holds its slot during runs, too.
func TestJobKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1})
		refused := 0
		f := func() {
			r.record()
			require.Equal(t, 1, r.Len())
			_, err := r.AfterFunc(time.Hour, func() {})
			require.ErrorIs(t, err, ErrFull)
			refused++
		}
		for _, start := range []func() *Job{
			func() *Job { return r.every(10*milli, f, JobOptions{}) },
			func() *Job { return r.job(r.EveryDelay(10*milli, f, JobOptions{})) },
			func() *Job { return r.on(multiples{10 * milli, 0}, f, JobOptions{}) },
		} {
			r.created = time.Now()
			j := start()
			for _, again := range []func() (*Job, error){
				func() (*Job, error) { return r.Every(milli, r.record, JobOptions{}) },
				func() (*Job, error) { return r.EveryDelay(milli, r.record, JobOptions{}) },
				func() (*Job, error) { return r.At(time.Now(), r.record, JobOptions{}) },
				func() (*Job, error) { return r.OnSchedule(multiples{milli, 0}, r.record, JobOptions{}) },
				func() (*Job, error) { return r.Retry(milli, r.failing(0), RetryOptions{}) },
			} {
				k, err := again()
				require.ErrorIs(t, err, ErrFull)
				require.Nil(t, k)
				refused++
			}
			require.Equal(t, times(10*milli, 100*milli, 10*milli), r.advance(105*milli))
			require.NoError(t, j.Err())
			require.Equal(t, uint64(refused), r.Stats().RefusedFull) // T17
			require.True(t, j.Stop())
			require.Zero(t, r.Len())
			require.Nil(t, r.jobs.first)
			require.Zero(t, r.clock.watchers, "nothing is left of those refused")
		}
	})
}

// timers 5: a call has freed its slot when its function is called. A job frees its slot when it
// has ended, whether or not it is then running.
func TestSlotIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1})
		r.after(milli, func() { r.after(milli, func() { r.at(3*milli, r.record) }) })
		require.Equal(t, durations{3 * milli}, r.advance(time.Second))
		require.Zero(t, r.Stats().RefusedFull)

		var j *Job
		j = r.every(milli, func() {
			require.True(t, j.Stop())
			r.after(milli, r.record)
			time.Sleep(time.Second)
		}, JobOptions{})
		r.advance(milli)
		require.Equal(t, 1, r.Len())
		require.Len(t, r.advance(time.Minute), 1)

		c := r.after(time.Hour, r.record)
		require.True(t, c.Stop())
		j = r.at(24*time.Hour, r.record)
		require.True(t, j.Stop())
		r.after(0, r.record)
		require.Len(t, r.advance(0), 1)
	})
}

// The bound is exact under load: never more are held, and when all have left exactly that many
// fit.
func TestBoundHammer(t *testing.T) {
	t.Parallel()
	const bound = 8
	r := newFixture(t, Options{MaxPending: bound, Tick: 20 * time.Microsecond})
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	var held atomic.Int32 // at least the number held: counted before it can have ended
	var done sync.WaitGroup
	for g := range 4 {
		done.Go(func() {
			for i := range rounds {
				switch (i + g) % 3 {
				case 0:
					c, err := r.AfterFunc(time.Duration(i%5)*20*time.Microsecond, func() {})
					if err == nil && i%2 == 0 {
						c.Stop()
					}
				case 1:
					j, err := r.Every(20*time.Microsecond, runtime.Gosched, JobOptions{})
					if err == nil {
						if n := held.Add(1); n > bound {
							t.Errorf("%d jobs held", n)
						}
						runtime.Gosched()
						held.Add(-1)
						if !j.Stop() {
							t.Errorf("ended: %v", j.Err())
						}
					}
				case 2:
					if n := r.Len(); n < 0 || n > bound {
						t.Errorf("Len %d", n)
					}
				}
			}
		})
	}
	done.Wait()
	for r.Len() > 0 {
		runtime.Gosched()
	}
	for range bound - 1 {
		r.after(time.Hour, func() {})
	}
	r.at(time.Hour, func() {})
	_, err := r.AfterFunc(time.Hour, func() {})
	require.ErrorIs(t, err, ErrFull)
	require.Equal(t, bound, r.Len())
}

// White box: when a shutdown frees the slots of jobs, calls are already refused, and none takes
// a slot.
func TestBoundInShutdown(t *testing.T) {
	r := newFixture(t, Options{MaxPending: 2})
	for range 2 {
		r.every(time.Hour, func() {}, JobOptions{})
	}
	r.jobs.close()
	require.Zero(t, r.jobs.slots)
	_, err := r.AfterFunc(time.Hour, func() {})
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, 2, r.Len())
}

// T3, T17: operations in any order match sets of the calls and jobs held: Len, the errors and the
// statistics are those of the sets.
func TestBoundModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		checkBound(t, seed)
	}
}

func FuzzBound(f *testing.F) {
	f.Add(uint64(1000))
	f.Fuzz(checkBound)
}

func checkBound(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newRand(seed)
		bound := x.IntN(6)
		r := newFixture(t, Options{MaxPending: bound})
		type call struct {
			Call
			at time.Duration
		}
		var calls []call
		var jobs []*Job // that do not end
		var ended, stopped, full uint64
		sweep := func() { // calls whose function was called
			n := 0
			for _, c := range calls {
				if c.at > r.since() {
					calls[n] = c
					n++
				} else {
					ended++
					require.False(t, c.Stop())
				}
			}
			calls = calls[:n]
		}
		fits := func(err error) bool {
			t.Helper()
			if bound > 0 && len(calls)+len(jobs) >= bound {
				require.ErrorIs(t, err, ErrFull)
				full++
				return false
			}
			require.NoError(t, err)
			return true
		}
		for range 400 {
			switch x.IntN(7) {
			case 0, 1:
				d := time.Duration(1+x.IntN(20)) * milli
				c, err := r.AfterFunc(d, func() {})
				if fits(err) {
					calls = append(calls, call{c, r.since() + d})
				}
			case 2:
				var j *Job
				var err error
				switch d := time.Duration(1+x.IntN(5)) * milli; x.IntN(5) {
				case 0:
					j, err = r.Every(d, func() {}, JobOptions{Missed: Missed(x.IntN(3))})
				case 1:
					j, err = r.EveryDelay(d, func() {}, JobOptions{Jitter: d})
				case 2:
					j, err = r.OnSchedule(multiples{d, 0}, func() {}, JobOptions{})
				case 3:
					j, err = r.At(r.wallNow().Add(1000*time.Hour), func() {}, JobOptions{})
				case 4:
					j, err = r.Retry(d, func() error { return errTry }, RetryOptions{})
				}
				if fits(err) {
					jobs = append(jobs, j)
				}
			case 3:
				if len(calls) > 0 {
					i := x.IntN(len(calls))
					require.True(t, calls[i].Stop())
					calls = append(calls[:i], calls[i+1:]...)
					stopped++
				}
			case 4:
				if len(jobs) > 0 {
					i := x.IntN(len(jobs))
					require.True(t, jobs[i].Stop())
					require.False(t, jobs[i].Stop())
					jobs = append(jobs[:i], jobs[i+1:]...)
					stopped++
				}
			case 5:
				r.advance(time.Duration(x.IntN(10)) * milli)
				sweep()
			case 6:
				r.setWall(time.Duration(x.IntN(2000)-1000) * milli)
			}
			require.Equal(t, len(calls)+len(jobs), r.Len(), "seed %d", seed)
			st := r.verify()
			require.Equal(t, len(jobs), st.Jobs)
			require.LessOrEqual(t, st.JobWheel.Pending, len(jobs), "a job that has ended is on the wheel")
			require.Equal(t, []uint64{ended, stopped, full, 0}, []uint64{st.Ended, st.Stopped, st.RefusedFull, st.RefusedClosed}, "seed %d", seed)
		}
		policy := policies[x.IntN(2)]
		returned, err := r.Shutdown(t.Context(), policy)
		require.NoError(t, err)
		st := r.verify()
		require.Zero(t, st.Pending)
		held := len(calls) + len(jobs)
		if policy == timingwheel.Return {
			require.Len(t, returned, held)
			require.Equal(t, []uint64{uint64(held), 0}, []uint64{st.Returned, st.Discarded})
		} else {
			require.Equal(t, []uint64{0, uint64(held)}, []uint64{st.Returned, st.Discarded})
		}
	})
}
