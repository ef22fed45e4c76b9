package main

import "fmt"

// workload is one of workloads.md.
type workload struct {
	name, title string
	size        string   // the parameter that says how many timers are held
	metrics     []string // in the order of the tables
	full, quick []Params
	// sleeps: children only sleep, so in a quick run all do so at once, beside
	// the other workloads.
	sleeps bool
}

var workloads = []workload{w1Workload, w2Workload, w3Workload, w4Workload, w5Workload, w6Workload, w7Workload,
	w8Workload, w9Workload, w10Workload, w11Workload, w12Workload}

// work does a job of timers with an in-process rival; those of the purgatory are
// in purgatories.go, those of brokers in w12.go.
func work[H any](j Job, open opener[H]) (Result, error) {
	switch j.Workload {
	case "W1":
		return w1(j, open)
	case "W2":
		return w2(j, open)
	case "W3":
		return w3(j, open)
	case "W4":
		return w4(j, open)
	case "W5":
		return w5(j, open)
	case "W6":
		return w6(j, open)
	case "W7":
		return w7(j, open)
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
			q := Params{"goroutines": g}
			for name, v := range p {
				q[name] = v
			}
			all = append(all, q)
		}
	}
	return all
}
