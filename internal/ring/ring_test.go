package ring

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Compares the queue with a slice, while it grows, shrinks and is emptied.
func TestQueue(t *testing.T) {
	var q Queue[*int]
	var want []*int
	follows := func() { // the number of values
		require.True(t, q.Cap() == minSize || q.Cap() < 8*q.Len(), "%d slots for %d values", q.Cap(), q.Len())
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	for round := range 400 {
		for i := range rnd.IntN(200) {
			x := &i
			q.Push(x)
			want = append(want, x)
			require.Same(t, x, q.Back())
			follows()
		}
		limit := rnd.IntN(200)
		if round%40 == 39 {
			limit = len(want)
		}
		for range min(limit, len(want)) {
			if rnd.IntN(3) == 0 {
				require.Same(t, want[len(want)-1], q.Back())
				q.PopBack()
				want = want[:len(want)-1]
			} else {
				require.Same(t, want[0], q.Front())
				q.Pop()
				want = want[1:]
			}
			follows()
		}
		require.Equal(t, len(want), q.Len())
		for k, x := range want {
			require.Same(t, x, q.At(k))
		}
		held := 0
		for _, x := range q.ring {
			if x != nil {
				held++
			}
		}
		require.Equal(t, q.Len(), held, "a value that was removed is held on to")
	}
}

// A queue that stays small is not copied repeatedly.
func TestSmallQueueStays(t *testing.T) {
	var q Queue[int]
	q.Push(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		q.Push(1)
		q.Pop()
		q.Push(2)
		q.PopBack()
	}))
}
