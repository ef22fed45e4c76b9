package client

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// The types of the API's JSON that differ from the exported ones.

type when struct {
	At    string `json:"at,omitempty"`
	After string `json:"after,omitempty"`
}

type timerJSON struct {
	Key string `json:"key,omitempty"`
	when
	payload
}

// payload is common to the requests for timers and schedules.
type payload struct {
	Topic    string `json:"topic,omitempty"`
	IfAbsent bool   `json:"if_absent,omitempty"`
	content
}

// content has the fields of a callback in requests and replies.
type content struct {
	Callback   *callbackJSON `json:"callback,omitempty"`
	Body       string        `json:"body,omitempty"`
	BodyBase64 []byte        `json:"body_base64,omitempty"`
}

type callbackJSON struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Timeout duration          `json:"timeout,omitzero"`
}

func (t *Timer) wire(field string) (*timerJSON, error) {
	w := new(timerJSON)
	switch {
	case t.At.IsZero():
		w.After = t.After.String()
	case t.After != 0:
		return nil, invalid(field+".After", t.After.String(), "0s if At is set")
	default:
		w.At = timeText(t.At)
	}
	var err error
	w.payload, err = payloadOf(field, t.Topic, t.Callback, t.Body, t.IfAbsent)
	return w, err
}

func payloadOf(field, topic string, c Callback, body []byte, ifAbsent bool) (payload, error) {
	p := payload{Topic: topic, IfAbsent: ifAbsent}
	p.Callback = &callbackJSON{URL: c.URL, Method: c.Method, Headers: c.Headers, Timeout: duration(c.Timeout)}
	if utf8.Valid(body) {
		p.Body = string(body)
	} else {
		p.BodyBase64 = body
	}
	texts := []string{"Topic", topic, "Callback.URL", c.URL, "Callback.Method", c.Method}
	for name, value := range c.Headers {
		texts = append(texts, "Callback.Headers", name, "Callback.Headers", value)
	}
	return p, checkTexts(field, texts...)
}

// checkTexts refuses text that is not UTF-8, which encoding/json would alter. texts are names and
// values.
func checkTexts(field string, texts ...string) error {
	for i := 0; i < len(texts); i += 2 {
		if !utf8.ValidString(texts[i+1]) {
			return invalid(fmt.Sprintf("%s.%s", field, texts[i]), quoteShort(texts[i+1]), "UTF-8")
		}
	}
	return nil
}

func (c *content) callback() (call Callback) {
	if j := c.Callback; j != nil {
		call = Callback{URL: j.URL, Method: j.Method, Headers: j.Headers, Timeout: time.Duration(j.Timeout)}
	}
	return call
}

func (c *content) bytes() []byte {
	if c.Body != "" {
		return []byte(c.Body)
	}
	return c.BodyBase64
}

// timeText formats a time in full precision; the zero time gives "".
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// duration is a time.Duration whose JSON is text such as 1m30s. With omitzero, 0 is absent.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(b []byte) error {
	parsed, err := time.ParseDuration(string(b))
	*d = duration(parsed)
	return err
}

// receipt answers a change of one timer.
type receipt struct {
	Key    string    `json:"key"`
	Result Result    `json:"result"`
	Due    time.Time `json:"due"`
}

func (r *receipt) valid() bool { return r.Result != "" }

type batch struct {
	Timers []receipt `json:"timers"`
}

func (b *batch) valid() bool { return b.Timers != nil }

type timerInfo struct {
	Key          string    `json:"key"`
	Path         string    `json:"path"`
	ID           string    `json:"id"`
	Schedule     string    `json:"schedule"`
	Planned      time.Time `json:"planned"`
	State        State     `json:"state"`
	Topic        string    `json:"topic"`
	Due          time.Time `json:"due"`
	Attempts     int       `json:"attempts"`
	LastError    string    `json:"last_error"`
	LeaseEnd     time.Time `json:"lease_end"`
	Worker       string    `json:"worker"`
	Cancelled    bool      `json:"cancelled"`
	SuccessorDue time.Time `json:"successor_due"`
	Died         time.Time `json:"died"`
	content
}

func (t *timerInfo) valid() bool { return t.Path != "" }

func (t *timerInfo) info() TimerInfo {
	return TimerInfo{
		Key: keyOf(t.Path, "/timers/", t.Key), Name: t.Key, ID: t.ID, Schedule: t.Schedule, Planned: t.Planned,
		State: t.State, Topic: t.Topic, Due: t.Due, Attempts: t.Attempts, LastError: t.LastError,
		LeaseEnd: t.LeaseEnd, Worker: t.Worker, Cancelled: t.Cancelled, SuccessorDue: t.SuccessorDue, Died: t.Died,
		Callback: t.callback(), Body: t.bytes(),
	}
}

type timerPage struct {
	Timers []timerInfo `json:"timers"`
	Next   string      `json:"next"`
}

func (p *timerPage) valid() bool { return p.Timers != nil }

