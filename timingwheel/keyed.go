package timingwheel

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

// Keyed is a table of keys, each with a value and a deadline: sessions, idle
// connections, leases, cache entries. When a key's time is up it leaves the
// table and is passed to the table's expiry function. Make one with
// [NewKeyed]; it runs goroutines until it is shut down.
//
// All methods are safe for use from any goroutine, the expiry function and the
// functions given to Range and Drain included; no lock is held while those
// run. Every method is constant time, but Range and Drain. What a wheel
// promises of a timer, a table promises of a key: never early, at most one
// tick late, one end.
type Keyed[K comparable, V any] struct {
	wheel  *Wheel[Entry[K, V]]
	expire func(K, V)
	seed   maphash.Seed
	parts  []part[K] // length a power of two
}

// Entry is a key of a table with its value.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// part is the keys that hash to it. Lock order: part.mu, then a shard's of the
// wheel.
//
// Invariant: a key of the table is in keys, with the handle of its timer. A
// handle that is stale belongs to a key that a worker has taken and not yet
// removed here: it is not in the table any more.
type part[K comparable] struct {
	mu   sync.Mutex
	keys map[K]Timer // guarded by mu
	peak int         // the most that keys has held; maps never shrink
	_    [64]byte    // keeps the next part's lock off this one's cache line
}

// keepKeys is how large a part's map may have been and yet be kept when it is empty.
const keepKeys = 1 << 10

// NewKeyed makes a table that calls expire, on a worker, with each key whose
// time is up, and its value. By then the key is not in the table: expire may
// set it again. A nil expire or an option out of range is an error that names
// it; MaxPending bounds the keys.
func NewKeyed[K comparable, V any](expire func(K, V), o Options) (*Keyed[K, V], error) {
	if expire == nil {
		return nil, errors.New("timingwheel: the expiry function is nil")
	}
	t := &Keyed[K, V]{expire: expire, seed: maphash.MakeSeed()}
	w, err := New(t.expired, o)
	if err != nil {
		return nil, err
	}
	t.wheel = w
	t.parts = make([]part[K], 4*len(w.shards))
	for i := range t.parts {
		t.parts[i].keys = make(map[K]Timer)
	}
	return t, nil
}

// Set puts key into the table with value, for ttl from now. A key that is
// there already gets the new value and deadline, whatever they were before. A
// ttl of zero or less expires at once, on a worker.
//
// The errors are ErrClosed for a new key once a shutdown has begun, ErrFull for
// one beyond Options.MaxPending, and a key that is not equal to itself (a NaN),
// which no table can find again. They change nothing.
func (t *Keyed[K, V]) Set(key K, value V, ttl time.Duration) error {
	now := t.wheel.now()
	return t.set(key, value, now, after(now, max(ttl, 0)))
}

// SetAt is Set for a point in time; see [Wheel.ScheduleAt].
func (t *Keyed[K, V]) SetAt(key K, value V, deadline time.Time) error {
	now := t.wheel.now()
	return t.set(key, value, now, t.wheel.until(now, deadline))
}

func (t *Keyed[K, V]) set(key K, value V, now, deadline nanos) error {
	if !reflexive(key) {
		return errors.New("timingwheel: the key is not equal to itself")
	}
	p := t.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if timer, ok := p.keys[key]; ok && t.wheel.replace(timer, Entry[K, V]{key, value}, now, deadline) {
		return nil
	}
	timer, err := t.wheel.schedule(Entry[K, V]{key, value}, now, deadline)
	if err != nil {
		return err
	}
	p.keys[key] = timer
	p.peak = max(p.peak, len(p.keys))
	return nil
}

// Move gives key a new deadline, ttl from now, be it sooner or later, and says
// whether it was in the table.
func (t *Keyed[K, V]) Move(key K, ttl time.Duration) bool {
	timer, ok := t.timer(key)
	return ok && t.wheel.Reset(timer, ttl)
}

// Touch pushes key's deadline out to ttl from now, and says whether it was in
// the table. A deadline that is later already stays. This is the cheapest way
// to say that a key is alive still: nothing is moved, until the old deadline
// comes up.
func (t *Keyed[K, V]) Touch(key K, ttl time.Duration) bool {
	timer, ok := t.timer(key)
	return ok && t.wheel.extend(timer, ttl)
}

// Remove takes key out and gives its value back. It says true if and only if
// the expiry function will never be called for it.
func (t *Keyed[K, V]) Remove(key K) (value V, ok bool) {
	p := t.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	timer, ok := p.keys[key]
	if !ok {
		return value, false
	}
	p.deleteLocked(key)
	e, ok := t.wheel.takeOut(timer)
	return e.Value, ok
}

