package cron

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"
)

// naive is the oracle's form of a spec: the values that each field allows, without a parser.
type naive struct {
	text                               string
	minutes, hours, days, months, week set
	starHours, starDays, starOfWeeks   bool
}

// set says for each value whether a field allows it.
type set [60]bool

// names reports whether the spec names a wall clock, given as a time in UTC.
func (n *naive) names(wall time.Time) bool {
	if wall.Second() != 0 || !n.minutes[wall.Minute()] || !n.hours[wall.Hour()] || !n.months[int(wall.Month())] {
		return false
	}
	day, week := n.days[wall.Day()], n.week[int(wall.Weekday())]
	if n.starDays || n.starOfWeeks {
		return day && week
	}
	return day || week
}

// randomField returns a field, and its values from min to max.
func randomField(rnd *rand.Rand, min, max int) (text string, values set, star bool) {
	n := max - min + 1
	switch rnd.IntN(6) {
	case 0, 1:
		text, star = []string{"*", "?"}[rnd.IntN(2)], true
		for v := min; v <= max; v++ {
			values[v] = true
		}
		return text, values, star
	case 2:
		step := 1 + rnd.IntN(n)
		for v := min; v <= max; v += step {
			values[v] = true
		}
		return fmt.Sprintf("*/%d", step), values, true
	}
	var elements []string
	for range 1 + rnd.IntN(3) {
		from, step := min+rnd.IntN(n), 1+rnd.IntN(n)
		to := from + rnd.IntN(max-from+1)
		switch rnd.IntN(4) {
		case 0:
			elements = append(elements, fmt.Sprintf("%d-%d", from, to))
			step = 1
		case 1:
			elements = append(elements, fmt.Sprintf("%d-%d/%d", from, to, step))
		case 2:
			elements = append(elements, fmt.Sprintf("%d/%d", from, step))
			to = max
		default:
			elements = append(elements, fmt.Sprint(from))
			to = from
		}
		for v := from; v <= to; v += step {
			values[v] = true
		}
	}
	return strings.Join(elements, ","), values, false
}

// randomSpec returns a spec. Most run on many days.
func randomSpec(rnd *rand.Rand) *naive {
	var n naive
	var texts [5]string
	texts[0], n.minutes, _ = randomField(rnd, 0, 59)
	texts[1], n.hours, n.starHours = randomField(rnd, 0, 23)
	if rnd.IntN(2) == 0 { // at hours of clock changes
		texts[1], n.hours, n.starHours = "0-3", set{true, true, true, true}, false
	}
	texts[2], n.days, n.starDays = randomField(rnd, 1, 31)
	texts[3], n.months, _ = randomField(rnd, 1, 12)
	texts[4], n.week, n.starOfWeeks = randomField(rnd, 0, 6)
	for i, most := range []int{2: 31, 3: 12, 4: 6} { // in order, so that a seed always draws the same
		if most == 0 || rnd.IntN(3) == 0 {
			continue
		}
		values := set{}
		for v := range most + 1 {
			values[v] = true
		}
		texts[i] = "*"
		switch i {
		case 2:
			n.days, n.starDays = values, true
		case 3:
			n.months = values
		case 4:
			n.week, n.starOfWeeks = values, true
		}
	}
	n.text = strings.Join(texts[:], " ")
	return &n
}

// span is real time, step by step, with the wall clock of each step.
type span struct {
	zone  *time.Location
	step  time.Duration
	times []time.Time
	walls []time.Time // in UTC
}

func newSpan(zone *time.Location, from time.Time, length, step time.Duration) *span {
	s := &span{zone: zone, step: step}
	for t := from.In(zone); t.Before(from.Add(length)); t = t.Add(step) {
		s.times = append(s.times, t)
		s.walls = append(s.walls, time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC))
	}
	return s
}

// runs returns the times at which a spec runs, except at the first step.
func (s *span) runs(n *naive) (runs []time.Time) {
	highest := s.walls[0] // the latest wall clock so far
	for i, wall := range s.walls[1:] {
		run := false
		if n.starHours {
			run = n.names(wall)
		} else {
			for ; highest.Before(wall); run = n.names(highest) || run {
				highest = highest.Add(s.step)
			}
		}
		if run {
			runs = append(runs, s.times[i+1])
		}
	}
	return runs
}

