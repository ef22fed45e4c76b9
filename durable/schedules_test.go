package durable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/internal/planning"
	"github.com/seed-782fa212/limbo/durable/store"
)

func (r *rig) put(s Schedule) ScheduleInfo {
	r.t.Helper()
	_, info, err := r.timers.PutSchedule(context.Background(), s)
	require.NoError(r.t, err)
	return info
}

func (r *rig) plan(key string) ScheduleInfo {
	r.t.Helper()
	info, err := r.timers.GetSchedule(context.Background(), key)
	require.NoError(r.t, err)
	return info
}

// planned returns the planned times of the handled occurrences, in order.
func (j *journal) planned() (times []time.Time) {
	for _, f := range j.all() {
		times = append(times, f.Planned)
	}
	return times
}

// every returns the times from, from+step and so on, n of them.
func every(from time.Time, step time.Duration, n int) (times []time.Time) {
	for i := range n {
		times = append(times, from.Add(time.Duration(i)*step))
	}
	return times
}

// S1, S2, S3, S9: occurrences are timers at the planned times, and the schedule shows them.
func TestScheduleRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 0)
		start := r.now()
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		put := r.put(Schedule{Key: "report", Every: time.Minute, Offset: 10 * time.Second, Topic: "reports", Body: []byte("body")})
		first := start.Add(10 * time.Second)
		require.Equal(t, every(first, time.Minute, 10), put.Next)
		pass(5 * time.Minute)
		require.Equal(t, every(first, time.Minute, 5), j.planned())
		ids := map[ID]bool{}
		for i, f := range j.all() {
			ids[f.ID] = true
			require.Equal(t, "report", f.Schedule)
			require.Equal(t, []any{"reports", "body", f.Planned, 1}, []any{f.Topic, string(f.Body), f.Due, f.Attempt})
			require.Equal(t, store.PlanOf(f.Key), store.PlanKey("report"))
			require.False(t, j.times()[i].Before(f.Planned), "early")
			require.Less(t, j.times()[i].Sub(f.Planned), 20*time.Millisecond)
			require.Equal(t, "report @ "+f.Planned.Format(time.RFC3339), KeyText(f.Key))
			require.Equal(t, f.Planned, PlannedTime(f.Key))
			require.Zero(t, PlannedTime(f.Schedule))
		}
		require.Len(t, ids, 5)
		info := r.plan("report")
		require.Equal(t, ScheduleCounts{Created: 5, Done: 5}, info.Counts)
		require.Len(t, info.Last, 5)
		last := info.Last[0]
		require.Equal(t, Occurrence{
			Key: last.Key, Planned: first.Add(4 * time.Minute), State: OccurrenceDone,
			Begun: last.Begun, Ended: last.Ended, Attempts: 1,
		}, last)
		require.False(t, last.Begun.Before(last.Planned) || last.Ended.Before(last.Begun))
		require.Equal(t, []any{put.ID, put.Created, every(first.Add(5*time.Minute), time.Minute, 10)}, []any{info.ID, info.Created, info.Next})
		require.Zero(t, info.Overdue)
		st := r.stats()
		require.Equal(t, []int{1, 0, 0, 0}, []int{st.Schedules, st.SchedulesOverdue, st.Waiting, st.Dead})
	})
}

// S1: an occurrence is retried, becomes a dead letter, is listed and requeued like any timer.
func TestOccurrenceIsATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ctx := context.Background()
		var fail atomic.Bool
		fail.Store(true)
		j := &journal{then: func(context.Context, Fired) error {
			if fail.Load() {
				return errBoom
			}
			return nil
		}}
		r.worker(j.handle, WorkerOptions{MaxAttempts: 2, Backoff: time.Second, MaxBackoff: time.Second})
		r.put(Schedule{Key: "report", Every: time.Hour})
		pass(time.Hour + time.Minute)
		require.Len(t, j.all(), 2)
		require.Equal(t, j.all()[0].ID, j.all()[1].ID)
		require.Equal(t, j.all()[0].Planned, j.all()[1].Planned)
		key := j.last().Key
		info := r.get(key)
		require.Equal(t, []any{Dead, "boom", "report", j.last().Planned}, []any{info.State, info.LastError, info.Schedule, info.Planned})
		o := r.plan("report").Last[0]
		require.Equal(t, []any{OccurrenceDead, "boom", 2}, []any{o.State, o.Error, o.Attempts})
		fail.Store(false)
		_, err := r.timers.Requeue(ctx, key)
		require.NoError(t, err)
		pass(time.Second)
		require.Equal(t, ScheduleCounts{Created: 1, Done: 1, Dead: 1}, r.plan("report").Counts)
		r.requireRemoved(key)

		_, err = r.timers.TriggerSchedule(ctx, "report")
		require.NoError(t, err)
		pass(time.Second)
		require.Len(t, j.all(), 4)
	})
}

// S4: occurrences that take 155 s are cancelled by the next one, each minute.
func TestOverlapCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		start, cancelled := r.now(), 0
		j := &journal{then: func(ctx context.Context, _ Fired) error {
			select {
			case <-time.After(155 * time.Second):
			case <-ctx.Done():
				cancelled++
			}
			return nil
		}}
		r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Every: time.Minute, Overlap: OverlapCancel})
		pass(10*time.Minute + 10*time.Second)
		require.Equal(t, every(start.Add(time.Minute), time.Minute, 10), j.planned())
		require.Equal(t, 9, cancelled)
		require.Equal(t, ScheduleCounts{Created: 10, Cancelled: 9}, r.plan("report").Counts)
	})
}

