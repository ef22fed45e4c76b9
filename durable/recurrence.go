package durable

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/durable/internal/planning"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Schedule is a recurring timer: by a cron expression in a time zone, or with a fixed period. Each
// planned time creates one occurrence, which is a timer like any other. See [Timers.PutSchedule].
type Schedule struct {
	// Key names the schedule: 1 to 480 bytes of any value but zero. Schedules and timers have
	// separate keys: a schedule and a timer can have the same one.
	Key string

	// Cron defines the planned times, in the syntax of package cron: five fields, or "@daily" and
	// the like. A spec with fixed hours runs each wall-clock time that it names once a day, also
	// when the clocks change; see package cron.
	Cron string
	// Zone is the time zone of Cron, an IANA name such as "Europe/Berlin". Default UTC. All
	// processes that use the store must know it.
	Zone string
	// Every is the period of a schedule without Cron: 1 s to 3,650 days, whole milliseconds.
	// Occurrences are planned at Offset after the multiples of Every since 1970, UTC, so neither
	// restarts nor lateness shift them. Offset is 0 to less than Every.
	Every  time.Duration
	Offset time.Duration

	// Start and End bound the planned times, both included, rounded up to milliseconds. Zero:
	// no bound.
	Start time.Time
	End   time.Time
	// Limit is how many occurrences are planned, not counting skipped ones. Default 0: no bound.
	Limit int

	// Jitter delays each occurrence by a part of it, which is derived from the occurrence's ID, so
	// that schedules with the same planned times do not all run at once. The planned times do not
	// change. Jitter must be shorter than the time between any two planned times.
	Jitter time.Duration

	// Overlap decides what happens at a planned time when the previous occurrence has not ended.
	// Default OverlapSkip.
	Overlap Overlap
	// Missed decides what happens to planned times that no worker processed in time. Default
	// MissedLatest.
	Missed Missed
	// CatchUp is how long after a missed time it may still run. Default 1 h; 1 s to 3,650 days.
	CatchUp time.Duration

	// PauseOnDead pauses the schedule when an occurrence becomes a dead letter.
	PauseOnDead bool

	// Topic and Body are those of the occurrences: at most 128 bytes, and at most 60 KiB.
	Topic string
	Body  []byte

	// IfAbsent refuses a key that has a schedule.
	IfAbsent bool
}

// Overlap decides what happens at a planned time when the previous planned occurrence still waits,
// runs or is to be retried. A dead letter has ended. Occurrences that [Timers.TriggerSchedule] and
// [Timers.BackfillSchedule] create do not count.
type Overlap uint8

// The values of Overlap.
const (
	// OverlapSkip skips the new occurrence.
	OverlapSkip = Overlap(planning.Skip)
	// OverlapBufferOne creates it when the previous one ends. One can wait for that; further ones
	// are skipped.
	OverlapBufferOne = Overlap(planning.BufferOne)
	// OverlapCancel cancels the previous one, and creates the new one.
	OverlapCancel = Overlap(planning.Cancel)
	// OverlapAllow lets them run concurrently.
	OverlapAllow = Overlap(planning.Allow)
)

var overlapNames = []string{"skip", "buffer_one", "cancel", "allow"}

func (o Overlap) String() string { return wordOf("Overlap", overlapNames, o) }

// ParseOverlap is the reverse of String: "skip", "buffer_one", "cancel" or "allow".
func ParseOverlap(s string) (Overlap, error) { return parseWord[Overlap]("overlap", overlapNames, s) }

// Missed decides what happens to a missed planned time: one that no worker processed before the
// next planned time, or within a minute. Times are missed while no worker runs, while the schedule
// is paused, and when the engine's clock is set ahead. Setting that clock back repeats nothing.
type Missed uint8

// The values of Missed.
const (
	// MissedLatest runs the latest missed time, if it is within CatchUp, and skips the others.
	MissedLatest Missed = iota
	// MissedNone skips all missed times.
	MissedNone
	// MissedAll runs all missed times within CatchUp, the oldest first, but at most the last
	// 1,000. With OverlapAllow they run concurrently; otherwise each waits for the end of the
	// previous one.
	MissedAll
)

var missedNames = []string{"latest", "none", "all"}

func (m Missed) String() string { return wordOf("Missed", missedNames, m) }

