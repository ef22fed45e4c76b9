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

func start(t *testing.T, o Options) *Timer {
	t.Helper()
	timer, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { timer.Stop() })
	return timer
}

// sleep lets virtual time pass and waits until the worker is idle.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNeverEarlyAndAtMostATickLate(t *testing.T) {
	for _, o := range []Options{
		{},
		{Tick: time.Millisecond, TicksPerWheel: 1},
		{Tick: time.Millisecond, TicksPerWheel: 2},
		{Tick: 7 * time.Millisecond, TicksPerWheel: 3},
		{Tick: time.Millisecond, TicksPerWheel: 4096},
	} {
		synctest.Test(t, func(t *testing.T) {
			timer := start(t, o)
			r := rand.New(rand.NewPCG(1, 2))
			tick := time.Duration(timer.tick)
			ran := 0
			for i := range 2000 {
				if i%100 == 0 {
					sleep(time.Duration(r.Int64N(int64(3 * tick))))
				}
				delay := time.Duration(r.Int64N(int64(20*time.Second))) - time.Millisecond
				due := time.Now().Add(max(delay, 0))
				_, err := timer.NewTimeout(func(*Timeout) {
					late := time.Since(due)
					require.GreaterOrEqual(t, late, time.Duration(0))
					require.LessOrEqual(t, late, tick)
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
		timer := start(t, Options{Tick: time.Millisecond, TicksPerWheel: 4})
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
		timer := start(t, Options{Tick: 10 * time.Millisecond, TicksPerWheel: 8})
		ran := false
		task := func(*Timeout) { ran = true }

		early, _ := timer.NewTimeout(task, time.Second) // cancelled before it is in a bucket
		require.True(t, early.Cancel())
		require.False(t, early.Cancel())
		require.True(t, early.Cancelled())
		require.False(t, early.Expired())

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
		require.True(t, done.Expired())
		require.False(t, done.Cancel())
		require.Zero(t, timer.Pending())
	})
}

// netty #14959: timeouts that a task cancelled in the tick in which they were due were uncounted
// twice.
func TestCancelInTheSameTickCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, Options{Tick: 10 * time.Millisecond, TicksPerWheel: 8})
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

func TestMaxPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, Options{Tick: time.Millisecond, MaxPending: 2})
		again := 0
		var task func(*Timeout)
		task = func(*Timeout) {
			// At the limit, from the task itself: its own slot is free (netty #6028).
			if again++; again < 5 {
				_, err := timer.NewTimeout(task, time.Millisecond)
				require.NoError(t, err)
			}
		}
		_, err := timer.NewTimeout(task, time.Second)
		require.NoError(t, err)
		second, err := timer.NewTimeout(func(*Timeout) {}, time.Hour)
		require.NoError(t, err)
		_, err = timer.NewTimeout(func(*Timeout) {}, time.Hour)
		require.ErrorIs(t, err, ErrTooMany)
		sleep(2 * time.Second)
		require.Equal(t, 5, again)
		require.True(t, second.Cancel())
		sleep(10 * time.Millisecond)
		require.Zero(t, timer.Pending())
		for range 2 {
			_, err = timer.NewTimeout(func(*Timeout) {}, time.Hour)
			require.NoError(t, err)
		}
	})
}

func TestStopReturnsUnprocessedTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, Options{Tick: time.Millisecond, TicksPerWheel: 16})
		add := func(d time.Duration) *Timeout {
			timeout, err := timer.NewTimeout(func(*Timeout) {}, d)
			require.NoError(t, err)
			return timeout
		}
		add(5 * time.Millisecond) // expires
		var want []*Timeout
		for i := range 40 {
			want = append(want, add(time.Second+time.Duration(i)*time.Millisecond))
		}
		add(time.Second).Cancel()
		sleep(20 * time.Millisecond)
		for range 5 { // still in the queue
			want = append(want, add(time.Minute))
		}
		add(time.Second).Cancel()
		require.ElementsMatch(t, want, timer.Stop())
		require.Nil(t, timer.Stop())
		_, err := timer.NewTimeout(func(*Timeout) {}, time.Second)
		require.ErrorIs(t, err, ErrStopped)
		require.ErrorIs(t, timer.Start(), ErrStopped)
	})
}

func TestStopWithoutATimeout(t *testing.T) {
	timer, err := New(Options{})
	require.NoError(t, err)
	require.Nil(t, timer.Stop())
	_, err = timer.NewTimeout(func(*Timeout) {}, 0)
	require.ErrorIs(t, err, ErrStopped)
}

func TestExecutorAndPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executed := 0
		timer := start(t, Options{Tick: time.Millisecond, Executor: func(run func()) { executed++; run() }})
		ran := 0
		_, _ = timer.NewTimeout(func(*Timeout) { panic("on purpose") }, time.Millisecond)
		_, _ = timer.NewTimeout(func(*Timeout) { ran++ }, 2*time.Millisecond)
		sleep(time.Second)
		require.Equal(t, 2, executed)
		require.Equal(t, 1, ran)
	})
}

func TestFarDeadlinesDoNotWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := start(t, Options{Tick: time.Millisecond, TicksPerWheel: 2})
		timeout, err := timer.NewTimeout(func(*Timeout) {}, math.MaxInt64)
		require.NoError(t, err)
		sleep(time.Second)
		require.False(t, timeout.Expired())
		require.Equal(t, []*Timeout{timeout}, timer.Stop())
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Tick: -1},
		{TicksPerWheel: -1},
		{TicksPerWheel: maxTicksPerWheel + 1},
		{Tick: math.MaxInt64 / 4, TicksPerWheel: 8},
	} {
		_, err := New(o)
		require.Error(t, err, "%+v", o)
	}
	timer, err := New(Options{TicksPerWheel: 513})
	require.NoError(t, err)
	require.Len(t, timer.wheel, 1024)
	require.EqualValues(t, 100*time.Millisecond, timer.tick)
}

// At most 100,000 new timeouts are moved in a tick; the rest waits for the next.
func TestTransferIsBounded(t *testing.T) {
	timer, err := New(Options{Tick: time.Millisecond})
	require.NoError(t, err)
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
	timer := start(t, Options{Tick: 100 * time.Microsecond, TicksPerWheel: 8})
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
