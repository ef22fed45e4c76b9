package api

import (
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// Result answers a change of one timer.
type Result struct {
	Key    string `json:"key"`
	Result string `json:"result"`
	Due    string `json:"due,omitempty"` // by the store's clock
}

// Info is a timer as GET shows it.
type Info struct {
	Key          string    `json:"key"`
	Path         string    `json:"path"` // with the key's exact bytes, which JSON may not be able to show
	ID           string    `json:"id"`
	State        string    `json:"state"`
	Topic        string    `json:"topic,omitempty"`
	Due          string    `json:"due"`
	Attempts     int       `json:"attempts"`
	LastError    string    `json:"last_error,omitempty"`
	LeaseEnd     string    `json:"lease_end,omitempty"`
	Cancelled    bool      `json:"cancelled,omitempty"`
	SuccessorDue string    `json:"successor_due,omitempty"`
	Died         string    `json:"died,omitempty"`
	Callback     *Callback `json:"callback,omitempty"` // not in lists
	Body         string    `json:"body,omitempty"`
	BodyBase64   []byte    `json:"body_base64,omitempty"`
}

// formatTime shows a time with milliseconds; "" for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}

func infoOf(t durable.Info) Info {
	i := Info{
		Key: t.Key, Path: pathOf(t.Key), ID: t.ID.String(), State: t.State.String(), Topic: t.Topic,
		Due: formatTime(t.Due), Attempts: t.Attempts, LastError: t.LastError,
		LeaseEnd: formatTime(t.LeaseEnd), Cancelled: t.Cancelled,
		SuccessorDue: formatTime(t.SuccessorDue), Died: formatTime(t.Died),
	}
	if len(t.Body) == 0 {
		return i
	}
	call, err := webhook.Decode(t.Body)
	if err == nil {
		i.Callback = &Callback{URL: call.URL, Method: call.Method, Headers: call.Headers}
		if call.Timeout > 0 {
			i.Callback.Timeout = call.Timeout.String()
		}
		t.Body = call.Body
	} // else another program scheduled it: its body is shown as it is
	if utf8.Valid(t.Body) {
		i.Body = string(t.Body)
	} else {
		i.BodyBase64 = t.Body
	}
	return i
}

func pathOf(key string) string {
	switch key {
	case ".", "..": // a client would resolve these
		return "/timers/" + map[string]string{".": "%2E", "..": "%2E%2E"}[key]
	}
	return "/timers/" + url.PathEscape(key)
}
