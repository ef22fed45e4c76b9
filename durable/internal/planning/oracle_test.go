package planning

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/durable/store"
)

// oracle decides like a plan, from the text of S4 and S5. It visits every second, and keeps the
// times that wait in lists.
type oracle struct {
	Rules
	planned func(store.Millis) bool
	done    store.Millis // times up to this one have been decided
	queue   []store.Millis
	buffer  []store.Millis
	paused  bool
	dead    uint64
	counts  Counts

	create []store.Millis // by this advance
	cancel bool
	more   bool
}

// between returns the planned times after one time and up to another.
func (o *oracle) between(after, until store.Millis) (times []store.Millis) {
	for at := after/second*second + second; at <= until; at += second {
		if at >= o.Start && (o.End == 0 || at <= o.End) && o.planned(at) {
			times = append(times, at)
		}
	}
	return times
}

func (o *oracle) left() bool {
	return o.Limit == 0 || int(o.counts.Created)+len(o.buffer) < o.Limit
}

func (o *oracle) advance(now store.Millis, h *store.History, pending bool) {
	o.create, o.cancel, o.more = nil, false, false
	o.paused = o.paused || o.PauseOnDead && h.Dead > o.dead
	o.dead = h.Dead
	if o.paused {
		return
	}
	start := func(at store.Millis) {
		o.create = append(o.create, at)
		o.counts.Created++
		pending = true
	}
	if len(o.buffer) > 0 && !pending {
		at := o.buffer[0]
		o.buffer = nil
		start(at)
	}
	if !o.left() {
		o.queue = nil
		return
	}
	passed := o.between(o.done, now)
	if len(passed) == 0 {
		return
	}
	last := passed[len(passed)-1]
	late := now - last
	switch {
	case len(o.queue) > 0:
		o.queue = passed
	case o.All && (len(passed) > 1 || late > minute):
		for _, at := range passed {
			if now-at <= o.CatchUp {
				o.queue = append(o.queue, at)
			} else {
				o.counts.SkippedMissed++
				o.done = at
			}
		}
	default:
		o.counts.SkippedMissed += uint64(len(passed) - 1)
		o.done = last
		switch {
		case late > minute && late > o.CatchUp:
			o.counts.SkippedMissed++
		case o.Overlap == Allow || !pending:
			start(last)
		case o.Overlap == BufferOne && len(o.buffer) == 0:
			o.buffer = []store.Millis{last}
		case o.Overlap == Cancel:
			o.cancel = true
			start(last)
		default:
			o.counts.SkippedOverlap++
		}
		return
	}
	for len(o.queue) > 1000 {
		o.counts.SkippedMissed++
		o.done, o.queue = o.queue[0], o.queue[1:]
	}
	for len(o.queue) > 0 && o.left() && len(o.create) < o.Batch && (o.Overlap == Allow || !pending) {
		o.done = o.queue[0]
		start(o.done)
		o.queue = o.queue[1:]
	}
	if !o.left() {
		o.queue = nil
	}
	o.more = len(o.queue) > 0 && len(o.create) == o.Batch
}

// wait returns when the plan is due next, and which ends wake it.
func (o *oracle) wait(now store.Millis, h *store.History) (store.Millis, store.Wake, uint64) {
	due := store.MaxMillis
	if o.paused {
		return due, store.WakeNever, 0
	}
	for at := max(o.done, now, o.Start-second); o.left() && due == store.MaxMillis && (o.End == 0 || at < o.End); at += second {
		if next := o.between(at, at+second); len(next) > 0 {
			due = next[0]
		}
	}
	if o.more {
		due = now
	}
	switch {
	case len(o.queue)+len(o.buffer) > 0:
		return min(due, now+minute), store.WakeOnEnd, h.Ended()
	case o.PauseOnDead:
		return due, store.WakeOnDead, h.Dead
	}
	return due, store.WakeNever, 0
}

