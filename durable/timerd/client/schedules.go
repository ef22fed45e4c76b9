package client

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

// Overlap is the policy for a planned time when the previous occurrence has not ended.
type Overlap string

// Overlaps. The default is OverlapSkip.
const (
	OverlapSkip      Overlap = "skip"       // skip the new occurrence
	OverlapBufferOne Overlap = "buffer_one" // create it when the previous occurrence ends
	OverlapCancel    Overlap = "cancel"     // cancel the previous occurrence
	OverlapAllow     Overlap = "allow"      // run both
)

// Missed is the policy for planned times that passed without a worker.
type Missed string

// Policies of missed times. The default is MissedLatest.
const (
	MissedLatest Missed = "latest" // create the latest occurrence
	MissedNone   Missed = "none"
	MissedAll    Missed = "all"
)

// Schedule creates a timer, called an occurrence, at each of its planned times. Key, Callback.URL,
// and either Cron or Every are required. timerd's README lists the defaults.
type Schedule struct {
	// Key is 1 to 480 bytes, any but zero bytes.
	Key string
	// Cron has five fields, or is @daily and the like, in the IANA time zone Zone, UTC by default.
	Cron, Zone string
	// Every is a period of 1s or more; the planned times are Offset after the multiples of
	// Every since 1970, UTC.
	Every, Offset time.Duration
	// Start and End bound the planned times, both included; the zero time is no bound. Limit is
	// the number of occurrences; 0: no bound.
	Start, End time.Time
	Limit      int

	Jitter      time.Duration // delays each occurrence by a random part of it
	Overlap     Overlap
	Missed      Missed
	CatchUp     time.Duration // the maximum age of a missed time whose occurrence is still created; 1s or more, default 1h
	PauseOnDead bool          // pause the schedule when an occurrence becomes a dead letter

	Topic    string
	Callback Callback // not in lists
	Body     []byte   // not in lists; encoded, callback and body have at most 60 KiB
	// IfAbsent refuses to replace a schedule of the same key: the result is Exists.
	IfAbsent bool
}

// ScheduleReceipt is the answer to a change of one schedule.
type ScheduleReceipt struct {
	Key       string
	Result    Result
	Next      []time.Time // of PutSchedule: the next ten planned times
	Warning   string      // of PutSchedule: advice about a valid, probably mistaken schedule
	Cancelled int         // of DeleteSchedule: the number of cancelled occurrences
	Repeated  bool        // as in Receipt
}

// ScheduleState is the state of a schedule.
type ScheduleState string

// States of a schedule.
const (
	ScheduleActive  ScheduleState = "active"
	SchedulePaused  ScheduleState = "paused"
	ScheduleEnded   ScheduleState = "ended"   // no planned time is left
	ScheduleProblem ScheduleState = "problem" // no worker can create occurrences
)

// ScheduleInfo is a schedule as timerd shows it. Its times have the offset of the schedule's zone.
type ScheduleInfo struct {
	Schedule  // IfAbsent is false
	ID        string
	State     ScheduleState
	Problem   string // of ScheduleProblem
	Created   time.Time
	Paused    time.Time // since when; the zero time if it is not paused
	PauseNote string
	Next      []time.Time // the next ten planned times
	Overdue   time.Time   // the first passed planned time that no worker has processed
	Waiting   time.Time   // the planned time that waits for the end of an occurrence
	Counts    Counts
	Last      []Occurrence // the last ten; not in lists
}

// Counts are the counts of a schedule since its creation.
type Counts struct {
	// Created counts the occurrences of planned times.
	Created    uint64
	Triggered  uint64
	Backfilled uint64
	// Planned times without an occurrence: by Overlap, by Missed, or because the schedule was
	// replaced after they had passed.
	SkippedOverlap uint64
	SkippedMissed  uint64
	SkippedUpdated uint64
	// Outcomes of occurrences. A dead letter that is requeued counts again.
	Done      uint64
	Dead      uint64
	Cancelled uint64
}

// OccurrenceState is the state of an occurrence.
type OccurrenceState string

// States of an occurrence.
const (
	OccurrenceWaiting   OccurrenceState = "waiting"
	OccurrenceRunning   OccurrenceState = "running"
	OccurrenceDone      OccurrenceState = "done"
	OccurrenceDead      OccurrenceState = "dead"
	OccurrenceCancelled OccurrenceState = "cancelled"
	OccurrenceLost      OccurrenceState = "lost" // the store has no record of its outcome
)

// Occurrence is one run of a schedule.
type Occurrence struct {
	Key       string // the key of its timer, for Get, Cancel, Requeue and Purge
	Planned   time.Time
	Requested string // trigger or backfill; empty: it was planned
	State     OccurrenceState
	Begun     time.Time // the last attempt
	Ended     time.Time
	Attempts  int
	Error     string // of the last failed attempt
}

