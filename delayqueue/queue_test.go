package delayqueue

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"
)

func mustPush[T any](t testing.TB, q *Queue[T], v T, deadline time.Time) Handle {
	t.Helper()
	h, err := q.Push(v, deadline)
	require.NoError(t, err)
	return h
}

func TestEqualDeadlinesComeOutInOrder(t *testing.T) {
	q := New[int]()
	for _, now := range []time.Time{time.Now(), time.Now().Round(0), {}} { // monotonic, wall only, zero
		var want []int
		for i := range 1000 {
			mustPush(t, q, i, now)
			want = append(want, i)
		}
		require.Equal(t, want, q.PollAll(nil))
	}
}

func TestMoveCountsAsNewlyPut(t *testing.T) {
	q := New[int]()
	at := time.Now()
	first := mustPush(t, q, 1, at)
	mustPush(t, q, 2, at)
	require.True(t, q.Move(first, at))
	require.Equal(t, []int{2, 1}, q.PollAll(nil))
}

// T1: due when the clock shows the deadline, not a nanosecond sooner.
func TestDueExactlyAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		mustPush(t, q, "a", time.Now().Add(time.Hour))
		time.Sleep(time.Hour - 1)
		_, ok := q.Poll()
		require.False(t, ok)
		require.Empty(t, q.PollAll(nil))
		time.Sleep(time.Nanosecond)
		v, ok := q.Poll()
		require.True(t, ok)
		require.Equal(t, "a", v)
	})
}

func TestPollAllTakesWhatIsDueAndAppends(t *testing.T) {
	q := New[int]()
	require.Equal(t, []int{7}, q.PollAll([]int{7}))
	now := time.Now()
	mustPush(t, q, 3, now.Add(time.Hour))
	mustPush(t, q, 2, now)
	mustPush(t, q, 1, now.Add(-time.Second))
	require.Equal(t, []int{7, 1, 2}, q.PollAll([]int{7}))
	require.Equal(t, 1, q.Len())
}

// T6, timers 6: zero, stale and foreign handles say false, and a recycled slot's old handle cannot touch its new element.
func TestStaleHandles(t *testing.T) {
	q := New[string]()
	dead := func(h Handle) {
		t.Helper()
		n := q.Len()
		v, ok := q.Remove(h)
		require.False(t, ok)
		require.Empty(t, v)
		require.False(t, q.Move(h, time.Now()))
		require.Equal(t, n, q.Len())
		q.verify(t)
	}
	dead(Handle{})
	dead(Handle{id: 1, slot: 1000})

	later := time.Now().Add(time.Hour)
	a := mustPush(t, q, "a", later)
	v, ok := q.Remove(a)
	require.True(t, ok)
	require.Equal(t, "a", v)
	dead(a)
	dead(Handle{}) // the only slot is free, and its id is zero too

	b := mustPush(t, q, "b", later)
	require.Equal(t, a.slot, b.slot, "the slot is recycled")
	dead(a)
	require.True(t, q.Move(b, time.Time{}))
	v, ok = q.Poll()
	require.True(t, ok)
	require.Equal(t, "b", v)
	dead(b)

	c := mustPush(t, q, "c", later)
	require.Equal(t, []string{"c"}, q.Close())
	dead(c)
}

// T6: handles stay unique when the slot table is dropped and grows anew.
func TestHandlesOutliveTheSlotTable(t *testing.T) {
	q := New[int]()
	later := time.Now().Add(time.Hour)
	var old []Handle
	for range 4 {
		var batch []Handle
		for i := range 4 * keep {
			batch = append(batch, mustPush(t, q, i, later))
		}
		for _, h := range old {
			_, ok := q.Remove(h)
			require.False(t, ok)
		}
		for _, h := range batch {
			_, ok := q.Remove(h)
			require.True(t, ok)
		}
		require.Nil(t, q.heap.slots)
		old = append(old, batch...)
	}
}

