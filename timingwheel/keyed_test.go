package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// keyedEnd is one call of a table's expiry function, at this time after NewKeyed.
type keyedEnd struct {
	key   string
	value int
	at    time.Duration
}

// keyedTable is a table that writes down what expired and when.
type keyedTable struct {
	*Keyed[string, int]
	t    testing.TB
	born time.Time

	mu   sync.Mutex
	ends []keyedEnd
}

// keyedStart makes a table, which is checked and discarded when the test ends.
// Each of do is called with what expires.
func keyedStart(t testing.TB, o Options, do ...func(f *keyedTable, key string, value int)) *keyedTable {
	t.Helper()
	o = plain(o)
	f := &keyedTable{t: t, born: time.Now()}
	table, err := NewKeyed(func(key string, value int) {
		f.mu.Lock()
		f.ends = append(f.ends, keyedEnd{key, value, time.Since(f.born)})
		f.mu.Unlock()
		for _, d := range do {
			d(f, key, value)
		}
	}, o)
	require.NoError(t, err)
	f.Keyed = table
	t.Cleanup(func() {
		_, err := table.Shutdown(context.Background(), Discard)
		require.NoError(t, err)
		require.Zero(t, table.Len())
		keyedVerify(t, table)
	})
	return f
}

// keyedVerify checks the invariant of part on a table at rest: its keys are the
// pending timers, each under its own key and in the part that it hashes to.
func keyedVerify[K comparable, V any](t testing.TB, table *Keyed[K, V]) {
	t.Helper()
	keys := 0
	for i := range table.parts {
		p := &table.parts[i]
		p.mu.Lock()
		held, peak := maps.Clone(p.keys), p.peak
		p.mu.Unlock()
		keys += len(held)
		require.GreaterOrEqual(t, peak, len(held))
		for key, timer := range held {
			e, ok := table.wheel.value(timer)
			require.True(t, ok, "key %v is in the table, its timer is not on the wheel", key)
			require.Equal(t, key, e.Key)
			require.Same(t, p, table.part(key))
		}
	}
	require.Equal(t, table.wheel.Len(), keys)
	require.Equal(t, keys, table.Len())
}

func (f *keyedTable) set(key string, value int, ttl time.Duration) {
	f.t.Helper()
	require.NoError(f.t, f.Set(key, value, ttl))
}

// expired is what has expired since the last call.
func (f *keyedTable) expired() []keyedEnd {
	f.mu.Lock()
	defer f.mu.Unlock()
	ends := f.ends
	f.ends = nil
	return ends
}

// pass lets time pass, and what can happen then happen; it says what expired.
func (f *keyedTable) pass(d time.Duration) []keyedEnd {
	f.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	keyedVerify(f.t, f.Keyed)
	return f.expired()
}

func (f *keyedTable) holds(key string, value int) {
	f.t.Helper()
	got, ok := f.Get(key)
	require.True(f.t, ok, key)
	require.Equal(f.t, value, got)
}

func (f *keyedTable) lacks(key string) {
	f.t.Helper()
	got, ok := f.Get(key)
	require.False(f.t, ok, key)
	require.Zero(f.t, got)
}

// contents is what Range shows.
func (f *keyedTable) contents() map[string]int {
	all := map[string]int{}
	f.Range(func(key string, value int) bool {
		_, twice := all[key]
		require.False(f.t, twice, "Range showed %q twice", key)
		all[key] = value
		return true
	})
	return all
}

const milli = time.Millisecond

func TestKeyedBadArguments(t *testing.T) {
	_, err := NewKeyed[string, int](nil, Options{})
	require.EqualError(t, err, "timingwheel: the expiry function is nil")
	_, err = NewKeyed(func(string, int) {}, Options{WheelSize: 1})
	require.ErrorContains(t, err, "WheelSize is 1")
}

// T1, T2, T7, T8.
func TestKeyedExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{WheelSize: 2, Shards: 2})
		f.set("a", 1, 5*milli)
		require.NoError(t, f.SetAt("b", 2, time.Now().Add(7*milli)))
		f.set("between ticks", 3, 2500*time.Microsecond)
		f.set("for ever", 4, math.MaxInt64)
		require.Equal(t, 4, f.Len())
		require.Empty(t, f.pass(3*milli-1))
		require.Equal(t, []keyedEnd{{"between ticks", 3, 3 * milli}}, f.pass(1))
		require.Empty(t, f.pass(2*milli-1))
		f.holds("a", 1)
		require.Equal(t, []keyedEnd{{"a", 1, 5 * milli}}, f.pass(1))
		f.lacks("a")
		require.Equal(t, []keyedEnd{{"b", 2, 7 * milli}}, f.pass(24*time.Hour))
		require.Equal(t, map[string]int{"for ever": 4}, f.contents())
	})
}

// What is due at once still runs on a worker, never in the caller (T7).
func TestKeyedDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table *Keyed[int, string]
		var mu sync.Mutex
		seen := map[int]string{}
		table, err := NewKeyed(func(key int, caller string) {
			_, there := table.Get(key)
			mu.Lock()
			defer mu.Unlock()
			require.False(t, there)
			require.NotEqual(t, keyedGoroutine(), caller)
			seen[key] = caller
		}, Options{})
		require.NoError(t, err)
		me := keyedGoroutine()
		mu.Lock() // the caller would lock itself up
		require.NoError(t, table.Set(1, me, 0))
		require.NoError(t, table.Set(2, me, -time.Hour))
		require.NoError(t, table.Set(3, me, math.MinInt64))
		require.NoError(t, table.SetAt(4, me, time.Now()))
		require.NoError(t, table.SetAt(5, me, time.Now().Add(-time.Hour)))
		require.NoError(t, table.SetAt(6, me, time.Time{}))
		mu.Unlock()
		synctest.Wait()
		require.Len(t, seen, 6)
		_, err = table.Shutdown(t.Context(), Discard)
		require.NoError(t, err)
	})
}

