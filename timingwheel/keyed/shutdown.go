package keyed

import (
	"context"
	"fmt"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Close begins a shutdown and does not wait for its end; it may be called from the expiry
// function. From now on keys that are not in the table are refused with
// [timingwheel.ErrClosed], and policy decides about the keys in the table: Discard drops them,
// Return returns them in order of their deadlines, RunNow makes them all expire now, and
// Await keeps them until they expire or are removed; until then they can be set again, reset
// and touched. When no key is left and the expiry functions have returned, the table's
// goroutines end.
//
// Close may be called again, for example with a stricter policy to end an Await sooner. It
// returns the keys that Return removed, and nil otherwise. An unknown policy is an error, and
// changes nothing. O(keys), and O(n log n) under Return and RunNow.
func (t *Table[K, V]) Close(policy timingwheel.Policy) ([]timingwheel.Due[Entry[K, V]], error) {
	if policy > timingwheel.Await {
		return nil, fmt.Errorf("keyed: the policy is %v, must be Discard, Return, RunNow or Await", policy)
	}
	t.mustBeMade()
	t.closed.Store(true) // before any key is ended: see absent
	returned, err := t.wheel.Close(policy)
	if policy == timingwheel.Discard || policy == timingwheel.Return {
		// All keys have ended now, and none can be added. (After RunNow and Await, expired
		// removes them.)
		for i := range t.parts {
			p := &t.parts[i]
			p.mu.Lock()
			p.keys.clear()
			p.mu.Unlock()
		}
	}
	return returned, err
}

// Shutdown is [Table.Close] that waits until no key is left, the running expiry functions have
// returned, and the table's goroutines have ended. So it must not be called from the expiry
// function: it would wait until ctx is done.
//
// When ctx is done first, Shutdown returns its error. Nothing is lost: the shutdown continues
// with its policy, and another call waits for it again, or ends it sooner with a stricter
// policy. With an error, Shutdown still returns the keys that Return removed. A nil ctx
// panics, and changes nothing.
func (t *Table[K, V]) Shutdown(ctx context.Context, policy timingwheel.Policy) ([]timingwheel.Due[Entry[K, V]], error) {
	if ctx == nil {
		panic("keyed: the context is nil")
	}
	returned, err := t.Close(policy)
	if err != nil {
		return nil, err
	}
	_, err = t.wheel.Shutdown(ctx, timingwheel.Await) // waits, whatever the policy
	return returned, err
}
