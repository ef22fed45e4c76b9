package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/durable/timerd/internal/api"
)

const (
	atOnce    = 256 // requests of a scheduler
	maxBatch  = 100 // operations that are taken together
	quantum   = 25 * time.Millisecond
	resend    = 50 * time.Millisecond
	patience  = 20 * time.Second // longer than timerd takes for any answer
	timeShape = "2006-01-02T15:04:05.000Z"
)

// The body of a call-back says what it is about, with the number and the mode.
const (
	aboutTimer    = "timer"
	aboutSchedule = "schedule"
)

// topics spread the timers over the lanes of a shard, each kind of timer over all.
var topics = []string{"orders", "payments", "reminders", "trials", "retries", "carts", "reports"}

// schedulerConfig is what a scheduler process is told.
type schedulerConfig struct {
	Load      load
	Index     int
	Start     time.Time
	API       string   // http://host:port
	Receivers []string // their URLs
	Ledger    string
}

// scheduler does its part of the plan over HTTP. What fails is sent again until it
// has an answer.
type scheduler struct {
	schedulerConfig
	ledger *ledger
	client *http.Client
}

func runScheduler(ctx context.Context, c schedulerConfig) error {
	l, err := openLedger(c.Ledger)
	if err != nil {
		return err
	}
	s := &scheduler{schedulerConfig: c, ledger: l, client: &http.Client{
		Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: atOnce},
	}}
	// Each queue has its own limit, so that timers and schedules do not hold each other up.
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.run(ctx, c.Load.plan(c.Index)) })
	group.Go(func() error { return s.run(ctx, c.Load.recurring(c.Index)) })
	return group.Wait()
}

// run begins operations at their times, without waiting for those before: a shard that does
// not answer holds up what goes to it, and nothing else. Those on one key are done in order.
func (s *scheduler) run(ctx context.Context, queue []op) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	last := make(map[int]chan struct{}) // by key: closed when what was begun last is done
	begin := func(ops []op, f func() error) {
		done := make(chan struct{})
		before := last[ops[0].key]
		for _, o := range ops {
			last[o.key] = done
		}
		group.Go(func() error {
			defer close(done)
			if before != nil {
				<-before
			}
			return f()
		})
	}
	for len(queue) > 0 {
		wake := s.Start.Add(queue[0].at.Truncate(quantum) + quantum)
		select {
		case <-time.After(time.Until(wake)):
		case <-ctx.Done():
			_ = group.Wait() // the cause is its error, if one of its functions has failed
			return context.Cause(ctx)
		}
		n := s.dueOf(queue)
		firsts, others := split(queue[:n])
		if len(firsts) > 0 {
			begin(firsts, func() error { return s.schedule(ctx, firsts) })
		}
		for _, o := range others {
			begin([]op{o}, func() error { return s.do(ctx, o) })
		}
		queue = queue[n:]
	}
	return group.Wait()
}

// dueOf returns how many operations have come to their time, at least 1 and at most
// maxBatch.
func (s *scheduler) dueOf(queue []op) int {
	elapsed := time.Since(s.Start)
	n := 1
	for n < min(len(queue), maxBatch) && queue[n].at <= elapsed {
		n++
	}
	return n
}

// split takes the schedules that can be sent together: each the first operation on
// its key. The others follow, in order.
func split(ops []op) (firsts, others []op) {
	for _, o := range ops {
		if o.kind == opSchedule && o.timer == o.key {
			firsts = append(firsts, o)
		} else {
			others = append(others, o)
		}
	}
	return firsts, others
}

func (s *scheduler) do(ctx context.Context, o op) error {
	switch o.kind {
	case opCancel:
		return s.cancel(ctx, o)
	case opMove:
		return s.move(ctx, o)
	case opPut, opDelete, opPause, opResume:
		return s.recur(ctx, o)
	}
	return s.schedule(ctx, []op{o})
}

// schedule sends one, by PUT, or many, by POST.
func (s *scheduler) schedule(ctx context.Context, ops []op) error {
	var results []api.Result
	err := s.until(ctx, func() (done bool, err error) {
		results = make([]api.Result, len(ops))
		timers := make([]api.Timer, len(ops))
		for i, o := range ops {
			timers[i] = s.timer(o)
		}
		if len(ops) == 1 {
			key := timers[0].Key
			timers[0].Key = ""
			return s.send(ctx, http.MethodPut, "/timers/"+key, timers[0], &results[0])
		}
		reply := map[string][]api.Result{}
		done, err = s.send(ctx, http.MethodPost, "/timers", map[string][]api.Timer{"timers": timers}, &reply)
		results = reply["timers"]
		return done, err
	})
	if err != nil {
		return err
	}
	now := micros()
	for i, r := range results {
		due, err := time.Parse(timeShape, r.Due)
		if err != nil {
			return fmt.Errorf("timer %s: %q has no due time: %w", r.Key, r.Result, err)
		}
		s.ledger.write(event{Kind: eventScheduled, At: now, Timer: ops[i].timer, Result: r.Result, Due: due.UnixMilli()})
	}
	return nil
}

