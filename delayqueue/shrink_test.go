package delayqueue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// packed returns a queue whose slots have moved twice, and the Handles of its elements: from
// before the first move, between the two, and after the second.
func packed(t *testing.T) (*Queue[int], []Handle) {
	t.Helper()
	q := New[int]()
	later := time.Now().Add(time.Hour)
	r := rand.New(rand.NewPCG(1, 2))
	var handles []Handle
	for range 2 {
		for i := range 10 * defaultSpare {
			handles = append(handles, mustPush(t, q, i, later.Add(time.Duration(r.IntN(1000)))))
		}
		r.Shuffle(len(handles), func(i, j int) { handles[i], handles[j] = handles[j], handles[i] })
		for _, h := range handles[defaultSpare:] {
			_, ok := q.Remove(h)
			require.True(t, ok)
		}
		handles = handles[:defaultSpare]
		require.NotEmpty(t, q.heap.moved)
	}
	for i := range 10 {
		handles = append(handles, mustPush(t, q, i, later))
	}
	q.verify(t)
	return q, handles
}

// T6: after slots have moved, each Handle still names its element, and every method still
// returns it.
func TestHandlesOutliveMovedSlots(t *testing.T) {
	q, handles := packed(t)
	live := make(map[Handle]bool)
	for _, h := range handles {
		live[h] = true
	}
	for e := range q.All() {
		require.True(t, live[e.Handle], "another Handle than Push returned")
	}
	moved := 0
	for i, s := range q.heap.slots {
		if s.id != 0 && int(s.handle) != i {
			moved++
		}
	}
	require.Greater(t, moved, defaultSpare/2, "the test needs elements that moved")

	now := time.Now()
	for i, h := range handles {
		require.True(t, q.Reset(h, now.Add(time.Duration(-i)))) // now the head
		e, ok := q.Peek()
		require.True(t, ok)
		require.Equal(t, h, e.Handle)
	}
	for i, h := range handles {
		_, ok := q.Remove(h)
		require.True(t, ok, "%d", i)
		_, ok = q.Remove(h)
		require.False(t, ok, "%d", i)
		if i%10 == 0 {
			q.verify(t)
		}
	}
	require.Zero(t, q.Len())
}

