package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/planning"
	"github.com/seed-782fa212/limbo/durable/store"
)

// PutResult is the result of a PutSchedule.
type PutResult uint8

// The results of a PutSchedule.
const (
	ScheduleCreated   PutResult = iota + 1 // the key had no schedule
	ScheduleReplaced                       // it had another one, whose ID, history and pause are kept
	ScheduleUnchanged                      // it had the same one: nothing was changed
	ScheduleExists                         // IfAbsent: nothing was changed
)

var putNames = []string{"", "created", "replaced", "unchanged", "exists"}

func (r PutResult) String() string { return wordOf("PutResult", putNames, r) }

const maxNote = 256

// PutSchedule creates a schedule, or replaces the one with the same key. The store keeps it until
// it is deleted, and the workers of all processes that share the store create its occurrences:
// each planned time creates exactly one, or is counted as skipped with the reason. A process that
// dies, is paused beyond its lease, or loses its connection neither repeats nor loses one. An
// occurrence is a timer like any other, with a key and an ID that derive from the schedule and the
// planned time; see [Fired].
//
// A replaced schedule keeps its ID, its history, its counts and its pause. If the planned times
// change (Cron, Zone, Every, Offset, Start, End or Limit), the next one is in the future, and
// those that have passed without an occurrence count as skipped. Otherwise the plan continues
// unchanged. Putting the same schedule again changes nothing, so a program can put its schedules
// whenever it starts, and any number of processes can do so at once.
//
// The errors are those of [Timers.Schedule]; one that names the field, its value and its range,
// with nothing stored; and one that names the format, if a newer version has stored a schedule
// under the key. PutSchedule costs three calls to the engine, two of them concurrent.
func (t *Timers) PutSchedule(ctx context.Context, s Schedule) (PutResult, ScheduleInfo, error) {
	s, rules, err := s.withDefaults()
	if err != nil {
		return 0, ScheduleInfo{}, err
	}
	var result PutResult
	var stored planView
	err = t.changePlan(ctx, s.Key, func(v planView) (*plan, error) {
		stored = v
		old := v.plan
		if old == nil {
			result = ScheduleCreated
			stored.plan = &plan{
				Schedule: s, id: store.NewID(), created: v.now, key: store.PlanKey(s.Key),
				Plan: planning.Plan{Rules: rules, State: planning.State{Cursor: v.now}},
			}
			return stored.plan, nil
		}
		switch {
		case old.unreadable != nil && !s.IfAbsent:
			return nil, old.unreadable
		case s.IfAbsent:
			result = ScheduleExists
			return nil, nil
		case old.problem == nil && old.same(&s):
			result = ScheduleUnchanged
			return nil, nil
		}
		result = ScheduleReplaced
		p := *old
		p.Schedule, p.Rules, p.problem = s, rules, nil
		if !old.sameTimes(&s) {
			n := 0
			if old.problem == nil && old.Remaining() > 0 {
				n, _ = old.Passed(old.Cursor, v.now, 1)
			}
			p.Counts.SkippedUpdated += uint64(n)
			// The clock was read separately from the plan, perhaps long before, and can be set
			// back: the cursor must not move back over times that have occurrences.
			p.Cursor, p.BacklogEnd = max(v.now, old.Cursor), 0
		}
		if !old.Schedule.PauseOnDead {
			p.DeadSeen = v.history.Dead
		}
		stored.plan = &p
		return &p, nil
	})
	if err != nil && !applied(err) {
		return 0, ScheduleInfo{}, err
	}
	return result, stored.info(), err
}

// GetSchedule returns a schedule, or [ErrNotFound]. It costs two concurrent calls to the engine, and
// one for each of up to ten occurrences that have not ended.
func (t *Timers) GetSchedule(ctx context.Context, key string) (ScheduleInfo, error) {
	ctx, cancel, shard, err := t.beginSchedule(ctx, key)
	if err != nil {
		return ScheduleInfo{}, err
	}
	defer cancel()
	v, err := t.readPlan(ctx, shard, key)
	if err == nil && v.plan == nil {
		err = ErrNotFound
	}
	if err != nil {
		return ScheduleInfo{}, err
	}
	info := v.info()
	for i := range info.Last {
		o := &info.Last[i]
		if o.State != OccurrencePending {
			continue
		}
		r, err := t.store.Get(ctx, shard, o.Key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return ScheduleInfo{}, err
		}
		o.observe(r)
	}
	return info, nil
}

// PauseSchedule stops a schedule from creating occurrences until [Timers.ResumeSchedule]; existing
// occurrences run. The note, of at most 256 bytes, says why. A schedule that is paused already
// keeps the time of its pause, and gets the new note. PauseSchedule returns [ErrNotFound] if there
// is no such schedule.
func (t *Timers) PauseSchedule(ctx context.Context, key, note string) error {
	if len(note) > maxNote {
		return fmt.Errorf("durable: the note is %d bytes long, must be at most %d", len(note), maxNote)
	}
	return t.changePlan(ctx, key, existing(func(v planView) (*plan, error) {
		p := *v.plan
		if p.Paused == 0 {
			p.Paused = max(v.now, 1)
		}
		p.PauseNote = note
		return &p, nil
	}))
}

