package keyed

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// ErrAbsent is returned by Reset and Touch for a key that is not in the table.
var ErrAbsent = errors.New("keyed: no such key")

// Table is a set of keys, each with a value and a deadline. When a key's time is
// up it leaves the table, and is passed to the table's expiry function with its
// value. Make one with [New]: the zero Table is not usable, and its methods
// panic. A table runs goroutines until [Table.Shutdown] or [Table.Close]; one
// that is forgotten without either keeps them, and its memory, for good.
//
// All methods are safe for use from any goroutine, the expiry function and the
// functions given to All and Drain included, except that Shutdown must not be
// called from the expiry function. None blocks but Shutdown. What is said of a
// key's time holds as it does for a timer of [timingwheel.Wheel]: a key never
// expires early, by the monotonic clock, and at most one tick late, plus what
// the machine takes to wake a goroutine and to find a free worker.
type Table[K comparable, V any] struct {
	wheel  *timingwheel.Wheel[Entry[K, V]]
	expire func(K, V)
	seed   maphash.Seed
	parts  []part[K]   // length a power of two
	closed atomic.Bool // a shutdown has begun; written by Close and Shutdown
}

// Entry is a key with its value.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// part holds the keys that hash to it. Lock order: a part, then a shard of the
// wheel. Nobody holds two parts.
//
// Invariant: while mu is not held, each key whose timer is pending in the wheel
// is in keys, with that timer's handle. A key in keys whose handle is stale has
// left the table: a worker has taken its timer and has yet to come to expired,
// which removes the key here, or a shutdown has ended it. So a handle that is
// read under mu may be used without it. Handles are never used again, and
// replacing a value keeps the handle: if the wheel finds it stale, then there
// was a moment since when the key was not in the table, and the answer is that of
// this moment.
type part[K comparable] struct {
	mu   sync.Mutex
	keys index[K] // guarded by mu
	_    [64]byte // keeps the next part's lock off this one's cache line
}

// New makes a table that calls expire, on one of its workers, with each key
// whose time is up, and its value. The key has left the table by then: expire
// may set it again. The workers call it concurrently.
//
// The options are the wheel's: [timingwheel.Options] has their defaults.
// MaxPending bounds the keys; Shards, of which a table has four times as many
// parts with a lock each, the cores that can work on it at once. A nil expire or
// an option out of range is an error that names it.
func New[K comparable, V any](expire func(K, V), o timingwheel.Options) (*Table[K, V], error) {
	if expire == nil {
		return nil, errors.New("keyed: the expiry function is nil")
	}
	t := &Table[K, V]{expire: expire, seed: maphash.MakeSeed()}
	wheel, err := timingwheel.New(t.expired, o)
	if err != nil {
		return nil, fmt.Errorf("keyed: %w", err)
	}
	t.wheel = wheel
	t.parts = make([]part[K], partsFor(o.Shards, runtime.GOMAXPROCS(0)))
	for i := range t.parts {
		t.parts[i].keys.seed = t.seed
	}
	return t, nil
}

// Set puts key into the table with value, for ttl from now. A key that is in
// the table already gets the new value and the new deadline, sooner or later
// than the old one; it is not passed to the expiry function for that. With a ttl
// of zero or less the key expires at once, still on a worker; past the end of
// time, 292 years after New, it is held until then.
//
// The errors are [timingwheel.ErrClosed] for a key that is not in the table once
// a shutdown has begun, [timingwheel.ErrFull] for one beyond
// [timingwheel.Options.MaxPending], and another for a key that is not equal to
// itself, as a NaN is not: no table could find it again. An error changes
// nothing. Constant time; it allocates only while the table grows.
func (t *Table[K, V]) Set(key K, value V, ttl time.Duration) error {
	s, err := t.lock(key)
	if err != nil {
		return err
	}
	defer s.part.mu.Unlock()
	e := Entry[K, V]{key, value}
	if s.timer != nil && t.wheel.Replace(*s.timer, e, ttl) {
		return nil
	}
	return s.keep(t.wheel.Schedule(e, ttl))
}

