package checks

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
	"github.com/stretchr/testify/require"
)

// The schedules of github.com/robfig/cron are the scheduler's as they are. They
// name their time zone, so that the machine's own does not matter.

// cronJob is a job in a bubble, whose clock starts at midnight in UTC, with the
// times of its runs since then.
type cronJob struct {
	*scheduler.Job
	t     *testing.T
	s     *scheduler.Scheduler
	start time.Time
	runs  []time.Duration
}

// cronStart begins a job by a schedule.
func cronStart(t *testing.T, schedule cron.Schedule, o scheduler.JobOptions) *cronJob {
	t.Helper()
	c := &cronJob{t: t, start: time.Now()}
	var err error
	c.s, err = scheduler.New(scheduler.Options{Tick: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = c.s.Shutdown(context.Background(), timingwheel.Discard) })
	c.Job, err = c.s.OnSchedule(schedule, func() { c.runs = append(c.runs, time.Since(c.start)) }, o)
	require.NoError(t, err)
	return c
}

// pass lets time pass until it is the given time after the start, and returns
// when the job ran meanwhile.
func (c *cronJob) pass(until time.Duration) []time.Duration {
	c.t.Helper()
	time.Sleep(until - time.Since(c.start))
	synctest.Wait()
	runs := c.runs
	c.runs = nil
	return runs
}

// times is from, from+step, ... up to to.
func times(from, to, step time.Duration) (all []time.Duration) {
	for t := from; t <= to; t += step {
		all = append(all, t)
	}
	return all
}

func standard(t *testing.T, spec string) cron.Schedule {
	t.Helper()
	schedule, err := cron.ParseStandard(spec)
	require.NoError(t, err)
	return schedule
}

// T14: the times of a cron schedule, and no others.
func TestCronSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cronStart(t, standard(t, "CRON_TZ=UTC */10 2-3 * * *"), scheduler.JobOptions{})
		require.True(t, c.start.Add(2*time.Hour).Equal(c.Next()))
		require.Equal(t, times(2*time.Hour, 4*time.Hour-1, 10*time.Minute), c.pass(5*time.Hour))
		require.True(t, c.start.Add(26*time.Hour).Equal(c.Next()), "the next day")
		require.True(t, c.Stop())
		require.Empty(t, c.pass(48*time.Hour))
	})
}

func TestCronSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
		schedule, err := parser.Parse("15,45 * * * * *")
		require.NoError(t, err)
		c := cronStart(t, schedule, scheduler.JobOptions{})
		require.Equal(t, times(15*time.Second, 10*time.Minute, 30*time.Second), c.pass(10*time.Minute))
	})
}

func TestCronEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cronStart(t, standard(t, "@every 90s"), scheduler.JobOptions{Missed: scheduler.Coalesce})
		require.Equal(t, times(90*time.Second, 30*time.Minute, 90*time.Second), c.pass(30*time.Minute))
	})
}

// Times are those of the schedule's own zone.
func TestCronTimeZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule, ok := standard(t, "CRON_TZ=UTC 0 12 * * *").(*cron.SpecSchedule)
		require.True(t, ok)
		schedule.Location = time.FixedZone("three hours east", 3*60*60)
		c := cronStart(t, schedule, scheduler.JobOptions{})
		require.Equal(t, []time.Duration{9 * time.Hour, 33 * time.Hour}, c.pass(48*time.Hour))
	})
}

// A schedule without a further time ends its job, without an error.
func TestCronNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cronStart(t, standard(t, "CRON_TZ=UTC 0 0 30 2 *"), scheduler.JobOptions{}) // the 30th of February
		require.False(t, c.Stop())
		require.NoError(t, c.Err())
		require.Zero(t, c.Next())
		require.Zero(t, c.s.Len())
	})
}

func Example_cron() {
	s, err := scheduler.New(scheduler.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	quarters, err := cron.ParseStandard("*/15 * * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	job, _ := s.OnSchedule(quarters, func() {}, scheduler.JobOptions{Jitter: time.Minute})
	fmt.Println(job.Next().Minute()%15, job.Next().Second())
	// Output: 0 0
}
