package keyed

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// T4: Remove is exact: against a racing expiry it returns true if and only if
// the expiry function is never called, and returns the value to one caller.
func TestRemoveHammer(t *testing.T) {
	t.Parallel()
	const keys, removers, interval = 20_000, 2, 10 * time.Microsecond
	var ended [keys]atomic.Int32 // 1: expired, 100: removed
	table, err := New(func(key, value int) {
		if key != -value {
			t.Errorf("key %d expired with %d", key, value)
		}
		ended[key].Add(1)
	}, timingwheel.Options{Tick: 50 * time.Microsecond})
	require.NoError(t, err)
	start := time.Now()
	for i := range keys {
		require.NoError(t, table.SetAt(i, -i, start.Add(time.Duration(i)*interval)))
	}
	var done sync.WaitGroup
	for range removers {
		done.Go(func() {
			for i := range keys {
				for time.Since(start) < time.Duration(i)*interval { // close to each deadline
					runtime.Gosched()
				}
				if value, ok := table.Remove(i); ok {
					if value != -i {
						t.Errorf("key %d was removed with %d", i, value)
					}
					ended[i].Add(100)
				} else if value != 0 {
					t.Errorf("key %d was not removed, and Remove returned %d", i, value)
				}
			}
		})
	}
	done.Wait()
	_, err = table.Shutdown(context.Background(), timingwheel.Await)
	require.NoError(t, err)
	counts := map[int32]int{}
	for i := range ended {
		counts[ended[i].Load()]++
	}
	require.Equal(t, keys, counts[1]+counts[100], "ended once: %v", counts)
	verify(t, table)
	t.Logf("expired %d, removed %d", counts[1], counts[100])
}

