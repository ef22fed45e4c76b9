package purgatory

import (
	"fmt"
	"sync"
)

// deferred holds the keys that were passed to workers, and the function that a worker runs for
// each. At most one worker runs a key at a time (no key starves another, P15); other workers
// stay free for other keys.
type deferred[K comparable] struct {
	core *core
	run  func(K)

	mu        sync.Mutex
	states    map[K]keyState // guarded by mu; keys that wait for a worker or have one
	order     []K            // guarded by mu; waiting keys, from head on
	head      int            // guarded by mu
	maxStates int            // guarded by mu; the maximum size of states so far
}

// keyState is the state of a deferred key.
type keyState uint8

const (
	queued        keyState = iota // in order, waiting for a worker
	runningOnce                   // a worker runs it
	runningQueued                 // a worker runs it, and it is in order again
	runningAgain                  // a worker runs it, and its next turn came in the meantime
)

// maxKeptKeys is the number of keys for which memory is kept while none waits.
const maxKeptKeys = 1 << 10

func (d *deferred[K]) init(c *core, run func(K)) { d.core, d.run = c, run }

// add queues a key and schedules a worker for it, unless it is already queued.
func (d *deferred[K]) add(key K) error {
	if !reflexive(key) {
		return fmt.Errorf("purgatory: the key is %v, must be equal to itself", key)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.core.closing.begun.Load() {
		return ErrClosed
	}
	switch now, known := d.states[key]; {
	case !known:
		d.queueLocked(key, queued)
	case now == runningOnce:
		d.queueLocked(key, runningQueued)
	}
	return nil
}

func (d *deferred[K]) queueLocked(key K, state keyState) {
	if d.states == nil {
		d.states = make(map[K]keyState)
	}
	d.states[key] = state
	d.maxStates = max(d.maxStates, len(d.states))
	d.order = append(d.order, key)
	// One timer for each queued key, so that a slow check does not delay other keys while a
	// worker is free.
	d.core.clock.schedule(event{d, 0}, 0)
}

// due runs the key that has waited longest. The wheel calls it when a worker is free.
func (d *deferred[K]) due(uint64) {
	key, ok := d.take()
	if !ok {
		return
	}
	defer d.core.stopWork()
	defer d.done(key)
	defer d.core.recoverPanic() // of the function that reads a Threshold's number
	d.run(key)
}

// take returns the key that has waited longest; false if another worker is still running it, or
// the shutdown has begun.
func (d *deferred[K]) take() (key K, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.head == len(d.order) {
		return key, false
	}
	var none K
	key, d.order[d.head] = d.order[d.head], none
	d.head++
	if d.head == len(d.order) {
		d.order, d.head = d.order[:0], 0
		if cap(d.order) > maxKeptKeys {
			d.order = nil
		}
	} else if d.head > len(d.order)/2 {
		// The queue may never become empty, so drop the removed entries before that. Fewer
		// entries move than were removed since the last time, so this costs constant time for
		// each key.
		n := copy(d.order, d.order[d.head:])
		clear(d.order[d.head:])
		d.order, d.head = d.order[:n], 0
	}
	if d.states[key] == runningQueued {
		d.states[key] = runningAgain
		return key, false
	}
	d.states[key] = runningOnce
	d.core.startWork() // with mu held: the shutdown has not called clear yet
	return key, true
}

// done ends a worker's turn. If the key was added again in the meantime, another turn follows.
func (d *deferred[K]) done(key K) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.states[key] {
	case runningQueued:
		d.states[key] = queued
	case runningAgain:
		d.queueLocked(key, queued)
	default:
		delete(d.states, key)
	}
	if len(d.states) == 0 && d.maxStates > maxKeptKeys {
		d.states, d.maxStates = nil, 0 // a map does not shrink
	}
}

// clear drops the waiting keys: the shutdown has begun, and ends all operations.
func (d *deferred[K]) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states, d.order, d.head, d.maxStates = nil, nil, 0, 0
}
