package purgatory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"time"
)

// Purgatory holds operations that wait on keys of type K. Make one with [New];
// it runs goroutines until it is shut down. All methods are safe for use from
// any goroutine, TryComplete and Complete included.
type Purgatory[K comparable] struct {
	core
	seed     maphash.Seed
	table    table[K, watchlist]
	deferred deferred[K]
}

// New makes a purgatory. It costs one goroutine while nothing expires, and none on a
// shared clock. An option out of range is an error that names it.
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

// maxKeys is how many keys an operation can watch.
const maxKeys = math.MaxUint16

// TryCompleteElseWatch checks op, and if it cannot complete watches it on keys
// for at most timeout: until a CheckAndComplete for one of them finds that it
// can, it is cancelled, or its time is up.
//
// If op ends within the call, Complete has been called and the handle is zero.
// Otherwise the handle is that of the waiting operation; it may have ended by the
// time it is returned. A timeout of zero or less expires at once, on a worker, if
// the checks return false; [NoTimeout] never does. When ctx is done the operation ends as
// Cancelled, with context.Cause: on a goroutine of its own, on the caller's if that
// is still in this call, or on one whose check of it is running. A context that cannot
// be cancelled costs nothing.
// A key given twice counts once.
//
// op is checked at most twice, whatever the number of keys: before it is
// watched, and after. With the second check nothing is lost between the first
// and the watching: a change either comes before it, and is seen, or its
// CheckAndComplete finds op watched.
//
// An error means that op is not watched and that its Complete is not called:
// no keys or more than 65,535, a key that is not equal to itself, [ErrFull],
// [ErrClosed]. A nil ctx or op panics. It allocates nothing once the records of
// operations that have ended can be used again, up to 16 keys; constant time for
// each key.
func (p *Purgatory[K]) TryCompleteElseWatch(ctx context.Context, op Operation, timeout time.Duration, keys ...K) (Pending, error) {
	done := p.mustBeUsable(ctx, op)
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
	if err != nil { // nobody has met it
		p.free(w)
		return Pending{}, err
	}
	p.enter(w, part, keys, hashes)
	p.putBack(part)
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

// reflexive is false for a NaN, and for a key that holds one: no map finds it.
func reflexive[K comparable](key K) bool {
	return key == key //nolint:gocritic // that is the question
}

func (p *Purgatory[K]) hash(key K) uint64 {
	p.mustBeMade()
	return maphash.Comparable(p.seed, key) | 1<<63
}

// fewKeys is up to how many keys they are compared each with each to find one
// given twice; beyond, a map does.
const fewKeys = 16

// hashes appends the hash of each key, and 0 for a key given before.
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
		} else if _, twice := seen[keys[i]]; twice {
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
	// The buckets lie anywhere: all are touched, so that the misses are had at once.
	var touched [inRecord]*bucket[K, watchlist]
	for i, h := range hashes {
		b := p.table.touch(uint32(h))
		if i < len(touched) {
			touched[i] = b
		}
	}
	key, appeared, crowded := 0, 0, false
	for i, h := range hashes {
		if h == 0 {
			continue
		}
		var b *bucket[K, watchlist]
		if i < len(touched) {
			b = touched[i]
		}
		b = p.table.lockTouched(b, uint32(h))
		e := b.find(keys[i], h)
		if e == nil {
			e, crowded = p.table.insertLocked(b, keys[i], h)
		}
		if e.value.n == 0 {
			appeared++
		}
		e.value.add(w, key)
		b.mu.Unlock()
		key++
		if crowded {
			crowded = false
			p.table.grow(p.KeyCount() + appeared)
		}
	}
	if appeared > 0 {
		t.keys.Add(int64(appeared))
	}
}

// leave takes the operation out of the list of each of its keys. See lists.
func (p *Purgatory[K]) leave(w *waiter) (watches, vanished int) {
	all := w.keyHashes()
	var touched [inRecord]*bucket[K, watchlist]
	for i, h := range all {
		b := p.table.touch(h)
		if i < len(touched) {
			touched[i] = b
		}
	}
	for key, h := range all {
		var b *bucket[K, watchlist]
		if key < len(touched) {
			b = touched[key]
		}
		b = p.table.lockTouched(b, h)
		e := b.next(nil, h)
		for !e.value.remove(w, key) {
			e = b.next(e, h) // another key with this hash
		}
		if e.value.n == 0 {
			vanished++
		}
		if e.value.shorten(h); e.value.empty() {
			p.table.removeLocked(b, e)
		}
		b.mu.Unlock()
	}
	return len(all), vanished
}

// free gives the record to operations to come. See lists.
func (p *Purgatory[K]) free(w *waiter) {
	if w.n > maxAside {
		w.aside.Store(nil)
	}
	w.n = 0
	waiters.Put(w)
}

// shrink gives memory of the table back. See lists.
func (p *Purgatory[K]) shrink(most int) { p.table.shrink(p.KeyCount(), most) }

