package delayqueue

import (
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The three ways to get an Element return the Handle that Push returned, and the deadline as it
// was given.
func TestElement(t *testing.T) {
	q := New[string]()
	e, ok := q.Peek()
	require.False(t, ok)
	require.Zero(t, e)
	e, ok = q.PollElement()
	require.False(t, ok)
	require.Zero(t, e)

	due := time.Now()
	for name, get := range map[string]func() (Element[string], bool){
		"peek": q.Peek,
		"poll": q.PollElement,
		"take": func() (Element[string], bool) {
			e, err := q.TakeElement(t.Context())
			return e, err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := mustPush(t, q, "later", due.Add(time.Hour))
			head := mustPush(t, q, "now", due)
			e, ok := get()
			require.True(t, ok)
			require.Equal(t, "now", e.Value)
			require.Equal(t, head, e.Handle)
			require.True(t, due.Equal(e.Deadline))
			_, ok = q.Remove(e.Handle)
			require.Equal(t, name == "peek", ok, "it has left, unless Peek returned it")
			_, ok = q.Remove(h)
			require.True(t, ok)
		})
	}
}

func TestPollElementOfHeadNotDue(t *testing.T) {
	q := New[int]()
	mustPush(t, q, 1, time.Now().Add(time.Hour))
	e, ok := q.PollElement()
	require.False(t, ok)
	require.Zero(t, e)
	require.Equal(t, 1, q.Len())
}

func TestPollN(t *testing.T) {
	q := New[int]()
	require.Equal(t, []int{7}, q.PollN([]int{7}, 1))
	now := time.Now()
	for i := range 5 {
		mustPush(t, q, i, now)
	}
	mustPush(t, q, 5, now.Add(time.Hour))
	require.Nil(t, q.PollN(nil, 0))
	require.Nil(t, q.PollN(nil, -1))
	require.Equal(t, 6, q.Len())
	require.Equal(t, []int{7, 0}, q.PollN([]int{7}, 1))
	require.Equal(t, []int{1, 2}, q.PollN(nil, 2))
	require.Equal(t, []int{3, 4}, q.PollN(nil, 3), "no more are due")
	require.Equal(t, 1, q.Len())
}

func TestClear(t *testing.T) {
	q := New[string]()
	require.Nil(t, q.Clear())
	now := time.Now()
	later := mustPush(t, q, "later", now.Add(time.Hour))
	due := mustPush(t, q, "due", now.Add(-time.Hour))
	soon1 := mustPush(t, q, "soon 1", now.Add(time.Minute))
	soon2 := mustPush(t, q, "soon 2", now.Add(time.Minute))

	left := q.Clear()
	want := []Element[string]{
		{"due", now.Add(-time.Hour), due},
		{"soon 1", now.Add(time.Minute), soon1},
		{"soon 2", now.Add(time.Minute), soon2},
		{"later", now.Add(time.Hour), later},
	}
	require.Len(t, left, len(want))
	for i, e := range left {
		require.True(t, want[i].Deadline.Equal(e.Deadline), "%d: %v", i, e)
		e.Deadline = want[i].Deadline // equal, except for its location
		require.Equal(t, want[i], e)
	}
	require.Zero(t, q.Len())
	require.Nil(t, q.heap.items, "T18")
	require.Nil(t, q.heap.slots, "T18")
	require.Nil(t, q.heap.moved, "T18")
	q.verify(t)

	// T6: the queue is open, and the old Handles cannot reach later elements.
	h := mustPush(t, q, "new", now.Add(time.Hour))
	require.Equal(t, later.slot, h.slot, "the slot number is used again")
	for _, e := range left {
		_, ok := q.Remove(e.Handle)
		require.False(t, ok)
		require.False(t, q.Reset(e.Handle, now))
	}
	v, ok := q.Remove(h)
	require.True(t, ok)
	require.Equal(t, "new", v)

	q.Close()
	require.Nil(t, q.Clear())
}

// T6: a Handle that went through the index is stale after Clear.
func TestClearForgetsMovedSlots(t *testing.T) {
	q, handles := packed(t)
	q.Clear()
	for _, h := range handles {
		require.False(t, q.Reset(h, time.Now()))
	}
	for i := range handles {
		mustPush(t, q, i, time.Now())
	}
	for _, h := range handles {
		require.False(t, q.Reset(h, time.Now()))
	}
	q.verify(t)
}

// Elements that Clear and Close return can be pushed to a queue again, and keep deadlines and
// order to the nanosecond.
func TestReturnedElementsCanBePushedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		for i := range 1000 {
			mustPush(t, q, i, after(time.Duration(i/3)))
		}
		for _, e := range q.Clear() {
			mustPush(t, q, e.Value, e.Deadline)
		}
		time.Sleep(100)
		for i := range 303 {
			v, ok := q.Poll()
			require.True(t, ok)
			require.Equal(t, i, v)
		}
		_, ok := q.Poll()
		require.False(t, ok)
		left := q.Close()
		require.Len(t, left, 697)
		require.Equal(t, 303, left[0].Value)
		require.Zero(t, time.Until(left[0].Deadline)-1)
	})
}

