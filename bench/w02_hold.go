package main

import (
	"runtime"
	"slices"
	"time"
)

var holdWorkload = workload{
	name: "W2", title: "hold timers, then stop them in random order", size: "timers",
	metrics: []string{"start_ns", "stop_ns", "bytes_per_timer", "gc_ms", "bytes_after"},
	full:    sizes("timers", 1_000_000),
	quick:   sizes("timers", 200_000),
}

// holdAndStop starts all timers, then stops them in random order. The count of a rival's bytes
// begins after the rival was opened, so it includes the handles but not a wheel's own arrays.
func holdAndStop[H any](j Job, open opener[H]) (Result, error) {
	n, r := j.Params["timers"], j.seed()
	order := r.shuffled(n)
	t, err := open(func(uint64) {})
	if err != nil {
		return Result{}, err
	}
	before := liveHeap()

	start := time.Now()
	held := hold(t, n, r)
	started := time.Since(start)
	waitPlaced(t)
	peak := liveHeap() - before

	collections := make([]time.Duration, 3)
	for i := range collections {
		start = time.Now()
		runtime.GC()
		collections[i] = time.Since(start)
	}
	slices.Sort(collections)

	start = time.Now()
	for _, i := range order {
		t.Stop(held[i])
	}
	stopped := time.Since(start)
	after := stableHeap(before, peak) // held is dead here, so it is not counted

	runtime.KeepAlive(order)
	runtime.KeepAlive(t)
	return Result{Metrics: Metrics{
		"start_ns":        float64(started) / float64(n),
		"stop_ns":         float64(stopped) / float64(n),
		"bytes_per_timer": float64(peak) / float64(n),
		"gc_ms":           ms(collections[1]),
		"bytes_after":     float64(after),
	}}, nil
}

// stableHeap returns the growth of the live heap since before, once it stops shrinking. Rivals
// free stopped timers at their next tick or revolution.
func stableHeap(before, peak int64) int64 {
	kept := liveHeap() - before
	for range 15 {
		time.Sleep(100 * time.Millisecond)
		now := liveHeap() - before
		moved := kept - now
		kept = now
		if moved <= peak/100 {
			break
		}
	}
	return max(kept, 0)
}
