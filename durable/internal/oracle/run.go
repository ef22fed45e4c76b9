package oracle

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Claim leases due timers.
func (o *Store) Claim(ctx context.Context, n int, c store.Claim) (store.Claimed, store.Horizon, error) {
	if err := c.Check(); err != nil {
		return store.Claimed{}, store.Horizon{}, err
	}
	s, now, err := o.begin(ctx, n)
	if err != nil {
		return store.Claimed{}, store.Horizon{}, err
	}
	defer o.Mu.Unlock()
	var answer store.Claimed
	if again := s.sorted(store.Leased, byFence, func(t *Timer) bool { return t.Token == c.Token }); len(again) > 0 {
		for _, t := range again {
			answer.Leases = append(answer.Leases, t.lease())
		}
		return answer, s.horizon(now), nil
	}
	before := s.horizon(now)
	answer.DeadLettered = s.endExpired(now, c.MaxAttempts)
	o.dropDead(s, now)
	plans := s.choosePlans(now, c)
	for _, t := range append(plans, s.choose(now, c)...) {
		answer.Leases = append(answer.Leases, s.lease(t, now, c.Token, c.Lease))
	}
	return answer, o.announceEarlier(n, before, now), nil
}

func (s *Shard) lease(t *Timer, now moment, token store.Token, length time.Duration) store.Lease {
	s.Fence = max(s.Fence+1, uint64(now.exact.UnixMicro()))
	t.State, t.Fence, t.Token, t.LeaseEnd = store.Leased, s.Fence, token, now.after(length)
	t.Attempts++
	return t.lease()
}

// expired returns the expired leases.
func (s *Shard) expired(now moment) []*Timer {
	return s.sorted(store.Leased, byLeaseEnd, func(t *Timer) bool { return t.LeaseEnd <= now.ms })
}

// endExpired ends the runs whose leases expired and that are not leased again, and returns how many
// became dead letters.
func (s *Shard) endExpired(now moment, maxAttempts int) (deadLettered int) {
	for _, t := range s.expired(now) {
		switch {
		case t.Cancelled:
			s.note(t, store.OccurrenceCancelled, now)
			s.leave(t)
		case t.Successor != nil:
			s.leave(t)
		case t.Attempts >= maxAttempts && !store.IsPlan(t.Key):
			s.note(t, store.OccurrenceDead, now)
			s.leave(t)
			s.deadLetter(t, now)
			deadLettered++
		}
	}
	return deadLettered
}

// leave removes t from its state. If t has a successor, the successor waits.
func (s *Shard) leave(t *Timer) {
	delete(s.Timers, t.Key)
	if t.Successor != nil {
		s.Timers[t.Key] = t.Successor
	}
	t.LeaseEnd, t.Fence, t.Token, t.Cancelled, t.Successor = 0, 0, store.Token{}, false, nil
}

func (s *Shard) deadLetter(t *Timer, now moment) {
	t.State, t.Died = store.Dead, now.ms
	s.Timers[t.Key] = t
}

func (s *Shard) wait(t *Timer, due store.Millis) {
	t.State, t.Due = store.Waiting, due
	s.Timers[t.Key] = t
}

// dropDead applies MaxDead and MaxDeadAge.
func (o *Store) dropDead(s *Shard, now moment) {
	dead := s.sorted(store.Dead, byDeath, all)
	for i, t := range dead {
		tooMany := len(dead)-i > o.Limits.MaxDead
		tooOld := o.Limits.MaxDeadAge > 0 && store.After(t.Died, o.Limits.MaxDeadAge) < now.ms
		if tooMany || tooOld {
			delete(s.Timers, t.Key)
			s.Dropped++
		}
	}
}

// choosePlans returns the plans that a claim leases: those with expired leases, and then those
// that are due.
func (s *Shard) choosePlans(now moment, c store.Claim) []*Timer {
	isPlan := func(t *Timer) bool { return store.IsPlan(t.Key) }
	due := s.sorted(store.Waiting, byDue, func(t *Timer) bool { return isPlan(t) && t.Due <= now.ms })
	all := append(slices.DeleteFunc(s.expired(now), func(t *Timer) bool { return !isPlan(t) }), due...)
	size := 0
	for i, t := range all {
		if size += len(t.Body); i == c.Plans || size > c.MaxBytes && i > 0 {
			return all[:i]
		}
	}
	return all
}

