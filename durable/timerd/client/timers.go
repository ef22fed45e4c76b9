package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

// MaxTimers is the maximum number of timers in one ScheduleMany.
const MaxTimers = 500

// Timer is a timer to schedule. Key and Callback.URL are required.
type Timer struct {
	// Key is 1 to 512 bytes, any but zero bytes. A key has one timer at a time.
	Key string
	// At is the due time. If it is zero, the timer is due After the request arrives, by the clock
	// of timerd's store; After is 0 or more.
	At    time.Time
	After time.Duration
	// Topic is at most 128 bytes of UTF-8. Topics share the workers fairly.
	Topic    string
	Callback Callback
	// Body is the callback's body, any bytes. Encoded, callback and body have at most 64 KiB.
	Body []byte
	// IfAbsent refuses to replace a timer or dead letter of the same key: the result is Exists.
	IfAbsent bool
}

// Callback is the HTTP request that timerd makes when a timer is due.
type Callback struct {
	URL     string            // absolute, with http or https
	Method  string            // default: POST
	Headers map[string]string // except those that timerd sets itself and therefore refuses
	Timeout time.Duration     // up to 10m; default: timerd's -call-timeout
}

// Result is an answer that the API foresees.
type Result string

// Results, each with the methods that return it.
const (
	Created            Result = "created"              // Schedule, ScheduleMany, PutSchedule
	Replaced           Result = "replaced"             // Schedule, ScheduleMany: a waiting timer; PutSchedule
	ReplacedDeadLetter Result = "replaced dead letter" // Schedule, ScheduleMany
	Succeeds           Result = "succeeds"             // Schedule, ScheduleMany: the key's timer runs, and the new one waits for the end of the run
	Exists             Result = "exists"               // Schedule, ScheduleMany, PutSchedule: IfAbsent refused it; Requeue: the key has a timer
	Refused            Result = "refused"              // ScheduleMany: the store is full
	Unanswered         Result = "unanswered"           // ScheduleMany, with an error: the timer may have been added
	Cancelled          Result = "cancelled"            // Cancel: no callback will begin
	Running            Result = "running"              // Cancel: a callback is in progress, and will not be retried; Reset: nothing was changed
	NotFound           Result = "not found"            // Cancel: no such timer, or a dead letter; DeleteSchedule: no such schedule
	Moved              Result = "moved"                // Reset, ResetAt
	Absent             Result = "absent"               // Reset, ResetAt, Requeue, Purge: no such timer or dead letter
	Requeued           Result = "requeued"             // Requeue
	Purged             Result = "purged"               // Purge
	Unchanged          Result = "unchanged"            // PutSchedule: the schedule is the same as before
	Deleted            Result = "deleted"              // DeleteSchedule
)

// Receipt is the answer to a change of one timer.
type Receipt struct {
	Key    string
	Result Result
	Due    time.Time // of Schedule and ScheduleMany, by the clock of timerd's store
	// Repeated means that timerd may have carried out an earlier attempt, and Result may describe
	// the second of two changes. The package comment lists the consequences.
	Repeated bool
}

// State is the state of a timer.
type State string

// States of a timer.
const (
	Waiting State = "waiting"
	Leased  State = "leased" // its callback is in progress
	Dead    State = "dead"
)

// TimerInfo is a timer as timerd shows it. Callback and Body are not in lists.
type TimerInfo struct {
	Key          string    // the exact bytes, for Get, Cancel, Requeue and Purge
	Name         string    // the key as readable text
	ID           string    // the callback's Idempotency-Key
	Schedule     string    // of an occurrence: the key of its schedule
	Planned      time.Time // of an occurrence
	State        State
	Topic        string
	Due          time.Time
	Attempts     int
	LastError    string
	LeaseEnd     time.Time // of a leased timer
	Worker       string    // of a leased timer: the name of the worker that runs it; empty: not known
	Cancelled    bool      // of a leased timer: it will not be retried
	SuccessorDue time.Time // of a leased timer: due time of its successor
	Died         time.Time // of a dead letter
	Callback     Callback  // empty if another program has scheduled the timer with a body of its own
	Body         []byte
}

// Schedule schedules a timer, or replaces the key's timer or dead letter.
func (c *Client) Schedule(ctx context.Context, t Timer) (Receipt, error) {
	w, err := t.wire("Timer")
	if err != nil {
		return Receipt{}, err
	}
	return c.change(ctx, request{method: http.MethodPut, path: timerPath(t.Key), body: w, kind: idempotent}, t.Key)
}

