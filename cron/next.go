package cron

import (
	"math"
	"math/bits"
	"time"
)

const (
	minute = 60
	day    = 24 * 60 * minute
	// lastYear limits each search. A spec that can match does so within 40 years; the rules of
	// time zones are not known that far ahead anyway.
	lastYear = 2262
	// longestStep is more than the largest step by which a zone's clocks have been set back: 24
	// hours, where a zone changed its side of the date line.
	longestStep = 2 * day
)

// Next returns the first planned time after a time, in the location of that time. It returns the
// zero time if there is none before the year 2263, and for the zero Spec. The package comment
// describes clock changes.
//
// It takes less than a microsecond, or some microseconds if the spec next matches years ahead,
// and allocates nothing.
func (s Spec) Next(after time.Time) time.Time {
	if s.minutes == 0 || after.Year() > lastYear {
		return time.Time{}
	}
	loc := after.Location()
	next := s.nextFixed
	if s.elapsed {
		next = s.nextElapsed
	}
	unix, ok := next(after.Unix(), loc)
	if !ok {
		return time.Time{}
	}
	return time.Unix(unix, 0).In(loc)
}

// Zoned is a spec in a time zone, returned by [Spec.In]. The zero Zoned never matches.
type Zoned struct {
	spec Spec
	loc  *time.Location
}

// In binds a spec to a time zone: its times are those of the zone's wall clock, regardless of
// the location of Next's argument. It panics if loc is nil.
func (s Spec) In(loc *time.Location) Zoned {
	if loc == nil {
		panic("cron: the location of Spec.In is nil")
	}
	return Zoned{s, loc}
}

// Next is like [Spec.Next] in the zone of z, and returns a time in that zone.
func (z Zoned) Next(after time.Time) time.Time {
	if z.loc == nil {
		return time.Time{}
	}
	return z.spec.Next(after.In(z.loc))
}

// Times below are Unix seconds. A wall clock is a time plus the zone's offset at that time, so
// it is the Unix time at which a clock in UTC shows the same.

// nextElapsed returns the first time after a time at which the wall clock matches.
func (s Spec) nextElapsed(after int64, loc *time.Location) (int64, bool) {
	p := periodAt(after, loc)
	wall, ok := s.nextWall(after + p.offset)
	for ok && !p.reaches(wall) {
		p = p.next()
		wall, ok = s.nextWall(p.start + p.offset - 1) // the first wall clock may match
	}
	return wall - p.offset, ok
}

// nextFixed returns the time at which the next named wall clock is reached for the
// first time. A wall clock that does not exist is reached at the end of its gap.
func (s Spec) nextFixed(after int64, loc *time.Location) (int64, bool) {
	// If the clocks were set back recently, the wall clock was ahead of its present value
	// before.
	p := periodAt(after-longestStep, loc)
	reached := int64(math.MinInt64)
	for p.end <= after {
		reached = max(reached, p.end+p.offset-1) // the period excludes its end
		p = p.next()
	}
	wall, ok := s.nextWall(max(reached, after+p.offset))
	if !ok {
		return 0, false
	}
	for !p.reaches(wall) {
		p = p.next()
	}
	return max(p.start, wall-p.offset), true
}

// period is a time span in which a zone has one offset.
type period struct {
	start, end int64 // end is exclusive
	offset     int64 // seconds east of UTC
	loc        *time.Location
}

// periodAt returns the period that begins at a time, or the rest of the period around that time.
func periodAt(start int64, loc *time.Location) period {
	t := time.Unix(start, 0).In(loc)
	_, offset := t.Zone()
	p := period{start, math.MaxInt64, int64(offset), loc}
	if _, end := t.ZoneBounds(); !end.IsZero() {
		p.end = end.Unix()
	}
	if p.end <= start {
		// On 31 December of a leap year ZoneBounds may return that day's start in UTC
		// (golang/go#81583). The offset holds until the day's end.
		p.end = start - start%day + day
	}
	return p
}

func (p period) next() period { return periodAt(p.end, p.loc) }

// reaches reports whether the wall clock reaches a time before the end of the period.
func (p period) reaches(wall int64) bool { return wall-p.offset < p.end }

// nextWall returns the first whole minute named by the spec after a wall clock.
func (s Spec) nextWall(wall int64) (int64, bool) {
	clock := time.Unix(wall, 0).UTC()
	year, month, date := clock.Date()
	midnight := wall - int64(clock.Hour()*3600+clock.Minute()*60+clock.Second())
	if s.daysOf(year, int(month))>>date&1 != 0 {
		if m, ok := s.minuteFrom(clock.Hour(), clock.Minute()+1); ok {
			return midnight + int64(m)*minute, true
		}
	}
	rest := uint32(math.MaxUint32) << date << 1 // the days after date
	for m := int(month); year <= lastYear; year++ {
		for ; m <= 12; m++ {
			if days := s.daysOf(year, m) & rest; days != 0 {
				first, _ := s.minuteFrom(0, 0)
				return time.Date(year, time.Month(m), bits.TrailingZeros32(days), 0, first, 0, 0, time.UTC).Unix(), true
			}
			rest = math.MaxUint32
		}
		m = 1
	}
	return 0, false
}

// minuteFrom returns the first named minute of a day at or after hour:minute, in minutes since
// midnight. minute may be 60.
func (s Spec) minuteFrom(hour, minute int) (int, bool) {
	if minutes := s.minutes >> minute << minute; s.hours>>hour&1 != 0 && minutes != 0 {
		return hour*60 + bits.TrailingZeros64(minutes), true
	}
	hours := s.hours >> (hour + 1) << (hour + 1)
	return bits.TrailingZeros32(hours)*60 + bits.TrailingZeros64(s.minutes), hours != 0
}

// daysOf returns the matching days of a month: bit n for day n.
func (s Spec) daysOf(year, month int) uint32 {
	if s.months>>month&1 == 0 {
		return 0
	}
	// Bit n of weeks is the bit of day n%7 of the week.
	weeks := uint64(s.week) * (1 + 1<<7 + 1<<14 + 1<<21 + 1<<28 + 1<<35)
	first := time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC).Weekday()
	ofWeek := uint32(weeks >> first << 1)
	days := s.days & ofWeek
	if s.eitherDay {
		days = s.days | ofWeek
	}
	return days & (1<<(daysIn(year, month)+1) - 2)
}

// daysIn returns the number of days in a month.
func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}
