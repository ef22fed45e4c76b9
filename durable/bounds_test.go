package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Case 7: handlers that hang occupy only their slots.
func TestHangingHandlersDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		free := make(chan struct{})
		j := &journal{then: func(_ context.Context, f Fired) error {
			if strings.HasPrefix(f.Key, "hangs") {
				<-free
			}
			return nil
		}}
		w := r.worker(j.handle, WorkerOptions{Concurrency: 8})
		for i := range 7 {
			r.schedule(fmt.Sprint("hangs", i), 0)
		}
		pass(time.Minute) // longer than the lease
		at := time.Now()
		for i := range 20 {
			r.schedule(fmt.Sprint("fine", i), 0)
		}
		pass(time.Second)
		require.Len(t, j.all(), 27)
		for _, at2 := range j.times()[7:] {
			require.Less(t, at2.Sub(at), 200*time.Millisecond)
		}
		close(free)
		pass(time.Second)
		require.Zero(t, r.stats().Leased)
		require.NoError(t, w.stop())
		require.Equal(t, uint64(27), w.Stats().Done)
		require.Zero(t, w.Stats().Lost)
	})
}

// D11: when slots are short, no lane takes them all while another waits: neither between topics,
// nor between topics and the leases of a dead worker.
func TestSlotsAreFairBetweenTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		dead := r.worker(func(ctx context.Context, _ Fired) error { <-ctx.Done(); return nil },
			WorkerOptions{Grace: -1, Lease: time.Second})
		r.add(Timer{Key: "orphan", Topic: topicOf(0)})
		pass(10 * time.Millisecond)
		crash(dead)
		pass(5 * time.Second)
		for i := range 100 {
			r.add(Timer{Key: fmt.Sprint("many", i), Topic: topicOf(0)})
		}
		for i := range 3 {
			r.add(Timer{Key: fmt.Sprint("few", i), Topic: topicOf(3)})
		}
		j := &journal{then: func(context.Context, Fired) error { time.Sleep(time.Second); return nil }}
		r.worker(j.handle, WorkerOptions{Concurrency: 1})
		pass(200 * time.Second)
		require.Len(t, j.all(), 104)
		first := j.keys()[:10]
		require.Contains(t, first, "orphan")
		for i := range 3 {
			require.Contains(t, first, fmt.Sprint("few", i))
		}
	})
}

// Slow handlers of one topic hold all slots. Other topics get their share of the slots that become
// free: before a timer of another lane, each of a claim's five queues comes first at most once.
func TestSlowTopicSharesFreeSlots(t *testing.T) {
	for lane := range store.Lanes {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1, store.Limits{}, 0)
			const slots = 8
			j := &journal{}
			j.then = func(ctx context.Context, f Fired) error {
				if f.Topic != topicOf(lane) {
					return nil
				}
				// They return one after the other.
				return late(ctx, 10*time.Minute+time.Duration(len(j.all()))*time.Second)
			}
			r.worker(j.handle, WorkerOptions{Concurrency: slots})
			for i := range 100 {
				r.add(Timer{Key: fmt.Sprint("slow", i), Topic: topicOf(lane)})
			}
			pass(time.Minute)
			require.Len(t, j.all(), slots)
			for i := range store.Lanes {
				if i != lane {
					r.add(Timer{Key: fmt.Sprint("other", i), Topic: topicOf(i)})
				}
			}
			pass(8 * time.Minute)
			require.Len(t, j.all(), slots, "no slot is free")
			pass(2 * time.Minute)
			slow, others := 0, 0
			for _, key := range j.keys()[slots:] {
				if strings.HasPrefix(key, "other") {
					slow, others = 0, others+1
				} else if slow++; others < store.Lanes-1 {
					require.LessOrEqual(t, slow, 4)
				}
			}
			require.Equal(t, store.Lanes-1, others)
		})
	}
}

// crash makes a worker vanish as if it was killed: none of its calls reach the engine any more,
// not even its leave.
func crash(m *member) {
	m.faults.fail(errors.New("the process is dead"))
	m.faults.dropEvents.Store(true)
	_ = m.stop()
}

