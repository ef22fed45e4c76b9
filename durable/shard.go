package durable

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// shard is a worker's view of a shard. The worker's lock guards it.
type shard struct {
	number    int
	preferred bool          // this worker is the preferred one
	first     int           // the preferred worker's index in Worker.members, if that is not nil
	helpUntil time.Duration // another worker has no free slots, or does not claim: claim until then

	unresponsive bool          // could not be polled with the others: its own goroutine polls it
	watchUntil   time.Duration // polled until then, although another worker is preferred

	horizon horizon

	queued        bool          // in Worker.ready
	claiming      bool          // a claim is in flight; the shard is in Worker.claims
	claimedAt     time.Duration // when it was begun
	notBefore     time.Duration // no claim before: the engine failed, or had nothing due
	failures      int           // of claims, in a row
	emptyClaims   int           // that got nothing, in a row
	firstSent     time.Duration // when the last claim was first sent
	unsure        *store.Claim  // that claim, if its reply was lost: repeated, it gets the same leases
	claimTimeout  time.Duration // of the next claim; only the goroutine of a claim accesses it
	firstLane     int           // of the next claim
	announceAfter time.Duration // no announcement of missing capacity before

	running   int // handlers of timers of this shard
	releasing int // leases whose release is not written yet

	unwritten      []*run        // with outcomes to be written
	unwrittenSince time.Duration // when the first of them was queued
	writing        bool          // a goroutine writes them
	writeNow       chan struct{} // holds one token: outcomes need not wait for more

	extensions []*run // with leases to be extended
	extending  bool   // a goroutine extends them
}

// horizon is the time when a shard next has something to do, as far as replies and events have
// told.
type horizon struct {
	clock   engineClock
	next    store.Millis  // by the engine's clock; 0: nothing
	now     store.Millis  // the engine's time in the reply that next is from
	arrived time.Duration // when that reply arrived

	// An event has announced an earlier due time. Replies to requests that were sent before it
	// arrived may not include it.
	earlier   store.Millis // 0: none
	earlierAt time.Duration
}

// reply applies the horizon of a reply.
//
// Requests to one shard overlap: a poll, a claim and a write of outcomes. Their replies can arrive
// in another order than that in which the engine processed them, and an older reply must not hide
// what a newer one says. The engine's clock orders them, to the millisecond; within one millisecond
// the earlier due time wins, at the cost of a claim that finds nothing. A request that was sent
// after a reply had arrived is newer than that reply whatever the clocks say: the engine's clock
// may have fallen back.
func (h *horizon) reply(r store.Horizon, sent, arrived time.Duration) {
	next := earlier(r.NextDue, r.NextLeaseEnd)
	if h.clock.known && sent < h.arrived {
		if r.Now < h.now {
			return
		}
		if r.Now == h.now {
			next = earlier(next, h.next)
		}
	}
	if h.earlier != 0 && sent <= h.earlierAt {
		next = earlier(next, h.earlier)
	} else {
		h.earlier = 0
	}
	h.clock.observe(sent, arrived, r.Now)
	h.next, h.now, h.arrived = next, r.Now, arrived
}

// event applies an announcement of an earlier due time.
func (h *horizon) event(due store.Millis, at time.Duration) {
	h.next = earlier(h.next, due)
	h.earlier, h.earlierAt = earlier(h.earlier, due), at
}

// dueLocked returns the own time at which this worker should claim from a shard, and whether there
// is one.
func (w *Worker) dueLocked(s *shard) (at time.Duration, ok bool) {
	switch {
	case s.claiming || s.releasing > 0: // their replies bring a new horizon
		return 0, false
	case s.unsure != nil || s.helpUntil > w.now():
	case s.preferred && s.horizon.clock.known && s.horizon.next != 0:
		at = s.horizon.clock.own(s.horizon.next)
	default:
		return 0, false
	}
	return max(at, s.notBefore), true
}

