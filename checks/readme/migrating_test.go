package readme

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

// partition has a high watermark that followers move.
type partition struct {
	id            string
	highWatermark atomic.Int64
}

// docs/migrating
type produce struct {
	partition *partition
	end       int64
	reply     func(cause error)
}

func (p *produce) TryComplete() bool { return p.partition.highWatermark.Load() >= p.end }

func (p *produce) Complete(_ purgatory.Outcome, cause error) { p.reply(cause) }

type produces struct{ waiting *purgatory.Purgatory[string] }

func (s *produces) acknowledge(ctx context.Context, p *produce) error {
	_, err := s.waiting.TryCompleteElseWatch(ctx, p, 30*time.Second, p.partition.id)
	return err
}

func (s *produces) replicated(p *partition, offset int64) {
	p.highWatermark.Store(offset)
	s.waiting.CheckAndComplete(p.id)
}

// end

func TestProduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting, err := purgatory.New[string](purgatory.Options{})
		require.NoError(t, err)
		s, orders := &produces{waiting}, &partition{id: "orders-0"}
		causes := make(chan error, 1)
		p := &produce{orders, 10, func(cause error) { causes <- cause }}

		require.NoError(t, s.acknowledge(t.Context(), p))
		s.replicated(orders, 9)
		require.Empty(t, causes)
		s.replicated(orders, 10)
		require.NoError(t, <-causes)

		p.end = 11
		require.NoError(t, s.acknowledge(t.Context(), p))
		begun := time.Now()
		require.ErrorIs(t, <-causes, purgatory.ErrExpired)
		require.GreaterOrEqual(t, time.Since(begun), 30*time.Second)
		require.NoError(t, waiting.Shutdown(t.Context()))
	})
}

func sessionsOnAWheel(ctx context.Context, id string, expire func(string)) error {
	// docs/migrating
	wheel, err := timingwheel.New(expire, timingwheel.Options{Tick: time.Millisecond})
	if err != nil {
		return err
	}
	timer, err := wheel.Schedule(id, 30*time.Second)
	if err != nil {
		return err
	}
	stopped := wheel.Stop(timer) // true: expire will never be called for it

	_, err = wheel.Shutdown(ctx, timingwheel.Discard)
	// end
	if !stopped {
		return errors.New("the timer was not stopped")
	}
	return err
}

func TestSessionsOnAWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, sessionsOnAWheel(t.Context(), "a", func(string) { t.Error("stopped") }))
	})
}

func giveUpLater(ctx context.Context, giveUp func()) (left []scheduler.Pending, err error) {
	// docs/migrating
	s, err := scheduler.New(scheduler.Options{Tick: 10 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	call, err := s.AfterFunc(5*time.Second, giveUp)
	if err != nil {
		return nil, err
	}
	stopped := call.Stop()

	left, err = s.Shutdown(ctx, timingwheel.Return)
	// end
	if !stopped {
		return nil, errors.New("the call was not stopped")
	}
	return left, err
}

func TestGiveUpLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, err := giveUpLater(t.Context(), func() { t.Error("stopped") })
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func idleConnections(id uint64, conn net.Conn) error {
	// docs/migrating
	table, err := keyed.New(func(_ uint64, c net.Conn) { c.Close() }, timingwheel.Options{})
	if err != nil {
		return err
	}
	if err := table.Set(id, conn, 30*time.Second); err != nil {
		return err
	}
	if err := table.Touch(id, 30*time.Second); err != nil {
		return err // keyed.ErrAbsent: it has expired
	}
	_, removed := table.Remove(id)

	table.Drain(func(_ uint64, c net.Conn) { c.Close() })
	_, err = table.Close(timingwheel.Discard)
	// end
	if !removed {
		return errors.New("the connection was not in the table")
	}
	return err
}

func TestIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		require.NoError(t, idleConnections(1, ours))
		require.NoError(t, ours.Close())
		require.NoError(t, theirs.Close())
	})
}

func callsAndJobs(giveUp, refresh, report func()) (*scheduler.Scheduler, error) {
	// docs/migrating
	s, err := scheduler.New(scheduler.Options{})
	if err != nil {
		return nil, err
	}
	call, err := s.AfterFunc(5*time.Second, giveUp)
	if err != nil {
		return nil, err
	}
	stopped := call.Stop()

	job, err := s.Every(time.Minute, refresh, scheduler.JobOptions{})
	if err != nil {
		return nil, err
	}
	daily, err := cron.Parse("30 2 * * *") // or any type with Next(time.Time) time.Time
	if err != nil {
		return nil, err
	}
	_, err = s.OnSchedule(daily, report, scheduler.JobOptions{})
	// end
	if !stopped {
		return nil, errors.New("the call was not stopped")
	}
	time.AfterFunc(10*time.Minute+time.Second, func() { job.Stop() })
	return s, err
}

func TestCallsAndJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refreshed, reported int
		s, err := callsAndJobs(func() { t.Error("stopped") }, func() { refreshed++ }, func() { reported++ })
		require.NoError(t, err)
		time.Sleep(24 * time.Hour)
		_, err = s.Shutdown(t.Context(), timingwheel.Discard)
		require.NoError(t, err)
		require.Equal(t, 10, refreshed)
		require.Equal(t, 1, reported)
	})
}

// docs/migrating
type sessions struct {
	mu     sync.Mutex
	timers map[string]*time.Timer
	expire func(id string)
}

func (s *sessions) keepAlive(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.timers[id]; ok {
		t.Reset(30 * time.Second)
		return
	}
	s.timers[id] = time.AfterFunc(30*time.Second, func() {
		s.mu.Lock()
		delete(s.timers, id)
		s.mu.Unlock()
		s.expire(id)
	})
}

// end

func TestMapOfTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var expired []string
		s := &sessions{timers: map[string]*time.Timer{}, expire: func(id string) { expired = append(expired, id) }}
		s.keepAlive("a")
		testKeepAlive(t, func() { s.keepAlive("a") }, &expired)
	})
}

// A timer whose function has begun starts it again when it is reset: the race of the map.
func TestResetOfAFiredTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, proceed := 0, make(chan struct{})
		timer := time.AfterFunc(30*time.Second, func() { calls++; <-proceed })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.False(t, timer.Reset(30*time.Second))
		close(proceed)
		time.Sleep(31 * time.Second)
		require.Equal(t, 2, calls)
	})
}

// docs/migrating
type table struct{ *keyed.Table[string, struct{}] }

func newTable(expire func(id string)) (table, error) {
	t, err := keyed.New(func(id string, _ struct{}) { expire(id) }, timingwheel.Options{})
	return table{t}, err
}

func (t table) keepAlive(id string) error { return t.Set(id, struct{}{}, 30*time.Second) }

// end

func TestKeyedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var expired []string
		s, err := newTable(func(id string) { expired = append(expired, id) })
		require.NoError(t, err)
		require.NoError(t, s.keepAlive("a"))
		testKeepAlive(t, func() { require.NoError(t, s.keepAlive("a")) }, &expired)
		_, err = s.Shutdown(t.Context(), timingwheel.Discard)
		require.NoError(t, err)
	})
}

// testKeepAlive expects the session a, which has just begun, to expire 30 s after its last heartbeat.
func testKeepAlive(t *testing.T, keepAlive func(), expired *[]string) {
	t.Helper()
	time.Sleep(29 * time.Second)
	keepAlive()
	time.Sleep(29 * time.Second)
	synctest.Wait()
	require.Empty(t, *expired)
	time.Sleep(2 * time.Second)
	synctest.Wait()
	require.Equal(t, []string{"a"}, *expired)
}
