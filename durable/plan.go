package durable

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// plan is a schedule as the store keeps it: its definition and its progress. The engine sees only
// a body; package store explains how it treats plans.
type plan struct {
	Schedule
	series series
	state  planState

	key        string   // of the plan in the store
	version    store.ID // of the plan in the store; zero: it is not stored
	problem    error    // why this process cannot advance it: an unknown zone
	unreadable error    // why this process cannot read it: another format, or damage; problem is then the same

	removed  bool          // the plan is to be removed
	requests []store.Entry // occurrences that users have requested, to be written with the plan
}

// planState is the progress of a schedule.
type planState struct {
	id      store.ID // of the schedule: the same until it is deleted
	created store.Millis

	// All planned times up to cursor have an occurrence, are skipped, or are buffered.
	cursor     store.Millis
	previous   store.Millis // the planned time of the latest planned occurrence; 0: none
	buffered   store.Millis // a planned time that waits for the end of previous; 0: none
	backlogEnd store.Millis // planned times after cursor, up to this one, were missed and still run

	paused     store.Millis // since when; 0: it is not
	pauseNote  string
	deadSeen   uint64 // dead letters that PauseOnDead has processed
	counts     ScheduleCounts
	unfinished []occurrence // the last maxUnfinished that are not in the History, the oldest first
}

const maxUnfinished = store.MaxNotes

// cause is why an occurrence was created.
type cause byte

const (
	byPlan     cause = iota
	byTrigger        // TriggerSchedule
	byBackfill       // BackfillSchedule
	causes
)

// causeMarks stand in keys between the planned time and the number; none for byPlan.
var causeMarks = [causes]string{"", "t", "b"}

// occurrence names an occurrence of a schedule.
type occurrence struct {
	planned store.Millis
	cause   cause
	number  uint64 // of the request, if one was the cause: the same time can be requested again
}

// digits is the length of a planned time in a key, so that keys sort by it.
const digits = 13

func (o occurrence) key(planKey string) string {
	key := fmt.Sprintf("%s%0*d", planKey, digits, o.planned)
	if o.cause != byPlan {
		key += causeMarks[o.cause] + strconv.FormatUint(o.number, 10)
	}
	return key
}

// occurrenceOf returns the schedule's key and the occurrence in a timer's key.
func occurrenceOf(key string) (schedule string, o occurrence, ok bool) {
	schedule, name, found := strings.Cut(key, "\x00")
	if !found || len(name) < digits {
		return "", o, false
	}
	ms, err := strconv.ParseInt(name[:digits], 10, 64)
	if err != nil || ms < 0 {
		return "", o, false
	}
	o.planned = store.Millis(ms)
	if rest := name[digits:]; rest != "" {
		o.cause = cause(slices.Index(causeMarks[:], rest[:1]))
		if o.number, err = strconv.ParseUint(rest[1:], 10, 64); err != nil || o.cause >= causes {
			return "", o, false
		}
	}
	return schedule, o, true
}

// plannedOf returns the schedule and the planned time in an occurrence's key; zero values for the
// key of another timer.
func plannedOf(key string) (schedule string, planned time.Time) {
	schedule, o, ok := occurrenceOf(key)
	if !ok {
		return "", time.Time{}
	}
	return schedule, o.planned.Time()
}

// idOf derives an occurrence's ID, which is the same in every process and on every try.
func (p *plan) idOf(o occurrence) store.ID {
	h := sha256.New()
	_, _ = h.Write(p.state.id[:])
	_, _ = h.Write([]byte(o.key("")))
	return store.ID(h.Sum(nil)[:len(store.ID{})])
}

// entry returns the timer of an occurrence. Its due time is the planned time plus its share of the
// jitter, or now if a user has requested it.
func (p *plan) entry(o occurrence, now store.Millis) store.Entry {
	e := store.Entry{Key: o.key(p.key), ID: p.idOf(o), Topic: p.Topic, Body: p.Body, At: max(o.planned, 1)}
	if o.cause != byPlan {
		e.At = max(now, 1)
	} else if jitter := store.MillisOf(p.Jitter); jitter > 0 {
		e.At += store.Millis(binary.BigEndian.Uint64(e.ID[:]) % uint64(jitter))
	}
	return e
}

// swap returns the change of the store that writes the plan as it is now.
func (p *plan) swap() store.PlanSwap {
	return store.PlanSwap{Key: p.key, Expected: p.version, ID: store.NewID(), Body: p.encode(), Due: store.MaxMillis}
}

// planFormat is the version of the format that encode writes.
const planFormat = 1

// Flags of a plan, in the order of method flags.
const (
	hasPrevious = 1 << iota
	hasBuffered
	hasBacklog
	hasPause
	pausesOnDead
	hasCron
)

// encode writes the format, flags, the state, the definition, and finally the body. Times are
// relative to the cursor, which keeps them short.
func (p *plan) encode() []byte {
	s := &p.state
	b := make([]byte, 0, 160+len(p.Body))
	b = append(b, planFormat, p.flags())
	b = append(b, s.id[:]...)
	b = binary.AppendUvarint(b, uint64(s.created))
	b = binary.AppendUvarint(b, uint64(s.cursor))
	for _, at := range []store.Millis{s.previous, s.buffered, s.backlogEnd} {
		if at != 0 {
			b = binary.AppendVarint(b, int64(at-s.cursor))
		}
	}
	if s.paused != 0 {
		b = binary.AppendVarint(b, int64(s.paused-s.cursor))
		b = appendText(b, s.pauseNote)
	}
	b = binary.AppendUvarint(b, s.deadSeen)
	for _, n := range s.counts.stored() {
		b = binary.AppendUvarint(b, *n)
	}
	b = binary.AppendUvarint(b, uint64(len(s.unfinished)))
	for _, o := range s.unfinished {
		b = binary.AppendVarint(b, int64(o.planned-s.cursor))
		b = binary.AppendUvarint(b, o.number*uint64(causes)+uint64(o.cause))
	}
	return append(p.appendDefinition(b), p.Body...)
}