// T8: any time.Time is accepted, in order, and none wraps.
func TestExtremeDeadlines(t *testing.T) {
	run := func(t *testing.T) {
		now := time.Now()
		q := New[int]()
		for i, d := range []time.Time{
			{},
			time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
			now.Add(math.MinInt64),
			now.Add(-time.Hour),
			now.Round(0).Add(-time.Minute),
			now.Add(time.Hour), // not due from here on
			now.Round(0).Add(2 * time.Hour),
			now.Add(math.MaxInt64),
			time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
			time.Unix(1<<62, 0),
		} {
			mustPush(t, q, i, d)
		}
		require.Equal(t, []int{0, 1, 2, 3, 4}, q.PollAll(nil))
		_, d, ok := q.Peek()
		require.True(t, ok)
		require.Zero(t, d.Sub(now.Add(time.Hour)))
		require.Equal(t, []int{5, 6, 7, 8, 9}, q.Close())
	}
	t.Run("clock=real", run)
	t.Run("clock=virtual", func(t *testing.T) { synctest.Test(t, run) })
}

// Saturated elements still leave by handle, and a farthest deadline makes no wake-up.
func TestFarthestDeadlineSleepsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		h := mustPush(t, q, 1, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		go func() { _, _ = q.Take(t.Context()) }()
		time.Sleep(100 * 365 * 24 * time.Hour)
		require.Zero(t, q.Stats())
		_, ok := q.Remove(h)
		require.True(t, ok)
		q.Close()
	})
}

// setWallAhead makes the wall clock look as if it had been set ahead by d since New, by making base's
// wall reading as much older. There is no other way to test it short of setting the machine's clock.
func setWallAhead[T any](t *testing.T, q *Queue[T], d time.Duration) {
	t.Helper()
	before := q.base
	wall := (*uint64)(unsafe.Pointer(&q.base)) // time.Time: flag, 33 bits of seconds, 30 of nanoseconds
	*wall -= uint64(d/time.Second) << 30
	require.Equal(t, d, before.Round(0).Sub(q.base.Round(0)), "layout of time.Time")
	require.Zero(t, before.Sub(q.base), "layout of time.Time")
}

// T14, timers 16: the wall clock steps by an hour. Deadlines with a monotonic reading do not notice; those
// without are converted by the wall clock as it stands at Push; equal ones stay in order.
func TestWallClockJump(t *testing.T) {
	q := New[int]()
	setWallAhead(t, q, time.Hour)
	monotonic := time.Now().Add(10 * time.Minute)
	mustPush(t, q, 1, monotonic)
	_, d, _ := q.Peek()
	require.Zero(t, d.Sub(monotonic))

	wall := time.Now().Add(5 * time.Minute).Round(0)
	for i := range 1000 {
		mustPush(t, q, 2+i, wall)
	}
	_, d, _ = q.Peek()
	require.InDelta(t, 5*time.Minute, time.Until(d), float64(time.Minute))
	left := q.Close()
	require.True(t, slices.IsSorted(left[:1000]))
	require.Equal(t, 1, left[1000])
}

func TestAdoptSkew(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct{ kept, seen, want int64 }{
		{0, 0, 0}, {0, 900, 0}, {0, -900, 0}, {0, ms, 0}, {0, -ms, 0},
		{0, ms + 1, ms + 1}, {0, -ms - 1, -ms - 1},
		{5 * ms, 5*ms + 7, 5 * ms}, {5 * ms, 0, 0},
	} {
		require.Equal(t, c.want, adoptSkew(c.kept, c.seen), "%+v", c)
	}
}

func TestSubSat(t *testing.T) {
	const lo, hi = math.MinInt64, math.MaxInt64
	for _, c := range []struct{ a, b, want int64 }{
		{5, 3, 2}, {5, -3, 8}, {-5, 3, -8}, {0, 0, 0},
		{hi, 1, hi}, {hi, -1, hi}, {lo, 1, lo}, {lo, -1, lo},
		{hi - 1, -5, hi}, {lo + 1, 5, lo}, {hi - 1, 1, hi - 2}, {lo + 1, -1, lo + 2},
	} {
		require.Equal(t, c.want, subSat(c.a, c.b), "%+v", c)
	}
}