func TestAll(t *testing.T) {
	q := New[int]()
	const n = 3*chunk + 1
	now := time.Now()
	handles := make([]Handle, n)
	for i := range n {
		handles[i] = mustPush(t, q, i, now.Add(time.Duration(i)))
	}
	for i := 0; i < n; i += 3 {
		q.Remove(handles[i]) // free slots in between
	}
	all := q.All()
	for range 2 { // it can be reused
		seen := make(map[int]bool)
		for e := range all {
			require.False(t, seen[e.Value], "seen twice")
			require.NotZero(t, e.Value%3)
			require.Equal(t, handles[e.Value], e.Handle)
			require.True(t, now.Add(time.Duration(e.Value)).Equal(e.Deadline))
			seen[e.Value] = true
		}
		require.Len(t, seen, n-(n+2)/3)
	}
	q.Clear()
	require.Empty(t, slices.Collect(q.All()))
}

// T12: the body of a loop over All may call every method; no lock is held. An element that is
// pushed during the loop is not seen, even in a slot that was not read yet.
func TestAllWhileTheQueueChanges(t *testing.T) {
	const n = 10 * chunk
	later := time.Now().Add(time.Hour)
	filled := func(t *testing.T) (*Queue[int], []Handle) {
		q := New[int]()
		handles := make([]Handle, n)
		for i := range n {
			handles[i] = mustPush(t, q, i, later)
		}
		return q, handles
	}
	// seen returns how often each element was seen, by value.
	seen := func(q *Queue[int], body func(i int, e Element[int])) map[int]int {
		count, i := make(map[int]int), 0
		for e := range q.All() {
			count[e.Value]++
			body(i, e)
			i++
		}
		q.verify(t)
		require.Zero(t, q.heap.iterating)
		return count
	}

	t.Run("push", func(t *testing.T) {
		q, handles := filled(t)
		for i := n / 2; i < n; i++ {
			q.Remove(handles[i]) // slots ahead of the loop, for later pushes
		}
		count := seen(q, func(i int, _ Element[int]) { mustPush(t, q, n+i, later) })
		require.Len(t, count, n/2)
		require.Equal(t, n, q.Len())
	})
	t.Run("remove", func(t *testing.T) {
		q, _ := filled(t)
		count := seen(q, func(_ int, e Element[int]) {
			_, ok := q.Remove(e.Handle)
			require.True(t, ok)
		})
		require.Len(t, count, n)
		require.Zero(t, q.Len())
		q.verifyMemory(t)
	})
	t.Run("remove and keep one of ten", func(t *testing.T) {
		q, handles := filled(t)
		count := seen(q, func(i int, _ Element[int]) {
			if i == 2*chunk { // all at once, in the middle of the loop: slots must not move
				for j, h := range handles {
					if j%10 != 0 {
						q.Remove(h)
					}
				}
			}
		})
		for i := range n {
			require.LessOrEqual(t, count[i], 1, "seen twice")
			if i%10 == 0 {
				require.Equal(t, 1, count[i], "T3: %d was in the queue all the time", i)
			}
		}
		q.verifyMemory(t) // without another call
	})
	t.Run("reset", func(t *testing.T) {
		q, handles := filled(t)
		sooner := later.Add(-time.Minute)
		count := seen(q, func(i int, e Element[int]) {
			if i == 0 {
				require.True(t, q.Reset(handles[n-1], sooner))
			}
			require.Equal(t, e.Value == n-1, e.Deadline.Equal(sooner), "the deadline at the time it is seen")
			require.True(t, q.Reset(e.Handle, e.Deadline))
		})
		require.Len(t, count, n)
	})
	t.Run("clear and fill", func(t *testing.T) {
		q, _ := filled(t)
		count := seen(q, func(i int, _ Element[int]) {
			if i == chunk {
				for _, e := range q.Clear() {
					mustPush(t, q, e.Value, e.Deadline)
				}
			}
		})
		require.Len(t, count, 2*chunk, "the loop ends with the chunk that was read")
		require.Equal(t, n, q.Len())
	})
	t.Run("close", func(t *testing.T) {
		q, _ := filled(t)
		count := seen(q, func(i int, _ Element[int]) {
			if i == 0 {
				q.Close()
			}
		})
		require.Len(t, count, chunk)
	})
}

// A loop that ends early, in whatever way, blocks nothing: slots move again.
func TestAllEndsEarly(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for name, leave := range map[string]func(*Queue[int]){
		"break": func(q *Queue[int]) {
			n := 0
			for range q.All() {
				n++
				break
			}
			require.Equal(t, 1, n)
		},
		"panic": func(q *Queue[int]) {
			require.Panics(t, func() {
				for range q.All() {
					panic("in the body")
				}
			})
		},
		"stop": func(q *Queue[int]) {
			next, stop := iter.Pull(q.All())
			_, ok := next()
			require.True(t, ok)
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := New[int]()
			var handles []Handle
			for i := range 20 * defaultSpare {
				handles = append(handles, mustPush(t, q, i, later))
			}
			leave(q)
			for _, h := range handles[:19*defaultSpare] {
				q.Remove(h)
			}
			q.verify(t)
			q.verifyMemory(t)
		})
	}
}
