package timingwheel

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Policy is how Close and Shutdown treat pending timers.
type Policy uint8

const (
	// Discard drops them; the expiry function is not called for them.
	Discard Policy = iota
	// Return returns them, in order of their deadlines.
	Return
	// RunNow runs them at once, in order of their deadlines.
	RunNow
	// Await waits until each has run at its time or was stopped.
	Await
)

// String returns the policy's name.
func (p Policy) String() string {
	switch p {
	case Discard:
		return "Discard"
	case Return:
		return "Return"
	case RunNow:
		return "RunNow"
	case Await:
		return "Await"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Due is a value that a shutdown returns, with the time from which it would have run, rounded
// up to the tick.
type Due[V any] struct {
	Value    V
	Deadline time.Time
}

// Close begins a shutdown and does not wait for its end; it may be called from the expiry
// function. From now on new timers are refused with ErrClosed, and policy decides about the
// pending ones. When no timer is left and the expiry functions have returned, the wheel's
// goroutines end, and all its handles are stale.
//
// Close may be called again, for example with a stricter policy to end an Await sooner; each
// timer still ends once. Close returns the timers that Return removed, and nil otherwise. An
// unknown policy is an error, and changes nothing.
//
// Close takes O(timers), and O(n log n) under Return and RunNow, one shard at a time.
func (w *Wheel[V]) Close(policy Policy) ([]Due[V], error) {
	if policy > Await {
		return nil, fmt.Errorf("timingwheel: the policy is %v, must be Discard, Return, RunNow or Await", policy)
	}
	w.mustBeMade()
	var returned []Due[V]
	switch policy {
	case Discard:
		w.closeShards(func(s *shard[V]) {
			s.counts.discarded += uint64(s.counts.pending)
			s.dropAll()
		})
	case Return:
		returned = w.returnPending()
	case RunNow:
		w.runAll()
	case Await:
		w.closeShards(func(*shard[V]) {})
	}
	w.finish.Do(func() { go w.workers.labelled(w.finishInBackground) })
	return returned, nil
}

// Shutdown is [Wheel.Close] that waits until no timer is left, the running expiry functions
// have returned, and the wheel's goroutines have ended. So it must not be called from the
// expiry function: it would wait until ctx is done.
//
// When ctx is done first, Shutdown returns its error. Nothing is lost: the shutdown continues
// with its policy, and another call waits for it again, or ends it sooner with a stricter
// policy. It may be called any number of times, concurrently or after the end. With an error,
// Shutdown still returns the timers that Return removed. A nil ctx panics, and changes
// nothing.
func (w *Wheel[V]) Shutdown(ctx context.Context, policy Policy) ([]Due[V], error) {
	if ctx == nil {
		panic("timingwheel: the context is nil")
	}
	returned, err := w.Close(policy)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.done:
		return returned, nil
	default:
	}
	select {
	case <-w.done:
		return returned, nil
	case <-ctx.Done():
		return returned, ctx.Err()
	}
}

// closeShards makes the shards refuse new timers, and calls do with each shard.
func (w *Wheel[V]) closeShards(do func(*shard[V])) {
	for _, s := range w.shards {
		s.mu.Lock()
		s.closed = true
		do(s)
		s.mu.Unlock()
	}
}

// returnPending removes all timers and returns them in order of their deadlines.
func (w *Wheel[V]) returnPending() []Due[V] {
	var all []pendingTimer[V]
	w.closeShards(func(s *shard[V]) {
		all = s.appendPending(all)
		s.counts.returned += uint64(s.counts.pending)
		s.dropAll()
	})
	if len(all) == 0 {
		return nil
	}
	sortByDeadline(all)
	returned := make([]Due[V], len(all))
	for i, p := range all {
		returned[i] = Due[V]{p.value, w.shared.instant(p.deadline)}
	}
	return returned
}

// runAll makes all timers ready, in order of their deadlines across the shards.
func (w *Wheel[V]) runAll() {
	var all []pendingTimer[V]
	w.closeShards(func(s *shard[V]) {
		s.runNow = true
		s.readyUntil = math.MaxInt64
		all = s.appendPending(all)
	})
	sortByDeadline(all)
	for len(all) > 0 {
		first, n := all[0], 1
		for n < len(all) && all[n].deadline == first.deadline && all[n].timer.shard() == first.timer.shard() {
			n++
		}
		s := w.shards[first.timer.shard()]
		s.mu.Lock()
		s.makeReady(all[:n])
		s.mu.Unlock()
		all = all[n:]
	}
}

func sortByDeadline[V any](all []pendingTimer[V]) {
	slices.SortFunc(all, func(a, b pendingTimer[V]) int {
		return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.timer.shard(), b.timer.shard()))
	})
}

// finishInBackground waits for the last timer and ends the goroutines. It runs in a goroutine
// of its own, so that a shutdown completes even if no caller waits for it.
func (w *Wheel[V]) finishInBackground() {
	for w.Len() > 0 {
		// A shard whose last timer leaves after Len has counted it leaves a token.
		<-w.shared.drained
	}
	w.shared.queue.Close() // the advancer leaves
	w.shared.ready.close()
	w.closeShards((*shard[V]).freeMemory)
	w.workers.group.Wait()
	close(w.done)
}