// randomRules returns rules, and a function that reports whether a time is planned.
func randomRules(rnd *rand.Rand) (r Rules, planned func(store.Millis) bool) {
	r = Rules{
		Overlap: Overlap(rnd.IntN(4)), All: rnd.IntN(3) == 0, PauseOnDead: rnd.IntN(6) == 0,
		CatchUp: second * store.Millis(rnd.IntN(2)*rnd.IntN(6000)), Batch: 1 + rnd.IntN(100),
	}
	if rnd.IntN(3) == 0 {
		r.Limit = 1 + rnd.IntN(50)
	}
	if rnd.IntN(3) == 0 {
		r.Start = begin + second*store.Millis(rnd.IntN(1000))
	}
	if rnd.IntN(4) == 0 {
		r.End = begin + hour + second*store.Millis(rnd.IntN(10000))
	}
	if rnd.IntN(3) == 0 {
		r.Series, _ = cron.Parse("*/7 * * * *")
		return r, func(at store.Millis) bool { return at%minute == 0 && at/minute%60%7 == 0 }
	}
	period := second * store.Millis(1+rnd.IntN(200))
	offset := second * store.Millis(rnd.IntN(int(period/second)))
	r.Series = cron.Every{Period: time.Duration(period) * time.Millisecond, Offset: time.Duration(offset) * time.Millisecond}
	return r, func(at store.Millis) bool { return (at-offset)%period == 0 }
}

// S2, S4, S5: a plan that advances when it is due, too late or too early, while occurrences end and
// the clock is set, decides as the oracle does, and each planned time once.
func TestAdvance(t *testing.T) {
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r, planned := randomRules(rnd)
		s := newSim(t, r)
		o := &oracle{Rules: s.p.Rules, planned: planned, done: begin}
		for range 60 {
			s.takes = second * store.Millis(rnd.IntN(300)) * store.Millis(rnd.IntN(2))
			s.fails = rnd.IntN(20) == 0
			switch rnd.IntN(12) {
			case 0: // an outage
				s.sleep(second * store.Millis(rnd.IntN(1<<rnd.IntN(16))))
			case 1:
				s.now -= second * store.Millis(rnd.IntN(300))
			case 2:
				s.sleep(store.Millis(rnd.IntN(int(minute))))
			case 3:
				s.p.Paused, s.p.PauseNote, o.paused = 0, "", false
			default:
				s.sleep(min(max(s.due-s.now, 0), hour))
			}
			requireSame(t, s, o, seed)
		}
		all := len(o.between(begin, s.p.Cursor))
		c := s.p.Counts
		require.Equal(t, all, int(c.Created+c.SkippedMissed+c.SkippedOverlap)+len(o.buffer), "seed %d", seed)
		require.Equal(t, slices.Compact(slices.Sorted(slices.Values(s.created))), s.created, "seed %d", seed)
	}
}

// requireSame advances the plan and the oracle.
func requireSame(t *testing.T, s *sim, o *oracle, seed uint64) {
	before := s.p
	before.Unfinished = slices.Clone(before.Unfinished)
	h, old, cancelled := s.h, s.p, s.h.Cancelled
	pending := s.p.Previous != 0 && s.previous() == Pending
	o.advance(s.now, &h, pending)
	due, wake, seen := o.wait(s.now, &h)
	n := len(s.created)
	s.advance()
	require.Equal(t, before, old, "seed %d: an advance changes its argument", seed)
	if blind, step, known := old.Advance(s.now, &h, Unknown); known {
		require.Equal(t, s.p, blind)
		for _, other := range []Previous{Pending, Ended} {
			p, with, _ := old.Advance(s.now, &h, other)
			require.Equal(t, []any{blind, step}, []any{p, with}, "seed %d: the decision depends on the previous occurrence", seed)
		}
	}
	require.Equal(t, o.create, append([]store.Millis(nil), s.created[n:]...), "seed %d", seed)
	require.Equal(t, o.counts, s.p.Counts, "seed %d", seed)
	require.Equal(t, o.cancel, s.h.Cancelled > cancelled, "seed %d", seed)
	require.Equal(t, o.paused, s.p.Paused != 0, "seed %d", seed)
	require.Equal(t, []any{due, wake, seen}, []any{s.step.Due, s.step.Wake, s.step.Seen}, "seed %d", seed)
	require.Equal(t, o.counts.SkippedMissed+o.counts.SkippedOverlap, before.Counts.SkippedMissed+before.Counts.SkippedOverlap+uint64(s.step.Skipped), "seed %d", seed)
}
