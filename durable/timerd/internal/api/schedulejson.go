package api

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/internal/strictjson"
)

// Recurrence determines the planned times of a schedule.
type Recurrence struct {
	Cron   string `json:"cron,omitempty"` // with Zone
	Zone   string `json:"zone,omitempty"`
	Every  string `json:"every,omitempty"` // instead of Cron, with Offset; such as 15m
	Offset string `json:"offset,omitempty"`
	Start  string `json:"start,omitempty"` // RFC 3339
	End    string `json:"end,omitempty"`
	Limit  int64  `json:"limit,omitempty"`
}

// Policy says how a schedule treats its planned times.
type Policy struct {
	Jitter      string `json:"jitter,omitempty"`
	Overlap     string `json:"overlap,omitempty"`
	Missed      string `json:"missed,omitempty"`
	CatchUp     string `json:"catch_up,omitempty"`
	PauseOnDead bool   `json:"pause_on_dead,omitempty"`
}

// Schedule is a request to put a schedule.
type Schedule struct {
	Recurrence
	Policy
	Payload
}

// Preview is a request for planned times.
type Preview struct {
	Recurrence
	From  string `json:"from,omitempty"` // RFC 3339; default: the present
	Count int64  `json:"count,omitempty"`
}

// Note is the request to pause a schedule.
type Note struct {
	Note string `json:"note,omitempty"`
}

// Interval is the request for a backfill.
type Interval struct {
	From string `json:"from"` // RFC 3339
	To   string `json:"to"`
}

func (s *Schedule) read(r *strictjson.Reader) error {
	return r.Object("", func(name string) error {
		switch name {
		case "jitter":
			return r.Text(name, &s.Jitter, "")
		case "overlap":
			return r.Text(name, &s.Overlap, "")
		case "missed":
			return r.Text(name, &s.Missed, "")
		case "catch_up":
			return r.Text(name, &s.CatchUp, "")
		case "pause_on_dead":
			return r.Bool(name, &s.PauseOnDead)
		case "topic", "callback", "body", "body_base64", "if_absent":
			return s.Payload.field(r, name)
		}
		return s.Recurrence.field(r, name)
	})
}

func (p *Preview) read(r *strictjson.Reader) error {
	return r.Object("", func(name string) error {
		switch name {
		case "from":
			return r.Text(name, &p.From, "")
		case "count":
			return r.Int(name, &p.Count)
		}
		return p.Recurrence.field(r, name)
	})
}

func (n *Note) read(r *strictjson.Reader) error {
	return r.Object("", func(name string) error {
		if name == "note" {
			return r.Text(name, &n.Note, "")
		}
		return r.Unknown(name)
	})
}

func (i *Interval) read(r *strictjson.Reader) error {
	return r.Object("", func(name string) error {
		switch name {
		case "from":
			return r.Text(name, &i.From, "")
		case "to":
			return r.Text(name, &i.To, "")
		}
		return r.Unknown(name)
	})
}

func (c *Recurrence) field(r *strictjson.Reader, name string) error {
	switch name {
	case "cron":
		return r.Text(name, &c.Cron, "")
	case "zone":
		return r.Text(name, &c.Zone, "")
	case "every":
		return r.Text(name, &c.Every, "")
	case "offset":
		return r.Text(name, &c.Offset, "")
	case "start":
		return r.Text(name, &c.Start, "")
	case "end":
		return r.Text(name, &c.End, "")
	case "limit":
		return r.Int(name, &c.Limit)
	}
	return r.Unknown(name)
}

// fill checks the values that a durable.Schedule cannot express, and sets d's fields.
func (c *Recurrence) fill(d *durable.Schedule) (err error) {
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

func (p *Policy) fill(d *durable.Schedule) (err error) {
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

// schedule checks the request and converts it for package durable.
func (s *Schedule) schedule(key string) (d durable.Schedule, err error) {
	d = durable.Schedule{Key: key, Topic: s.Topic, IfAbsent: s.IfAbsent}
	if err := s.checkTopic(); err != nil {
		return d, err
	}
	if err := s.Recurrence.fill(&d); err != nil {
		return d, err
	}
	if err := s.Policy.fill(&d); err != nil {
		return d, err
	}
	d.Body, err = s.call()
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
func fieldError(f *durable.FieldError, sent map[string]string) *Error {
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
	return &Error{
		Status: http.StatusBadRequest, Code: "invalid", Message: f.Err.Error(),
		Field: name, Value: value, Range: strings.TrimPrefix(must, "be "),
	}
}

// texts returns the request's fields whose values fieldError shows as they were sent.
func (c *Recurrence) texts() map[string]string {
	return map[string]string{"cron": c.Cron, "zone": c.Zone, "every": c.Every, "offset": c.Offset, "start": c.Start, "end": c.End}
}

func (s *Schedule) texts() map[string]string {
	t := s.Recurrence.texts()
	t["jitter"], t["catch_up"] = s.Jitter, s.CatchUp
	return t
}
