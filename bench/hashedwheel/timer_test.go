package hashedwheel

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func start(t *testing.T, tick time.Duration, ticksPerWheel int) *Timer {
	timer := New(tick, ticksPerWheel)
	t.Cleanup(timer.Stop)
	return timer
}

// sleep lets virtual time pass and waits until the worker is idle.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNeverEarlyAndAtMostATickLate(t *testing.T) {
	for _, c := range []struct {
		tick          time.Duration
		ticksPerWheel int
	}{
		{100 * time.Millisecond, 512},
		{time.Millisecond, 1},
		{time.Millisecond, 2},
		{7 * time.Millisecond, 3},
		{time.Millisecond, 4096},
	} {
		synctest.Test(t, func(t *testing.T) {
			timer := start(t, c.tick, c.ticksPerWheel)
			r := rand.New(rand.NewPCG(1, 2))
			ran := 0
			for i := range 2000 {
				if i%100 == 0 {
					sleep(time.Duration(r.Int64N(int64(3 * c.tick))))
				}
				delay := time.Duration(r.Int64N(int64(20*time.Second))) - time.Millisecond
				due := time.Now().Add(max(delay, 0))
				_, err := timer.NewTimeout(func(*Timeout) {
					late := time.Since(due)
					require.GreaterOrEqual(t, late, time.Duration(0))
					require.LessOrEqual(t, late, c.tick)
					ran++
				}, delay)
				require.NoError(t, err)
			}
			sleep(21 * time.Second)
			require.Equal(t, 2000, ran)
			require.Zero(t, timer.Pending())
		})
	}
}

func TestRoundsAreCountedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, time.Millisecond, 4)
		begin := time.Now()
		var order []time.Duration
		// All but the last in one bucket, one to 300 rounds away.
		for _, ticks := range []int64{1202, 402, 6, 2, 10, 7} {
			_, err := timer.NewTimeout(func(*Timeout) {
				order = append(order, time.Since(begin).Truncate(time.Millisecond))
			}, time.Duration(ticks)*time.Millisecond)
			require.NoError(t, err)
		}
		sleep(2 * time.Second)
		ms := time.Millisecond
		require.Equal(t, []time.Duration{3 * ms, 7 * ms, 8 * ms, 11 * ms, 403 * ms, 1203 * ms}, order)
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, 10*time.Millisecond, 8)
		ran := false
		task := func(*Timeout) { ran = true }

		early, _ := timer.NewTimeout(task, time.Second) // cancelled before it is in a bucket
		require.True(t, early.Cancel())
		require.False(t, early.Cancel())
		require.True(t, early.Cancelled())

		placed, _ := timer.NewTimeout(task, time.Second)
		sleep(50 * time.Millisecond)
		require.EqualValues(t, 1, timer.Pending())
		require.True(t, placed.Cancel())
		sleep(2 * time.Second)
		require.False(t, ran)
		require.Zero(t, timer.Pending())

		done, _ := timer.NewTimeout(task, 0)
		sleep(time.Second)
		require.True(t, ran)
		require.False(t, done.Cancel())
		require.Zero(t, timer.Pending())
	})
}

// netty #14959: timeouts that a task cancelled in the tick in which they were due were uncounted
// twice.
func TestCancelInTheSameTickCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, 10*time.Millisecond, 8)
		var mu sync.Mutex
		var others []*Timeout
		_, err := timer.NewTimeout(func(*Timeout) {
			mu.Lock()
			defer mu.Unlock()
			for _, o := range others {
				require.True(t, o.Cancel())
			}
		}, 200*time.Millisecond)
		require.NoError(t, err)
		for range 10 {
			o, err := timer.NewTimeout(func(*Timeout) { t.Error("a cancelled timeout ran") }, 200*time.Millisecond)
			require.NoError(t, err)
			mu.Lock()
			others = append(others, o)
			mu.Unlock()
		}
		sleep(time.Second)
		require.Zero(t, timer.Pending())
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, used := range []bool{false, true} {
			timer := New(time.Millisecond, 16)
			if used {
				_, err := timer.NewTimeout(func(*Timeout) { t.Error("ran after Stop") }, time.Second)
				require.NoError(t, err)
				sleep(20 * time.Millisecond)
			}
			timer.Stop()
			timer.Stop()
			_, err := timer.NewTimeout(func(*Timeout) {}, 0)
			require.ErrorIs(t, err, ErrStopped)
			require.ErrorIs(t, timer.Start(), ErrStopped)
			sleep(2 * time.Second)
		}
	})
}