// SetAt is Set for a point in time. A deadline with a monotonic reading, as
// time.Now().Add gives, is exact by that clock; one without is turned into a
// ttl here, once, by the wall clock. What is past expires at once.
func (t *Table[K, V]) SetAt(key K, value V, deadline time.Time) error {
	s, err := t.lock(key)
	if err != nil {
		return err
	}
	defer s.part.mu.Unlock()
	e := Entry[K, V]{key, value}
	if s.timer != nil && t.wheel.ReplaceAt(*s.timer, e, deadline) {
		return nil
	}
	return s.keep(t.wheel.ScheduleAt(e, deadline))
}

// SetIfAbsent is Set for a key that is not in the table. For one that is, it
// changes neither value nor deadline. It returns the value that the key has now,
// and whether that is the given one; the zero value and false beside an error.
// Of any number of goroutines that call it at once, one stores its value.
func (t *Table[K, V]) SetIfAbsent(key K, value V, ttl time.Duration) (actual V, stored bool, err error) {
	s, err := t.lock(key)
	if err != nil {
		return actual, false, err
	}
	defer s.part.mu.Unlock()
	if s.timer != nil {
		if e, ok := t.wheel.Value(*s.timer); ok {
			return e.Value, false, nil
		}
	}
	if err := s.keep(t.wheel.Schedule(Entry[K, V]{key, value}, ttl)); err != nil {
		return actual, false, err
	}
	return value, true, nil
}

// Reset gives key a new deadline, ttl from now, sooner or later than the one it
// has; with a ttl of zero or less it expires at once, on a worker. The error is
// [ErrAbsent] for a key that is not in the table, and nothing is set then; or
// [timingwheel.ErrClosed], once a shutdown has begun. Keys that a shutdown with
// Await waits for are in the table still. Constant time.
func (t *Table[K, V]) Reset(key K, ttl time.Duration) error {
	timer, ok := t.timer(key)
	if ok && t.wheel.Reset(timer, ttl) {
		return nil
	}
	return t.absent()
}

// Touch moves key's deadline out to ttl from now, and leaves one that is later
// already as it is: so a ttl of zero or less changes nothing. This is the
// cheapest way to keep a key alive, because its timer is moved only when its old
// deadline comes up. The errors are those of [Table.Reset]. Constant time.
func (t *Table[K, V]) Touch(key K, ttl time.Duration) error {
	timer, ok := t.timer(key)
	if ok && t.wheel.Touch(timer, ttl) {
		return nil
	}
	return t.absent()
}

// Remove takes key out of the table and returns its value. It reports whether
// key was in the table, which is to say: whether the expiry function will never
// be called for that value. Constant time; it does not wait for a running
// expiry function.
func (t *Table[K, V]) Remove(key K) (value V, ok bool) {
	hash := t.hash(key)
	p := t.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	timer := p.keys.find(key, hash)
	if timer == nil {
		return value, false
	}
	e, ok := t.wheel.Remove(*timer)
	p.keys.remove(key, hash)
	return e.Value, ok
}

// Get returns key's value, and whether key is in the table. Its deadline stays:
// see [Table.Touch]. Constant time.
func (t *Table[K, V]) Get(key K) (value V, ok bool) {
	timer, ok := t.timer(key)
	if !ok {
		return value, false
	}
	e, ok := t.wheel.Value(timer)
	return e.Value, ok
}

// Deadline returns the time from which key may expire, rounded up to the tick,
// with a monotonic reading; and whether key is in the table. Of a key that was
// set to expire at once, that is the tick in which it was. Constant time.
func (t *Table[K, V]) Deadline(key K) (deadline time.Time, ok bool) {
	timer, ok := t.timer(key)
	if !ok {
		return time.Time{}, false
	}
	return t.wheel.Deadline(timer)
}

