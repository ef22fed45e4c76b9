// Package wire has the JSON of timerd's API, for its server and its client. Times and durations
// are texts, which errors show as they were sent. The tags max and utf8 are those of strictjson.
package wire

import (
	"net/url"
	"strings"
	"time"
)

// Error is the reply to a failed request, within a Failure.
type Error struct {
	Status  int      `json:"-"`
	Code    string   `json:"code"`           // one word, for programs
	Also    []string `json:"also,omitempty"` // the codes of further errors of the store
	Message string   `json:"message"`
	Field   string   `json:"field,omitempty"` // the field that is out of range
	Value   string   `json:"value,omitempty"`
	Range   string   `json:"range,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Failure is the reply to a failed request.
type Failure struct {
	Error  *Error   `json:"error"`
	Timers []Result `json:"timers,omitempty"` // of a batch, as far as known
	Count  int      `json:"count,omitempty"`  // of a backfill: created occurrences
}

// Health is the reply to a health check.
type Health struct {
	Status string `json:"status"`
}

// Timer is a request to schedule a timer.
type Timer struct {
	Key string `json:"key,omitempty" utf8:"; PUT /timers/{key} takes any bytes but zero bytes, with percent encoding"` // in POST /timers; PUT has it in the path
	When
	Payload
}

// Timers is a request to schedule several timers.
type Timers struct {
	Timers []*Timer `json:"timers"`
}

// When is a due time: either At or After.
type When struct {
	At    string `json:"at,omitempty"`    // RFC 3339
	After string `json:"after,omitempty"` // such as 1m30s
}

// Payload has the fields that the requests for timers and schedules share.
type Payload struct {
	Topic    string `json:"topic,omitempty"`
	IfAbsent bool   `json:"if_absent,omitempty"`
	Content
}

// Content is the call that a timer makes, in requests and replies.
type Content struct {
	Callback   *Callback `json:"callback,omitempty"`
	Body       string    `json:"body,omitempty" utf8:"; body_base64 takes any bytes"` // if it is text
	BodyBase64 []byte    `json:"body_base64,omitempty"`                               // otherwise
}

// Callback is a call without its body. It has at most webhook.MaxHeaders headers.
type Callback struct {
	URL     string            `json:"url" utf8:"; percent encoding takes any bytes"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty" max:"32"`
	Timeout string            `json:"timeout,omitempty"` // such as 5s
}

// Result is the answer to a change of one timer.
type Result struct {
	Key    string `json:"key"`
	Result string `json:"result"`
	Due    string `json:"due,omitempty"` // by the store's clock
}

// Results is the answer to the request of several timers.
type Results struct {
	Timers []Result `json:"timers"`
}

// Info is a timer in replies.
type Info struct {
	Key          string `json:"key"`
	Path         string `json:"path"` // has the key's exact bytes, which need not be UTF-8
	ID           string `json:"id"`
	Schedule     string `json:"schedule,omitempty"` // of an occurrence: its schedule's key
	Planned      string `json:"planned,omitempty"`  // of an occurrence: its planned time, in UTC
	State        string `json:"state"`
	Topic        string `json:"topic,omitempty"`
	Due          string `json:"due"`
	Attempts     int    `json:"attempts"`
	LastError    string `json:"last_error,omitempty"`
	LeaseEnd     string `json:"lease_end,omitempty"`
	Worker       string `json:"worker,omitempty"`
	Cancelled    bool   `json:"cancelled,omitempty"`
	SuccessorDue string `json:"successor_due,omitempty"`
	Died         string `json:"died,omitempty"`
	Content             // not in lists
}

// Page is a page of the list of timers.
type Page struct {
	Timers []Info `json:"timers"`
	Next   string `json:"next,omitempty"` // after of the next page, if there may be one
}

// Worker is a worker in replies.
type Worker struct {
	Name         string `json:"name"`
	Live         bool   `json:"live"`
	Heartbeat    string `json:"heartbeat"`       // by the store's clock
	Since        string `json:"since,omitempty"` // absent if this version cannot read the heartbeat
	Slots        int    `json:"slots"`
	Running      int    `json:"running"`
	Preferred    int    `json:"preferred_shards"`
	Done         uint64 `json:"done"`
	Retried      uint64 `json:"retried"`
	Snoozed      uint64 `json:"snoozed"`
	DeadLettered uint64 `json:"dead_lettered"`
	Cancelled    uint64 `json:"cancelled"`
	Late         *Late  `json:"late,omitempty"` // absent before the first attempt
}

// Late is how late attempts began after their timers were due.
type Late struct {
	Count uint64  `json:"count"` // attempts
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
}

// Workers is the list of workers.
type Workers struct {
	Workers []Worker `json:"workers"`
}

// Duration returns the text of d, and "" for 0.
func Duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Segment encodes a key as one segment of a path, including . and .., which clients and servers
// would resolve.
func Segment(key string) string {
	if key == "." || key == ".." {
		return strings.ReplaceAll(key, ".", "%2E")
	}
	return url.PathEscape(key)
}