// ParseMissed is the reverse of String: "latest", "none" or "all".
func ParseMissed(s string) (Missed, error) { return parseWord[Missed]("missed", missedNames, s) }

func wordOf[T ~uint8](typ string, words []string, v T) string {
	if int(v) < len(words) {
		return words[v]
	}
	return fmt.Sprintf("%s(%d)", typ, v)
}

func parseWord[T ~uint8](field string, words []string, s string) (T, error) {
	for i, w := range words {
		if s == w {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("durable: %s is %.64q, must be one of %s", field, s, strings.Join(words, ", "))
}

const (
	maxScheduleKey  = 480
	maxScheduleBody = 60 << 10
	defaultCatchUp  = time.Hour
	minCatchUp      = time.Second
	maxCatchUp      = 3650 * 24 * time.Hour
	maxZone         = 64
	maxCron         = 256
	maxUpcoming     = 1000
	// maxEntryBytes bounds the bodies of the occurrences of one swap, if there is more than one.
	maxEntryBytes = store.MaxClaim
)

// withDefaults sets defaults for zero fields, and returns the rules for planned times. The error
// names the field that is out of range, its value and the range.
func (s Schedule) withDefaults() (Schedule, planning.Rules, error) {
	s.CatchUp = cmp.Or(s.CatchUp, defaultCatchUp)
	if s.Cron != "" {
		s.Zone = cmp.Or(s.Zone, "UTC")
	}
	fail := func(field string, value any, must string, args ...any) (Schedule, planning.Rules, error) {
		if text, ok := value.(string); ok {
			value = fmt.Sprintf("%.64q", text)
		}
		return s, planning.Rules{}, &FieldError{Key: s.Key, Field: field, Value: fmt.Sprint(value), Range: fmt.Sprintf(must, args...)}
	}
	long := func(n int) any { return fmt.Errorf("%d bytes long", n) }
	if err := checkScheduleKey(s.Key); err != nil {
		return s, planning.Rules{}, err
	}
	switch {
	case len(s.Topic) > store.MaxTopic:
		return fail("Topic", long(len(s.Topic)), "at most %d", store.MaxTopic)
	case len(s.Body) > maxScheduleBody:
		return fail("Body", long(len(s.Body)), "at most %d", maxScheduleBody)
	case s.Limit < 0 || s.Limit > planning.MaxLimit:
		return fail("Limit", s.Limit, "0 (no bound) to %d", planning.MaxLimit)
	case s.Overlap > OverlapAllow:
		return fail("Overlap", uint8(s.Overlap), "%d to %d", OverlapSkip, OverlapAllow)
	case s.Missed > MissedAll:
		return fail("Missed", uint8(s.Missed), "%d to %d", MissedLatest, MissedAll)
	case s.CatchUp < minCatchUp || s.CatchUp > maxCatchUp:
		return fail("CatchUp", s.CatchUp, "%v to %v", minCatchUp, maxCatchUp)
	case s.Cron == "" && s.Every == 0:
		return fail("Cron", "", "a cron expression, or Every a period")
	case s.Cron != "" && s.Every != 0:
		return fail("Every", s.Every, "0 with Cron")
	case s.Every == 0 && s.Offset != 0:
		return fail("Offset", s.Offset, "0 without Every")
	case s.Cron == "" && s.Zone != "":
		return fail("Zone", s.Zone, "empty without Cron: Every follows UTC")
	case len(s.Cron) > maxCron:
		return fail("Cron", long(len(s.Cron)), "at most %d", maxCron)
	case len(s.Zone) > maxZone:
		return fail("Zone", long(len(s.Zone)), "at most %d", maxZone)
	}
	p := planning.Rules{
		Limit: s.Limit, Overlap: planning.Overlap(s.Overlap), All: s.Missed == MissedAll, PauseOnDead: s.PauseOnDead,
		Batch: max(min(store.MaxPlanEntries, maxEntryBytes/max(len(s.Body), 1)), 1),
	}
	if s.Missed != MissedNone {
		p.CatchUp = store.MillisOf(s.CatchUp)
	}
	if s.Cron != "" {
		spec, err := cron.Parse(s.Cron)
		if err != nil {
			return s, planning.Rules{}, &FieldError{Key: s.Key, Field: "Cron", Value: fmt.Sprintf("%.64q", s.Cron), Err: err}
		}
		p.Series = spec
		if s.Zone == "Local" {
			return fail("Zone", s.Zone, "an IANA name: all processes must agree on it")
		}
		if p.Zone, err = time.LoadLocation(s.Zone); err != nil {
			return fail("Zone", s.Zone, "an IANA name that this process knows")
		}
	} else {
		every := cron.Every{Period: s.Every, Offset: s.Offset}
		if err := every.Check(); err != nil {
			field, value := "Every", s.Every
			if (cron.Every{Period: s.Every}).Check() == nil {
				field, value = "Offset", s.Offset
			}
			return s, planning.Rules{}, &FieldError{Key: s.Key, Field: field, Value: value.String(), Err: err}
		}
		p.Series = every
	}
	earliest, latest := time.UnixMilli(0).UTC(), store.MaxMillis.Time()
	for _, bound := range []struct {
		field string
		at    time.Time
		to    *store.Millis
	}{{"Start", s.Start, &p.Start}, {"End", s.End, &p.End}} {
		if !bound.at.IsZero() && (bound.at.Before(earliest) || bound.at.After(latest)) {
			return fail(bound.field, bound.at, "%v to %v", earliest, latest)
		}
		*bound.to = boundOf(bound.at)
	}
	if p.End != 0 && p.End < p.Start {
		return fail("End", s.End, "at or after Start, %v", s.Start)
	}
	if p.End != 0 && p.After(p.Start-1) == 0 {
		return fail("End", s.End, "at or after the first planned time")
	}
	if s.Jitter != 0 {
		first := cmp.Or(p.Start, store.Millis(time.Now().UnixMilli()))
		if shortest := p.Shortest(first-1, maxUpcoming); s.Jitter < 0 || s.Jitter >= shortest {
			return fail("Jitter", s.Jitter, "0 to less than the shortest time between planned times, %v", shortest)
		}
	}
	return s, p, nil
}

// FieldError names the field of a [Schedule], or the time of a [Timers.BackfillSchedule], that is
// out of range.
type FieldError struct {
	Key          string // of the schedule
	Field        string // its name in Schedule; or From or To
	Value, Range string
	Err          error // instead of Range: the error of a Cron, Every, Offset, From or To; or nil
}

func (e *FieldError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("durable: schedule %.64q: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("durable: schedule %.64q: %s is %s, must be %s", e.Key, e.Field, e.Value, e.Range)
}

func (e *FieldError) Unwrap() error { return e.Err }

func checkScheduleKey(key string) error {
	if n := len(key); n < 1 || n > maxScheduleKey {
		return fmt.Errorf("durable: a schedule's key is %d bytes long, must be 1 to %d", n, maxScheduleKey)
	}
	if i := strings.IndexByte(key, 0); i >= 0 {
		return fmt.Errorf("durable: byte %d of the schedule's key %.64q is zero, must not be", i, key)
	}
	return nil
}

// boundOf converts Start or End to the engines' form, in which 0 is none.
func boundOf(at time.Time) store.Millis {
	if at.IsZero() {
		return 0
	}
	return max(store.MillisAt(at), 1)
}

// Upcoming returns the first n planned times after a time, fewer if Limit or End comes first: a
// preview without a store. n is 1 to 1,000. The times have the schedule's zone. The errors are
// those of [Timers.PutSchedule] about the schedule, except that the Key may be empty.
func (s Schedule) Upcoming(after time.Time, n int) ([]time.Time, error) {
	if n < 1 || n > maxUpcoming {
		return nil, fmt.Errorf("durable: the number of upcoming times is %d, must be 1 to %d", n, maxUpcoming)
	}
	s.Key = cmp.Or(s.Key, "preview")
	_, p, err := s.withDefaults()
	if err != nil {
		return nil, err
	}
	if s.Limit > 0 {
		n = min(n, s.Limit)
	}
	return p.Upcoming(store.Millis(after.UnixMilli()), n), nil
}

// Warning returns advice about a schedule that is valid but probably a mistake, such as `* 0 * *
// *`, which runs 60 times in the hour after midnight. "" if there is none.
func (s Schedule) Warning() string {
	spec, err := cron.Parse(s.Cron)
	if err != nil {
		return ""
	}
	return spec.Warning()
}
