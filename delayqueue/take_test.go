package delayqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// taken is the result of a Take, and its time since the start of the bubble.
type taken struct {
	v   int
	err error
	at  time.Duration
}

// bubble runs f in a bubble with an empty queue and a function that starts a taker.
func bubble(t *testing.T, f func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		start := time.Now()
		f(t, q, func(ctx context.Context) <-chan taken {
			c := make(chan taken, 1)
			go func() {
				v, err := q.Take(ctx)
				c <- taken{v, err, time.Since(start)}
			}()
			synctest.Wait()
			return c
		})
		synctest.Wait()
		q.verify(t)
		require.Len(t, q.token, 1, "the token is back")
		require.True(t, q.isDone() || q.armed == notArmed, "a signal would have no receiver")
	})
}

func after(d time.Duration) time.Time { return time.Now().Add(d) }

// T1, T16: Take returns at the deadline of the head, to the nanosecond, without an earlier
// wake-up.
func TestTakeAtDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 2, after(20*time.Second+1))
		mustPush(t, q, 1, after(10*time.Second))
		require.Equal(t, taken{1, nil, 10 * time.Second}, <-take(t.Context()))
		require.Equal(t, taken{2, nil, 20*time.Second + 1}, <-take(t.Context()))
		require.Equal(t, Stats{Wakeups: 2}, q.Stats())
	})
}

func TestTakeOfDueHeadDoesNotBlock(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, time.Time{})
		require.Equal(t, taken{v: 1}, <-take(t.Context()))
		require.Zero(t, q.Stats())
	})
}

// docs/lessons.md timers 8: an earlier deadline, by Push or by Reset, re-arms the sleeper; a
// later one does not wake it.
func TestEarlierDeadlineRearms(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		c := take(t.Context())
		a := mustPush(t, q, 1, after(10*time.Second)) // earlier than never
		synctest.Wait()
		mustPush(t, q, 2, after(15*time.Second))
		mustPush(t, q, 3, after(10*time.Second)) // equal: behind
		synctest.Wait()
		require.Equal(t, Stats{Wakeups: 1, Rearmed: 1}, q.Stats())

		time.Sleep(time.Second)
		mustPush(t, q, 4, after(4*time.Second)) // at 5 s
		synctest.Wait()
		require.True(t, q.Reset(a, after(2*time.Second))) // at 3 s
		require.Equal(t, taken{1, nil, 3 * time.Second}, <-c)
		require.Equal(t, Stats{Wakeups: 4, Rearmed: 3}, q.Stats())
		require.Equal(t, taken{4, nil, 5 * time.Second}, <-take(t.Context()))
		require.Equal(t, taken{3, nil, 10 * time.Second}, <-take(t.Context()))
		require.Equal(t, taken{2, nil, 15 * time.Second}, <-take(t.Context()))
	})
}

// take.go 2: several earlier pushes before the leader's next check cause one wake-up.
func TestSignalsCoalesce(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		c := take(t.Context())
		now := time.Now()
		for i := 10; i > 0; i-- {
			mustPush(t, q, i, now.Add(time.Duration(i)*time.Second))
			q.verify(t) // armed follows although the leader has not checked
		}
		require.Equal(t, taken{1, nil, time.Second}, <-c)
		require.LessOrEqual(t, q.Stats().Rearmed, uint64(10))
	})
}

// T9: a taker at an empty queue never wakes.
func TestIdleQueueDoesNotWake(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		for range 5 {
			take(t.Context())
		}
		time.Sleep(10_000 * time.Hour)
		require.Zero(t, q.Stats())
		q.Close()
	})
}

