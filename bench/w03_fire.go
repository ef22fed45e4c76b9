package main

import (
	"slices"
	"sync/atomic"
	"time"
)

var fireWorkload = workload{
	name: "W3", title: "fire: timers due evenly, 250,000 a second", size: "timers",
	metrics: []string{"cpu_ns_per_timer", "early", "late_p50_ms", "late_p99_ms", "late_max_ms"},
	full:    sizes("timers", 500_000),
	quick:   sizes("timers", 50_000),
}

// fireGap is the time from one deadline to the next: 500,000 in 2 s.
const fireGap = 4 * time.Microsecond

const notFired = int64(-1 << 62)

// fireTimers starts timers in random order. Each gets the delay left until its due time, by a
// clock reading just before, so a timer that fires before its due time is certainly early. CPU
// is that of the process from just before the first timer is due until all have fired. It
// includes the callback, a clock reading and a store, which is the same for all rivals. The
// control's CPU is that of the callbacks alone, its lateness that of oversleep.
func fireTimers[H any](j Job, open opener[H]) (Result, error) {
	n, r := j.Params["timers"], j.seed()
	base := time.Now()
	lead := j.leadTime(n)
	due := func(id uint64) time.Duration { return lead + time.Duration(id)*fireGap }
	late := make([]atomic.Int64, n)
	for i := range late {
		late[i].Store(notFired)
	}
	fire := func(id uint64) { late[id].Store(int64(time.Since(base) - due(id))) }
	t, err := open(fire)
	if err != nil {
		return Result{}, err
	}

	order := r.shuffled(n)
	held := make([]H, n)
	base = time.Now()
	for _, id := range order {
		held[id] = t.StartID(uint64(id), due(uint64(id))-time.Since(base))
	}
	waitPlaced(t)
	if time.Since(base) > lead-30*time.Millisecond {
		return Result{TooSlow: true}, nil
	}
	time.Sleep(time.Until(base.Add(lead - 20*time.Millisecond)))
	before := currentUsage()
	if j.Impl == controlName { // only the callbacks
		for id := range late {
			fire(uint64(id))
		}
	}
	time.Sleep(time.Until(base.Add(due(uint64(n)))))
	for i := 0; i < n; i++ { // wait for each
		for late[i].Load() == notFired {
			time.Sleep(10 * time.Millisecond)
		}
	}
	cpu := currentUsage().cpu - before.cpu

	res := Result{Metrics: Metrics{"cpu_ns_per_timer": float64(cpu) / float64(n)}}
	var all []time.Duration
	if j.Impl == controlName {
		all = oversleep(due(uint64(n)) - lead)
	} else {
		all = make([]time.Duration, n)
		for i := range late {
			all[i] = time.Duration(late[i].Load())
		}
	}
	res.addLateness(all)
	res.Metrics["late_max_ms"] = ms(slices.Max(all))
	return res, nil
}

// oversleep returns how late a goroutine wakes that only sleeps, for the given time, until each of
// limbo's ticks. It is the part of lateness that comes from the machine and Go's runtime, in a
// process that is idle otherwise.
func oversleep(span time.Duration) []time.Duration {
	const tick = 500 * time.Microsecond
	late := make([]time.Duration, span/tick)
	begun := time.Now()
	for i := range late {
		due := begun.Add(time.Duration(i+1) * tick)
		time.Sleep(time.Until(due))
		late[i] = time.Since(due)
	}
	return late
}
