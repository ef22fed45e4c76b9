package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

var hotKeyWorkload = workload{
	name: "W10", title: "hot key: one of all that watch it becomes completable", size: "watchers",
	metrics: []string{"ns_per_completion", "ns_per_watcher"},
	full:    sizes("watchers", 1, 1_000, 100_000),
	quick:   sizes("watchers", 1, 100_000),
}

const hotKey = "orders-0"

// hotKeyCheck makes a random watcher ready, and completes it with CheckAndComplete, which checks
// all of them. Then another watcher replaces it. Only the call is timed, including the clock
// reading.
func hotKeyCheck(j Job, p *purgatory.Purgatory[string]) (Result, error) {
	n, r := j.Params["watchers"], j.seed()
	ops := make([]*watched, n)
	park := func(i int) error {
		ops[i] = &watched{}
		_, err := p.TryCompleteElseWatch(context.Background(), ops[i], time.Hour, hotKey)
		return err
	}
	for i := range ops {
		if err := park(i); err != nil {
			return Result{}, err
		}
	}
	return hot(j, func() (time.Duration, error) {
		i := int(r.below(uint64(n)))
		ops[i].ready.Store(true)
		start := time.Now()
		completed := p.CheckAndComplete(hotKey)
		took := time.Since(start)
		if completed != 1 {
			return 0, fmt.Errorf("%d of 1 completed by CheckAndComplete", completed)
		}
		return took, park(i)
	})
}

// hotKeyAdvance raises the number to the lowest goal. Then another watcher is added
// with the highest.
func hotKeyAdvance(j Job) (Result, error) {
	var number int64
	t, err := purgatory.NewThreshold(func(string) int64 { return number }, purgatory.Options{})
	if err != nil {
		return Result{}, err
	}
	defer func() { must(t.Shutdown(context.Background())) }()
	var goal int64
	park := func() error {
		goal++
		_, err := t.TryCompleteElseWatch(context.Background(), &watched{}, time.Hour, purgatory.All,
			purgatory.Goal[string, int64]{Key: hotKey, Number: goal})
		return err
	}
	for range j.Params["watchers"] {
		if err := park(); err != nil {
			return Result{}, err
		}
	}
	return hot(j, func() (time.Duration, error) {
		number++
		start := time.Now()
		completed := t.Advance(hotKey, number)
		took := time.Since(start)
		if completed != 1 {
			return 0, fmt.Errorf("%d of 1 completed by Advance", completed)
		}
		return took, park()
	})
}

// hot repeats one completion for a while, and measures at least one.
func hot(j Job, once func() (time.Duration, error)) (Result, error) {
	warm, span := spans(j)
	var total time.Duration
	n := 0
	begun := time.Now()
	for n == 0 || time.Since(begun) < warm+span {
		measured := time.Since(begun) >= warm
		took, err := once()
		if err != nil {
			return Result{}, err
		}
		if measured {
			total += took
			n++
		}
	}
	each := float64(total) / float64(n)
	return Result{Metrics: Metrics{
		"ns_per_completion": each,
		"ns_per_watcher":    each / float64(j.Params["watchers"]),
	}}, nil
}
