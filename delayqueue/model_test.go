package delayqueue

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

func (q *Queue[T]) verify(t testing.TB) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heap.verify(t)
	if q.armed != noArm && len(q.heap.items) > 0 {
		require.LessOrEqual(t, q.armed, q.heap.items[0].deadline, "a leader sleeps past the head")
	}
}

// oracle is the queue without any idea: a slice that is kept sorted.
type oracle struct{ elems []oracleElem }

type oracleElem struct {
	value    int
	deadline time.Time
	handle   Handle
}

func (o *oracle) insert(e oracleElem) {
	i := 0
	for i < len(o.elems) && !o.elems[i].deadline.After(e.deadline) {
		i++
	}
	o.elems = slices.Insert(o.elems, i, e)
}

func (o *oracle) delete(h Handle) (oracleElem, bool) {
	for i, e := range o.elems {
		if e.handle == h {
			o.elems = slices.Delete(o.elems, i, i+1)
			return e, true
		}
	}
	return oracleElem{}, false
}

func (o *oracle) poll(now time.Time) (oracleElem, bool) {
	if len(o.elems) == 0 || o.elems[0].deadline.After(now) {
		return oracleElem{}, false
	}
	return o.delete(o.elems[0].handle)
}

func (o *oracle) values() (vs []int) {
	for _, e := range o.elems {
		vs = append(vs, e.value)
	}
	return vs
}

// runModel decodes ops into calls of a queue and of the oracle, two bytes each, and compares every answer. Deadlines
// are few and clocks are virtual, so that ties and edges are the rule.
func runModel(t *testing.T, ops []byte) {
	q, o := New[int](), &oracle{}
	var handles []Handle // live, stale and, at first, none
	closed := false
	pick := func(b byte) Handle {
		if len(handles) == 0 {
			return Handle{}
		}
		return handles[int(b)%len(handles)]
	}
	at := func(b byte) time.Time { return time.Now().Add(time.Duration(int(b%32)-8) * time.Second) }

	for n := 0; len(ops) >= 2; n++ {
		op, arg := ops[0], ops[1]
		ops = ops[2:]
		if closed {
			o.elems = nil
		}
		switch op % 16 {
		case 0, 1, 2, 3, 4:
			d := at(arg)
			h, err := q.Push(n, d)
			if closed {
				require.ErrorIs(t, err, ErrClosed)
				require.Zero(t, h)
				break
			}
			require.NoError(t, err)
			require.NotContains(t, handles, h, "a handle was used twice")
			handles = append(handles, h)
			o.insert(oracleElem{n, d, h})
		case 5, 6:
			want, wantOK := o.delete(pick(arg))
			got, ok := q.Remove(pick(arg))
			require.Equal(t, wantOK, ok)
			require.Equal(t, want.value, got)
		case 7, 8:
			h, d := pick(arg), at(op/16*7+arg)
			e, wantOK := o.delete(h)
			if wantOK {
				o.insert(oracleElem{e.value, d, h})
			}
			require.Equal(t, wantOK, q.Move(h, d))
		case 9, 10:
			want, wantOK := o.poll(time.Now())
			got, ok := q.Poll()
			require.Equal(t, wantOK, ok)
			require.Equal(t, want.value, got)
		case 11:
			want := []int{-1}
			for e, ok := o.poll(time.Now()); ok; e, ok = o.poll(time.Now()) {
				want = append(want, e.value)
			}
			require.Equal(t, want, q.PollAll([]int{-1}))
		case 12:
			time.Sleep(time.Duration(arg%8) * time.Second)
		case 13, 14:
			modelTake(t, q, o, closed)
		case 15:
			if arg < 250 { // rarely: closing ends the story
				break
			}
			left := q.Close()
			if closed {
				require.Nil(t, left)
			} else {
				require.Equal(t, o.values(), left)
			}
			closed, o.elems = true, nil
		}

		q.verify(t)
		require.Equal(t, len(o.elems), q.Len())
		v, d, ok := q.Peek()
		require.Equal(t, len(o.elems) > 0, ok)
		if ok {
			require.Equal(t, o.elems[0].value, v)
			require.True(t, d.Equal(o.elems[0].deadline))
		}
	}
	if !closed {
		require.Equal(t, o.values(), q.Close())
	}
}

func modelTake(t *testing.T, q *Queue[int], o *oracle, closed bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // no deadline of the model is that far
	defer cancel()
	start := time.Now()
	got, err := q.Take(ctx)
	switch {
	case closed:
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, start, time.Now())
	case len(o.elems) == 0:
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
	default:
		due := o.elems[0].deadline
		if due.Before(start) {
			due = start
		}
		want, _ := o.poll(due)
		require.NoError(t, err)
		require.Equal(t, want.value, got)
		require.Equal(t, due, time.Now(), "T1, T16: taken at its deadline")
	}
}

// T1, T6, T16: any sequence of operations does what a sorted slice does.
func TestModel(t *testing.T) {
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
	f.Add([]byte{0, 9, 0, 9, 13, 0, 7, 1, 9, 0, 13, 0, 13, 0})
	f.Add([]byte{0, 31, 5, 0, 5, 0, 0, 10, 7, 0, 7, 1, 13, 0, 15, 255, 0, 0, 13, 0, 15, 255})
	f.Add([]byte{0, 0, 1, 8, 2, 8, 11, 0, 12, 7, 11, 0, 9, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		ops = ops[:min(len(ops), 4096)]
		synctest.Test(t, func(t *testing.T) { runModel(t, ops) })
	})
}