func keyedGoroutine() string {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)]
	return string(line[:slices.Index(line, '[')])
}

// A key set again has the new value and the new deadline, and ends once.
func TestKeyedSetAgain(t *testing.T) {
	for _, ttl := range []time.Duration{0, 1, milli, 4 * milli, 7 * milli, 8 * milli, 9 * milli, 20 * milli, 5 * time.Second} {
		for _, at := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/at=%v", ttl, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := keyedStart(t, Options{WheelSize: 4})
					f.set("k", 1, 8*milli)
					f.set("other", 9, 8*milli)
					if at {
						require.NoError(t, f.SetAt("k", 2, time.Now().Add(ttl)))
					} else {
						f.set("k", 2, ttl)
					}
					if ttl > 0 {
						require.Equal(t, 2, f.Len())
						f.holds("k", 2)
					}
					ends := f.pass(time.Minute)
					due := (ttl + milli - 1) / milli * milli
					require.ElementsMatch(t, []keyedEnd{{"k", 2, due}, {"other", 9, 8 * milli}}, ends)
				})
			})
		}
	}
}

// SetAt of a time without a monotonic reading reads the wall clock now, not as
// it was when the table was made and before it was set (timers 16). Outside of
// a bubble: there, times have no monotonic reading.
func TestKeyedSetAtWallClock(t *testing.T) {
	f := keyedStart(t, Options{Shards: 1})
	f.wheel.base = withWall(f.wheel.base, f.wheel.base.Add(-time.Hour)) // it was set forward since
	for key, deadline := range map[string]time.Time{
		"wall":      time.Now().Round(0).Add(time.Minute),
		"monotonic": time.Now().Add(time.Minute),
	} {
		require.NoError(t, f.SetAt(key, 1, deadline))
		timer, _ := f.timer(key)
		due := f.wheel.start(f.wheel.shards[0].findLocked(timer).deadline)
		left := time.Duration(due - f.wheel.now())
		require.Greater(t, left, 30*time.Second, key)
		require.LessOrEqual(t, left, time.Minute+2*milli, key)
	}
}

// Timers 8 of lessons.md: moved to an earlier deadline, to less than a tick,
// to a later one.
func TestKeyedMove(t *testing.T) {
	for _, c := range []struct {
		from, to, due time.Duration
	}{
		{8 * milli, 4 * milli, 4 * milli}, // go-zero: fires at 14
		{8 * milli, milli / 2, milli},     // go-zero: fires twice
		{8 * milli, 1, milli},
		{8 * milli, 0, 0},
		{8 * milli, -1, 0},
		{8 * milli, 8 * milli, 8 * milli},
		{8 * milli, 9 * milli, 9 * milli},
		{8 * milli, 11 * milli, 11 * milli},
		{8 * milli, 300 * milli, 300 * milli},
		{milli, 8 * milli, 8 * milli},
		{300 * milli, 2 * milli, 2 * milli},
		{math.MaxInt64, 2 * milli, 2 * milli},
	} {
		t.Run(fmt.Sprintf("%v to %v", c.from, c.to), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := keyedStart(t, Options{WheelSize: 4})
				f.set("k", 1, c.from)
				require.True(t, f.Move("k", c.to))
				require.Equal(t, []keyedEnd{{"k", 1, c.due}}, f.pass(time.Hour))
				require.False(t, f.Move("k", c.to))
				require.Empty(t, f.pass(time.Hour))
			})
		})
	}
}

func TestKeyedMoveFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{WheelSize: 4})
		require.False(t, f.Move("k", milli))
		f.set("k", 1, 8*milli)
		require.Empty(t, f.pass(3*milli))
		require.True(t, f.Move("k", 4*milli)) // ttl counts from now
		require.Equal(t, []keyedEnd{{"k", 1, 7 * milli}}, f.pass(time.Hour))
	})
}

// A key that was moved, and then removed, does not fire (timers 8).
func TestKeyedMovedThenRemoved(t *testing.T) {
	for _, to := range []time.Duration{milli / 2, 4 * milli, 11 * milli, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := keyedStart(t, Options{WheelSize: 4})
			f.set("k", 1, 8*milli)
			require.True(t, f.Move("k", to))
			value, ok := f.Remove("k")
			require.True(t, ok)
			require.Equal(t, 1, value)
			value, ok = f.Remove("k")
			require.False(t, ok)
			require.Zero(t, value)
			require.Empty(t, f.pass(time.Hour))
		})
	}
}

func TestKeyedTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{WheelSize: 4})
		require.False(t, f.Touch("k", time.Hour))
		require.Zero(t, f.Len())
		f.set("k", 1, 8*milli)
		for _, sooner := range []time.Duration{math.MinInt64, -1, 0, 1, 4 * milli, 8 * milli} {
			require.True(t, f.Touch("k", sooner)) // never pulls a deadline in
		}
		require.Empty(t, f.pass(7*milli))
		require.True(t, f.Touch("k", 20*milli))
		require.Empty(t, f.pass(20*milli-1))
		f.holds("k", 1)
		require.Equal(t, []keyedEnd{{"k", 1, 27 * milli}}, f.pass(1))
		require.False(t, f.Touch("k", time.Hour))
		require.Empty(t, f.pass(time.Hour))

		f.set("k", 2, milli)
		require.True(t, f.Touch("k", math.MaxInt64)) // saturates (T8)
		require.Empty(t, f.pass(10000*time.Hour))
		_, ok := f.Remove("k")
		require.True(t, ok)
		require.False(t, f.Touch("k", time.Hour))
	})
}

// A deadline that is pushed out costs no list surgery: the timer stays in its
// bucket, and no bucket is made or queued, until the old one comes up. Then
// there is one wake-up and one move, however often it was touched.
func TestKeyedTouchMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{WheelSize: 256, Shards: 1})
		f.set("k", 1, 100*milli)
		timer, ok := f.timer("k")
		require.True(t, ok)
		s := f.wheel.shards[0]
		n := s.findLocked(timer)
		bucket, place, seq := s.bucketLocked(n), n.place, s.buckets.seq
		f.pass(0)
		before := f.Stats()
		for range 999 {
			f.pass(99 * time.Microsecond)
			require.True(t, f.Touch("k", 100*milli))
			require.Same(t, n, s.findLocked(timer))
			require.Same(t, bucket, s.bucketLocked(n))
			require.Equal(t, place, n.place)
			require.Equal(t, seq, s.buckets.seq, "a bucket was made")
		}
		require.Equal(t, 1, f.wheel.queue.Len())
		require.Equal(t, before, f.Stats())
		require.Empty(t, f.pass(100*milli-999*99*time.Microsecond)) // 100 ms have passed: the old deadline
		st := f.Stats()
		require.Equal(t, before.Wakeups+1, st.Wakeups)
		require.Equal(t, before.Cascaded+1, st.Cascaded)
		require.Equal(t, []keyedEnd{{"k", 1, 199 * milli}}, f.pass(time.Hour)) // 98.901 ms + 100 ms, the tick after
		st = f.Stats()
		require.Equal(t, before.Wakeups+2, st.Wakeups)
		require.Equal(t, before.Cascaded+1, st.Cascaded)
		require.Zero(t, st.EmptyWakeups)
	})
}

// What is due, but waits for a worker, is in the table still: Touch, Move, Set
// and Remove reach it there.
func TestKeyedDueButWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := keyedStart(t, Options{Workers: 1, WheelSize: 4}, func(_ *keyedTable, key string, _ int) {
			if key == "slow" {
				<-hold
			}
		})
		f.set("slow", 0, 0)
		for i, key := range []string{"touch", "move", "set", "remove", "expire"} {
			f.set(key, i+1, milli)
		}
		require.Equal(t, []keyedEnd{{"slow", 0, 0}}, f.pass(5*milli))
		require.Equal(t, 5, f.Stats().Ready)
		require.Len(t, f.contents(), 5)
		require.True(t, f.Touch("touch", 10*milli))
		require.True(t, f.Move("move", 20*milli))
		f.set("set", 33, 30*milli)
		value, ok := f.Remove("remove")
		require.True(t, ok)
		require.Equal(t, 4, value)
		close(hold)
		require.Equal(t, []keyedEnd{{"expire", 5, 5 * milli}, {"touch", 1, 15 * milli}, {"move", 2, 25 * milli}, {"set", 33, 35 * milli}}, f.pass(time.Hour))
	})
}

func TestKeyedRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{WheelSize: 4})
		_, ok := f.Remove("k")
		require.False(t, ok)
		f.set("k", 1, 5*milli)
		f.set("k", 2, 6*milli)
		value, ok := f.Remove("k")
		require.True(t, ok)
		require.Equal(t, 2, value, "the value that was set last comes back")
		f.lacks("k")
		f.set("k", 3, 7*milli) // and the key is good again
		require.Equal(t, []keyedEnd{{"k", 3, 7 * milli}}, f.pass(time.Hour))
		_, ok = f.Remove("k")
		require.False(t, ok)
	})
}

// White box: a worker has taken the timer, but not yet come to the table. The
// key is not in the table then, by any method; and if it is set again, the
// expiry that comes late leaves the new one alone (timers 9).
func TestKeyedBetweenTakenAndExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{MaxPending: 1})
		taken := func() Timer {
			t.Helper()
			f.set("k", 1, time.Hour)
			timer, ok := f.timer("k")
			require.True(t, ok)
			require.True(t, f.wheel.Stop(timer)) // as a worker takes it
			return timer
		}
		taken()
		f.lacks("k")
		require.Zero(t, f.Len())
		require.Empty(t, f.contents())
		require.False(t, f.Touch("k", time.Hour))
		require.False(t, f.Move("k", time.Hour))
		require.Zero(t, f.Drain(func(string, int) { t.Error("drained") }))
		_, ok := f.Remove("k")
		require.False(t, ok)
		f.Keyed.expired(Entry[string, int]{"k", 1})
		require.Len(t, f.expired(), 1)

		taken()
		f.set("k", 2, 10*milli) // not ErrFull: the old one is not held any more
		f.Keyed.expired(Entry[string, int]{"k", 1})
		require.Equal(t, []keyedEnd{{"k", 1, 0}}, f.expired())
		f.holds("k", 2)
		require.True(t, f.Touch("k", 20*milli))
		require.Equal(t, []keyedEnd{{"k", 2, 20 * milli}}, f.pass(time.Hour))

		// Both of a key's timers taken, and the second is faster.
		taken()
		taken()
		f.Keyed.expired(Entry[string, int]{"k", 2})
		f.Keyed.expired(Entry[string, int]{"k", 1})
		require.Len(t, f.expired(), 2)
		keyedVerify(t, f.Keyed)
	})
}

