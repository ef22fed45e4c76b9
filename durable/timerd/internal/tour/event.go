package tour

import (
	"encoding/json"
	"time"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// event is what a process of the tour did. Which fields it has depends on its kind.
type event struct {
	Kind      eventKind `json:"kind"`
	At        int64     `json:"at"`                   // µs since 1970
	Timer     int       `json:"timer,omitempty"`      // of all kinds but those of a cancel, and acknowledged
	Key       int       `json:"key,omitempty"`        // schedule, and those of a cancel
	NotBefore int64     `json:"not_before,omitempty"` // schedule: ms since 1970
	Mode      mode      `json:"mode,omitempty"`       // schedule
	Due       int64     `json:"due,omitempty"`        // scheduled, move: ms since 1970
	Result    string    `json:"result,omitempty"`     // scheduled, cancelled, moved: the answer
	ID        string    `json:"id,omitempty"`         // begins, acknowledged, replies
	Attempt   int       `json:"attempt,omitempty"`    // begins, replies
	Status    int       `json:"status,omitempty"`     // replies

	// Events of schedules and their occurrences have these, instead of Timer:
	Schedule int            `json:"schedule,omitempty"` // its number
	Planned  int64          `json:"planned,omitempty"`  // begins, created, replies: ms since 1970
	Recurs   *recurrence    `json:"recurs,omitempty"`   // put
	Counts   *client.Counts `json:"counts,omitempty"`   // counted
}

type eventKind string

const (
	// A scheduler sends a request, repeats it if there was no answer, and gets its answer.
	eventSchedule  eventKind = "schedule"
	eventScheduled eventKind = "scheduled"
	eventCancel    eventKind = "cancel"
	eventCancelled eventKind = "cancelled"
	eventMove      eventKind = "move"
	eventMoved     eventKind = "moved"
	// The same about schedules; and before a deletion, what the schedule counted.
	eventPut     eventKind = "put"
	eventDelete  eventKind = "delete"
	eventPause   eventKind = "pause"
	eventResume  eventKind = "resume"
	eventDone    eventKind = "done" // the answer to one of these
	eventCounted eventKind = "counted"
	// A worker has created an occurrence by a request that it sent at the time.
	eventCreated eventKind = "created"
	// A worker begins a handler; the store accepts that its timer is done.
	eventBegins       eventKind = "begins"
	eventAcknowledged eventKind = "acknowledged"
	// Of a receiver: it is about to reply to a call-back.
	eventReplies eventKind = "replies"
)

// line returns the event as a ledger has it, without the end of the line.
func (e event) line() []byte {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // no event has anything that JSON cannot hold
	}
	return line
}

func micros() int64 { return time.Now().UnixMicro() }
