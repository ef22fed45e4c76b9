package purgatory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"time"
)

// Purgatory holds operations that wait on keys of type K. Make one with [New]; it runs
// goroutines until it is shut down. All methods are safe for use from any goroutine, also from
// TryComplete and Complete.
type Purgatory[K comparable] struct {
	core
	seed     maphash.Seed
	table    table[K, watchlist]
	deferred deferred[K]
}

// New makes a purgatory. It costs one goroutine while nothing expires, and none on a shared
// clock. An option out of range is an error that names it.
func New[K comparable](o Options) (*Purgatory[K], error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Purgatory[K]{seed: maphash.MakeSeed()}
	p.table.init()
	p.deferred.init(&p.core, func(key K) { p.CheckAndComplete(key) })
	if err := p.open(o, p); err != nil {
		return nil, err
	}
	return p, nil
}

// maxKeys is the maximum number of keys that an operation can watch.
const maxKeys = math.MaxUint16

// TryCompleteElseWatch checks op and, if it cannot complete, watches it on keys for at most
// timeout: until a CheckAndComplete for one of the keys finds that it can, until it is
// cancelled, or until the timeout passes.
//
// If op ends within the call, Complete has been called and the handle is zero. Otherwise the
// handle is that of the waiting operation, which may have ended by the time the call returns.
// If the checks return false, a timeout of zero or less expires at once, on a worker;
// [NoTimeout] never expires. When ctx is done the operation ends as Cancelled, with
// context.Cause: on a goroutine of its own, on the caller's if the caller is still in this
// call, or on a goroutine that is running a check of it. A context that cannot be cancelled
// costs nothing. A key given twice counts once.
//
// op is checked at most twice, whatever the number of keys: before it is watched, and after.
// The second check closes the gap between the first and the watching: a change either precedes
// the second check, which sees it, or its CheckAndComplete finds op watched.
//
// An error means that op is not watched and that its Complete is not called: no keys or more
// than 65,535, a key that is not equal to itself, [ErrFull], [ErrClosed]. A nil ctx or op
// panics. The call takes constant time for each key, and allocates nothing for up to 16 keys
// once the records of ended operations can be used again.
func (p *Purgatory[K]) TryCompleteElseWatch(ctx context.Context, op Operation, timeout time.Duration, keys ...K) (Pending, error) {
	done := p.mustHaveArguments(ctx, op)
	if err := checkKeys(keys); err != nil {
		return Pending{}, err
	}
	if p.closing.begun.Load() {
		p.countRefused(ErrClosed)
		return Pending{}, ErrClosed
	}
	w := waiters.Get().(*waiter)
	gen := w.begin(&p.core, op, timeout)
	if completed, ended := w.check(); completed || ended {
		if completed {
			w.finish(Completed)
		}
		return Pending{}, nil
	}
	var few [fewKeys]uint64
	hashes := p.hashes(few[:0], keys)
	w.setHashes(hashes)
	part, soon, err := p.countIn(w, gen)
	if err != nil { // no other goroutine has seen w
		p.free(w)
		return Pending{}, err
	}
	p.enter(w, part, keys, hashes)
	p.putTally(part)
	return w.wait(ctx, done, gen, soon)
}

// checkKeys refuses keys that cannot be watched.
func checkKeys[K comparable](keys []K) error {
	if len(keys) == 0 {
		return errors.New("purgatory: the operation has no keys, must have at least 1")
	}
	if len(keys) > maxKeys {
		return fmt.Errorf("purgatory: the operation has %d keys, must have at most %d", len(keys), maxKeys)
	}
	for i, k := range keys {
		if !reflexive(k) {
			return fmt.Errorf("purgatory: keys[%d] is %v, must be equal to itself", i, k)
		}
	}
	return nil
}

// reflexive is false for a NaN and for a key that contains one: no map finds such a key.
func reflexive[K comparable](key K) bool {
	return key == key //nolint:gocritic // that is the question
}

func (p *Purgatory[K]) hash(key K) uint64 {
	p.mustBeMade()
	return maphash.Comparable(p.seed, key) | 1<<63
}

// Up to fewKeys keys are compared pairwise to find duplicates; more are put into a map.
const fewKeys = 16