// S4: neither a user's change between the end of an occurrence and its effect, nor an occurrence
// that the engine has lost, puts the plan to sleep.
func TestBufferedRunBegins(t *testing.T) {
	for name, end := range map[string]func(r *rig, key string){
		"update": func(r *rig, key string) {
			for i := range 3 {
				r.put(Schedule{Key: "report", Every: 2 * time.Hour, Overlap: OverlapBufferOne, Body: []byte{byte(i)}, Limit: 2})
			}
		},
		"pause": func(r *rig, key string) {
			require.NoError(r.t, r.timers.PauseSchedule(context.Background(), "report", ""))
			require.NoError(r.t, r.timers.ResumeSchedule(context.Background(), "report"))
		},
		"lost": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, store.Limits{}, 0)
				release := make(chan struct{})
				j := &journal{then: func(context.Context, Fired) error { <-release; return nil }}
				w := r.worker(j.handle, WorkerOptions{})
				r.put(Schedule{Key: "report", Every: 2 * time.Hour, Overlap: OverlapBufferOne, Limit: 2})
				pass(4*time.Hour + 30*time.Second)
				require.Len(t, j.all(), 1)
				require.NotZero(t, r.plan("report").Waiting)
				wait := 10 * time.Second
				if end == nil {
					wait = 2 * time.Minute
					o := r.engine.(*oracle.Store)
					o.Mu.Lock()
					delete(o.Parts[0].Timers, j.last().Key)
					o.Mu.Unlock()
				} else {
					w.faults.fail(errBoom, "claim") // it cannot react to the end
				}
				close(release)
				pass(time.Second)
				if end != nil {
					end(r, j.last().Key)
					w.faults.fail(nil)
				}
				pass(wait)
				require.Len(t, j.all(), 2)
				require.Zero(t, r.plan("report").Waiting)
			})
		})
	}
}

// S4: a run that is retried overlaps, and a dead letter does not.
func TestRetriedOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{then: func(context.Context, Fired) error { return RetryAfter(90*time.Second, errBoom) }}
		r.worker(j.handle, WorkerOptions{MaxAttempts: 2})
		r.put(Schedule{Key: "report", Every: time.Minute})
		pass(4*time.Minute + time.Second)
		require.Len(t, slices.Compact(j.planned()), 2)
		require.Equal(t, ScheduleCounts{Created: 2, SkippedOverlap: 2, Dead: 1}, r.plan("report").Counts)
		require.Equal(t, OccurrenceWaiting, r.plan("report").Last[0].State)
	})
}

// S5: a store that was down for a day, or had no worker for it.
func TestMissed(t *testing.T) {
	for name, c := range map[string]struct {
		schedule Schedule
		hours    []int // planned times that run after a day and 30 minutes without a worker
		skipped  uint64
	}{
		"latest":            {Schedule{}, []int{24}, 23},
		"all, side by side": {Schedule{Missed: MissedAll, CatchUp: 24 * time.Hour, Overlap: OverlapAllow, Body: make([]byte, 50<<10)}, every0(1, 24), 0},
		"all, one by one":   {Schedule{Missed: MissedAll, CatchUp: 3 * time.Hour, Overlap: OverlapCancel}, []int{22, 23, 24}, 21},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, store.Limits{}, 0)
				start := r.now()
				s := c.schedule
				s.Key, s.Cron = "report", "0 * * * *"
				r.put(s)
				pass(24*time.Hour + 30*time.Minute)
				require.Equal(t, start.Add(time.Hour), r.plan("report").Overdue)
				require.Equal(t, 1, r.stats().SchedulesOverdue)
				running, most := 0, 0
				var mu sync.Mutex
				j := &journal{then: func(context.Context, Fired) error {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(10 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					running--
					return nil
				}}
				w := r.worker(j.handle, WorkerOptions{})
				pass(10 * time.Minute)
				var hours []int
				for _, at := range j.planned() {
					hours = append(hours, int(at.Sub(start).Hours()))
				}
				if s.Overlap == OverlapAllow {
					slices.Sort(hours)
					require.Equal(t, 24, most)
				} else {
					require.LessOrEqual(t, most, 1, "missed runs overlap")
				}
				require.Equal(t, c.hours, hours)
				counts := r.plan("report").Counts
				require.Equal(t, []uint64{uint64(len(c.hours)), c.skipped, 0}, []uint64{counts.Created, counts.SkippedMissed, counts.SkippedOverlap})
				require.Equal(t, c.skipped, w.Stats().Skipped)
				require.Zero(t, r.plan("report").Waiting)
				pass(20 * time.Minute)
				require.Equal(t, start.Add(25*time.Hour), j.planned()[len(j.planned())-1], "the plan goes on")
			})
		})
	}
}

func every0(from, to int) (all []int) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

// S5: setting the engine's clock back repeats nothing, and setting it ahead misses times.
func TestClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Every: time.Minute})
		pass(5*time.Minute + time.Second)
		require.Len(t, j.all(), 5)
		r.skewed.Add(int64(-3 * time.Minute))
		pass(3 * time.Minute)
		require.Len(t, j.all(), 5)
		pass(time.Minute)
		require.Len(t, j.all(), 6)
		r.skewed.Add(int64(time.Hour))
		pass(2 * time.Minute)
		require.Equal(t, uint64(59), r.plan("report").Counts.SkippedMissed)
		times := j.planned()
		require.Len(t, slices.CompactFunc(times, time.Time.Equal), len(j.all()))
	})
}

// S3: a schedule that is replaced after the clock was set back, or by a process that read the
// clock long before the plan, does not repeat planned times.
func TestReplacedWithAnEarlierClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Every: time.Minute, Missed: MissedAll})
		pass(5*time.Minute + time.Second)
		require.Len(t, j.all(), 5)
		r.skewed.Add(int64(-3 * time.Minute))
		r.put(Schedule{Key: "report", Every: 30 * time.Second, Missed: MissedAll})
		pass(3 * time.Minute)
		require.Len(t, j.all(), 5)
		pass(time.Minute)
		require.Len(t, j.all(), 7)
	})
}

// S4, S8: if an occurrence ends during a pause, the planned time that waits for it runs after the
// pause, even if no further times are planned.
func TestEndDuringPause(t *testing.T) {
	for _, change := range []string{"pause", "replace"} {
		t.Run(change, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, store.Limits{}, 0)
				ctx := context.Background()
				j := &journal{}
				r.worker(func(ctx context.Context, f Fired) error {
					time.Sleep(90 * time.Second)
					return j.handle(ctx, f)
				}, WorkerOptions{})
				s := Schedule{Key: "report", Every: time.Minute, Overlap: OverlapBufferOne, End: r.now().Add(2 * time.Minute)}
				r.put(s)
				pass(2*time.Minute + time.Second)
				require.NoError(t, r.timers.PauseSchedule(ctx, "report", ""))
				pass(5 * time.Minute)
				require.Len(t, j.all(), 1)
				if change == "replace" {
					s.Topic = "other"
					r.put(s)
				}
				require.NoError(t, r.timers.ResumeSchedule(ctx, "report"))
				pass(5 * time.Minute)
				require.Len(t, j.all(), 2)
				require.Zero(t, r.plan("report").Waiting)
			})
		})
	}
}

