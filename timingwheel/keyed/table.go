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

// Table is a set of keys, each with a value and a deadline. When a key expires it leaves the
// table, and is passed to the table's expiry function with its value. Make one with [New]: the
// zero Table is not usable, and its methods panic. A table runs goroutines until
// [Table.Shutdown] or [Table.Close]; without either, its goroutines and memory are never
// released.
//
// All methods are safe for use from any goroutine, including the expiry function and the
// functions given to All and Drain, except that Shutdown must not be called from the expiry
// function. Only Shutdown blocks. Keys have the timing of a [timingwheel.Wheel]'s timers: a key
// never expires early, by the monotonic clock, and at most one tick late, plus the time to wake
// a goroutine and to find a free worker.
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

// part holds the keys that hash to it. Lock order: a part, then a shard of the wheel. No
// goroutine holds two parts.
//
// Invariant: while mu is not held, each key whose timer is pending in the wheel is in keys,
// with that timer's handle. A key in keys whose handle is stale has left the table: a worker
// has taken its timer and has yet to call expired, which removes the key here, or a shutdown
// has ended it. So a handle that is read under mu may be used without it. Handles are never
// reused, and replacing a value keeps the handle: if the wheel finds it stale, the key was not
// in the table at some moment since the read, and the answer is that of this moment.
type part[K comparable] struct {
	mu   sync.Mutex
	keys index[K] // guarded by mu
	_    [64]byte // keeps the next part's lock off this one's cache line
}

// New makes a table that calls expire, on one of its workers, with each expired key and its
// value. The key has left the table by then, so expire may set it again. The workers call
// expire concurrently.
//
// The options are the wheel's: [timingwheel.Options] has their defaults. MaxPending bounds the
// keys. Shards bounds the cores that can use the table at once; a table has four times as many
// parts, each with its own lock. A nil expire or an option out of range is an error that names
// it.
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

// Set adds key with value to the table, for ttl from now. A key that is already in the table
// gets the new value and the new deadline, sooner or later than the old one, and is not passed
// to the expiry function. With a ttl of zero or less the key expires at once, still on a
// worker; a deadline beyond the end of time, 292 years after New, is reduced to that.
//
// Set returns [timingwheel.ErrClosed] for a key that is not in the table once a shutdown has
// begun, [timingwheel.ErrFull] for one beyond [timingwheel.Options.MaxPending], and another
// error for a key that is not equal to itself, such as a NaN: no table could find it again. An
// error changes nothing. Constant time; it allocates only while the table grows.
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
	return s.store(t.wheel.Schedule(e, ttl))
}

// SetAt is Set for a point in time. A deadline with a monotonic reading, such as time.Now().Add
// returns, is exact by that clock; one without is converted to a ttl once, here, by the wall
// clock. A deadline in the past expires the key at once.
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
	return s.store(t.wheel.ScheduleAt(e, deadline))
}

// SetIfAbsent is Set for a key that is not in the table. For a key in the table, it changes
// neither value nor deadline. It returns the key's present value, and whether that is the given
// one; with an error, the zero value and false. If several goroutines call it at once, one
// stores its value.
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
	if err := s.store(t.wheel.Schedule(Entry[K, V]{key, value}, ttl)); err != nil {
		return actual, false, err
	}
	return value, true, nil
}

// Reset gives key a new deadline, ttl from now, sooner or later than the present one; with a
// ttl of zero or less the key expires at once, on a worker. If key is not in the table, Reset
// sets nothing and returns [ErrAbsent], or [timingwheel.ErrClosed] once a shutdown has begun.
// Keys that a shutdown with Await waits for are still in the table. Constant time.
func (t *Table[K, V]) Reset(key K, ttl time.Duration) error {
	timer, ok := t.timer(key)
	if ok && t.wheel.Reset(timer, ttl) {
		return nil
	}
	return t.absent()
}

// Touch extends key's deadline to ttl from now, and does not change a later deadline: so a ttl
// of zero or less changes nothing. This is the cheapest way to keep a key alive, because its
// timer is moved only when its old deadline arrives. The errors are those of [Table.Reset].
// Constant time.
func (t *Table[K, V]) Touch(key K, ttl time.Duration) error {
	timer, ok := t.timer(key)
	if ok && t.wheel.Touch(timer, ttl) {
		return nil
	}
	return t.absent()
}

// Remove removes key from the table and returns its value. It reports whether key was in the
// table; if so, the expiry function will never be called for that value. Constant time; it does
// not wait for a running expiry function.
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

// Get returns key's value, and whether key is in the table. It does not change the deadline:
// see [Table.Touch]. Constant time.
func (t *Table[K, V]) Get(key K) (value V, ok bool) {
	timer, ok := t.timer(key)
	if !ok {
		return value, false
	}
	e, ok := t.wheel.Value(timer)
	return e.Value, ok
}

// Deadline returns the time from which key may expire, rounded up to the tick, and whether key
// is in the table. The time has a monotonic reading unless it is at the end of time, 292 years
// from now. If key was set to expire at once, the time is the start of the tick in which it was
// set. Constant time.
func (t *Table[K, V]) Deadline(key K) (deadline time.Time, ok bool) {
	timer, ok := t.timer(key)
	if !ok {
		return time.Time{}, false
	}
	return t.wheel.Deadline(timer)
}

// Len returns the number of keys in the table, exact for one moment. It locks all the wheel's
// shards at once while it adds them up.
func (t *Table[K, V]) Len() int {
	t.mustBeMade()
	return t.wheel.Len()
}

// Stats returns the statistics of the table's wheel, in which each key is a timer: Pending is
// [Table.Len], and Ready counts the keys that are due and wait for a worker. Scheduled counts a
// key when it is added, not when it is set again; Stopped counts the keys that Remove and Drain
// have removed. Bytes includes the index, read one part after the other, but not memory that
// keys and values point to. O(parts + shards).
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

// Levels returns the number of keys' timers in each slot; see [timingwheel.Wheel.Levels].
func (t *Table[K, V]) Levels() []timingwheel.Level {
	t.mustBeMade()
	return t.wheel.Levels()
}

// expired is the wheel's expiry function. The timer has left the wheel; the key in its part
// remains to be removed, unless it was set again and has another timer.
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

// partsFor is the number of parts: four for each shard of the wheel, which has two for each
// processor unless the options say otherwise.
func partsFor(shards, procs int) int {
	if shards == 0 {
		shards = 2 * procs
	}
	const maxParts = 1 << 10 // an empty part takes some 120 bytes
	return min(1<<bits.Len(uint(4*shards-1)), maxParts)
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

// absent is the error for a key that is not in the table. A key that a shutdown has ended is
// not reported as ErrAbsent, because closed is set before.
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

// store stores the handle of the key's new timer, if there is one.
func (s *lockedKey[K]) store(timer timingwheel.Timer, err error) error {
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
