package client

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

func (t *Timer) wire(field string) (*wire.Timer, error) {
	w := new(wire.Timer)
	switch {
	case t.At.IsZero():
		w.After = t.After.String()
	case t.After != 0:
		return nil, invalid(field+".After", t.After.String(), "0s if At is set")
	default:
		w.At = timeText(t.At)
	}
	var err error
	w.Payload, err = payloadOf(field, t.Topic, t.Callback, t.Body, t.IfAbsent)
	return w, err
}

func payloadOf(field, topic string, c Callback, body []byte, ifAbsent bool) (wire.Payload, error) {
	p := wire.Payload{Topic: topic, IfAbsent: ifAbsent}
	p.Callback = &wire.Callback{URL: c.URL, Method: c.Method, Headers: c.Headers, Timeout: wire.Duration(c.Timeout)}
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

func (s *Schedule) recurrence() (wire.Recurrence, error) {
	return wire.Recurrence{
		Cron: s.Cron, Zone: s.Zone, Every: wire.Duration(s.Every), Offset: wire.Duration(s.Offset),
		Start: timeText(s.Start), End: timeText(s.End), Limit: int64(s.Limit),
	}, checkTexts("Schedule", "Cron", s.Cron, "Zone", s.Zone)
}

func (s *Schedule) wire() (w wire.Schedule, err error) {
	if w.Recurrence, err = s.recurrence(); err != nil {
		return w, err
	}
	w.Policy = wire.Policy{
		Jitter: wire.Duration(s.Jitter), Overlap: string(s.Overlap), Missed: string(s.Missed), CatchUp: wire.Duration(s.CatchUp), PauseOnDead: s.PauseOnDead,
	}
	w.Payload, err = payloadOf("Schedule", s.Topic, s.Callback, s.Body, s.IfAbsent)
	return w, err
}

// timeText formats a time in full precision; the zero time gives "".
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// decoder decodes a reply, and reports whether it is timerd's.
type decoder func(b []byte) bool

// into returns the decoder of a reply with type W, which convert converts for v.
func into[W, V any](v *V, convert func(*reader, *W) V) decoder {
	return func(b []byte) bool {
		var w W
		if json.Unmarshal(b, &w) != nil {
			return false
		}
		var r reader
		if got := convert(&r, &w); !r.foreign {
			*v = got
		}
		return !r.foreign
	}
}

// reader converts the texts of a reply. foreign means that one is wrong, or that the reply lacks
// what timerd always sends.
type reader struct{ foreign bool }

func (r *reader) must(ok bool) {
	if !ok {
		r.foreign = true
	}
}

func (r *reader) time(s string) (t time.Time) {
	if s != "" {
		var err error
		t, err = time.Parse(time.RFC3339, s)
		r.must(err == nil)
	}
	return t
}

func (r *reader) times(texts []string) (all []time.Time) {
	for _, s := range texts {
		all = append(all, r.time(s))
	}
	return all
}

func (r *reader) duration(s string) (d time.Duration) {
	if s != "" {
		var err error
		d, err = time.ParseDuration(s)
		r.must(err == nil)
	}
	return d
}

func (r *reader) call(c *wire.Content) (call Callback, body []byte) {
	if w := c.Callback; w != nil {
		call = Callback{URL: w.URL, Method: w.Method, Headers: w.Headers, Timeout: r.duration(w.Timeout)}
	}
	if c.Body != "" {
		return call, []byte(c.Body)
	}
	return call, c.BodyBase64
}

func (r *reader) receipt(w *wire.Result) Receipt {
	r.must(w.Result != "")
	return Receipt{Key: w.Key, Result: Result(w.Result), Due: r.time(w.Due)}
}

func (r *reader) receipts(w *wire.Results) (all []Receipt) {
	r.must(w.Timers != nil)
	for i := range w.Timers {
		all = append(all, r.receipt(&w.Timers[i]))
	}
	return all
}

func (r *reader) timer(w *wire.Info) TimerInfo {
	r.must(w.Path != "")
	i := TimerInfo{
		Key: keyOf(w.Path, "/timers/", w.Key), Name: w.Key, ID: w.ID, Schedule: w.Schedule, Planned: r.time(w.Planned),
		State: State(w.State), Topic: w.Topic, Due: r.time(w.Due), Attempts: w.Attempts, LastError: w.LastError,
		LeaseEnd: r.time(w.LeaseEnd), Worker: w.Worker, Cancelled: w.Cancelled, SuccessorDue: r.time(w.SuccessorDue), Died: r.time(w.Died),
	}
	i.Callback, i.Body = r.call(&w.Content)
	return i
}

func (r *reader) timers(w *wire.Page) page[TimerInfo] {
	return pageOf(r, w.Timers, w.Next, (*reader).timer)
}

// pageOf converts the items of a page. A reply without a list is not timerd's.
func pageOf[T, W any](r *reader, items []W, next string, convert func(*reader, *W) T) page[T] {
	r.must(items != nil)
	p := page[T]{next: next}
	for i := range items {
		p.values = append(p.values, convert(r, &items[i]))
	}
	return p
}

func (r *reader) schedule(w *wire.ScheduleInfo) ScheduleInfo {
	r.must(w.Path != "")
	i := ScheduleInfo{
		Schedule: Schedule{
			Key:  keyOf(w.Path, "/schedules/", w.Key),
			Cron: w.Cron, Zone: w.Zone, Every: r.duration(w.Every), Offset: r.duration(w.Offset),
			Start: r.time(w.Start), End: r.time(w.End), Limit: int(w.Limit),
			Jitter: r.duration(w.Jitter), Overlap: Overlap(w.Overlap), Missed: Missed(w.Missed),
			CatchUp: r.duration(w.CatchUp), PauseOnDead: w.PauseOnDead, Topic: w.Topic,
		},
		ID: w.ID, State: ScheduleState(w.State), Problem: w.Problem, Created: r.time(w.Created), Paused: r.time(w.Paused), PauseNote: w.PauseNote,
		Next: r.times(w.Next), Overdue: r.time(w.Overdue), Waiting: r.time(w.Waiting), Counts: Counts(w.Counts),
	}
	i.Callback, i.Body = r.call(&w.Content)
	for _, o := range w.Last {
		i.Last = append(i.Last, Occurrence{
			Key: keyOf(o.Path, "/timers/", ""), Planned: r.time(o.Planned), Requested: o.Requested, State: OccurrenceState(o.State),
			Begun: r.time(o.Begun), Ended: r.time(o.Ended), Attempts: o.Attempts, Error: o.Error,
		})
	}
	return i
}

func (r *reader) schedules(w *wire.SchedulePage) page[ScheduleInfo] {
	return pageOf(r, w.Schedules, w.Next, (*reader).schedule)
}

func (r *reader) changed(w *wire.ScheduleResult) ScheduleReceipt {
	r.must(w.Result != "")
	return ScheduleReceipt{Result: Result(w.Result), Next: r.times(w.Next), Warning: w.Warning, Cancelled: valueOf(w.Cancelled)}
}

func (r *reader) triggered(w *wire.ScheduleResult) Occurrence {
	r.must(w.Result != "")
	return Occurrence{Key: keyOf(w.Path, "/timers/", ""), Planned: r.time(w.Planned), Requested: "trigger", State: OccurrenceWaiting}
}

func (r *reader) backfilled(w *wire.ScheduleResult) int {
	r.must(w.Result != "")
	return valueOf(w.Count)
}

func (r *reader) preview(w *wire.Planned) Preview {
	r.must(w.Next != nil)
	return Preview{Next: r.times(w.Next), Warning: w.Warning}
}

func (r *reader) status(w *wire.Health) string {
	r.must(w.Status != "")
	return w.Status
}

func (r *reader) workers(w *wire.Workers) (all []WorkerInfo) {
	r.must(w.Workers != nil)
	for _, o := range w.Workers {
		i := WorkerInfo{
			Name: o.Name, Live: o.Live, Heartbeat: r.time(o.Heartbeat), Since: r.time(o.Since),
			Slots: o.Slots, Running: o.Running, PreferredShards: o.Preferred,
			Done: o.Done, Retried: o.Retried, Snoozed: o.Snoozed, DeadLettered: o.DeadLettered, Cancelled: o.Cancelled,
		}
		if o.Late != nil {
			i.Late = Lateness(*o.Late)
		}
		all = append(all, i)
	}
	return all
}

func valueOf(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