// S8: a pause keeps its note and time, and spans planned times.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ctx := context.Background()
		start := r.now()
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		put := r.put(Schedule{Key: "report", Every: time.Hour, CatchUp: 30 * time.Minute})
		require.NoError(t, r.timers.PauseSchedule(ctx, "report", "billing is down"))
		pass(time.Minute)
		require.NoError(t, r.timers.PauseSchedule(ctx, "report", "billing is still down"))
		pass(150 * time.Minute)
		require.Empty(t, j.all())
		info := r.plan("report")
		require.Equal(t, []any{start, "billing is still down"}, []any{info.Paused, info.PauseNote})
		require.Zero(t, info.Overdue)
		require.Len(t, info.Next, 10)
		require.Zero(t, r.stats().SchedulesOverdue)
		again := r.put(Schedule{Key: "report", Every: time.Hour, CatchUp: 45 * time.Minute})
		require.Equal(t, []any{put.ID, info.Paused, info.PauseNote}, []any{again.ID, again.Paused, again.PauseNote})

		require.NoError(t, r.timers.ResumeSchedule(ctx, "report"))
		pass(time.Second)
		require.Equal(t, []time.Time{start.Add(2 * time.Hour)}, j.planned())
		info = r.plan("report")
		require.Equal(t, ScheduleCounts{Created: 1, SkippedMissed: 1, Done: 1}, info.Counts)
		require.Zero(t, info.Paused)
		require.Empty(t, info.PauseNote)
		require.NoError(t, r.timers.ResumeSchedule(ctx, "report"))
		for _, err := range []error{
			r.timers.PauseSchedule(ctx, "none", ""), r.timers.ResumeSchedule(ctx, "none"), r.timers.DeleteSchedule(ctx, "none"),
		} {
			require.ErrorIs(t, err, ErrNotFound)
		}
		require.EqualError(t, r.timers.PauseSchedule(ctx, "report", strings.Repeat("n", 257)),
			"durable: the note is 257 bytes long, must be at most 256")
	})
}

// S8: a replaced schedule keeps its ID, counts and history, and its next time is in the future.
func TestScheduleIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ctx := context.Background()
		start := r.now()
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{})
		s := Schedule{Key: "report", Every: time.Minute, Body: []byte("one")}
		put := func(s Schedule, want PutResult) ScheduleInfo {
			t.Helper()
			result, info, err := r.timers.PutSchedule(ctx, s)
			require.NoError(t, err)
			require.Equal(t, want, result)
			return info
		}
		created := put(s, ScheduleCreated)
		pass(2*time.Minute + time.Second)
		require.Equal(t, created.ID, put(s, ScheduleUnchanged).ID)
		require.NoError(t, w.stop())
		pass(3 * time.Minute)
		// An overdue time stays overdue, unless the planned times change.
		require.Equal(t, start.Add(3*time.Minute), put(s, ScheduleUnchanged).Overdue)
		s.Body = []byte("two")
		require.Equal(t, start.Add(3*time.Minute), put(s, ScheduleReplaced).Overdue)
		absent := s
		absent.IfAbsent = true
		put(absent, ScheduleExists)
		s.Every = 7 * time.Minute
		info := put(s, ScheduleReplaced)
		require.Equal(t, created.ID, info.ID)
		require.Equal(t, created.Created, info.Created)
		require.Zero(t, info.Overdue)
		require.Len(t, info.Last, 2)
		require.Equal(t, ScheduleCounts{Created: 2, Done: 2, SkippedUpdated: 3}, info.Counts)
		for _, at := range info.Next {
			require.True(t, at.After(r.now()))
		}
		r.worker(j.handle, WorkerOptions{})
		pass(7 * time.Minute)
		require.Len(t, j.all(), 3)
		require.Equal(t, info.Next[0], j.last().Planned)
		require.Equal(t, "two", string(j.last().Body))
	})
}

// S8: after DeleteSchedule no occurrence is created, even if a worker holds the plan.
func TestScheduleIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ctx := context.Background()
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{})
		hold := make(chan struct{})
		w.faults.set(func(_ context.Context, call string, _ int) error {
			if call == "swap" {
				<-hold
			}
			return nil
		}, nil)
		r.put(Schedule{Key: "report", Every: time.Minute})
		pass(time.Minute + time.Second)
		require.NoError(t, r.timers.DeleteSchedule(ctx, "report"))
		close(hold)
		pass(time.Minute)
		require.Empty(t, j.all())
		require.Zero(t, r.stats().Schedules)
		_, err := r.timers.GetSchedule(ctx, "report")
		require.ErrorIs(t, err, ErrNotFound)

		// Waiting occurrences remain, and are removed on request.
		require.NoError(t, w.stop())
		r.put(Schedule{Key: "report", Every: time.Hour})
		r.put(Schedule{Key: "report2", Every: time.Hour})
		for range 600 {
			_, err = r.timers.TriggerSchedule(ctx, "report")
			require.NoError(t, err)
		}
		_, err = r.timers.TriggerSchedule(ctx, "report2")
		require.NoError(t, err)
		r.schedule("report", time.Hour)
		require.NoError(t, r.timers.DeleteSchedule(ctx, "report"))
		require.Equal(t, 602, r.stats().Waiting)
		n, err := r.timers.CancelOccurrences(ctx, "report")
		require.NoError(t, err)
		require.Equal(t, 600, n)
		require.Equal(t, 2, r.stats().Waiting)
	})
}

