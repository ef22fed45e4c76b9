package delayqueue

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// packed returns a queue whose slots have moved twice, and the Handles of what is in
// it, which are from before the first time, between the two, and after the second.
func packed(t *testing.T) (*Queue[int], []Handle) {
	t.Helper()
	q := New[int]()
	later := time.Now().Add(time.Hour)
	r := rand.New(rand.NewPCG(1, 2))
	var handles []Handle
	for range 2 {
		for i := range 10 * spare {
			handles = append(handles, mustPush(t, q, i, later.Add(time.Duration(r.IntN(1000)))))
		}
		r.Shuffle(len(handles), func(i, j int) { handles[i], handles[j] = handles[j], handles[i] })
		for _, h := range handles[spare:] {
			_, ok := q.Remove(h)
			require.True(t, ok)
		}
		handles = handles[:spare]
		require.NotEmpty(t, q.heap.moved)
	}
	for i := range 10 {
		handles = append(handles, mustPush(t, q, i, later))
	}
	q.verify(t)
	return q, handles
}

// T6: after slots have moved, each Handle names its element still, and is what every
// method returns for it.
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
	require.Greater(t, moved, spare/2, "the test needs elements that moved")

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

// T6: Handles stay unique when the slot table is dropped and grows anew.
func TestHandlesOutliveTheSlotTable(t *testing.T) {
	q := New[int]()
	later := time.Now().Add(time.Hour)
	var old []Handle
	for range 4 {
		var batch []Handle
		for i := range 4 * spare {
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
		require.LessOrEqual(t, cap(q.heap.slots), spare)
		old = append(old, batch...)
	}
}

// T18: whichever elements leave, memory follows, at every size on the way down; what
// comes afterwards finds a queue in order.
func TestMemoryFollowsTheLoadDown(t *testing.T) {
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
				if i == n*9/10 { // in the steady state the memory stays as it is
					slots, items := cap(q.heap.slots), cap(q.heap.items)
					for j := range n {
						q.Remove(mustPush(t, q, j, time.Time{}))
					}
					require.Equal(t, slots, cap(q.heap.slots))
					require.Equal(t, items, cap(q.heap.items))
				}
			}
			require.LessOrEqual(t, cap(q.heap.slots), spare)
			require.LessOrEqual(t, cap(q.heap.items), spare)
			q.verify(t)
		})
	}
}

// Neither growing nor shrinking copies at every other call, at any size: between two
// copies a part of the elements comes or goes.
func TestCopiesAreAmortised(t *testing.T) {
	q := New[int]()
	later := time.Now().Add(time.Hour)
	var handles []Handle
	for i := range 5_000 {
		handles = append(handles, mustPush(t, q, i, later))
		slots, items, copies := cap(q.heap.slots), cap(q.heap.items), 0
		for range 10 { // to and fro at the edge
			q.Remove(mustPush(t, q, i, later))
			q.Remove(handles[len(handles)-1])
			handles[len(handles)-1] = mustPush(t, q, i, later)
			if cap(q.heap.slots) != slots || cap(q.heap.items) != items {
				copies++
			}
			slots, items = cap(q.heap.slots), cap(q.heap.items)
		}
		require.LessOrEqual(t, copies, 1, "at %d elements", len(handles))
	}
	for len(handles) > 0 {
		last := len(handles) - 1
		q.Remove(handles[last])
		handles = handles[:last]
		slots, copies := cap(q.heap.slots), 0
		for range 10 {
			q.Remove(mustPush(t, q, 0, later))
			if cap(q.heap.slots) != slots {
				copies++
			}
			slots = cap(q.heap.slots)
		}
		require.Zero(t, copies, "at %d elements", len(handles))
	}
}

// A full queue refuses, and nothing changes; what leaves makes room, in the slot that
// was left.
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

// The index spreads ids that are neighbours, as those of a burst are: a search for
// any of them takes few steps.
func TestIndexSpreadsNeighbours(t *testing.T) {
	for _, stride := range []uint64{1, 2, 3, 10, 64, 1024} {
		q := New[int]()
		const n = 3_000
		later := time.Now().Add(time.Hour)
		for i := range n {
			q.heap.seq = uint64(i+1) * stride
			mustPush(t, q, i, later)
		}
		q.heap.pack(n)
		q.verify(t)
		steps := 0
		for _, it := range q.heap.items {
			id := q.heap.slots[it.slot].id
			for j := q.heap.bucket(id); q.heap.slots[q.heap.moved[j]-1].id != id; j = q.heap.next(j) {
				steps++
			}
		}
		require.Less(t, steps, 5*n, "stride %d", stride)
	}
}
