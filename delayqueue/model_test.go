package delayqueue

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// verify checks the invariants of heap.go.
func (h *heap[T]) verify(t testing.TB) {
	t.Helper()
	check := func(ok bool, format string, args ...any) { // cheaper than require: this runs millions of times
		if !ok {
			t.Helper()
			t.Fatalf(format, args...)
		}
	}
	seqs, ids := make(map[uint64]bool), make(map[uint64]bool)
	for i, it := range h.items {
		check(i == 0 || !it.before(h.items[(i-1)/arity]), "invariant 1: item %d is before its parent", i)
		check(int(it.slot) < len(h.slots), "invariant 2: item %d has no slot", i)
		s := &h.slots[it.slot]
		check(int(s.pos) == i && s.id != 0, "invariant 2: item %d, slot %+v", i, *s)
		check(!ids[s.id] && !seqs[it.seq] && max(s.id, it.seq) <= h.seq, "invariant 4: item %d", i)
		ids[s.id], seqs[it.seq] = true, true
		pos, ok := h.find(Handle{s.id, s.handle})
		check(ok && pos == i, "invariant 5: item %d is found at %d, %t", i, pos, ok)
	}
	free := 0
	for i := h.free; i != noSlot; i = h.slots[i].pos {
		s := &h.slots[i]
		check(s.id == 0 && reflect.ValueOf(&s.value).Elem().IsZero(), "invariant 3: free slot %d: %+v", i, *s)
		free++
		check(free <= len(h.slots), "invariant 3: the free list is a ring")
	}
	live, all := len(h.items), len(h.slots)
	check(live+free == all, "invariants 2 and 3: %d live, %d free, %d slots", live, free, all)
}

// verifyMemory checks that memory follows the load (T18): after elements have left, the queue
// keeps at most twice the memory that the others need, plus the spare.
func (h *heap[T]) verifyMemory(t testing.TB) {
	t.Helper()
	bytes := func(items, slots, moved int) int {
		return items*int(unsafe.Sizeof(item{})) + slots*int(unsafe.Sizeof(slot[T]{})) + 4*moved
	}
	n := len(h.items)
	have, need := bytes(cap(h.items), cap(h.slots), len(h.moved)), bytes(n, n, 0)
	if have > 2*need+bytes(h.spare+1, h.spare+1, 2*h.spare+2) {
		t.Fatalf("T18: %d bytes are kept for %d elements, which need %d", have, n, need)
	}
}

func (q *Queue[T]) verify(t testing.TB) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heap.verify(t)
	if q.armed != notArmed && len(q.heap.items) > 0 {
		require.LessOrEqual(t, q.armed, q.heap.items[0].deadline, "a leader sleeps past the head")
	}
}

func (q *Queue[T]) verifyMemory(t testing.TB) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heap.verifyMemory(t)
}

// oracle models the queue as a sorted slice.
type oracle struct{ elems []Element[int] }

func (o *oracle) insert(e Element[int]) {
	i := 0
	for i < len(o.elems) && !o.elems[i].Deadline.After(e.Deadline) {
		i++
	}
	o.elems = slices.Insert(o.elems, i, e)
}

func (o *oracle) delete(h Handle) (Element[int], bool) {
	for i, e := range o.elems {
		if e.Handle == h {
			o.elems = slices.Delete(o.elems, i, i+1)
			return e, true
		}
	}
	return Element[int]{}, false
}

func (o *oracle) poll(now time.Time) (Element[int], bool) {
	if len(o.elems) == 0 || o.elems[0].Deadline.After(now) {
		return Element[int]{}, false
	}
	return o.delete(o.elems[0].Handle)
}

// clear returns the remaining elements, or nil if there are none.
func (o *oracle) clear() []Element[int] {
	left := o.elems
	o.elems = nil
	if len(left) == 0 {
		return nil
	}
	return left
}

// model compares a queue with the oracle, in a bubble.
type model struct {
	*testing.T
	q       *Queue[int]
	o       *oracle
	handles []Handle // live, stale and, at first, none
	n       int      // the next value
	limit   uint32
	closed  bool
}

// runModel decodes ops into calls, two bytes each, and compares every result. It uses few
// deadlines and virtual clocks, so ties and edges are common. Most queues keep no spare memory,
// so slots move all the time; some are small.
func runModel(t *testing.T, ops []byte) {
	m := &model{T: t, q: New[int](), o: &oracle{}, limit: noSlot}
	if len(ops) >= 2 {
		if ops[0]%4 != 0 {
			m.q.heap.spare = 0
		}
		if ops[0]/4%4 == 0 {
			m.limit = 12
			m.q.heap.limit = 12
		}
		ops = ops[2:]
	}
	for len(ops) >= 2 {
		before := m.q.Len()
		m.step(ops[0], ops[1])
		ops = ops[2:]

		m.q.verify(t)
		require.Equal(t, len(m.o.elems), m.q.Len())
		if m.q.Len() < before {
			m.q.verifyMemory(t)
		}
		e, ok := m.q.Peek()
		require.Equal(t, len(m.o.elems) > 0, ok)
		if ok {
			require.Equal(t, m.o.elems[0], e)
		} else {
			require.Zero(t, e)
		}
	}
	if !m.closed {
		require.Equal(t, m.o.clear(), m.q.Close())
	}
}