// T9, take.go 7: heads that are removed, cleared or given a later deadline cause at most one
// stale wake-up, whatever their number.
func TestRemovedHeadsMakeOneStaleWakeup(t *testing.T) {
	for name, leave := range map[string]func(*Queue[int], Handle){
		"remove": func(q *Queue[int], h Handle) { q.Remove(h) },
		"clear":  func(q *Queue[int], _ Handle) { q.Clear() },
		"reset":  func(q *Queue[int], h Handle) { q.Reset(h, after(50*time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
				var handles []Handle
				for i := range 1000 {
					handles = append(handles, mustPush(t, q, i, after(10*time.Second+time.Duration(i))))
				}
				c := take(t.Context())
				for _, h := range handles {
					leave(q, h)
				}
				mustPush(t, q, -1, after(20*time.Hour))
				require.Equal(t, taken{-1, nil, 20 * time.Hour}, <-c)
				require.Equal(t, Stats{Wakeups: 2, Stale: 1}, q.Stats())
				q.Close()
			})
		})
	}
}

func TestRemovedLastElementMakesOneStaleWakeup(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		h := mustPush(t, q, 1, after(time.Second))
		take(t.Context())
		q.Remove(h)
		time.Sleep(1000 * time.Hour)
		require.Equal(t, Stats{Wakeups: 1, Stale: 1}, q.Stats())
		q.Close()
	})
}

// A cancelled sleep leaves no timer behind that would wake the next leader.
func TestCancelledSleepDoesNotWakeSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		h := mustPush(t, q, 1, after(time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		leader := take(ctx)
		cancel()
		require.ErrorIs(t, (<-leader).err, context.Canceled)
		q.Remove(h)
		take(t.Context())
		time.Sleep(time.Hour)
		require.Zero(t, q.Stats())
		q.Close()
	})
}

// One of many takers wakes for an element; one follower succeeds it, and the others sleep on.
func TestOneElementWakesOneTaker(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, after(time.Second))
		mustPush(t, q, 2, after(time.Hour))
		var takers []<-chan taken
		for range 10 {
			takers = append(takers, take(t.Context()))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, Stats{Wakeups: 2, Promoted: 1}, q.Stats())
		require.Equal(t, taken{1, nil, time.Second}, <-takers[0])

		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, Stats{Wakeups: 4, Promoted: 2}, q.Stats())
		q.Close()
		closed := 0
		for _, c := range takers[1:] {
			if r := <-c; r.err != nil {
				require.ErrorIs(t, r.err, ErrClosed)
				closed++
			}
		}
		require.Equal(t, 8, closed)
		require.Equal(t, Stats{Wakeups: 4, Promoted: 2}, q.Stats(), "Close is not a wake-up")
	})
}

// Elements that become due together go to as many takers, at that time.
func TestManyDueAtOnceReachAllTakers(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		var takers []<-chan taken
		for range 10 {
			takers = append(takers, take(t.Context()))
		}
		for i := range 10 {
			mustPush(t, q, 1<<i, after(time.Second))
		}
		sum := 0
		for _, c := range takers {
			r := <-c
			require.NoError(t, r.err)
			require.Equal(t, time.Second, r.at)
			sum += r.v
		}
		require.Equal(t, 1<<10-1, sum)
		require.Equal(t, Stats{Wakeups: 11, Promoted: 9, Rearmed: 1}, q.Stats())
	})
}

func TestTakeWithEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, time.Time{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, taken{err: context.Canceled}, <-take(ctx))
		require.Equal(t, 1, q.Len())
	})
}

func TestTakeEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, after(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		leader, follower := take(ctx), take(ctx)
		require.Equal(t, taken{0, context.DeadlineExceeded, time.Second}, <-leader)
		require.Equal(t, taken{0, context.DeadlineExceeded, time.Second}, <-follower)
		require.Equal(t, 1, q.Len())
		synctest.Wait()
		require.Equal(t, q.Stats().Promoted, q.Stats().Wakeups, "a context is not a wake-up")
		require.Equal(t, notArmed, q.armed)
	})
}

