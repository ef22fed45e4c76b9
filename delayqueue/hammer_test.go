package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T1, T3: all operations run concurrently, while takers come and go. Every element leaves
// exactly once, and none is taken before its deadline.
func TestHammerExactlyOnce(t *testing.T) {
	t.Parallel()
	const pushers, perPusher = 4, 5_000
	q := New[int]()
	q.heap.spare = 0 // slots move all the time
	var out [pushers * perPusher]atomic.Int32
	var sum, left atomic.Int64
	leave := func(id int) {
		out[id].Add(1)
		sum.Add(int64(id))
		left.Add(1)
	}
	leaveDue := func(e Element[int]) {
		if time.Now().Before(e.Deadline) {
			t.Errorf("T1: element %d left early", e.Value)
		}
		leave(e.Value)
	}

	var pushing, taking sync.WaitGroup
	for p := range pushers {
		pushing.Go(func() {
			var recent [64]Handle
			for i := range perPusher {
				id := p*perPusher + i
				h, err := q.Push(id, time.Now().Add(rand.N(200*time.Microsecond)))
				if err != nil {
					t.Error(err)
				}
				old := recent[i%64] // sometimes stale, sometimes not
				switch i % 8 {
				case 0:
					recent[i%64] = h
				case 1:
					if v, ok := q.Remove(recent[rand.IntN(64)]); ok {
						leave(v)
					}
				case 2, 3:
					q.Reset(recent[rand.IntN(64)], time.Now().Add(rand.N(300*time.Microsecond)))
				case 4:
					if v, ok := q.Remove(h); ok {
						leave(v)
					}
					if v, ok := q.Remove(h); ok {
						t.Errorf("element %d was removed twice", v)
					}
				case 5:
					if e, ok := q.Peek(); ok {
						if v, ok := q.Remove(e.Handle); ok { // still in the queue
							if v != e.Value {
								t.Errorf("the Handle of element %d removed %d", e.Value, v)
							}
							leave(v)
						}
					}
				case 6:
					if rand.IntN(100) == 0 {
						for _, e := range q.Clear() {
							leave(e.Value)
						}
					}
				}
				q.Reset(old, time.Now().Add(100*time.Microsecond))
			}
		})
	}
	for i := range 6 {
		taking.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(500*time.Microsecond))
				var e Element[int]
				var err error
				if i%2 == 0 {
					e, err = q.TakeElement(ctx)
				} else {
					e.Value, err = q.Take(ctx)
				}
				cancel()
				if err == nil {
					leaveDue(e)
				} else if errors.Is(err, ErrClosed) {
					return
				}
			}
		})
	}
	taking.Go(func() {
		var buf []int
		for !q.isDone() {
			buf = q.PollN(buf[:0], 10)
			for _, v := range buf {
				leave(v)
			}
			if v, ok := q.Poll(); ok {
				leave(v)
			}
			if e, ok := q.PollElement(); ok {
				leaveDue(e)
			}
			seen := make(map[Handle]bool)
			for e := range q.All() {
				if seen[e.Handle] {
					t.Errorf("element %d was seen twice", e.Value)
				}
				seen[e.Handle] = true
			}
			q.Stats()
			q.verify(t)
		}
	})

	pushing.Wait()
	for _, e := range q.Close() {
		leave(e.Value)
	}
	taking.Wait()
	require.EqualValues(t, len(out), left.Load())
	require.EqualValues(t, len(out)*(len(out)-1)/2, sum.Load(), "checksum")
	for id := range out {
		require.EqualValues(t, 1, out[id].Load(), "T3: element %d", id)
	}
	require.Len(t, q.token, 1)
}

func (q *Queue[T]) isDone() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done
}