// hashes appends the hash of each key, or 0 for a duplicate.
func (p *Purgatory[K]) hashes(to []uint64, keys []K) []uint64 {
	var seen map[K]struct{}
	if len(keys) > fewKeys {
		seen = make(map[K]struct{}, len(keys))
	}
	for i, k := range keys {
		h := p.hash(k)
		if seen == nil {
			for before, other := range to {
				if other == h && keys[before] == k {
					h = 0
					break
				}
			}
		} else if _, duplicate := seen[keys[i]]; duplicate {
			h = 0
		} else {
			seen[k] = struct{}{}
		}
		to = append(to, h)
	}
	return to
}

// enter puts the operation into the list of each of its keys.
func (p *Purgatory[K]) enter(w *waiter, t *tally, keys []K, hashes []uint64) {
	var first touched[K, watchlist]
	for i, h := range hashes {
		first.touch(&p.table, i, uint32(h))
	}
	key, keysAdded, crowded := 0, 0, false
	for i, h := range hashes {
		if h == 0 {
			continue
		}
		b := first.lock(&p.table, i, uint32(h))
		e := b.find(keys[i], h)
		if e == nil {
			e, crowded = p.table.insertLocked(b, keys[i], h)
		}
		if e.value.n == 0 {
			keysAdded++
		}
		e.value.add(w, key)
		b.mu.Unlock()
		key++
		if crowded {
			crowded = false
			p.table.grow(p.KeyCount() + keysAdded)
		}
	}
	if keysAdded > 0 {
		t.keys.Add(int64(keysAdded))
	}
}

// leave removes the operation from the list of each of its keys. See lists.
func (p *Purgatory[K]) leave(w *waiter) (watches, keysRemoved int) {
	all := w.keyHashes()
	var first touched[K, watchlist]
	for key, h := range all {
		first.touch(&p.table, key, h)
	}
	for key, h := range all {
		b := first.lock(&p.table, key, h)
		e := b.next(nil, h)
		for !e.value.remove(w, key) {
			e = b.next(e, h) // another key with this hash
		}
		if e.value.n == 0 {
			keysRemoved++
		}
		if e.value.compact(h); e.value.empty() {
			p.table.removeLocked(b, e)
		}
		b.mu.Unlock()
	}
	return len(all), keysRemoved
}

// free makes the record available to later operations. See lists.
func (p *Purgatory[K]) free(w *waiter) {
	if w.n > maxExtra {
		w.extra.Store(nil)
	}
	w.n = 0
	waiters.Put(w)
}

// shrink releases memory of the table. See lists.
func (p *Purgatory[K]) shrink(limit int) { p.table.shrink(p.KeyCount(), limit) }

// CheckAndComplete checks the operations that watch key, in the order in which they began to
// watch, and returns how many this call completed. Call it after every change that may let one
// of them complete.
//
// It runs TryComplete and Complete on the calling goroutine. It never waits for a check that
// runs on another goroutine, but asks that goroutine to check once more. So it may be called
// wherever TryComplete and Complete may run, also from a Complete. Such calls nest as deep as
// the stack allows, at about 1 KiB each. Under a lock that the checks or completions take, and
// for chains of any length, use [Purgatory.CheckAndCompleteLater].
//
// If other goroutines keep asking for checks of an operation while it is checked here, a worker
// continues after 64 checks. So 0 does not mean that nothing was completed: another goroutine
// may have done it.
//
// It takes time proportional to the watchers of key, and allocates nothing.
func (p *Purgatory[K]) CheckAndComplete(key K) int {
	w := walk[K]{table: &p.table, key: key, hash: p.hash(key), visit: checking}
	w.begin()
	w.run()
	return w.ended
}

// CancelForKey ends all operations that watch key, as Cancelled, and returns how many this call
// ended. Their Complete receives cause, or [ErrCancelled] if it is nil. Operations that also
// watch other keys leave those too. If a check of an operation is running, the goroutine that
// runs it ends the operation.
func (p *Purgatory[K]) CancelForKey(key K, cause error) int {
	w := walk[K]{table: &p.table, key: key, hash: p.hash(key), visit: cancelling, cause: cause}
	w.begin()
	w.run()
	return w.ended
}

