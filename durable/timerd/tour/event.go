package main

import (
	"encoding/json"
	"time"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// event is an action of a process of the tour. Its kind determines which fields it has.
type event struct {
	Kind      eventKind `json:"kind"`
	At        int64     `json:"at"`                   // µs since 1970
	Timer     int       `json:"timer,omitempty"`      // not cancel, cancelled, acknowledged
	Key       int       `json:"key,omitempty"`        // requests about keys; cancelled
	NotBefore int64     `json:"not_before,omitempty"` // schedule: ms since 1970
	Mode      mode      `json:"mode,omitempty"`       // schedule, put
	Due       int64     `json:"due,omitempty"`        // scheduled, move: ms since 1970
	Result    string    `json:"result,omitempty"`     // answers; delete: keep or cancel
	ID        string    `json:"id,omitempty"`         // begins, acknowledged, replies, created
	Attempt   int       `json:"attempt,omitempty"`    // begins, replies
	Status    int       `json:"status,omitempty"`     // replies

	// Events of schedules and occurrences have these instead of Timer:
	Schedule int            `json:"schedule,omitempty"` // the schedule's number
	Planned  int64          `json:"planned,omitempty"`  // begins, created, replies: ms since 1970
	Recurs   *recurrence    `json:"recurs,omitempty"`   // put
	Counts   *client.Counts `json:"counts,omitempty"`   // counted
}

type eventKind string

const (
	// A scheduler sends a request, repeats it if there was no answer, or gets its answer.
	eventSchedule  eventKind = "schedule"
	eventScheduled eventKind = "scheduled"
	eventCancel    eventKind = "cancel"
	eventCancelled eventKind = "cancelled"
	eventMove      eventKind = "move"
	eventMoved     eventKind = "moved"
	// The same for schedules, and a schedule's counts before its deletion.
	eventPut     eventKind = "put"
	eventDelete  eventKind = "delete"
	eventPause   eventKind = "pause"
	eventResume  eventKind = "resume"
	eventDone    eventKind = "done" // the answer to one of these
	eventCounted eventKind = "counted"
	// A worker created an occurrence. At is when it sent the request.
	eventCreated eventKind = "created"
	// A worker begins a handler. The store accepts that a timer is done.
	eventBegins       eventKind = "begins"
	eventAcknowledged eventKind = "acknowledged"
	// A receiver is about to reply to a callback.
	eventReplies eventKind = "replies"
)

// line encodes the event for a ledger, without the newline.
func (e event) line() []byte {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // JSON can encode all events
	}
	return line
}

func micros() int64 { return time.Now().UnixMicro() }
