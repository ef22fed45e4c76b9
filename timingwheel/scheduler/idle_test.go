package scheduler

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// An idle scheduler takes 11 KiB with two processors, stacks included, and its first job 50 KiB
// more.
func TestIdleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes hundreds of schedulers")
	}
	used := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	schedulers := make([]*Scheduler, 500)
	before := used()
	for i := range schedulers {
		s, err := New(Options{})
		require.NoError(t, err)
		schedulers[i] = s
	}
	idle := used()
	for _, s := range schedulers {
		_, err := s.Every(time.Hour, func() {}, JobOptions{})
		require.NoError(t, err)
	}
	jobs := used()
	t.Logf("%d bytes idle, %d more with a job", (idle-before)/len(schedulers), (jobs-idle)/len(schedulers))
	require.LessOrEqual(t, idle-before, 12<<10*len(schedulers))
	require.LessOrEqual(t, jobs-idle, 52<<10*len(schedulers))
	for _, s := range schedulers {
		_, err := s.Shutdown(t.Context(), timingwheel.Discard)
		require.NoError(t, err)
	}
}
