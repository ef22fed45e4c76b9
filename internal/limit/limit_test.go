package limit

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestBound(t *testing.T) {
	l := Limit{Max: 3}
	for range 3 {
		require.True(t, l.Reserve())
	}
	require.False(t, l.Reserve())
	l.Release(2)
	require.Equal(t, int64(1), l.Held())
	require.True(t, l.Reserve())
	require.True(t, l.Reserve())
	require.False(t, l.Reserve())
}

func TestNoBound(t *testing.T) {
	var l Limit
	for range 10 {
		require.True(t, l.Reserve())
	}
	l.Release(7)
	require.Zero(t, l.Held())
}

// However many goroutines reserve and release, no more than Max are held, and none is lost.
func TestBoundHammer(t *testing.T) {
	l := Limit{Max: 2}
	var holding atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 300_000 {
				if !l.Reserve() {
					runtime.Gosched()
					continue
				}
				if n := holding.Add(1); n > l.Max {
					t.Errorf("%d are held", n)
				}
				holding.Add(-1)
				l.Release(1)
			}
		})
	}
	all.Wait()
	require.Zero(t, l.Held())
}

// A refused caller is never counted, not even for a moment: otherwise another one that arrives
// just when capacity is free could be refused because of it, and both would be.
func TestRefusedCallersTakeNoCapacity(t *testing.T) {
	l := Limit{Max: 1}
	require.True(t, l.Reserve())
	var others sync.WaitGroup
	var refused atomic.Bool
	defer others.Wait()
	others.Go(func() {
		defer refused.Store(true)
		for range 1_000_000 {
			if l.Reserve() {
				t.Error("there was no capacity")
			}
		}
	})
	for !refused.Load() {
		require.Equal(t, int64(1), l.Held())
	}
}

// On 32-bit machines too.
func TestCountIsAligned(t *testing.T) {
	var l Limit
	require.Zero(t, unsafe.Offsetof(l.held)%8)
	require.Equal(t, uintptr(8), unsafe.Alignof(l))
}
