package webhook

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// minSnooze is the shortest time for which a call is postponed, so that it does not return at once.
const minSnooze = 50 * time.Millisecond

// hosts bounds the concurrent calls to each host.
type hosts struct {
	perHost   int
	wait      time.Duration // for a slot; 0: none
	maxSnooze time.Duration

	mu sync.Mutex
	m  map[string]*host // those with running or waiting calls
}

// host is guarded by hosts.mu. Invariant: if waiting is not empty, calls is perHost.
type host struct {
	calls   int
	waiting []chan struct{} // closed when the slot is transferred; in order of arrival
	mean    time.Duration   // of the calls' durations, the last ones weighing most
	free    time.Time       // when all postponed calls should have had their slots
}

// enter acquires a slot for a call. If there is none, it returns the time until the call should be
// tried again, which is above zero; otherwise the caller must call leave. The error is ctx's
// cause.
func (hs *hosts) enter(ctx context.Context, name string) (postponed time.Duration, err error) {
	hs.mu.Lock()
	h := hs.m[name]
	if h == nil {
		h = &host{}
		hs.m[name] = h
	}
	if h.calls < hs.perHost {
		h.calls++
		hs.mu.Unlock()
		return 0, nil
	}
	if hs.wait == 0 || len(h.waiting) >= hs.perHost {
		defer hs.mu.Unlock()
		return hs.postponeLocked(h), nil
	}
	slot := make(chan struct{})
	h.waiting = append(h.waiting, slot)
	hs.mu.Unlock()

	timer := time.NewTimer(hs.wait)
	defer timer.Stop()
	select {
	case <-slot:
		return 0, nil
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	i := slices.Index(h.waiting, slot)
	if i < 0 { // the slot was transferred after the timeout or the end of ctx
		if err == nil {
			return 0, nil
		}
		hs.leaveLocked(name, h)
		return 0, err
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	if err != nil {
		return 0, err
	}
	return hs.postponeLocked(h), nil
}

// postponeLocked assigns the times at which slots should become free, one after another, so that
// postponed calls do not return all at once.
func (hs *hosts) postponeLocked(h *host) time.Duration {
	now := time.Now()
	mean := max(h.mean, time.Millisecond)
	if h.free.Before(now) {
		h.free = now.Add(mean / 2)
	}
	h.free = h.free.Add(max(mean/time.Duration(hs.perHost), time.Microsecond))
	d := h.free.Sub(now)
	if d > hs.maxSnooze {
		h.free = now.Add(hs.maxSnooze)
		d = hs.maxSnooze - rand.N(hs.maxSnooze/2+1)
	}
	return max(d, minSnooze)
}

// leave releases a slot after a call of the given duration.
func (hs *hosts) leave(name string, took time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.m[name]
	if h.mean == 0 {
		h.mean = took
	}
	h.mean += (took - h.mean) / 8
	hs.leaveLocked(name, h)
}

func (hs *hosts) leaveLocked(name string, h *host) {
	if len(h.waiting) > 0 {
		close(h.waiting[0])
		h.waiting = slices.Delete(h.waiting, 0, 1)
		return
	}
	if h.calls--; h.calls == 0 {
		delete(hs.m, name) // postponed calls find an idle host
	}
}

// len returns the number of hosts with running calls.
func (hs *hosts) len() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.m)
}
