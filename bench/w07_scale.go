package main

import (
	"runtime"
	"runtime/debug"
)

var scaleWorkload = workload{
	name: "W7", title: "scale: start and stop beside up to 100M pending", size: "pending",
	metrics: []string{"ns_per_op", "rss_bytes_per_timer", "peak_rss_bytes"},
	full:    withGoroutines(sizes("pending", 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000), 1),
	quick:   withGoroutines(sizes("pending", 1_000, 1_000_000), 1),
}

// scale is W1 plus the growth of the process's memory while the timers were started. Memory is
// read after Go's free memory was returned to the system, so it is the memory of the timers;
// peak_rss_bytes is the maximum until then. Below some 100,000 timers most of it is the
// runtime's own pages.
func scale[H any](j Job, open opener[H]) (Result, error) {
	n := j.Params["pending"]
	t, err := open(func(uint64) {})
	if err != nil {
		return Result{}, err
	}
	debug.FreeOSMemory()
	before, err := resident()
	if err != nil {
		return Result{}, err
	}
	held := hold(t, n, j.seed())
	waitPlaced(t)
	debug.FreeOSMemory()
	after, err := resident()
	if err != nil {
		return Result{}, err
	}
	peak := currentUsage().peak
	m := measureStartStop(t, j)
	runtime.KeepAlive(held)
	return Result{Metrics: Metrics{
		"ns_per_op":           m["ns_per_op"],
		"rss_bytes_per_timer": float64(after-before) / float64(n),
		"peak_rss_bytes":      float64(peak),
	}}, nil
}
