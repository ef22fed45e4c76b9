package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

const (
	maxConcurrent  = 256 // concurrent requests of a scheduler
	maxBatch       = 100 // operations that begin together
	quantum        = 25 * time.Millisecond
	retryDelay     = 50 * time.Millisecond
	requestTimeout = 20 * time.Second // longer than timerd takes for any answer
)

// The body of a callback says whether it is of a timer or a schedule, with the number and the mode.
const (
	subjectTimer    = "timer"
	subjectSchedule = "schedule"
)

// topics spread each kind of timer over all lanes of a shard.
var topics = []string{"orders", "payments", "reminders", "trials", "retries", "carts", "reports"}

// schedulerConfig is the configuration of a scheduler process.
type schedulerConfig struct {
	Load      load
	Index     int
	Start     time.Time
	API       string   // http://host:port
	Receivers []string // their URLs
	Ledger    string
}

// scheduler sends its part of the plan over HTTP. It repeats failed requests until it has an
// answer.
type scheduler struct {
	schedulerConfig
	ledger *ledger
	api    *client.Client
}

func runScheduler(ctx context.Context, c schedulerConfig) error {
	l, err := openLedger(c.Ledger)
	if err != nil {
		return err
	}
	timerd, err := newClient(c.API)
	if err != nil {
		return err
	}
	s := &scheduler{schedulerConfig: c, ledger: l, api: timerd}
	// Each queue has its own limit, so that timers and schedules do not delay each other.
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.run(ctx, c.Load.planTimers(c.Index)) })
	group.Go(func() error { return s.run(ctx, c.Load.planSchedules(c.Index)) })
	return group.Wait()
}

// run begins operations at their times, without waiting for earlier ones, so that a shard that does
// not answer delays only its own operations. Operations on one key run in order.
func (s *scheduler) run(ctx context.Context, queue []op) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	last := make(map[int]chan struct{}) // by key; closed when the key's last operation is done
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
			_ = group.Wait() // the cause is the group's error, if it has failed
			return context.Cause(ctx)
		}
		n := s.dueCount(queue)
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

// dueCount returns how many operations are due, at least 1 and at most maxBatch.
func (s *scheduler) dueCount(queue []op) int {
	elapsed := time.Since(s.Start)
	n := 1
	for n < min(len(queue), maxBatch) && queue[n].at <= elapsed {
		n++
	}
	return n
}

// split separates the schedules that can be sent together, each the first operation on its key,
// from the others, which follow in order.
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
		return s.changeSchedule(ctx, o)
	}
	return s.schedule(ctx, []op{o})
}

// schedule schedules one timer by itself, or several in a batch.
func (s *scheduler) schedule(ctx context.Context, ops []op) error {
	var receipts []client.Receipt
	err := retry(ctx, func() (err error) {
		timers := make([]client.Timer, len(ops))
		for i, o := range ops {
			timers[i] = s.timerOf(o)
		}
		if len(ops) == 1 {
			receipts = make([]client.Receipt, 1)
			receipts[0], err = s.api.Schedule(ctx, timers[0])
			return err
		}
		receipts, err = s.api.ScheduleMany(ctx, timers)
		return err
	})
	if err != nil {
		return err
	}
	now := micros()
	for i, r := range receipts {
		if r.Due.IsZero() {
			return fmt.Errorf("timer %s: %q has no due time", r.Key, r.Result)
		}
		s.ledger.write(event{Kind: eventScheduled, At: now, Timer: ops[i].timer, Result: string(r.Result), Due: r.Due.UnixMilli()})
	}
	return nil
}

// timerOf records a timer and returns the request for it. The callback's body tells the receiver
// which timer it is and how to answer.
func (s *scheduler) timerOf(o op) client.Timer {
	now := time.Now()
	due := s.Start.Add(o.due).Truncate(time.Millisecond)
	t := client.Timer{
		Key: keyName(o.key), Topic: topics[o.key%len(topics)], Callback: s.callback(o),
		Body: fmt.Appendf(nil, "%s %d %s", subjectTimer, o.timer, o.mode),
	}
	notBefore := due.UnixMilli()
	if o.after {
		t.After = max(due.Sub(now), 0)
		notBefore = now.Add(t.After).UnixMilli()
	} else {
		t.At = due
	}
	s.ledger.write(event{Kind: eventSchedule, At: now.UnixMicro(), Timer: o.timer, Key: o.key, NotBefore: notBefore, Mode: o.mode})
	return t
}

