package scheduler

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// This test runs first: it fails with a message where another would hang.

// T12: no method keeps a lock, whatever its result; nor does a run, or a check of the clock.
func TestNoMethodKeepsALock(t *testing.T) {
	ended := &Job{state: jobEnded}
	require.False(t, ended.begin(), "a job that was stopped runs")
	require.True(t, ended.mu.TryLock(), "a run of a job that was stopped keeps Job.mu")

	// A worker that waits for a lock prevents its bubble from coming to rest.
	var step atomic.Value
	limit := time.AfterFunc(time.Minute, func() { panic(fmt.Sprint("after ", step.Load(), " something waits for a lock")) })
	defer limit.Stop()
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{MaxPending: 3})
			var jobs []*Job
			free := func(method string) {
				t.Helper()
				step.Store(method)
				synctest.Wait()
				locks := map[string]*sync.Mutex{"Scheduler.closing": &r.closing, "jobs.mu": &r.jobs.mu, "wallClock.mu": &r.clock.mu}
				for _, j := range jobs {
					locks["Job.mu"] = &j.mu
					for name, mu := range locks {
						require.True(t, mu.TryLock(), "%s keeps %s", method, name)
						mu.Unlock()
					}
				}
			}
			add := func(j *Job, err error) {
				if err == nil {
					jobs = append(jobs, j)
				}
			}
			jobs = append(jobs, &Job{})
			everything := func() {
				for range 2 { // the second is beyond the bound
					c, _ := r.AfterFunc(time.Second, func() {})
					free("AfterFunc")
					add(r.Every(time.Second, r.record, JobOptions{}))
					free("Every")
					add(r.OnSchedule(multiples{time.Hour, 0}, r.record, JobOptions{}))
					free("OnSchedule")
					c.Stop()
					free("Call.Stop")
				}
				add(r.Retry(0, func() error { return errors.New("once more") }, RetryOptions{MaxAttempts: 2}))
				free("Retry")
				add(r.OnSchedule(&timeList{}, r.record, JobOptions{}))
				free("OnSchedule without a run")
				r.Len()
				free("Len")
				r.Stats()
				free("Stats")
				r.Levels()
				free("Levels")
				step.Store("a run")
				time.Sleep(2 * time.Second)
				free("a run")
				r.setWall(-time.Hour)
				step.Store("a check of the clock")
				time.Sleep(2 * time.Second)
				free("a check of the clock")
				for _, j := range jobs {
					_, _ = j.Next(), j.Err()
					free("Next")
				}
				for range 2 {
					for _, j := range jobs[:len(jobs)-1] {
						j.Stop()
						free("Job.Stop")
					}
				}
				add(r.At(r.wallNow().Add(time.Minute), r.record, JobOptions{}))
				free("At")
			}
			everything()
			_, err := r.Close(policy)
			require.NoError(t, err)
			free("Close")
			everything()
		})
	}
}

// T13, T2: scheduled functions run, and a shutdown ends under each policy.
func TestFunctionsRunAndShutdownEnds(t *testing.T) {
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			r.after(time.Second, r.record)
			r.every(time.Second, r.record, JobOptions{})
			r.on(multiples{time.Second, 0}, r.record, JobOptions{})
			r.at(time.Second, r.record)
			require.Len(t, r.advance(time.Second+milli), 4)
			_, err := r.Close(policy)
			require.NoError(t, err)
			r.advance(time.Minute)
			require.Zero(t, r.Len(), "T13: %v does not end", policy)
			require.Zero(t, r.checks())
			require.Zero(t, r.Stats().CallWheel.Workers)
		})
	}
}

// A schedule without a further time ends the job, for each Missed, or the job would run without
// end, at once.
func TestNoRunAfterTheLast(t *testing.T) {
	now := time.Now()
	for _, missed := range []Missed{Skip, Coalesce, RunAll} {
		p := &recurring{&timeList{}, missed, true}
		_, err := p.after(now, now, now, 0)
		require.ErrorIs(t, err, errNoRun, missed)
	}
}
