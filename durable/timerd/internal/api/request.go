package api

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// Timer is a request to schedule a timer.
type Timer struct {
	Key string `json:"key,omitempty"` // in POST /timers; in PUT it stands in the path
	When
	Topic      string    `json:"topic,omitempty"`
	Callback   *Callback `json:"callback"`
	Body       string    `json:"body,omitempty"`        // what the call-back gets
	BodyBase64 []byte    `json:"body_base64,omitempty"` // or this, if it is no text
	IfAbsent   bool      `json:"if_absent,omitempty"`
}

// When is one of both.
type When struct {
	At    string `json:"at,omitempty"`    // RFC 3339
	After string `json:"after,omitempty"` // such as 1m30s
}

// Callback is the call that a timer makes.
type Callback struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Timeout string            `json:"timeout,omitempty"` // such as 5s
}

func (t *Timer) read(r *strictjson.Reader, field string) error {
	return r.Object(field, func(name string) error {
		switch name {
		case "key":
			return r.Text(name, &t.Key, "; PUT /timers/{key} takes any bytes, with percent encoding")
		case "topic":
			return r.Text(name, &t.Topic, "")
		case "callback":
			if r.Null() {
				return nil
			}
			t.Callback = new(Callback)
			return t.Callback.read(r, name)
		case "body":
			return r.Text(name, &t.Body, "; body_base64 takes any bytes")
		case "body_base64":
			return r.Base64(name, &t.BodyBase64)
		case "if_absent":
			return r.Bool(name, &t.IfAbsent)
		}
		return t.When.field(r, name)
	})
}

func (w *When) read(r *strictjson.Reader) error {
	return r.Object("", func(name string) error { return w.field(r, name) })
}

func (w *When) field(r *strictjson.Reader, name string) error {
	switch name {
	case "at":
		return r.Text(name, &w.At, "")
	case "after":
		return r.Text(name, &w.After, "")
	}
	return r.Unknown(name)
}

func (c *Callback) read(r *strictjson.Reader, field string) error {
	return r.Object(field, func(name string) error {
		switch name {
		case "url":
			return r.Text(name, &c.URL, "; percent encoding takes any bytes")
		case "method":
			return r.Text(name, &c.Method, "")
		case "headers":
			return r.Texts(name, webhook.MaxHeaders, &c.Headers)
		case "timeout":
			return r.Text(name, &c.Timeout, "")
		}
		return r.Unknown(name)
	})
}

// latest is the latest time that a timer can have.
var latest = store.MaxMillis.Time()

func (w When) times() (at time.Time, after time.Duration, err error) {
	switch {
	case w.At != "" && w.After != "":
		return at, 0, invalid("after", quote(w.After), "absent beside at")
	case w.At == "" && w.After == "":
		return at, 0, invalid("at", "absent", "a time such as 2030-01-02T15:04:05Z, or after must be a duration such as 1m30s")
	case w.After != "":
		after, err = time.ParseDuration(w.After)
		if err != nil || after < 0 {
			return at, 0, invalid("after", quote(w.After), "a duration of 0s or more, such as 1m30s")
		}
		return at, after, nil
	}
	at, err = time.Parse(time.RFC3339Nano, w.At)
	if err != nil || at.UnixMilli() < 1 || at.After(latest) {
		return at, 0, invalid("at", quote(w.At), fmt.Sprintf("a time of RFC 3339 after 1970-01-01T00:00:00Z and up to %s", latest.Format(time.RFC3339)))
	}
	return at, 0, nil
}

// timer checks the request and returns it as package durable takes it.
func (t Timer) timer() (durable.Timer, error) {
	d := durable.Timer{Key: t.Key, Topic: t.Topic, IfAbsent: t.IfAbsent}
	if err := checkKey(t.Key); err != nil {
		return d, err
	}
	if n := len(t.Topic); n > store.MaxTopic {
		return d, invalid("topic", lengthOf(n), fmt.Sprintf("at most %d bytes long", store.MaxTopic))
	}
	var err error
	if d.At, d.After, err = t.times(); err != nil {
		return d, err
	}
	if t.Callback == nil {
		return d, invalid("callback", "absent", "an object with at least a url")
	}
	call := webhook.Call{Method: t.Callback.Method, URL: t.Callback.URL, Headers: t.Callback.Headers, Body: t.BodyBase64}
	switch {
	case t.Body != "" && len(t.BodyBase64) > 0:
		return d, invalid("body_base64", lengthOf(len(t.BodyBase64)), "absent beside body")
	case t.Body != "":
		call.Body = []byte(t.Body)
	}
	if s := t.Callback.Timeout; s != "" {
		if call.Timeout, err = time.ParseDuration(s); err != nil || call.Timeout <= 0 || call.Timeout > webhook.MaxTimeout {
			return d, invalid("callback.timeout", quote(s), fmt.Sprintf("a duration of more than 0s, up to %v", webhook.MaxTimeout))
		}
	}
	if d.Body, err = webhook.Encode(call); err != nil {
		e := asError(err)
		if e.Field == "body" {
			return d, e
		}
		return d, within("callback.", e)
	}
	return d, nil
}

func checkKey(key string) error {
	if n := len(key); n < 1 || n > store.MaxKey {
		return invalid("key", lengthOf(n), fmt.Sprintf("1 to %d bytes long", store.MaxKey))
	}
	return nil
}