// ScheduleMany schedules 1 to MaxTimers timers in one request. Each is independent: timerd can add
// some and not others. The keys must be UTF-8. ScheduleMany returns a receipt for each timer, in
// order. With an error, the receipts are those that timerd knows, or none; call again with the
// timers that are Unanswered. The client repeats a batch only as a whole, and therefore not once
// some timers have receipts.
func (c *Client) ScheduleMany(ctx context.Context, timers []Timer) ([]Receipt, error) {
	if n := len(timers); n < 1 || n > MaxTimers {
		return nil, invalid("timers", fmt.Sprintf("%d of them", n), fmt.Sprintf("1 to %d", MaxTimers))
	}
	var body wire.Timers
	for i := range timers {
		field := fmt.Sprintf("timers[%d]", i)
		w, err := timers[i].wire(field)
		if err != nil {
			return nil, err
		}
		if w.Key = timers[i].Key; !utf8.ValidString(w.Key) {
			return nil, invalid(field+".Key", quoteShort(w.Key), "UTF-8; Schedule takes any bytes")
		}
		body.Timers = append(body.Timers, w)
	}
	var receipts []Receipt
	repeated, err := c.call(ctx, request{method: http.MethodPost, path: "/timers", body: body, kind: idempotent}, into(&receipts, (*reader).receipts))
	if e, ok := err.(*Error); ok { //nolint:errorlint // call returns it unwrapped
		receipts = e.receipts
	}
	if len(receipts) == 0 && err != nil {
		return nil, err
	}
	if n := len(receipts); n != len(timers) {
		e := &Error{Method: http.MethodPost, Path: "/timers", unsure: true, Message: fmt.Sprintf("the reply has %d results, must have %d", n, len(timers))}
		return nil, e
	}
	for i := range receipts {
		receipts[i].Key, receipts[i].Repeated = timers[i].Key, repeated
	}
	return receipts, err
}

// Get returns a timer or dead letter, or ErrNotFound if the key has none, as after the end of its
// timer.
func (c *Client) Get(ctx context.Context, key string) (TimerInfo, error) {
	if err := checkKey(key); err != nil {
		return TimerInfo{}, err
	}
	var i TimerInfo
	_, err := c.call(ctx, request{method: http.MethodGet, path: timerPath(key), kind: readOnly}, into(&i, (*reader).timer))
	return i, err
}

// Reset moves a waiting timer; its attempts stay. The result is Moved, Running or Absent.
func (c *Client) Reset(ctx context.Context, key string, after time.Duration) (Receipt, error) {
	return c.change(ctx, request{method: http.MethodPatch, path: timerPath(key), body: wire.When{After: after.String()}, kind: idempotent}, key)
}

// ResetAt is Reset to a point in time.
func (c *Client) ResetAt(ctx context.Context, key string, at time.Time) (Receipt, error) {
	return c.change(ctx, request{method: http.MethodPatch, path: timerPath(key), body: wire.When{At: timeText(at)}, kind: idempotent}, key)
}

// Cancel cancels a timer. The result is Cancelled, Running or NotFound.
func (c *Client) Cancel(ctx context.Context, key string) (Receipt, error) {
	return c.change(ctx, request{method: http.MethodDelete, path: timerPath(key), kind: idempotent}, key)
}

// Requeue makes a dead letter due now, with attempts from 0. The result is Requeued, Exists or
// Absent.
func (c *Client) Requeue(ctx context.Context, key string) (Receipt, error) {
	return c.change(ctx, request{method: http.MethodPost, path: "/dead/" + wire.Segment(key), kind: nonIdempotent}, key)
}

// Purge removes a dead letter. The result is Purged or Absent.
func (c *Client) Purge(ctx context.Context, key string) (Receipt, error) {
	return c.change(ctx, request{method: http.MethodDelete, path: "/dead/" + wire.Segment(key), kind: idempotent}, key)
}

// change makes a request whose answer is a receipt.
func (c *Client) change(ctx context.Context, r request, key string) (Receipt, error) {
	if err := checkKey(key); err != nil {
		return Receipt{}, err
	}
	var receipt Receipt
	repeated, err := c.call(ctx, r, into(&receipt, (*reader).receipt))
	if err != nil {
		return Receipt{}, err
	}
	receipt.Key, receipt.Repeated = key, repeated
	return receipt, nil
}

// checkKey refuses an empty key, which would make the path that of another route. timerd checks the
// rest.
func checkKey(key string) error {
	if key == "" {
		return invalid("key", `""`, "1 byte or longer")
	}
	return nil
}

func timerPath(key string) string { return "/timers/" + wire.Segment(key) }

// keyOf returns the key in a path of the API.
func keyOf(path, prefix, name string) string {
	if rest, ok := strings.CutPrefix(path, prefix); ok {
		if key, err := url.PathUnescape(rest); err == nil {
			return key
		}
	}
	return name
}
