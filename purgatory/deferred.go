package purgatory

import (
	"fmt"
	"sync"
)

// deferred is the keys that were handed over to workers, and what a worker does with
// one. At most one worker is at each key (P15): the others are there for other keys.
type deferred[K comparable] struct {
	core *core
	run  func(K)

	mu    sync.Mutex
	turns map[K]turn // guarded by mu; the keys that wait for a worker or have one
	order []K        // guarded by mu; those that wait; those before head are gone
	head  int        // guarded by mu
	most  int        // guarded by mu; keys that turns has had at once
}

// turn is how far a deferred key is.
type turn uint8

const (
	queued        turn = iota // it is in order, and a worker will come
	runningOnce               // a worker is at it
	runningQueued             // that, and it is in order once more
	runningAgain              // that, and its turn has come while the worker was still at it
)

// keepKeys is how many keys there is room kept for when none waits.
const keepKeys = 1 << 10

func (d *deferred[K]) init(c *core, run func(K)) { d.core, d.run = c, run }

// add queues a key, unless it is queued already, and a worker's turn for it.
func (d *deferred[K]) add(key K) error {
	if !reflexive(key) {
		return fmt.Errorf("purgatory: the key is %v, must be equal to itself", key)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.core.closing.begun.Load() {
		return ErrClosed
	}
	switch now, known := d.turns[key]; {
	case !known:
		d.queueLocked(key, queued)
	case now == runningOnce:
		d.queueLocked(key, runningQueued)
	}
	return nil
}

func (d *deferred[K]) queueLocked(key K, as turn) {
	if d.turns == nil {
		d.turns = make(map[K]turn)
	}
	d.turns[key] = as
	d.most = max(d.most, len(d.turns))
	d.order = append(d.order, key)
	// One timer for each key that is queued, so that a slow check keeps none of the
	// others waiting while a worker is free.
	d.core.clock.schedule(event{d, 0}, 0)
}

// due is what the wheel calls: a worker is free for the key that waits longest.
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

// take returns the key that waits longest; false if another worker is at it still, or
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
		if cap(d.order) > keepKeys {
			d.order = nil
		}
	} else if d.head > len(d.order)/2 {
		// There may always be one that waits: what is gone must make room
		// before the last has gone. Fewer move than have gone since the last
		// time, so this costs a constant for each key.
		n := copy(d.order, d.order[d.head:])
		clear(d.order[d.head:])
		d.order, d.head = d.order[:n], 0
	}
	if d.turns[key] == runningQueued {
		d.turns[key] = runningAgain
		return key, false
	}
	d.turns[key] = runningOnce
	d.core.startWork() // with mu held: the shutdown has not come to clear yet
	return key, true
}

// done ends a worker's turn. What has changed since it began is looked at in another.
func (d *deferred[K]) done(key K) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.turns[key] {
	case runningQueued:
		d.turns[key] = queued
	case runningAgain:
		d.queueLocked(key, queued)
	default:
		delete(d.turns, key)
	}
	if len(d.turns) == 0 && d.most > keepKeys {
		d.turns, d.most = nil, 0 // a map does not shrink
	}
}

// clear forgets the keys that wait: the shutdown has begun, and ends all operations.
func (d *deferred[K]) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns, d.order, d.head, d.most = nil, nil, 0, 0
}
