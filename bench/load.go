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

var loadWorkload = workload{
	name: "W9", title: "load: Kafka's open-loop test of its purgatory", size: "p50_ms",
	metrics: []string{"max_rate", "cpu_us_per_req", "expired_pct", "trigger_p99_us"},
	full:    []Params{{"p50_ms": 20, "p75_ms": 60}, {"p50_ms": 200, "p75_ms": 400}},
	quick:   []Params{{"p50_ms": 20, "p75_ms": 60}},
}

const (
	loadTimeout = 200 * time.Millisecond
	loadKeys    = 3      // watched by each request
	firstRate   = 62_500 // requests a second; it doubles until it is not held
	heldShare   = 0.99   // of the rate offered, for the rate to count as held
)

// openLoad is an open loop: requests come by a Poisson process, whatever has become
// of those before. Each watches 3 keys of 10,000, and can be completed once its
// latency, drawn from a log-normal distribution, has passed: then one of its keys
// is checked. Those whose latency is beyond the timeout expire.
//
// All arrivals and triggers are drawn beforehand. GOMAXPROCS threads go through
// them in order, each at its time or, when a thread is late, at once. A rate is held
// if the threads come to the end in time. The time from a trigger to its request's
// completion counts from when the trigger was due, not from when a thread reached
// it. CPU is that of the whole process, which includes the threads and their clock.
func openLoad(j Job, p *purgatory.Purgatory[string]) (Result, error) {
	span := 3 * time.Second
	if j.Quick {
		span = 300 * time.Millisecond
	}
	var best Metrics
	var curve []Metrics
	for rate := firstRate; ; rate *= 2 {
		m, err := offerRate(p, drawArrivals(j.seed(), j.Params, rate, span), pause)
		if err != nil {
			return Result{}, err
		}
		curve = append(curve, m)
		held := m["held"] >= heldShare*m["rate"]
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

// arrivals are the requests of a run at one rate.
type arrivals struct {
	rate    int
	at      []time.Duration // when each request comes
	trigger []time.Duration // when it can be completed
	keys    [][loadKeys]uint16
}

// drawArrivals draws the requests that come within span. Of their latencies half
// are below p50_ms and three quarters below p75_ms.
func drawArrivals(r rng, p Params, rate int, span time.Duration) arrivals {
	n := int(float64(rate) * span.Seconds())
	a := arrivals{rate, make([]time.Duration, n), make([]time.Duration, n), make([][loadKeys]uint16, n)}
	mu := math.Log(float64(p["p50_ms"]))
	sigma := (math.Log(float64(p["p75_ms"])) - mu) / 0.6744897501960817 // the normal distribution's third quartile
	at := 50 * time.Millisecond
	for i := range n {
		at += time.Duration(-math.Log(1-r.fraction()) / float64(rate) * float64(time.Second))
		a.at[i] = at
		a.trigger[i] = at + time.Duration(math.Exp(mu+sigma*r.normal())*float64(time.Millisecond))
		for k := range a.keys[i] {
			a.keys[i][k] = uint16(r.below(manyKeys))
		}
	}
	return a
}

// expires reports whether a request expires before its trigger.
func (a arrivals) expires(i int) bool { return a.trigger[i]-a.at[i] > loadTimeout }

// loadStep is the arrival of a request, or its trigger.
type loadStep struct {
	at      time.Duration
	request int32
	keys    [loadKeys]uint16
	trigger bool
}

// steps returns the steps of one driver in order. Triggers of requests that expire
// are left out.
func (a arrivals) steps(driver, drivers int) []loadStep {
	var all []loadStep
	for i := driver; i < len(a.at); i += drivers {
		all = append(all, loadStep{a.at[i], int32(i), a.keys[i], false})
		if !a.expires(i) {
			all = append(all, loadStep{a.trigger[i], int32(i), a.keys[i], true})
		}
	}
	slices.SortFunc(all, func(a, b loadStep) int { return int(max(min(a.at-b.at, 1), -1)) })
	return all
}

// openLoop is a run at one rate.
type openLoop struct {
	p         *purgatory.Purgatory[string]
	names     []string
	ops       []loadOp
	pause     func(time.Duration) // sleeps, perhaps for less
	completed atomic.Int64
}

// loadOp is one request. It holds no pointer: millions of them would be scanned at
// every collection, and the array is not what is measured.
type loadOp struct {
	ready atomic.Bool
	took  time.Duration // from loadBase to its completion; written once
}

// State of the run at one rate. There is one run at a time.
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

// offerRate offers the arrivals to p and returns the figures.
func offerRate(p *purgatory.Purgatory[string], a arrivals, pause func(time.Duration)) (Metrics, error) {
	n := len(a.at)
	l := &openLoop{p: p, names: keyNames(), ops: make([]loadOp, n), pause: pause}
	loadExpired.Store(0)
	steps := make([][]loadStep, runtime.GOMAXPROCS(0))
	var last time.Duration
	for d := range steps {
		if steps[d] = a.steps(d, len(steps)); len(steps[d]) > 0 {
			last = max(last, steps[d][len(steps[d])-1].at)
		}
	}
	a.keys = nil // the steps have them
	runtime.GC()

	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	before := used()
	loadBase = time.Now()
	for d := range steps {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := l.drive(steps[d]); err != nil {
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
	m := Metrics{
		"rate":           float64(a.rate),
		"held":           float64(a.rate) * min(1, float64(last)/float64(took)),
		"cpu_us_per_req": us(cpu) / float64(n),
		"expired_pct":    float64(loadExpired.Load()) / float64(n) * 100,
	}
	var late []time.Duration
	for i := range l.ops {
		if l.ops[i].took > 0 {
			late = append(late, l.ops[i].took-a.trigger[i])
		}
	}
	slices.Sort(late)
	if len(late) > 0 {
		m["trigger_p50_us"] = us(late[len(late)/2])
		m["trigger_p99_us"] = us(late[len(late)*99/100])
	}
	return m, nil
}

// drive takes the steps, each at its time.
func (l *openLoop) drive(steps []loadStep) error {
	var now time.Duration
	completed := 0
	defer func() { l.completed.Add(int64(completed)) }()
	for i := range steps {
		step := &steps[i]
		if step.at > now {
			if now = time.Since(loadBase); step.at > now {
				l.pause(step.at - now)
				now = time.Since(loadBase)
			}
		}
		op, keys := &l.ops[step.request], &step.keys
		if step.trigger {
			op.ready.Store(true)
			completed += l.p.CheckAndComplete(l.names[keys[0]])
			continue
		}
		waits, err := l.p.TryCompleteElseWatch(op, loadTimeout, l.names[keys[0]], l.names[keys[1]], l.names[keys[2]])
		if err != nil {
			return err
		}
		if waits.IsZero() {
			completed++
		}
	}
	return nil
}