// T3: each value ends exactly once, whatever is called concurrently: it expires, is removed,
// drained or returned; or is replaced, which Set does not report. Replacements are counted
// through the wheel: a Set that replaces a value schedules nothing.
func TestHammer(t *testing.T) {
	t.Parallel()
	const keys, goroutines = 400, 8 // in 4 parts, of which the segments split and merge
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
	var table *Table[int, int]
	set := func(key int, ttl time.Duration, ifAbsent bool) {
		id := int(ids.Add(1) - 1)
		if id >= len(ends) {
			return
		}
		var err error
		stored := true
		if ifAbsent {
			_, stored, err = table.SetIfAbsent(key, id, ttl)
		} else {
			err = table.Set(key, id, ttl)
		}
		switch {
		case err == nil && stored:
			sets.Add(1)
		case err == nil:
			end(id, "not stored")
		case errors.Is(err, timingwheel.ErrFull), errors.Is(err, timingwheel.ErrClosed):
			end(id, "refused")
		default:
			t.Error(err)
		}
	}
	table, err := New(func(key, value int) {
		end(value, "expired")
		expired.Add(1)
		if value%8 == 0 {
			set(key, time.Duration(value%3)*50*time.Microsecond, false)
		}
	}, timingwheel.Options{Tick: 20 * time.Microsecond, WheelSize: 4, Shards: 1, MaxPending: keys - 4})
	require.NoError(t, err)
	var done sync.WaitGroup
	for g := range goroutines {
		done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for n := range rounds {
				key, ttl := r.IntN(keys), time.Duration(r.IntN(200))*time.Microsecond
				if n%1000 < 500 {
					ttl = time.Hour // so that the table fills
				}
				switch k := r.IntN(1000); {
				case k < 300:
					set(key, ttl, false)
				case k < 400:
					set(key, ttl, true)
				case k < 550:
					if err := table.Touch(key, ttl); err != nil && err != ErrAbsent {
						t.Error(err)
					}
				case k < 650:
					if err := table.Reset(key, ttl); err != nil && err != ErrAbsent {
						t.Error(err)
					}
				case k < 800:
					if value, ok := table.Remove(key); ok {
						end(value, "removed")
						removed.Add(1)
					}
				case k < 900:
					if value, ok := table.Get(key); ok && (value < 0 || value >= len(ends)) {
						t.Errorf("Get returned %d", value)
					}
				case k < 910:
					seen := map[int]bool{}
					for key := range table.All() {
						if seen[key] {
							t.Errorf("All showed %d twice", key)
						}
						seen[key] = true
					}
				case k < 912:
					calls := 0
					n := table.Drain(func(key, value int) {
						calls++
						end(value, "drained")
						drained.Add(1)
						if value%4 == 0 {
							set(key, ttl, true)
						}
					})
					if n != calls {
						t.Errorf("Drain returned %d and called %d times", n, calls)
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
	// No verify here, because keys are still expiring.
	returned, err := table.Shutdown(context.Background(), timingwheel.Return)
	require.NoError(t, err)
	for _, d := range returned {
		end(d.Value.Value, "returned")
	}
	st := table.Stats()
	require.Equal(t, uint64(expired.Load()), st.Expired)
	require.Equal(t, uint64(removed.Load()+drained.Load()), st.Stopped)
	require.Equal(t, uint64(len(returned)), st.Returned)
	require.Equal(t, st.Scheduled, st.Expired+st.Stopped+st.Returned)
	replaced := sets.Load() - int64(st.Scheduled)
	ended := 0
	for i := range min(int(ids.Load()), len(ends)) {
		ended += int(ends[i].Load())
	}
	require.Equal(t, min(ids.Load(), int64(len(ends))), int64(ended)+replaced, "each ended once")
	require.Zero(t, table.Len())
	verify(t, table)
	t.Logf("set %d: expired %d, removed %d, replaced %d, drained %d, returned %d",
		sets.Load(), expired.Load(), removed.Load(), replaced, drained.Load(), len(returned))
}

// When goroutines set an absent key at once, one stores its value, and all of them get it.
func TestSetIfAbsentHammer(t *testing.T) {
	t.Parallel()
	const goroutines, keys = 4, 2000
	table, err := New(func(int, int) { t.Error("expired") }, timingwheel.Options{})
	require.NoError(t, err)
	var stored, got [keys]atomic.Int32
	var done sync.WaitGroup
	for g := range goroutines {
		done.Go(func() {
			for key := range keys {
				actual, ok, err := table.SetIfAbsent(key, g, time.Hour)
				if err != nil || ok && actual != g {
					t.Errorf("key %d, %d: got %d, stored %v, %v", key, g, actual, ok, err)
				}
				if ok {
					stored[key].Add(1)
				}
				got[key].Add(int32(actual))
			}
		})
	}
	done.Wait()
	for key := range keys {
		value, ok := table.Get(key)
		require.True(t, ok)
		require.EqualValues(t, 1, stored[key].Load())
		require.EqualValues(t, goroutines*value, got[key].Load())
	}
	_, err = table.Shutdown(context.Background(), timingwheel.Discard)
	require.NoError(t, err)
}

// Drain races Set of the same key, on one processor too. Either Set comes first, and Drain
// removes its value, or it comes later, and the key is in the table. So exactly the values that
// their setter no longer finds were drained, and the table knows every timer.
func TestDrainHammer(t *testing.T) {
	t.Parallel()
	rounds, sets := 1000, 100
	if testing.Short() {
		rounds = 100
	}
	for range rounds {
		table, err := New(func(int, int) { t.Error("expired") }, timingwheel.Options{Shards: 1})
		require.NoError(t, err)
		var missing []int // as counted by the setter
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
					runtime.Gosched() // or the setter would wait for 10 ms on one processor
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
					missing = append(missing, value)
				case got != value:
					t.Errorf("set %d, got %d", value, got)
				}
			}
		})
		setter.Wait()
		close(stop)
		drainer.Wait()
		verify(t, table)
		for _, value := range missing {
			require.True(t, drained[value], "%d is neither in the table nor was it drained", value)
		}
		_, err = table.Shutdown(context.Background(), timingwheel.Discard)
		require.NoError(t, err)
	}
}

// Every method finds a key that stays in the table, and every walk yields it once, while others
// are added and removed around it and its part is rebuilt.
func TestRemainingKeysHammer(t *testing.T) {
	t.Parallel()
	const remaining = 200
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	table, err := New(func(int, int) { t.Error("expired") }, timingwheel.Options{Shards: 1})
	require.NoError(t, err)
	for key := range remaining {
		require.NoError(t, table.Set(key, key, time.Hour))
	}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				seen := 0
				for key, value := range table.All() {
					if key < remaining {
						seen++
					}
					if key != value {
						t.Errorf("key %d has the value %d", key, value)
					}
				}
				if seen != remaining {
					t.Errorf("All showed %d of %d keys", seen, remaining)
				}
				for key := range remaining {
					if value, ok := table.Get(key); !ok || value != key {
						t.Errorf("Get(%d) = %d, %v", key, value, ok)
					}
					if err := table.Touch(key, time.Hour); err != nil {
						t.Error(err)
					}
				}
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		})
	}
	for g := range 2 {
		writers.Go(func() {
			for range rounds {
				for i := range 2000 {
					key := remaining + 2*i + g
					if err := table.Set(key, key, time.Hour); err != nil {
						t.Error(err)
					}
				}
				for i := range 2000 {
					if _, ok := table.Remove(remaining + 2*i + g); !ok {
						t.Errorf("key %d is not in the table", remaining+2*i+g)
					}
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	verify(t, table)
	_, err = table.Shutdown(context.Background(), timingwheel.Discard)
	require.NoError(t, err)
}
