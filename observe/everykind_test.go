package observe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
	"github.com/stretchr/testify/require"
)

// everyKind is a registry with a source of every kind, each of which has been used.
type everyKind struct {
	registry  *Registry
	durations histogram.Durations // of the custom source
	act       func()              // ends at least one operation in each source
}

func newEveryKind(t testing.TB) *everyKind {
	e := &everyKind{registry: New()}
	add := func(name string, s Source) {
		_, err := e.registry.Add(name, s)
		require.NoError(t, err)
	}
	ctx := context.Background()

	wheel, err := timingwheel.New(func(int) {}, timingwheel.Options{MaxPending: 2})
	require.NoError(t, err)
	add("timers", Wheel(wheel))
	table, err := keyed.New(func(string, int) {}, timingwheel.Options{})
	require.NoError(t, err)
	require.NoError(t, table.Set("session", 1, time.Hour))
	add("sessions", Wheel(table))
	sched, err := scheduler.New(scheduler.Options{})
	require.NoError(t, err)
	_, err = sched.Every(time.Hour, func() {}, scheduler.JobOptions{})
	require.NoError(t, err)
	add("cron", Scheduler(sched))
	shared, err := purgatory.NewClock(purgatory.ClockOptions{})
	require.NoError(t, err)
	fetches, err := purgatory.New[string](purgatory.Options{Clock: shared, MaxPending: 1})
	require.NoError(t, err)
	add("fetches", Purgatory(fetches, nil))
	offsets, err := purgatory.NewThreshold(func(string) int64 { return 7 }, purgatory.Options{Clock: shared})
	require.NoError(t, err)
	add("offsets", Threshold(offsets, nil))
	votes, err := purgatory.NewFutures[int](purgatory.Options{})
	require.NoError(t, err)
	add("votes", Futures(votes))
	requests, err := calls.New[uint64, string](calls.Options{})
	require.NoError(t, err)
	add("requests", Calls(requests, nil))
	polls, err := longpoll.New(longpoll.Options{})
	require.NoError(t, err)
	add("news", Polls(polls))
	queue := delayqueue.New[int]()
	add("mail", Queue(queue))
	for _, d := range []time.Duration{0, time.Nanosecond, 30 * time.Millisecond, 30 * time.Millisecond, time.Second, time.Hour} {
		e.durations.Add(d)
	}
	engine, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	reminders, err := durable.New(engine, durable.Options{})
	require.NoError(t, err)
	add("reminders", Timers(reminders))
	require.Eventually(t, func() bool { // until the store has been read
		sources := e.registry.Snapshot().Sources
		return sources[len(sources)-1].Metrics["readable"] == 1.
	}, time.Minute, time.Millisecond)
	reminder, err := reminders.NewWorker(func(context.Context, durable.Fired) error { return nil }, durable.WorkerOptions{})
	require.NoError(t, err)
	add("reminders", Worker(reminder))
	_, _, err = reminders.PutSchedule(ctx, durable.Schedule{Key: "every second", Every: time.Second})
	require.NoError(t, err)
	working, stopWorking := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- reminder.Run(working) }()
	add("disk", Custom("journal", func() []Metric {
		return []Metric{
			{Name: "records", Help: "Records held", Value: 3},
			{Name: "written_bytes_total", Help: "Bytes written", Type: Counter, Value: 4096},
			{Name: "synced_seconds", Help: "How long syncs took", Type: Histogram, Durations: e.durations},
		}
	}))

	// Fill the limits, for refusals.
	_, err = wheel.Schedule(0, time.Hour)
	require.NoError(t, err)
	_, err = fetches.TryCompleteElseWatch(ctx, never{}, time.Hour, "topic-0")
	require.NoError(t, err)

	id := uint64(0)
	e.act = func() {
		_, _ = wheel.Schedule(1, 0) // the last act may have filled the wheel
		_, err := sched.AfterFunc(0, func() {})
		require.NoError(t, err)
		_, err = fetches.TryCompleteElseWatch(ctx, never{}, time.Hour, "topic-0")
		require.ErrorIs(t, err, purgatory.ErrFull)
		expired := offsets.Await(ctx, time.Millisecond, purgatory.All, purgatory.Goal[string, int64]{Key: "topic-1", Number: 9})
		require.ErrorIs(t, expired, context.DeadlineExceeded)
		future := votes.Future()
		_, err = votes.TryCompleteElseWatch(ctx, never{}, time.Hour, purgatory.All, future)
		require.NoError(t, err)
		require.True(t, future.Set(1, nil))
		id++
		reply, err := requests.Do(ctx, id, time.Hour, func() error { requests.Reply(id, "pong"); return nil })
		require.NoError(t, err)
		require.Equal(t, "pong", reply)
		request := httptest.NewRequest(http.MethodGet, "/?wait=1", nil)
		polls.Serve(httptest.NewRecorder(), request, func(context.Context, time.Duration) error { return nil })
		_, err = queue.Push(1, time.Now())
		require.NoError(t, err)
		_, err = queue.Take(ctx)
		require.NoError(t, err)
	}
	e.act()
	t.Cleanup(func() {
		stopWorking()
		require.NoError(t, <-worked)
		_, err := wheel.Shutdown(ctx, timingwheel.Discard)
		require.NoError(t, err)
		_, err = table.Shutdown(ctx, timingwheel.Discard)
		require.NoError(t, err)
		_, err = sched.Shutdown(ctx, timingwheel.Discard)
		require.NoError(t, err)
		for _, p := range []interface{ Shutdown(context.Context) error }{offsets, fetches, votes, requests} {
			require.NoError(t, p.Shutdown(ctx))
		}
		shared.Close()
		queue.Close()
	})
	return e
}

// never is an operation that is never completed.
type never struct{}

func (never) TryComplete() bool                 { return false }
func (never) Complete(purgatory.Outcome, error) {}