func (m *model) pick(b byte) Handle {
	if len(m.handles) == 0 {
		return Handle{}
	}
	return m.handles[int(b)%len(m.handles)]
}

func (m *model) deadline(b byte) time.Time {
	return time.Now().Add(time.Duration(int(b%32)-8) * time.Second)
}

func (m *model) step(op, arg byte) {
	switch op % 16 {
	case 0, 1, 2, 3, 4:
		pushes := 1
		if op >= 240 && len(m.o.elems) < 500 { // the oracle takes O(n) for each
			pushes = int(arg / 4)
		}
		for i := range pushes {
			m.push(m.deadline(arg + byte(7*i)))
		}
	case 5, 6:
		want, wantOK := m.o.delete(m.pick(arg))
		got, ok := m.q.Remove(m.pick(arg))
		require.Equal(m, wantOK, ok)
		require.Equal(m, want.Value, got)
	case 7, 8:
		h, d := m.pick(arg), m.deadline(op/16*7+arg)
		e, wantOK := m.o.delete(h)
		if wantOK {
			m.o.insert(Element[int]{e.Value, d, h})
		}
		require.Equal(m, wantOK, m.q.Reset(h, d))
	case 9:
		want, wantOK := m.o.poll(time.Now())
		got, ok := m.q.Poll()
		require.Equal(m, wantOK, ok)
		require.Equal(m, want.Value, got)
	case 10:
		want, wantOK := m.o.poll(time.Now())
		got, ok := m.q.PollElement()
		require.Equal(m, wantOK, ok)
		require.Equal(m, want, got)
	case 11:
		n := int(arg%16) - 1
		all := arg >= 128
		want := []int{-1}
		for all || len(want) <= n {
			e, ok := m.o.poll(time.Now())
			if !ok {
				break
			}
			want = append(want, e.Value)
		}
		if all {
			require.Equal(m, want, m.q.PollAll([]int{-1}))
		} else {
			require.Equal(m, want, m.q.PollN([]int{-1}, n))
		}
	case 12:
		time.Sleep(time.Duration(arg%8) * time.Second)
	case 13, 14:
		m.take(op%16 == 14)
	case 15:
		switch {
		case arg >= 250: // rarely: closing ends the run
			require.Equal(m, m.o.clear(), m.q.Close())
			m.closed = true
		case arg >= 220:
			require.Equal(m, m.o.clear(), m.q.Clear())
		default:
			require.ElementsMatch(m, m.o.elems, slices.Collect(m.q.All()))
		}
	}
}

func (m *model) push(deadline time.Time) {
	m.n++
	h, err := m.q.Push(m.n, deadline)
	switch {
	case m.closed:
		require.ErrorIs(m, err, ErrClosed)
		require.Zero(m, h)
	case uint32(len(m.o.elems)) >= m.limit:
		require.ErrorIs(m, err, ErrFull)
		require.Zero(m, h)
	default:
		require.NoError(m, err)
		require.False(m, slices.Contains(m.handles, h), "a handle was used twice")
		m.handles = append(m.handles, h)
		m.o.insert(Element[int]{m.n, deadline, h})
	}
}

func (m *model) take(element bool) {
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute) // no deadline of the model is that far
	defer cancel()
	start := time.Now()
	var got Element[int]
	var err error
	if element {
		got, err = m.q.TakeElement(ctx)
	} else {
		got.Value, err = m.q.Take(ctx)
	}
	switch {
	case m.closed:
		require.ErrorIs(m, err, ErrClosed)
		require.Zero(m, got)
		require.Equal(m, start, time.Now())
	case len(m.o.elems) == 0:
		require.ErrorIs(m, err, context.DeadlineExceeded)
		require.Zero(m, got)
		require.Equal(m, time.Minute, time.Since(start))
	default:
		due := m.o.elems[0].Deadline
		if due.Before(start) {
			due = start
		}
		want, _ := m.o.poll(due)
		require.NoError(m, err)
		require.Equal(m, want.Value, got.Value)
		if element {
			require.Equal(m, want, got)
		}
		require.Equal(m, due, time.Now(), "T1, T16: taken at its deadline")
	}
}

// T1, T6, T16, T18: any sequence of operations behaves like one on a sorted slice.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		ops := make([]byte, 2*r.IntN(1000))
		for i := range ops {
			ops[i] = byte(r.Uint32())
		}
		synctest.Test(t, func(t *testing.T) { runModel(t, ops) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{4, 0, 0, 9, 0, 9, 13, 0, 7, 1, 9, 0, 13, 0, 14, 0})
	f.Add([]byte{4, 0, 0, 31, 5, 0, 5, 0, 0, 10, 7, 0, 7, 1, 13, 0, 15, 255, 0, 0, 13, 0, 15, 255})
	f.Add([]byte{5, 0, 0, 0, 1, 8, 2, 8, 11, 2, 12, 7, 11, 128, 9, 0})
	f.Add([]byte{5, 0, 240, 255, 12, 7, 11, 15, 11, 15, 5, 3, 15, 0, 15, 230, 0, 4, 7, 3, 14, 0}) // a burst
	f.Add([]byte{1, 0, 240, 255, 15, 1, 10, 0, 0, 9, 0, 9})                                       // full
	f.Fuzz(func(t *testing.T, ops []byte) {
		ops = ops[:min(len(ops), 4096)]
		synctest.Test(t, func(t *testing.T) { runModel(t, ops) })
	})
}
