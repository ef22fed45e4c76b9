package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

var watchWorkload = workload{
	name: "W8", title: "watch: an operation on some of 10,000 keys, completed through one of them", size: "keys",
	metrics: []string{"ns_per_op", "allocs_per_op", "watched_after", "retained_bytes"},
	full:    sizes("keys", 1, 3, 10),
	quick:   sizes("keys", 1, 3),
}

// watch makes an operation, watches its keys, and completes it. The results include making the
// operation. retained_bytes is the growth of the live heap, 100 ms after the last operation has
// ended: until then each may leave an entry of 24 bytes.
func watch(j Job, p *purgatory.Purgatory[string]) (Result, error) {
	names, r := keyNames(), j.seed()
	warm, span := spans(j)
	if _, _, err := watchAndComplete(p, names, j.Params["keys"], &r, warm); err != nil {
		return Result{}, err
	}
	before := liveHeap()
	allocs, start := mallocs(), time.Now()
	ops, completed, err := watchAndComplete(p, names, j.Params["keys"], &r, span)
	if err != nil {
		return Result{}, err
	}
	if completed != ops {
		return Result{}, fmt.Errorf("%d of %d operations completed", completed, ops)
	}
	took, allocated := time.Since(start), mallocs()-allocs
	time.Sleep(100 * time.Millisecond)
	return Result{Metrics: Metrics{
		"ns_per_op":      float64(took) / float64(ops),
		"allocs_per_op":  float64(allocated) / float64(ops),
		"watched_after":  float64(p.Watched()),
		"retained_bytes": float64(max(liveHeap()-before, 0)),
	}}, nil
}

// watchAndComplete makes and completes operations on n of the keys for the duration of span, at
// least 64. It returns their number, and the number of operations, of any goroutine, that its
// checks completed.
func watchAndComplete(p *purgatory.Purgatory[string], names []string, n int, r *rng, span time.Duration) (ops, completed int, err error) {
	keys := make([]string, n)
	for end := time.Now().Add(span); ops == 0 || time.Now().Before(end); {
		for range 64 {
			for i := range keys {
				keys[i] = names[r.next()%manyKeys]
			}
			op := &watched{}
			if _, err := p.TryCompleteElseWatch(context.Background(), op, time.Minute, keys...); err != nil {
				return 0, 0, err
			}
			op.ready.Store(true)
			completed += p.CheckAndComplete(keys[r.next()%uint64(n)])
			ops++
		}
	}
	return ops, completed, nil
}