// Preview has the planned times of a schedule that need not exist.
type Preview struct {
	Next    []time.Time
	Warning string // as in ScheduleReceipt
}

// PutSchedule creates a schedule, or replaces the key's schedule and keeps its history and a pause.
// The result is Created, Replaced, Unchanged or Exists.
func (c *Client) PutSchedule(ctx context.Context, s Schedule) (ScheduleReceipt, error) {
	w, err := s.wire()
	if err != nil {
		return ScheduleReceipt{}, err
	}
	return c.changeSchedule(ctx, http.MethodPut, s.Key, "", w)
}

// GetSchedule returns a schedule, with its callback and its last ten occurrences, or ErrNotFound.
func (c *Client) GetSchedule(ctx context.Context, key string) (ScheduleInfo, error) {
	if err := checkKey(key); err != nil {
		return ScheduleInfo{}, err
	}
	var i ScheduleInfo
	_, err := c.call(ctx, request{method: http.MethodGet, path: schedulePath(key), kind: readOnly}, into(&i, (*reader).schedule))
	return i, err
}

// DeleteSchedule removes a schedule with its history. Its occurrences stay; with cancelOccurrences
// the waiting ones are cancelled, even if the schedule no longer exists. The result is Deleted or
// NotFound.
func (c *Client) DeleteSchedule(ctx context.Context, key string, cancelOccurrences bool) (ScheduleReceipt, error) {
	query := ""
	if cancelOccurrences {
		query = "?occurrences=cancel"
	}
	return c.changeSchedule(ctx, http.MethodDelete, key, query, nil)
}

// PauseSchedule stops a schedule from creating occurrences. Existing occurrences run; planned times
// that pass during the pause are missed. The text, of at most 256 bytes, says why.
func (c *Client) PauseSchedule(ctx context.Context, key, text string) error {
	if err := checkTexts("PauseSchedule", "text", text); err != nil {
		return err
	}
	_, err := c.changeSchedule(ctx, http.MethodPost, key, "/pause", wire.Note{Note: text})
	return err
}

// ResumeSchedule ends a pause.
func (c *Client) ResumeSchedule(ctx context.Context, key string) error {
	_, err := c.changeSchedule(ctx, http.MethodPost, key, "/resume", nil)
	return err
}

// changeSchedule makes a request whose repetition is harmless. suffix is the rest of the path.
func (c *Client) changeSchedule(ctx context.Context, method, key, suffix string, body any) (ScheduleReceipt, error) {
	if err := checkKey(key); err != nil {
		return ScheduleReceipt{}, err
	}
	var receipt ScheduleReceipt
	repeated, err := c.call(ctx, request{method: method, path: schedulePath(key) + suffix, body: body, kind: idempotent}, into(&receipt, (*reader).changed))
	if err != nil {
		return ScheduleReceipt{}, err
	}
	receipt.Key, receipt.Repeated = key, repeated
	return receipt, nil
}

// TriggerSchedule creates an occurrence that is due now, regardless of the plan and of a pause, and
// returns it.
func (c *Client) TriggerSchedule(ctx context.Context, key string) (Occurrence, error) {
	if err := checkKey(key); err != nil {
		return Occurrence{}, err
	}
	var o Occurrence
	_, err := c.call(ctx, request{method: http.MethodPost, path: schedulePath(key) + "/trigger", kind: nonIdempotent}, into(&o, (*reader).triggered))
	return o, err
}

// BackfillSchedule creates an occurrence, due now, for each past planned time between from and to,
// both included. It returns the number of occurrences, at most 1000. With an error, this is the
// number that timerd reports as created before the failure.
func (c *Client) BackfillSchedule(ctx context.Context, key string, from, to time.Time) (int, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	var n int
	_, err := c.call(ctx, request{
		method: http.MethodPost, path: schedulePath(key) + "/backfill", body: wire.Interval{From: timeText(from), To: timeText(to)}, kind: nonIdempotent,
	}, into(&n, (*reader).backfilled))
	if e, ok := err.(*Error); ok { //nolint:errorlint // call returns it unwrapped
		return e.count, err
	}
	return n, err
}

// PreviewSchedule returns up to count planned times after from. The schedule need not exist:
// PreviewSchedule uses Cron, Zone, Every, Offset, Start, End and Limit. A zero from is the present;
// count is 1 to 1000, or 0 for the default of 10.
func (c *Client) PreviewSchedule(ctx context.Context, s Schedule, from time.Time, count int) (Preview, error) {
	r, err := s.recurrence()
	if err != nil {
		return Preview{}, err
	}
	var p Preview
	_, err = c.call(ctx, request{
		method: http.MethodPost, path: "/schedules/preview", body: wire.Preview{Recurrence: r, From: timeText(from), Count: int64(count)}, kind: readOnly,
	}, into(&p, (*reader).preview))
	return p, err
}

func schedulePath(key string) string { return "/schedules/" + wire.Segment(key) }