func (p *plan) flags() (flags byte) {
	s := &p.state
	for i, set := range [...]bool{
		s.previous != 0, s.buffered != 0, s.backlogEnd != 0, s.paused != 0, p.PauseOnDead, p.Cron != "",
	} {
		if set {
			flags |= 1 << i
		}
	}
	return flags
}

// appendTiming writes the fields that determine the planned times.
func (s *Schedule) appendTiming(b []byte) []byte {
	if s.Cron != "" {
		b = appendText(appendText(b, s.Cron), s.Zone)
	} else {
		b = binary.AppendUvarint(b, uint64(s.Every.Milliseconds()))
		b = binary.AppendUvarint(b, uint64(s.Offset.Milliseconds()))
	}
	for _, at := range []time.Time{s.Start, s.End} {
		b = binary.AppendUvarint(b, uint64(boundOf(at)))
	}
	return binary.AppendUvarint(b, uint64(s.Limit))
}

// appendDefinition writes the user's definition except PauseOnDead and the body.
func (s *Schedule) appendDefinition(b []byte) []byte {
	b = s.appendTiming(b)
	b = binary.AppendUvarint(b, uint64(store.MillisOf(s.Jitter)))
	b = append(b, byte(s.Overlap)<<4|byte(s.Missed))
	b = binary.AppendUvarint(b, uint64(store.MillisOf(s.CatchUp)))
	return appendText(b, s.Topic)
}

// same reports whether two schedules have the same definition.
func (s *Schedule) same(other *Schedule) bool {
	return s.PauseOnDead == other.PauseOnDead && string(s.Body) == string(other.Body) &&
		string(s.appendDefinition(nil)) == string(other.appendDefinition(nil))
}

// sameTimes reports whether two schedules have the same planned times.
func (s *Schedule) sameTimes(other *Schedule) bool {
	return (s.Cron == "") == (other.Cron == "") && string(s.appendTiming(nil)) == string(other.appendTiming(nil))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodePlan reads a plan from a store.
func decodePlan(key string, version store.ID, body []byte) *plan {
	p := &plan{key: key, version: version}
	p.Key = strings.TrimSuffix(key, "\x00")
	if formatOf(body) != planFormat {
		p.fail("stored in format %d, this version reads format %d", formatOf(body), planFormat)
		return p
	}
	r := planReader{left: body[1:]}
	flags := r.byte()
	s := &p.state
	copy(s.id[:], r.take(len(s.id)))
	s.created, s.cursor = store.Millis(r.uvarint()), store.Millis(r.uvarint())
	relative := func(flag byte) store.Millis {
		if flags&flag == 0 {
			return 0
		}
		return s.cursor + store.Millis(r.varint())
	}
	s.previous, s.buffered, s.backlogEnd, s.paused = relative(hasPrevious), relative(hasBuffered), relative(hasBacklog), relative(hasPause)
	if s.paused != 0 {
		s.pauseNote = r.text()
	}
	s.deadSeen = r.uvarint()
	for _, n := range s.counts.stored() {
		*n = r.uvarint()
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		o := occurrence{planned: s.cursor + store.Millis(r.varint())}
		v := r.uvarint()
		o.cause, o.number = cause(v%uint64(causes)), v/uint64(causes)
		s.unfinished = append(s.unfinished, o)
	}
	p.PauseOnDead = flags&pausesOnDead != 0
	r.definition(&p.Schedule, flags&hasCron != 0)
	p.Body = r.left
	if r.bad {
		p.fail("damaged in the store")
		return p
	}
	p.Schedule, p.series, p.problem = p.withDefaults()
	return p
}

// formatOf returns the format of a plan; 0 if body is empty.
func formatOf(body []byte) byte {
	if len(body) == 0 {
		return 0
	}
	return body[0]
}

// fail records that a plan cannot be read.
func (p *plan) fail(format string, args ...any) {
	p.unreadable = fmt.Errorf("durable: schedule %.64q is "+format, append([]any{p.Key}, args...)...)
	p.problem = p.unreadable
}

// planReader decodes a plan; bad reports that the input ended too early.
type planReader struct {
	left []byte
	bad  bool
}

func (r *planReader) take(n int) []byte {
	if n < 0 || n > len(r.left) {
		r.bad, r.left = true, nil
		return nil
	}
	taken := r.left[:n:n]
	r.left = r.left[n:]
	return taken
}

func (r *planReader) byte() byte {
	if b := r.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (r *planReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.left)
	r.take(max(n, -1))
	r.bad = r.bad || n <= 0
	return v
}

func (r *planReader) varint() int64 {
	v, n := binary.Varint(r.left)
	r.take(max(n, -1))
	r.bad = r.bad || n <= 0
	return v
}

func (r *planReader) text() string { return string(r.take(int(r.uvarint()))) }

func (r *planReader) millis() time.Duration {
	return time.Duration(r.uvarint()) * time.Millisecond
}

func (r *planReader) definition(s *Schedule, isCron bool) {
	if isCron {
		s.Cron, s.Zone = r.text(), r.text()
	} else {
		s.Every, s.Offset = r.millis(), r.millis()
	}
	s.Start, s.End = timeOf(store.Millis(r.uvarint())), timeOf(store.Millis(r.uvarint()))
	s.Limit = int(r.uvarint())
	s.Jitter = r.millis()
	policies := r.byte()
	s.Overlap, s.Missed = Overlap(policies>>4), Missed(policies&15)
	s.CatchUp = r.millis()
	s.Topic = r.text()
}
