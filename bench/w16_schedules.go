package main

import (
	"errors"
	"fmt"
	"time"
)

var schedulesWorkload = workload{
	name: "W16", title: "schedules: timers that recur, in a store that is synced", size: "schedules",
	metrics: []string{
		"puts_per_s", "bytes_per_schedule", "occurrences_per_s", "occurrences_per_lifecycle",
		"late_p99_ms", "timers_late_p99_ms", "early",
	},
	full:  sizes("schedules", 100_000),
	quick: sizes("schedules", 2_000),
}

// recurringTimers is a system of timers that also supports schedules.
type recurringTimers interface {
	durableTimers
	// Put returns when the system has confirmed the schedules: each is planned once a day, next
	// at the timer's due time.
	Put(timers []durableTimer) error
	// Schedules returns how many schedules the system holds.
	Schedules() (int, error)
}

// measureSchedules measures each part on a new system:
//
//   - Two producers put schedules that are due an hour ahead, in batches of 100 concurrent
//     calls. The bytes are the difference that these schedules make; a body has 32.
//   - Schedules that are overdue by a second are put, and then a worker starts: it creates, runs
//     and completes an occurrence of each. They are compared with timer lifecycles as in W13, in
//     which timers are scheduled, run and completed.
//   - Schedules are put that are planned evenly in one second, and their lateness is measured as
//     in W13. The same number of timers is due in one second of another system.
func measureSchedules(j Job, open func() (durableTimers, error)) (Result, error) {
	m := Metrics{}
	res := Result{Metrics: m}
	for _, part := range []struct {
		name string
		do   func(recurringTimers) error
	}{
		{"puts", func(d recurringTimers) error { return measurePuts(j, d, m) }},
		{"occurrences", func(d recurringTimers) error { return measureOccurrences(j, d, m) }},
		{"lifecycles", func(d recurringTimers) error {
			lifecycles := Metrics{}
			err := durableLifecycles(Job{Params: map[string]int{"timers": j.Params["schedules"]}}, d, lifecycles)
			m["occurrences_per_lifecycle"] = m["occurrences_per_s"] / lifecycles["lifecycles_per_s"]
			return err
		}},
		{"lateness of timers", func(d recurringTimers) error {
			var timers Result
			timers.Metrics = Metrics{}
			err := measureLateness(j, d, d.Schedule, &timers)
			res.TooSlow = res.TooSlow || timers.TooSlow
			m["timers_late_p99_ms"] = timers.Metrics["late_p99_ms"]
			return err
		}},
		{"lateness", func(d recurringTimers) error { return measureLateness(j, d, d.Put, &res) }},
	} {
		err := withDurable(open, func(d durableTimers) error { return part.do(d.(recurringTimers)) })
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return res, nil
}

func measurePuts(j Job, d recurringTimers, m Metrics) error {
	n := j.Params["schedules"]
	before, err := d.Bytes()
	if err != nil {
		return err
	}
	due := time.Now().Add(durableAhead).Truncate(time.Millisecond)
	begun := time.Now()
	if err := produceDurables(n, func(batch []durableTimer) error {
		for i := range batch {
			batch[i].due = due.Add(time.Duration(batch[i].id%1000) * time.Millisecond)
		}
		return d.Put(batch)
	}); err != nil {
		return err
	}
	m["puts_per_s"] = float64(n) / time.Since(begun).Seconds()
	after, err := d.Bytes()
	m["bytes_per_schedule"] = float64(after-before) / float64(n)
	return err
}

func measureOccurrences(j Job, d recurringTimers, m Metrics) error {
	n := j.Params["schedules"]
	due := time.Now().Add(time.Duration(max(j.Slack, 1)) * (time.Second + time.Duration(n)*200*time.Microsecond)).Truncate(time.Millisecond)
	if err := produceDurables(n, func(batch []durableTimer) error {
		for i := range batch {
			batch[i].due = due
		}
		return d.Put(batch)
	}); err != nil {
		return err
	}
	time.Sleep(time.Until(due) + time.Second)
	runs := newDurableRuns(n)
	begun := time.Now()
	if err := d.Work(func(id int) {
		if runs.first(id) {
			runs.done()
		}
	}); err != nil {
		return err
	}
	if err := errors.Join(runs.wait(), waitEmpty(d)); err != nil {
		return err
	}
	m["occurrences_per_s"] = float64(n) / time.Since(begun).Seconds()
	if held, err := d.Schedules(); err != nil || held != n {
		return fmt.Errorf("%d of %d schedules are held: %w", held, n, err)
	}
	return nil
}

// measureLateness measures the lateness of timers or occurrences due evenly in one second.
func measureLateness(j Job, d recurringTimers, add func([]durableTimer) error, res *Result) error {
	n := j.Params["schedules"]
	runs := newDurableRuns(n)
	late := make([]time.Duration, n)
	base := time.Now().Add(time.Duration(max(j.Slack, 1)) * (2*time.Second + time.Duration(n)*200*time.Microsecond)).Truncate(time.Second)
	due := func(id int) time.Time {
		return base.Add((time.Duration(id) * time.Second / time.Duration(n)).Truncate(time.Millisecond))
	}
	order := j.seed()
	shuffled := order.shuffled(n)
	if err := d.Work(func(id int) {
		now := time.Now()
		if runs.first(id) {
			late[id] = now.Sub(due(id))
			runs.done()
		}
	}); err != nil {
		return err
	}
	if err := produceDurables(n, func(batch []durableTimer) error {
		for i := range batch {
			batch[i].id = int(shuffled[batch[i].id])
			batch[i].due = due(batch[i].id)
		}
		return add(batch)
	}); err != nil {
		return err
	}
	if time.Now().After(base.Add(-100 * time.Millisecond)) {
		res.TooSlow = true
		return nil
	}
	if err := runs.wait(); err != nil {
		return err
	}
	res.addLateness(late)
	return nil
}