// check compares Next with the oracle, from the start on and from random times. The oracle does
// not know the time before its start, so the first two days do not count.
func (s *span) check(t *testing.T, rnd *rand.Rand, n *naive) (count int) {
	t.Helper()
	spec, err := Parse(n.text)
	if err != nil {
		require.ErrorContains(t, err, "never matches")
		require.Empty(t, s.runs(n), n.text)
		return 0
	}
	begin, end := s.times[0].Add(48*time.Hour), s.times[len(s.times)-1]
	runs := s.runs(n)
	for len(runs) > 0 && !runs[0].After(begin) {
		runs = runs[1:]
	}
	at := begin
	for _, run := range runs {
		next := spec.Next(at)
		if !next.Equal(run) {
			t.Fatalf("%s: %q after %v is %v, must be %v", s.zone, n.text, at, next, run)
		}
		at = next
	}
	if next := spec.Next(at); !next.IsZero() && !next.After(end) {
		t.Fatalf("%s: %q after %v is %v, must be none up to %v", s.zone, n.text, at, next, end)
	}
	for range 10 {
		at := begin.Add(time.Duration(rnd.Int64N(int64(end.Sub(begin)))))
		for _, run := range runs {
			if run.After(at) {
				if next := spec.In(s.zone).Next(at.UTC()); !next.Equal(run) {
					t.Fatalf("%s: %q after %v is %v, must be %v", s.zone, n.text, at, next, run)
				}
				break
			}
		}
	}
	return len(runs)
}

// changes returns the times in some years at which a zone's offset changes.
func changes(zone *time.Location, years ...int) (all []time.Time) {
	for _, year := range years {
		offsetOf := func(t time.Time) int { _, offset := t.In(zone).Zone(); return offset }
		begin := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		before := offsetOf(begin)
		for t := begin; t.Year() == year; t = t.Add(30 * time.Minute) {
			if offset := offsetOf(t); offset != before {
				all, before = append(all, t), offset
			}
		}
	}
	return all
}

var zones = []string{
	"UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia",
	"Africa/Cairo", "Africa/Casablanca", "Antarctica/Troll", "America/Sao_Paulo", "America/Nuuk",
	"Asia/Kolkata", "Pacific/Kwajalein",
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// Next agrees with a walk through real time, minute by minute, around the clock changes of many
// zones, on days without a change, and at the end of a leap year.
func TestOracle(t *testing.T) {
	t.Parallel()
	for i, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone := zone(t, name)
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			starts := append(changes(zone, 1969, 1993, 2011, 2016, 2026, 2040),
				time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), time.Date(2040, 12, 31, 0, 0, 0, 0, time.UTC))
			count := 0
			for _, change := range starts {
				s := newSpan(zone, change.Add(-4*24*time.Hour), 7*24*time.Hour, time.Minute)
				for range 12 {
					count += s.check(t, rnd, randomSpec(rnd))
				}
			}
			require.Greater(t, count, 500)
		})
	}
}

// Offsets need not be whole minutes: those of Monrovia, until 1972, and of Dublin, in 1916, end
// in 30 and in 39 seconds.
func TestOracleSeconds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]time.Time{
		"Africa/Monrovia": time.Date(1972, 1, 7, 0, 44, 30, 0, time.UTC),
		"Europe/Dublin":   time.Date(1916, 5, 21, 2, 25, 21, 0, time.UTC),
	} {
		zone := zone(t, name)
		rnd := rand.New(rand.NewPCG(2, 3))
		s := newSpan(zone, change.Add(-49*time.Hour), 51*time.Hour, time.Second)
		require.NotZero(t, s.walls[0].Second()+s.walls[len(s.walls)-1].Second())
		count := 0
		for range 4 {
			count += s.check(t, rnd, randomSpec(rnd))
		}
		require.NotZero(t, count)
	}
}