// Get is key's value, and whether key is in the table.
func (t *Keyed[K, V]) Get(key K) (value V, ok bool) {
	timer, ok := t.timer(key)
	if !ok {
		return value, false
	}
	e, ok := t.wheel.value(timer)
	return e.Value, ok
}

// Len is the number of keys in the table. Exact.
func (t *Keyed[K, V]) Len() int { return t.wheel.Len() }

// Stats is what the table's wheel holds and has done.
func (t *Keyed[K, V]) Stats() Stats { return t.wheel.Stats() }

// Range calls f with each key and its value, in no order, until f says false.
// It sees every key that is in the table from its beginning to its end, once;
// one that comes, goes or is set again meanwhile as it is when its turn comes,
// or not at all. f may do anything with the table. It takes memory for the
// handles of a part of the keys at a time.
func (t *Keyed[K, V]) Range(f func(K, V) bool) {
	for i := range t.parts {
		for _, timer := range t.parts[i].timers() {
			if e, ok := t.wheel.value(timer); ok && !f(e.Key, e.Value) {
				return
			}
		}
	}
}

// Drain takes every key out that is in the table when it begins, calls f with
// each and its value, in no order, and says how many there were. The expiry
// function is not called for them; one that it is called for meanwhile, f is
// not. Keys that f sets stay in the table, but for one that is set before its
// own turn comes: that is taken out with its new value.
func (t *Keyed[K, V]) Drain(f func(K, V)) int {
	var timers []Timer
	for i := range t.parts {
		timers = append(timers, t.parts[i].timers()...)
	}
	n := 0
	for _, timer := range timers {
		e, ok := t.wheel.value(timer)
		if !ok {
			continue
		}
		// Under the part's lock, so that a Set in between either comes before,
		// and its value is what is taken out, or finds the key gone.
		p := t.part(e.Key)
		p.mu.Lock()
		if p.keys[e.Key] == timer {
			if e, ok = t.wheel.takeOut(timer); ok {
				p.deleteLocked(e.Key)
			}
		} else {
			ok = false
		}
		p.mu.Unlock()
		if ok {
			n++
			f(e.Key, e.Value)
		}
	}
	return n
}

// Shutdown ends the table; see [Wheel.Shutdown]. Under HandBack the entries
// are returned in order of their deadlines.
func (t *Keyed[K, V]) Shutdown(ctx context.Context, policy Policy) ([]Entry[K, V], error) {
	entries, err := t.wheel.Shutdown(ctx, policy)
	// Not after an unknown policy, which closes nothing: a key that is set just
	// now would be forgotten here and live on in the wheel.
	if policy <= Await && t.wheel.Len() == 0 {
		for i := range t.parts {
			p := &t.parts[i]
			p.mu.Lock()
			p.keys, p.peak = make(map[K]Timer), 0
			p.mu.Unlock()
		}
	}
	return entries, err
}

// expired is the wheel's expiry function. The timer has left the wheel; what
// is left of it is its key here, unless that was set again since.
func (t *Keyed[K, V]) expired(e Entry[K, V]) {
	p := t.part(e.Key)
	p.mu.Lock()
	if timer, ok := p.keys[e.Key]; ok {
		if _, pending := t.wheel.value(timer); !pending {
			p.deleteLocked(e.Key)
		}
	}
	p.mu.Unlock()
	t.expire(e.Key, e.Value)
}

func (t *Keyed[K, V]) part(key K) *part[K] {
	return &t.parts[maphash.Comparable(t.seed, key)&uint64(len(t.parts)-1)]
}

// timer is the handle kept for key. It may be stale when it is used; whoever
// uses it is told then.
func (t *Keyed[K, V]) timer(key K) (Timer, bool) {
	p := t.part(key)
	p.mu.Lock()
	timer, ok := p.keys[key]
	p.mu.Unlock()
	return timer, ok
}

func (p *part[K]) timers() []Timer {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Timer, 0, len(p.keys))
	for _, timer := range p.keys {
		all = append(all, timer)
	}
	return all
}

func (p *part[K]) deleteLocked(key K) {
	delete(p.keys, key)
	if len(p.keys) == 0 && p.peak > keepKeys {
		p.keys, p.peak = make(map[K]Timer), 0
	}
}

func reflexive[K comparable](key K) bool {
	return key == key //nolint:gocritic // false for a NaN, and for what holds one
}