// timers 17: whatever way a value leaves, the queue does not keep it.
func TestValuesAreCollectedAfterLeaving(t *testing.T) {
	type payload [1 << 12]byte
	for name, leave := range map[string]func(*Queue[*payload], Handle){
		"remove":  func(q *Queue[*payload], h Handle) { q.Remove(h) },
		"poll":    func(q *Queue[*payload], h Handle) { q.Move(h, time.Time{}); q.Poll() },
		"pollAll": func(q *Queue[*payload], h Handle) { q.Move(h, time.Time{}); q.PollAll(nil) },
		"take":    func(q *Queue[*payload], h Handle) { q.Move(h, time.Time{}); _, _ = q.Take(t.Context()) },
		"close":   func(q *Queue[*payload], _ Handle) { q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			q := New[*payload]()
			later := time.Now().Add(time.Hour)
			if name != "close" {
				mustPush(t, q, new(payload), later.Add(time.Hour)) // so that the table is not just dropped
			}
			p := new(payload)
			w := weak.Make(p)
			h := mustPush(t, q, p, later)
			runtime.GC()
			require.NotNil(t, w.Value(), "the queue holds it")
			leave(q, h)
			runtime.GC()
			require.Nil(t, w.Value())
			runtime.KeepAlive(q)
		})
	}
}

// timers 17: an abandoned queue is collected though it was never closed and its timer has been armed.
func TestQueueIsCollectedUnclosed(t *testing.T) {
	q := New[int]()
	w := weak.Make(q)
	mustPush(t, q, 1, time.Now().Add(time.Millisecond))
	_, err := q.Take(t.Context())
	require.NoError(t, err)
	mustPush(t, q, 1, time.Now().Add(time.Hour))
	runtime.GC()
	require.Nil(t, w.Value())
}

func TestMemoryComesBackAfterBurst(t *testing.T) {
	const n = 20_000
	later := time.Now().Add(time.Hour)
	burst := func(t *testing.T, pinned int) (*Queue[int], []Handle) {
		q := New[int]()
		handles := make([]Handle, n)
		for i := range handles {
			handles[i] = mustPush(t, q, i, later.Add(time.Duration(i)))
		}
		for i, j := range rand.Perm(n) {
			if j != pinned {
				q.Remove(handles[j])
			}
			if i%2_000 == 0 {
				q.verify(t)
			}
		}
		q.verify(t)
		require.LessOrEqual(t, cap(q.heap.items), keep)
		return q, handles
	}
	t.Run("all=gone", func(t *testing.T) {
		q, _ := burst(t, -1)
		require.Zero(t, cap(q.heap.slots))
	})
	t.Run("pinned=front", func(t *testing.T) {
		q, _ := burst(t, 10)
		churn(t, q, n)
		require.LessOrEqual(t, cap(q.heap.slots), keep)
	})
	t.Run("pinned=rear", func(t *testing.T) {
		q, handles := burst(t, n-1)
		churn(t, q, 2*n)
		require.Greater(t, cap(q.heap.slots), keep, "a live slot cannot move")
		v, ok := q.Remove(handles[n-1])
		require.True(t, ok)
		require.Equal(t, n-1, v)
		require.Zero(t, cap(q.heap.slots))
	})
}

func churn(t *testing.T, q *Queue[int], rounds int) {
	t.Helper()
	for i := range rounds {
		q.Remove(mustPush(t, q, i, time.Time{}))
	}
	q.verify(t)
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, n := range []int{0, 1000} {
		q := New[int]()
		later := time.Now().Add(time.Hour)
		for i := range n {
			mustPush(t, q, i, later)
		}
		ctx := t.Context()
		step := func() {
			h, _ := q.Push(1, later)
			q.Move(h, later.Add(time.Second))
			q.Remove(h)
			_, _ = q.Push(2, time.Time{})
			q.Poll()
			_, _ = q.Push(3, time.Time{})
			_, _ = q.Take(ctx)
		}
		step()
		require.Zero(t, testing.AllocsPerRun(1000, step), "len=%d", n)
	}
}

func TestClose(t *testing.T) {
	q := New[string]()
	now := time.Now()
	mustPush(t, q, "later", now.Add(time.Hour))
	mustPush(t, q, "due", now.Add(-time.Hour))
	mustPush(t, q, "soon 1", now.Add(time.Minute))
	mustPush(t, q, "soon 2", now.Add(time.Minute))
	require.Equal(t, []string{"due", "soon 1", "soon 2", "later"}, q.Close())
	require.Nil(t, q.Close(), "idempotent")

	h, err := q.Push("x", now)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, h)
	_, err = q.Take(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, q.Len())
	_, ok := q.Poll()
	require.False(t, ok)
	require.Empty(t, q.PollAll(nil))
	_, _, ok = q.Peek()
	require.False(t, ok)
	q.verify(t)

	require.Nil(t, New[int]().Close())
}
