package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Stat summarizes one metric over the repetitions.
type Stat struct{ Median, Min, Max float64 }

func newStat(values []float64) Stat {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return Stat{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1]}
}

// Row is the metrics of one rival in one workload at one size, over all repetitions.
type Row struct {
	Workload, Impl string
	Params         Params
	Reps           int
	Stats          map[string]Stat // without metrics that no repetition has
	Quantiles      []float64       // the median at each point
	Curve          []map[string]Stat
}

// rowsOf merges repetitions into rows, by workload, then by size, then by rival.
func rowsOf(results []Result) []Row {
	type key struct{ workload, impl, params string }
	groups := map[key][]Result{}
	for _, r := range results {
		k := key{r.Workload, r.Impl, r.Params.String()}
		groups[k] = append(groups[k], r)
	}
	rows := make([]Row, 0, len(groups))
	for _, group := range groups {
		rows = append(rows, newRow(group))
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(workloadIndex(a.Workload), workloadIndex(b.Workload)),
			compareParams(a.Params, b.Params),
			cmp.Compare(rivalIndex(a.Impl), rivalIndex(b.Impl)),
			cmp.Compare(a.Impl, b.Impl), // for rivals that no longer exist
		)
	})
	return rows
}

func newRow(group []Result) Row {
	row := Row{Workload: group[0].Workload, Impl: group[0].Impl, Params: group[0].Params, Reps: len(group)}
	var metrics []Metrics
	var points [][]float64
	for _, r := range group {
		metrics = append(metrics, r.Metrics)
		if len(r.Quantiles) == len(quantilePoints) {
			points = append(points, r.Quantiles)
		}
	}
	row.Stats, row.Curve = statsOf(metrics), joinCurves(group)
	if len(points) > 0 {
		for i := range quantilePoints {
			at := make([]float64, len(points))
			for k := range points {
				at[k] = points[k][i]
			}
			row.Quantiles = append(row.Quantiles, newStat(at).Median)
		}
	}
	return row
}

// statsOf merges the metrics of several repetitions.
func statsOf(all []Metrics) map[string]Stat {
	values := map[string][]float64{}
	for _, m := range all {
		for name, v := range m {
			values[name] = append(values[name], v)
		}
	}
	stats := map[string]Stat{}
	for name, v := range values {
		stats[name] = newStat(v)
	}
	return stats
}

// joinCurves returns the metrics at each rate that was offered in any repetition.
func joinCurves(group []Result) []map[string]Stat {
	at := map[float64][]Metrics{}
	for _, r := range group {
		for _, m := range r.Curve {
			at[m["rate"]] = append(at[m["rate"]], m)
		}
	}
	var curve []map[string]Stat
	for _, rate := range slices.Sorted(maps.Keys(at)) {
		curve = append(curve, statsOf(at[rate]))
	}
	return curve
}

// line returns the row as -json prints it: medians.
func (r Row) line() Result {
	m := Metrics{}
	for name, s := range r.Stats {
		m[name] = roundSignificant(s.Median)
	}
	return Result{Workload: r.Workload, Impl: r.Impl, Params: r.Params, Metrics: m}
}

// cell formats the median with the smallest and the largest, or a dash for a gap.
func (r Row) cell(metric string) string {
	s, ok := r.Stats[metric]
	switch {
	case !ok:
		return gapMark
	case r.Reps == 1 || s.Min == s.Max:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

const gapMark = "–"

// number formats three significant digits, or a large number in full with
// thousands separated.
func number(x float64) string {
	switch a := math.Abs(x); {
	case x == math.Trunc(x) && a < 1e4, a >= 100 && a < 1e4:
		return fmt.Sprintf("%.0f", x)
	case a >= 1e4:
		digits := fmt.Sprintf("%.0f", a)
		var out []byte
		for i := range digits {
			if i > 0 && (len(digits)-i)%3 == 0 {
				out = append(out, ',')
			}
			out = append(out, digits[i])
		}
		if x < 0 {
			return "-" + string(out)
		}
		return string(out)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	case a >= 1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func compareParams(a, b Params) int {
	for _, w := range workloads { // the sizes first
		if c := cmp.Compare(a[w.size], b[w.size]); c != 0 {
			return c
		}
	}
	return cmp.Compare(a["goroutines"], b["goroutines"])
}

func workloadIndex(name string) int {
	return slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
}

func workloadNamed(name string) workload { return workloads[workloadIndex(name)] }

// rivalIndex returns the index of a rival. The control, which is not in the list, comes last.
func rivalIndex(name string) int {
	if i := slices.IndexFunc(rivals, func(r rival) bool { return r.name == name }); i >= 0 {
		return i
	}
	return len(rivals)
}
