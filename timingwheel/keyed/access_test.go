package keyed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// This test runs first: it fails with a message where another would hang.

// T12: no method keeps a lock, whatever its result.
func TestNoMethodKeepsALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 1, MaxPending: 1})
		free := func(method string) {
			t.Helper()
			for i := range f.parts {
				require.True(t, f.parts[i].mu.TryLock(), "%s keeps a lock", method)
				f.parts[i].mu.Unlock()
			}
		}
		everything := func() {
			for _, key := range []string{"a", "b"} { // b finds the table full
				for range 2 { // a new key, and one in the table
					_ = f.Set(key, 1, time.Hour)
					free("Set")
					_ = f.SetAt(key, 1, time.Now().Add(time.Hour))
					free("SetAt")
					_, _, _ = f.SetIfAbsent(key, 2, time.Hour)
					free("SetIfAbsent")
				}
				_ = f.Reset(key, time.Hour)
				free("Reset")
				_ = f.Touch(key, time.Hour)
				free("Touch")
				f.Get(key)
				free("Get")
				f.Deadline(key)
				free("Deadline")
				f.Len()
				free("Len")
				f.Stats()
				free("Stats")
				for range f.All() {
					free("the body of All")
				}
				free("All")
			}
			f.Drain(func(string, int) { free("the body of Drain") })
			free("Drain")
			for range 2 {
				f.Remove("a")
				free("Remove")
			}
			_, _, _ = f.SetIfAbsent("a", 2, time.Hour)
			free("SetIfAbsent of an absent key")
			f.Table.expired(Entry[string, int]{"a", 2})
			free("the expiry of an earlier value")
			f.Remove("a")
		}
		everything()
		_, err := f.Close(timingwheel.Discard)
		require.NoError(t, err)
		free("Close")
		everything()
	})
}
