package delayqueue

import (
	"context"
	"time"
)

// Leader and followers.
//
// One taker, the leader, sleeps until the head is due; the others, the followers, sleep until
// they become leader. The right to be leader is a token: it is in q.token or held by exactly one
// taker. The leader puts it back whenever it returns, for whatever reason, and the channel
// passes it to exactly one follower.
//
// The leader goes to sleep in two steps. In the critical section (under q.mu) in which it finds
// that nothing is due, it sets q.armed to the head's deadline (never, if there is no head).
// Then it sets its timer to the same time. Push and Reset, also under q.mu, send a signal to
// q.wake if their deadline is earlier than q.armed, and lower q.armed to it. While no leader
// sleeps q.armed is notArmed, and no deadline is earlier than that.
//
// Invariant: while the leader sleeps, q.armed is not later than the head's deadline, and either
// the timer is set to q.armed or there is a signal in q.wake. So the leader checks the head by
// the time any element is due.
//
// Cases that could break it:
//
//  1. A push comes between the leader's check and its sleep. It waits for q.mu, so it finds
//     q.armed set, and signals. The signal stays in the channel, so the sleep ends at once.
//  2. A second, still earlier push finds a signal in q.wake and adds none. The leader has not
//     checked since the first: when it does, it sees both.
//  3. A signal is left over: the sleep ended by its timer or its context while it was sent. All
//     signals are sent under q.mu, and the check before the next sleep sees the pushes that
//     they were sent for, so that check may drain q.wake in its own critical section. Drained
//     after it, a signal could be lost; not drained, it would cost a wake-up.
//  4. The leader's context ends while a push signals. The leader puts the token back after that.
//     The next holder of the token checks the head before it sleeps, so it sees the push.
//  5. An element is due and all takers are followers. The token would have to be in q.token
//     while a follower waits to receive it, which channels rule out, or be with a taker that
//     neither sleeps as leader nor returns: there is no such path.
//  6. The token comes back after a taker found nothing due and before it waits. The token stays
//     in q.token, and the wait receives it at once.
//  7. The head is removed, cleared, given a later deadline or taken by another call (Poll, or a
//     Take that came when it had just become due). Then q.armed is earlier than needed: the
//     leader wakes once for nothing, checks, and sleeps until the new head is due. That is the
//     only kind of stale wake-up, and there is at most one for each such head. Until then a push
//     for a deadline that is not earlier than q.armed need not signal: the stale wake-up finds
//     it.
//
// Two designs were rejected. Push could reset the sleeping leader's timer itself, without a
// goroutine switch; but then every earlier deadline goes to the runtime's timers and network
// poller, while signals coalesce: 129 ns against 43 ns for a Push and Remove in a loop, 980 ns
// against 740 ns from a due Push to its taker. And the last leader of an empty queue could keep
// the token with the queue until the next Push, which would save the promotion of one follower
// (Stats.Promoted) and add a second owner to every case above.

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
		q.armLocked()
		armed := q.armed
		q.mu.Unlock()

		if armed == never {
			q.timer.Stop()
		} else {
			// The clock is read before the timer starts, so the timer cannot fire before this
			// clock shows armed.
			q.timer.Reset(time.Duration(armed - q.now()))
		}
		select {
		case <-q.timer.C:
			timedOut = true
		case <-q.wake:
			timedOut = false
		case <-ctx.Done():
			q.mu.Lock()
			q.armed = notArmed
			q.mu.Unlock()
			return v, ctx.Err()
		case <-q.closed:
			return v, ErrClosed
		}
		q.mu.Lock()
		q.stats.Wakeups++
		if !timedOut {
			q.stats.Rearmed++
		}
	}
}

// armLocked sets the time at which the leader's sleep ends. The caller, the leader, has just
// found that no element is due.
func (q *Queue[T]) armLocked() {
	select {
	case <-q.wake:
	default:
	}
	q.armed = never
	if len(q.heap.items) > 0 {
		q.armed = q.heap.items[0].deadline
	}
}

// signalLocked ends the leader's sleep, if it would last beyond deadline.
func (q *Queue[T]) signalLocked(deadline int64) {
	if deadline >= q.armed {
		return
	}
	q.armed = deadline
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
