package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
	"golang.org/x/sync/errgroup"
)

var contentionWorkload = workload{
	name: "W11", title: "contention: W8 with 3 keys, by several goroutines", size: "goroutines",
	metrics: []string{"ops_per_s", "speedup", "speedup_apart"},
	full:    sizes("goroutines", 1, 2),
	quick:   sizes("goroutines", 1, 2),
}

// contention measures one goroutine alone, and then several at once on the same keys. speedup is
// the ratio of their rates, within one process. speedup_apart is the ratio for goroutines with a
// purgatory each: the limit set by the processors and the collector when nothing is shared.
func contention(j Job, p *purgatory.Purgatory[string]) (Result, error) {
	goroutines := j.Params["goroutines"]
	separate := []*purgatory.Purgatory[string]{p}
	for len(separate) < goroutines {
		q, err := purgatory.New[string](purgatory.Options{})
		if err != nil {
			return Result{}, err
		}
		defer func() { must(q.Shutdown(context.Background())) }()
		separate = append(separate, q)
	}
	shared := make([]*purgatory.Purgatory[string], goroutines)
	for g := range shared {
		shared[g] = p
	}
	warm, span := spans(j)
	rates := make([]float64, 4)
	for i, run := range []struct {
		on   []*purgatory.Purgatory[string]
		span time.Duration
	}{{separate, warm}, {shared[:1], span}, {shared, span}, {separate, span}} {
		var err error
		if rates[i], err = contentionRate(j, run.on, run.span); err != nil {
			return Result{}, err
		}
	}
	return Result{Metrics: Metrics{
		"ops_per_s":     rates[2],
		"speedup":       rates[2] / rates[1],
		"speedup_apart": rates[3] / rates[1],
	}}, nil
}

// contentionRate returns the operations per second of concurrent goroutines, one for each
// element of on, which may name a purgatory several times.
func contentionRate(j Job, on []*purgatory.Purgatory[string], span time.Duration) (float64, error) {
	names := keyNames()
	var group errgroup.Group
	var total, completed atomic.Int64
	start := time.Now()
	for g, p := range on {
		group.Go(func() error {
			r := j.seed() ^ rng(g+1)<<32
			ops, done, err := watchAndComplete(p, names, 3, &r, span)
			total.Add(int64(ops))
			completed.Add(int64(done))
			return err
		})
	}
	err := group.Wait()
	if err == nil && completed.Load() != total.Load() {
		err = fmt.Errorf("%d of %d operations completed", completed.Load(), total.Load())
	}
	return float64(total.Load()) / time.Since(start).Seconds(), err
}
