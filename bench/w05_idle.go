package main

import (
	"runtime"
	"time"
)

var idleWorkload = workload{
	name: "W5", title: "idle: one timer 10 min ahead, 5 s of silence", size: "timers",
	metrics: []string{"cpu_ms", "wakeups"},
	full:    sizes("timers", 1),
	quick:   sizes("timers", 1),
	sleeps:  true,
}

// idleTimer measures 5 s without activity, also in a quick run. The results of all rivals
// include the measurement's own time.Sleep, which is one wake-up. The control measures a Go
// process that has nothing to do.
func idleTimer[H any](j Job, open opener[H]) (Result, error) {
	t, err := open(func(uint64) {})
	if err != nil {
		return Result{}, err
	}
	h := t.Start(10 * time.Minute)
	waitPlaced(t)
	runtime.GC()
	time.Sleep(100 * time.Millisecond)
	before := currentUsage()
	time.Sleep(5 * time.Second)
	after := currentUsage()
	t.Stop(h)
	return Result{Metrics: Metrics{
		"cpu_ms":  ms(after.cpu - before.cpu),
		"wakeups": float64(after.switches - before.switches),
	}}, nil
}