// Trigger and backfill create separate occurrences, and do not affect the plan.
func TestTriggerAndBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ctx := context.Background()
		start := r.now()
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Cron: "0 * * * *", Limit: 3, Body: make([]byte, 50<<10)})
		pass(3*time.Hour + time.Minute)
		require.Len(t, j.all(), 3)
		require.NoError(t, r.timers.PauseSchedule(ctx, "report", ""))
		before := r.plan("report")
		key, err := r.timers.TriggerSchedule(ctx, "report")
		require.NoError(t, err)
		pass(time.Second)
		require.Equal(t, []any{key, "report", start.Add(3*time.Hour + time.Minute)}, []any{j.last().Key, j.last().Schedule, j.last().Planned})
		require.Equal(t, "report @ 2000-01-01T03:01:00Z (trigger)", KeyText(key))

		n, err := r.timers.BackfillSchedule(ctx, "report", start.Add(time.Hour), start.Add(3*time.Hour))
		require.NoError(t, err)
		require.Equal(t, 3, n)
		pass(time.Second)
		backfilled := j.planned()[4:]
		slices.SortFunc(backfilled, time.Time.Compare)
		require.Equal(t, j.planned()[:3], backfilled)
		ids := map[ID]bool{}
		for _, f := range j.all() {
			ids[f.ID] = true
		}
		require.Len(t, ids, 7)
		n, err = r.timers.BackfillSchedule(ctx, "report", start.Add(-150*time.Hour), start)
		require.NoError(t, err)
		require.Equal(t, 151, n)
		pass(time.Second)
		info := r.plan("report")
		require.Equal(t, ScheduleCounts{Created: 3, Triggered: 1, Backfilled: 154, Done: 158}, info.Counts)
		require.Equal(t, before.Next, info.Next)
		require.Equal(t, "backfill", info.Last[0].Requested)

		for want, call := range map[string][2]time.Time{
			"must not be before its start":             {start, start.Add(-time.Hour)},
			"must not be after the engine's present":   {start, start.Add(4 * time.Hour)},
			"8761 planned times are between":           {start.AddDate(-1, 0, 0), start},
			"the start of the backfill is 1969-12-31 ": {time.Unix(-1, 0).UTC(), start},
		} {
			n, err := r.timers.BackfillSchedule(ctx, "report", call[0], call[1])
			require.ErrorContains(t, err, want)
			var field *FieldError
			require.ErrorAs(t, err, &field)
			require.Contains(t, []string{"From", "To"}, field.Field)
			require.Zero(t, n)
		}
	})
}

// S7: jitter is derived from the ID, shorter than the period, and shifts no planned time.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		start := r.now()
		info := r.put(Schedule{Key: "report", Every: time.Minute, Jitter: 59 * time.Second, Overlap: OverlapAllow})
		pass(30*time.Minute + 59*time.Second)
		times := j.planned()
		slices.SortFunc(times, time.Time.Compare)
		require.Equal(t, every(start.Add(time.Minute), time.Minute, 30), times)
		delays := map[time.Duration]bool{}
		for _, f := range j.all() {
			delay := f.Due.Sub(f.Planned)
			require.True(t, delay >= 0 && delay < 59*time.Second)
			delays[delay] = true
			p := &plan{Schedule: info.Schedule, key: store.PlanKey("report"), id: info.ID}
			require.Equal(t, store.MillisAt(f.Due), p.entry(planning.Occurrence{Planned: store.MillisAt(f.Planned)}, 0).At)
		}
		require.Greater(t, len(delays), 25)
	})
}

// PauseOnDead pauses before the next occurrence.
func TestPauseOnDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ctx := context.Background()
		j := &journal{then: func(context.Context, Fired) error { return Discard(errBoom) }}
		r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Every: time.Minute, PauseOnDead: true})
		pass(3 * time.Minute)
		require.Len(t, j.all(), 1)
		info := r.plan("report")
		require.Equal(t, "the occurrence report @ 2000-01-01T00:01:00Z is a dead letter: boom", info.PauseNote)
		require.Less(t, info.Paused.Sub(j.last().Planned), time.Second)
		require.NoError(t, r.timers.ResumeSchedule(ctx, "report"))
		pass(time.Second)
		require.Len(t, j.all(), 2, "the latest missed time")
		require.NotZero(t, r.plan("report").Paused)
	})
}

