package main

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

var burstWorkload = workload{
	name: "W4", title: "burst: timers due in one tick, while one goroutine schedules and stops", size: "timers",
	metrics: []string{"sched_p9999_us", "sched_max_us", "drain_ms"},
	full:    sizes("timers", 1_000_000),
	quick:   sizes("timers", 100_000),
}

// burst times each start and each stop, from just before many timers are due at once until the
// last of their callbacks.
//
// The control has no timers. It runs the same loop next to goroutines that wake up when the
// burst would be due, and then work and yield in pieces as short as those of a wheel's workers.
// So it measures the delays that the kernel and Go's scheduler then cause for any goroutine.
func burst[H any](j Job, open opener[H]) (Result, error) {
	n, r := j.Params["timers"], j.seed()
	const before = 2 * time.Millisecond
	var left, last atomic.Int64
	left.Store(int64(n))
	base := time.Now()
	t, err := open(func(uint64) {
		if left.Add(-1) == 0 {
			last.Store(int64(time.Since(base)))
		}
	})
	if err != nil {
		return Result{}, err
	}
	due := j.leadTime(n)
	held := make([]H, n)
	base = time.Now()
	for i := range held {
		held[i] = t.Start(due - time.Since(base))
	}
	waitPlaced(t)
	runtime.GC()
	if time.Since(base) > due-2*before {
		return Result{TooSlow: true}, nil
	}
	times := hdrhistogram.New(1, int64(time.Minute), 3)
	for range 10_000 { // warm
		t.Stop(t.Start(r.shortDelay()))
	}
	time.Sleep(time.Until(base.Add(due - before)))
	if j.Impl == controlName {
		loadProcessors(due-time.Since(base), func() { left.Store(0) })
	}
	for left.Load() > 0 {
		for range 64 {
			d := r.shortDelay()
			t0 := time.Now()
			h := t.Start(d)
			t1 := time.Now()
			t.Stop(h)
			t2 := time.Now()
			_ = times.RecordValue(max(int64(t1.Sub(t0)), 1))
			_ = times.RecordValue(max(int64(t2.Sub(t1)), 1))
		}
	}
	runtime.KeepAlive(held)
	defer t.Close() // the page of an observed wheel must have been open until now
	m := Metrics{
		"sched_p9999_us": us(time.Duration(times.ValueAtQuantile(99.99))),
		"sched_max_us":   us(time.Duration(times.Max())),
	}
	if j.Impl != controlName {
		for last.Load() == 0 { // stored just after the count
			runtime.Gosched()
		}
		m["drain_ms"] = ms(time.Duration(last.Load()) - due)
	}
	return Result{Metrics: m}, nil
}

// loadProcessors starts GOMAXPROCS goroutines that, after wait, each work for 50 ms, yielding
// every 5 µs. It calls done when all have ended.
func loadProcessors(wait time.Duration, done func()) {
	var busy atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		busy.Add(1)
		go func() {
			time.Sleep(wait)
			for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
				for piece := time.Now().Add(5 * time.Microsecond); time.Now().Before(piece); {
					continue
				}
				runtime.Gosched()
			}
			if busy.Add(-1) == 0 {
				done()
			}
		}()
	}
}
