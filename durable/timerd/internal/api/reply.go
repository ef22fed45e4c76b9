package api

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

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

func infoOf(t durable.Info) wire.Info {
	return wire.Info{
		Key: durable.KeyText(t.Key), Path: pathOf(t.Key), ID: t.ID.String(), State: t.State.String(), Topic: t.Topic,
		Schedule: t.Schedule, Planned: formatPlanned(t.Planned),
		Due: formatTime(t.Due), Attempts: t.Attempts, LastError: t.LastError,
		LeaseEnd: formatTime(t.LeaseEnd), Worker: t.Worker, Cancelled: t.Cancelled,
		SuccessorDue: formatTime(t.SuccessorDue), Died: formatTime(t.Died),
		Content: contentOf(t.Body),
	}
}

// contentOf decodes an encoded call. It returns other bodies, of timers that another program
// scheduled, as they are.
func contentOf(encoded []byte) (c wire.Content) {
	body := encoded
	if call, err := webhook.Decode(encoded); err == nil {
		c.Callback = &wire.Callback{URL: call.URL, Method: call.Method, Headers: call.Headers, Timeout: wire.Duration(call.Timeout)}
		body = call.Body
	}
	if utf8.Valid(body) {
		c.Body = string(body)
	} else {
		c.BodyBase64 = body
	}
	return c
}

// Readable returns a timer's body as readable JSON: the callback and the callback's body.
func Readable(encoded []byte) string {
	text, _ := json.Marshal(contentOf(encoded)) // cannot fail: all fields are text
	return string(text)
}

func pathOf(key string) string { return "/timers/" + wire.Segment(key) }