// D12: a worker holds no more timers than its Concurrency allows, running or with outcomes that
// cannot be written.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 0)
		var mu sync.Mutex
		running, most := 0, 0
		add := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
		}
		w := r.worker(func(context.Context, Fired) error {
			add(1)
			time.Sleep(time.Second)
			add(-1)
			return nil
		}, WorkerOptions{Concurrency: 10})
		w.faults.fail(errBoom, "end")
		for i := range 200 {
			r.schedule(fmt.Sprint("k", i), 0)
		}
		pass(10 * time.Second)
		require.Equal(t, 10, most)
		require.Equal(t, 20, w.Stats().Running+w.Stats().Ending)
		require.Equal(t, 20, r.stats().Leased)
		pass(10 * time.Minute) // the leases are extended
		require.Equal(t, 20, r.stats().Leased)
		w.faults.fail(nil)
		pass(time.Minute)
		require.Equal(t, 10, most)
		require.Zero(t, r.stats().Leased+r.stats().Waiting)
		require.NoError(t, w.stop())
		require.Equal(t, uint64(200), w.Stats().Done)
		require.Zero(t, w.Stats().Unwritten)
		for _, c := range w.faults.claims {
			require.LessOrEqual(t, c.Max, 10)
			require.Equal(t, store.MaxClaim, c.MaxBytes)
		}
	})
}

// Outcomes wait for others at most 5 ms, and not at all when no other handler runs.
func TestOutcomesAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		took := map[string]time.Duration{"slow": time.Second, "a": 2 * time.Millisecond, "b": 4 * time.Millisecond, "c": 6 * time.Millisecond, "d": 20 * time.Millisecond}
		var timers []Timer
		for key := range took {
			timers = append(timers, Timer{Key: key})
		}
		_, err := r.timers.ScheduleMany(context.Background(), timers)
		require.NoError(t, err)
		w := r.prepare(func(_ context.Context, f Fired) error { time.Sleep(took[f.Key]); return nil }, WorkerOptions{})
		var at []time.Duration
		began := time.Now()
		w.faults.set(func(_ context.Context, call string, _ int) error {
			if call == "end" {
				at = append(at, time.Since(began))
			}
			return nil
		}, nil)
		w.run()
		pass(10 * time.Second)
		ms := time.Millisecond
		require.Equal(t, []time.Duration{7 * ms, 25 * ms, 1000 * ms}, at)
		var batches [][]string
		for _, outcomes := range w.faults.outcomes {
			var keys []string
			for _, o := range outcomes {
				keys = append(keys, o.Key)
			}
			slices.Sort(keys)
			batches = append(batches, keys)
		}
		require.Equal(t, [][]string{{"a", "b", "c"}, {"d"}, {"slow"}}, batches)
	})
}

// A shard has one request with outcomes in flight; outcomes that are queued during it go together
// in the next.
func TestOutcomesOfAShardAreOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var timers []Timer
		for i := range 10 {
			timers = append(timers, Timer{Key: fmt.Sprint(i)})
		}
		_, err := r.timers.ScheduleMany(context.Background(), timers)
		require.NoError(t, err)
		w := r.prepare(func(_ context.Context, f Fired) error {
			time.Sleep(time.Second + time.Duration(f.Key[0]-'0')*10*time.Millisecond)
			return nil
		}, WorkerOptions{})
		inFlight := 0
		w.faults.set(func(ctx context.Context, call string, _ int) error {
			if call != "end" {
				return nil
			}
			inFlight++
			require.Equal(t, 1, inFlight)
			err := late(ctx, time.Second)
			inFlight--
			return err
		}, nil)
		w.run()
		pass(10 * time.Second)
		require.Equal(t, []int{1, 9}, sizesOf(w.faults.outcomes))
	})
}

// The handler's ctx has the values of Run's ctx, and does not end with it.
func TestHandlersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var value any
		var kept context.Context
		w := r.worker(func(ctx context.Context, _ Fired) error {
			value, kept = ctx.Value(ctxKey{}), ctx
			time.Sleep(time.Second)
			return ctx.Err()
		}, WorkerOptions{})
		r.schedule("k", 0)
		pass(time.Millisecond)
		require.NoError(t, w.stop())
		require.Equal(t, "of Run", value)
		require.Error(t, kept.Err())
		r.requireRemoved("k")
	})
}
