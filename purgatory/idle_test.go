package purgatory

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// P17: an idle clock takes 10 KiB with two processors, and 39 KiB with sixteen, its stack included;
// 48 and 75 KiB once it has held a timer.
func TestP17ClockMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes hundreds of clocks")
	}
	used := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	for processors, most := range map[int][2]int{2: {12 << 10, 50 << 10}, 16: {41 << 10, 78 << 10}} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			clocks := make([]*Clock, 500)
			before := used()
			for i := range clocks {
				c, err := NewClock(ClockOptions{})
				require.NoError(t, err)
				clocks[i] = c
			}
			idle := used()
			for _, c := range clocks {
				timer, err := c.timers.Schedule(event{}, time.Hour)
				require.NoError(t, err)
				require.True(t, c.timers.Stop(timer))
			}
			had := used()
			t.Logf("%d processors: %d bytes idle, %d after a timer", processors, (idle-before)/len(clocks), (had-before)/len(clocks))
			require.LessOrEqual(t, idle-before, most[0]*len(clocks))
			require.LessOrEqual(t, had-before, most[1]*len(clocks))
			for _, c := range clocks {
				require.NoError(t, c.Shutdown(t.Context()))
			}
		}()
	}
}
