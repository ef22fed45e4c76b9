package main

import (
	"fmt"
	"math"
)

// target is a value that should be at most bound. A target with the bound unbounded is shown for
// information only.
type target struct {
	workload, text string
	bound          float64
	value          formula
}

var unbounded = math.Inf(1)

// rowSet are rows in which medians are looked up.
type rowSet []Row

func (rows rowSet) at(workload, impl, metric string, p Params) (float64, bool) {
	for _, row := range rows {
		if row.Workload == workload && row.Impl == impl && row.Params.String() == p.String() {
			s, ok := row.Stats[metric]
			return s.Median, ok
		}
	}
	return 0, false
}

// formula computes a target's value. It reports false if the rows lack the data.
type formula func(rowSet) (float64, bool)

// metricOf is the median of a metric.
func metricOf(workload, impl, metric string, p Params) formula {
	return func(rows rowSet) (float64, bool) { return rows.at(workload, impl, metric, p) }
}

// combine computes a value from two others.
func combine(a, b formula, compute func(x, y float64) float64) formula {
	return func(rows rowSet) (float64, bool) {
		x, ok := a(rows)
		y, ok2 := b(rows)
		return compute(x, y), ok && ok2
	}
}

func quotient(a, b formula) formula {
	return func(rows rowSet) (float64, bool) {
		x, ok := a(rows)
		y, ok2 := b(rows)
		return x / y, ok && ok2 && y != 0
	}
}

func difference(a, b formula) formula {
	return combine(a, b, func(x, y float64) float64 { return x - y })
}

// larger is the larger of two values.
func larger(a, b formula) formula {
	return combine(a, b, func(x, y float64) float64 { return max(x, y) })
}

// ratio is the metric of one rival divided by that of another.
func ratio(workload, metric, impl, other string, p Params) formula {
	return quotient(metricOf(workload, impl, metric, p), metricOf(workload, other, metric, p))
}

// inUnits divides a value by a unit.
func inUnits(unit float64, a formula) formula {
	return func(rows rowSet) (float64, bool) {
		x, ok := a(rows)
		return x / unit, ok
	}
}

// needed is the quotient of the wanted value and the measured one: infinite if the measured one
// is 0.
func needed(want float64, a formula) formula {
	return func(rows rowSet) (float64, bool) {
		x, ok := a(rows)
		return want / x, ok
	}
}

// p99AtHalf is W9's p99_500k_us, or infinity if that rate was never held.
func p99AtHalf(impl string) formula {
	return func(rows rowSet) (float64, bool) {
		got, ok := rows.at("W9", impl, "p99_500k_us", load20)
		if _, measured := rows.at("W9", impl, "max_rate", load20); measured && !ok {
			return math.Inf(1), true
		}
		return got, ok
	}
}

// callsAgainstMap is the ratio of the slower of a table's own calls and one group's calls to the
// hand-written map.
func callsAgainstMap(goroutines int) formula {
	at := Params{"in_flight": 100_000, "goroutines": goroutines}
	return larger(ratio("W14", "ns_per_op", "calls", "map", at), ratio("W14", "ns_per_op", "calls-group", "map", at))
}

func kilobytesPerPoll(impl string) formula {
	return inUnits(1000, metricOf("W15", impl, "bytes_per_poll", parked10k))
}

// largest is the largest value of impl's metric over all sizes.
func largest(workload, impl, metric string) formula {
	return func(rows rowSet) (most float64, any bool) {
		for _, row := range rows {
			if s, ok := row.Stats[metric]; ok && row.Workload == workload && row.Impl == impl {
				most, any = max(most, s.Median), true
			}
		}
		return most, any
	}
}

// againstBest is the largest ratio, over all sizes, of impl's metric to that of the best rival
// in Go at the same size. limbo's own front ends do not count as rivals.
func againstBest(workload, impl, metric string) formula {
	return func(rows rowSet) (most float64, any bool) {
		for _, row := range rows {
			if row.Workload != workload || row.Impl != impl {
				continue
			}
			for _, other := range rows {
				if limboImpls[other.Impl] || notGo[other.Impl] || other.Impl == controlName || other.Workload != workload || other.Params.String() != row.Params.String() {
					continue
				}
				if s, ok := other.Stats[metric]; ok && s.Median > 0 {
					most, any = max(most, row.Stats[metric].Median/s.Median), true
				}
			}
		}
		return most, any
	}
}

// aboveControl is the CPU of a rival's timers at W6's rate, without that of the loop that
// touches them.
func aboveControl(impl string) formula {
	above := difference(metricOf("W6", impl, "cpu_pct", conns100k), metricOf("W6", controlName, "cpu_pct", conns100k))
	return func(rows rowSet) (float64, bool) {
		pct, ok := above(rows)
		return pct, ok && pct > 0
	}
}