// take.go 4: the leader's context ends, and a follower takes over in time.
func TestFollowerSucceedsCancelledLeader(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, after(10*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		leader, follower := take(ctx), take(t.Context())
		time.Sleep(time.Second)
		cancel()
		require.ErrorIs(t, (<-leader).err, context.Canceled)
		require.Equal(t, taken{1, nil, 10 * time.Second}, <-follower)
		require.Equal(t, Stats{Wakeups: 2, Promoted: 1}, q.Stats())
	})
}

func TestCancelledFollowerChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, after(10*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		leader, follower := take(t.Context()), take(ctx)
		cancel()
		require.ErrorIs(t, (<-follower).err, context.Canceled)
		require.Equal(t, taken{1, nil, 10 * time.Second}, <-leader)
		require.Equal(t, Stats{Wakeups: 1}, q.Stats())
	})
}

// take.go 3 and 4: an earlier push races the end of the leader's context. Whichever the leader
// notices, the element is taken in time, and no left-over signal wakes a later sleep.
func TestPushRacesCancelledLeader(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
			mustPush(t, q, 1, after(10*time.Second))
			ctx, cancel := context.WithCancel(t.Context())
			leader, follower := take(ctx), take(t.Context())
			cancel()
			mustPush(t, q, 2, after(5*time.Second)) // the leader has not run since
			require.ErrorIs(t, (<-leader).err, context.Canceled)
			require.Equal(t, taken{2, nil, 5 * time.Second}, <-follower)

			before := q.Stats().Wakeups
			require.Equal(t, taken{1, nil, 10 * time.Second}, <-take(t.Context()))
			require.Equal(t, before+1, q.Stats().Wakeups, "a left-over signal woke the leader")
		})
	}
}

// take.go 3: the same race against the leader's timer.
func TestPushRacesTimer(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
			mustPush(t, q, 1, after(10*time.Second))
			mustPush(t, q, 3, after(20*time.Second))
			time.AfterFunc(10*time.Second, func() { mustPush(t, q, 2, after(-time.Second)) })
			require.Equal(t, 10*time.Second, (<-take(t.Context())).at)
			require.Equal(t, 10*time.Second, (<-take(t.Context())).at)

			before := q.Stats().Wakeups
			require.Equal(t, taken{3, nil, 20 * time.Second}, <-take(t.Context()))
			require.Equal(t, before+1, q.Stats().Wakeups, "a left-over signal woke the leader")
		})
	}
}

// take.go 7: Poll takes the head that the leader sleeps for.
func TestPolledHeadIsStaleForTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, after(time.Second))
		mustPush(t, q, 2, after(time.Minute))
		c := take(t.Context())
		q.mu.Lock() // block the leader between its timer and its check
		time.Sleep(time.Second)
		v, ok := q.pollLocked(nil)
		q.mu.Unlock()
		require.True(t, ok)
		require.Equal(t, 1, v)
		require.Equal(t, taken{2, nil, time.Minute}, <-c)
		require.Equal(t, Stats{Wakeups: 2, Stale: 1}, q.Stats())
	})
}

// docs/lessons.md timers 4: Close releases blocked takers, leader and followers, and no call
// blocks afterwards.
func TestCloseReleasesTakers(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		mustPush(t, q, 1, after(time.Hour))
		var takers []<-chan taken
		for range 5 {
			takers = append(takers, take(t.Context()))
		}
		require.Equal(t, []int{1}, values(q.Close()))
		for _, c := range takers {
			require.Equal(t, taken{err: ErrClosed}, <-c)
		}
		require.Nil(t, q.Close())
		require.Equal(t, taken{err: ErrClosed}, <-take(t.Context()))
	})
}