// S11: a value out of range is refused with the field's name, and nothing is stored.
func TestBadSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ok := Schedule{Key: "k", Every: time.Minute}
		with := func(f func(*Schedule)) Schedule { s := ok; f(&s); return s }
		day := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		for want, s := range map[string]Schedule{
			"a schedule's key is 0 bytes long, must be 1 to 480":                     with(func(s *Schedule) { s.Key = "" }),
			"a schedule's key is 481 bytes long, must be 1 to 480":                   with(func(s *Schedule) { s.Key = strings.Repeat("k", 481) }),
			`byte 1 of the schedule's key "a\x00b" is zero, must not be`:             with(func(s *Schedule) { s.Key = "a\x00b" }),
			`schedule "k": Topic is 129 bytes long, must be at most 128`:             with(func(s *Schedule) { s.Topic = strings.Repeat("t", 129) }),
			`schedule "k": Body is 61441 bytes long, must be at most 61440`:          with(func(s *Schedule) { s.Body = make([]byte, 60<<10+1) }),
			`schedule "k": Cron is "", must be a cron expression, or Every a period`: with(func(s *Schedule) { s.Every = 0 }),
			`schedule "k": Every is 1m0s, must be 0 with Cron`:                       with(func(s *Schedule) { s.Cron = "@daily" }),
			`schedule "k": cron: field 2 (hour) is "25", must be 0 to 23`:            {Key: "k", Cron: "0 25 * * *"},
			`never matches`: {Key: "k", Cron: "0 0 30 2 *"},
			`Zone is "Europe/Nowhere", must be an IANA name that this process knows`:               {Key: "k", Cron: "@daily", Zone: "Europe/Nowhere"},
			`Zone is "Local", must be an IANA name`:                                                {Key: "k", Cron: "@daily", Zone: "Local"},
			`Zone is "UTC", must be empty without Cron`:                                            with(func(s *Schedule) { s.Zone = "UTC" }),
			`Zone is 65 bytes long, must be at most 64`:                                            {Key: "k", Cron: "@daily", Zone: strings.Repeat("z", 65)},
			`Cron is 257 bytes long, must be at most 256`:                                          {Key: "k", Cron: strings.Repeat("0", 257)},
			`Offset is 1m0s, must be 0 to below the period, 1m0s`:                                  with(func(s *Schedule) { s.Offset = time.Minute }),
			`Offset is 1s, must be 0 without Every`:                                                {Key: "k", Cron: "@daily", Offset: time.Second},
			`Period is 999ms, must be 1s to`:                                                       with(func(s *Schedule) { s.Every = 999 * time.Millisecond }),
			`Limit is -1, must be 0 (no bound) to`:                                                 with(func(s *Schedule) { s.Limit = -1 }),
			`Overlap is 4, must be 0 to 3`:                                                         with(func(s *Schedule) { s.Overlap = 4 }),
			`Missed is 3, must be 0 to 2`:                                                          with(func(s *Schedule) { s.Missed = 3 }),
			`CatchUp is 1ms, must be 1s to 87600h0m0s`:                                             with(func(s *Schedule) { s.CatchUp = time.Millisecond }),
			`Start is 1969-12-31 23:59:59 +0000 UTC, must be 1970`:                                 with(func(s *Schedule) { s.Start = time.Unix(-1, 0).UTC() }),
			`End is 2000-01-01 00:00:00 +0000 UTC, must be at or after Start`:                      with(func(s *Schedule) { s.Start, s.End = day.Add(1), day }),
			`End is 2000-01-01 12:00:00 +0000 UTC, must be at or after the first planned time`:     {Key: "k", Cron: "0 13 * * *", Start: day, End: day.Add(12 * time.Hour)},
			`Jitter is 1m0s, must be 0 to less than the shortest time between planned times, 1m0s`: with(func(s *Schedule) { s.Jitter = time.Minute }),
			`Jitter is 2h0m0s, must be 0 to less than the shortest time between planned times, 1h`: {Key: "k", Cron: "0 1,2,9 * * *", Jitter: 2 * time.Hour},
			`Jitter is -1ns, must be 0`:                                                            with(func(s *Schedule) { s.Jitter = -1 }),
		} {
			_, _, err := r.timers.PutSchedule(context.Background(), s)
			require.ErrorContains(t, err, want)
			_, err = s.Upcoming(r.now(), 1)
			if s.Key != "" {
				require.ErrorContains(t, err, want)
			}
		}
		require.Zero(t, r.faults.count("swap"))
		for _, n := range []int{0, 1001} {
			_, err := ok.Upcoming(r.now(), n)
			require.ErrorContains(t, err, fmt.Sprintf("upcoming times is %d, must be 1 to 1000", n))
		}
		for _, word := range []string{"Skip", ""} {
			_, err := ParseOverlap(word)
			require.EqualError(t, err, fmt.Sprintf("durable: overlap is %q, must be one of skip, buffer_one, cancel, allow", word))
		}
		m, err := ParseMissed("all")
		require.NoError(t, err)
		require.Equal(t, MissedAll, m)
		// A timer can neither pose as an occurrence nor be used with a schedule's methods.
		ctx := context.Background()
		_, err = r.timers.Schedule(ctx, Timer{Key: "k\x00x"})
		require.EqualError(t, err, `durable: byte 1 of the timer's key "k\x00x" is zero, must not be`)
		_, err = r.timers.Cancel(ctx, "k\x00")
		require.ErrorContains(t, err, "a schedule has methods of its own")
		_, err = r.timers.Purge(ctx, "k\x00")
		require.ErrorContains(t, err, "a schedule has methods of its own")
	})
}

// A schedule that this process cannot advance is overdue with the reason, and continues when a
// process that can joins.
func TestUnknownZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Cron: "0 * * * *", Zone: "Europe/Berlin"})
		// As if written by a process with a newer database.
		rewrite := func(change func([]byte) []byte) {
			rec, err := r.engine.Get(context.Background(), 0, store.PlanKey("report"))
			require.NoError(t, err)
			_, _, _, err = r.engine.SwapPlans(context.Background(), 0, []store.PlanSwap{{Key: rec.Key, Expected: rec.ID, ID: store.NewID(), Due: rec.Due, Body: change(rec.Body)}}, store.SwapClaim{})
			require.NoError(t, err)
		}
		rename := func(from, to string) {
			rewrite(func(b []byte) []byte { return []byte(strings.Replace(string(b), from, to, 1)) })
		}
		rename("Berlin", "Neustd")
		pass(90 * time.Minute)
		require.Empty(t, j.all())
		const problem = `durable: schedule "report": Zone is "Europe/Neustd", must be an IANA name that this process knows`
		require.Equal(t, problem, r.plan("report").Problem)
		require.Equal(t, problem, r.listed()[0].Problem)
		require.NotZero(t, r.plan("report").Overdue)
		require.NotZero(t, r.listed()[0].Overdue)
		require.NotEmpty(t, r.logs.with("a schedule cannot create its occurrences", "schedule=report", "Europe/Neustd"))
		require.Greater(t, len(r.logs.with("a schedule cannot")), 10)
		require.Less(t, len(r.logs.with("a schedule cannot")), 60)
		_, err := r.timers.TriggerSchedule(context.Background(), "report")
		require.NoError(t, err)
		require.NoError(t, r.timers.PauseSchedule(context.Background(), "report", "to see"))
		require.NoError(t, r.timers.ResumeSchedule(context.Background(), "report"))
		rename("Neustd", "Berlin")
		pass(2 * time.Minute)
		require.Len(t, j.all(), 2, "the trigger, and the latest missed time")
		require.Empty(t, r.plan("report").Problem)

		// A format that this version does not know.
		rewrite(func(b []byte) []byte { return append([]byte{9}, b[1:]...) })
		pass(time.Hour)
		require.Len(t, j.all(), 2)
		const format = `durable: schedule "report" is stored in format 9, this version reads format 1`
		require.Equal(t, format, r.plan("report").Problem)
		_, _, err = r.timers.PutSchedule(context.Background(), Schedule{Key: "report", Every: time.Hour})
		require.EqualError(t, err, format)
		require.EqualError(t, r.timers.PauseSchedule(context.Background(), "report", ""), format)
		require.NoError(t, r.timers.DeleteSchedule(context.Background(), "report"))
	})
}

func (r *rig) listed() (all []ScheduleInfo) {
	r.t.Helper()
	for info, err := range r.timers.Schedules(context.Background()) {
		require.NoError(r.t, err)
		all = append(all, info)
	}
	return all
}