// timer writes down and returns what is asked for. The call-back's body tells the
// receiver what it is and how to answer.
func (s *scheduler) timer(o op) api.Timer {
	now := time.Now()
	due := s.Start.Add(o.due).Truncate(time.Millisecond)
	t := api.Timer{Key: keyName(o.key)}
	t.Topic = topics[o.key%len(topics)]
	notBefore := due.UnixMilli()
	if o.after {
		after := max(due.Sub(now), 0)
		t.After = after.String()
		notBefore = now.Add(after).UnixMilli()
	} else {
		t.At = due.UTC().Format(timeShape)
	}
	t.Callback = &api.Callback{URL: s.Receivers[o.key/s.Load.Schedulers%len(s.Receivers)]}
	t.Body = fmt.Sprintf("%s %d %s", aboutTimer, o.timer, o.mode)
	s.ledger.write(event{Kind: eventSchedule, At: now.UnixMicro(), Timer: o.timer, Key: o.key, NotBefore: notBefore, Mode: o.mode})
	return t
}

func (s *scheduler) cancel(ctx context.Context, o op) error {
	var r api.Result
	err := s.until(ctx, func() (bool, error) {
		s.ledger.write(event{Kind: eventCancel, At: micros(), Key: o.key})
		return s.send(ctx, http.MethodDelete, "/timers/"+keyName(o.key), nil, &r)
	})
	if err == nil {
		s.ledger.write(event{Kind: eventCancelled, At: micros(), Key: o.key, Result: r.Result})
	}
	return err
}

func (s *scheduler) move(ctx context.Context, o op) error {
	var r api.Result
	at := s.Start.Add(o.due).Truncate(time.Millisecond)
	err := s.until(ctx, func() (bool, error) {
		s.ledger.write(event{Kind: eventMove, At: micros(), Timer: o.timer, Due: at.UnixMilli()})
		return s.send(ctx, http.MethodPatch, "/timers/"+keyName(o.key), api.When{At: at.UTC().Format(timeShape)}, &r)
	})
	if err == nil {
		s.ledger.write(event{Kind: eventMoved, At: micros(), Timer: o.timer, Result: r.Result})
	}
	return err
}

// recur does something to a schedule.
func (s *scheduler) recur(ctx context.Context, o op) error {
	path := "/schedules/" + scheduleName(o.key-s.Load.Timers)
	e := event{Schedule: o.timer, Key: o.key - s.Load.Timers}
	method, body := http.MethodPost, any(nil)
	switch o.kind {
	case opPut:
		o.recurs.End = s.Start.Add(s.Load.Span).UnixMilli()
		e.Kind, e.Recurs, e.Mode = eventPut, &o.recurs, o.mode
		method, body = http.MethodPut, s.body(o)
	case opDelete:
		if err := s.count(ctx, path, e); err != nil {
			return err
		}
		e.Kind, e.Result = eventDelete, "keep"
		if o.cancel {
			e.Result = "cancel"
		}
		method, path = http.MethodDelete, path+"?occurrences="+e.Result
	case opPause:
		e.Kind, path = eventPause, path+"/pause"
	case opResume:
		e.Kind, path = eventResume, path+"/resume"
	}
	var r api.ScheduleResult
	err := s.until(ctx, func() (bool, error) {
		e.At = micros()
		s.ledger.write(e)
		return s.send(ctx, method, path, body, &r)
	})
	if err == nil {
		s.ledger.write(event{Kind: eventDone, At: micros(), Schedule: o.timer, Result: r.Result})
	}
	return err
}

// body is that of the PUT of a schedule, which ends with the load.
func (s *scheduler) body(o op) api.Schedule {
	text := func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
	r := o.recurs
	b := api.Schedule{
		Recurrence: api.Recurrence{Every: text(r.Every), Offset: text(r.Offset), End: time.UnixMilli(r.End).UTC().Format(timeShape)},
		Policy:     api.Policy{Jitter: text(r.Jitter), Overlap: r.Overlap, Missed: r.Missed},
	}
	if r.CatchUp > 0 {
		b.CatchUp = text(r.CatchUp)
	}
	b.Topic = topics[o.key%len(topics)]
	b.Callback = &api.Callback{URL: s.Receivers[o.key/s.Load.Schedulers%len(s.Receivers)]}
	b.Body = fmt.Sprintf("%s %d %s", aboutSchedule, o.timer, o.mode)
	return b
}

// count writes down what a schedule counts.
func (s *scheduler) count(ctx context.Context, path string, e event) error {
	var info api.ScheduleInfo
	err := s.until(ctx, func() (bool, error) { return s.send(ctx, http.MethodGet, path, nil, &info) })
	if err == nil {
		e.Kind, e.At, e.Counts = eventCounted, micros(), &info.Counts
		s.ledger.write(e)
	}
	return err
}

// until repeats f until it is done.
func (s *scheduler) until(ctx context.Context, f func() (done bool, err error)) error {
	for {
		done, err := f()
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(resend):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// send makes a request. It is not done if there was no answer, or one that says
// that the store had none.
func (s *scheduler) send(ctx context.Context, method, path string, body, reply any) (done bool, err error) {
	var b []byte
	if body != nil {
		if b, err = json.Marshal(body); err != nil {
			return false, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.API+path, bytes.NewReader(b))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return false, nil
	}
	defer res.Body.Close()
	b, err = io.ReadAll(res.Body)
	switch {
	case err != nil || res.StatusCode >= 500:
		return false, nil
	case res.StatusCode >= 400 && res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusConflict:
		return false, fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode, b)
	}
	return true, json.Unmarshal(b, reply)
}