// The expiry function finds its key gone, and what it does with it holds
// (timers 9: a job that re-adds its own key loses it).
func TestKeyedWithinExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{MaxPending: 1}, func(f *keyedTable, key string, value int) {
			f.lacks(key)
			require.Zero(f.t, f.Len())
			require.False(f.t, f.Touch(key, time.Hour))
			require.False(f.t, f.Move(key, time.Hour))
			_, ok := f.Remove(key)
			require.False(f.t, ok)
			require.Zero(f.t, f.Drain(func(string, int) {}))
			if value < 5 {
				require.NoError(f.t, f.Set(key, value+1, 10*milli)) // its place under MaxPending is free
				f.holds(key, value+1)
			}
		})
		f.set("k", 1, 10*milli)
		require.Equal(t, []keyedEnd{{"k", 1, 10 * milli}, {"k", 2, 20 * milli}}, f.pass(25*milli))
		f.holds("k", 3)
		require.True(t, f.Touch("k", 10*milli)) // to 35
		require.Equal(t, []keyedEnd{{"k", 3, 35 * milli}, {"k", 4, 45 * milli}, {"k", 5, 55 * milli}}, f.pass(time.Hour))
		require.Zero(t, f.Len())
	})
}

// T10: a panic or a Goexit in the expiry function takes nothing with it.
func TestKeyedExpiryPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []any
		f := keyedStart(t, Options{Workers: 1, OnPanic: func(p Panic) { panics = append(panics, p.Value) }},
			func(f *keyedTable, key string, _ int) {
				switch key {
				case "panic":
					panic("boo")
				case "exit":
					runtime.Goexit()
				}
			})
		f.set("panic", 1, milli)
		f.set("exit", 2, 2*milli)
		f.set("fine", 3, 3*milli)
		require.Len(t, f.pass(time.Second), 3)
		require.Equal(t, []any{"boo"}, panics)
		f.set("panic", 4, milli)
		f.holds("panic", 4)
	})
}

func TestKeyedGetLenRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{Shards: 4})
		f.lacks("a")
		require.Empty(t, f.contents())
		want := map[string]int{}
		for i := range 1000 {
			key := fmt.Sprint(i)
			want[key] = i
			f.set(key, i, time.Hour)
		}
		require.Equal(t, 1000, f.Len())
		require.Equal(t, want, f.contents())
		require.Equal(t, 1000, f.Len(), "Range takes nothing out")
		calls := 0
		f.Range(func(string, int) bool { calls++; return calls < 10 })
		require.Equal(t, 10, calls)
		for i := range 1000 {
			if i%2 == 0 {
				f.Remove(fmt.Sprint(i))
				delete(want, fmt.Sprint(i))
			}
		}
		require.Equal(t, 500, f.Len())
		require.Equal(t, want, f.contents())
	})
}

// f may do anything with the table. What stays in it is seen once, and with
// the value that it has when its turn comes.
func TestKeyedWithinRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{Shards: 4})
		for i := range 300 {
			f.set(fmt.Sprint(i), i, time.Hour)
		}
		seen := map[string]int{}
		f.Range(func(key string, value int) bool {
			require.NotContains(t, seen, key)
			seen[key] = value
			if value >= 10000 {
				return true // set by this Range: may be seen, or not
			}
			require.NoError(t, f.Set(key, value+1000, 2*time.Hour)) // again
			require.NoError(t, f.Set("new"+key, value+10000, time.Hour))
			require.True(t, f.Touch(key, 3*time.Hour))
			f.holds(key, value+1000)
			return true
		})
		require.Equal(t, 600, f.Len())
		for i := range 300 {
			require.Equal(t, i, seen[fmt.Sprint(i)], "seen before it was set again")
			f.holds(fmt.Sprint(i), i+1000)
			f.holds("new"+fmt.Sprint(i), i+10000)
		}

		// All are set again, and all removed but one, in the first call.
		first := true
		seen = map[string]int{}
		f.Range(func(key string, value int) bool {
			if seen[key] = value; first {
				first = false
				for k, v := range f.contents() {
					f.set(k, v+1, time.Hour)
				}
				for k := range f.contents() {
					if k != "7" {
						f.Remove(k)
					}
				}
			}
			return true
		})
		require.Equal(t, 1, f.Len())
		require.LessOrEqual(t, len(seen), 2)
		require.Contains(t, []int{1007, 1008}, seen["7"]) // it may itself have been the first

		// Range within Range, Drain within Range.
		f.Range(func(key string, _ int) bool {
			require.Equal(t, map[string]int{"7": 1008}, f.contents())
			require.Equal(t, 1, f.Drain(func(k string, _ int) { require.Equal(t, key, k) }))
			return true
		})
		require.Zero(t, f.Len())
	})
}

func TestKeyedDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{Shards: 4})
		require.Zero(t, f.Drain(func(string, int) { t.Error("an empty table was drained") }))
		want := map[string]int{}
		for i := range 1000 {
			want[fmt.Sprint(i)] = i
			f.set(fmt.Sprint(i), i, time.Duration(i)*milli+milli)
		}
		got := map[string]int{}
		n := f.Drain(func(key string, value int) {
			f.lacks(key)
			require.NotContains(t, got, key)
			got[key] = value
		})
		require.Equal(t, 1000, n)
		require.Equal(t, want, got)
		require.Zero(t, f.Len())
		require.Empty(t, f.contents())
		require.Empty(t, f.pass(time.Hour), "a drained key expired")

		// Timers 8: drain, then set of the same key fires.
		f.set("1", 1, 5*milli)
		f.set("2", 2, 5*milli)
		require.Equal(t, 2, f.Drain(func(string, int) {}))
		f.set("1", 11, 5*milli)
		f.holds("1", 11)
		require.Equal(t, []keyedEnd{{"1", 11, time.Hour + 5*milli}}, f.pass(time.Second))
	})
}

// Set from inside Drain: no deadlock (timers 8), and what it sets stays.
func TestKeyedWithinDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{Shards: 4})
		for i := range 100 {
			f.set(fmt.Sprint(i), i, time.Hour)
		}
		n := f.Drain(func(key string, value int) {
			require.Less(t, value, 100)
			f.set(key, value+100, 2*time.Hour)
			f.set("new"+key, value+200, time.Hour)
		})
		require.Equal(t, 100, n)
		require.Equal(t, 200, f.Len())
		for i := range 100 {
			f.holds(fmt.Sprint(i), i+100)
			f.holds("new"+fmt.Sprint(i), i+200)
		}
		require.Len(t, f.pass(time.Hour), 100) // the new ones
		require.Len(t, f.pass(time.Hour), 100) // those set again

		// One that f sets before its own turn comes is taken out with its new
		// value; one that f removes is not f's.
		for i := range 100 {
			f.set(fmt.Sprint(i), i, time.Hour)
		}
		got := map[string]int{}
		first, removed := "", ""
		n = f.Drain(func(key string, value int) {
			got[key] = value
			if first != "" {
				return
			}
			first = key
			removed = "1"
			if first == "1" {
				removed = "2"
			}
			_, ok := f.Remove(removed)
			require.True(t, ok)
			for i := range 100 {
				if k := fmt.Sprint(i); k != removed {
					f.set(k, i+1000, time.Hour)
				}
			}
		})
		require.Equal(t, 99, n)
		require.Len(t, got, 99)
		require.NotContains(t, got, removed)
		for key, value := range got {
			var i int
			_, err := fmt.Sscan(key, &i)
			require.NoError(t, err)
			if key != first {
				i += 1000
			}
			require.Equal(t, i, value)
		}
		require.Len(t, f.contents(), 1)
		require.Contains(t, f.contents(), first)

		// Drain within Drain: each key goes to one of the two.
		for i := range 100 {
			f.set(fmt.Sprint(i), i, time.Hour)
		}
		inner := 0
		outer := f.Drain(func(string, int) {
			if inner == 0 {
				inner = f.Drain(func(string, int) {})
			}
		})
		require.Equal(t, 1, outer)
		require.Equal(t, 99, inner)
		require.Zero(t, f.Len())
	})
}

// A key that expires while Drain is on its way is not passed to f; set again
// meanwhile, it is a new one and stays.
func TestKeyedExpiresWithinDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{Shards: 1}, func(f *keyedTable, key string, value int) {
			if key == "again" {
				require.NoError(f.t, f.Set(key, value+1, time.Hour))
			}
		})
		f.set("a", 1, time.Hour)
		f.set("b", 2, time.Hour)
		f.set("again", 3, 10*milli)
		f.set("once", 4, 10*milli)
		// Which comes first is up to the hash: this is about what comes later.
		got := map[string]int{}
		n := f.Drain(func(key string, value int) {
			got[key] = value
			f.pass(20 * milli)
		})
		require.Equal(t, len(got), n)
		f.mu.Lock()
		for _, e := range f.ends {
			require.NotContains(t, got, e.key)
		}
		f.mu.Unlock()
		require.Subset(t, map[string]int{"a": 1, "b": 2, "again": 3, "once": 4}, got)
		require.Subset(t, got, map[string]int{"a": 1, "b": 2})
		if _, drained := got["again"]; !drained {
			f.holds("again", 4)
		}
	})
}

// A key that no table can find again is refused.
func TestKeyedNaN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type pair struct {
			name string
			x    any
		}
		nan := math.NaN()
		table, err := NewKeyed(func(any, int) { t.Error("expired") }, Options{})
		require.NoError(t, err)
		for _, key := range []any{nan, [2]float64{1, nan}, pair{"a", nan}, complex(0, nan), pair{"a", [1]any{nan}}} {
			require.EqualError(t, table.Set(key, 1, milli), "timingwheel: the key is not equal to itself")
			require.Error(t, table.SetAt(key, 1, time.Now()))
			_, ok := table.Get(key)
			require.False(t, ok)
			require.False(t, table.Touch(key, milli))
			require.False(t, table.Move(key, milli))
			_, ok = table.Remove(key)
			require.False(t, ok)
		}
		require.Zero(t, table.Len())
		require.Zero(t, table.Stats().Scheduled)

		// Keys that are equal are one key, whatever their bits.
		require.NoError(t, table.Set(0.0, 1, time.Hour))
		require.NoError(t, table.Set(math.Copysign(0, -1), 2, time.Hour))
		require.NoError(t, table.Set(nil, 3, time.Hour))
		require.Equal(t, 2, table.Len())
		value, ok := table.Get(0.0)
		require.True(t, ok)
		require.Equal(t, 2, value)

		// A key of a type that cannot be one panics as a map would, and locks
		// nothing up.
		for range 64 {
			require.Panics(t, func() { _ = table.Set([]int{1}, 4, time.Hour) })
			require.Panics(t, func() { table.Get([]int{1}) })
		}
		require.Equal(t, 2, table.Drain(func(any, int) {}))
		time.Sleep(time.Hour)
		_, err = table.Shutdown(t.Context(), Discard)
		require.NoError(t, err)
	})
}

func TestKeyedFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{MaxPending: 2, Shards: 2})
		f.set("a", 1, 10*milli)
		f.set("b", 2, 20*milli)
		require.ErrorIs(t, f.Set("c", 3, milli), ErrFull)
		require.ErrorIs(t, f.SetAt("c", 3, time.Now()), ErrFull)
		require.Equal(t, map[string]int{"a": 1, "b": 2}, f.contents())
		f.set("a", 11, 15*milli) // no new key
		require.True(t, f.Move("b", 25*milli))
		require.Equal(t, []keyedEnd{{"a", 11, 15 * milli}}, f.pass(15*milli))
		f.set("c", 3, 20*milli)
		require.ErrorIs(t, f.Set("a", 1, milli), ErrFull)
		_, ok := f.Remove("c")
		require.True(t, ok)
		f.set("a", 12, 20*milli)
		require.Equal(t, 2, f.Drain(func(string, int) {}))
		f.set("a", 13, milli)
		f.set("b", 13, milli)
		require.Len(t, f.pass(time.Hour), 2)
	})
}

func TestKeyedShutdown(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		back   []Entry[string, int]
		ends   []keyedEnd
	}{
		{Discard, nil, nil},
		{HandBack, []Entry[string, int]{{"c", 3}, {"a", 11}, {"b", 2}}, nil},
		{RunNow, nil, []keyedEnd{{"c", 3, milli}, {"a", 11, milli}, {"b", 2, milli}}},
		{Await, nil, []keyedEnd{{"c", 3, 10 * milli}, {"a", 11, 20 * milli}, {"b", 2, 30 * milli}}},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := keyedStart(t, Options{Shards: 4, Workers: 1})
				f.set("b", 2, 30*milli)
				f.set("a", 1, time.Hour)
				f.set("c", 3, 10*milli)
				f.set("a", 11, 20*milli)
				f.pass(milli)
				back, err := f.Shutdown(t.Context(), c.policy)
				require.NoError(t, err)
				require.Equal(t, c.back, back)
				require.Equal(t, c.ends, f.expired())

				require.Zero(t, f.Len())
				f.lacks("a")
				require.Empty(t, f.contents())
				require.ErrorIs(t, f.Set("a", 1, milli), ErrClosed)
				require.ErrorIs(t, f.SetAt("new", 1, time.Now()), ErrClosed)
				require.False(t, f.Touch("a", milli))
				require.False(t, f.Move("a", milli))
				_, ok := f.Remove("a")
				require.False(t, ok)
				require.Zero(t, f.Drain(func(string, int) {}))
				for i := range f.parts {
					require.Empty(t, f.parts[i].keys)
				}
				require.Empty(t, f.pass(time.Hour))
			})
		})
	}
}

// An unknown policy changes nothing.
func TestKeyedShutdownUnknownPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{})
		f.set("a", 1, 10*milli)
		_, err := f.Shutdown(t.Context(), 4)
		require.ErrorContains(t, err, "Policy(4)")
		f.holds("a", 1)
		f.set("b", 2, 20*milli)
		require.Len(t, f.pass(time.Hour), 2)
	})
	// Nor while others set keys: one that came between the look at Len and the
	// clearing of the parts was lost.
	table, err := NewKeyed(func(int, int) {}, Options{})
	require.NoError(t, err)
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = table.Shutdown(context.Background(), 4)
			}
		}
	})
	lost := 0
	for range 20000 {
		require.NoError(t, table.Set(1, 1, time.Hour))
		if _, ok := table.Remove(1); !ok {
			lost++
		}
	}
	close(stop)
	done.Wait()
	require.Zero(t, lost)
	require.Zero(t, table.Len())
	_, err = table.Shutdown(context.Background(), Discard)
	require.NoError(t, err)
}

// A shutdown that waits: new keys are refused from its start, those in the
// table live on, and it ends with the last of them.
func TestKeyedShutdownAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keyedStart(t, Options{Shards: 2})
		f.set("a", 1, 10*milli)
		f.set("b", 2, 10*milli)
		f.set("c", 3, 10*milli)
		ctx, cancel := context.WithTimeout(t.Context(), 5*milli)
		defer cancel()
		_, err := f.Shutdown(ctx, Await)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, f.Set("new", 4, milli), ErrClosed)
		require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 3}, f.contents())
		require.True(t, f.Touch("a", 20*milli))
		require.True(t, f.Move("b", 10*milli))
		require.NoError(t, f.Set("c", 33, 30*milli), "a key in the table can be set until it ends")
		f.holds("c", 33)
		_, err = f.Shutdown(t.Context(), Await)
		require.NoError(t, err)
		require.Equal(t, []keyedEnd{{"b", 2, 15 * milli}, {"a", 1, 25 * milli}, {"c", 33, 35 * milli}}, f.expired())
		require.Zero(t, f.Len())
	})
}

