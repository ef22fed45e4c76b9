package keyed

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

func TestBadArguments(t *testing.T) {
	_, err := New[string, int](nil, timingwheel.Options{})
	require.EqualError(t, err, "keyed: the expiry function is nil")
	_, err = New(func(string, int) {}, timingwheel.Options{WheelSize: 1})
	require.EqualError(t, err, "keyed: timingwheel: Options.WheelSize is 1, must be 2 to 65536")
}

func TestParts(t *testing.T) {
	for _, c := range []struct{ shards, procs, parts int }{
		{1, 8, 4}, {2, 8, 8}, {5, 8, 32}, {256, 8, 1024}, {0, 1, 8}, {0, 3, 32}, {0, 300, 1024},
	} {
		require.Equal(t, c.parts, partsFor(c.shards, c.procs), "%+v", c)
	}
	require.Len(t, start(t, timingwheel.Options{Shards: 3}).parts, 16)
}

// T1, T2, T8.
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 2})
		f.set("a", 1, 5*milli)
		require.NoError(t, f.SetAt("b", 2, time.Now().Add(7*milli)))
		f.set("between ticks", 3, 2500*time.Microsecond)
		f.set("for ever", 4, math.MaxInt64)
		require.Equal(t, 4, f.Len())
		require.Empty(t, f.advance(3*milli-1))
		require.Equal(t, []expiry{{"between ticks", 3, 3 * milli}}, f.advance(1))
		require.Empty(t, f.advance(2*milli-1))
		f.holds("a", 1)
		require.Equal(t, []expiry{{"a", 1, 5 * milli}}, f.advance(1))
		f.lacks("a")
		require.Equal(t, []expiry{{"b", 2, 7 * milli}}, f.advance(24*time.Hour))
		require.Equal(t, map[string]int{"for ever": 4}, f.contents())
	})
}

// T7: a key that is due at once still expires on a worker, never in the caller.
func TestDueAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table *Table[int, string]
		var mu sync.Mutex
		seen := map[int]bool{}
		table, err := New(func(key int, caller string) {
			_, held := table.Get(key)
			mu.Lock()
			defer mu.Unlock()
			if held || caller == goroutine() {
				t.Errorf("key %d: held %v, set by %s, expired on %s", key, held, caller, goroutine())
			}
			seen[key] = true
		}, timingwheel.Options{})
		require.NoError(t, err)
		me := goroutine()
		mu.Lock() // an expiry in this goroutine would deadlock
		require.NoError(t, table.Set(1, me, 0))
		require.NoError(t, table.Set(2, me, -time.Hour))
		require.NoError(t, table.Set(3, me, math.MinInt64))
		require.NoError(t, table.SetAt(4, me, time.Now()))
		require.NoError(t, table.SetAt(5, me, time.Now().Add(-time.Hour)))
		require.NoError(t, table.SetAt(6, me, time.Time{}))
		_, stored, err := table.SetIfAbsent(7, me, -1)
		require.True(t, stored)
		require.NoError(t, err)
		mu.Unlock()
		synctest.Wait()
		require.Len(t, seen, 7)
		_, err = table.Shutdown(t.Context(), timingwheel.Discard)
		require.NoError(t, err)
	})
}

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)]
	return string(line[:slices.Index(line, '[')])
}

// T3: a key that is set again has the new value and the new deadline, and ends once.
func TestSetAgain(t *testing.T) {
	for _, ttl := range []time.Duration{-1, 0, 1, milli, 4 * milli, 7 * milli, 8 * milli, 9 * milli, 20 * milli, 5 * time.Second} {
		for _, at := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/at=%v", ttl, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := start(t, timingwheel.Options{})
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
					due := max(ttl+milli-1, 0) / milli * milli
					require.ElementsMatch(t, []expiry{{"k", 2, due}, {"other", 9, 8 * milli}}, f.advance(time.Minute))
				})
			})
		}
	}
}

func TestSetIfAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{MaxPending: 1})
		setIfAbsent := func(value int, actual int, stored bool) {
			t.Helper()
			a, s, err := f.SetIfAbsent("k", value, 10*milli)
			require.NoError(t, err)
			require.Equal(t, actual, a)
			require.Equal(t, stored, s)
		}
		setIfAbsent(1, 1, true)
		f.advance(5 * milli)
		setIfAbsent(2, 1, false) // neither the value nor the deadline is new
		_, stored, err := f.SetIfAbsent("other", 3, 10*milli)
		require.ErrorIs(t, err, timingwheel.ErrFull)
		require.False(t, stored)
		require.Equal(t, []expiry{{"k", 1, 10 * milli}}, f.advance(5*milli))
		setIfAbsent(4, 4, true)
		f.Remove("k")
		setIfAbsent(5, 5, true)
		require.Equal(t, []expiry{{"k", 5, 20 * milli}}, f.advance(time.Hour))
	})
}