// A taker that becomes leader after Close does not sleep, although its first select missed it.
func TestCloseBeforePromotion(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], _ func(context.Context) <-chan taken) {
		q.Close()
		<-q.token
		_, err := q.takeAsLeader(t.Context(), nil, true)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// take.go 7: after Clear the leader sleeps for a removed head. Later pushes are taken in time,
// whether their deadlines are earlier than the old head's, equal or later, by the leader and by
// the followers.
func TestTakersContinueAfterClear(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Duration // of the push, counted from Clear; the old head was at 10 s
		want Stats
	}{
		"earlier": {4 * time.Second, Stats{Wakeups: 3, Promoted: 1, Rearmed: 1}},
		"equal":   {9 * time.Second, Stats{Wakeups: 2, Promoted: 1}},
		"later":   {20 * time.Second, Stats{Wakeups: 3, Promoted: 1, Stale: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
				mustPush(t, q, 1, after(10*time.Second))
				leader, follower := take(t.Context()), take(t.Context())
				time.Sleep(time.Second)
				require.Len(t, q.Clear(), 1)
				synctest.Wait()
				require.Zero(t, q.Stats(), "Clear wakes no taker")

				mustPush(t, q, 2, after(c.at))
				mustPush(t, q, 3, after(c.at))
				require.Equal(t, time.Second+c.at, (<-leader).at)
				require.Equal(t, time.Second+c.at, (<-follower).at)
				require.Equal(t, c.want, q.Stats())
			})
		})
	}
}

// take.go 1 and 3: Clear and a push come while the leader is between its timer and its check,
// and between its signal and its check.
func TestClearRacesLeader(t *testing.T) {
	for name, hold := range map[string]func(*Queue[int]){
		"timer":  func(*Queue[int]) { time.Sleep(10 * time.Second) },
		"signal": func(q *Queue[int]) { q.heap.push(3, 0); q.wakeLocked(0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
				mustPush(t, q, 1, after(10*time.Second))
				c := take(t.Context())
				q.mu.Lock()
				hold(q)
				q.heap.clear()
				d := q.now() + int64(time.Minute)
				q.heap.push(2, d)
				q.wakeLocked(d)
				q.mu.Unlock()
				start := time.Now()
				r := <-c
				require.Equal(t, 2, r.v)
				require.Equal(t, time.Minute, time.Since(start))
			})
		})
	}
}

// A Reset to an earlier deadline wakes the leader although another element was the head; one to
// a later deadline makes the next element the head, and it is taken in time.
func TestResetUnderALeader(t *testing.T) {
	bubble(t, func(t *testing.T, q *Queue[int], take func(context.Context) <-chan taken) {
		a := mustPush(t, q, 1, after(10*time.Second))
		b := mustPush(t, q, 2, after(20*time.Second))
		first, second := take(t.Context()), take(t.Context())
		require.True(t, q.Reset(b, after(5*time.Second)))
		require.True(t, q.Reset(a, after(30*time.Second)))
		require.Equal(t, taken{2, nil, 5 * time.Second}, <-first)
		require.Equal(t, taken{1, nil, 30 * time.Second}, <-second)
	})
}

// In a bubble a Take without a context waits for the bubble's time, too, and Close ends it.
func TestTakeWithoutContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		deadline := after(time.Hour)
		mustPush(t, q, 1, deadline)
		_, err := q.Take(context.Background())
		require.NoError(t, err)
		require.Equal(t, deadline, time.Now())
		time.AfterFunc(time.Hour, func() { q.Close() })
		_, err = q.Take(context.Background())
		require.ErrorIs(t, err, ErrClosed)
	})
}

// TakeElement blocks like Take, and returns the deadline at which it was taken.
func TestTakeElementAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		deadline := after(10 * time.Second)
		h := mustPush(t, q, 1, deadline)
		e, err := q.TakeElement(t.Context())
		require.NoError(t, err)
		require.Equal(t, Element[int]{1, deadline, h}, e)
		require.Equal(t, deadline, time.Now())

		mustPush(t, q, 2, after(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e, err = q.TakeElement(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, e)
		require.Len(t, q.Close(), 1)
		e, err = q.TakeElement(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.Zero(t, e)
	})
}
