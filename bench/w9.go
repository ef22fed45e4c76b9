package main

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

var w9Workload = workload{
	name: "W9", title: "load: Kafka's open-loop test of its purgatory", size: "p50_ms",
	metrics: []string{"max_rate", "cpu_us_per_req", "expired_pct", "trigger_p99_us"},
	full:    []Params{{"p50_ms": 20, "p75_ms": 60}, {"p50_ms": 200, "p75_ms": 400}},
	quick:   []Params{{"p50_ms": 20, "p75_ms": 60}},
}

const (
	w9Timeout = 200 * time.Millisecond
	w9Keys    = 3
	w9First   = 62_500 // requests a second; it doubles until it is not held
	w9Held    = 0.99
)

// w9 is an open loop: requests come by a Poisson process, whatever has become
// of those before. Each watches 3 keys of 10,000, and can be completed once its
// latency, drawn from a log-normal distribution, has passed: then one of its
// keys is checked. Those whose latency is beyond the timeout expire.
//
// All arrivals and triggers are drawn beforehand; GOMAXPROCS threads go through
// them in order, each at its time or, if it is behind, as fast as it can. A
// rate is held if they come to the end in time. What a trigger takes until its
// request is completed counts from when it was to come, not from when the
// thread came to it. CPU is the whole process's, the threads and their clock
// included.
func w9(j Job, p *purgatory.Purgatory[string]) (Result, error) {
	span := 3 * time.Second
	if j.Quick {
		span = 300 * time.Millisecond
	}
	var best Metrics
	var curve []Metrics
	for rate := w9First; ; rate *= 2 {
		m, err := w9Rate(j, p, rate, span)
		if err != nil {
			return Result{}, err
		}
		curve = append(curve, m)
		held := m["held"] >= w9Held*m["rate"]
		if held || best == nil {
			best = Metrics{"max_rate": 0}
			for _, name := range []string{"cpu_us_per_req", "expired_pct", "trigger_p99_us"} {
				best[name] = m[name]
			}
		}
		if !held {
			break
		}
		best["max_rate"] = m["rate"]
	}
	return Result{Metrics: best, Curve: curve}, nil
}

// openLoop is a run at one rate.
type openLoop struct {
	at      []time.Duration // when each request comes
	trigger []time.Duration // when it can be completed
	ops     []loadOp

	completed atomic.Int64
}

// loadOp is one request. It holds no pointer: millions of them would be scanned
// at every collection, and what is measured is not to be the array.
type loadOp struct {
	ready atomic.Bool
	took  time.Duration // from loadBase to its completion; written once
}

// Of the run at one rate; there is one at a time.
var (
	loadBase    time.Time
	loadExpired atomic.Int64
)

func (o *loadOp) TryComplete() bool { return o.ready.Load() }

func (o *loadOp) Complete(how purgatory.Outcome) {
	if how == purgatory.Completed {
		o.took = time.Since(loadBase)
	} else {
		loadExpired.Add(1)
	}
}

// w9Rate offers one rate for a while.
func w9Rate(j Job, p *purgatory.Purgatory[string], rate int, span time.Duration) (Metrics, error) {
	r := j.seed()
	n := int(float64(rate) * span.Seconds())
	l := &openLoop{at: make([]time.Duration, n), trigger: make([]time.Duration, n), ops: make([]loadOp, n)}
	keys := make([][w9Keys]uint16, n)
	mu := math.Log(float64(j.Params["p50_ms"]))
	sigma := (math.Log(float64(j.Params["p75_ms"])) - mu) / 0.6744897501960817 // the normal distribution's third quartile
	at := 50 * time.Millisecond
	for i := range n {
		at += time.Duration(-math.Log(1-r.fraction()) / float64(rate) * float64(time.Second))
		l.at[i] = at
		l.trigger[i] = at + time.Duration(math.Exp(mu+sigma*r.normal())*float64(time.Millisecond))
		for k := range keys[i] {
			keys[i][k] = uint16(r.below(manyKeys))
		}
	}
	loadExpired.Store(0)
	drivers := runtime.GOMAXPROCS(0)
	steps := make([][]w9Step, drivers)
	for d := range steps {
		steps[d] = l.steps(keys, d, drivers)
	}
	names := keyNames()
	runtime.GC()

	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	before := used()
	loadBase = time.Now()
	for d := range drivers {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := l.drive(p, names, steps[d]); err != nil {
				failed.Store(&err)
			}
		})
	}
	wg.Wait()
	took := time.Since(loadBase)
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	for l.completed.Load()+loadExpired.Load() < int64(n) { // the last ones expire
		time.Sleep(time.Millisecond)
	}
	cpu := used().cpu - before.cpu
	var late []time.Duration
	for i := range l.ops {
		if l.ops[i].took > 0 {
			late = append(late, l.ops[i].took-l.trigger[i])
		}
	}
	slices.Sort(late)
	var last time.Duration
	for d := range steps {
		last = max(last, steps[d][len(steps[d])-1].at)
	}
	return Metrics{
		"rate":           float64(rate),
		"held":           float64(rate) * min(1, float64(last)/float64(took)),
		"cpu_us_per_req": us(cpu) / float64(n),
		"expired_pct":    float64(loadExpired.Load()) / float64(n) * 100,
		"trigger_p50_us": us(late[len(late)/2]),
		"trigger_p99_us": us(late[len(late)*99/100]),
	}, nil
}

// w9Step is a request that comes, or its trigger.
type w9Step struct {
	at      time.Duration
	request int32
	keys    [w9Keys]uint16
	trigger bool
}

// steps are those of one driver, in order. Triggers beyond the timeout are left
// out: their requests have expired.
func (l *openLoop) steps(keys [][w9Keys]uint16, driver, drivers int) []w9Step {
	var all []w9Step
	for i := driver; i < len(l.at); i += drivers {
		all = append(all, w9Step{l.at[i], int32(i), keys[i], false})
		if l.trigger[i]-l.at[i] <= w9Timeout {
			all = append(all, w9Step{l.trigger[i], int32(i), keys[i], true})
		}
	}
	slices.SortFunc(all, func(a, b w9Step) int { return int(max(min(a.at-b.at, 1), -1)) })
	return all
}

// drive takes the steps.
func (l *openLoop) drive(p *purgatory.Purgatory[string], names []string, steps []w9Step) error {
	var now time.Duration
	completed := 0
	defer func() { l.completed.Add(int64(completed)) }()
	for i := range steps {
		step := &steps[i]
		if step.at > now {
			if now = time.Since(loadBase); step.at > now {
				pause(step.at - now)
				now = time.Since(loadBase)
			}
		}
		op, keys := &l.ops[step.request], &step.keys
		if step.trigger {
			op.ready.Store(true)
			completed += p.CheckAndComplete(names[keys[0]])
			continue
		}
		waits, err := p.TryCompleteElseWatch(op, w9Timeout, names[keys[0]], names[keys[1]], names[keys[2]])
		if err != nil {
			return err
		}
		if waits.IsZero() {
			completed++
		}
	}
	return nil
}