// docs/lessons.md timers 3: elements are pushed again with tiny delays, while takers' contexts
// end at bad moments. A lost wake-up ends the rounds.
func TestHammerNoLostWakeup(t *testing.T) {
	t.Parallel()
	const rounds = 5_000 // of up to a millisecond: the kernel's shortest sleep
	for _, c := range []struct{ elements, takers int }{{1, 1}, {1, 3}, {3, 2}, {16, 4}} {
		t.Run(fmt.Sprintf("%d elements, %d takers", c.elements, c.takers), func(t *testing.T) {
			t.Parallel()
			q := New[int]()
			var taken atomic.Int64
			finished := make(chan struct{})
			var wg sync.WaitGroup
			for i := range c.takers {
				wg.Go(func() {
					for n := 0; ; n++ {
						ctx, cancel := t.Context(), context.CancelFunc(func() {})
						if (i+n)%4 == 3 {
							ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Microsecond))
						}
						v, err := q.Take(ctx)
						cancel()
						if errors.Is(err, ErrClosed) {
							return
						}
						if err != nil {
							continue
						}
						if taken.Add(1) == rounds {
							close(finished)
						}
						_, _ = q.Push(v, time.Now().Add(rand.N(4*time.Microsecond)))
					}
				})
			}
			for i := range c.elements {
				mustPush(t, q, i, time.Now())
			}
			for before, running := int64(-1), true; running; {
				select {
				case <-finished:
					running = false
				case <-time.After(time.Minute):
					now := taken.Load()
					if running = now != before; !running {
						t.Errorf("%+v: stalled after %d rounds, %+v", c, now, q.Stats())
					}
					before = now
				}
			}
			q.Close()
			wg.Wait()
		})
	}
}

// take.go 1: a push comes while the leader goes to sleep. The head that it would sleep for is
// far away, so a lost signal is a stall.
func TestHammerPushAgainstArming(t *testing.T) {
	t.Parallel()
	const rounds = 50_000
	q := New[int]()
	mustPush(t, q, -1, time.Now().Add(time.Hour))
	back := make(chan int)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			v, err := q.Take(t.Context())
			if err != nil {
				return
			}
			back <- v
		}
	})
	stall := time.NewTimer(time.Minute)
	for i := range rounds {
		stall.Reset(time.Minute)
		for range rand.IntN(100) { // meet the taker anywhere before its sleep
			q.Len()
		}
		mustPush(t, q, i, time.Time{})
		select {
		case v := <-back:
			require.Equal(t, i, v)
		case <-stall.C:
			q.Close()
			t.Fatalf("stalled in round %d", i)
		}
	}
	q.Close()
	wg.Wait()
}

// docs/lessons.md timers 3, T16: the same in virtual time, where any lateness is a failure:
// with a spare taker, each element is taken exactly at its deadline, although every element is
// reset, and the queue is constantly cleared and refilled.
func TestVirtualHammerNeverLate(t *testing.T) {
	t.Parallel()
	const elements, takers, rounds = 5, 8, 5_000
	synctest.Test(t, func(t *testing.T) {
		q := New[time.Time]()
		push := func() {
			deadline := time.Now().Add(rand.N(10 * time.Millisecond).Truncate(time.Millisecond))
			if h, err := q.Push(deadline, deadline.Add(time.Minute)); err == nil {
				q.Reset(h, deadline)
			}
		}
		var wg sync.WaitGroup
		var n, wrong atomic.Int64
		for i := range takers {
			wg.Go(func() {
				for {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if i%2 == 0 { // these come and go, the odd ones stay
						ctx, cancel = context.WithTimeout(ctx, 1+rand.N(5*time.Millisecond).Truncate(time.Millisecond))
					}
					deadline, err := q.Take(ctx)
					cancel()
					switch {
					case errors.Is(err, ErrClosed):
						return
					case err != nil:
						continue
					}
					if !time.Now().Equal(deadline) {
						wrong.Add(1)
					}
					if n.Add(1) == rounds {
						q.Close()
					}
					push()
				}
			})
		}
		for range elements {
			push()
		}
		wg.Go(func() {
			for !q.isDone() {
				time.Sleep(rand.N(3 * time.Millisecond).Truncate(time.Millisecond))
				for range q.Clear() {
					push() // for another time, sooner or later
				}
			}
		})
		wg.Wait()
		require.Zero(t, wrong.Load(), "T1: taken at another time than the deadline")
	})
}