func (s *scheduler) callback(o op) client.Callback {
	return client.Callback{URL: s.Receivers[o.key/s.Load.Schedulers%len(s.Receivers)]}
}

func (s *scheduler) cancel(ctx context.Context, o op) error {
	var r client.Receipt
	err := retry(ctx, func() (err error) {
		s.ledger.write(event{Kind: eventCancel, At: micros(), Key: o.key})
		r, err = s.api.Cancel(ctx, keyName(o.key))
		return err
	})
	if err == nil {
		s.ledger.write(event{Kind: eventCancelled, At: micros(), Key: o.key, Result: string(r.Result)})
	}
	return err
}

func (s *scheduler) move(ctx context.Context, o op) error {
	var r client.Receipt
	at := s.Start.Add(o.due).Truncate(time.Millisecond)
	err := retry(ctx, func() (err error) {
		s.ledger.write(event{Kind: eventMove, At: micros(), Timer: o.timer, Due: at.UnixMilli()})
		r, err = s.api.ResetAt(ctx, keyName(o.key), at)
		return err
	})
	if err == nil {
		s.ledger.write(event{Kind: eventMoved, At: micros(), Timer: o.timer, Result: string(r.Result)})
	}
	return err
}

// changeSchedule carries out an operation on a schedule.
func (s *scheduler) changeSchedule(ctx context.Context, o op) error {
	key := scheduleName(o.key - s.Load.Timers)
	e := event{Schedule: o.timer, Key: o.key - s.Load.Timers}
	var send func() (client.ScheduleReceipt, error)
	switch o.kind {
	case opPut:
		o.recurs.End = s.Start.Add(s.Load.Span).UnixMilli()
		e.Kind, e.Recurs, e.Mode = eventPut, &o.recurs, o.mode
		send = func() (client.ScheduleReceipt, error) { return s.api.PutSchedule(ctx, s.scheduleOf(o)) }
	case opDelete:
		if err := s.recordCounts(ctx, key, e); err != nil {
			return err
		}
		e.Kind, e.Result = eventDelete, "keep"
		if o.cancel {
			e.Result = "cancel"
		}
		send = func() (client.ScheduleReceipt, error) { return s.api.DeleteSchedule(ctx, key, o.cancel) }
	case opPause:
		e.Kind = eventPause
		send = func() (r client.ScheduleReceipt, err error) { return r, s.api.PauseSchedule(ctx, key, "") }
	case opResume:
		e.Kind = eventResume
		send = func() (r client.ScheduleReceipt, err error) { return r, s.api.ResumeSchedule(ctx, key) }
	}
	var r client.ScheduleReceipt
	err := retry(ctx, func() (err error) {
		e.At = micros()
		s.ledger.write(e)
		r, err = send()
		return err
	})
	if err == nil {
		s.ledger.write(event{Kind: eventDone, At: micros(), Schedule: o.timer, Result: string(r.Result)})
	}
	return err
}

// scheduleOf returns the schedule that o puts. It ends with the load.
func (s *scheduler) scheduleOf(o op) client.Schedule {
	r := o.recurs
	duration := func(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
	return client.Schedule{
		Key:   scheduleName(o.key - s.Load.Timers),
		Every: duration(r.Every), Offset: duration(r.Offset), End: time.UnixMilli(r.End),
		Jitter: duration(r.Jitter), Overlap: client.Overlap(r.Overlap), Missed: client.Missed(r.Missed), CatchUp: duration(r.CatchUp),
		Topic: topics[o.key%len(topics)], Callback: s.callback(o), Body: fmt.Appendf(nil, "%s %d %s", subjectSchedule, o.timer, o.mode),
	}
}

// recordCounts records the counts of a schedule.
func (s *scheduler) recordCounts(ctx context.Context, key string, e event) error {
	var info client.ScheduleInfo
	err := retry(ctx, func() (err error) {
		info, err = s.api.GetSchedule(ctx, key)
		return err
	})
	if err == nil {
		e.Kind, e.At, e.Counts = eventCounted, micros(), &info.Counts
		s.ledger.write(e)
	}
	return err
}
