package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

var w11Workload = workload{
	name: "W11", title: "contention: W8 with 3 keys, by several goroutines", size: "goroutines",
	metrics: []string{"ops_per_s", "speedup"},
	full:    sizes("goroutines", 1, 2),
	quick:   sizes("goroutines", 1, 2),
}

// w11 has one goroutine do it alone first, and then all at once; speedup is the
// one by the other, within one process.
func w11(j Job, p *purgatory.Purgatory[string]) (Result, error) {
	names := keyNames()
	warm, span := spans(j)
	rate := func(goroutines int) (float64, error) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var failed error
		total, completed := 0, 0
		start := time.Now()
		for g := range goroutines {
			wg.Go(func() {
				r := j.seed() ^ rng(g+1)<<32
				ops, done, err := watchAndComplete(p, names, 3, &r, span)
				mu.Lock()
				defer mu.Unlock()
				total += ops
				completed += done
				if err != nil {
					failed = err
				}
			})
		}
		wg.Wait()
		if failed == nil && completed != total {
			failed = fmt.Errorf("%d of %d operations completed", completed, total)
		}
		return float64(total) / time.Since(start).Seconds(), failed
	}
	r := j.seed()
	if _, _, err := watchAndComplete(p, names, 3, &r, warm); err != nil {
		return Result{}, err
	}
	alone, err := rate(1)
	if err != nil {
		return Result{}, err
	}
	all, err := rate(j.Params["goroutines"])
	if err != nil {
		return Result{}, err
	}
	return Result{Metrics: Metrics{"ops_per_s": all, "speedup": all / alone}}, nil
}