// A panic of a task does not end the worker, and a task that runs is no longer pending.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, time.Millisecond, 512)
		ran := 0
		_, _ = timer.NewTimeout(func(*Timeout) { panic("on purpose") }, time.Millisecond)
		_, _ = timer.NewTimeout(func(*Timeout) { ran++; require.Zero(t, timer.Pending()) }, 2*time.Millisecond)
		sleep(time.Second)
		require.Equal(t, 1, ran)
	})
}

func TestFarDeadlinesDoNotWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, time.Millisecond, 2)
		_, err := timer.NewTimeout(func(*Timeout) { t.Error("ran at once") }, math.MaxInt64)
		require.NoError(t, err)
		sleep(time.Second)
		require.EqualValues(t, 1, timer.Pending())
	})
}

// At most 100,000 new timeouts are moved in a tick; the rest waits for the next.
func TestTransferIsBounded(t *testing.T) {
	timer := New(time.Millisecond, 512)
	for range maxTransfer + 10 {
		timer.added.push(&Timeout{timer: timer, deadline: int64(time.Hour)})
	}
	require.EqualValues(t, maxTransfer+10, timer.Queued())
	timer.transfer(0)
	require.EqualValues(t, 10, timer.Queued())
	unprocessed := 0
	for timer.added.pop() != nil {
		unprocessed++
	}
	require.Equal(t, 10, unprocessed)
}

func TestQueueKeepsOrderAndLosesNothing(t *testing.T) {
	const producers, each = 4, 20_000
	q := newQueue()
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				q.push(&Timeout{deadline: int64(i), rounds: int64(p)})
			}
		})
	}
	var seen [producers]int64
	for n := 0; n < producers*each; {
		timeout := q.pop()
		if timeout == nil {
			continue
		}
		require.Equal(t, seen[timeout.rounds], timeout.deadline)
		seen[timeout.rounds]++
		n++
	}
	wg.Wait()
	require.Nil(t, q.pop())
	require.Zero(t, q.len())
	require.Equal(t, [producers]int64{each, each, each, each}, seen)
}

// Each timeout ends exactly once, and the pending count is exact.
func TestHammer(t *testing.T) {
	timer := start(t, 100*time.Microsecond, 8)
	var ran, cancelled atomic.Int64
	var wg sync.WaitGroup
	const goroutines, each = 4, 20_000
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			var held []*Timeout
			for range each {
				timeout, err := timer.NewTimeout(func(*Timeout) { ran.Add(1) }, time.Duration(r.Int64N(int64(5*time.Millisecond))))
				if err != nil {
					t.Error(err)
					return
				}
				if held = append(held, timeout); len(held) > 50 {
					i := r.IntN(len(held))
					if held[i].Cancel() {
						cancelled.Add(1)
					}
					held[i] = held[len(held)-1]
					held = held[:len(held)-1]
				}
			}
		})
	}
	wg.Wait()
	for timer.Pending() != 0 || ran.Load()+cancelled.Load() < goroutines*each {
		time.Sleep(time.Millisecond) // a lost timeout is waited for until the test's time limit
	}
	require.EqualValues(t, goroutines*each, ran.Load()+cancelled.Load())
	require.Zero(t, timer.Pending())
}
