package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// Timer is a request to schedule a timer.
type Timer struct {
	Key string `json:"key,omitempty"` // in POST /timers; PUT has it in the path
	When
	Payload
}

// Payload has the fields that timers and schedules share.
type Payload struct {
	Topic      string    `json:"topic,omitempty"`
	Callback   *Callback `json:"callback"`
	Body       string    `json:"body,omitempty"`        // the callback's body, if it is text
	BodyBase64 []byte    `json:"body_base64,omitempty"` // the callback's body otherwise
	IfAbsent   bool      `json:"if_absent,omitempty"`
}

// When is a due time: either At or After.
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
			return r.Text(name, &t.Key, "; PUT /timers/{key} takes any bytes but zero bytes, with percent encoding")
		case "at", "after":
			return t.When.field(r, name)
		}
		return t.Payload.field(r, name)
	})
}

func (p *Payload) field(r *strictjson.Reader, name string) error {
	switch name {
	case "topic":
		return r.Text(name, &p.Topic, "")
	case "callback":
		if r.Null() {
			return nil
		}
		p.Callback = new(Callback)
		return p.Callback.read(r, name)
	case "body":
		return r.Text(name, &p.Body, "; body_base64 takes any bytes")
	case "body_base64":
		return r.Base64(name, &p.BodyBase64)
	case "if_absent":
		return r.Bool(name, &p.IfAbsent)
	}
	return r.Unknown(name)
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

// latest is the latest due time of a timer.
var latest = durable.MaxMillis.Time()

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

// timer checks the request and converts it for package durable.
func (t Timer) timer() (durable.Timer, error) {
	d := durable.Timer{Key: t.Key, Topic: t.Topic, IfAbsent: t.IfAbsent}
	if err := checkKey(t.Key); err != nil {
		return d, err
	}
	if strings.Contains(t.Key, "\x00") {
		return d, invalid("key", quote(t.Key), "without zero bytes")
	}
	if err := t.checkTopic(); err != nil {
		return d, err
	}
	var err error
	if d.At, d.After, err = t.times(); err != nil {
		return d, err
	}
	d.Body, err = t.call()
	return d, err
}

func (p *Payload) checkTopic() error {
	if n := len(p.Topic); n > durable.MaxTopic {
		return invalid("topic", lengthOf(n), fmt.Sprintf("at most %d bytes long", durable.MaxTopic))
	}
	return nil
}

// call checks the callback and returns the encoded call.
func (p *Payload) call() (encoded []byte, err error) {
	if p.Callback == nil {
		return nil, invalid("callback", "absent", "an object with at least a url")
	}
	call := webhook.Call{Method: p.Callback.Method, URL: p.Callback.URL, Headers: p.Callback.Headers, Body: p.BodyBase64}
	switch {
	case p.Body != "" && len(p.BodyBase64) > 0:
		return nil, invalid("body_base64", lengthOf(len(p.BodyBase64)), "absent beside body")
	case p.Body != "":
		call.Body = []byte(p.Body)
	}
	if s := p.Callback.Timeout; s != "" {
		if call.Timeout, err = time.ParseDuration(s); err != nil || call.Timeout <= 0 || call.Timeout > webhook.MaxTimeout {
			return nil, invalid("callback.timeout", quote(s), fmt.Sprintf("a duration of more than 0s, up to %v", webhook.MaxTimeout))
		}
	}
	if encoded, err = webhook.Encode(call); err != nil {
		e := asError(err)
		if e.Field == "body" {
			return nil, e
		}
		return nil, within("callback.", e)
	}
	return encoded, nil
}

// checkKey refuses a key that neither a timer nor an occurrence can have.
func checkKey(key string) error {
	if n := len(key); n < 1 || n > durable.MaxKey {
		return invalid("key", lengthOf(n), fmt.Sprintf("1 to %d bytes long", durable.MaxKey))
	}
	if strings.HasSuffix(key, "\x00") {
		return invalid("key", quote(key), "without a zero byte at its end")
	}
	return nil
}