// S9: schedules are listed in order of their keys, over all shards.
func TestScheduleList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 8, store.Limits{}, 0)
		var keys []string
		for i := range 300 {
			keys = append(keys, fmt.Sprintf("key-%d", i))
			r.put(Schedule{Key: keys[i], Every: time.Hour, Body: make([]byte, i*100)})
		}
		slices.Sort(keys)
		for i, info := range r.listed() {
			require.Equal(t, keys[i], info.Key)
			one := r.plan(keys[i])
			require.Equal(t, one, info)
		}
		for info, err := range r.timers.SchedulesAfter(context.Background(), keys[100]) {
			require.NoError(t, err)
			require.Equal(t, keys[101], info.Key)
			break
		}
		r.faults.fail(errBoom, "plans")
		for _, err := range r.timers.Schedules(context.Background()) {
			require.ErrorIs(t, err, errBoom)
		}
	})
}

// A full store delays occurrences, and reports that; none is lost.
func TestScheduleInFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{MaxPending: 2}, 0)
		ctx := context.Background()
		j := &journal{}
		r.put(Schedule{Key: "report", Every: time.Minute})
		r.schedule("other", time.Hour)
		_, _, err := r.timers.PutSchedule(ctx, Schedule{Key: "another", Every: time.Minute})
		require.ErrorIs(t, err, ErrFull)
		_, err = r.timers.TriggerSchedule(ctx, "report")
		require.ErrorIs(t, err, ErrFull)
		w := r.worker(j.handle, WorkerOptions{})
		pass(90 * time.Second)
		require.Empty(t, j.all())
		require.Equal(t, ErrFull.Error(), r.plan("report").Problem)
		require.NotZero(t, r.plan("report").Overdue)
		require.NotZero(t, w.Stats().PlanFailures)
		require.Zero(t, w.Stats().Retried)
		_, err = r.timers.Cancel(ctx, "other")
		require.NoError(t, err)
		pass(time.Minute)
		require.NotEmpty(t, j.all())
		counts := r.plan("report").Counts
		require.Equal(t, uint64(2), counts.Created+counts.SkippedMissed)
	})
}

// A full engine, such as a Redis at maxmemory, behaves the same.
func TestScheduleInFullEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Every: time.Hour})
		w.faults.fail(fmt.Errorf("%w: maxmemory", ErrFull), "swap")
		pass(time.Hour + time.Second)
		require.Contains(t, r.plan("report").Problem, "maxmemory")
		w.faults.fail(nil)
		pass(time.Minute)
		require.Len(t, j.all(), 1)
		require.Empty(t, r.plan("report").Problem)
	})
}

// S10: many schedules that are due at once do not count in Concurrency, and have a separate bound.
func TestManySchedulesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 8, store.Limits{}, 0)
		const n = 3000
		for i := range n {
			r.put(Schedule{Key: fmt.Sprint("s", i), Every: time.Hour})
		}
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{Concurrency: 8})
		most := 0
		w.faults.set(func(_ context.Context, call string, _ int) error {
			if call == "swap" || call == "claim" {
				time.Sleep(time.Millisecond)
				w.mu.Lock()
				most = max(most, w.plans)
				w.mu.Unlock()
			}
			return nil
		}, nil)
		pass(time.Hour + 10*time.Second)
		require.Len(t, j.all(), n)
		require.Empty(t, r.logs.with("fail"))
		require.LessOrEqual(t, most, maxPlans)
		require.Greater(t, most, claimPlans)
		for _, c := range w.faults.claims {
			require.True(t, c.Plans >= 0 && c.Plans <= claimPlans)
		}
		st := w.Stats()
		require.Equal(t, []uint64{n, n, 0, n}, []uint64{st.Planned, st.Occurrences, st.Skipped, st.PlannedLate.Count})
	})
}

// Concurrent changes of a shard's schedules go into one request.
func TestSwapsAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		r.faults.set(func(_ context.Context, call string, _ int) error {
			if call == "swap" {
				time.Sleep(time.Millisecond)
			}
			return nil
		}, nil)
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() { r.put(Schedule{Key: fmt.Sprint("s", i), Every: time.Hour}) })
		}
		group.Wait()
		require.Len(t, r.listed(), 100)
		require.LessOrEqual(t, r.faults.count("swap"), 3)
	})
}

// S8: a put whose caller has left takes effect before a later delete, or never.
func TestAbandonedPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var held atomic.Bool
		r.faults.set(func(_ context.Context, call string, _ int) error {
			if call == "swap" && !held.Swap(true) {
				time.Sleep(5 * time.Second)
			}
			return nil
		}, nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _, err := r.timers.PutSchedule(ctx, Schedule{Key: "report", Every: time.Minute})
		require.ErrorIs(t, err, ErrUnsure)
		require.NoError(t, r.timers.DeleteSchedule(context.Background(), "report"))
		pass(time.Minute)
		require.Empty(t, r.listed())
	})
}

// Two processes that put the same schedule create one set of occurrences (asynq #1013).
func TestTwoRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		j := &journal{}
		var group sync.WaitGroup
		for i := range 8 {
			r.worker(j.handle, WorkerOptions{})
			timers := r.on(&faults{Store: r.engine})
			group.Go(func() {
				for n := range 20 {
					_, _, err := timers.PutSchedule(context.Background(), Schedule{Key: "report", Every: time.Minute, Body: []byte{byte(i), byte(n % 2)}})
					require.NoError(t, err)
					time.Sleep(7 * time.Second)
				}
			})
		}
		group.Wait()
		pass(3 * time.Minute)
		info := r.plan("report")
		require.Equal(t, ScheduleCounts{Created: 5, Done: 5}, info.Counts)
		require.Len(t, j.all(), 5)
		require.Len(t, r.listed(), 1)
	})
}

// S2: a ledger of schedules whose workers fail, lose replies, pause and die. Each planned time has
// one ID or is counted as skipped.
func TestScheduleLedger(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { scheduleLedger(t, rand.New(rand.NewPCG(seed, 33))) })
	}
}

