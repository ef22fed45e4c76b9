package main

import (
	"runtime"
	"sync"
	"time"
)

var startStopWorkload = workload{
	name: "W1", title: "start and stop, beside timers that are pending", size: "pending",
	metrics: []string{"ns_per_op", "allocs_per_op"},
	full:    withGoroutines(sizes("pending", 0, 1_000, 1_000_000, 10_000_000), 1, 2),
	quick:   append(withGoroutines(sizes("pending", 0, 1_000_000), 1), Params{"pending": 1_000_000, "goroutines": 2}),
}

// startStop holds timers due in 1 min to 1 h, then repeatedly starts and stops one due in 1 to
// 31 s. If two goroutines do so, ns_per_op is the wall time divided by the operations of both,
// as for testing.B.RunParallel.
func startStop[H any](j Job, open opener[H]) (Result, error) {
	t, err := open(func(uint64) {})
	if err != nil {
		return Result{}, err
	}
	held := hold(t, j.Params["pending"], j.seed())
	waitPlaced(t)
	m := measureStartStop(t, j)
	runtime.KeepAlive(held)
	return Result{Metrics: m}, nil
}

// hold starts n timers and returns their handles.
func hold[H any](t Timers[H], n int, r rng) []H {
	held := make([]H, n)
	for i := range held {
		held[i] = t.Start(r.longDelay())
	}
	return held
}

// measureStartStop is the measured part of W1 and W7.
func measureStartStop[H any](t Timers[H], j Job) Metrics {
	warm, span := spans(j)
	goroutines := j.Params["goroutines"]
	runtime.GC()
	var ready, done sync.WaitGroup
	ready.Add(goroutines)
	begin := make(chan struct{})
	ops := make([]int, goroutines*8) // each on a cache line of its own
	for g := range goroutines {
		done.Go(func() {
			r := j.seed() ^ rng(g+1)<<32
			spin(t, &r, warm)
			ready.Done()
			<-begin
			ops[g*8] = spin(t, &r, span)
		})
	}
	ready.Wait()
	before := mallocs()
	start := time.Now()
	close(begin)
	done.Wait()
	wall := time.Since(start)
	allocs := mallocs() - before
	total := 0
	for _, n := range ops {
		total += n
	}
	return Metrics{
		"ns_per_op":     float64(wall) / float64(total),
		"allocs_per_op": float64(allocs) / float64(total),
	}
}

// spin starts and stops a timer for the duration of span, at least 256 times, and returns how
// often. It reads the clock once every 256 times.
func spin[H any](t Timers[H], r *rng, span time.Duration) int {
	n := 0
	for end := time.Now().Add(span); n == 0 || time.Now().Before(end); n += 256 {
		for range 256 {
			t.Stop(t.Start(r.shortDelay()))
		}
	}
	return n
}
