package durable

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/planning"
	"github.com/seed-782fa212/limbo/durable/store"
)

// plan is a schedule as the store keeps it: its definition and its progress. The engine sees only
// a body; package store explains how it treats plans.
type plan struct {
	Schedule
	planning.Plan // its rules, which follow from the Schedule, and its progress

	id      store.ID // of the schedule: the same until it is deleted
	created store.Millis

	key        string   // of the plan in the store
	version    store.ID // of the plan in the store; zero: it is not stored
	problem    error    // why this process cannot advance it: an unknown zone
	unreadable error    // why this process cannot read it: another format, or damage; problem is then the same

	removed  bool          // the plan is to be removed
	requests []store.Entry // occurrences that users have requested, to be written with the plan
}

// entry returns the timer of an occurrence. Its due time is the planned time plus its share of the
// jitter, or now if a user has requested it.
func (p *plan) entry(o planning.Occurrence, now store.Millis) store.Entry {
	e := store.Entry{Key: o.Key(p.key), ID: o.ID(p.id), Topic: p.Topic, Body: p.Body, At: max(o.Planned, 1)}
	if o.Cause != planning.ByPlan {
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
	s := &p.State
	b := make([]byte, 0, 160+len(p.Body))
	b = append(b, planFormat, p.flags())
	b = append(b, p.id[:]...)
	b = binary.AppendUvarint(b, uint64(p.created))
	b = binary.AppendUvarint(b, uint64(s.Cursor))
	for _, at := range []store.Millis{s.Previous, s.Buffered, s.BacklogEnd} {
		if at != 0 {
			b = binary.AppendVarint(b, int64(at-s.Cursor))
		}
	}
	if s.Paused != 0 {
		b = binary.AppendVarint(b, int64(s.Paused-s.Cursor))
		b = appendText(b, s.PauseNote)
	}
	b = binary.AppendUvarint(b, s.DeadSeen)
	for _, n := range storedCounts(&s.Counts) {
		b = binary.AppendUvarint(b, *n)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Unfinished)))
	for _, o := range s.Unfinished {
		b = binary.AppendVarint(b, int64(o.Planned-s.Cursor))
		b = binary.AppendUvarint(b, o.Number*uint64(planning.Causes)+uint64(o.Cause))
	}
	return append(p.appendDefinition(b), p.Body...)
}

func (p *plan) flags() (flags byte) {
	s := &p.State
	for i, set := range [...]bool{
		s.Previous != 0, s.Buffered != 0, s.BacklogEnd != 0, s.Paused != 0, p.Schedule.PauseOnDead, p.Cron != "",
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

// storedCounts returns the counts in the order of the format.
func storedCounts(c *planning.Counts) [6]*uint64 {
	return [...]*uint64{&c.Created, &c.Triggered, &c.Backfilled, &c.SkippedOverlap, &c.SkippedMissed, &c.SkippedUpdated}
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
	s := &p.State
	copy(p.id[:], r.take(len(p.id)))
	p.created, s.Cursor = store.Millis(r.uvarint()), store.Millis(r.uvarint())
	relative := func(flag byte) store.Millis {
		if flags&flag == 0 {
			return 0
		}
		return s.Cursor + store.Millis(r.varint())
	}
	s.Previous, s.Buffered, s.BacklogEnd, s.Paused = relative(hasPrevious), relative(hasBuffered), relative(hasBacklog), relative(hasPause)
	if s.Paused != 0 {
		s.PauseNote = r.text()
	}
	s.DeadSeen = r.uvarint()
	for _, n := range storedCounts(&s.Counts) {
		*n = r.uvarint()
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		o := planning.Occurrence{Planned: s.Cursor + store.Millis(r.varint())}
		v := r.uvarint()
		o.Cause, o.Number = planning.Cause(v%uint64(planning.Causes)), v/uint64(planning.Causes)
		s.Unfinished = append(s.Unfinished, o)
	}
	p.Schedule.PauseOnDead = flags&pausesOnDead != 0
	r.definition(&p.Schedule, flags&hasCron != 0)
	p.Body = r.left
	if r.bad {
		p.fail("damaged in the store")
		return p
	}
	p.Schedule, p.Rules, p.problem = p.withDefaults()
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
