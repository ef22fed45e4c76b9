package api

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

// setRecurrence checks the values that a durable.Schedule cannot express, and sets d's fields.
func setRecurrence(d *durable.Schedule, c *wire.Recurrence) (err error) {
	switch {
	case c.Cron == "" && c.Every == "":
		return invalid("cron", "absent", "five fields such as 30 2 * * 1-5, or every must be a duration such as 15m")
	case c.Cron != "" && c.Every != "":
		return invalid("every", quote(c.Every), "absent with cron")
	case c.Cron == "" && c.Zone != "":
		return invalid("zone", quote(c.Zone), "absent without cron: every follows UTC")
	case c.Every == "" && c.Offset != "":
		return invalid("offset", quote(c.Offset), "absent without every")
	case c.Limit < 0 || c.Limit > math.MaxInt32:
		return invalid("limit", strconv.FormatInt(c.Limit, 10), fmt.Sprintf("0 (no bound) to %d", math.MaxInt32))
	}
	d.Cron, d.Zone, d.Limit = c.Cron, c.Zone, int(c.Limit)
	if d.Every, err = readDuration("every", c.Every); err != nil {
		return err
	}
	if c.Every != "" && d.Every == 0 {
		return invalid("every", quote(c.Every), "1s to 87600h0m0s")
	}
	if d.Offset, err = readDuration("offset", c.Offset); err != nil {
		return err
	}
	if d.Start, err = readTime("start", c.Start); err != nil {
		return err
	}
	if d.End, err = readTime("end", c.End); err != nil {
		return err
	}
	if !d.Start.IsZero() && !d.End.IsZero() && d.End.Before(d.Start) {
		return invalid("end", quote(c.End), "at or after start, "+quote(c.Start))
	}
	return nil
}

func setPolicy(d *durable.Schedule, p *wire.Policy) (err error) {
	if d.Jitter, err = readDuration("jitter", p.Jitter); err != nil {
		return err
	}
	if d.CatchUp, err = readDuration("catch_up", p.CatchUp); err != nil {
		return err
	}
	if p.CatchUp != "" && d.CatchUp == 0 { // durable would take 0 for the default
		return invalid("catch_up", quote(p.CatchUp), "1s to 87600h0m0s")
	}
	if p.Overlap != "" {
		if d.Overlap, err = durable.ParseOverlap(p.Overlap); err != nil {
			return invalid("overlap", quote(p.Overlap), "skip, buffer_one, cancel or allow")
		}
	}
	if p.Missed != "" {
		if d.Missed, err = durable.ParseMissed(p.Missed); err != nil {
			return invalid("missed", quote(p.Missed), "latest, none or all")
		}
	}
	d.PauseOnDead = p.PauseOnDead
	return nil
}

// scheduleOf checks a request and converts it for package durable.
func scheduleOf(key string, s *wire.Schedule) (d durable.Schedule, err error) {
	d = durable.Schedule{Key: key, Topic: s.Topic, IfAbsent: s.IfAbsent}
	if err := checkTopic(s.Topic); err != nil {
		return d, err
	}
	if err := setRecurrence(&d, &s.Recurrence); err != nil {
		return d, err
	}
	if err := setPolicy(&d, &s.Policy); err != nil {
		return d, err
	}
	d.Body, err = encode(s.Content)
	return d, err
}

// readDuration parses a duration; "" is 0.
func readDuration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, invalid(field, quote(text), "a duration such as 1m30s")
	}
	return d, nil
}

// readTime parses a time; "" is the zero time.
func readTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.UnixMilli() < 0 || at.After(latest) {
		return time.Time{}, invalid(field, quote(text), fmt.Sprintf("a time of RFC 3339 from 1970-01-01T00:00:00Z up to %s", latest.Format(time.RFC3339)))
	}
	return at, nil
}

// names maps the fields of a durable.FieldError to their names in JSON.
var names = map[string]string{
	"Cron": "cron", "Zone": "zone", "Every": "every", "Offset": "offset", "Start": "start", "End": "end",
	"Limit": "limit", "Jitter": "jitter", "Overlap": "overlap", "Missed": "missed", "CatchUp": "catch_up",
	"Topic": "topic", "Body": "body", "From": "from", "To": "to",
}

// fieldError returns the reply to a FieldError of package durable. If sent has the field's text,
// the reply shows that as the value.
func fieldError(f *durable.FieldError, sent map[string]string) *wire.Error {
	name, known := names[f.Field]
	if !known {
		name = f.Field
	}
	value := f.Value
	if text := sent[name]; text != "" {
		value = quote(text)
	}
	if name == "body" {
		value += " as an encoded call"
	}
	if f.Err == nil {
		return invalid(name, value, f.Range)
	}
	_, must, _ := strings.Cut(f.Err.Error(), ", must ")
	return &wire.Error{
		Status: http.StatusBadRequest, Code: "invalid", Message: f.Err.Error(),
		Field: name, Value: value, Range: strings.TrimPrefix(must, "be "),
	}
}

// textsOf returns the request's fields whose values fieldError shows as they were sent.
func textsOf(c *wire.Recurrence, p *wire.Policy) map[string]string {
	return map[string]string{
		"cron": c.Cron, "zone": c.Zone, "every": c.Every, "offset": c.Offset, "start": c.Start, "end": c.End,
		"jitter": p.Jitter, "catch_up": p.CatchUp,
	}
}