// CheckAndCompleteLater makes a worker call CheckAndComplete(key) soon, and does not wait for
// it. It runs none of your code, so it may be called with any lock held. Calls for one key are
// merged until its check begins; a change made before the call is always seen by a check that
// begins after it. At most one such check of a key runs at a time.
//
// It does not block, and takes constant time. It returns ErrClosed once the shutdown has begun,
// because the shutdown ends every operation anyway. A key that is not equal to itself is an
// error.
func (p *Purgatory[K]) CheckAndCompleteLater(key K) error {
	p.mustBeMade()
	return p.deferred.add(key)
}

// Await blocks until cond returns true. It calls cond as TryComplete is called: first at once,
// and then for every CheckAndComplete of one of the keys. It returns nil when cond has returned
// true. Otherwise it returns the reason: [ErrExpired] after timeout, context.Cause when ctx is
// done, [ErrClosed], a [*CheckError] if cond panics, the cause given to CancelForKey, or an
// error of [Purgatory.TryCompleteElseWatch], whose documentation says more about timeouts and
// keys.
//
// A nil cond or ctx panics. Await starts no goroutine. Do not call it from a TryComplete or a
// Complete that another goroutine waits for.
func (p *Purgatory[K]) Await(ctx context.Context, timeout time.Duration, cond func() bool, keys ...K) error {
	done := mustHaveContext(ctx)
	if cond == nil {
		panic("purgatory: the condition is nil")
	}
	a := await{cond, make(chan error, 1)}
	h, err := p.TryCompleteElseWatch(context.Background(), a, timeout, keys...)
	return a.wait(ctx, done, &p.core, h, err)
}

// Watching returns the number of operations that watch key at one moment, in constant time.
func (p *Purgatory[K]) Watching(key K) int {
	h := p.hash(key)
	b := p.table.lock(uint32(h))
	defer b.mu.Unlock()
	if e := b.find(key, h); e != nil {
		return int(e.value.n)
	}
	return 0
}

// Stats returns the purgatory's statistics. It locks the counters, one part for each processor
// that has used the purgatory.
func (p *Purgatory[K]) Stats() Stats { return p.stats() }

// Clock returns the clock of the timeouts: Options.Clock, or the purgatory's own.
func (p *Purgatory[K]) Clock() *Clock {
	p.mustBeMade()
	return p.clock
}

// Len returns the exact number of pending operations at one moment, each counted once. It takes
// time proportional to GOMAXPROCS.
func (p *Purgatory[K]) Len() int { return p.pending() }

// Watched returns the number of watches: pending operations, each counted once for each of its
// keys. See [Purgatory.Len].
func (p *Purgatory[K]) Watched() int { return p.watched() }

// KeyCount returns the number of keys with watchers. Keys whose first watcher is arriving or
// whose last watcher is leaving may be counted or not.
func (p *Purgatory[K]) KeyCount() int { return p.keyCount() }

// Close begins a shutdown and does not wait for its end. Operations are refused with ErrClosed
// from now on, and every pending one ends as Closed: Close calls its Complete, or, if another
// goroutine is checking or entering the operation, that goroutine does. The goroutines of the
// purgatory's own clock end when the last operation has left.
//
// It may be called from a Complete and a TryComplete, any number of times. It returns when the
// Completes that it calls itself have returned.
func (p *Purgatory[K]) Close() {
	p.refuseAll()
	var all []Pending
	p.table.visit(func(b *bucket[K, watchlist]) bool {
		b.each(func(e *entry[K, watchlist]) {
			for w := range e.value.all {
				all = append(all, w.handle())
			}
		})
		return true
	})
	endAll(all)
	p.deferred.clear()
	p.closeWheel()
}

// Shutdown calls [Purgatory.Close] and waits until no operation is left and the workers'
// goroutines have ended or, on a shared clock, have returned from the last Complete. Do not
// call it from a Complete or a TryComplete: it would wait there until ctx is done.
//
// When ctx is done first, Shutdown returns its error; the shutdown goes on, and another call
// waits for it again. ctx limits only the waiting: a Complete that Shutdown calls itself must
// return before Shutdown checks ctx. Any number of calls may be made, concurrently or after the
// end. A nil ctx panics, and changes nothing.
//
// Shutdown waits until operations that end on workers have returned from their Complete. It
// waits for operations that your other goroutines end only until they have left the purgatory.
// So a Complete on a context's goroutine, for an operation that ended just before, may outlast
// Shutdown.
func (p *Purgatory[K]) Shutdown(ctx context.Context) error {
	mustHaveContext(ctx)
	p.Close()
	return waitFor(ctx, p.closing.done)
}
