package cron

import (
	"fmt"
	"time"
)

// Every is a schedule with a fixed period. Its times are the Unix epoch, 1 January 1970 in UTC,
// plus Offset plus a multiple of Period. They depend on nothing else, so all processes agree on
// them, also after a restart. The arithmetic is exact. Clock changes of a time zone have no
// effect: with a period of 24 hours the wall-clock time differs between summer and winter.
//
// An Every that [Every.Check] rejects never matches.
type Every struct {
	// Period is the time from one run to the next: 1 s to 3650 days, in whole milliseconds. It
	// has no default.
	Period time.Duration
	// Offset is the time of the first run after the epoch: at least 0 and less than Period, in
	// whole milliseconds. The default is 0.
	Offset time.Duration
}

const (
	minPeriod = time.Second
	maxPeriod = 3650 * 24 * time.Hour
)

// Check returns an error if a field is out of range. The error names the field, its value and
// its range.
func (e Every) Check() error {
	switch {
	case e.Period < minPeriod || e.Period > maxPeriod:
		return fmt.Errorf("cron: Every.Period is %v, must be %v to %v (3650 days)", e.Period, minPeriod, maxPeriod)
	case e.Period%time.Millisecond != 0:
		return fmt.Errorf("cron: Every.Period is %v, must be whole milliseconds", e.Period)
	case e.Offset < 0 || e.Offset >= e.Period:
		return fmt.Errorf("cron: Every.Offset is %v, must be 0 to below the period, %v", e.Offset, e.Period)
	case e.Offset%time.Millisecond != 0:
		return fmt.Errorf("cron: Every.Offset is %v, must be whole milliseconds", e.Offset)
	}
	return nil
}

// Next returns the first planned time after a time, in the location of that time. It returns the
// zero time if there is none before the year 2263, and for an Every that Check rejects. It takes
// some nanoseconds and allocates nothing.
func (e Every) Next(after time.Time) time.Time {
	if e.Check() != nil {
		return time.Time{}
	}
	period, offset := e.Period.Milliseconds(), e.Offset.Milliseconds()
	// UnixMilli rounds down, so a time within a millisecond is after that millisecond's start,
	// too.
	since := after.UnixMilli() - offset
	run := since / period
	if since%period < 0 {
		run-- // rounded down, not towards 0
	}
	next := time.UnixMilli((run+1)*period + offset).In(after.Location())
	if next.Year() > lastYear {
		return time.Time{}
	}
	return next
}
