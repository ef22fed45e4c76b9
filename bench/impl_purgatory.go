package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/seed-782fa212/limbo/purgatory"
)

// The purgatory's workloads have no rival in Go. They measure the cost of an operation, and
// compare Purgatory with Threshold.

var purgatoryRival = rival{
	name:      "purgatory",
	setup:     "limbo's Purgatory[string], zero Options; completed by CheckAndComplete",
	workloads: []string{"W8", "W9", "W10", "W11"},
	bytes:     400,
	run: func(j Job) (Result, error) {
		p, err := purgatory.New[string](purgatory.Options{})
		if err != nil {
			return Result{}, err
		}
		defer func() { must(p.Shutdown(context.Background())) }()
		switch j.Workload {
		case "W8":
			return watch(j, p)
		case "W9":
			return openLoad(j, heldRequests{p})
		case "W10":
			return hotKeyCheck(j, p)
		case "W11":
			return contention(j, p)
		}
		return Result{}, fmt.Errorf("purgatory: unknown workload %q", j.Workload)
	},
}

var thresholdRival = rival{
	name:      "threshold",
	setup:     "limbo's Threshold[string, int64], zero Options; completed by Advance",
	workloads: []string{"W10"},
	bytes:     400,
	run:       hotKeyAdvance,
}

// manyKeys is the number of keys to draw from.
const manyKeys = 10_000

func keyNames() []string {
	names := make([]string, manyKeys)
	for i := range names {
		names[i] = "topic-" + strconv.Itoa(i%100) + "-" + strconv.Itoa(i/100)
	}
	return names
}

// watched is an operation that can complete once ready is set.
type watched struct{ ready atomic.Bool }

func (w *watched) TryComplete() bool                 { return w.ready.Load() }
func (w *watched) Complete(purgatory.Outcome, error) {}
