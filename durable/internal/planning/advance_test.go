package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/durable/store"
)

func every(period store.Millis) Times {
	return Times{Series: cron.Every{Period: time.Duration(period) * time.Millisecond}}
}

func cronTimes(t *testing.T, spec string) Times {
	s, err := cron.Parse(spec)
	require.NoError(t, err)
	return Times{Series: s}
}

// S4: occurrences each minute take 155 s, for ten minutes.
func TestOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		overlap            Overlap
		minutes            []int
		skipped, cancelled int
		waits              bool
	}{
		"skip":   {Skip, []int{1, 4, 7, 10}, 6, 0, false},
		"buffer": {BufferOne, []int{1, 2, 4, 7}, 5, 0, true}, // at 1:00, 3:35, 6:10 and 8:45; minute 9 waits until 11:20
		"cancel": {Cancel, count(1, 10), 0, 9, false},
		"allow":  {Allow, count(1, 10), 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, Rules{Times: every(minute), Overlap: c.overlap, CatchUp: hour})
			s.takes = 155 * second
			s.run(10*minute + 10*second)
			require.Equal(t, c.minutes, s.in(minute))
			require.Equal(t, Counts{Created: uint64(len(c.minutes)), SkippedOverlap: uint64(c.skipped)}, s.p.Counts)
			require.Equal(t, c.cancelled, int(s.h.Cancelled))
			require.Equal(t, c.waits, s.p.Waits())
		})
	}
}

// S5: a store that was down for a day, or had no worker for it.
func TestMissed(t *testing.T) {
	for name, c := range map[string]struct {
		rules   Rules
		hours   []int // planned times that run after a day and 30 minutes without a worker
		skipped int
	}{
		"latest":             {Rules{CatchUp: hour}, []int{24}, 23},
		"latest, at the end": {Rules{CatchUp: 30 * minute}, []int{24}, 23},
		"latest, too old":    {Rules{CatchUp: 29 * minute}, nil, 24},
		"none":               {Rules{CatchUp: 0}, nil, 24},
		"all":                {Rules{All: true, CatchUp: 3 * hour}, []int{22, 23, 24}, 21},
		"all, at the end":    {Rules{All: true, CatchUp: 150 * minute}, []int{22, 23, 24}, 21},
		"all, too old":       {Rules{All: true, CatchUp: 29 * minute}, nil, 24},
		"all, side by side":  {Rules{All: true, CatchUp: 24 * hour, Overlap: Allow, Batch: 7}, count(1, 24), 0},
		"all, one by one":    {Rules{All: true, CatchUp: 1000 * hour, Overlap: Cancel}, count(1, 24), 0},
		"all, within limit":  {Rules{All: true, CatchUp: 1000 * hour, Limit: 5}, count(1, 5), 0},
		"latest, within end": {Rules{CatchUp: 1000 * hour, Times: Times{End: at("07:30:00")}}, []int{7}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.rules
			r.Series = cronTimes(t, "0 * * * *").Series
			s := newSim(t, r)
			s.takes = 10 * second
			s.sleep(24*hour + 30*minute)
			s.run(10 * minute)
			require.Equal(t, c.hours, s.in(hour))
			require.Equal(t, Counts{Created: uint64(len(c.hours)), SkippedMissed: uint64(c.skipped)}, s.p.Counts)
			require.False(t, s.p.Waits())
			if r.Overlap == Allow {
				require.Equal(t, 24, s.most)
			} else {
				require.LessOrEqual(t, s.most, 1, "missed runs overlap")
			}
			s.run(20 * minute)
			if r.Limit == 0 && r.End == 0 {
				require.Equal(t, append(c.hours, 25), s.in(hour), "the plan goes on")
			} else {
				require.Equal(t, store.MaxMillis, s.due)
			}
		})
	}
}

// S5: a time that is late by a minute is not missed, if it is the only one.
func TestLate(t *testing.T) {
	for late, want := range map[store.Millis]int{minute: 1, minute + 1: 0} {
		for _, r := range []Rules{{}, {CatchUp: second}, {CatchUp: second, All: true}} {
			r.Times = every(hour)
			s := newSim(t, r)
			s.sleep(hour + late)
			s.run(0)
			require.Len(t, s.created, want)
			require.Equal(t, 1-want, s.step.Skipped)
		}
	}
}

// S10: an advance asks for the previous occurrence only if it is needed and not in the history.
func TestPreviousIsKnown(t *testing.T) {
	previous := Occurrence{Planned: begin}
	ended := store.History{Done: 1, Last: []store.Note{{Key: previous.Key("k\x00"), Outcome: store.OccurrenceDone}}}
	for name, c := range map[string]struct {
		rules    Rules
		previous store.Millis
		h        store.History
		now      store.Millis
		known    bool
	}{
		"the first one":    {Rules{}, 0, store.History{}, begin + hour, true},
		"in the history":   {Rules{}, begin, ended, begin + hour, true},
		"not in it":        {Rules{}, begin, store.History{}, begin + hour, false},
		"missed":           {Rules{All: true}, begin, store.History{}, begin + 2*hour, false},
		"skipped":          {Rules{CatchUp: -hour}, begin, store.History{}, begin + 90*minute, true},
		"overlaps allowed": {Rules{Overlap: Allow}, begin, store.History{}, begin + hour, true},
		"too early":        {Rules{}, begin, store.History{}, begin + minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.rules.Times, c.rules.Batch, c.rules.CatchUp = every(hour), 1, c.rules.CatchUp+hour
			_, _, known := Plan{c.rules, State{Cursor: begin, Previous: c.previous}}.Advance(c.now, &c.h, Unknown)
			require.Equal(t, c.known, known)
		})
	}
}

