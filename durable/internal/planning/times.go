package planning

import (
	"cmp"
	"math"
	"time"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Times are the planned times of a schedule, a strictly increasing sequence.
type Times struct {
	Series     interface{ Next(time.Time) time.Time } // a cron.Spec or a cron.Every
	Zone       *time.Location                         // nil: UTC
	Start, End store.Millis                           // 0: no bound
}

// After returns the first planned time after a time; 0 if there is none.
func (t *Times) After(after store.Millis) store.Millis {
	after = max(after, t.Start-1, 0)
	next := t.Series.Next(t.Local(after))
	at := store.Millis(next.UnixMilli())
	if next.IsZero() || at > store.MaxMillis || t.End != 0 && at > t.End {
		return 0
	}
	return at
}

// Upcoming returns the first n planned times after a time.
func (t *Times) Upcoming(after store.Millis, n int) []time.Time {
	times := make([]time.Time, 0, n)
	for len(times) < n {
		if after = t.After(after); after == 0 {
			break
		}
		times = append(times, t.Local(after))
	}
	return times
}

// Local returns a planned time in the schedule's zone.
func (t *Times) Local(at store.Millis) time.Time { return at.Time().In(cmp.Or(t.Zone, time.UTC)) }

// Passed returns how many planned times there are after one time and up to another, inclusive, and
// the last of them, at most keep. It takes a step for each, except with a cron.Every.
func (t *Times) Passed(after, until store.Millis, keep int) (n int, last []store.Millis) {
	if every, ok := t.Series.(cron.Every); ok {
		after, until = max(after, t.Start-1, -1), min(until, cmp.Or(t.End, until))
		period, offset := store.MillisOf(every.Period), store.MillisOf(every.Offset)
		// Times 0 to i-1 are up to a time of -1 or later.
		from, to := (after-offset+period)/period, (until-offset+period)/period
		n = int(max(to-from, 0))
		for i := to - store.Millis(min(n, keep)); i < to; i++ {
			last = append(last, i*period+offset)
		}
		return n, last
	}
	for at := t.After(after); at != 0 && at <= until; at = t.After(at) {
		n++
		if len(last) == 2*keep {
			last = append(last[:0], last[keep:]...)
		}
		last = append(last, at)
	}
	return n, last[max(len(last)-keep, 0):]
}

// Shortest returns the shortest time between the first n planned times after a time.
func (t *Times) Shortest(after store.Millis, n int) time.Duration {
	if every, ok := t.Series.(cron.Every); ok {
		return every.Period
	}
	shortest := time.Duration(math.MaxInt64)
	last := t.After(after)
	for range n {
		at := t.After(last)
		if last == 0 || at == 0 {
			break
		}
		shortest = min(shortest, time.Duration(at-last)*time.Millisecond)
		last = at
	}
	return shortest
}
