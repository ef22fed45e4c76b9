package observe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/observe"
)

const (
	readTimeout = 2 * time.Second // as Timers promises
	maxAge      = 5 * time.Minute
)

// broken is a store whose reads fail, or block.
type broken struct {
	store.Store
	failing atomic.Bool
	blocked atomic.Bool
	reads   atomic.Int64
}

func (b *broken) Stats(ctx context.Context, shard int) (store.Stats, error) {
	b.reads.Add(1)
	if b.blocked.Load() {
		<-ctx.Done()
		return store.Stats{}, context.Cause(ctx)
	}
	if b.failing.Load() {
		return store.Stats{}, errors.New("the disk has gone")
	}
	return b.Store.Stats(ctx, shard)
}

// observed returns a store with a number of shards, and a registry that observes it.
func observed(t *testing.T, shards int) (*broken, *durable.Timers, *observe.Registry) {
	t.Helper()
	engine, err := memstore.New(memstore.Options{Shards: shards})
	require.NoError(t, err)
	s := &broken{Store: engine}
	timers, err := durable.New(s, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, timers.Shutdown(context.Background())) })
	r := observe.New()
	_, err = r.Add("timers", observe.Timers(timers))
	require.NoError(t, err)
	return s, timers, r
}

// currentMetrics returns the current metrics, without waiting for the store.
func currentMetrics(r *observe.Registry, source int) map[string]any {
	return r.Snapshot().Sources[source].Metrics
}

// freshMetrics returns the result of a read that begins now.
func freshMetrics(r *observe.Registry, source int) map[string]any {
	synctest.Wait() // for a read in progress
	_ = r.Snapshot()
	synctest.Wait()
	return currentMetrics(r, source)
}

// metrics returns the metrics of an empty store that was read just now, with changes.
func metrics(changes map[string]any) map[string]any {
	f := map[string]any{
		"readable": 1., "age_seconds": 0., "waiting": 0., "overdue": 0., "overdue_seconds": 0.,
		"leased": 0., "dead": 0., "dropped_total": 0., "invalid_metrics": 0.,
		"scheduled_total": 0., "schedules": 0., "schedules_overdue": 0.,
	}
	for name, value := range changes {
		f[name] = value
	}
	return f
}

var unreadable = map[string]any{"readable": 0., "invalid_metrics": 0.}

func TestMetricsOfTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, timers, r := observed(t, 2)
		done := make(chan struct{})
		worker, err := timers.NewWorker(func(context.Context, durable.Fired) error { close(done); return nil }, durable.WorkerOptions{})
		require.NoError(t, err)
		_, err = r.Add("worker", observe.Worker(worker))
		require.NoError(t, err)

		_, err = timers.Schedule(t.Context(), durable.Timer{Key: "due"})
		require.NoError(t, err)
		_, err = timers.Schedule(t.Context(), durable.Timer{Key: "later", After: 1 << 40})
		require.NoError(t, err)
		require.Equal(t, metrics(map[string]any{"waiting": 2., "overdue": 1., "scheduled_total": 2.}), freshMetrics(r, 0))
		time.Sleep(90 * time.Second)
		require.Equal(t, metrics(map[string]any{"waiting": 2., "overdue": 1., "overdue_seconds": 90., "scheduled_total": 2.}), freshMetrics(r, 0))

		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- worker.Run(ctx) }()
		<-done
		stop()
		require.NoError(t, <-ran)
		require.Equal(t, metrics(map[string]any{"waiting": 1., "scheduled_total": 2.}), freshMetrics(r, 0), "what is due in future is not overdue")
		got := currentMetrics(r, 1)
		require.Equal(t, 1., got["claimed_total"])
		require.Equal(t, map[string]any{
			"done": 1., "retried": 0., "snoozed": 0., "released": 0., "dead_lettered": 0.,
			"dead_lettered_lost": 0., "cancelled": 0., "lost": 0., "unwritten": 0.,
		}, got["ended_total"])

		s.failing.Store(true)
		require.Equal(t, unreadable, freshMetrics(r, 0))
	})
}

