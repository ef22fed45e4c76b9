package durable

import (
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Which worker claims. Any worker may claim from any shard: leases keep them apart. But if all of
// them claimed timers that only one can get, most of the work would be wasted. So each shard has
// one preferred worker: of the live workers, the one for which a hash of its name and the shard's
// number is highest. All workers compute the same result from the same names, without an election,
// and when a worker joins or leaves, only the shards that it gains or had move (rendezvous
// hashing; Thaler and Ravishankar, 1998).
//
// A worker is live until its heartbeat, sent every heartbeatEvery, expires. It counts as dead
// shortly after its second heartbeat is missed and before the third is due. If a live worker is
// taken for dead, two workers claim.

// heartbeatEvery returns how often a worker with the given lease sends a heartbeat.
func heartbeatEvery(lease time.Duration) time.Duration { return min(lease/10, time.Second) }

// heartbeatTTL returns the time until a heartbeat expires.
func heartbeatTTL(every time.Duration) time.Duration { return every * 9 / 4 }

// heartbeatLoop sends heartbeats, and learns the live workers from their replies, until the worker
// leaves.
func (w *Worker) heartbeatLoop() {
	every := heartbeatEvery(w.options.Lease)
	ttl := heartbeatTTL(every)
	read := -2 * ttl // when the names were last read
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for w.leaving.Err() == nil {
		sent := w.now()
		ctx, cancel := w.call()
		names, err := w.store.Heartbeat(ctx, store.Heartbeat{Worker: w.name, TTL: ttl, Status: w.status()})
		cancel()
		now := w.now()
		wait := sent + every - now
		ok := w.answered("heartbeat", -1, err)
		w.mu.Lock()
		if ok {
			read, failures = now, 0
			w.setMembersLocked(names)
		} else {
			failures++
			wait = every + min(pause(failures), time.Second)
			if now-read > ttl {
				w.setMembersLocked(nil)
			}
		}
		w.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.leaving.Done():
		}
	}

	ctx, cancel := w.call()
	_, err := w.store.Heartbeat(ctx, store.Heartbeat{Worker: w.name})
	cancel()
	w.answered("heartbeat", -1, err)
	close(w.withdrawn)
	// The others learn that with their next heartbeats. Until then this worker announces due
	// timers of its shards, as a worker without free slots does.
	if w.sleep(2 * every) {
		w.mu.Lock()
		for i := range w.shards {
			w.shards[i].preferred = false
			w.scheduleClaimLocked(&w.shards[i])
		}
		w.mu.Unlock()
	}
}

// setMembersLocked sets the live workers; nil means unknown, so each worker claims from all
// shards.
func (w *Worker) setMembersLocked(names []string) {
	if names != nil {
		names = slices.Clone(names)
		if at, ok := slices.BinarySearch(names, w.name); !ok {
			names = slices.Insert(names, at, w.name)
		}
		if slices.Equal(names, w.members) {
			return
		}
	}
	w.members = names
	for i := range w.shards {
		s := &w.shards[i]
		preferred := names == nil
		if names != nil {
			s.first, _ = slices.BinarySearch(names, preferredOf(names, i))
			preferred = names[s.first] == w.name
		}
		if preferred == s.preferred {
			continue
		}
		s.preferred = preferred
		if preferred {
			// The known horizon may be stale: poll it.
			s.horizon.next, s.horizon.earlier = 0, 0
			w.pollSoon()
		}
		w.scheduleClaimLocked(s)
	}
	w.dispatchLocked()
}

// preferredOf returns the worker that is preferred for a shard.
func preferredOf(names []string, shard int) string {
	best, most := "", uint64(0)
	for _, name := range names {
		if r := rank(name, shard); best == "" || r > most || r == most && name > best {
			best, most = name, r
		}
	}
	return best
}

// rank is FNV-1a of the name and the number, with the finalizer of MurmurHash3.
func rank(name string, shard int) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	h = (h ^ uint64(shard)) * prime
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// subscribe listens to the engine's events while the worker runs.
func (w *Worker) subscribe() {
	for failures := 1; ; failures++ {
		began := w.now()
		err := w.store.Subscribe(w.callCtx, w.event)
		if w.callCtx.Err() != nil {
			return
		}
		w.answered("subscribe", -1, err)
		if w.now()-began > maxPause {
			failures = 1
		}
		if !w.sleep(pause(failures)) {
			return
		}
	}
}

// helpFor is how long a worker remembers that another has no free slots: until that worker says so
// again, after its poll each second.
const helpFor = 2 * pollEvery

// event is called by the engine, with one event at a time.
func (w *Worker) event(e store.Event) {
	switch {
	case e.Kind == store.Gap:
		w.health.report("subscribe", -1, nil)
		w.pollSoon()
		return
	case e.Kind == store.Busy && e.From == w.name:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Kind == store.CancelRun {
		if r, ok := w.leases.Get(e.Holder); ok {
			w.cancelLocked(r)
		}
		return
	}
	if e.Shard < 0 || e.Shard >= len(w.shards) {
		return // of a store with another number of shards
	}
	s, now := &w.shards[e.Shard], w.now()
	switch e.Kind {
	case store.Earlier:
		s.horizon.event(e.Due, now)
		if s.preferred && !s.horizon.clock.known {
			w.pollSoon()
		}
	case store.Busy:
		s.helpUntil = now + helpFor
	}
	w.scheduleClaimLocked(s)
	w.dispatchLocked()
}