var (
	limboImpls = map[string]bool{"timingwheel": true, "scheduler": true, "keyed": true, "limbo-broker": true, "durable-redis": true, "durable-pebble": true, "longpoll": true, "longpoll-h2": true}
	notGo      = map[string]bool{"netty-jvm": true}
)

var (
	pending0    = Params{"pending": 0, "goroutines": 1}
	pending1M   = Params{"pending": 1_000_000, "goroutines": 1}
	held1M      = Params{"timers": 1_000_000}
	fire500k    = Params{"timers": 500_000}
	idle        = Params{"timers": 1}
	conns100k   = Params{"connections": 100_000}
	scale1k     = Params{"pending": 1_000, "goroutines": 1}
	scale100M   = Params{"pending": 100_000_000, "goroutines": 1}
	keys3       = Params{"keys": 3}
	load20      = Params{"p50_ms": 20, "p75_ms": 60}
	load200     = Params{"p50_ms": 200, "p75_ms": 400}
	goroutines2 = Params{"goroutines": 2}
	parked10k   = Params{"parked": 10_000}

	durable100k = Params{"timers": 100_000}
	recur100k   = Params{"schedules": 100_000}
	search1M    = Params{"timers": 1_000_000}
)

// targets refer to the full sizes. A quick run shows the targets for which it has data.
var targets = []target{
	{"W1", "ns, × stdlib at 1M pending", .35, ratio("W1", "ns_per_op", "timingwheel", "stdlib", pending1M)},
	{"W1", "ns, × stdlib at 0 pending", .50, ratio("W1", "ns_per_op", "timingwheel", "stdlib", pending0)},
	{"W1", "ns, × the best rival in Go, at any size", 1, againstBest("W1", "timingwheel", "ns_per_op")},
	{"W1", "allocs_per_op", 0.001, largest("W1", "timingwheel", "allocs_per_op")},
	{"W1", "scheduler: ns, × stdlib at 1M pending", .40, ratio("W1", "ns_per_op", "scheduler", "stdlib", pending1M)},
	{"W1", "scheduler: allocs_per_op", 0.001, largest("W1", "scheduler", "allocs_per_op")},
	{"W2", "bytes_per_timer", 40, metricOf("W2", "timingwheel", "bytes_per_timer", held1M)},
	{"W2", "stop_ns, in random order", 155, metricOf("W2", "timingwheel", "stop_ns", held1M)},
	{"W2", "stop_ns, × stdlib's", 155. / 205, ratio("W2", "stop_ns", "timingwheel", "stdlib", held1M)},
	{"W2", "gc_ms, × stdlib's", 1. / 60, ratio("W2", "gc_ms", "timingwheel", "stdlib", held1M)},
	{"W2", "bytes_after, × the peak", .02, combine(
		metricOf("W2", "timingwheel", "bytes_after", held1M), metricOf("W2", "timingwheel", "bytes_per_timer", held1M),
		func(after, each float64) float64 { return after / (each * 1e6) },
	)},
	{"W3", "cpu_ns_per_timer, × stdlib's", .30, ratio("W3", "cpu_ns_per_timer", "timingwheel", "stdlib", fire500k)},
	{"W3", "scheduler: cpu_ns_per_timer, × stdlib's", .40, ratio("W3", "cpu_ns_per_timer", "scheduler", "stdlib", fire500k)},
	{"W3", "early", 0, metricOf("W3", "timingwheel", "early", fire500k)},
	{"W3", "late_p99_ms", 1.6, metricOf("W3", "timingwheel", "late_p99_ms", fire500k)},
	{"W4", "sched_p9999_us", 100, metricOf("W4", "timingwheel", "sched_p9999_us", held1M)},
	{"W4", "scheduler: sched_p9999_us", 100, metricOf("W4", "scheduler", "sched_p9999_us", held1M)},
	{"W4", "sched_p9999_us with the page open, × without", 1.1, ratio("W4", "sched_p9999_us", "timingwheel-page", "timingwheel", held1M)},
	{"W4", "sched_max_us, × the control's", 1, ratio("W4", "sched_max_us", "timingwheel", controlName, held1M)},
	{"W5", "cpu_ms, × stdlib's", 1, ratio("W5", "cpu_ms", "timingwheel", "stdlib", idle)},
	{"W5", "wakeups, × stdlib's", 1, ratio("W5", "wakeups", "timingwheel", "stdlib", idle)},
	{"W6", "ns_per_touch, × heap's at 100k", .50, ratio("W6", "ns_per_touch", "timingwheel", "heap", conns100k)},
	{"W6", "cpu_pct, × heap's at 100k, each less the control's", .40, quotient(aboveControl("timingwheel"), aboveControl("heap"))},
	{"W6", "bytes_per_conn, × heap's at 100k", .62, ratio("W6", "bytes_per_conn", "timingwheel", "heap", conns100k)},
	{"W7", "ns at 100M, × ns at 1k", 1.2, quotient(metricOf("W7", "timingwheel", "ns_per_op", scale100M), metricOf("W7", "timingwheel", "ns_per_op", scale1k))},
	{"W7", "GB resident for 100M pending", 4, inUnits(10, metricOf("W7", "timingwheel", "rss_bytes_per_timer", scale100M))},
	{"W8", "ns_per_op with 3 keys", 350, metricOf("W8", "purgatory", "ns_per_op", keys3)},
	// The process's other allocations, for timers and metrics, are in the third decimal.
	{"W8", "allocs_per_op with 3 keys", 1.01, metricOf("W8", "purgatory", "allocs_per_op", keys3)},
	{"W8", "watched_after", 0, largest("W8", "purgatory", "watched_after")},
	{"W8", "retained_bytes, within a page", 4096, largest("W8", "purgatory", "retained_bytes")},
	{"W9", "1,000,000 requests a second, by max_rate", 1, needed(1e6, metricOf("W9", "purgatory", "max_rate", load20))},
	{"W9", "cpu_us_per_req", 1.8, metricOf("W9", "purgatory", "cpu_us_per_req", load20)},
	{"W9", "p99_500k_us", 1000, p99AtHalf("purgatory")},
	{"W9", "500,000 requests a second with 200/400 ms, by max_rate", 1, needed(500_000, metricOf("W9", "purgatory", "max_rate", load200))},
	{"W9", "most_held, × that with the page open", 1 / .95, ratio("W9", "most_held", "purgatory", "purgatory-page", load20)},
	{"W9", "p99_500k_us with the page open, × without", 1.1, quotient(p99AtHalf("purgatory-page"), p99AtHalf("purgatory"))},
	{"W10", "threshold: ns at 100k, × ns at 1", 1.3, quotient(metricOf("W10", "threshold", "ns_per_completion", Params{"watchers": 100_000}), metricOf("W10", "threshold", "ns_per_completion", Params{"watchers": 1}))},
	{"W10", "CheckAndComplete: ns_per_watcher at 100k", 10, metricOf("W10", "purgatory", "ns_per_watcher", Params{"watchers": 100_000})},
	{"W11", "1 by the speedup of two goroutines, for 1.7", 1 / 1.7, needed(1, metricOf("W11", "purgatory", "speedup", goroutines2))},
	{"W11", "4,500,000 operations a second with two goroutines, by ops_per_s", 1, needed(4.5e6, metricOf("W11", "purgatory", "ops_per_s", goroutines2))},
	{"W12", "wake_p99_us, × kfake's", .7, ratio("W12", "wake_p99_us", "limbo-broker", "kfake", parked10k)},
	{"W12", "idle_cpu_pct", .2, metricOf("W12", "limbo-broker", "idle_cpu_pct", parked10k)},
	{"W13", "Redis: 80,000 schedules a second, by schedules_per_s", 1, needed(80_000, metricOf("W13", "durable-redis", "schedules_per_s", durable100k))},
	{"W13", "Redis: 40,000 lifecycles a second, by lifecycles_per_s", 1, needed(40_000, metricOf("W13", "durable-redis", "lifecycles_per_s", durable100k))},
	{"W13", "folder: 50,000 schedules a second, by schedules_per_s", 1, needed(50_000, metricOf("W13", "durable-pebble", "schedules_per_s", durable100k))},
	{"W13", "folder: 20,000 lifecycles a second, by lifecycles_per_s", 1, needed(20_000, metricOf("W13", "durable-pebble", "lifecycles_per_s", durable100k))},
	{"W13", "Redis: late_p50_ms", 5, metricOf("W13", "durable-redis", "late_p50_ms", durable100k)},
	{"W13", "Redis: late_p99_ms", 25, metricOf("W13", "durable-redis", "late_p99_ms", durable100k)},
	{"W13", "folder: late_p50_ms", 5, metricOf("W13", "durable-pebble", "late_p50_ms", durable100k)},
	{"W13", "folder: late_p99_ms", 25, metricOf("W13", "durable-pebble", "late_p99_ms", durable100k)},
	{"W13", "early, either", 0, combine(
		metricOf("W13", "durable-redis", "early", durable100k), metricOf("W13", "durable-pebble", "early", durable100k),
		func(a, b float64) float64 { return a + b },
	)},
	{"W13", "Redis: bytes_per_timer", 320, metricOf("W13", "durable-redis", "bytes_per_timer", durable100k)},
	{"W13", "Redis: asynq's lifecycles_per_s, × ours", 1. / 5, ratio("W13", "lifecycles_per_s", "asynq", "durable-redis", durable100k)},
	{"W13", "Redis: late_p99_ms, × asynq's", 1. / 20, ratio("W13", "late_p99_ms", "durable-redis", "asynq", durable100k)},
	{"W13", "Redis: late_p99_ms, × NATS's", 1. / 5, ratio("W13", "late_p99_ms", "durable-redis", "nats", durable100k)},
	{"W13", "folder: late_p99_ms, × NATS's", 1. / 5, ratio("W13", "late_p99_ms", "durable-pebble", "nats", durable100k)},
	{"W14", "a table's or a group's ns_per_op, × map's, one goroutine", .7, callsAgainstMap(1)},
	{"W14", "a table's or a group's ns_per_op, × map's, two goroutines", .7, callsAgainstMap(2)},
	{"W14", "a table's or a group's allocs_per_op", 3, larger(largest("W14", "calls", "allocs_per_op"), largest("W14", "calls-group", "allocs_per_op"))},
	{"W15", "HTTP/1.1: KB a poll, net/http's included", 12, kilobytesPerPoll("longpoll")},
	{"W15", "HTTP/1.1: KB a poll, less net/http's alone", unbounded, difference(kilobytesPerPoll("longpoll"), kilobytesPerPoll("net/http"))},
	{"W15", "HTTP/2: KB a poll, net/http's included", 12, kilobytesPerPoll("longpoll-h2")},
	{"W15", "HTTP/2: KB a poll, less net/http's alone", unbounded, difference(kilobytesPerPoll("longpoll-h2"), kilobytesPerPoll("net/http-h2"))},
	{"W15", "idle_cpu_pct, either", 1, larger(metricOf("W15", "longpoll", "idle_cpu_pct", parked10k), metricOf("W15", "longpoll-h2", "idle_cpu_pct", parked10k))},
	{"W15", "across nodes: wake_p99, ms", 5, inUnits(1000, metricOf("W15", "longpoll-nodes", "wake_p99_us", parked10k))},
	{"W16", "Redis: 0.6 occurrences for each life of a timer, by occurrences_per_lifecycle", 1, needed(.6, metricOf("W16", "durable-redis", "occurrences_per_lifecycle", recur100k))},
	{"W16", "folder: 0.6 occurrences for each life of a timer, by occurrences_per_lifecycle", 1, needed(.6, metricOf("W16", "durable-pebble", "occurrences_per_lifecycle", recur100k))},
	{"W16", "Redis: bytes_per_schedule, its body of 32 included", 732, metricOf("W16", "durable-redis", "bytes_per_schedule", recur100k)},
	{"W16", "Redis: late_p99_ms, × timers'", 1, quotient(metricOf("W16", "durable-redis", "late_p99_ms", recur100k), metricOf("W16", "durable-redis", "timers_late_p99_ms", recur100k))},
	{"W16", "folder: late_p99_ms, × timers'", 1, quotient(metricOf("W16", "durable-pebble", "late_p99_ms", recur100k), metricOf("W16", "durable-pebble", "timers_late_p99_ms", recur100k))},
	{"W16", "early, either", 0, combine(
		metricOf("W16", "durable-redis", "early", recur100k), metricOf("W16", "durable-pebble", "early", recur100k),
		func(a, b float64) float64 { return a + b },
	)},
	{"W17", "first_page_ms, either", 100, either("first_page_ms")},
	{"W17", "longest_get_ms, either", 20, either("longest_get_ms")},
	{"W17", "grown_bytes, either, MB", 100, inUnits(1e6, either("grown_bytes"))},
}

// either is the worse value of W17's two engines.
func either(metric string) formula {
	return larger(metricOf("W17", "durable-redis", metric, search1M), metricOf("W17", "durable-pebble", metric, search1M))
}

// targetTable shows whether each target with data is reached.
func targetTable(rows []Row) table {
	t := table{head: []string{"", "metric", "at most", "measured", "reached"}, left: 2}
	for _, target := range targets {
		got, ok := target.value(rowSet(rows))
		if !ok {
			continue
		}
		bound, reached := fmt.Sprintf("%.3g", target.bound), "yes"
		switch {
		case target.bound == unbounded:
			bound, reached = gapMark, gapMark
		case !(got <= target.bound): // false for NaN
			reached = "no"
		}
		t.rows = append(t.rows, []string{target.workload, target.text, bound, fmt.Sprintf("%.3g", got), reached})
	}
	return t
}
