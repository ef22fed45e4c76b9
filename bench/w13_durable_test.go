package main

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeDurable holds timers in memory.
type fakeDurable struct {
	mu      sync.Mutex
	held    int
	waiting []durableTimer // until a worker starts
	ran     func(id int)

	slow   time.Duration // duration of Schedule
	ahead  time.Duration // how early timers run
	twice  bool          // each timer runs twice
	loses  int           // the number of the timer that never runs; 0 if all run
	keeps  bool          // timers are kept after they have run
	broken error         // of Schedule
	closed bool
}

func (f *fakeDurable) Schedule(timers []durableTimer) error {
	time.Sleep(f.slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held += len(timers)
	f.waiting = append(f.waiting, timers...)
	f.startLocked()
	return f.broken
}

func (f *fakeDurable) startLocked() {
	if f.ran == nil {
		return
	}
	for _, t := range f.waiting {
		if f.loses != 0 && t.id == f.loses {
			continue
		}
		time.AfterFunc(time.Until(t.due)-f.ahead, func() {
			if !f.keeps { // before the run, so that none is held once all have run
				f.mu.Lock()
				f.held--
				f.mu.Unlock()
			}
			f.ran(t.id)
			if f.twice {
				f.ran(t.id)
			}
		})
	}
	f.waiting = nil
}

func (f *fakeDurable) Work(ran func(id int)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ran = ran
	f.startLocked()
	return nil
}

func (f *fakeDurable) Remaining() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held, nil
}

func (f *fakeDurable) Bytes() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(1000 + 7*f.held), nil
}

func (f *fakeDurable) Close() error {
	f.closed = true
	return nil
}

func measureFake(t *testing.T, n int, template *fakeDurable) (res Result, err error) {
	synctest.Test(t, func(t *testing.T) {
		var opened []*fakeDurable
		res, err = measureDurable(Job{Workload: "W13", Params: Params{"timers": n}, Slack: 1}, func() (durableTimers, error) {
			f := &fakeDurable{
				slow: template.slow, ahead: template.ahead, twice: template.twice, loses: template.loses,
				keeps: template.keeps, broken: template.broken,
			}
			opened = append(opened, f)
			return f, nil
		})
		for _, f := range opened {
			require.True(t, f.closed)
		}
	})
	return res, err
}

func TestDurableMetrics(t *testing.T) {
	res, err := measureFake(t, 20_000, &fakeDurable{slow: 10 * time.Millisecond})
	require.NoError(t, err)
	require.False(t, res.TooSlow)
	require.Equal(t, Metrics{
		"schedules_per_s":  20_000, // two producers, a batch of 100 in 10 ms
		"lifecycles_per_s": 20_000,
		"bytes_per_timer":  7,
		"early":            0, "late_p50_ms": 0, "late_p99_ms": 0,
	}, res.Metrics)
	require.Len(t, res.Quantiles, len(quantilePoints))
}

func TestDurableEarlyOnesAreCounted(t *testing.T) {
	res, err := measureFake(t, 1_000, &fakeDurable{ahead: 3 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, 1_000., res.Metrics["early"])
	require.Equal(t, -3., res.Metrics["late_p50_ms"])
}

// A repeated run does not count as the run of another timer.
func TestDurableRunsCountOnce(t *testing.T) {
	_, err := measureFake(t, 25_000, &fakeDurable{twice: true})
	require.NoError(t, err)
	_, err = measureFake(t, 1_000, &fakeDurable{twice: true, loses: 17})
	require.ErrorContains(t, err, "1 of 1000 timers have not run after 5m0s")
}

func TestDurableLifecyclesEndWhenNothingIsPending(t *testing.T) {
	_, err := measureFake(t, 1_000, &fakeDurable{keeps: true})
	require.ErrorContains(t, err, "1000 timers are left, 5m0s after all have run")
}

func TestDurableTimersDueBeforeAllAreScheduled(t *testing.T) {
	res, err := measureFake(t, 20_000, &fakeDurable{slow: 100 * time.Millisecond})
	require.NoError(t, err)
	require.True(t, res.TooSlow)
}

func TestDurableErrorsEndTheJob(t *testing.T) {
	broken := errors.New("broken")
	_, err := measureFake(t, 1_000, &fakeDurable{broken: broken})
	require.ErrorIs(t, err, broken)
}

// Each rival does the job, in processes as in a real run.
func TestDurableWorkload(t *testing.T) {
	t.Parallel()
	requireReady(t, redisReady)
	results, _ := quickRun(t, "W13", []string{"w13_schedules.png", "w13_lifecycles.png", "w13_lateness.png"})
	for _, r := range results {
		for _, name := range durableWorkload.metrics {
			require.Contains(t, r.Metrics, name)
		}
		require.Positive(t, r.Metrics["schedules_per_s"])
		require.Positive(t, r.Metrics["lifecycles_per_s"])
		if limboImpls[r.Impl] {
			require.Zero(t, r.Metrics["early"], r.Impl)
		}
	}
	require.Equal(t, []string{"durable-redis", "durable-pebble", "asynq", "nats"}, implsIn(results))
}