// ResumeSchedule ends a pause. Planned times that passed during the pause were missed; Missed
// decides what happens to them. It changes nothing if the schedule is not paused.
func (t *Timers) ResumeSchedule(ctx context.Context, key string) error {
	return t.changePlan(ctx, key, existing(func(v planView) (*plan, error) {
		if v.plan.Paused == 0 {
			return nil, nil
		}
		p := *v.plan
		p.Paused, p.PauseNote, p.DeadSeen = 0, "", v.history.Dead
		return &p, nil
	}))
}

// TriggerSchedule creates an occurrence that is due now, regardless of the schedule's plan, pause
// and Overlap. Its planned time is the present by the engine's clock. It returns the key of the
// occurrence's timer. After [ErrUnsure] the occurrence may have been created.
func (t *Timers) TriggerSchedule(ctx context.Context, key string) (string, error) {
	var created string
	err := t.changePlan(ctx, key, existing(func(v planView) (*plan, error) {
		p := *v.plan
		p.Counts.Triggered++
		created = p.request(planning.Occurrence{Planned: v.now, Cause: planning.ByTrigger, Number: p.Counts.Triggered}, v.now)
		return &p, nil
	}))
	if err != nil && !applied(err) {
		return "", err
	}
	return created, err
}

// BackfillSchedule creates an occurrence, due now, for each planned time between two times, both
// included, whether or not it had one before: the new occurrences have separate keys and IDs, and
// do not affect the plan or its Overlap. The times must not be in the future by the engine's
// clock, and at most 1,000 planned times may be between them; Start, End and Limit do not apply.
// It returns how many it has created, which is fewer than requested only with an error. One call
// to the engine creates at most 100.
func (t *Timers) BackfillSchedule(ctx context.Context, key string, from, to time.Time) (int, error) {
	fail := func(field string, value time.Time, format string, args ...any) error {
		return &FieldError{Key: key, Field: field, Value: value.String(), Err: fmt.Errorf(format, args...)}
	}
	if to.Before(from) {
		return 0, fail("To", to, "the end of the backfill is %v, must not be before its start, %v", to, from)
	}
	if first := time.UnixMilli(0).UTC(); from.Before(first) {
		return 0, fail("From", from, "the start of the backfill is %v, must not be before %v", from, first)
	}
	var times []store.Millis
	planned := false
	done := 0
	for !planned || done < len(times) {
		n := 0
		err := t.changePlan(ctx, key, existing(func(v planView) (*plan, error) {
			p := *v.plan
			n, p.requests = 0, nil
			if p.problem != nil {
				return nil, p.problem
			}
			if !planned {
				if last := v.now.Time(); to.After(last) {
					return nil, fail("To", to, "the end of the backfill is %v, must not be after the engine's present, %v", to, last)
				}
				all := p.Times
				all.Start, all.End = 0, 0
				count, some := all.Passed(store.MillisAt(from)-1, store.Millis(to.UnixMilli()), maxUpcoming)
				if count > maxUpcoming {
					return nil, fail("To", to, "%d planned times are between %v and %v, must be at most %d", count, from, to, maxUpcoming)
				}
				times, planned = some, true
			}
			if n = min(len(times)-done, p.Batch); n == 0 {
				return nil, nil
			}
			for _, at := range times[done : done+n] {
				p.Counts.Backfilled++
				p.request(planning.Occurrence{Planned: at, Cause: planning.ByBackfill, Number: p.Counts.Backfilled}, v.now)
			}
			return &p, nil
		}))
		if err != nil && !applied(err) {
			return done, err
		}
		if done += n; err != nil || n == 0 {
			return done, err
		}
	}
	return done, nil
}

// DeleteSchedule removes a schedule with its history. After it has returned without an error no
// occurrence is created; existing ones remain, and can be removed with [Timers.CancelOccurrences].
// DeleteSchedule returns [ErrNotFound] if there is no such schedule.
func (t *Timers) DeleteSchedule(ctx context.Context, key string) error {
	return t.changePlan(ctx, key, func(v planView) (*plan, error) {
		if v.plan == nil {
			return nil, ErrNotFound
		}
		p := *v.plan
		p.removed = true
		return &p, nil
	})
}

