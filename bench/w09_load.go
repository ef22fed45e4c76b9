package main

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
	"golang.org/x/sync/errgroup"
)

var loadWorkload = workload{
	name: "W9", title: "load: Kafka's open-loop test of its purgatory", size: "p50_ms",
	metrics: []string{"max_rate", "most_held", "cpu_us_per_req", "expired_pct", "trigger_p99_us", "p99_500k_us"},
	full:    []Params{{"p50_ms": 20, "p75_ms": 60}, {"p50_ms": 200, "p75_ms": 400}},
	quick:   []Params{{"p50_ms": 20, "p75_ms": 60}},
}

const (
	loadTimeout = 200 * time.Millisecond
	loadKeys    = 3      // watched by each request
	firstRate   = 62_500 // requests a second; it doubles until it is not held
	heldShare   = 0.99   // of the rate offered, for the rate to count as held
)

// Tests set these.
var (
	lastRate  = 2_000_000
	halfRate  = 500_000 // rate for p99_500k_us
	quickSpan = 300 * time.Millisecond
)

// openLoad is an open loop: requests arrive by a Poisson process, independent of earlier
// requests. Each watches 3 keys of 10,000, and can be completed once its latency, drawn from a
// log-normal distribution, has passed: then one of its keys is checked. Requests with a latency
// beyond the timeout expire.
//
// All arrivals and triggers are drawn beforehand. GOMAXPROCS threads process them in order, each
// at its time or, when a thread is late, at once. A rate is held if the threads finish in time.
// The time from a trigger to its request's completion starts when the trigger was due, not when
// a thread reached it. CPU is that of the whole process, which includes the threads and their
// clock. The control, which completes a request as it is triggered and holds nothing, measures
// their share.
func openLoad(j Job, p requests) (Result, error) {
	span := 3 * time.Second
	if j.Quick {
		span = quickSpan
	}
	var best Metrics
	var curve []Metrics
	halfP99, mostHeld := 0.0, 0.0
	for rate := firstRate; rate <= lastRate; rate *= 2 {
		m, err := offerRate(p, drawArrivals(j.seed(), j.Params, rate, span), func(d time.Duration) { pause(max(d, minPause)) })
		if err != nil {
			return Result{}, err
		}
		curve = append(curve, m)
		mostHeld = max(mostHeld, m["held"])
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
		if rate == halfRate {
			halfP99 = m["trigger_p99_us"]
		}
	}
	best["most_held"] = mostHeld // requests a second, the maximum of all offered rates
	if halfP99 > 0 {
		best["p99_500k_us"] = halfP99
	}
	return Result{Metrics: best, Curve: curve}, nil
}

// arrivals are the requests of a run at one rate.
type arrivals struct {
	rate    int
	at      []time.Duration // when each request arrives
	trigger []time.Duration // when it can be completed
	keys    [][loadKeys]uint16
}

// drawArrivals draws the requests that arrive within span. Half of their latencies are below
// p50_ms and three quarters below p75_ms.
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

// steps returns the steps of one driver in order. It omits triggers of requests that expire.
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

// requests is a store of pending requests.
type requests interface {
	// park makes op wait on keys; it expires after loadTimeout.
	park(op *loadOp, keys ...string) error
	// trigger completes op, which is ready, through one of its keys.
	trigger(op *loadOp, key string)
	// idle reports whether no request is left.
	idle() bool
}

// heldRequests are the requests of a purgatory.
type heldRequests struct{ p *purgatory.Purgatory[string] }

func (h heldRequests) park(op *loadOp, keys ...string) error {
	_, err := h.p.TryCompleteElseWatch(context.Background(), op, loadTimeout, keys...)
	return err
}

func (h heldRequests) trigger(_ *loadOp, key string) { h.p.CheckAndComplete(key) }

func (h heldRequests) idle() bool { return h.p.Len() == 0 }

// noRequests is the control. It holds nothing, so requests without a trigger just end.
type noRequests struct{}

func (noRequests) park(*loadOp, ...string) error { return nil }

func (noRequests) trigger(op *loadOp, _ string) { op.Complete(purgatory.Completed, nil) }

func (noRequests) idle() bool { return true }

// openLoop is a run at one rate.
type openLoop struct {
	p     requests
	names []string
	ops   []loadOp
	pause func(time.Duration) // sleeps, perhaps for less
}

// loadOp is one request. It holds no pointer: the collector would scan millions of them each
// time, and the array is not part of the measurement.
type loadOp struct {
	ready     atomic.Bool
	completed atomic.Int64 // from loadBase to its completion, in ns; negative if it has expired; written once
}

// loadBase is the start of the run at one rate. Runs do not overlap.
var loadBase time.Time

func (o *loadOp) TryComplete() bool { return o.ready.Load() }

func (o *loadOp) Complete(outcome purgatory.Outcome, _ error) {
	took := int64(time.Since(loadBase))
	if outcome != purgatory.Completed {
		took = -took
	}
	o.completed.Store(took)
}

// offerRate offers the arrivals to p and returns the metrics.
func offerRate(p requests, a arrivals, pause func(time.Duration)) (Metrics, error) {
	n := len(a.at)
	l := &openLoop{p: p, names: keyNames(), ops: make([]loadOp, n), pause: pause}
	steps := make([][]loadStep, runtime.GOMAXPROCS(0))
	var last time.Duration
	for d := range steps {
		if steps[d] = a.steps(d, len(steps)); len(steps[d]) > 0 {
			last = max(last, steps[d][len(steps[d])-1].at)
		}
	}
	a.keys = nil // the steps have them
	runtime.GC()

	var group errgroup.Group
	before := currentUsage()
	loadBase = time.Now()
	for d := range steps {
		group.Go(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			return l.drive(steps[d])
		})
	}
	err := group.Wait()
	took := time.Since(loadBase)
	if err != nil {
		return nil, err
	}
	for !p.idle() { // the last requests expire
		time.Sleep(time.Millisecond)
	}
	cpu := currentUsage().cpu - before.cpu
	var late []time.Duration
	expired := 0
	for i := range l.ops {
		_, held := p.(heldRequests)
		for held && l.ops[i].completed.Load() == 0 { // its Complete is in progress
			runtime.Gosched()
		}
		if completed := time.Duration(l.ops[i].completed.Load()); completed > 0 {
			late = append(late, completed-a.trigger[i])
		} else {
			expired++
		}
	}
	m := Metrics{
		"rate":           float64(a.rate),
		"held":           float64(a.rate) * min(1, float64(last)/float64(took)),
		"cpu_us_per_req": us(cpu) / float64(n),
		"expired_pct":    float64(expired) / float64(n) * 100,
	}
	slices.Sort(late)
	if len(late) > 0 {
		m["trigger_p50_us"] = us(late[len(late)/2])
		m["trigger_p99_us"] = us(late[len(late)*99/100])
	}
	return m, nil
}

// minPause is the minimum sleep of a driver that is ahead of its steps; then it processes all
// that have come due. A sleep for each step would cost more than the requests.
const minPause = 200 * time.Microsecond

// drive processes the steps, each at its time or, after a longer pause, later.
func (l *openLoop) drive(steps []loadStep) error {
	var now time.Duration
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
			l.p.trigger(op, l.names[keys[0]])
			continue
		}
		if err := l.p.park(op, l.names[keys[0]], l.names[keys[1]], l.names[keys[2]]); err != nil {
			return err
		}
	}
	return nil
}
