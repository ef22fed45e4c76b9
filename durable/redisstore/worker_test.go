package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
)

// runningRig returns a rig whose clock runs, for workers.
func runningRig(t *testing.T, o Options) *rig {
	r := newRig(t, startServer(t), o)
	r.clock.frozen = false
	r.clock.ms.Store(0)
	return r
}

// worker runs a worker with its own store until the test's end.
func (r *rig) worker(c redis.UniversalClient, h durable.Handler, o durable.WorkerOptions) *durable.Worker {
	r.t.Helper()
	timers, err := durable.New(r.open(c), durable.Options{Logger: slog.New(slog.DiscardHandler)})
	r.NoError(err)
	w, err := timers.NewWorker(h, o)
	r.NoError(err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		r.NoError(<-done)
	})
	return w
}

// commands returns how many commands the server has received, by name, without those that scripts
// call.
func (r *rig) commands() map[string]int {
	r.t.Helper()
	counts := make(map[string]int)
	for line := range strings.Lines(r.raw.Info(r.ctx, "commandstats").Val()) {
		for _, name := range []string{"eval", "evalsha", "ping", "subscribe", "hello", "client|setinfo"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				var n int
				_, err := fmt.Sscanf(rest, "%d,", &n)
				r.NoError(err)
				counts[name] = n
			}
		}
	}
	return counts
}

// Ten idle workers with 16 shards send a server at most 30 commands a second: heartbeats and polls,
// which durable's TestIdleWorkersAreQuiet counts, and pings of subscriptions. All of them are
// counted over a minute with LIMBO_LONG=1.
func TestIdleWorkersOnAServer(t *testing.T) {
	t.Parallel()
	const workers = 10
	r := runningRig(t, Options{Shards: 16})
	timers, err := durable.New(r.open(r.raw), durable.Options{})
	r.NoError(err)
	_, err = timers.Schedule(r.ctx, durable.Timer{Key: "far", After: time.Hour})
	r.NoError(err)
	for range workers {
		r.worker(r.srv.client(t), func(context.Context, durable.Fired) error { return nil }, durable.WorkerOptions{})
	}
	warmUp, span := time.Second, 3*time.Second
	if long() {
		warmUp, span = 5*time.Second, time.Minute
	}
	<-time.After(warmUp)
	began := time.Now()
	before := r.commands()
	<-time.After(span)
	after, elapsed := r.commands(), time.Since(began)
	r.LessOrEqual(after["ping"]-before["ping"], workers*int(1+elapsed/(15*time.Second)))
	sum := 0
	for name, n := range after {
		t.Logf("%s: %.2f a second", name, float64(n-before[name])/elapsed.Seconds())
		sum += n - before[name]
	}
	if long() {
		r.LessOrEqual(float64(sum), 30*elapsed.Seconds())
	}
}

// D5, D6: when a worker falls silent, another runs its timers when their leases have expired, and
// not before, each timer once. The silent worker's later calls change nothing.
func TestWorkerThatFallsSilent(t *testing.T) {
	t.Parallel()
	const n, lease = 1000, time.Hour
	r := runningRig(t, Options{Shards: 16})
	timers, err := durable.New(r.open(r.raw), durable.Options{})
	r.NoError(err)
	p := startProxy(t, r.srv.addr)
	wake := make(chan struct{})
	silent := r.worker(newClient(t, redis.Options{Addr: p.addr}), func(ctx context.Context, _ durable.Fired) error {
		<-wake
		return nil // even though ctx has ended
	}, durable.WorkerOptions{Concurrency: n, Lease: lease})
	many := make([]durable.Timer, n)
	for i := range many {
		many[i].Key = fmt.Sprint("k", i)
	}
	_, err = timers.ScheduleMany(r.ctx, many)
	r.NoError(err)
	stats := func() durable.Stats {
		st, err := timers.Stats(r.ctx)
		r.NoError(err)
		return st
	}
	r.Eventually(func() bool { return stats().Leased == n }, time.Minute, time.Millisecond)

	var mu sync.Mutex
	ran := make(map[string]int)
	other := r.worker(r.raw, func(_ context.Context, f durable.Fired) error {
		mu.Lock()
		defer mu.Unlock()
		ran[f.Key]++
		if f.Attempt != 2 {
			return durable.Discard(fmt.Errorf("attempt %d", f.Attempt))
		}
		return nil
	}, durable.WorkerOptions{Concurrency: n, Lease: lease})
	p.hang(true)
	r.clock.advance(lease - time.Minute)
	r.Eventually(func() bool { return other.Stats().Members == 1 }, time.Minute, time.Millisecond)
	mu.Lock()
	r.Empty(ran)
	mu.Unlock()
	r.clock.advance(2 * time.Minute)
	r.Eventually(func() bool { return other.Stats().Done == n }, time.Minute, time.Millisecond)
	p.hang(false)
	close(wake)
	r.Eventually(func() bool { return silent.Stats().Lost == n }, time.Minute, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	r.Len(ran, n)
	for key, times := range ran {
		require.Equal(t, 1, times, key)
	}
	left := stats()
	r.Zero(left.Waiting + left.Leased + left.Dead)
}