// choose returns the timers that a claim leases: in turn from the lanes, and from the expired
// leases.
func (s *Shard) choose(now moment, c store.Claim) []*Timer {
	expired := slices.DeleteFunc(s.expired(now), func(t *Timer) bool { return store.IsPlan(t.Key) })
	queues := make([][]*Timer, 0, store.Lanes+1)
	for i := range store.Lanes {
		lane := (c.FirstLane + i) % store.Lanes
		queues = append(queues, s.sorted(store.Waiting, byDue, func(t *Timer) bool {
			return t.Due <= now.ms && store.LaneOfKey(t.Key, t.Topic) == lane
		}))
	}
	if c.FirstLane == store.Lanes {
		queues = slices.Insert(queues, 0, expired)
	} else {
		queues = append(queues, expired)
	}
	var chosen []*Timer
	size := 0
	for turn := 0; ; turn++ {
		if allEmpty(queues) || len(chosen) == c.Max {
			return chosen
		}
		q := &queues[turn%len(queues)]
		if len(*q) == 0 {
			continue
		}
		t := (*q)[0]
		size += len(t.Body)
		if size > c.MaxBytes && len(chosen) > 0 {
			return chosen
		}
		chosen, *q = append(chosen, t), (*q)[1:]
	}
}

func allEmpty(queues [][]*Timer) bool {
	for _, q := range queues {
		if len(q) > 0 {
			return false
		}
	}
	return true
}

func byFence(t *Timer) store.Millis { return store.Millis(t.Fence) }

func (t *Timer) lease() store.Lease {
	return store.Lease{
		Holder: t.Holder(), ID: t.ID, Topic: t.Topic, Body: bytes.Clone(t.Body), Due: t.Due,
		Attempt: t.Attempts, LastError: t.LastError, End: t.LeaseEnd, History: t.history(),
	}
}

// heldBy returns the leased timer that h holds, or nil.
func (s *Shard) heldBy(h store.Holder) *Timer {
	t := s.Timers[h.Key]
	if t == nil || t.State != store.Leased || t.Fence != h.Fence || t.Token != h.Token {
		return nil
	}
	return t
}

// Extend makes leases end lease from now.
func (o *Store) Extend(ctx context.Context, n int, holders []store.Holder, lease time.Duration) ([]store.ExtendResult, store.Millis, error) {
	if lease < store.MinLease || lease > store.MaxLease {
		return nil, 0, fmt.Errorf("durable: lease is %v, must be %v to %v", lease, store.MinLease, store.MaxLease)
	}
	keys := make([]string, len(holders))
	for i, h := range holders {
		keys[i] = h.Key
	}
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, 0, err
	}
	defer o.Mu.Unlock()
	end := now.after(lease)
	results := make([]store.ExtendResult, len(holders))
	for i, h := range holders {
		switch t := s.heldBy(h); {
		case t == nil:
			results[i] = store.ExtendLost
		case t.Cancelled:
			results[i] = store.ExtendCancelled
		default:
			t.LeaseEnd = end
			results[i] = store.Extended
		}
	}
	return results, end, nil
}

// End ends runs.
func (o *Store) End(ctx context.Context, n int, outcomes []store.Outcome) ([]store.EndResult, store.Horizon, error) {
	keys := make([]string, len(outcomes))
	for i, e := range outcomes {
		if e.Kind < store.Done || e.Kind > store.DeadLetter {
			return nil, store.Horizon{}, fmt.Errorf("durable: Outcome.Kind is %v", e.Kind)
		}
		keys[i] = e.Key
	}
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, store.Horizon{}, err
	}
	defer o.Mu.Unlock()
	before := s.horizon(now)
	results := make([]store.EndResult, len(outcomes))
	for i, e := range outcomes {
		results[i] = store.EndLost
		if t := s.heldBy(e.Holder); t != nil {
			results[i] = s.end(t, e, now)
		}
	}
	return results, o.announceEarlier(n, before, now), nil
}

func (s *Shard) end(t *Timer, e store.Outcome, now moment) store.EndResult {
	ended := *t
	s.leave(t)
	switch {
	case ended.Cancelled:
		s.note(&ended, store.OccurrenceCancelled, now)
		return store.EndCancelled
	case ended.Successor != nil:
		return store.EndReplaced
	}
	switch e.Kind {
	case store.Done:
		s.note(&ended, store.OccurrenceDone, now)
	case store.Retry:
		t.LastError = store.CutError(e.Error)
		s.wait(t, now.after(e.Delay))
	case store.Snooze:
		t.Attempts--
		s.wait(t, now.after(e.Delay))
	case store.Release:
		t.Attempts--
		s.wait(t, t.Due)
	case store.DeadLetter:
		t.LastError = store.CutError(e.Error)
		ended.LastError = t.LastError
		s.note(&ended, store.OccurrenceDead, now)
		s.deadLetter(t, now)
	}
	return store.Ended
}
