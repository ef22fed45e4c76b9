package readme

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
	"github.com/stretchr/testify/require"
)

func connections(id uint64, conn net.Conn) error {
	// README
	table, err := keyed.New(func(id uint64, c net.Conn) { c.Close() }, timingwheel.Options{})
	if err != nil {
		return err
	}
	if err := table.Set(id, conn, 30*time.Second); err != nil {
		return err
	}
	// At each message; keyed.ErrAbsent: the entry has expired.
	if err := table.Touch(id, 30*time.Second); err != nil {
		return err
	}
	c, ok := table.Remove(id) // true: the table will not close it
	// end
	if !ok || c != conn {
		return errors.New("the connection has left the table")
	}
	if err := table.Touch(id, time.Second); !errors.Is(err, keyed.ErrAbsent) {
		return err
	}
	_, err = table.Shutdown(context.Background(), timingwheel.Discard)
	return err
}

func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		require.NoError(t, connections(1, ours))
		require.NoError(t, ours.Close())
		require.NoError(t, theirs.Close())
	})
}

func requests(ctx context.Context, request uint64, expire func(uint64)) error {
	// README
	wheel, err := timingwheel.New(func(request uint64) { expire(request) }, timingwheel.Options{})
	if err != nil {
		return err
	}
	timer, err := wheel.Schedule(request, 5*time.Second) // an 8-byte handle
	if err != nil {
		return err
	}
	wheel.Reset(timer, 10*time.Second)                   // true: it was still pending
	stopped := wheel.Stop(timer)                         // true: expire will never be called for it
	left, err := wheel.Shutdown(ctx, timingwheel.Return) // values with their deadlines
	// end
	if !stopped || len(left) > 0 {
		return errors.New("the timer was not stopped")
	}
	return err
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, requests(t.Context(), 1, func(uint64) { t.Error("stopped") }))
	})
}

func chores(ctx context.Context, giveUp, refresh, cleanUp func(), deliver func() error) error {
	// README
	s, err := scheduler.New(scheduler.Options{})
	if err != nil {
		return err
	}
	call, err := s.AfterFunc(30*time.Second, giveUp)
	if err != nil {
		return err
	}
	call.Stop() // true: giveUp will never be called

	_, err = s.Every(time.Minute, refresh, scheduler.JobOptions{Jitter: 5 * time.Second})
	if err != nil {
		return err
	}
	nightly, err := cron.Parse("30 2 * * *") // once a night, also when the clocks change
	if err != nil {
		return err
	}
	_, err = s.OnSchedule(nightly, cleanUp, scheduler.JobOptions{Missed: scheduler.Coalesce})
	if err != nil {
		return err
	}
	// Until it returns nil, at most 8 times, after random and growing pauses.
	_, err = s.Retry(0, deliver, scheduler.RetryOptions{MaxAttempts: 8})
	// end
	if err != nil {
		return err
	}
	time.Sleep(24*time.Hour + 30*time.Second)
	_, err = s.Shutdown(ctx, timingwheel.Discard)
	return err
}

func TestChores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refreshed, cleaned, tried int
		require.NoError(t, chores(t.Context(),
			func() { t.Error("stopped") },
			func() { refreshed++ },
			func() { cleaned++ },
			func() error {
				if tried++; tried < 3 {
					return errors.New("not yet")
				}
				return nil
			}))
		require.Equal(t, 24*60, refreshed)
		require.Equal(t, 1, cleaned)
		require.Equal(t, 3, tried)
	})
}

type job string

func queue(ctx context.Context) (job, error) {
	// README
	q := delayqueue.New[job]()
	h, err := q.Push("report", time.Now().Add(time.Hour))
	if err != nil {
		return "", err
	}
	q.Reset(h, time.Now().Add(time.Minute)) // true: it is still in the queue
	next, err := q.Take(ctx)                // blocks until the first is due
	// end
	return next, err
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		next, err := queue(t.Context())
		require.NoError(t, err)
		require.Equal(t, job("report"), next)
		require.Equal(t, time.Minute, time.Since(start))
	})
}
