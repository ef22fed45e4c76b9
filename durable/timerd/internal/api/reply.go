package api

import (
	"encoding/json"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// Result is the answer to a change of one timer.
type Result struct {
	Key    string `json:"key"`
	Result string `json:"result"`
	Due    string `json:"due,omitempty"` // by the store's clock
}

// Info is a timer in replies.
type Info struct {
	Key          string    `json:"key"`
	Path         string    `json:"path"` // has the key's exact bytes, which need not be UTF-8
	ID           string    `json:"id"`
	Schedule     string    `json:"schedule,omitempty"` // of an occurrence: its schedule's key
	Planned      string    `json:"planned,omitempty"`  // of an occurrence: its planned time, in UTC
	State        string    `json:"state"`
	Topic        string    `json:"topic,omitempty"`
	Due          string    `json:"due"`
	Attempts     int       `json:"attempts"`
	LastError    string    `json:"last_error,omitempty"`
	LeaseEnd     string    `json:"lease_end,omitempty"`
	Worker       string    `json:"worker,omitempty"`
	Cancelled    bool      `json:"cancelled,omitempty"`
	SuccessorDue string    `json:"successor_due,omitempty"`
	Died         string    `json:"died,omitempty"`
	Callback     *Callback `json:"callback,omitempty"` // not in lists
	Body         string    `json:"body,omitempty"`
	BodyBase64   []byte    `json:"body_base64,omitempty"`
}

// formatTime formats a time with milliseconds, and a zero time as "".
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}

// formatPlanned formats a planned time, with milliseconds if it has any, and a zero time as "".
func formatPlanned(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02T15:04:05.999Z07:00")
}

func infoOf(t durable.Info) Info {
	i := Info{
		Key: durable.KeyText(t.Key), Path: pathOf(t.Key), ID: t.ID.String(), State: t.State.String(), Topic: t.Topic,
		Schedule: t.Schedule, Planned: formatPlanned(t.Planned),
		Due: formatTime(t.Due), Attempts: t.Attempts, LastError: t.LastError,
		LeaseEnd: formatTime(t.LeaseEnd), Worker: t.Worker, Cancelled: t.Cancelled,
		SuccessorDue: formatTime(t.SuccessorDue), Died: formatTime(t.Died),
	}
	i.Callback, i.Body, i.BodyBase64 = callOf(t.Body)
	return i
}

// callOf decodes an encoded call. It returns other bodies, of timers that another program
// scheduled, as they are.
func callOf(encoded []byte) (callback *Callback, text string, binary []byte) {
	body := encoded
	if len(encoded) == 0 {
		return nil, "", nil
	}
	if call, err := webhook.Decode(encoded); err == nil {
		callback = &Callback{URL: call.URL, Method: call.Method, Headers: call.Headers}
		if call.Timeout > 0 {
			callback.Timeout = call.Timeout.String()
		}
		body = call.Body
	}
	if utf8.Valid(body) {
		return callback, string(body), nil
	}
	return callback, "", body
}

// Readable returns a timer's body as readable JSON: the callback and the callback's body.
func Readable(encoded []byte) string {
	var shown struct {
		Callback   *Callback `json:"callback,omitempty"`
		Body       string    `json:"body,omitempty"`
		BodyBase64 []byte    `json:"body_base64,omitempty"`
	}
	shown.Callback, shown.Body, shown.BodyBase64 = callOf(encoded)
	text, _ := json.Marshal(shown) // cannot fail: all fields are text
	return string(text)
}

func pathOf(key string) string { return "/timers/" + escape(key) }

func escape(key string) string {
	switch key {
	case ".", "..": // clients resolve these segments
		return map[string]string{".": "%2E", "..": "%2E%2E"}[key]
	}
	return url.PathEscape(key)
}