func scheduleLedger(t *testing.T, rnd *rand.Rand) {
	r := newRig(t, 4, store.Limits{}, 3*time.Hour)
	ctx := context.Background()
	var mu sync.Mutex
	ids := map[string]map[ID]bool{} // by schedule and planned time
	handle := func(_ context.Context, f Fired) error {
		mu.Lock()
		defer mu.Unlock()
		name := KeyText(f.Key)
		if ids[name] == nil {
			ids[name] = map[ID]bool{}
		}
		ids[name][f.ID] = true
		if now := r.now(); now.Before(f.Planned) {
			t.Errorf("%s is early by %v", name, f.Planned.Sub(now))
		}
		if rnd.IntN(10) == 0 {
			return errBoom
		}
		return nil
	}
	failing := func(ctx context.Context, call string, _ int) error {
		mu.Lock()
		kind, wait := rnd.IntN(100), time.Duration(rnd.Int64N(int64(10*time.Second)))
		mu.Unlock()
		switch {
		case kind < 3:
			return errBoom
		case kind < 6 && call == "swap": // a paused process
			time.Sleep(wait)
		}
		return nil
	}
	lost := func(context.Context, string, int) error {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(100) < 5 {
			return fmt.Errorf("%w: %w", store.ErrUnsure, errBoom)
		}
		return nil
	}
	start := r.now()
	var workers []*member
	work := func() *member {
		w := r.worker(handle, WorkerOptions{Lease: 2 * time.Second, Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
		w.faults.set(failing, lost)
		return w
	}
	for range 3 {
		workers = append(workers, work())
	}
	const n = 20
	for i := range n {
		s := Schedule{
			Key: fmt.Sprint("s", i), Every: time.Duration(1+i%5) * time.Second, Offset: time.Duration(i%3) * 100 * time.Millisecond,
			Overlap: Overlap(i % 4), Missed: Missed(i / 4 % 3), CatchUp: time.Duration(1+i) * time.Second,
		}
		if i%2 == 0 {
			s.Jitter = 900 * time.Millisecond
		}
		r.put(s)
	}
	for range 60 {
		pass(time.Second)
		mu.Lock()
		i := rnd.IntN(5 * len(workers))
		mu.Unlock()
		if i < len(workers) { // one dies: its calls fail from now on, and another replaces it
			workers[i].faults.fail(errBoom)
			workers[i] = work()
		}
	}
	end := r.now()
	for i := range n {
		require.NoError(t, r.timers.PauseSchedule(ctx, fmt.Sprint("s", i), "the end"))
	}
	for _, w := range workers {
		w.faults.fail(nil)
	}
	pass(30 * time.Second)
	for i := range n {
		info := r.plan(fmt.Sprint("s", i))
		rec, err := r.engine.Get(ctx, store.ShardOf(info.Key, 4), store.PlanKey(info.Key))
		require.NoError(t, err)
		p := decodePlan(rec.Key, rec.ID, rec.Body)
		planned, _ := p.Passed(store.MillisAt(start), p.Cursor, 1)
		buffered := 0
		if p.Buffered != 0 {
			buffered = 1
		}
		c := info.Counts
		require.Equal(t, uint64(planned), c.Created+c.SkippedMissed+c.SkippedOverlap+uint64(buffered), "%+v", info)
		require.NotZero(t, c.Created)
		require.Less(t, end.Sub(p.Cursor.Time()), 30*time.Second)
		names := 0
		for name, all := range ids {
			if schedule, _, _ := strings.Cut(name, " @ "); schedule == info.Key {
				names++
				require.Len(t, all, 1, "%s has two IDs", name)
			}
		}
		require.LessOrEqual(t, names, int(c.Created))
		require.Equal(t, c.Created, c.Done+c.Dead+c.Cancelled, "%+v", info)
		if info.Overlap != OverlapCancel {
			require.Equal(t, int(c.Created), names)
		}
	}
}

// If a worker dies while it holds a plan, another advances it after the lease.
func TestWorkerDiesWithPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		dead := r.worker(j.handle, WorkerOptions{Lease: time.Second})
		r.put(Schedule{Key: "report", Every: time.Minute})
		pass(50 * time.Second)
		resume := make(chan struct{})
		dead.faults.set(func(ctx context.Context, call string, _ int) error {
			if call == "claim" {
				return nil
			}
			<-resume
			return nil
		}, nil)
		pass(11 * time.Second)
		require.Equal(t, 1, r.stats().Leased)
		alive := r.worker(j.handle, WorkerOptions{Lease: time.Second})
		pass(10 * time.Second)
		require.Len(t, j.all(), 1)
		close(resume) // it was only paused: its swap is late
		pass(5 * time.Second)
		require.Len(t, j.all(), 1)
		require.Equal(t, ScheduleCounts{Created: 1, Done: 1}, r.plan("report").Counts)
		require.Equal(t, uint64(1), alive.Stats().Planned)
		require.Zero(t, dead.Stats().Planned)
	})
}

// A stopping worker releases the plans that it has claimed, and the occurrences that it has
// created and leased: each runs elsewhere as a first attempt.
func TestWorkerStopsWithLeases(t *testing.T) {
	for _, late := range []string{"claim", "swap"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1, store.Limits{}, 0)
			j := &journal{}
			w := r.worker(j.handle, WorkerOptions{})
			r.put(Schedule{Key: "report", Every: time.Minute})
			w.faults.set(nil, func(_ context.Context, call string, _ int) error {
				if call == late {
					time.Sleep(time.Second)
				}
				return nil
			})
			pass(time.Minute + time.Millisecond)
			require.NoError(t, w.stop())
			require.Empty(t, j.all())
			require.Equal(t, uint64(1), w.Stats().Released)
			st := r.stats()
			require.Equal(t, 1, st.SchedulesOverdue+st.Overdue)
			r.worker(j.handle, WorkerOptions{})
			pass(10 * time.Millisecond)
			require.Len(t, j.all(), 1)
			require.Equal(t, 1, j.all()[0].Attempt)
		})
	}
}

// S10: an occurrence needs no separate claim.
func TestOccurrenceNeedsNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{})
		for i := range 3 {
			r.put(Schedule{Key: fmt.Sprint("report", i), Every: time.Minute})
		}
		pass(59 * time.Second)
		w.faults.set(nil, func(_ context.Context, call string, _ int) error {
			if call == "swap" {
				w.faults.fail(errBoom, "claim")
			}
			return nil
		})
		pass(time.Second + time.Millisecond)
		require.Len(t, j.all(), 3)
		require.Equal(t, 1, w.faults.count("swap"))
		require.Equal(t, uint64(6), w.Stats().Claimed, "plans and occurrences")
		w.faults.fail(nil)
	})
}