// CheckAndComplete checks the operations that watch key, in the order in which
// they came, and returns how many this call completed. Call it after every
// change that may let one of them complete.
//
// It runs TryComplete and Complete on the calling goroutine, and never waits
// for a check that runs elsewhere: it has that goroutine check again. So
// it may be called from anywhere that TryComplete and Complete may run, from a
// Complete also; nested like that as deep as the stack allows, at some 1 KiB a
// call. Under a lock that those take, and for chains of any length, use
// [Purgatory.CheckAndCompleteLater].
//
// An operation that others ask to be checked again and again while it is checked
// here is left to a worker after 64 times. So 0 does not mean that nothing was
// completed: another goroutine may have done it.
//
// It takes time proportional to the watchers of key, and allocates nothing.
func (p *Purgatory[K]) CheckAndComplete(key K) int {
	w := walk[K]{table: &p.table, key: key, hash: p.hash(key), visit: checking}
	w.begin()
	w.run()
	return w.ended
}

// CancelForKey ends all operations that watch key, as Cancelled, and returns how
// many this call did end so. They are told cause, or [ErrCancelled] if that is nil.
// Those watched under other keys too leave those as well. Operations being checked
// just now are ended by their checkers.
func (p *Purgatory[K]) CancelForKey(key K, cause error) int {
	w := walk[K]{table: &p.table, key: key, hash: p.hash(key), visit: cancelling, cause: cause}
	w.begin()
	w.run()
	return w.ended
}

// CheckAndCompleteLater has a worker call CheckAndComplete(key) soon, and does
// not wait for it. It runs none of your code, so it may be called with any
// lock held. A key that is handed over again before its check has begun
// is checked once; a change made before the call is always seen by a check
// that begins after it. Checks of one key that are asked for so run one at a time.
//
// It does not block, and takes constant time. After the shutdown has begun it
// returns ErrClosed: every operation is ended by that already. A key that is not
// equal to itself is an error.
func (p *Purgatory[K]) CheckAndCompleteLater(key K) error {
	p.mustBeMade()
	return p.deferred.add(key)
}

// Await blocks until cond returns true. It is called as an operation's TryComplete
// is: at first, and then for every CheckAndComplete of one of keys. Await returns
// nil then, and otherwise why it gave up: [ErrExpired] after timeout, context.Cause
// when ctx is done, [ErrClosed], a [*CheckError] if cond panics, what
// CancelForKey was given; or an error of [Purgatory.TryCompleteElseWatch], which
// says more about timeouts and keys.
//
// A nil cond or ctx panics. Await must not be called from a TryComplete or a Complete
// that something else waits for; it runs no goroutine.
func (p *Purgatory[K]) Await(ctx context.Context, timeout time.Duration, cond func() bool, keys ...K) error {
	done := mustHave(ctx)
	if cond == nil {
		panic("purgatory: the condition is nil")
	}
	w := await{cond, make(chan error, 1)}
	h, err := p.TryCompleteElseWatch(context.Background(), w, timeout, keys...)
	return w.wait(ctx, done, &p.core, h, err)
}

// Watching returns how many operations watch a key: of one moment, in constant time.
func (p *Purgatory[K]) Watching(key K) int {
	h := p.hash(key)
	b := p.table.lock(uint32(h))
	defer b.mu.Unlock()
	if e := b.find(key, h); e != nil {
		return int(e.value.n)
	}
	return 0
}

// Stats returns the purgatory's figures. It locks what counts them, one part for each
// processor that has used the purgatory.
func (p *Purgatory[K]) Stats() Stats { return p.stats() }

// Clock returns the clock of the timeouts: Options.Clock, or the purgatory's own.
func (p *Purgatory[K]) Clock() *Clock {
	p.mustBeMade()
	return p.clock
}

// Len returns the number of operations that wait, each counted once: of one
// moment, exactly, in time proportional to GOMAXPROCS.
func (p *Purgatory[K]) Len() int { return p.delayed() }

// Watched returns the number of watches: operations that wait, each counted once
// for every key of its. See [Purgatory.Len].
func (p *Purgatory[K]) Watched() int { return p.watched() }

// KeyCount returns the number of keys that an operation watches. Keys that operations
// are coming to or leaving just now may be counted or not.
func (p *Purgatory[K]) KeyCount() int { return p.keyCount() }

// Close begins a shutdown and does not wait for its end. From now on operations
// are refused with ErrClosed, and every waiting one ends as Closed: Close calls
// its Complete, or the goroutine does that checks it or enters it just then. When the
// last one has left, the goroutines of the workers end.
//
// It may be called from a Complete and a TryComplete, any number of times. It
// returns when every Complete has that it calls itself.
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

// Shutdown is [Purgatory.Close] that waits until no operation is left and the
// goroutines of the workers have ended, or have returned from the last Complete if the
// wheel is shared. So it must not be called from a Complete or a TryComplete, for which
// it would wait until ctx is done.
//
// When ctx is done first, Shutdown returns its error; the shutdown goes on, and
// another call waits for it again. That is for the waiting: a Complete that
// Shutdown has called itself must return before it looks at ctx. Any number of
// calls may be made, at once or after the end. A nil ctx panics, and changes
// nothing.
//
// It waits for the operations that end on workers to have returned from their
// Complete; for those that other goroutines of yours end, only until they have
// left the purgatory. So a Complete on a goroutine of a context's, which ended
// just before, may outlast it.
func (p *Purgatory[K]) Shutdown(ctx context.Context) error {
	mustHave(ctx)
	p.Close()
	return waitFor(ctx, p.closing.done)
}