// T6: Handles stay unique when the slot table is dropped and grows again.
func TestHandlesOutliveTheSlotTable(t *testing.T) {
	q := New[int]()
	later := time.Now().Add(time.Hour)
	var old []Handle
	for range 4 {
		var batch []Handle
		for i := range 4 * defaultSpare {
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
		require.LessOrEqual(t, cap(q.heap.slots), defaultSpare)
		old = append(old, batch...)
	}
}

// T18: whichever elements leave, memory follows, at every size on the way down, and the queue
// stays in order afterwards.
func TestMemoryFollowsTheLoadDown(t *testing.T) {
	t.Parallel()
	const n = 20_000
	for name, order := range map[string]func(i int) int{
		"front first": func(i int) int { return i },
		"rear first":  func(i int) int { return n - 1 - i },
		"scattered":   func(i int) int { return i * 7919 % n }, // 7919 is prime
	} {
		t.Run("leave="+name, func(t *testing.T) {
			q := New[int]()
			later := time.Now().Add(time.Hour)
			handles := make([]Handle, n)
			for i := range handles {
				handles[i] = mustPush(t, q, i, later.Add(time.Duration(i)))
			}
			for i := range n {
				v, ok := q.Remove(handles[order(i)])
				require.True(t, ok)
				require.Equal(t, order(i), v)
				q.verifyMemory(t)
				if i%2_000 == 0 {
					q.verify(t)
				}
				if i == n*9/10 { // in the steady state the memory does not change
					slots, items := cap(q.heap.slots), cap(q.heap.items)
					for j := range n {
						q.Remove(mustPush(t, q, j, time.Time{}))
					}
					require.Equal(t, slots, cap(q.heap.slots))
					require.Equal(t, items, cap(q.heap.items))
				}
			}
			require.LessOrEqual(t, cap(q.heap.slots), defaultSpare)
			require.LessOrEqual(t, cap(q.heap.items), defaultSpare)
			q.verify(t)
		})
	}
}

// Each of the two tables shrinks independently: they grow at different sizes if T is not as
// large as a key, and slots do not move during a loop over All.
func TestTablesShrinkIndependently(t *testing.T) {
	for name, grow := range map[string]func(*heap[int]){
		"items": func(h *heap[int]) { h.items = slices.Grow(h.items, 10*defaultSpare) },
		"slots": func(h *heap[int]) { h.slots = slices.Grow(h.slots, 10*defaultSpare) },
	} {
		t.Run(name, func(t *testing.T) {
			q := New[int]()
			for i := range defaultSpare {
				mustPush(t, q, i, time.Time{})
			}
			grow(&q.heap)
			q.Poll()
			q.verifyMemory(t)
			q.verify(t)
		})
	}
}

// T18: neither growing nor shrinking copies every few calls, at any size: before the next copy,
// a fraction of the elements must arrive or leave.
func TestCopiesAreAmortised(t *testing.T) {
	t.Parallel()
	q := New[int]()
	later := time.Now().Add(time.Hour)
	var slots *slot[int]
	var items *item
	copied := func() bool {
		s, i := unsafe.SliceData(q.heap.slots), unsafe.SliceData(q.heap.items)
		changed := s != slots || i != items
		slots, items = s, i
		return changed
	}
	copies := 0
	count := func() {
		if copied() {
			copies++
		}
		before := copies
		for range 5 { // back and forth at the edge
			q.Remove(mustPush(t, q, 0, later))
			if copied() {
				copies++
			}
		}
		require.LessOrEqual(t, copies-before, 1, "at %d elements", q.Len())
	}
	const n = 5_000
	handles := make([]Handle, n)
	for i := range handles {
		handles[i] = mustPush(t, q, i, later)
		count()
	}
	for _, h := range handles {
		q.Remove(h)
		count()
	}
	require.Less(t, copies, 40, "some 12 on the way up and 15 on the way down")
	h := heap[int]{items: make([]item, 64), spare: defaultSpare}
	require.Equal(t, 64*13/8+defaultSpare, h.maxCap(), "3/13 of the elements must leave before the next copy")
}

// A full queue refuses a push, and nothing changes; an element that leaves frees capacity, in
// its own slot.
func TestFull(t *testing.T) {
	q := New[int]()
	require.Equal(t, uint32(noSlot), q.heap.limit)
	q.heap.limit = 3
	later := time.Now().Add(time.Hour)
	first := mustPush(t, q, 1, later)
	mustPush(t, q, 2, later)
	mustPush(t, q, 3, later)
	for range 2 {
		seq := q.heap.seq
		h, err := q.Push(4, time.Now())
		require.ErrorIs(t, err, ErrFull)
		require.Zero(t, h)
		require.Equal(t, seq, q.heap.seq)
		require.Equal(t, 3, q.Len())
		e, ok := q.Peek()
		require.True(t, ok)
		require.Equal(t, 1, e.Value)
		q.verify(t)
	}
	_, ok := q.Remove(first)
	require.True(t, ok)
	mustPush(t, q, 5, later)
	_, err := q.Push(6, later)
	require.ErrorIs(t, err, ErrFull)

	require.Len(t, q.Clear(), 3)
	for i := range 3 {
		mustPush(t, q, i, later)
	}
	_, err = q.Push(6, later)
	require.ErrorIs(t, err, ErrFull, "Clear keeps the limit")
	q.Close()
	_, err = q.Push(6, later)
	require.ErrorIs(t, err, ErrClosed)
}

// The index spreads ids, whether they are consecutive, as in a burst, or not: a search for any
// of them takes few steps, also at the sizes at which the index is fullest.
func TestIndexSpreadsIDs(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, gap := range []func() uint64{
		func() uint64 { return 1 },
		func() uint64 { return 2 },
		func() uint64 { return 10 },
		func() uint64 { return 1024 },
		func() uint64 { return 1 + r.Uint64N(1000) },
	} {
		for _, n := range []int{3_000, 3_071, 3_072, 4_095, 4_096} {
			q := New[int]()
			for i := range n {
				q.heap.seq += gap() - 1
				mustPush(t, q, i, time.Time{})
			}
			q.heap.pack(n)
			steps := 0
			for _, it := range q.heap.items {
				id := q.heap.slots[it.slot].id
				for j := q.heap.bucket(id); q.heap.slots[q.heap.moved[j]-1].id != id; j = q.heap.next(j) {
					steps++
				}
			}
			require.Less(t, steps, 3*n, "%d elements", n) // 1.5 by theory at three quarters
		}
	}
}
