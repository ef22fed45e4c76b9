package console

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

// definition has the fields of a schedule that a user sets.
type definition struct {
	Cron        string    `json:"cron,omitempty"`
	Zone        string    `json:"zone,omitempty"`
	EveryMS     int64     `json:"every_ms,omitempty"`
	OffsetMS    int64     `json:"offset_ms,omitempty"`
	Start       time.Time `json:"start,omitzero"`
	End         time.Time `json:"end,omitzero"`
	Limit       int       `json:"limit,omitempty"`
	JitterMS    int64     `json:"jitter_ms,omitempty"`
	Overlap     string    `json:"overlap"`
	Missed      string    `json:"missed"`
	CatchUpMS   int64     `json:"catch_up_ms"`
	PauseOnDead bool      `json:"pause_on_dead,omitempty"`
	Topic       string    `json:"topic,omitempty"`
}

// schedule is a schedule as the API shows it.
type schedule struct {
	Key  rawKey `json:"key"`
	Text string `json:"text"`
	ID   string `json:"id"`
	definition

	Created   time.Time   `json:"created"`
	Paused    time.Time   `json:"paused,omitzero"`
	PauseNote string      `json:"pause_note,omitempty"`
	Next      []time.Time `json:"next"` // in the schedule's zone
	Overdue   time.Time   `json:"overdue,omitzero"`
	Waiting   time.Time   `json:"waiting,omitzero"`
	Problem   string      `json:"problem,omitempty"`
	Warning   string      `json:"warning,omitempty"`

	Counts scheduleCounts `json:"counts"`
	Last   []occurrence   `json:"last"` // the latest first

	Body *body `json:"body,omitempty"` // nil in lists
}

type scheduleCounts struct {
	Created        uint64 `json:"created"`
	Triggered      uint64 `json:"triggered"`
	Backfilled     uint64 `json:"backfilled"`
	SkippedOverlap uint64 `json:"skipped_overlap"`
	SkippedMissed  uint64 `json:"skipped_missed"`
	SkippedUpdated uint64 `json:"skipped_updated"`
	Done           uint64 `json:"done"`
	Dead           uint64 `json:"dead"`
	Cancelled      uint64 `json:"cancelled"`
}