// From the expiry function, and from all of them at once.
func TestKeyedShutdownFromExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Int64
		f := keyedStart(t, Options{Workers: 2}, func(f *keyedTable, _ string, _ int) {
			entries, err := f.Shutdown(context.Background(), HandBack)
			require.NoError(f.t, err)
			back.Add(int64(len(entries)))
		})
		for i := range 10 {
			f.set(fmt.Sprint(i), i, milli+time.Duration(i)*time.Minute)
		}
		f.set("also", 10, milli)
		n := len(f.pass(time.Hour))
		require.Equal(t, int64(11-n), back.Load())
		require.LessOrEqual(t, n, 2)
	})
}

// The maps do not stay as large as they once were.
func TestKeyedMemoryAfterBurst(t *testing.T) {
	const keys = 100_000
	table, err := NewKeyed(func(int, int) {}, Options{})
	require.NoError(t, err)
	before := keyedHeap()
	for _, end := range []struct {
		name string
		do   func()
	}{
		{"removed", func() {
			for i := range keys {
				_, ok := table.Remove(i)
				require.True(t, ok)
			}
		}},
		{"drained", func() { require.Equal(t, keys, table.Drain(func(int, int) {})) }},
		{"expired", func() {
			for i := range keys {
				require.True(t, table.Move(i, 0))
			}
			require.Eventually(t, func() bool {
				held := 0
				for i := range table.parts {
					held += len(table.parts[i].timers())
				}
				return held == 0
			}, 20*time.Second, milli)
		}},
	} {
		for i := range keys {
			require.NoError(t, table.Set(i, i, time.Hour))
		}
		peak := keyedHeap() - before
		require.Greater(t, peak, 4<<20, "the burst is too small to say anything")
		end.do()
		left := keyedHeap() - before
		require.Less(t, left, peak/10, "%s: %d of %d bytes are still held", end.name, left, peak)
	}
	_, err = table.Shutdown(context.Background(), Discard)
	require.NoError(t, err)
}

func keyedHeap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// However a value leaves the table, it can be collected (timers 17).
func TestKeyedValuesAreCollected(t *testing.T) {
	type big struct{ _ [4096]byte }
	ends := map[string]func(table *Keyed[*big, *big], key *big){
		"expired":   func(table *Keyed[*big, *big], key *big) { table.Move(key, 0) },
		"removed":   func(table *Keyed[*big, *big], key *big) { table.Remove(key) },
		"replaced":  func(table *Keyed[*big, *big], key *big) { _ = table.Set(key, nil, time.Hour) },
		"drained":   func(table *Keyed[*big, *big], _ *big) { table.Drain(func(*big, *big) {}) },
		"discarded": func(table *Keyed[*big, *big], _ *big) { _, _ = table.Shutdown(context.Background(), Discard) },
		"handed back": func(table *Keyed[*big, *big], _ *big) {
			_, _ = table.Shutdown(context.Background(), HandBack)
		},
	}
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		t.Run(name, func(t *testing.T) {
			table, err := NewKeyed(func(*big, *big) {}, Options{})
			require.NoError(t, err)
			var key, value weak.Pointer[big]
			func() {
				k, v := new(big), new(big)
				key, value = weak.Make(k), weak.Make(v)
				require.NoError(t, table.Set(k, v, time.Hour))
				// Another stays, so that nothing is given back whole.
				require.NoError(t, table.Set(nil, nil, time.Hour))
				ends[name](table, k)
			}()
			require.Eventually(t, func() bool {
				runtime.GC()
				return value.Value() == nil && (name == "replaced" || key.Value() == nil)
			}, 10*time.Second, milli)
			_, err = table.Shutdown(context.Background(), Discard)
			require.NoError(t, err)
			runtime.KeepAlive(table)
		})
	}
}

// Remove is exact (T4): against a racing expiry it says true if and only if
// the expiry function is never called, and gives the value to one caller.
func TestKeyedRemoveHammer(t *testing.T) {
	const keys, removers = 20_000, 2
	var ended [keys]atomic.Int32 // 1: expired, 100: removed
	table, err := NewKeyed(func(key, value int) {
		if key != -value {
			t.Errorf("key %d expired with %d", key, value)
		}
		ended[key].Add(1)
	}, Options{Tick: 50 * time.Microsecond})
	require.NoError(t, err)
	// Far enough apart for the removers to come close to each one's end.
	for i := range keys {
		require.NoError(t, table.Set(i, -i, time.Duration(i)*10*time.Microsecond))
	}
	var done sync.WaitGroup
	for range removers {
		done.Go(func() {
			start := time.Now()
			for i := range keys {
				for time.Since(start) < time.Duration(i)*10*time.Microsecond {
					runtime.Gosched()
				}
				if value, ok := table.Remove(i); ok {
					if value != -i {
						t.Errorf("key %d was removed with %d", i, value)
					}
					ended[i].Add(100)
				} else if value != 0 {
					t.Errorf("key %d was not removed and gave %d", i, value)
				}
			}
		})
	}
	done.Wait()
	_, err = table.Shutdown(context.Background(), Await)
	require.NoError(t, err)
	counts := map[int32]int{}
	for i := range ended {
		counts[ended[i].Load()]++
	}
	require.Equal(t, keys, counts[1]+counts[100], "ended once: %v", counts)
	t.Logf("expired %d, removed %d", counts[1], counts[100])
}

