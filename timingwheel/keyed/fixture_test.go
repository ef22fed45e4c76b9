package keyed

import (
	"cmp"
	"context"
	"hash/maphash"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

const milli = time.Millisecond

// expiry is one call of the expiry function, with its time since New.
type expiry struct {
	key   string
	value int
	at    time.Duration
}

// fixture is a table that records which keys expired and when.
type fixture struct {
	*Table[string, int]
	t       testing.TB
	created time.Time

	mu       sync.Mutex
	expiries []expiry
}

// start makes a table with a tick of 1 ms that is verified and discarded when the test ends.
// Each of do is called with each expired key.
func start(t testing.TB, o timingwheel.Options, do ...func(f *fixture, key string, value int)) *fixture {
	t.Helper()
	o.Tick = cmp.Or(o.Tick, milli)
	o.WheelSize = cmp.Or(o.WheelSize, 4) // so that everything overflows
	f := &fixture{t: t, created: time.Now()}
	table, err := New(func(key string, value int) {
		at := time.Since(f.created)
		f.mu.Lock()
		f.expiries = append(f.expiries, expiry{key, value, at})
		f.mu.Unlock()
		for _, d := range do {
			d(f, key, value)
		}
	}, o)
	require.NoError(t, err)
	f.Table = table
	t.Cleanup(func() {
		if failing(t) && locked(table.parts) {
			return // or this would hang, and hide the failure
		}
		_, err := table.Shutdown(context.Background(), timingwheel.Discard)
		require.NoError(t, err)
		require.Zero(t, table.Len())
		verify(t, table)
	})
	return f
}

// failing reports, in a cleanup, whether the test has failed or is panicking, which t.Failed
// does not include yet.
func failing(t testing.TB) bool {
	return t.Failed() || strings.Contains(string(debug.Stack()), "\npanic(")
}

// locked reports whether a panic has left a lock behind.
func locked[K comparable](parts []part[K]) bool {
	for i := range parts {
		if !parts[i].mu.TryLock() {
			return true
		}
		parts[i].mu.Unlock()
	}
	return false
}

// set sets a key, which must succeed.
func (f *fixture) set(key string, value int, ttl time.Duration) {
	f.t.Helper()
	require.NoError(f.t, f.Set(key, value, ttl))
}

// expired returns the expiries since the last call.
func (f *fixture) expired() []expiry {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.expiries
	f.expiries = nil
	return all
}

// advance lets time pass until all due keys have expired, verifies the table, and returns the
// expiries.
func (f *fixture) advance(d time.Duration) []expiry {
	f.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	verify(f.t, f.Table)
	return f.expired()
}

// holds and lacks check in each way whether a key is in the table.
func (f *fixture) holds(key string, value int) {
	f.t.Helper()
	got, ok := f.Get(key)
	require.True(f.t, ok, key)
	require.Equal(f.t, value, got)
	_, ok = f.Deadline(key)
	require.True(f.t, ok, key)
	require.NoError(f.t, f.Touch(key, 0))
	got, stored, err := f.SetIfAbsent(key, -1, time.Hour)
	require.NoError(f.t, err)
	require.False(f.t, stored)
	require.Equal(f.t, value, got)
}

func (f *fixture) lacks(key string) {
	f.t.Helper()
	f.lacksWithError(key, ErrAbsent)
}

func (f *fixture) lacksWithError(key string, err error) {
	f.t.Helper()
	got, ok := f.Get(key)
	require.False(f.t, ok, key)
	require.Zero(f.t, got)
	deadline, ok := f.Deadline(key)
	require.False(f.t, ok, key)
	require.Zero(f.t, deadline)
	require.ErrorIs(f.t, f.Touch(key, time.Hour), err)
	require.ErrorIs(f.t, f.Reset(key, time.Hour), err)
	got, ok = f.Remove(key)
	require.False(f.t, ok, key)
	require.Zero(f.t, got)
}

// contents returns the keys and values that All yields.
func (f *fixture) contents() map[string]int {
	f.t.Helper()
	all := map[string]int{}
	for key, value := range f.All() {
		_, twice := all[key]
		require.False(f.t, twice, "%q was seen twice", key)
		all[key] = value
	}
	return all
}

// verify checks the invariants of a table at rest, when no worker processes a key: the keys of
// its parts are those of the pending timers, each in the part, the segment and the slot that it
// hashes to, and memory follows the load (T18).
func verify[K comparable, V any](t testing.TB, table *Table[K, V]) {
	t.Helper()
	check := checker(t)
	keys := 0
	for i := range table.parts {
		keys += verifyPart(t, table, i)
	}
	check(table.wheel.Len() == keys, "%d timers for %d keys", table.wheel.Len(), keys)
}

func verifyPart[K comparable, V any](t testing.TB, table *Table[K, V], i int) (keys int) {
	t.Helper()
	check := checker(t)
	p := &table.parts[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	verifyIndex(t, &p.keys)
	timers, _ := p.keys.timers()
	check(len(timers) == p.keys.count, "part %d: a walk yields %d of %d timers", i, len(timers), p.keys.count)
	for _, timer := range timers {
		e, ok := table.wheel.Value(timer)
		check(ok, "part %d: a key without a pending timer", i)
		hash := table.hash(e.Key)
		check(table.part(hash) == p, "part %d: key %v belongs elsewhere", i, e.Key)
		at := p.keys.find(e.Key, hash)
		check(at != nil && *at == timer, "part %d: key %v is not found, or with another timer", i, e.Key)
	}
	return p.keys.count
}

// checker is a cheap require.True: it is called a million times.
func checker(t testing.TB) func(ok bool, format string, args ...any) {
	return func(ok bool, format string, args ...any) {
		if !ok {
			t.Helper()
			t.Fatalf("invariant broken: "+format, args...)
		}
	}
}

// timers is a complete walk.
func (x *index[K]) timers() (timers []timingwheel.Timer, next uint64) {
	for next != walkEnd {
		timers, next = x.appendFrom(next, timers)
	}
	return timers, next
}

func verifyIndex[K comparable](t testing.TB, x *index[K]) {
	t.Helper()
	check := checker(t)
	count, size := 0, 0
	for n := range x.segments {
		s := &x.segments[n]
		used := 0
		for at, tag := range s.tags {
			v := s.slots[at]
			if tag == 0 {
				check(v == slot[K]{}, "a free slot keeps %v", v)
				continue
			}
			used++
			hash := maphash.Comparable(x.seed, v.key)
			i, _ := x.segmentOf(hash)
			check(int(i) == n, "key %v of segment %d is in segment %d", v.key, i, n)
			check(tag == tagOf(hash), "key %v: tag %x, not %x", v.key, tag, tagOf(hash))
			for k := s.home(tag); k != at; k = s.next(k) {
				check(s.tags[k] != 0, "key %v in slot %d: slot %d after its home is free", v.key, at, k)
			}
		}
		check(len(s.tags) == len(s.slots) && used == s.used, "segment %d: %d tags, %d slots, %d used, not %d", n, len(s.tags), len(s.slots), used, s.used)
		check(used <= capacity(len(s.slots)), "segment %d: %d of %d slots are used", n, used, len(s.slots))
		check(used >= len(s.slots)/4 || len(s.slots) <= minSlots, "T18: segment %d keeps %d slots for %d keys", n, len(s.slots), used)
		count, size = count+used, size+len(s.slots)
	}
	check(count == x.count && size == x.size, "count %d, not %d; size %d, not %d", x.count, count, x.size, size)
	n := len(x.segments)
	check(count <= fill*n, "%d segments for %d keys", n, count)
	check(n <= 1 || count >= merge*(n-1), "T18: %d segments for %d keys", n, count)
	for _, s := range x.segments[n:cap(x.segments)] {
		check(s.slots == nil, "T18: a segment that is merged keeps its memory")
	}
	check(cap(x.segments) <= max(8, 4*n), "T18: a table of %d segments for %d", cap(x.segments), n)
}
