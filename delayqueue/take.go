package delayqueue

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/internal/alarm"
)

// Leader and followers.
//
// One taker, the leader, sleeps until the head is due; the others, the followers, sleep until
// they become leader. The right to be leader is a token: it is in q.token or held by exactly one
// taker. The leader puts it back whenever it returns, for whatever reason, and the channel
// passes it to exactly one follower.
//
// The leader goes to sleep in two steps. In the critical section (under q.mu) in which it finds
// that nothing is due, it sets q.armed to the head's deadline (never, if there is no head), and
// q.alarm to the same time. Then it sleeps. Push and Reset, also under q.mu, interrupt q.alarm if
// their deadline is earlier than q.armed, and lower q.armed to it. While no leader sleeps q.armed
// is notArmed, and no deadline is earlier than that.
//
// Invariant: while the leader sleeps, q.armed is not later than the head's deadline, and either
// q.alarm is set to q.armed or it was interrupted. So the leader checks the head by the time any
// element is due.
//
// Cases that could break it:
//
//  1. A push comes between the leader's check and its sleep. It waits for q.mu, so it finds
//     q.armed and the alarm set, and interrupts; an interruption before the sleep ends it at once.
//  2. A second, still earlier push finds the alarm interrupted already. The leader has not
//     checked since the first: when it does, it sees both.
//  3. An interruption is left over: the sleep ended by its time or its context meanwhile. All
//     interruptions are made under q.mu, and the check before the next sleep sees the pushes that
//     they were made for, so setting the alarm, in the critical section of that check, may
//     withdraw them. Withdrawn after it, one could be lost; not withdrawn, it would cost a
//     wake-up.
//  4. The leader's context ends while a push interrupts. The leader puts the token back after
//     that. The next holder of the token checks the head before it sleeps, so it sees the push.
//  5. An element is due and all takers are followers. The token would have to be in q.token
//     while a follower waits to receive it, which channels rule out, or be with a taker that
//     neither sleeps as leader nor returns: there is no such path.
//  6. The token comes back after a taker found nothing due and before it waits. The token stays
//     in q.token, and the wait receives it at once.
//  7. The head is removed, cleared, given a later deadline or taken by another call (Poll, or a
//     Take that came when it had just become due). Then q.armed is earlier than needed: the
//     leader wakes once for nothing, checks, and sleeps until the new head is due. That is the
//     only kind of stale wake-up, and there is at most one for each such head. Until then a push
//     for a deadline that is not earlier than q.armed need not interrupt: the stale wake-up
//     finds it.
//
// Two designs were rejected. Push could set the sleeping leader's alarm itself, without a
// goroutine switch; but then every earlier deadline goes to the runtime's timers or the kernel,
// while interruptions coalesce: with timers 129 ns against 43 ns for a Push and Remove in a loop,
// 980 ns against 740 ns from a due Push to its taker. And the last leader of an empty queue could
// keep the token with the queue until the next Push, which would save the promotion of one
// follower (Stats.Promoted) and add a second owner to every case above.

// Stats counts how blocked takers woke. The counters are exact, read at one moment, and never
// reset.
type Stats struct {
	// Wakeups counts the blocked takers that woke, except by their context or by Close: sleeps
	// that ran to their end or were cut short, and promotions.
	Wakeups uint64
	// Promoted counts, of these, the followers that became leader. It is zero if only one
	// goroutine calls Take.
	Promoted uint64
	// Rearmed counts, of these, the sleeps that an earlier deadline, by Push or Reset, cut
	// short.
	Rearmed uint64
	// Stale counts, of these, the sleeps that ran to their end when no element was due any
	// more.
	Stale uint64
}

// Stats returns the counters. O(1).
func (q *Queue[T]) Stats() Stats {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// Take removes the head, and blocks until the head is due. Any number of goroutines may call
// it: one of them sleeps until the head's deadline, the others sleep until that one returns.
// Each element goes to exactly one taker; a Take that finds the head due returns it at once and
// does not queue behind sleeping takers.
//
// It returns ctx.Err() when ctx ends (callers that want context.Cause have ctx), ErrClosed
// after Close, and either if both have happened; with an error it removes nothing. With a
// context that has already ended it removes nothing even if the head is due. A nil ctx panics.
// O(log n), no allocation.
func (q *Queue[T]) Take(ctx context.Context) (T, error) { return q.take(ctx, nil) }

// TakeElement is Take with the element's deadline and Handle. time.Since(e.Deadline) is how
// late it was taken.
func (q *Queue[T]) TakeElement(ctx context.Context) (e Element[T], err error) {
	_, err = q.take(ctx, &e)
	return e, err
}

// take is Take, and sets e to the element unless e is nil.
func (q *Queue[T]) take(ctx context.Context, e *Element[T]) (v T, err error) {
	if ctx == nil {
		panic("delayqueue: the context is nil")
	}
	q.mustBeMade()
	if err := ctx.Err(); err != nil {
		return v, err
	}
	q.mu.Lock()
	v, ok := q.pollLocked(e)
	q.mu.Unlock()
	if ok {
		return v, nil
	}

	select {
	case <-q.token:
		return q.takeAsLeader(ctx, e, false)
	default:
	}
	select {
	case <-q.token:
		return q.takeAsLeader(ctx, e, true)
	case <-ctx.Done():
		return v, ctx.Err()
	case <-q.closed:
		return v, ErrClosed
	}
}

// takeAsLeader waits for a due head while it holds the token, and then returns the token to
// q.token. That never blocks, because the token is unique and q.token has capacity for it.
func (q *Queue[T]) takeAsLeader(ctx context.Context, e *Element[T], promoted bool) (v T, err error) {
	defer func() { q.token <- struct{}{} }()

	q.mu.Lock()
	if promoted {
		q.stats.Wakeups++
		q.stats.Promoted++
	}
	for timedOut := false; ; {
		q.armed = notArmed
		v, ok := q.pollLocked(e)
		if ok {
			q.mu.Unlock()
			return v, nil
		}
		if timedOut {
			q.stats.Stale++
		}
		armed := q.armLocked(ctx)
		q.mu.Unlock()
		q.alarm.Sleep(ctx.Done(), q.closed)

		q.mu.Lock()
		if err := q.endedLocked(ctx); err != nil {
			q.armed = notArmed
			q.mu.Unlock()
			return v, err
		}
		earlier := q.armed < armed
		timedOut = !earlier && q.now() >= armed
		if earlier || timedOut {
			q.stats.Wakeups++
		}
		if earlier {
			q.stats.Rearmed++
		}
	}
}

// endedLocked returns the error of a Take that must not sleep.
func (q *Queue[T]) endedLocked(ctx context.Context) error {
	if q.done {
		return ErrClosed
	}
	return ctx.Err()
}

// armLocked sets the time at which the leader's sleep ends. The caller, the leader, has just
// found that no element is due.
func (q *Queue[T]) armLocked(ctx context.Context) (armed int64) {
	q.armed = never
	d := alarm.Forever
	if len(q.heap.items) > 0 {
		q.armed = q.heap.items[0].deadline
		// The clock is read before the sleep begins, so the sleep cannot end before this clock
		// shows armed.
		d = time.Duration(q.armed - q.now())
	}
	q.alarm.Set(d, ctx.Done() != nil)
	return q.armed
}

// wakeLocked ends the leader's sleep, if it would last beyond deadline.
func (q *Queue[T]) wakeLocked(deadline int64) {
	if deadline >= q.armed {
		return
	}
	q.armed = deadline
	q.alarm.Interrupt()
}
