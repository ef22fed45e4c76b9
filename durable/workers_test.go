package durable

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/histogram"
)

func (r *rig) workers() []WorkerInfo {
	r.t.Helper()
	workers, err := r.timers.Workers(context.Background())
	require.NoError(r.t, err)
	return workers
}

// Late is measured by the engine's clock, from the due time of each attempt.
func TestLateIsFromTheDueTime(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1, store.Limits{}, skew)
			w := r.worker(func(_ context.Context, f Fired) error {
				time.Sleep(time.Second)
				if f.Attempt == 1 && f.Key == "c" {
					return RetryAfter(10*time.Second, errors.New("again"))
				}
				return nil
			}, WorkerOptions{Concurrency: 1})
			pass(time.Second)
			for _, key := range []string{"a", "b", "c"} {
				r.schedule(key, 10*time.Second)
			}
			pass(10*time.Second + time.Millisecond)
			late := w.Stats().Late
			require.EqualValues(t, 1, late.Count, "the first handler still runs")
			require.InDelta(t, 0, late.Sum, .002)
			pass(5 * time.Second)
			late = w.Stats().Late
			require.EqualValues(t, 3, late.Count)
			require.InDelta(t, 0+1+2, late.Sum, .1)
			pass(10 * time.Second) // the retry is on time
			late = w.Stats().Late
			require.EqualValues(t, 4, late.Count)
			require.InDelta(t, 0+1+2, late.Sum, .1)
			r.add(Timer{Key: "past", At: r.now().Add(-3 * time.Hour)})
			pass(2 * time.Second)
			require.InDelta(t, 3+3*3600, w.Stats().Late.Sum, .2)
			require.NoError(t, w.stop())
		})
	}
}

// Late is never negative: a due time ahead of the engine's clock, or before the first reply, gives
// 0.
func TestSinceIsNeverNegative(t *testing.T) {
	var c engineClock
	require.Zero(t, c.since(1, time.Hour))
	c.observe(time.Second, 2*time.Second, 5000)
	require.Equal(t, 2*time.Second, c.since(4000, 3*time.Second))
	require.Zero(t, c.since(6001, 3*time.Second))
	require.Zero(t, c.since(store.MaxMillis, 3*time.Second))
	require.Equal(t, 24*time.Hour, c.since(4000, 24*time.Hour+time.Second))
}

// Each process sees the workers of all, with the contents of their last heartbeats.
func TestWorkersOfAllProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, time.Hour)
		began := r.now()
		a := r.worker(func(ctx context.Context, f Fired) error {
			switch f.Key {
			case "long":
				<-ctx.Done()
			case "dead":
				return Discard(errors.New("no"))
			case "retried":
				return RetryAfter(time.Hour, errors.New("again"))
			case "snoozed":
				return Snooze(time.Hour)
			}
			return nil
		}, WorkerOptions{Name: "a", Concurrency: 7})
		pass(time.Second)
		for _, key := range []string{"long", "dead", "retried", "snoozed", "done"} {
			r.schedule(key, time.Second)
		}
		pass(10*time.Second + time.Second/2)
		b := r.worker((&journal{}).handle, WorkerOptions{Name: "b"})
		workers := r.workers()
		require.Len(t, workers, 2)
		require.Equal(t, b.Name(), workers[1].Name)
		require.Equal(t, 64, workers[1].Slots)
		want := WorkerInfo{
			Name: a.Name(), Live: true, Heartbeat: workers[0].Heartbeat, Since: began,
			Slots: 7, Running: 1, Preferred: 2, Done: 1, Retried: 1, Snoozed: 1, DeadLettered: 1, Late: a.Stats().Late,
		}
		require.EqualValues(t, 5, want.Late.Count)
		require.Equal(t, want, workers[0])
		require.Equal(t, r.now().Add(-time.Second/2), workers[0].Heartbeat)

		b.faults.fail(errBoom) // its leave fails
		stopped := r.now()
		require.NoError(t, b.stop())
		r.timers.Cancel(context.Background(), "long")
		pass(30 * time.Minute)
		require.NoError(t, a.stop()) // it leaves
		workers = r.workers()
		require.Len(t, workers, 1)
		require.Equal(t, b.Name(), workers[0].Name)
		require.False(t, workers[0].Live)
		require.WithinDuration(t, stopped, workers[0].Heartbeat, time.Second)
		require.Equal(t, 64, workers[0].Slots)
		pass(31 * time.Minute)
		require.Empty(t, r.workers())
		_, err := r.timers.Workers(cancelled())
		require.ErrorIs(t, err, context.Canceled)
		r.faults.fail(errBoom, "workers")
		_, err = r.timers.Workers(context.Background())
		require.ErrorIs(t, err, errBoom)
	})
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A running timer shows its worker, even a dead one: with one more call to the engine, for
// any number of timers, and no call if none runs.
func TestWorkerOfATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, time.Hour)
		names := func(state State) map[string]string {
			found := map[string]string{}
			for info, err := range r.timers.List(context.Background(), Query{State: state}) {
				require.NoError(t, err)
				found[info.Key] = info.Worker
			}
			return found
		}
		r.schedule("later", time.Hour)
		r.faults.countAll()
		require.Empty(t, r.get("later").Worker)
		require.Equal(t, map[string]string{"later": ""}, names(Waiting))
		require.Empty(t, names(Leased))
		require.Zero(t, r.faults.count("workers"))

		hangs := func(ctx context.Context, _ Fired) error { <-ctx.Done(); return ctx.Err() }
		a := r.worker(hangs, WorkerOptions{Name: "a", Lease: time.Hour})
		r.schedule("one", 0)
		r.schedule("two", 0)
		_, _, err := r.timers.PutSchedule(context.Background(), Schedule{Key: "s", Every: time.Minute})
		require.NoError(t, err)
		pass(61 * time.Second)
		r.faults.countAll()
		require.Equal(t, a.Name(), r.get("one").Worker)
		require.Equal(t, 1, r.faults.count("workers"))
		running := names(Leased)
		require.Equal(t, 2, r.faults.count("workers"))
		require.Len(t, running, 3, "with the occurrence, which a swap has leased")
		for key, worker := range running {
			require.Equal(t, a.Name(), worker, key)
		}

		// Without an answer of the engine the rest is returned, after at most a second.
		r.faults.fail(errBoom, "workers")
		require.Empty(t, r.get("one").Worker)
		require.Equal(t, Leased, r.get("one").State)
		r.faults.set(func(ctx context.Context, call string, _ int) error {
			if call == "workers" {
				<-ctx.Done()
			}
			return ctx.Err()
		}, nil)
		began := time.Now()
		for _, worker := range names(Leased) {
			require.Empty(t, worker)
		}
		require.Equal(t, time.Second, time.Since(began))
		r.faults.fail(nil)

		a.faults.fail(errBoom) // it dies
		pass(time.Minute)
		require.Equal(t, a.Name(), r.get("one").Worker)
		_ = a.stop()
	})
}

