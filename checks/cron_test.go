package checks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	others "github.com/netresearch/go-cron"
	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
	"github.com/stretchr/testify/require"
)

// cronJob is a job in a bubble, whose clock starts at midnight in UTC. runs are the times of its
// runs since then.
type cronJob struct {
	*scheduler.Job
	t     *testing.T
	s     *scheduler.Scheduler
	start time.Time
	runs  []time.Duration
}

// cronStart starts a job with a schedule.
func cronStart(t *testing.T, schedule scheduler.Schedule, o scheduler.JobOptions) *cronJob {
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

// pass lets time pass until the given time after the start, and returns the times of the runs
// until then.
func (c *cronJob) pass(until time.Duration) []time.Duration {
	c.t.Helper()
	time.Sleep(until - time.Since(c.start))
	synctest.Wait()
	runs := c.runs
	c.runs = nil
	return runs
}

// times returns from, from+step, ... up to to.
func times(from, to, step time.Duration) (all []time.Duration) {
	for t := from; t <= to; t += step {
		all = append(all, t)
	}
	return all
}

func parseCron(t *testing.T, spec string) cron.Spec {
	t.Helper()
	s, err := cron.Parse(spec)
	require.NoError(t, err)
	return s
}

// T14: the job runs at the times of a cron schedule, and at no others.
func TestCronSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cronStart(t, parseCron(t, "*/10 2-3 * * *").In(time.UTC), scheduler.JobOptions{})
		require.True(t, c.start.Add(2*time.Hour).Equal(c.Next()))
		require.Equal(t, times(2*time.Hour, 4*time.Hour-1, 10*time.Minute), c.pass(5*time.Hour))
		require.True(t, c.start.Add(26*time.Hour).Equal(c.Next()), "the next day")
		require.True(t, c.Stop())
		require.Empty(t, c.pass(48*time.Hour))
	})
}

// Another parser's schedules work, too: this one has seconds.
func TestCronOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parser := others.MustNewParser(others.Second | others.Minute | others.Hour | others.Dom | others.Month | others.Dow)
		schedule, err := parser.Parse("15,45 * * * * *")
		require.NoError(t, err)
		c := cronStart(t, schedule, scheduler.JobOptions{})
		require.Equal(t, times(15*time.Second, 10*time.Minute, 30*time.Second), c.pass(10*time.Minute))
	})
}

// A bubble begins at midnight on 1 January 2000, which is a multiple of 90 s.
func TestCronEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cronStart(t, cron.Every{Period: 90 * time.Second, Offset: 10 * time.Second}, scheduler.JobOptions{Missed: scheduler.Coalesce})
		require.Equal(t, times(10*time.Second, 30*time.Minute, 90*time.Second), c.pass(30*time.Minute))
	})
}

// A spec's times are in its own zone.
func TestCronTimeZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noon := parseCron(t, "0 12 * * *").In(time.FixedZone("three hours east", 3*60*60))
		c := cronStart(t, noon, scheduler.JobOptions{})
		require.Equal(t, []time.Duration{9 * time.Hour, 33 * time.Hour}, c.pass(48*time.Hour))
	})
}

// A schedule without a further time ends its job, without an error.
func TestCronNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cronStart(t, cron.Spec{}, scheduler.JobOptions{})
		require.False(t, c.Stop())
		require.NoError(t, c.Err())
		require.Zero(t, c.Next())
		require.Zero(t, c.s.Len())
	})
}

// Specs have the same times as in another implementation. The test leaves out its differences:
// it counts */n as restricted in the fields for days, takes a/n in the day of the week up to
// Sunday instead of Saturday, refuses a step that leaves one value, and accepts a range from a
// higher to a lower value. All times are in UTC, because it has other rules for clocks that are
// set back.
func TestCronAsOthers(t *testing.T) {
	t.Parallel()
	parser := others.MustNewParser(others.Minute | others.Hour | others.Dom | others.Month | others.Dow | others.DowOrDom).WithMaxSearchYears(50)
	rnd := rand.New(rand.NewPCG(11, 12))
	field := func(min, max int, star ...string) string {
		if rnd.IntN(2) == 0 {
			return star[rnd.IntN(len(star))]
		}
		var list []string
		for range 1 + rnd.IntN(3) {
			from := min + rnd.IntN(max-min)
			to := from + 1 + rnd.IntN(max-from)
			switch step := 1 + rnd.IntN(to-from); rnd.IntN(4) {
			case 0:
				list = append(list, fmt.Sprintf("%d-%d", from, to))
			case 1:
				list = append(list, fmt.Sprintf("%d-%d/%d", from, to, step))
			case 2:
				last := fmt.Sprint("-", max)
				if max != 6 { // not in the day of the week
					last = ""
				}
				list = append(list, fmt.Sprintf("%d%s/%d", from, last, step))
			default:
				list = append(list, fmt.Sprint(to))
			}
		}
		return strings.Join(list, ",")
	}
	for range 2000 {
		text := strings.Join([]string{
			field(0, 59, "*", "?", "*/7", "*/15"), field(0, 23, "*", "*/5"), field(1, 31, "*", "?"),
			field(1, 12, "*", "*/5"), field(0, 6, "*", "?"),
		}, " ")
		theirs, err := parser.Parse(text)
		require.NoError(t, err, text)
		ours, err := cron.Parse(text)
		at := time.Unix(rnd.Int64N(1<<32), 0).UTC()
		if err != nil {
			require.ErrorContains(t, err, "never matches")
			require.Zero(t, theirs.Next(at), text)
			continue
		}
		for range 20 {
			next := ours.Next(at)
			require.Equal(t, theirs.Next(at), next, "%s after %v", text, at)
			at = next
		}
	}
}

func Example_cron() {
	s, err := scheduler.New(scheduler.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Shutdown(context.Background(), timingwheel.Discard)
	quarters, err := cron.Parse("*/15 * * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	job, _ := s.OnSchedule(quarters, func() {}, scheduler.JobOptions{Jitter: time.Minute})
	fmt.Println(job.Next().Minute()%15, job.Next().Second())
	// Output: 0 0
}