// Len returns the number of keys in the table, exactly as of one moment. It
// locks the wheel's shards, all at once, for as long as it takes to add them up.
func (t *Table[K, V]) Len() int {
	t.mustBeMade()
	return t.wheel.Len()
}

// Stats returns the figures of the table's wheel, of which each key is a timer:
// Pending is [Table.Len], Ready are the keys that are due and wait for a worker.
// Scheduled counts a key when it comes, not when it is set again; Stopped, those
// that Remove and Drain have taken out. To Bytes are added the tables in which
// keys are found, one part after the other; not in it is what keys and values
// point to. O(parts + shards).
func (t *Table[K, V]) Stats() timingwheel.Stats {
	t.mustBeMade()
	st := t.wheel.Stats()
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		st.Bytes += p.keys.bytes()
		p.mu.Unlock()
	}
	return st
}

// Levels returns where the keys' timers stand; see [timingwheel.Wheel.Levels].
func (t *Table[K, V]) Levels() []timingwheel.Level {
	t.mustBeMade()
	return t.wheel.Levels()
}

// expired is the wheel's expiry function. The timer has left the wheel; what is
// left is the key in its part, if it is that timer's still and not set again.
func (t *Table[K, V]) expired(e Entry[K, V]) {
	hash := t.hash(e.Key)
	p := t.part(hash)
	p.mu.Lock()
	if timer := p.keys.find(e.Key, hash); timer != nil {
		if _, pending := t.wheel.Value(*timer); !pending {
			p.keys.remove(e.Key, hash)
		}
	}
	p.mu.Unlock()
	t.expire(e.Key, e.Value)
}

// partsFor is the number of parts: four for each shard of the wheel, of which
// there are two for each processor unless the options say otherwise.
func partsFor(shards, procs int) int {
	if shards == 0 {
		shards = 2 * procs
	}
	const most = 1 << 10 // an empty part takes some 120 bytes
	return min(1<<bits.Len(uint(4*shards-1)), most)
}

func (t *Table[K, V]) hash(key K) uint64 {
	t.mustBeMade()
	return maphash.Comparable(t.seed, key)
}

func (t *Table[K, V]) mustBeMade() {
	if t.wheel == nil {
		panic("keyed: the zero Table is not usable, make one with New")
	}
}

func (t *Table[K, V]) part(hash uint64) *part[K] {
	return &t.parts[partBits(hash)&uint64(len(t.parts)-1)]
}

// timer returns the handle kept for key, which may be stale.
func (t *Table[K, V]) timer(key K) (timer timingwheel.Timer, ok bool) {
	hash := t.hash(key)
	p := t.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.keys.find(key, hash); at != nil {
		return *at, true
	}
	return timer, false
}

// absent is the error for a key that is not in the table. A key that a shutdown
// has ended is not reported as ErrAbsent, for closed is set before.
func (t *Table[K, V]) absent() error {
	if t.closed.Load() {
		return timingwheel.ErrClosed
	}
	return ErrAbsent
}

// lockedKey is a key in its part, which is locked.
type lockedKey[K comparable] struct {
	part  *part[K]
	key   K
	hash  uint64
	timer *timingwheel.Timer // the handle kept for key, which may be stale; nil: none
}

// lock locks the part of a key that is to be set.
func (t *Table[K, V]) lock(key K) (lockedKey[K], error) {
	if key != key { //nolint:gocritic // so it is with a NaN, and with what holds one
		return lockedKey[K]{}, fmt.Errorf("keyed: the key %v is not equal to itself", key)
	}
	hash := t.hash(key)
	p := t.part(hash)
	p.mu.Lock()
	return lockedKey[K]{p, key, hash, p.keys.find(key, hash)}, nil
}

// keep keeps the handle of the key's new timer, if there is one.
func (s *lockedKey[K]) keep(timer timingwheel.Timer, err error) error {
	switch {
	case err != nil:
		return err
	case s.timer != nil:
		*s.timer = timer
	default:
		s.part.keys.add(s.key, s.hash, timer)
	}
	return nil
}
