package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// recurrence has the planned times of a schedule, and the other fields of a PUT. The tour computes
// the planned times on its own. Durations are in ms, and times in ms since 1970.
type recurrence struct {
	Every   int64  `json:"every"`
	Offset  int64  `json:"offset"`
	Jitter  int64  `json:"jitter,omitempty"`
	Overlap string `json:"overlap"`
	Missed  string `json:"missed"`
	CatchUp int64  `json:"catch_up,omitempty"` // 0: the default, which is longer than a tour
	End     int64  `json:"end"`
}

// next returns the first planned time after a time, regardless of End.
func (r recurrence) next(after int64) int64 {
	at := after - after%r.Every + r.Offset
	for at > after {
		at -= r.Every
	}
	return at + r.Every
}

// count returns the number of planned times after a time, up to and including another.
func (r recurrence) count(after, until int64) (n int) {
	for at := r.next(after); at <= min(until, r.End); at = r.next(at) {
		n++
	}
	return n
}

func (r recurrence) includes(at int64) bool { return r.count(at-1, at) == 1 }

func (r recurrence) sameTimes(other recurrence) bool {
	return r.Every == other.Every && r.Offset == other.Offset
}

func scheduleName(key int) string { return fmt.Sprintf("report-%d", key) }

var (
	overlapPolicies = []string{"skip", "buffer_one", "cancel", "allow"}
	missedPolicies  = []string{"latest", "none", "all"}
)

// recurringModes are the modes of schedules, as modes are those of timers.
var recurringModes = []struct {
	below int // of 1,000
	mode  mode
}{{150, modeBusy}, {270, modeSlow}, {350, modeFlaky}, {370, modeHang}, {375, modeFatal}}

// planSchedules draws the operations on the schedules of one scheduler, in order of time. Each
// scheduler has every Schedulers-th number. A number stands for a schedule from its creation to its
// deletion; a schedule created again under the key of a deleted one has a number above all first
// ones.
func (l load) planSchedules(i int) (ops []op) {
	rng := rand.New(rand.NewPCG(l.Seed, 1<<33+uint64(i)))
	between := func(from, to float64) time.Duration { // in parts of the span
		return time.Duration((from + rng.Float64()*max(to-from, 0)) * float64(l.Span))
	}
	part := func(d time.Duration) float64 { return float64(d) / float64(l.Span) }
	for number := i + 1; number <= l.Schedules; number += l.Schedulers {
		o := op{kind: opPut, at: between(0, 0.25), key: l.Timers + number, timer: number, mode: modeOK}
		if rng.IntN(20) == 0 {
			o.at = between(0.25, 0.7)
		}
		roll := rng.IntN(1000)
		for _, m := range recurringModes {
			if roll < m.below {
				o.mode = m.mode
				break
			}
		}
		o.recurs = drawRecurrence(rng)
		ops = append(ops, o)
		later := o
		later.at = between(part(o.at), 0.85)
		switch roll := rng.IntN(100); {
		case roll < 20: // deleted, and perhaps created again
			later.kind, later.cancel = opDelete, rng.IntN(2) == 0
			ops = append(ops, later)
			if rng.IntN(3) == 0 {
				again := o
				again.at, again.timer, again.recurs = later.at+between(0, 0.05), l.Schedules+number, drawRecurrence(rng)
				ops = append(ops, again)
			}
		case roll < 40: // paused and resumed, and perhaps replaced or deleted in between
			later.kind = opPause
			resume := later
			resume.kind, resume.at = opResume, between(part(later.at), 0.9)
			ops = append(ops, later)
			switch rng.IntN(6) {
			case 0:
				resume.kind = opDelete
			case 1:
				ops = append(ops, replaced(rng, o, later.at+(resume.at-later.at)/2))
			}
			ops = append(ops, resume)
		case roll < 60: // replaced, some twice
			ops = append(ops, replaced(rng, o, later.at))
			if rng.IntN(4) == 0 {
				ops = append(ops, replaced(rng, o, between(part(later.at), 0.9)))
			}
		}
	}
	slices.SortStableFunc(ops, func(a, b op) int { return cmp.Compare(a.at, b.at) })
	return ops
}

// replaced returns the put that replaces o's schedule: with other planned times, or only with
// another policy.
func replaced(rng *rand.Rand, o op, at time.Duration) op {
	r := drawRecurrence(rng)
	if rng.IntN(2) == 0 {
		r.Every, r.Offset = o.recurs.Every, o.recurs.Offset
		r.Jitter = min(r.Jitter, r.Every-1)
	}
	o.recurs, o.at = r, at
	return o
}

func drawRecurrence(rng *rand.Rand) recurrence {
	r := recurrence{Every: 1000 + rng.Int64N(4001), Overlap: overlapPolicies[rng.IntN(len(overlapPolicies))], Missed: missedPolicies[rng.IntN(len(missedPolicies))]}
	if rng.IntN(4) == 0 { // many schedules share planned times
		r.Every = cmp.Or(r.Every/1000, 1) * 1000
	} else {
		r.Offset = rng.Int64N(r.Every)
	}
	if rng.IntN(3) == 0 {
		r.Jitter = 1 + rng.Int64N(r.Every/2)
	}
	if rng.IntN(3) == 0 {
		r.CatchUp = 1000 + rng.Int64N(4000)
	}
	return r
}
