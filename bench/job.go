package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Params are a workload's sizes, by name.
type Params map[string]int

// Metrics are values by name. A metric that a rival does not have is absent.
type Metrics map[string]float64

func (p Params) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(p)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", name, count(p[name]))
	}
	return b.String()
}

// Job is one measurement, run by one child process.
type Job struct {
	Workload string `json:"workload"`
	Impl     string `json:"impl"`
	Params   Params `json:"params"`
	Rep      int    `json:"rep"`
	Quick    bool   `json:"quick"`
	// Slack stretches the time for starting timers before the first of them is due. It is raised
	// after that time was too short. 1 to maxSlack.
	Slack int `json:"slack"`
}

// size is the number of timers held.
func (j Job) size() int { return j.Params[workloadNamed(j.Workload).size] }

// seed is the same for every rival.
func (j Job) seed() rng { return rng(j.Rep + 1) }

// Result is the output of a child, on one line.
type Result struct {
	Workload string  `json:"workload"`
	Impl     string  `json:"impl"`
	Params   Params  `json:"params"`
	Metrics  Metrics `json:"metrics"`
	// Quantiles is a distribution for the plots: lateness in ms at each of
	// quantilePoints.
	Quantiles []float64 `json:"quantiles,omitempty"`
	// Curve has W9's metrics at each offered rate, for the plots.
	Curve []Metrics `json:"curve,omitempty"`
	// TooSlow means that some timers were due before all were started, so there are no metrics.
	TooSlow bool `json:"too_slow,omitempty"`
}

// quantilePoints are the quantiles at which distributions are sampled.
var quantilePoints = []float64{0, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, .99, .995, .998, .999, .9995, .9998, .9999, 1}

// addLateness adds the lateness of W3's or W13's timers. It sorts late.
func (r *Result) addLateness(late []time.Duration) {
	slices.Sort(late)
	at := func(q float64) float64 { return ms(late[int(q*float64(len(late)-1))]) }
	early, _ := slices.BinarySearch(late, 0)
	r.Metrics["early"] = float64(early)
	r.Metrics["late_p50_ms"], r.Metrics["late_p99_ms"] = at(.5), at(.99)
	r.setQuantiles(at)
}

func (r *Result) setQuantiles(at func(q float64) float64) {
	r.Quantiles = make([]float64, len(quantilePoints))
	for i, q := range quantilePoints {
		r.Quantiles[i] = at(q)
	}
}

// roundSignificant rounds to the significant digits.
func roundSignificant(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	if math.Abs(x) >= 1e4 {
		return math.Round(x)
	}
	scale := math.Pow(10, 4-math.Ceil(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// count formats a number as 10k or 1M.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return fmt.Sprintf("%gM", float64(n)/1e6)
	case n >= 1000 && n%100 == 0:
		return fmt.Sprintf("%gk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