// Each value ends exactly once, whatever is called at once: expired, removed,
// drained, handed back; or replaced, which is the one end that the table tells
// nobody of: Set says neither that there was a value nor which. So the
// replaced are counted by the wheel: a Set that replaces schedules nothing.
func TestKeyedHammer(t *testing.T) {
	const keys, goroutines = 64, 8
	rounds := 20_000
	if testing.Short() {
		rounds = 2_000
	}
	ends := make([]atomic.Int32, goroutines*(rounds+1)*2)
	end := func(value int, how string) {
		if ends[value].Add(1) != 1 {
			t.Errorf("value %d ended twice, now %s", value, how)
		}
	}
	var sets, ids, expired, removed, drained atomic.Int64
	var table *Keyed[int, int]
	set := func(key int, ttl time.Duration) {
		id := int(ids.Add(1) - 1)
		if id >= len(ends) {
			return
		}
		switch err := table.Set(key, id, ttl); {
		case err == nil:
			sets.Add(1)
		case errors.Is(err, ErrFull), errors.Is(err, ErrClosed):
			end(id, "refused")
		default:
			t.Error(err)
		}
	}
	table, err := NewKeyed(func(key, value int) {
		end(value, "expired")
		expired.Add(1)
		if value%8 == 0 {
			set(key, time.Duration(value%3)*50*time.Microsecond)
		}
	}, Options{Tick: 20 * time.Microsecond, WheelSize: 4, MaxPending: keys - 4})
	require.NoError(t, err)
	var done sync.WaitGroup
	for g := range goroutines {
		done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for range rounds {
				key, ttl := r.IntN(keys), time.Duration(r.IntN(200))*time.Microsecond
				switch k := r.IntN(100); {
				case k < 40:
					set(key, ttl)
				case k < 55:
					table.Touch(key, ttl)
				case k < 65:
					table.Move(key, ttl)
				case k < 80:
					if value, ok := table.Remove(key); ok {
						end(value, "removed")
						removed.Add(1)
					}
				case k < 90:
					if value, ok := table.Get(key); ok && (value < 0 || value >= len(ends)) {
						t.Errorf("Get gave %d", value)
					}
				case k < 91:
					seen := map[int]bool{}
					table.Range(func(key, _ int) bool {
						if seen[key] {
							t.Errorf("Range showed %d twice", key)
						}
						seen[key] = true
						return true
					})
				case k < 92:
					calls := 0
					n := table.Drain(func(key, value int) {
						calls++
						end(value, "drained")
						drained.Add(1)
						if value%4 == 0 {
							set(key, ttl)
						}
					})
					if n != calls {
						t.Errorf("Drain said %d and called %d times", n, calls)
					}
				default:
					if n := table.Len(); n < 0 || n > keys {
						t.Errorf("Len is %d", n)
					}
				}
			}
		})
	}
	done.Wait()
	// No keyedVerify here, for keys are still expiring.
	back, err := table.Shutdown(context.Background(), HandBack)
	require.NoError(t, err)
	for _, e := range back {
		end(e.Value, "handed back")
	}
	st := table.Stats()
	require.Equal(t, uint64(expired.Load()), st.Expired)
	require.Equal(t, uint64(removed.Load()+drained.Load()), st.Stopped)
	require.Equal(t, uint64(len(back)), st.HandedBack)
	require.Equal(t, st.Scheduled, st.Expired+st.Stopped+st.HandedBack)
	replaced := sets.Load() - int64(st.Scheduled)
	ended := 0
	for i := range min(int(ids.Load()), len(ends)) {
		ended += int(ends[i].Load())
	}
	require.Equal(t, min(ids.Load(), int64(len(ends))), int64(ended)+replaced, "each ended once")
	require.Zero(t, table.Len())
	for i := range table.parts {
		require.Empty(t, table.parts[i].keys)
	}
	t.Logf("set %d: expired %d, removed %d, replaced %d, drained %d, handed back %d",
		sets.Load(), expired.Load(), removed.Load(), replaced, drained.Load(), len(back))
}

// Drain against Set of the same key: a Set comes before, and its value is what
// is taken out, or after, and the key is in the table. So a value that its
// setter does not find any more was drained, none else; and no key is on the
// wheel that the table does not know.
func TestKeyedDrainHammer(t *testing.T) {
	rounds, sets := 3000, 100
	if testing.Short() {
		rounds = 1000
	}
	for range rounds {
		table, err := NewKeyed(func(int, int) { t.Error("expired") }, Options{Shards: 1})
		require.NoError(t, err)
		var gone []int // by setter
		drained := map[int]bool{}
		stop := make(chan struct{})
		var setter, drainer sync.WaitGroup
		drainer.Go(func() {
			for {
				table.Drain(func(_, value int) {
					if drained[value] {
						t.Errorf("%d was drained twice", value)
					}
					drained[value] = true
				})
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		setter.Go(func() {
			for value := range sets {
				if err := table.Set(1, value, time.Hour); err != nil {
					t.Error(err)
				}
				if value%3 == 0 {
					runtime.Gosched()
				}
				switch got, ok := table.Get(1); {
				case !ok:
					gone = append(gone, value)
				case got != value:
					t.Errorf("set %d, got %d", value, got)
				}
			}
		})
		setter.Wait()
		close(stop)
		drainer.Wait()
		keyedVerify(t, table)
		for _, value := range gone {
			require.True(t, drained[value], "%d is neither in the table nor was it drained", value)
		}
		_, err = table.Shutdown(context.Background(), Discard)
		require.NoError(t, err)
	}
}