// recurrence has the fields of a schedule that determine its planned times.
type recurrence struct {
	Cron   string    `json:"cron,omitempty"`
	Zone   string    `json:"zone,omitempty"`
	Every  duration  `json:"every,omitzero"`
	Offset duration  `json:"offset,omitzero"`
	Start  time.Time `json:"start,omitzero"`
	End    time.Time `json:"end,omitzero"`
	Limit  int       `json:"limit,omitempty"`
}

type policy struct {
	Jitter      duration `json:"jitter,omitzero"`
	Overlap     Overlap  `json:"overlap,omitempty"`
	Missed      Missed   `json:"missed,omitempty"`
	CatchUp     duration `json:"catch_up,omitzero"`
	PauseOnDead bool     `json:"pause_on_dead,omitempty"`
}

type scheduleJSON struct {
	recurrence
	policy
	payload
}

type previewJSON struct {
	recurrence
	From  time.Time `json:"from,omitzero"`
	Count int       `json:"count,omitempty"`
}

type interval struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

type note struct {
	Note string `json:"note,omitempty"`
}

func (s *Schedule) recurrence() (recurrence, error) {
	return recurrence{
		Cron: s.Cron, Zone: s.Zone, Every: duration(s.Every), Offset: duration(s.Offset),
		Start: s.Start, End: s.End, Limit: s.Limit,
	}, checkTexts("Schedule", "Cron", s.Cron, "Zone", s.Zone)
}

func (s *Schedule) wire() (w scheduleJSON, err error) {
	if w.recurrence, err = s.recurrence(); err != nil {
		return w, err
	}
	w.policy = policy{
		Jitter: duration(s.Jitter), Overlap: s.Overlap, Missed: s.Missed, CatchUp: duration(s.CatchUp), PauseOnDead: s.PauseOnDead,
	}
	w.payload, err = payloadOf("Schedule", s.Topic, s.Callback, s.Body, s.IfAbsent)
	return w, err
}

// scheduleResult answers a change of one schedule.
type scheduleResult struct {
	Result    Result      `json:"result"`
	Next      []time.Time `json:"next"`
	Warning   string      `json:"warning"`
	Cancelled int         `json:"cancelled"`
	Path      string      `json:"path"`
	Planned   time.Time   `json:"planned"`
	Count     int         `json:"count"`
}

func (r *scheduleResult) valid() bool { return r.Result != "" }

type planned struct {
	Next    []time.Time `json:"next"`
	Warning string      `json:"warning"`
}

func (p *planned) valid() bool { return p.Next != nil }

type scheduleInfo struct {
	Key       string        `json:"key"`
	Path      string        `json:"path"`
	ID        string        `json:"id"`
	State     ScheduleState `json:"state"`
	Problem   string        `json:"problem"`
	Created   time.Time     `json:"created"`
	Paused    time.Time     `json:"paused"`
	PauseNote string        `json:"pause_note"`
	recurrence
	policy
	Topic   string       `json:"topic"`
	Next    []time.Time  `json:"next"`
	Overdue time.Time    `json:"overdue"`
	Waiting time.Time    `json:"waiting"`
	Counts  Counts       `json:"counts"`
	Last    []occurrence `json:"last"`
	content
}

type occurrence struct {
	Path      string          `json:"path"`
	Planned   time.Time       `json:"planned"`
	Requested string          `json:"requested"`
	State     OccurrenceState `json:"state"`
	Begun     time.Time       `json:"begun"`
	Ended     time.Time       `json:"ended"`
	Attempts  int             `json:"attempts"`
	Error     string          `json:"error"`
}

func (s *scheduleInfo) valid() bool { return s.Path != "" }

func (s *scheduleInfo) info() ScheduleInfo {
	i := ScheduleInfo{
		Schedule: Schedule{
			Key:  keyOf(s.Path, "/schedules/", s.Key),
			Cron: s.Cron, Zone: s.Zone, Every: time.Duration(s.Every), Offset: time.Duration(s.Offset),
			Start: s.Start, End: s.End, Limit: s.Limit,
			Jitter: time.Duration(s.Jitter), Overlap: s.Overlap, Missed: s.Missed,
			CatchUp: time.Duration(s.CatchUp), PauseOnDead: s.PauseOnDead,
			Topic: s.Topic, Callback: s.callback(), Body: s.bytes(),
		},
		ID: s.ID, State: s.State, Problem: s.Problem, Created: s.Created, Paused: s.Paused, PauseNote: s.PauseNote,
		Next: s.Next, Overdue: s.Overdue, Waiting: s.Waiting, Counts: s.Counts,
	}
	for _, o := range s.Last {
		i.Last = append(i.Last, Occurrence{
			Key: keyOf(o.Path, "/timers/", ""), Planned: o.Planned, Requested: o.Requested, State: o.State,
			Begun: o.Begun, Ended: o.Ended, Attempts: o.Attempts, Error: o.Error,
		})
	}
	return i
}

type schedulePage struct {
	Schedules []scheduleInfo `json:"schedules"`
	Next      string         `json:"next"`
}

func (p *schedulePage) valid() bool { return p.Schedules != nil }
