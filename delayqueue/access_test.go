package delayqueue

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests run first: each fails with a message where another test would hang.

// T12: no method keeps the lock, whatever its result.
func TestNoMethodKeepsTheLock(t *testing.T) {
	q := New[int]()
	free := func(method string) {
		t.Helper()
		require.True(t, q.mu.TryLock(), "%s keeps the lock", method)
		q.mu.Unlock()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	everything := func() {
		h, err := q.Push(1, time.Now().Add(time.Hour))
		free("Push")
		for i := range 2 { // pending, then removed
			_ = q.Reset(h, time.Now().Add(time.Minute))
			free("Reset")
			q.Peek()
			free("Peek")
			q.Len()
			free("Len")
			q.Stats()
			free("Stats")
			q.Poll()
			free("Poll")
			q.PollElement()
			free("PollElement")
			q.PollN(nil, 1)
			free("PollN")
			seen := 0
			for range q.All() {
				free("the body of All")
				seen++
			}
			free("All")
			if err == nil && i == 0 { // or it might not end when the queue is empty
				require.Equal(t, 1, seen, "All shows the element")
			}
			_, _ = q.Remove(h)
			free("Remove")
		}
		_, _ = q.Push(2, time.Time{})
		if err == nil {
			_, err = q.Take(t.Context())
			require.NoError(t, err)
		}
		free("Take of a due head")
		_, _ = q.Take(ended)
		free("Take")
		_, _ = q.Push(3, time.Now())
		q.Clear()
		free("Clear")
	}
	q.heap.limit = 0 // full
	_, err := q.Push(1, time.Now())
	require.ErrorIs(t, err, ErrFull)
	free("Push to a full queue")
	q.heap.limit = noSlot
	everything()
	q.Close()
	free("Close")
	_, err = q.Push(1, time.Now())
	require.ErrorIs(t, err, ErrClosed, "Close has closed nothing")
	q.Close()
	free("the second Close")
	everything()
}

// T2: a leader's sleep is ended by the deadline, by an earlier one, by the context, and by
// Close; then a follower has its turn.
func TestSleepEnds(t *testing.T) {
	for name, end := range map[string]func(q *Queue[int], cancel func()){
		"deadline": func(*Queue[int], func()) {},
		"push":     func(q *Queue[int], _ func()) { _, _ = q.Push(2, after(time.Minute)) },
		"context":  func(_ *Queue[int], cancel func()) { cancel() },
		"close":    func(q *Queue[int], _ func()) { q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New[int]()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				mustPush(t, q, 1, after(time.Hour))
				mustPush(t, q, 3, after(2*time.Hour))
				returned := make(chan struct{}, 2)
				for range 2 {
					go func() {
						_, _ = q.Take(ctx)
						returned <- struct{}{}
					}()
				}
				synctest.Wait()
				end(q, cancel)
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				left := len(returned)
				q.Close() // and the bubble ends, at least
				cancel()
				require.Equal(t, 2, left, "so many takers of two have come back")
			})
		})
	}
}

// T9: a leader that finds nothing due sleeps, and does not poll.
func TestLeaderSleeps(t *testing.T) {
	for _, h := range []time.Duration{0, time.Hour} { // none, and a head that is far
		q := New[int]()
		want := never
		if h > 0 {
			mustPush(t, q, 1, time.Now().Add(h))
			want = q.heap.items[0].deadline
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = q.Take(ctx)
		}()
		armed := func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			require.LessOrEqual(t, q.stats.Wakeups, uint64(1000), "the leader does not sleep")
			return q.armed == want
		}
		for begun := time.Now(); !armed() && time.Since(begun) < time.Minute; {
			runtime.Gosched()
		}
		require.True(t, armed(), "the leader does not sleep until the head is due")
		cancel()
		<-ended
	}
}

// The table of moved slots is never full: a search in it ends.
func TestMovedSlotsAreNeverFull(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q, handles := packed(t)
		for _, h := range handles {
			q.Reset(h, time.Now())
		}
		q.Clear()
		for _, h := range handles {
			q.Reset(h, time.Now())
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("packing the slots, or a search among those that were moved, does not end")
	}
}
