package main

import (
	"fmt"
	"maps"
)

// workload is one measured activity, with its sizes and its metrics.
type workload struct {
	name, title string
	size        string   // the parameter that is the number of timers held
	metrics     []string // in the order of the tables
	full, quick []Params
	// sleeps means that the children only sleep. In a quick run they all run at once, in
	// parallel with the other workloads.
	sleeps bool
}

// workloads in the order of their numbers.
var workloads = []workload{
	startStopWorkload,
	holdWorkload,
	fireWorkload,
	burstWorkload,
	idleWorkload,
	heartbeatWorkload,
	scaleWorkload,
	watchWorkload,
	loadWorkload,
	hotKeyWorkload,
	contentionWorkload,
	longPollWorkload,
	durableWorkload,
	inFlightWorkload,
	httpPollsWorkload,
	schedulesWorkload,
	searchWorkload,
}

// work does a job of W1 to W7 with an in-process rival. The other workloads' rivals call their
// workloads themselves.
func work[H any](j Job, open opener[H]) (Result, error) {
	switch j.Workload {
	case "W1":
		return startStop(j, open)
	case "W2":
		return holdAndStop(j, open)
	case "W3":
		return fireTimers(j, open)
	case "W4":
		return burst(j, open)
	case "W5":
		return idleTimer(j, open)
	case "W6":
		return heartbeat(j, open)
	case "W7":
		return scale(j, open)
	}
	return Result{}, fmt.Errorf("unknown workload %q", j.Workload)
}

// sizes is one set of parameters for each count.
func sizes(name string, counts ...int) []Params {
	var all []Params
	for _, n := range counts {
		all = append(all, Params{name: n})
	}
	return all
}

func withGoroutines(params []Params, goroutines ...int) []Params {
	var all []Params
	for _, p := range params {
		for _, g := range goroutines {
			q := maps.Clone(p)
			q["goroutines"] = g
			all = append(all, q)
		}
	}
	return all
}
