package delayqueue

import (
	"context"
	"math"
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

func values[T any](elements []Element[T]) (vs []T) {
	for _, e := range elements {
		vs = append(vs, e.Value)
	}
	return vs
}

func TestEqualDeadlinesAreTakenInOrder(t *testing.T) {
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

func TestResetCountsAsNewlyAdded(t *testing.T) {
	q := New[int]()
	at := time.Now()
	first := mustPush(t, q, 1, at)
	mustPush(t, q, 2, at)
	require.True(t, q.Reset(first, at))
	require.Equal(t, []int{2, 1}, q.PollAll(nil))
}

// T1: an element is due when the clock shows its deadline, not a nanosecond sooner.
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

func TestPollAllAppendsDueElements(t *testing.T) {
	q := New[int]()
	require.Equal(t, []int{7}, q.PollAll([]int{7}))
	now := time.Now()
	mustPush(t, q, 3, now.Add(time.Hour))
	mustPush(t, q, 2, now)
	mustPush(t, q, 1, now.Add(-time.Second))
	require.Equal(t, []int{7, 1, 2}, q.PollAll([]int{7}))
	require.Equal(t, 1, q.Len())
}

// T6, docs/lessons.md timers 6: with zero, stale and invented Handles every method reports
// false, and the old Handle of a reused slot cannot reach its new element.
func TestStaleHandles(t *testing.T) {
	q := New[string]()
	dead := func(h Handle) {
		t.Helper()
		n := q.Len()
		v, ok := q.Remove(h)
		require.False(t, ok)
		require.Empty(t, v)
		require.False(t, q.Reset(h, time.Now()))
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
	require.True(t, q.Reset(b, time.Time{}))
	v, ok = q.Poll()
	require.True(t, ok)
	require.Equal(t, "b", v)
	dead(b)

	c := mustPush(t, q, "c", later)
	require.Len(t, q.Close(), 1)
	dead(c)
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
		e, ok := q.Peek()
		require.True(t, ok)
		require.Zero(t, e.Deadline.Sub(now.Add(time.Hour)))
		left := q.Close()
		require.Equal(t, []int{5, 6, 7, 8, 9}, values(left))

		// Elements from the queue can be pushed to it again, at the ends of the range too.
		q = New[int]()
		for _, e := range left {
			mustPush(t, q, e.Value, e.Deadline)
		}
		require.Empty(t, q.PollAll(nil))
		require.Equal(t, []int{5, 6, 7, 8, 9}, values(q.Close()))
	}
	t.Run("clock=real", run)
	t.Run("clock=virtual", func(t *testing.T) { synctest.Test(t, run) })
}

// Saturated elements still leave by handle, and the farthest deadline causes no wake-up.
func TestFarthestDeadlineCausesNoWakeup(t *testing.T) {
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

// setWallAhead makes base's wall reading older by d, as if the wall clock had been set ahead by
// d since New. The only other way to test that is to set the machine's clock.
func setWallAhead[T any](t *testing.T, q *Queue[T], d time.Duration) {
	t.Helper()
	before := q.base
	wall := (*uint64)(unsafe.Pointer(&q.base)) // time.Time: flag, 33 bits of seconds, 30 of nanoseconds
	*wall -= uint64(d/time.Second) << 30
	require.Equal(t, d, before.Round(0).Sub(q.base.Round(0)), "layout of time.Time")
	require.Zero(t, before.Sub(q.base), "layout of time.Time")
}

// T14, docs/lessons.md timers 16: the wall clock steps by an hour. Deadlines with a monotonic
// reading do not change; those without are converted by the wall clock at Push; equal ones stay
// in order.
func TestWallClockJump(t *testing.T) {
	q := New[int]()
	setWallAhead(t, q, time.Hour)
	monotonic := time.Now().Add(10 * time.Minute)
	mustPush(t, q, 1, monotonic)
	e, _ := q.Peek()
	require.Zero(t, e.Deadline.Sub(monotonic))

	wall := time.Now().Add(5 * time.Minute).Round(0)
	for i := range 1000 {
		mustPush(t, q, 2+i, wall)
	}
	e, _ = q.Peek()
	require.InDelta(t, 5*time.Minute, time.Until(e.Deadline), float64(time.Minute))
	left := values(q.Close())
	require.True(t, slices.IsSorted(left[:1000]))
	require.Equal(t, 1, left[1000])
}

func TestAdoptSkew(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		kept, want int64
		seen       []int64
	}{
		{0, 0, []int64{0}},
		{0, 0, []int64{900}},
		{0, 0, []int64{-900}},
		{0, 0, []int64{ms}},
		{0, 0, []int64{-ms}},
		{5 * ms, 5 * ms, []int64{5*ms + 7}},
		// The clock was set: two readings agree.
		{0, ms + 2, []int64{ms + 1, ms + 2}},
		{0, -ms - 2, []int64{-ms - 1, -ms - 2}},
		{0, 3 * ms, []int64{2 * ms, 3 * ms}},
		{0, 2 * ms, []int64{3 * ms, 2 * ms}},
		{5 * ms, 7, []int64{0, 7}},
		// The thread was preempted between the clocks: they do not.
		{0, 0, []int64{9 * ms, 7}},
		{0, 0, []int64{-9 * ms, 7}},
		{0, 0, []int64{9 * ms, 5 * ms, -2 * ms, 7}},
		{0, 60 * ms, []int64{9 * ms, 60 * ms, 60 * ms}},
		{5 * ms, 60 * ms, []int64{9 * ms, 60*ms + 3, 60 * ms}},
	} {
		reads := 0
		got := adoptSkew(c.kept, func() int64 {
			reads++
			return c.seen[reads-1]
		})
		require.Equal(t, c.want, got, "%+v", c)
		require.Len(t, c.seen, reads, "%+v", c)
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

// docs/lessons.md timers 17: however a value leaves, the queue does not keep it.
func TestValuesAreCollectedAfterLeaving(t *testing.T) {
	type payload [1 << 12]byte
	for name, leave := range map[string]func(*Queue[*payload], Handle){
		"remove":  func(q *Queue[*payload], h Handle) { q.Remove(h) },
		"poll":    func(q *Queue[*payload], h Handle) { q.Reset(h, time.Time{}); q.Poll() },
		"pollAll": func(q *Queue[*payload], h Handle) { q.Reset(h, time.Time{}); q.PollAll(nil) },
		"take":    func(q *Queue[*payload], h Handle) { q.Reset(h, time.Time{}); _, _ = q.Take(t.Context()) },
		"clear":   func(q *Queue[*payload], _ Handle) { q.Clear() },
		"close":   func(q *Queue[*payload], _ Handle) { q.Close() },
		"element": func(q *Queue[*payload], h Handle) { q.Reset(h, time.Time{}); q.PollElement() },
	} {
		t.Run(name, func(t *testing.T) {
			q := New[*payload]()
			later := time.Now().Add(time.Hour)
			mustPush(t, q, new(payload), later.Add(time.Hour)) // so that the table is not just dropped
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

// docs/lessons.md timers 17: an abandoned queue is collected although it was never closed and
// its timer has been armed.
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

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, n := range []int{0, 1000} {
		q := New[int]()
		later := time.Now().Add(time.Hour)
		for i := range n {
			mustPush(t, q, i, later)
		}
		ctx, buf, wall := t.Context(), make([]int, 0, 1), time.Now().Round(0)
		step := func() {
			h, _ := q.Push(1, later)
			q.Reset(h, later.Add(time.Second))
			q.Remove(h)
			_, _ = q.Push(2, time.Time{})
			q.Poll()
			_, _ = q.Push(3, time.Time{})
			_, _ = q.Take(ctx)
			_, _ = q.Push(4, wall)
			_, _ = q.TakeElement(ctx)
			_, _ = q.Push(5, time.Time{})
			buf = q.PollN(buf[:0], 1)
			q.Peek()
		}
		step()
		require.Zero(t, testing.AllocsPerRun(1000, step), "len=%d", n)
	}
}

func TestClose(t *testing.T) {
	q := New[string]()
	now := time.Now()
	first := mustPush(t, q, "later", now.Add(time.Hour))
	mustPush(t, q, "due", now.Add(-time.Hour))
	mustPush(t, q, "soon 1", now.Add(time.Minute))
	mustPush(t, q, "soon 2", now.Add(time.Minute))
	left := q.Close()
	require.Equal(t, []string{"due", "soon 1", "soon 2", "later"}, values(left))
	require.Zero(t, left[3].Deadline.Sub(now.Add(time.Hour)))
	require.Equal(t, first, left[3].Handle)
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
	_, ok = q.Peek()
	require.False(t, ok)
	require.Empty(t, slices.Collect(q.All()))
	q.verify(t)

	require.Nil(t, New[int]().Close())
}

// Misuse that is the caller's bug is named before any change.
func TestMisusePanics(t *testing.T) {
	q := New[int]()
	mustPush(t, q, 1, time.Time{})
	var none context.Context
	require.PanicsWithValue(t, "delayqueue: the context is nil", func() { _, _ = q.Take(none) })
	require.PanicsWithValue(t, "delayqueue: the context is nil", func() { _, _ = q.TakeElement(none) })
	require.Equal(t, 1, q.Len())

	const zero = "delayqueue: the zero Queue is not usable, make one with New"
	q = new(Queue[int])
	require.PanicsWithValue(t, zero, func() { _, _ = q.Push(1, time.Now()) })
	ended, cancel := context.WithCancel(t.Context()) // so that nothing blocks
	cancel()
	require.PanicsWithValue(t, zero, func() { _, _ = q.Take(ended) })
	require.PanicsWithValue(t, zero, func() { _, _ = q.TakeElement(ended) })
	require.PanicsWithValue(t, zero, func() { q.Close() })
	require.PanicsWithValue(t, zero, func() { q.Len() })
}
