package timingwheel

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// An idle wheel takes 10 KiB with two processors and 39 KiB with sixteen, including the stack of
// its goroutine.
func TestIdleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes thousands of wheels")
	}
	used := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	for processors, most := range map[int]int{2: 11 << 10, 16: 41 << 10} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			wheels := make([]*Wheel[uint64], 1000)
			before := used()
			for i := range wheels {
				w, err := New(func(uint64) {}, Options{})
				require.NoError(t, err)
				wheels[i] = w
			}
			each := (used() - before) / len(wheels)
			t.Logf("%d processors: %d bytes", processors, each)
			require.LessOrEqual(t, each, most)
			for _, w := range wheels {
				_, err := w.Shutdown(t.Context(), Discard)
				require.NoError(t, err)
			}
		}()
	}
}