// A key that is due but waits for a worker is still in the table: Touch, Reset, Set and Remove
// find it.
func TestDueButWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := start(t, timingwheel.Options{Workers: 1}, func(_ *fixture, key string, _ int) {
			if key == "slow" {
				<-hold
			}
		})
		f.set("slow", 0, 0)
		for i, key := range []string{"touch", "reset", "set", "remove", "expire"} {
			f.set(key, i+1, milli)
		}
		time.Sleep(5 * milli)
		synctest.Wait()
		require.Equal(t, []expiry{{"slow", 0, 0}}, f.expired())
		require.Equal(t, 5, f.Stats().Ready)
		require.Len(t, f.contents(), 5)
		require.NoError(t, f.Touch("touch", 10*milli))
		require.NoError(t, f.Reset("reset", 20*milli))
		f.set("set", 33, 30*milli)
		value, ok := f.Remove("remove")
		require.True(t, ok)
		require.Equal(t, 4, value)
		close(hold)
		require.Equal(t, []expiry{{"expire", 5, 5 * milli}, {"touch", 1, 15 * milli}, {"reset", 2, 25 * milli}, {"set", 33, 35 * milli}}, f.advance(time.Hour))
	})
}

func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		f.lacks("k")
		f.set("k", 1, 5*milli)
		f.set("k", 2, 6*milli)
		value, ok := f.Remove("k")
		require.True(t, ok)
		require.Equal(t, 2, value, "the value that was set last is returned")
		f.lacks("k")
		f.set("k", 3, 7*milli) // and the key is valid again
		require.Equal(t, []expiry{{"k", 3, 7 * milli}}, f.advance(time.Hour))
		f.lacks("k")
	})
}

// White box: a worker has taken the timer, and has not yet updated the table. No method then
// finds the key; and if it is set again, the late expiry leaves the new one alone (timers 9).
func TestTakenButNotYetRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{MaxPending: 1})
		taken := func() {
			t.Helper()
			f.set("k", 1, time.Hour)
			timer, ok := f.timer("k")
			require.True(t, ok)
			require.True(t, f.wheel.Stop(timer)) // as a worker takes it
		}
		taken()
		require.Zero(t, f.Len())
		require.Empty(t, f.contents())
		require.Zero(t, f.Drain(func(string, int) { t.Error("drained") }))
		f.lacks("k") // Remove comes last there, and removes the rest of it
		f.Table.expired(Entry[string, int]{"k", 1})
		require.Len(t, f.expired(), 1)

		for _, again := range []func() error{
			func() error { return f.Set("k", 2, 10*milli) }, // not ErrFull: the old one is not held
			func() error { return f.SetAt("k", 2, time.Now().Add(10*milli)) },
			func() error {
				value, stored, err := f.SetIfAbsent("k", 2, 10*milli)
				require.True(t, stored)
				require.Equal(t, 2, value)
				return err
			},
		} {
			taken()
			now := time.Since(f.created)
			require.NoError(t, again())
			f.Table.expired(Entry[string, int]{"k", 1})
			require.Equal(t, []expiry{{"k", 1, now}}, f.expired())
			f.holds("k", 2)
			require.NoError(t, f.Touch("k", 20*milli))
			require.Equal(t, []expiry{{"k", 2, now + 20*milli}}, f.advance(time.Hour))
		}

		// Both timers of a key are taken, and the second worker is faster.
		taken()
		taken()
		f.Table.expired(Entry[string, int]{"k", 2})
		f.Table.expired(Entry[string, int]{"k", 1})
		require.Len(t, f.expired(), 2)
		verify(t, f.Table)
	})
}

// The expiry function finds its key removed, and its own changes to that key stay (timers 9: a
// job that sets its own key again loses it).
func TestChangesDuringExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{MaxPending: 1}, func(f *fixture, key string, value int) {
			f.lacks(key)
			require.Zero(f.t, f.Len())
			require.Zero(f.t, f.Drain(func(string, int) {}))
			if value < 5 {
				require.NoError(f.t, f.Set(key, value+1, 10*milli)) // its slot under MaxPending is free
				f.holds(key, value+1)
			}
		})
		f.set("k", 1, 10*milli)
		require.Equal(t, []expiry{{"k", 1, 10 * milli}, {"k", 2, 20 * milli}}, f.advance(25*milli))
		f.holds("k", 3)
		require.NoError(t, f.Touch("k", 10*milli)) // to 35
		require.Equal(t, []expiry{{"k", 3, 35 * milli}, {"k", 4, 45 * milli}, {"k", 5, 55 * milli}}, f.advance(time.Hour))
		require.Zero(t, f.Len())
	})
}

// T10: a panic or a Goexit in the expiry function affects nothing else.
func TestExpiryPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []any
		f := start(t, timingwheel.Options{Workers: 1, OnPanic: func(p timingwheel.Panic) { panics = append(panics, p.Value) }},
			func(_ *fixture, key string, _ int) {
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
		require.Len(t, f.advance(time.Second), 3)
		require.Equal(t, []any{"boo"}, panics)
		f.set("panic", 4, milli)
		f.holds("panic", 4)
	})
}

