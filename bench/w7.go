package main

import (
	"runtime"
	"runtime/debug"
)

var w7Workload = workload{
	name: "W7", title: "scale: start and stop beside up to 100M pending", size: "pending",
	metrics: []string{"ns_per_op", "rss_bytes_per_timer", "peak_rss_bytes"},
	full:    withGoroutines(sizes("pending", 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000), 1),
	quick:   withGoroutines(sizes("pending", 1_000, 1_000_000), 1),
}

// w7 is W1 with what the process grew by while it took the timers in. That is
// taken after memory that Go has free was given back, so that it is what is
// held; peak_rss_bytes is the most there was on the way. Below some 100,000
// timers the runtime's own pages are most of it.
func w7[H any](j Job, open opener[H]) (Result, error) {
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
	settle(t)
	debug.FreeOSMemory()
	after, err := resident()
	if err != nil {
		return Result{}, err
	}
	peak := used().peak
	m := startStop(t, j)
	runtime.KeepAlive(held)
	return Result{Metrics: Metrics{
		"ns_per_op":           m["ns_per_op"],
		"rss_bytes_per_timer": float64(after-before) / float64(n),
		"peak_rss_bytes":      float64(peak),
	}}, nil
}