// CancelOccurrences cancels the waiting occurrences of a schedule, for their first or a later
// attempt, and returns how many there were; the schedule may be deleted already. An occurrence
// that begins or ends an attempt during the call may remain. It costs as much as a List of the
// schedule's shard.
func (t *Timers) CancelOccurrences(ctx context.Context, key string) (int, error) {
	ctx, cancel, shard, err := t.beginSchedule(ctx, key)
	if err != nil {
		return 0, err
	}
	defer cancel()
	n := 0
	q := store.Query{State: Waiting, Limit: store.MaxItems, Filter: Filter{Prefix: store.PlanKey(key)}}
	for {
		page, err := t.store.List(ctx, shard, q)
		if err != nil {
			return n, err
		}
		if len(page.Records) > 0 {
			keys := make([]string, len(page.Records))
			for i, r := range page.Records {
				keys[i] = r.Key
			}
			results, err := t.store.Cancel(ctx, shard, keys)
			for _, result := range results {
				if result == Cancelled {
					n++
				}
			}
			if err != nil {
				return n, err
			}
		}
		if !page.More {
			return n, nil
		}
		q.After = page.Next
	}
}

// planView is a plan as it was read, with its history and the engine's time.
type planView struct {
	plan    *plan // nil: there is none
	record  store.Record
	history store.History
	now     store.Millis
}

// existing wraps a change that requires an existing plan that this process can read.
func existing(change func(planView) (*plan, error)) func(planView) (*plan, error) {
	return func(v planView) (*plan, error) {
		switch {
		case v.plan == nil:
			return nil, ErrNotFound
		case v.plan.unreadable != nil:
			return nil, v.plan.unreadable
		}
		return change(v)
	}
}

// changePlan reads a plan, and writes the plan that change returns; nil changes nothing. If the
// plan has changed between, it starts over, so change can be called more than once.
func (t *Timers) changePlan(ctx context.Context, key string, change func(planView) (*plan, error)) error {
	ctx, cancel, shard, err := t.beginSchedule(ctx, key)
	if err != nil {
		return err
	}
	defer cancel()
	for {
		v, err := t.readPlan(ctx, shard, key)
		if err != nil {
			return err
		}
		p, err := change(v)
		if p == nil || err != nil {
			return err
		}
		swap := p.written(v)
		c := newJoined[store.PlanSwap, store.SwapResult](sizeOf(swap), swap)
		if err := t.swaps[shard].send(c); err != nil {
			return err
		}
		switch result, err := first(t.swaps[shard].wait(ctx, c)); {
		case !applied(err) || result == store.Swapped:
			return err
		case result == store.SwapRefused:
			return ErrFull
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// written returns the swap that writes p over the plan in v, after a user's change.
func (p *plan) written(v planView) store.PlanSwap {
	if p.removed {
		return store.PlanSwap{Key: p.key, Expected: p.version}
	}
	swap := p.swap()
	swap.Entries = p.requests
	switch {
	case p.Paused != 0:
	case p.problem != nil, p.Waits():
		// A worker re-evaluates the problem, or whether the occurrence has ended: the end may have
		// woken the plan, and this swap must not put it back to sleep.
		swap.Due = max(v.now, 1)
	default:
		swap.Due, swap.Wake, swap.Seen = p.Wait(v.now, &v.history)
	}
	return swap
}

// request adds an occurrence that a user has requested, and returns its key.
func (p *plan) request(o planning.Occurrence, now store.Millis) string {
	e := p.entry(o, now)
	p.requests = append(p.requests, e)
	p.Remember(o)
	return e.Key
}

// beginSchedule starts each method for one schedule.
func (t *Timers) beginSchedule(ctx context.Context, key string) (_ context.Context, _ context.CancelFunc, shard int, err error) {
	if err := checkScheduleKey(key); err != nil {
		return nil, nil, 0, err
	}
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	shard = t.shardOf(key)
	if err := t.swaps[shard].waitAbandoned(ctx, store.PlanKey(key)); err != nil {
		cancel()
		return nil, nil, 0, err
	}
	return ctx, cancel, shard, nil
}

// sizeOf returns the size of the bodies in a swap, in bytes.
func sizeOf(p store.PlanSwap) int {
	size := len(p.Body)
	for _, e := range p.Entries {
		size += len(e.Body)
	}
	return size
}

// readPlan reads a plan and, concurrently, the engine's clock. The clock is read by a separate
// call, so it can be a moment before or after the plan.
func (t *Timers) readPlan(ctx context.Context, shard int, key string) (planView, error) {
	var (
		group   sync.WaitGroup
		clock   []store.Horizon
		pollErr error
	)
	group.Go(func() { clock, pollErr = t.store.Horizons(ctx, []int{shard}) })
	r, err := t.store.Get(ctx, shard, store.PlanKey(key))
	group.Wait()
	switch {
	case err != nil && !errors.Is(err, ErrNotFound):
		return planView{}, err
	case pollErr != nil:
		return planView{}, pollErr
	}
	if err != nil {
		return planView{now: clock[0].Now}, nil
	}
	return viewOf(r, clock[0].Now), nil
}

// viewOf returns the planView of a plan's record.
func viewOf(r store.Record, now store.Millis) planView {
	v := planView{record: r, now: now, plan: decodePlan(r.Key, r.ID, r.Body)}
	if r.History != nil {
		v.history = *r.History
	}
	return v
}
