package planning

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Cause is why an occurrence was created.
type Cause byte

// The causes.
const (
	ByPlan     Cause = iota
	ByTrigger        // TriggerSchedule
	ByBackfill       // BackfillSchedule
	Causes           // their number
)

var (
	causeNames = [Causes]string{"", "trigger", "backfill"}
	// causeMarks stand in keys between the planned time and the number.
	causeMarks = [Causes]string{"", "t", "b"}
)

// String returns "trigger" or "backfill" if a user was the cause, otherwise "".
func (c Cause) String() string { return causeNames[c] }

// Occurrence names an occurrence of a schedule.
type Occurrence struct {
	Planned store.Millis
	Cause   Cause
	Number  uint64 // of the request, if one was the cause: the same time can be requested again
}

// digits is the length of a planned time in a key, so that keys sort by it.
const digits = 13

// Key returns the key of the occurrence's timer.
func (o Occurrence) Key(planKey string) string {
	key := fmt.Sprintf("%s%0*d", planKey, digits, o.Planned)
	if o.Cause != ByPlan {
		key += causeMarks[o.Cause] + strconv.FormatUint(o.Number, 10)
	}
	return key
}

// ParseKey returns the schedule's key and the occurrence in a timer's key.
func ParseKey(key string) (schedule string, o Occurrence, ok bool) {
	schedule, name, found := strings.Cut(key, "\x00")
	if !found || len(name) < digits {
		return "", Occurrence{}, false
	}
	ms, err := strconv.ParseInt(name[:digits], 10, 64)
	if err != nil || ms < 0 {
		return "", Occurrence{}, false
	}
	o.Planned = store.Millis(ms)
	if rest := name[digits:]; rest != "" {
		o.Cause = Cause(slices.Index(causeMarks[:], rest[:1]))
		if o.Number, err = strconv.ParseUint(rest[1:], 10, 64); err != nil || o.Cause >= Causes {
			return "", Occurrence{}, false
		}
	}
	return schedule, o, true
}

// KeyText returns a timer's key for display: that of an occurrence as its schedule's key and its
// planned time, and other keys unchanged.
func KeyText(key string) string {
	schedule, o, ok := ParseKey(key)
	if !ok {
		return key
	}
	text := schedule + " @ " + o.Planned.Time().Format(time.RFC3339Nano)
	if o.Cause != ByPlan {
		text += " (" + o.Cause.String() + ")"
	}
	return text
}

// ID derives the ID of the occurrence's timer, which is the same in every process and on every
// try.
func (o Occurrence) ID(schedule store.ID) store.ID {
	h := sha256.New()
	_, _ = h.Write(schedule[:])
	_, _ = h.Write([]byte(o.Key("")))
	return store.ID(h.Sum(nil)[:len(store.ID{})])
}