// scheduleClaimLocked queues a shard in ready if its time has come, and otherwise sets its timer.
// It is called after each change of a field that dueLocked reads.
func (w *Worker) scheduleClaimLocked(s *shard) {
	if s.queued || w.stopped {
		return
	}
	at, ok := w.dueLocked(s)
	wait := at - w.now()
	if ok && wait > 0 {
		_ = w.shardTimers.Set(s.number, struct{}{}, wait) // only refused after the worker has stopped
		return
	}
	w.shardTimers.Remove(s.number)
	if ok {
		s.queued = true
		w.ready = append(w.ready, s)
	}
}

// shardDue is called by the wheel when the timer of a shard is due.
func (w *Worker) shardDue(number int, _ struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scheduleClaimLocked(&w.shards[number])
	w.dispatchLocked()
}

// capacityLocked returns how many timers can be claimed.
func (w *Worker) capacityLocked() int {
	c := w.options.Concurrency
	return min(c-w.running, 2*c-w.held) - w.reserved
}

// At most claimsAtOnce claims that have just begun are in flight. While other shards wait for
// them, more timers come due there, so on a busy engine claims become larger instead of more
// numerous. On Redis this raises the throughput of complete timer lifecycles by half
// (docs/decisions.md). A claim older than claimWait does not count: its engine is far away or
// hangs, and the others need not wait for it.
const (
	claimsAtOnce = 2
	claimWait    = 2 * time.Millisecond
)

// throttledLocked reports whether a new claim must wait, and if so sets a timer to check again.
func (w *Worker) throttledLocked() bool {
	if len(w.claims) < claimsAtOnce {
		return false
	}
	oldest := w.claims[len(w.claims)-claimsAtOnce] // of the claims that count
	wait := oldest.claimedAt + claimWait - w.now()
	if wait <= 0 {
		return false
	}
	_ = w.shardTimers.Set(w.ready[0].number, struct{}{}, wait) // only refused after the worker has stopped
	return true
}

// dispatchLocked begins claims on the ready shards, in turn, while there are free slots. It is
// called after each change of either. Each claim reserves only its share of the slots, so that the
// other ready shards get theirs, and a shard that becomes ready a moment later need not wait for
// the reply.
func (w *Worker) dispatchLocked() {
	if w.closing {
		w.announceLocked()
		for _, s := range w.ready {
			s.queued = false
		}
		w.ready = w.ready[:0]
		return
	}
	for len(w.ready) > 0 {
		capacity := w.capacityLocked()
		if capacity <= 0 || w.throttledLocked() {
			break
		}
		s := w.ready[0]
		w.ready = append(w.ready[:0], w.ready[1:]...)
		s.queued = false
		if at, ok := w.dueLocked(s); !ok || at > w.now() { // its time has changed
			w.scheduleClaimLocked(s)
			continue
		}
		parts := len(w.ready) + 2
		w.claimLocked(s, min((capacity+parts-1)/parts, store.MaxItems))
	}
	if len(w.ready) > 0 && w.reserved == 0 {
		w.announceLocked()
	}
}

// announceEvery bounds how often a shard is announced as busy.
const announceEvery = 50 * time.Millisecond

// announceLocked announces the ready shards as busy: due timers there find no free slot in this
// worker. Workers with free slots claim at once, and others remember it.
func (w *Worker) announceLocked() {
	if len(w.members) == 1 || w.announcing || w.stopped {
		return // no worker would receive it, or an announcement is in flight
	}
	now := w.now()
	var numbers []int
	for _, s := range w.ready {
		if s.preferred && s.announceAfter <= now {
			s.announceAfter = now + announceEvery
			numbers = append(numbers, s.number)
		}
	}
	if len(numbers) == 0 {
		return
	}
	w.announcing = true
	w.group.Go(func() {
		for _, number := range numbers {
			ctx, cancel := w.call()
			err := w.store.Announce(ctx, store.Event{Kind: store.Busy, Shard: number, From: w.name})
			cancel()
			w.answered("announce", number, err)
		}
		w.mu.Lock()
		w.announcing = false
		w.mu.Unlock()
	})
}