type occurrence struct {
	Key       rawKey    `json:"key"`
	Planned   time.Time `json:"planned"`
	Requested string    `json:"requested,omitempty"` // trigger or backfill
	State     string    `json:"state"`
	Begun     time.Time `json:"begun,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Attempts  int       `json:"attempts,omitempty"`
	Error     string    `json:"error,omitempty"`
}

func scheduleOf(i durable.ScheduleInfo) schedule {
	s := schedule{
		Key: rawKey(i.Key), Text: readable(i.Key), ID: i.ID.String(),
		definition: definition{
			Cron: i.Cron, Zone: i.Zone, EveryMS: i.Every.Milliseconds(), OffsetMS: i.Offset.Milliseconds(),
			Start: i.Start, End: i.End, Limit: i.Limit, JitterMS: i.Jitter.Milliseconds(),
			Overlap: i.Overlap.String(), Missed: i.Missed.String(), CatchUpMS: i.CatchUp.Milliseconds(),
			PauseOnDead: i.PauseOnDead, Topic: readable(i.Topic),
		},
		Created: i.Created, Paused: i.Paused, PauseNote: readable(i.PauseNote), Next: i.Next,
		Overdue: i.Overdue, Waiting: i.Waiting, Problem: readable(i.Problem), Warning: i.Warning(),
		Counts: scheduleCounts{
			Created: i.Counts.Created, Triggered: i.Counts.Triggered, Backfilled: i.Counts.Backfilled,
			SkippedOverlap: i.Counts.SkippedOverlap, SkippedMissed: i.Counts.SkippedMissed, SkippedUpdated: i.Counts.SkippedUpdated,
			Done: i.Counts.Done, Dead: i.Counts.Dead, Cancelled: i.Counts.Cancelled,
		},
		Last: make([]occurrence, len(i.Last)),
	}
	if s.Next == nil {
		s.Next = []time.Time{}
	}
	for n, o := range i.Last {
		s.Last[n] = occurrence{
			Key: rawKey(o.Key), Planned: o.Planned, Requested: o.Requested, State: o.State.String(),
			Begun: o.Begun, Ended: o.Ended, Attempts: o.Attempts, Error: readable(o.Error),
		}
	}
	return s
}

func (c *Console) listSchedules(r *http.Request) (any, error) {
	values := r.URL.Query()
	limit, err := limitOf(values)
	if err != nil {
		return nil, err
	}
	var after rawKey
	if err := after.UnmarshalText([]byte(values.Get("after"))); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readFor)
	defer cancel()
	page := listing[schedule]{Items: []schedule{}}
	for info, err := range c.timers.SchedulesAfter(ctx, string(after)) {
		if err != nil {
			return nil, err
		}
		if len(page.Items) == limit {
			last, _ := page.Items[limit-1].Key.MarshalText() // it never fails
			page.Next = string(last)
			break
		}
		page.Items = append(page.Items, scheduleOf(info))
	}
	return page, nil
}

func (c *Console) getSchedule(r *http.Request) (any, error) {
	var key rawKey
	if err := key.UnmarshalText([]byte(r.URL.Query().Get("key"))); err != nil {
		return nil, err
	}
	if err := checkSchedule(key); err != nil {
		return nil, err
	}
	info, err := c.timers.GetSchedule(r.Context(), string(key))
	if err != nil {
		return nil, err
	}
	s := scheduleOf(info)
	s.Body = c.bodyOf(info.Topic, info.Body)
	return s, nil
}

// schedulePut is a schedule to create or to replace.
type schedulePut struct {
	Key rawKey `json:"key"`
	definition
	BodyBase64 string `json:"body_base64"`
	// Keep keeps the body of the replaced schedule, and also its topic if the request has the topic
	// as the page shows it. The page cannot always show body and topic as they are stored.
	Keep bool `json:"keep"`
	// IfAbsent refuses to replace a schedule.
	IfAbsent bool `json:"if_absent"`
}

// maxMS bounds the durations of a schedulePut before their conversion, which could overflow. The
// allowed ranges of all fields are below it.
const maxMS = int64(maxAfter / time.Millisecond)

func (p *schedulePut) schedule() (s durable.Schedule, err error) {
	for _, d := range []struct {
		field string
		ms    int64
	}{{"every_ms", p.EveryMS}, {"offset_ms", p.OffsetMS}, {"jitter_ms", p.JitterMS}, {"catch_up_ms", p.CatchUpMS}} {
		if d.ms < 0 || d.ms > maxMS {
			return s, badRequest("%s is %d, must be 0 to %d", d.field, d.ms, maxMS)
		}
	}
	s = durable.Schedule{
		Key: string(p.Key), Cron: p.Cron, Zone: p.Zone, Every: msDuration(p.EveryMS), Offset: msDuration(p.OffsetMS),
		Start: p.Start, End: p.End, Limit: p.Limit, Jitter: msDuration(p.JitterMS), CatchUp: msDuration(p.CatchUpMS),
		PauseOnDead: p.PauseOnDead, Topic: p.Topic, IfAbsent: p.IfAbsent,
	}
	if p.Overlap != "" {
		if s.Overlap, err = durable.ParseOverlap(p.Overlap); err != nil {
			return s, badRequest("%v", err)
		}
	}
	if p.Missed != "" {
		if s.Missed, err = durable.ParseMissed(p.Missed); err != nil {
			return s, badRequest("%v", err)
		}
	}
	if s.Body, err = base64.StdEncoding.DecodeString(p.BodyBase64); err != nil {
		return s, badRequest("body_base64 is %.64q, must be base64", p.BodyBase64)
	}
	return s, nil
}

func msDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// previewReply has the planned times of an edited schedule.
type previewReply struct {
	Next    []time.Time `json:"next"`
	Warning string      `json:"warning,omitempty"`
}

const previewed = 10 // planned times

func (c *Console) previewSchedule(r *http.Request) (any, error) {
	var put schedulePut
	if err := readJSON(r, &put); err != nil {
		return nil, err
	}
	s, err := put.schedule()
	if err != nil {
		return nil, err
	}
	next, err := s.Upcoming(time.Now(), previewed)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return previewReply{Next: next, Warning: s.Warning()}, nil
}

// scheduleReply is the result of changing a schedule.
type scheduleReply struct {
	Result string `json:"result"`
	Count  int    `json:"count,omitempty"`   // of occurrences, backfilled or cancelled
	Key    rawKey `json:"created,omitempty"` // of the occurrence that a trigger created
}

func checkSchedule(key rawKey) error {
	const most = 480
	n := len(key)
	if n < 1 || n > most {
		return badRequest("the schedule's key is %d bytes long, must be 1 to %d", n, most)
	}
	for i := range n {
		if key[i] == 0 {
			return badRequest("byte %d of the schedule's key %.64q is zero, must not be", i, string(key))
		}
	}
	return nil
}

func (c *Console) changeSchedule(r *http.Request) (any, error) {
	if r.PathValue("action") == "put" {
		return c.putSchedule(r)
	}
	var request struct {
		Key  rawKey    `json:"key"`
		Note string    `json:"note"` // of a pause
		From time.Time `json:"from"` // of a backfill
		To   time.Time `json:"to"`
		// Cancel makes a delete cancel the waiting occurrences.
		Cancel bool `json:"cancel"`
	}
	if err := readJSON(r, &request); err != nil {
		return nil, err
	}
	if err := checkSchedule(request.Key); err != nil {
		return nil, err
	}
	const maxNote = 256
	if n := len(request.Note); n > maxNote {
		return nil, badRequest("note is %d bytes long, must be at most %d", n, maxNote)
	}
	key, ctx, action := string(request.Key), r.Context(), r.PathValue("action")
	var reply scheduleReply
	var err error
	switch action {
	case "pause":
		reply.Result, err = "paused", c.timers.PauseSchedule(ctx, key, request.Note)
	case "resume":
		reply.Result, err = "resumed", c.timers.ResumeSchedule(ctx, key)
	case "trigger":
		var created string
		created, err = c.timers.TriggerSchedule(ctx, key)
		reply.Result, reply.Key, reply.Count = "triggered", rawKey(created), 1
	case "backfill":
		reply.Result = "backfilled"
		reply.Count, err = c.timers.BackfillSchedule(ctx, key, request.From, request.To)
	case "delete":
		reply.Result, err = "deleted", c.timers.DeleteSchedule(ctx, key)
		// A schedule that is already deleted can have left occurrences.
		if request.Cancel && (err == nil || errors.Is(err, durable.ErrNotFound)) {
			var cancelErr error
			reply.Count, cancelErr = c.timers.CancelOccurrences(ctx, key)
			err = errors.Join(err, cancelErr)
		}
	default:
		return nil, badRequest("the action is %.64q, must be put, pause, resume, trigger, backfill or delete", action)
	}
	args := []any{"key", key, "count", reply.Count}
	if err != nil {
		args = append(args, "error", err)
	}
	c.log(r, action+" schedule", args...)
	return reply, err
}

func (c *Console) putSchedule(r *http.Request) (any, error) {
	var put schedulePut
	if err := readJSON(r, &put); err != nil {
		return nil, err
	}
	if err := checkSchedule(put.Key); err != nil {
		return nil, err
	}
	s, err := put.schedule()
	if err != nil {
		return nil, err
	}
	if put.Keep {
		old, err := c.timers.GetSchedule(r.Context(), s.Key)
		if err != nil {
			return nil, err
		}
		s.Body = old.Body
		if s.Topic == readable(old.Topic) {
			s.Topic = old.Topic
		}
	} else if check := c.options.CheckBody; check != nil {
		if err := check(s.Topic, s.Body); err != nil {
			return nil, badRequest("the body is refused: %v", err)
		}
	}
	result, _, err := c.timers.PutSchedule(r.Context(), s)
	if err != nil {
		return nil, err
	}
	c.log(r, "put schedule", "key", s.Key, "count", 1, "result", result.String())
	if result == durable.ScheduleExists {
		return nil, &failure{Status: http.StatusConflict, Message: "the key has a schedule already: edit that"}
	}
	return scheduleReply{Result: result.String()}, nil
}
