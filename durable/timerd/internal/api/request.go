package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

// latest is the latest due time of a timer.
var latest = durable.MaxMillis.Time()

func timesOf(w wire.When) (at time.Time, after time.Duration, err error) {
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

// timerOf checks a request and converts it for package durable.
func timerOf(t *wire.Timer) (durable.Timer, error) {
	d := durable.Timer{Key: t.Key, Topic: t.Topic, IfAbsent: t.IfAbsent}
	if err := checkKey(t.Key); err != nil {
		return d, err
	}
	if strings.Contains(t.Key, "\x00") {
		return d, invalid("key", quote(t.Key), "without zero bytes")
	}
	if err := checkTopic(t.Topic); err != nil {
		return d, err
	}
	var err error
	if d.At, d.After, err = timesOf(t.When); err != nil {
		return d, err
	}
	d.Body, err = encode(t.Content)
	return d, err
}

func checkTopic(topic string) error {
	if n := len(topic); n > durable.MaxTopic {
		return invalid("topic", lengthOf(n), fmt.Sprintf("at most %d bytes long", durable.MaxTopic))
	}
	return nil
}

// encode checks a callback and returns the encoded call.
func encode(c wire.Content) (encoded []byte, err error) {
	if c.Callback == nil {
		return nil, invalid("callback", "absent", "an object with at least a url")
	}
	call := webhook.Call{Method: c.Callback.Method, URL: c.Callback.URL, Headers: c.Callback.Headers, Body: c.BodyBase64}
	switch {
	case c.Body != "" && len(c.BodyBase64) > 0:
		return nil, invalid("body_base64", lengthOf(len(c.BodyBase64)), "absent beside body")
	case c.Body != "":
		call.Body = []byte(c.Body)
	}
	if s := c.Callback.Timeout; s != "" {
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
