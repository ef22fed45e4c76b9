package purgatory

import (
	"fmt"
	"sync"
)

// deferred is the keys that were handed over and not looked at yet, in order.
type deferred[K comparable] struct {
	mu sync.Mutex

	// Guarded by mu.
	queued map[K]struct{}
	order  []K // the keys of queued; those before head are gone
	head   int
}

// keepOrder is how many keys there is room kept for when none waits.
const keepOrder = 1 << 10

// CheckAndCompleteLater has a worker call CheckAndComplete(key) soon, and does
// not wait for it. It runs none of your code, so it may be called with any
// lock held (P6). A key that is handed over again before its check has begun
// is checked once; a change made before the call is always seen by a check
// that begins after it.
//
// It does not block, and takes constant time. After the shutdown has begun it
// says ErrClosed: every operation is ended by that already. A key that is not
// equal to itself is an error.
func (p *Purgatory[K]) CheckAndCompleteLater(key K) error {
	return p.deferred.add(&p.host, key)
}

// checkDeferred checks the key that waits longest, on a worker.
func (p *Purgatory[K]) checkDeferred() { p.CheckAndComplete(p.deferred.take()) }

// AdvanceLater has a worker call Advance with key, and with its number as it is
// read then. It is to Advance what [Purgatory.CheckAndCompleteLater] is to
// CheckAndComplete: it runs none of your code, so it may be called with any
// lock held.
func (t *Threshold[K, N]) AdvanceLater(key K) error {
	return t.deferred.add(&t.host, key)
}

func (t *Threshold[K, N]) advanceDeferred() {
	key := t.deferred.take()
	t.Advance(key, t.current(key))
}

// add queues a key, unless it is queued already, and a worker's turn for it.
func (d *deferred[K]) add(t *host, key K) error {
	if !reflexive(key) {
		return fmt.Errorf("purgatory: the key is %v, must be equal to itself", key)
	}
	if t.end.begun.Load() {
		return ErrClosed
	}
	d.mu.Lock()
	_, queued := d.queued[key]
	if !queued {
		if d.queued == nil {
			d.queued = make(map[K]struct{})
		}
		d.queued[key] = struct{}{}
		d.order = append(d.order, key)
	}
	d.mu.Unlock()
	if queued {
		return nil
	}
	// One run of a worker for each key that is queued, so that a slow check
	// keeps none of the others waiting while a worker is free.
	if _, err := t.wheel.Schedule(Pending{}, 0); err != nil {
		return ErrClosed
	}
	return nil
}

// take is the key that waits longest. It is not queued any more: what changes
// while it is being checked is to be looked at again.
func (d *deferred[K]) take() K {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := d.order[d.head]
	var none K
	d.order[d.head] = none
	d.head++
	if d.head == len(d.order) {
		d.order, d.head = d.order[:0], 0
		if cap(d.order) > keepOrder {
			d.order, d.queued = nil, nil
		}
	} else if d.head > len(d.order)/2 {
		// There may always be one that waits: what is gone must make room
		// before the last has gone. Fewer move than have gone since the last
		// time, so this costs a constant for each key.
		n := copy(d.order, d.order[d.head:])
		clear(d.order[d.head:])
		d.order, d.head = d.order[:n], 0
	}
	delete(d.queued, key)
	return key
}
