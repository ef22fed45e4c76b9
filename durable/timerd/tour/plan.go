package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// mode is how the receiver answers a timer's callbacks.
type mode string

const (
	modeOK     mode = "ok"     // 200 at once
	modeSlow   mode = "slow"   // 200 after a while, so that requests meet a running timer
	modeFlaky  mode = "flaky"  // 503 in the first two attempts
	modeHang   mode = "hang"   // no answer to the first attempt
	modeFatal  mode = "fatal"  // 404: a dead letter at once
	modePoison mode = "poison" // 500 always: a dead letter after the last attempt

	modeUpgrade mode = "upgrade" // 101 and silence: a dead letter at once
	modeTrickle mode = "trickle" // an endless header to the first attempt
	modeInform  mode = "inform"  // endless informational responses to the first attempt
	modeEndless mode = "endless" // 200 and an endless body

	modeBusy mode = "drag" // of schedules: 503 to every third first attempt, Retry-After 1 s
)

// silent reports whether the first attempt gets no answer.
func (m mode) silent() bool { return m == modeHang || m == modeTrickle || m == modeInform }

type opKind int

const (
	opSchedule opKind = iota
	opCancel
	opMove
	opPut
	opDelete
	opPause
	opResume
)

// op is an operation of a scheduler on a key, at a time since the start.
type op struct {
	kind  opKind
	at    time.Duration
	key   int           // number of the key's first timer, or load.Timers plus that of its first schedule
	timer int           // number of the timer (opSchedule, opMove) or schedule
	due   time.Duration // opSchedule, opMove: since the start
	after bool          // opSchedule: send a duration instead of a time
	mode  mode

	recurs recurrence // opPut
	cancel bool       // opDelete: also cancel the waiting occurrences
}

func keyName(key int) string { return fmt.Sprintf("order-%d", key) }

// load is the work of all schedulers together.
type load struct {
	Timers     int
	Schedules  int // without those created again after a deletion
	Span       time.Duration
	Schedulers int
	Seed       uint64
}

// planner draws the operations of one scheduler. Each scheduler has every Schedulers-th timer
// number.
type planner struct {
	load
	rng    *rand.Rand
	next   int
	bursts []time.Duration // milliseconds in which many timers are due
	ops    []op
}

// planTimers returns the operations of scheduler i in order of time; operations on one key are in
// the order in which they must be done.
func (l load) planTimers(i int) []op {
	p := planner{load: l, rng: rand.New(rand.NewPCG(l.Seed, uint64(i))), next: i + 1}
	common := rand.New(rand.NewPCG(l.Seed, 1<<32)) // all schedulers have the same bursts
	for range 4 {
		p.bursts = append(p.bursts, time.Duration((0.1+0.85*common.Float64())*float64(l.Span)).Truncate(time.Millisecond))
	}
	for p.next <= l.Timers {
		p.addKey()
	}
	slices.SortStableFunc(p.ops, func(a, b op) int { return cmp.Compare(a.at, b.at) })
	return p.ops
}

func (p *planner) number() int {
	n := p.next
	p.next += p.Schedulers
	return n
}

func (p *planner) between(from, to time.Duration) time.Duration {
	return from + time.Duration(p.rng.Float64()*float64(max(to-from, 0)))
}

func (p *planner) add(o op) { p.ops = append(p.ops, o) }

// modes are the modes of keys with no further operations. A mode applies to a die below its number
// and not below an earlier number; above all of them, modeOK applies.
var modes = []struct {
	below int // of 1,000
	mode  mode
}{
	{250, modeFlaky}, {254, modeHang}, {259, modeFatal}, {261, modePoison},
	{262, modeUpgrade}, {263, modeTrickle}, {264, modeInform}, {265, modeEndless},
}

// addKey draws the operations on one key.
func (p *planner) addKey() {
	key := p.number()
	at := p.between(0, p.Span*8/10)
	due := p.between(at+50*time.Millisecond, min(at+p.Span/4, p.Span))
	if burst := p.bursts[p.rng.IntN(len(p.bursts))]; p.rng.IntN(10) == 0 && burst > at+100*time.Millisecond {
		due = burst
	}
	first := op{kind: opSchedule, at: at, key: key, timer: key, due: due, after: p.rng.IntN(2) == 0, mode: modeOK}
	near := due + p.between(-30*time.Millisecond, 30*time.Millisecond) // races with the run
	half := p.rng.IntN(2) == 0
	pick := func(a, b time.Duration) time.Duration {
		if half {
			return max(a, at)
		}
		return max(b, at)
	}
	roll := p.rng.IntN(1000)
	if p.next > p.Timers { // no number is left for a second timer
		roll = 999
	}
	switch {
	case roll < 80: // scheduled again: before it is due, or while it runs
		if !half {
			first.mode = modeSlow
			near = due + 100*time.Millisecond
		}
		p.add(first)
		second := op{kind: opSchedule, at: pick(p.between(at, due), near), key: key, timer: p.number(), mode: modeOK}
		second.due = p.between(second.at, max(p.Span, second.at+200*time.Millisecond))
		p.add(second)
		return
	case roll < 140: // cancelled: in time, or when it is due
		p.add(first)
		p.add(op{kind: opCancel, at: pick(p.between(at, due), near), key: key})
		return
	case roll < 190: // moved to later: in time, or when it is due
		p.add(first)
		p.add(op{kind: opMove, at: pick(p.between(at, due), near), key: key, timer: key, due: due + p.between(0, 2*time.Second)})
		return
	case roll < 200: // scheduled again, and both cancelled
		p.add(first)
		p.add(op{kind: opSchedule, at: p.between(at, due), key: key, timer: p.number(), due: due, mode: modeOK})
		p.add(op{kind: opCancel, at: due, key: key})
		return
	}
	for _, m := range modes {
		if roll < m.below {
			first.mode = m.mode
			break
		}
	}
	p.add(first)
}
