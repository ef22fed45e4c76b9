package api

import (
	"net/url"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable/store"
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
func formatTime(m store.Millis) string {
	if m == 0 {
		return ""
	}
	return m.Time().Format("2006-01-02T15:04:05.000Z07:00")
}

func infoOf(r store.Record) Info {
	i := Info{
		Key: r.Key, Path: pathOf(r.Key), ID: r.ID.String(), State: r.State.String(), Topic: r.Topic,
		Due: formatTime(r.Due), Attempts: r.Attempts, LastError: r.LastError,
		LeaseEnd: formatTime(r.LeaseEnd), Cancelled: r.Cancelled,
		SuccessorDue: formatTime(r.SuccessorDue), Died: formatTime(r.Died),
	}
	if len(r.Body) == 0 {
		return i
	}
	call, err := webhook.Decode(r.Body)
	if err == nil {
		i.Callback = &Callback{URL: call.URL, Method: call.Method, Headers: call.Headers}
		if call.Timeout > 0 {
			i.Callback.Timeout = call.Timeout.String()
		}
		r.Body = call.Body
	} // else another program scheduled it: its body is shown as it is
	if utf8.Valid(r.Body) {
		i.Body = string(r.Body)
	} else {
		i.BodyBase64 = r.Body
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