// S10: a worker leases at most as many occurrences as it has free slots. The others wait to be
// claimed by a worker with free slots.
func TestOccurrencesWithoutCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		release := make(chan struct{})
		w := r.worker(func(context.Context, Fired) error { <-release; return nil }, WorkerOptions{Concurrency: 2})
		for i := range 5 {
			r.put(Schedule{Key: fmt.Sprint("report", i), Every: time.Minute})
		}
		pass(time.Minute + 10*time.Millisecond)
		require.Equal(t, 2, w.Stats().Running)
		require.Zero(t, w.Stats().Released)
		st := r.stats()
		require.Equal(t, []int{2, 3}, []int{st.Leased, st.Overdue})
		j := &journal{}
		r.worker(j.handle, WorkerOptions{})
		pass(5 * time.Second)
		require.Len(t, j.all(), 3)
		close(release)
		pass(100 * time.Millisecond)
		for i := range 5 {
			require.Equal(t, uint64(1), r.plan(fmt.Sprint("report", i)).Counts.Done)
		}
	})
}

// S2, S10: if the reply to a swap is lost, the occurrences that it leased run soon, once, as a
// first attempt.
func TestReplyWithLeasesIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{})
		r.put(Schedule{Key: "report", Every: time.Minute})
		lost := 0
		w.faults.set(nil, func(_ context.Context, call string, _ int) error {
			if call == "swap" && lost < 3 {
				lost++
				return fmt.Errorf("%w: the connection was cut", store.ErrUnsure)
			}
			return nil
		})
		pass(time.Minute + 2*time.Second) // a lease is 30 s
		require.Len(t, j.all(), 1)
		require.Equal(t, 1, j.all()[0].Attempt)
		pass(50 * time.Second)
		require.Len(t, j.all(), 1)
		require.Equal(t, ScheduleCounts{Created: 1, Done: 1}, r.plan("report").Counts)
	})
}

// S10: including the engine's overhead (redisstore's TestMemoryOfPlans: 593 bytes), a schedule
// takes less than 700 bytes in addition to its body.
func TestPlansAreSmall(t *testing.T) {
	t.Parallel()
	now := store.Millis(1_800_000_000_000)
	for _, s := range []Schedule{
		{Key: "report", Cron: "30 2 * * 1-5", Zone: "America/New_York", Topic: "reports", Missed: MissedAll, CatchUp: 12 * time.Hour},
		{Key: "report", Every: 15 * time.Minute, Offset: 3 * time.Minute, Topic: "reports", Jitter: time.Minute},
	} {
		s, rules, err := s.withDefaults()
		require.NoError(t, err)
		p := &plan{Schedule: s, id: store.NewID(), created: now, key: "report\x00", Plan: planning.Plan{Rules: rules, State: planning.State{
			Cursor: now, Previous: now, Counts: planning.Counts{Created: 10_000, SkippedMissed: 100, SkippedOverlap: 100},
		}}}
		p.Remember(planning.Occurrence{Planned: now})
		require.Less(t, len(p.encode()), 107)
	}
}

// D12: the bodies of one swap are bounded.
func TestBatches(t *testing.T) {
	t.Parallel()
	for body, want := range map[int]int{0: 100, 10_485: 100, 10_486: 99, 30 << 10: 34, 60 << 10: 17} {
		_, rules, err := Schedule{Key: "k", Every: time.Hour, Body: make([]byte, body)}.withDefaults()
		require.NoError(t, err)
		require.Equal(t, want, rules.Batch)
	}
}

func TestEncodedPlans(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		s := Schedule{Key: "k", Every: time.Hour, Topic: "t", Body: []byte("body"), Overlap: Overlap(rnd.IntN(4)), Missed: Missed(rnd.IntN(3))}
		if rnd.IntN(2) == 0 {
			s.Every, s.Cron, s.Zone, s.PauseOnDead = 0, "@hourly", "Europe/Berlin", true
			s.Start, s.End, s.Limit, s.Jitter = time.UnixMilli(1e12).UTC(), time.UnixMilli(3e12).UTC(), 7, time.Second
		}
		s, rules, err := s.withDefaults()
		require.NoError(t, err)
		at := func() store.Millis { return store.Millis(rnd.IntN(2)) * (1e12 + store.Millis(rnd.Uint32())) }
		p := &plan{Schedule: s, id: store.NewID(), created: at(), key: "k\x00", version: store.NewID(), Plan: planning.Plan{Rules: rules, State: planning.State{
			Cursor: at(), Previous: at(), Buffered: at(), BacklogEnd: at(), Paused: at(), DeadSeen: rnd.Uint64(),
		}}}
		if p.Paused != 0 {
			p.PauseNote = "a note"
		}
		for _, n := range storedCounts(&p.Counts) {
			*n = rnd.Uint64N(1000)
		}
		for range rnd.IntN(3) {
			p.Remember(planning.Occurrence{Planned: at(), Cause: planning.Cause(rnd.IntN(int(planning.Causes))), Number: rnd.Uint64N(1000)})
		}
		b := p.encode()
		require.Equal(t, p, decodePlan("k\x00", p.version, b))
		for i := range b {
			if q := decodePlan("k\x00", p.version, b[:i]); i < len(b)-len(s.Body) {
				require.Error(t, q.problem)
			}
		}
	}
	require.ErrorContains(t, decodePlan("k\x00", ID{}, nil).problem, "is stored in format 0")
}

// FuzzDecodePlan: no stored bytes make a plan panic or run away.
func FuzzDecodePlan(f *testing.F) {
	s, rules, err := Schedule{Key: "k", Every: time.Hour}.withDefaults()
	require.NoError(f, err)
	p := &plan{Schedule: s, key: "k\x00", Plan: planning.Plan{Rules: rules, State: planning.State{Cursor: 1e12}}}
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p := decodePlan("k\x00", ID{}, b)
		if p.problem != nil {
			return
		}
		again := decodePlan("k\x00", ID{}, p.encode())
		require.NoError(t, again.problem)
		require.True(t, p.same(&again.Schedule))
	})
}