// S5: of more than a thousand missed times only the last thousand run. Times that pass while they
// run join them.
func TestThousandMissed(t *testing.T) {
	for _, overlap := range []Overlap{Skip, Allow} {
		for _, times := range []Times{every(minute), cronTimes(t, "* * * * *")} {
			s := newSim(t, Rules{Times: times, All: true, CatchUp: 1000 * hour, Overlap: overlap, Batch: 34})
			s.takes = 100
			s.sleep(1500*minute + 30*second)
			s.run(20 * second)
			if overlap == Skip {
				require.Equal(t, count(501, 700), s.in(minute)[:200])
				s.run(100 * second)
				require.Equal(t, count(501, 1502), s.in(minute))
			} else {
				require.Equal(t, count(501, 1500), s.in(minute))
				require.Equal(t, 1000, s.most)
			}
			require.Equal(t, 500, int(s.p.Counts.SkippedMissed))
			require.False(t, s.p.Waits())
		}
	}
}

// S5: setting the engine's clock back repeats nothing, and setting it ahead misses times.
func TestClockIsSet(t *testing.T) {
	s := newSim(t, Rules{Times: every(minute), CatchUp: hour})
	s.run(5*minute + second)
	s.now -= 3 * minute
	s.run(3 * minute)
	require.Equal(t, count(1, 5), s.in(minute))
	s.run(minute)
	require.Equal(t, count(1, 6), s.in(minute))
	s.now += hour
	s.run(second)
	require.Equal(t, append(count(1, 6), 66), s.in(minute))
	require.Equal(t, 59, int(s.p.Counts.SkippedMissed))
}

// S4: an occurrence that the engine has lost delays the one that waits for it by a minute.
func TestOccurrenceIsLost(t *testing.T) {
	s := newSim(t, Rules{Times: every(2 * hour), Overlap: BufferOne, CatchUp: hour, Limit: 2})
	s.takes = 100 * hour
	s.run(4*hour + second)
	require.Equal(t, []int{2}, s.in(hour))
	require.True(t, s.p.Waits())
	clear(s.running)
	s.run(minute)
	require.Equal(t, []int{2, 4}, s.in(hour))
	require.False(t, s.p.Waits())
	require.Equal(t, store.MaxMillis, s.due)
}

// PauseOnDead pauses before the next occurrence, for each dead letter once.
func TestPauseOnDead(t *testing.T) {
	s := newSim(t, Rules{Times: every(minute), PauseOnDead: true, CatchUp: hour})
	s.fails, s.takes = true, 5*second
	s.run(3 * minute)
	require.Equal(t, []int{1}, s.in(minute))
	require.Equal(t, begin+minute+5*second, s.p.Paused)
	require.Equal(t, "the occurrence k @ 2000-01-01T00:01:00Z is a dead letter: boom", s.p.PauseNote)
	require.Equal(t, store.MaxMillis, s.due)
	forgotten, _, _ := newSim(t, s.p.Rules).p.Advance(begin, &store.History{Dead: 1}, Unknown)
	require.Equal(t, "an occurrence is a dead letter", forgotten.PauseNote)
	s.p.Paused, s.p.PauseNote, s.fails = 0, "", false
	s.advance()
	s.run(minute)
	require.Equal(t, []int{1, 3, 4}, s.in(minute))
}

// A plan remembers the last occurrences that have not ended.
func TestUnfinished(t *testing.T) {
	s := newSim(t, Rules{Times: every(minute), Overlap: Allow})
	s.takes = hour
	s.run(12 * minute)
	require.Len(t, s.p.Unfinished, store.MaxNotes)
	require.Equal(t, begin+3*minute, s.p.Unfinished[0].Planned)
	s.end(s.p.Unfinished[1], store.OccurrenceDone)
	s.run(minute - 1)
	require.Equal(t, begin+4*minute, s.p.Unfinished[1].Planned, "until the next advance")
	s.run(1)
	require.Equal(t, []store.Millis{begin + 3*minute, begin + 5*minute}, []store.Millis{s.p.Unfinished[0].Planned, s.p.Unfinished[1].Planned})

	one := Plan{State: State{Unfinished: make([]Occurrence, 1, 4)}}
	other := one
	one.Remember(Occurrence{Number: 1})
	other.Remember(Occurrence{Number: 2})
	require.Equal(t, Occurrence{Number: 1}, one.Unfinished[1], "plans share an array")
}