// A worker of another version is listed by name and heartbeat, whatever its status.
func TestWorkersOfOtherVersions(t *testing.T) {
	r := newRig(t, 1, store.Limits{}, 0)
	var late histogram.Durations
	late.Add(time.Second)
	w := &Worker{born: time.Now().Add(-time.Minute), options: WorkerOptions{Concurrency: 3}}
	w.stats.Late, w.stats.DeadLettered, w.stats.DeadLetteredLost, w.stats.Cancelled = late, 1, 2, 4
	whole := w.status()
	later := append(append([]byte{}, whole...), "more"...)
	status := map[string][]byte{
		"an older one": nil, "another": {2, 1, 1, 1}, "garbage": []byte("\x01 is no status, though it begins as one does"), "cut": whole[:len(whole)-1],
		"infinite": statusOfSum(math.Inf(1)), "no number": statusOfSum(math.NaN()), "negative": statusOfSum(-1),
		"long": append([]byte{1}, make([]byte, store.MaxStatus-1)...), "overflow": append([]byte{1, 0}, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"...),
	}
	for name, s := range status {
		_, err := r.engine.Heartbeat(t.Context(), store.Heartbeat{Worker: name, TTL: time.Minute, Status: s})
		require.NoError(t, err)
	}
	_, err := r.engine.Heartbeat(t.Context(), store.Heartbeat{Worker: "zz", TTL: time.Minute, Status: later})
	require.NoError(t, err)
	workers := r.workers()
	require.Len(t, workers, len(status)+1)
	for _, got := range workers[:len(status)] {
		require.Contains(t, status, got.Name)
		require.WithinDuration(t, time.Now(), got.Heartbeat, time.Minute)
		if got.Name != "long" { // zeros are a valid status
			require.Equal(t, WorkerInfo{Name: got.Name, Live: true, Heartbeat: got.Heartbeat}, got)
		}
	}
	got := workers[len(status)]
	require.Equal(t, WorkerInfo{Name: "zz", Live: true, Heartbeat: got.Heartbeat, Since: got.Since, Slots: 3, DeadLettered: 1 + 2, Cancelled: 4, Late: late}, got, "what a later version appends is passed over")
	require.WithinDuration(t, got.Heartbeat.Add(-time.Minute), got.Since, time.Minute)
}

// statusOfSum returns a status whose histogram has an impossible sum.
func statusOfSum(sum float64) []byte {
	w := &Worker{born: time.Now()}
	w.stats.Late.Sum = sum
	return w.status()
}

// A status fits into a heartbeat under all circumstances.
func TestStatusIsSmall(t *testing.T) {
	w := &Worker{born: time.Now(), options: WorkerOptions{Concurrency: maxConcurrency}}
	for _, n := range []*uint64{&w.stats.Done, &w.stats.Retried, &w.stats.Snoozed, &w.stats.Cancelled, &w.stats.DeadLettered} {
		*n = math.MaxUint64
	}
	for i := range w.stats.Late.Counts {
		w.stats.Late.Counts[i] = math.MaxInt64 / 64
	}
	require.Less(t, len(w.status()), store.MaxStatus/8)
	info, _, err := decodeStatus(w.status())
	require.NoError(t, err)
	require.Equal(t, w.stats.Late.Counts, info.Late.Counts)
}

func FuzzStatus(f *testing.F) {
	f.Add((&Worker{}).status())
	f.Add([]byte{statusVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		info, age, err := decodeStatus(b)
		if err == nil && (age < 0 || info.Slots < 0 || info.Late.Mean() < 0 || math.IsNaN(info.Late.Sum)) {
			t.Errorf("%+v %v", info, age)
		}
	})
}