// Schedules are counted separately from timers; a worker counts their occurrences.
func TestMetricsOfSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, timers, r := observed(t, 2)
		busy := make(chan struct{})
		worker, err := timers.NewWorker(func(context.Context, durable.Fired) error { <-busy; return nil }, durable.WorkerOptions{})
		require.NoError(t, err)
		_, err = r.Add("worker", observe.Worker(worker))
		require.NoError(t, err)
		_, _, err = timers.PutSchedule(t.Context(), durable.Schedule{Key: "minutely", Every: time.Minute})
		require.NoError(t, err)
		_, _, err = timers.PutSchedule(t.Context(), durable.Schedule{Key: "daily", Cron: "@daily"})
		require.NoError(t, err)
		require.Equal(t, metrics(map[string]any{"schedules": 2.}), freshMetrics(r, 0))
		time.Sleep(61 * time.Second)
		require.Equal(t, metrics(map[string]any{"schedules": 2., "schedules_overdue": 1.}), freshMetrics(r, 0), "no worker runs")

		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- worker.Run(ctx) }()
		time.Sleep(3 * time.Minute) // the occurrence of the first minute is still running
		require.Equal(t, metrics(map[string]any{"schedules": 2., "leased": 1., "scheduled_total": 1.}), freshMetrics(r, 0))
		got := currentMetrics(r, 1)
		require.Equal(t, []any{1., 3., 0.}, []any{got["occurrences_total"], got["skipped_total"], got["plan_failures_total"]})
		require.Positive(t, got["planned_total"])
		require.EqualValues(t, 1, worker.Stats().PlannedLate.Count)
		require.Contains(t, got, "planned_late_seconds")
		require.EqualValues(t, 1, worker.Stats().Late.Count, "of the occurrence")
		require.Contains(t, got, "late_seconds")
		close(busy)
		stop()
		require.NoError(t, <-ran)
	})
}

// A store that does not answer delays no scrape, and blocks only one goroutine, which ends. Time
// stands still in a bubble while a goroutine runs, so a scrape that waited would be noticed.
func TestScrapesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, r := observed(t, 1)
		synctest.Wait()
		require.Equal(t, metrics(nil), currentMetrics(r, 0), "the first reading began before the first scrape")
		synctest.Wait()

		s.blocked.Store(true)
		reads, began := s.reads.Load(), time.Now()
		for range 10 {
			require.Equal(t, metrics(nil), currentMetrics(r, 0))
		}
		time.Sleep(readTimeout - 1)
		require.Equal(t, metrics(map[string]any{"age_seconds": (readTimeout - 1).Seconds()}), currentMetrics(r, 0), "what was found last, and its age")
		require.Equal(t, readTimeout-1, time.Since(began), "no scrape took any time")
		require.Equal(t, reads+1, s.reads.Load())
		time.Sleep(1)
		synctest.Wait()
		require.Equal(t, unreadable, currentMetrics(r, 0))

		s.blocked.Store(false)
		time.Sleep(readTimeout) // for the read that the scrape started
		require.Equal(t, metrics(nil), freshMetrics(r, 0))
	})
}

// An old result is not shown as if it were current.
func TestOldMetricsAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, r := observed(t, 1)
		synctest.Wait()
		time.Sleep(maxAge)
		require.Equal(t, metrics(map[string]any{"age_seconds": maxAge.Seconds()}), currentMetrics(r, 0))
		synctest.Wait()
		time.Sleep(maxAge + 1)
		require.Equal(t, unreadable, currentMetrics(r, 0))
		synctest.Wait()
		require.Equal(t, metrics(nil), currentMetrics(r, 0))
	})
}

func TestDurableSourcesOfNil(t *testing.T) {
	require.PanicsWithValue(t, "observe: Timers of nil", func() { observe.Timers(nil) })
	require.PanicsWithValue(t, "observe: Worker of nil", func() { observe.Worker(nil) })
}