// A key that no table could find again is refused, before any lock.
func TestUnusualKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type pair struct {
			name string
			x    any
		}
		nan := math.NaN()
		table, err := New(func(any, int) { t.Error("expired") }, timingwheel.Options{})
		require.NoError(t, err)
		for _, key := range []any{nan, [2]float64{1, nan}, pair{"a", nan}, complex(0, nan), pair{"a", [1]any{nan}}} {
			err := table.Set(key, 1, milli)
			require.EqualError(t, err, fmt.Sprintf("keyed: the key %v is not equal to itself", key))
			require.EqualError(t, table.SetAt(key, 1, time.Now()), err.Error())
			_, stored, e := table.SetIfAbsent(key, 1, milli)
			require.EqualError(t, e, err.Error())
			require.False(t, stored)
			_, ok := table.Get(key)
			require.False(t, ok)
			require.ErrorIs(t, table.Touch(key, milli), ErrAbsent)
			require.ErrorIs(t, table.Reset(key, milli), ErrAbsent)
			_, ok = table.Remove(key)
			require.False(t, ok)
		}
		require.Zero(t, table.Len())
		require.Zero(t, table.Stats().Scheduled)

		// Equal keys are one key, whatever their bits.
		require.NoError(t, table.Set(0.0, 1, time.Hour))
		require.NoError(t, table.Set(math.Copysign(0, -1), 2, time.Hour))
		require.NoError(t, table.Set(nil, 3, time.Hour))
		require.Equal(t, 2, table.Len())
		value, ok := table.Get(0.0)
		require.True(t, ok)
		require.Equal(t, 2, value)

		// A key of an unhashable type panics as it would in a map.
		for range 64 {
			require.Panics(t, func() { _ = table.Set([]int{1}, 4, time.Hour) })
			require.Panics(t, func() { table.Get([]int{1}) })
		}
		require.Equal(t, 2, table.Drain(func(any, int) {}))
		time.Sleep(time.Hour)
		_, err = table.Shutdown(t.Context(), timingwheel.Discard)
		require.NoError(t, err)
	})
}

// T11.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{MaxPending: 2, Shards: 2})
		f.set("a", 1, 10*milli)
		f.set("b", 2, 20*milli)
		require.ErrorIs(t, f.Set("c", 3, milli), timingwheel.ErrFull)
		require.ErrorIs(t, f.SetAt("c", 3, time.Now()), timingwheel.ErrFull)
		require.Equal(t, uint64(2), f.Stats().RefusedFull) // T17
		require.Equal(t, map[string]int{"a": 1, "b": 2}, f.contents())
		f.set("a", 11, 15*milli) // no new key
		require.NoError(t, f.Reset("b", 25*milli))
		require.Equal(t, []expiry{{"a", 11, 15 * milli}}, f.advance(15*milli))
		f.set("c", 3, 20*milli)
		require.ErrorIs(t, f.Set("a", 1, milli), timingwheel.ErrFull)
		_, ok := f.Remove("c")
		require.True(t, ok)
		f.set("a", 12, 20*milli)
		require.Equal(t, 2, f.Drain(func(string, int) {}))
		f.set("a", 13, milli)
		f.set("b", 13, milli)
		require.Len(t, f.advance(time.Hour), 2)
	})
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		empty := f.Stats()
		require.Equal(t, f.wheel.Stats(), empty)
		for i := range 10 {
			f.set(fmt.Sprint(i), i, time.Hour)
			f.set(fmt.Sprint(i), i, time.Minute)
		}
		f.Remove("1")
		f.Remove("1")
		f.set("2", 2, 0)
		f.advance(0)
		st := f.Stats()
		require.Equal(t, []int{8, 10, 1, 1}, []int{st.Pending, int(st.Scheduled), int(st.Stopped), int(st.Expired)})
		index := 0
		for i := range f.parts {
			index += f.parts[i].keys.bytes()
		}
		require.Positive(t, index)
		require.Equal(t, f.wheel.Stats().Bytes+index, st.Bytes)
		require.Equal(t, 8, f.Drain(func(string, int) {}))
		require.Equal(t, uint64(9), f.Stats().Stopped)
	})
}

func TestZeroTable(t *testing.T) {
	var table Table[string, int]
	for _, do := range []func(){
		func() { _ = table.Set("a", 1, 1) },
		func() { _ = table.SetAt("a", 1, time.Now()) },
		func() { _, _, _ = table.SetIfAbsent("a", 1, 1) },
		func() { _ = table.Reset("a", 1) },
		func() { _ = table.Touch("a", 1) },
		func() { table.Remove("a") },
		func() { table.Get("a") },
		func() { table.Deadline("a") },
		func() { table.Len() },
		func() { table.Stats() },
		func() { table.Levels() },
		func() { table.All() },
		func() { table.Drain(func(string, int) {}) },
		func() { _, _ = table.Close(timingwheel.Discard) },
		func() { _, _ = table.Shutdown(t.Context(), timingwheel.Discard) },
	} {
		require.PanicsWithValue(t, "keyed: the zero Table is not usable, make one with New", do)
	}
}
