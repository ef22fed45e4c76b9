package durable

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// shard is what a worker knows of a shard. The worker's lock guards it.
type shard struct {
	number    int
	preferred bool          // this worker is the first to claim
	first     int           // the preferred one, in Worker.members; of no meaning if that is nil
	helpUntil time.Duration // another has no room, or does not claim: claim until then

	apart      bool          // could not be looked at with the others: a goroutine does
	watchUntil time.Duration // is looked at until then, though another is preferred

	horizon horizon

	queued    bool          // in Worker.ready
	claiming  bool          // a claim is under way; the shard is in Worker.claims
	claimedAt time.Duration // when it was begun
	notBefore time.Duration // no claim before: the engine failed, or had nothing
	failures  int           // of claims, in a row
	fruitless int           // claims in a row that got nothing
	firstSent time.Duration // when the last claim was first sent
	unsure    *store.Claim  // that claim, if it may have been made: sent again it gets the same leases
	patience  time.Duration // with the next claim; only the goroutine of a claim touches it
	firstLane int           // of the next claim
	mute      time.Duration // until when it is not said again that there is no room

	running int // handlers of timers of this shard
	back    int // leases that are given back, which is not written yet

	ends     []*run        // to be written
	endsFrom time.Duration // since when the first of them waits
	writing  bool          // a goroutine writes ends
	gathered chan struct{} // holds one token: ends need not wait for more

	extends   []*run // leases to be extended
	extending bool   // a goroutine extends
}

// horizon is when a shard has something to do next, as far as replies and events
// have said.
type horizon struct {
	clock engineClock
	next  store.Millis  // by the engine's clock; 0: nothing
	now   store.Millis  // the engine's time of the reply that next is from
	heard time.Duration // when that came

	// An event has said that something is due earlier. Replies to what was sent
	// before it came may not know of it.
	earlier   store.Millis // 0: none
	earlierAt time.Duration
}

// reply takes the horizon of a reply.
//
// Requests about one shard overlap: a look beside a claim beside an end. Their
// replies can come in another order than that in which the engine made them, and an
// older one must not hide what a newer one has said. The engine's clock orders them,
// to the millisecond; within one, the earlier time counts, at the cost of a claim
// that finds nothing. What was sent after a reply had come is newer than that
// whatever the clocks say: the engine's may have fallen back.
func (h *horizon) reply(r store.Horizon, sent, arrived time.Duration) {
	next := earlier(r.NextDue, r.NextLeaseEnd)
	if h.clock.known && sent < h.heard {
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
	h.next, h.now, h.heard = next, r.Now, arrived
}

// event takes an announcement that something is due earlier.
func (h *horizon) event(due store.Millis, at time.Duration) {
	h.next = earlier(h.next, due)
	h.earlier, h.earlierAt = earlier(h.earlier, due), at
}

// dueLocked returns the own time at which this worker is to claim from a shard, and
// whether there is one.
func (w *Worker) dueLocked(s *shard) (at time.Duration, ok bool) {
	switch {
	case s.claiming || s.back > 0: // their replies will say more
		return 0, false
	case s.unsure != nil || s.helpUntil > w.now():
	case s.preferred && s.horizon.clock.known && s.horizon.next != 0:
		at = s.horizon.clock.own(s.horizon.next)
	default:
		return 0, false
	}
	return max(at, s.notBefore), true
}

// planLocked puts a shard among the ready ones if its time has come, and sets the
// agenda otherwise. It is called after each change of what dueLocked looks at.
func (w *Worker) planLocked(s *shard) {
	if s.queued || w.stopped {
		return
	}
	at, ok := w.dueLocked(s)
	wait := at - w.now()
	if ok && wait > 0 {
		_ = w.agenda.Set(s.number, struct{}{}, wait) // only refused after the end
		return
	}
	w.agenda.Remove(s.number)
	if ok {
		s.queued = true
		w.ready = append(w.ready, s)
	}
}

// shardDue is called by the agenda.
func (w *Worker) shardDue(number int, _ struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.planLocked(&w.shards[number])
	w.dispatchLocked()
}

// roomLocked is how many timers can be claimed.
func (w *Worker) roomLocked() int {
	c := w.options.Concurrency
	return min(c-w.running, 2*c-w.held) - w.reserved
}

// Of the claims that have just been begun, claimsAtOnce are under way at most. While
// the others wait, more comes due in their shards: so on an engine that is busy claims
// become larger instead of more. Whole lives on Redis are half as many again as
// without this (docs/decisions.md). A claim that has gone on for claimWait counts no
// more, for that engine is far away or hangs, and the others need not wait for it.
const (
	claimsAtOnce = 2
	claimWait    = 2 * time.Millisecond
)

// crowdedLocked reports whether no claim is to be begun yet, and sees to it that this
// is asked again.
func (w *Worker) crowdedLocked() bool {
	if len(w.claims) < claimsAtOnce {
		return false
	}
	oldest := w.claims[len(w.claims)-claimsAtOnce] // of those that count
	wait := oldest.claimedAt + claimWait - w.now()
	if wait <= 0 {
		return false
	}
	_ = w.agenda.Set(w.ready[0].number, struct{}{}, wait) // only refused after the end
	return true
}

// dispatchLocked begins claims on the ready shards, in turn, as long as there is
// room. It is called after each change of these. A claim is promised its part of
// the room, so that the other ready shards have theirs, and one that becomes ready a
// moment later need not wait for the reply.
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
		room := w.roomLocked()
		if room <= 0 || w.crowdedLocked() {
			break
		}
		s := w.ready[0]
		w.ready = append(w.ready[:0], w.ready[1:]...)
		s.queued = false
		if at, ok := w.dueLocked(s); !ok || at > w.now() { // no longer
			w.planLocked(s)
			continue
		}
		parts := len(w.ready) + 2
		w.claimLocked(s, min((room+parts-1)/parts, store.MaxItems))
	}
	if len(w.ready) > 0 && w.reserved == 0 {
		w.announceLocked()
	}
}

// announceEvery bounds how often it is said of a shard that there is no room.
const announceEvery = 50 * time.Millisecond

// announceLocked publishes of the ready shards that this worker has no room for what is
// due there. Whoever has room claims at once, and who has none now remembers it.
func (w *Worker) announceLocked() {
	if len(w.members) == 1 || w.announcing || w.stopped {
		return // nobody would hear it, or it is said already
	}
	now := w.now()
	var numbers []int
	for _, s := range w.ready {
		if s.preferred && s.mute <= now {
			s.mute = now + announceEvery
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
