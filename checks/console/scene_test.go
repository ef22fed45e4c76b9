package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
)

// scene is a store with typical contents.
type scene struct {
	t      *testing.T
	engine *faulty
	timers *durable.Timers
	close  func() // also called at the end of the test
}

func newScene(t *testing.T) *scene {
	t.Helper()
	inMemory, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	return sceneOn(t, inMemory)
}

func sceneOn(t *testing.T, st store.Store) *scene {
	t.Helper()
	engine := &faulty{Store: st}
	timers, err := durable.New(engine, durable.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s := &scene{t: t, engine: engine, timers: timers}
	s.close = sync.OnceFunc(func() {
		require.NoError(t, timers.Shutdown(background))
		require.NoError(t, engine.Close())
	})
	t.Cleanup(s.close)
	return s
}

func (s *scene) console(o console.Options) *site {
	s.t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	c, err := console.New(s.timers, o)
	require.NoError(s.t, err)
	return serve(s.t, c)
}

func (s *scene) schedule(timers ...durable.Timer) {
	s.t.Helper()
	for part := range slices.Chunk(timers, 10_000) {
		_, err := s.timers.ScheduleMany(background, part)
		require.NoError(s.t, err)
	}
}

func (s *scene) waiting(prefix string, n int) {
	s.t.Helper()
	s.schedule(waitingTimers(prefix, n)...)
}

// waitingTimers returns timers that are due in the order of their keys, the first in an hour.
func waitingTimers(prefix string, n int) []durable.Timer {
	timers := make([]durable.Timer, n)
	for i := range timers {
		timers[i] = durable.Timer{
			Key: fmt.Sprintf("%s%05d", prefix, i), Topic: fmt.Sprintf("topic-%02d", i%100), After: time.Duration(i+1)*97*time.Second + time.Hour,
			Body: fmt.Appendf(nil, `{"order":%d,"customer":"c-%d","amount":12.50,"note":"<b>gift</b>"}`, i, i*7),
		}
	}
	return timers
}

// fail runs a worker that dead-letters each of the timers with its error.
func (s *scene) fail(failures map[string]string) {
	s.t.Helper()
	var timers []durable.Timer
	var left sync.WaitGroup
	for key := range failures {
		left.Add(1)
		timers = append(timers, durable.Timer{Key: key, Topic: "mails/transactional", Body: []byte(`{"to":"a@example.org","headers":{"Authorization":"Bearer x"}}`)})
	}
	s.schedule(timers...)
	ctx, stop := context.WithCancel(background)
	defer stop()
	worker, err := s.timers.NewWorker(func(_ context.Context, f durable.Fired) error {
		return durable.Discard(errors.New(failures[f.Key]))
	}, durable.WorkerOptions{Concurrency: 1000, OnDead: func(durable.Fired, error) { left.Done() }})
	require.NoError(s.t, err)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	left.Wait()
	stop()
	require.NoError(s.t, <-done)
}

// run starts a worker. A handler returns the error of outcome if outcome reports true; otherwise
// it runs until the test ends.
func (s *scene) run(outcome func(f durable.Fired) (error, bool)) *durable.Worker {
	s.t.Helper()
	ctx, stop := context.WithCancel(background)
	worker, err := s.timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		if err, ended := outcome(f); ended {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}, durable.WorkerOptions{Name: "orders-1.example.org", Grace: -1})
	require.NoError(s.t, err)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		require.NoError(s.t, <-done)
	})
	return worker
}

const markup = `<script>document.title = "stolen"</script><img src=x onerror="document.title='stolen'">`

// realistic fills the store for pictures, and returns the running worker.
func (s *scene) realistic() {
	s.t.Helper()
	s.waiting("order/2026-11/", 1500)
	s.schedule(durable.Timer{Key: markup, Topic: markup, After: 20 * time.Minute},
		durable.Timer{Key: strings.Repeat("customer/9f8e7d6c/", 28) + "12345678", Topic: strings.Repeat("very-long-topic.", 8), After: 25 * time.Minute})
	dead := map[string]string{}
	for i := range 230 {
		switch i % 3 {
		case 0:
			dead[fmt.Sprintf("mail/%04d", i)] = fmt.Sprintf("Post \"https://mail.example.org/v1/send\": dial tcp 10.0.%d.7:443: connect: connection refused\nattempt 5 of 5\nrequest id 7d0f-%04d", i, i)
		case 1:
			dead[fmt.Sprintf("mail/%04d", i)] = "status 422: the address is not valid"
		default:
			dead[fmt.Sprintf("invoice/2026/%04d", i)] = "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 118 [running]:\nmain.render(0xc000180000)\n\t/srv/app/render.go:118 +0x1d4"
		}
	}
	s.fail(dead)
	for _, one := range []durable.Schedule{
		{Key: "reports/daily-sales", Cron: "30 2 * * *", Zone: "Europe/Berlin", Topic: "reports", Body: []byte(`{"report":"sales","format":"pdf"}`)},
		{Key: "cache/refresh", Every: 5 * time.Minute, Topic: "cache"},
		{Key: "billing/close-month", Cron: "0 4 1 * *", Zone: "America/New_York", Topic: "billing"},
		{Key: "backup/nightly", Cron: "15 1 * * 1-5", Zone: "Asia/Tokyo", Topic: "backup", Jitter: time.Minute},
		{Key: "odd/spec", Cron: "7,37 8-18 * * MON-FRI", Zone: "UTC", Topic: "odd", PauseOnDead: true},
	} {
		_, _, err := s.timers.PutSchedule(background, one)
		require.NoError(s.t, err)
	}
	s.run(func(f durable.Fired) (error, bool) {
		switch {
		case f.Schedule == "reports/daily-sales" && f.Planned.UnixMilli()%3 == 0:
			return durable.Discard(errors.New("the printer is on fire")), true
		case f.Schedule != "":
			return nil, true
		}
		return nil, false
	})
	for i := range uint64(8) { // one after the other, to get different times
		for _, key := range []string{"reports/daily-sales", "cache/refresh", "backup/nightly"} {
			_, err := s.timers.TriggerSchedule(background, key)
			require.NoError(s.t, err)
			require.Eventually(s.t, func() bool {
				info, err := s.timers.GetSchedule(background, key)
				return err == nil && info.Counts.Done+info.Counts.Dead == i+1
			}, waitLimit, 5*time.Millisecond)
		}
	}
	require.NoError(s.t, s.timers.PauseSchedule(background, "billing/close-month", "the ledger is being migrated until Monday"))
	s.schedule(durable.Timer{Key: "import/catalogue", Topic: "imports"}, durable.Timer{Key: "video/transcode/8812", Topic: "video"})
}
