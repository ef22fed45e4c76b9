package keyed

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 4})
		require.Empty(t, f.contents())
		want := map[string]int{}
		for i := range 5000 { // several segments a part
			key := fmt.Sprint(i)
			want[key] = i
			f.set(key, i, time.Hour)
		}
		require.Equal(t, want, f.contents())
		require.Equal(t, 5000, f.Len(), "All takes nothing out")
		calls := 0
		for range f.All() {
			if calls++; calls == 10 {
				break
			}
		}
		require.Equal(t, 10, calls)
		for i := range 5000 {
			if i%2 == 0 {
				f.Remove(fmt.Sprint(i))
				delete(want, fmt.Sprint(i))
			}
		}
		require.Equal(t, want, f.contents())
		all := f.All()
		f.set("late", 1, time.Hour)
		want["late"] = 1
		for range 2 { // an iterator can be reused, and yields the present keys
			got := map[string]int{}
			for key, value := range all {
				got[key] = value
			}
			require.Equal(t, want, got)
		}
	})
}

// The loop's body may call any method. A key that stays in the table is yielded once, with its
// value at that time.
func TestChangesDuringAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 4})
		const keys = 3000
		for i := range keys {
			f.set(fmt.Sprint(i), i, time.Hour)
		}
		seen := map[string]int{}
		for key, value := range f.All() {
			_, twice := seen[key]
			require.False(t, twice, "%q was seen twice", key)
			seen[key] = value
			if value >= 1e6 {
				continue // set by this loop: may be yielded, or not
			}
			require.NoError(t, f.Set(key, value+1e4, 2*time.Hour)) // again
			require.NoError(t, f.Set("new"+key, value+1e6, time.Hour))
			require.NoError(t, f.Touch(key, 3*time.Hour))
			f.holds(key, value+1e4)
		}
		require.Equal(t, 2*keys, f.Len())
		for i := range keys {
			require.Equal(t, i, seen[fmt.Sprint(i)], "it was seen before it was set again")
			f.holds(fmt.Sprint(i), i+1e4)
			f.holds("new"+fmt.Sprint(i), i+1e6)
		}

		// When the first is yielded, all are set again, and all except one removed.
		first := true
		seen = map[string]int{}
		for key, value := range f.All() {
			if seen[key] = value; first {
				first = false
				for k, v := range f.All() {
					f.set(k, v+1, time.Hour)
				}
				for k := range f.All() {
					if k != "7" {
						f.Remove(k)
					}
				}
			}
		}
		require.Equal(t, 1, f.Len())
		require.LessOrEqual(t, len(seen), 2)
		require.Contains(t, []int{10007, 10008}, seen["7"]) // it may itself have been the first

		// Drain within All.
		for key := range f.All() {
			require.Equal(t, 1, f.Drain(func(k string, _ int) { require.Equal(t, key, k) }))
		}
		require.Zero(t, f.Len())
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 4})
		require.Zero(t, f.Drain(func(string, int) { t.Error("an empty table was drained") }))
		want := map[string]int{}
		for i := range 5000 {
			want[fmt.Sprint(i)] = i
			f.set(fmt.Sprint(i), i, time.Duration(i)*milli+milli)
		}
		got := map[string]int{}
		n := f.Drain(func(key string, value int) {
			f.lacks(key)
			got[key] = value
		})
		require.Equal(t, 5000, n)
		require.Equal(t, want, got)
		require.Zero(t, f.Len())
		require.Empty(t, f.contents())
		require.Empty(t, f.advance(time.Hour), "a drained key expired")

		// Timers 8: a key that is drained and then set expires.
		f.set("1", 1, 5*milli)
		f.set("2", 2, 5*milli)
		require.Equal(t, 2, f.Drain(func(string, int) {}))
		f.set("1", 11, 5*milli)
		f.holds("1", 11)
		require.Equal(t, []expiry{{"1", 11, time.Hour + 5*milli}}, f.advance(time.Second))
	})
}

// A nil function panics before any key is removed.
func TestDrainNil(t *testing.T) {
	f := start(t, timingwheel.Options{})
	f.set("a", 1, time.Hour)
	require.PanicsWithValue(t, "keyed: the function is nil", func() { f.Drain(nil) })
	f.holds("a", 1)
}

// If f panics, the keys that it was not called for are still in the table.
func TestDrainPanics(t *testing.T) {
	f := start(t, timingwheel.Options{})
	for i := range 10 {
		f.set(fmt.Sprint(i), i, time.Hour)
	}
	calls := 0
	require.PanicsWithValue(t, "boo", func() {
		f.Drain(func(string, int) {
			if calls++; calls == 4 {
				panic("boo")
			}
		})
	})
	require.Equal(t, 6, f.Len())
	verify(t, f.Table)
}

// Set from inside Drain does not deadlock (timers 8), and the keys that it sets stay.
func TestChangesDuringDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 4})
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
		require.Len(t, f.advance(time.Hour), 100) // the new ones
		require.Len(t, f.advance(time.Hour), 100) // those set again

		// A key that f sets before its own turn is removed with its new value; a key that f
		// removes is not drained.
		for i := range 100 {
			f.set(fmt.Sprint(i), i, time.Hour)
		}
		got := map[string]int{}
		first, removed := "", "1"
		n = f.Drain(func(key string, value int) {
			got[key] = value
			if first != "" {
				return
			}
			if first = key; first == removed {
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

		// Drain within Drain: each key is drained by one of the two.
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

// A key that expires during Drain is not passed to f; if it is then set again, it is a new key
// and stays.
func TestExpiryDuringDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 1}, func(f *fixture, key string, value int) {
			if key == "again" {
				require.NoError(f.t, f.Set(key, value+1, time.Hour))
			}
		})
		f.set("a", 1, time.Hour)
		f.set("b", 2, time.Hour)
		f.set("again", 3, 10*milli)
		f.set("once", 4, 10*milli)
		// The hash decides which comes first: this test is about the keys that come later.
		got := map[string]int{}
		n := f.Drain(func(key string, value int) {
			got[key] = value
			time.Sleep(20 * milli)
			synctest.Wait()
		})
		require.Equal(t, len(got), n)
		for _, e := range f.expired() {
			require.NotContains(t, got, e.key)
		}
		require.Subset(t, map[string]int{"a": 1, "b": 2, "again": 3, "once": 4}, got)
		require.Subset(t, got, map[string]int{"a": 1, "b": 2})
		if _, drained := got["again"]; !drained {
			f.holds("again", 4)
		}
	})
}

// A key that is removed and set again before its turn counts as new, and stays.
func TestKeySetAgainDuringDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		f.set("a", 1, time.Hour)
		f.set("b", 1, time.Hour)
		f.set("c", 1, time.Hour)
		again, stays := "", ""
		drained := map[string]int{}
		n := f.Drain(func(key string, value int) {
			if len(drained) == 0 {
				others := slices.DeleteFunc([]string{"a", "b", "c"}, func(k string) bool { return k == key })
				again, stays = others[0], others[1]
				f.set(again, 2, time.Hour)
				f.Remove(stays)
				f.set(stays, 3, time.Hour)
			}
			drained[key] = value
		})
		require.Equal(t, 2, n)
		require.Equal(t, 2, drained[again], "with its new value")
		require.Equal(t, map[string]int{stays: 3}, f.contents())
	})
}
