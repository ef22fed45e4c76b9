package keyed

import (
	"context"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// heapOf calls make and returns the result with the memory that it takes.
func heapOf[T any](make func() T) (T, int) {
	before := heap()
	v := make()
	return v, heap() - before
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// T18: a table that has held many keys takes at most twice the memory of a table that only ever
// held the remaining keys.
func TestMemoryFollowsTheKeysDown(t *testing.T) {
	fill := func(table *Table[int, int], from, to int) {
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(to - from) {
			require.NoError(t, table.Set(from+i, i, time.Hour+time.Duration(i)*milli))
		}
	}
	options := timingwheel.Options{Shards: 2}
	const many = 500_000
	for _, left := range []int{10_000, 50_000} {
		fresh, want := heapOf(func() *Table[int, int] {
			table, err := New(func(int, int) {}, options)
			require.NoError(t, err)
			fill(table, 0, left)
			return table
		})
		table, got := heapOf(func() *Table[int, int] {
			table, err := New(func(int, int) {}, options)
			require.NoError(t, err)
			fill(table, 0, left)
			fill(table, left, many)
			for _, i := range rand.New(rand.NewPCG(3, 4)).Perm(many - left) {
				_, ok := table.Remove(left + i)
				require.True(t, ok)
			}
			return table
		})
		verify(t, table)
		index := 0
		for i := range table.parts {
			index += table.parts[i].keys.bytes()
		}
		t.Logf("%d of %d keys: %d bytes, a new table %d; Stats().Bytes %d and %d, of which index %d",
			left, many, got, want, table.Stats().Bytes, fresh.Stats().Bytes, index)
		require.LessOrEqual(t, got, 2*want)
		for _, x := range []*Table[int, int]{fresh, table} {
			_, err := x.Shutdown(context.Background(), timingwheel.Discard)
			require.NoError(t, err)
		}
	}
}

// No memory of the keys remains when all have left, in whatever way.
func TestMemoryOfNoKeys(t *testing.T) {
	const keys = 20_000
	ends := map[string]func(t *testing.T, table *Table[int, int]){
		"removed": func(t *testing.T, table *Table[int, int]) {
			for i := range keys {
				_, ok := table.Remove(i)
				require.True(t, ok)
			}
		},
		"drained": func(t *testing.T, table *Table[int, int]) {
			require.Equal(t, keys, table.Drain(func(int, int) {}))
		},
		"expired": func(t *testing.T, _ *Table[int, int]) {
			time.Sleep(time.Hour)
			synctest.Wait()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table, err := New(func(int, int) {}, timingwheel.Options{})
				require.NoError(t, err)
				for i := range keys {
					require.NoError(t, table.Set(i, i, time.Hour))
				}
				end(t, table)
				verify(t, table)
				for i := range table.parts {
					x := &table.parts[i].keys
					require.Len(t, x.segments, 1)
					require.Equal(t, minSlots, x.size)
				}
				_, err = table.Shutdown(t.Context(), timingwheel.Discard)
				require.NoError(t, err)
			})
		})
	}
}

// Keys that come and go in constant number allocate no memory.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	table, err := New(func(int, int) {}, timingwheel.Options{Shards: 1})
	require.NoError(t, err)
	const keys = 4096
	for i := range keys {
		require.NoError(t, table.Set(i, i, time.Hour))
	}
	next := keys
	churn := func() {
		for range 100 {
			_ = table.Set(next, next, time.Hour)
			_ = table.Set(next, -next, time.Minute)
			_ = table.Touch(next, time.Hour)
			_ = table.Reset(next, time.Hour)
			_, _ = table.Get(next)
			_, _ = table.Deadline(next)
			_, _, _ = table.SetIfAbsent(next, next, time.Hour)
			_, _ = table.Remove(next - keys)
			next++
		}
	}
	for range 100 {
		churn() // the segments grow to the size that they need
	}
	allocs := testing.AllocsPerRun(100, churn)
	require.Less(t, allocs, 10., "in 800 calls")
	_, err = table.Shutdown(context.Background(), timingwheel.Discard)
	require.NoError(t, err)
}

// However a value leaves the table, it can be collected, and so can its key
// (timers 17).
func TestValuesAreCollected(t *testing.T) {
	type big struct{ _ [4096]byte }
	ends := map[string]func(table *Table[*big, *big], key *big){
		"expired":   func(table *Table[*big, *big], key *big) { _ = table.Reset(key, 0) },
		"removed":   func(table *Table[*big, *big], key *big) { table.Remove(key) },
		"replaced":  func(table *Table[*big, *big], key *big) { _ = table.Set(key, nil, time.Hour) },
		"drained":   func(table *Table[*big, *big], _ *big) { table.Drain(func(*big, *big) {}) },
		"discarded": func(table *Table[*big, *big], _ *big) { _, _ = table.Close(timingwheel.Discard) },
		"returned":  func(table *Table[*big, *big], _ *big) { _, _ = table.Close(timingwheel.Return) },
	}
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		t.Run(name, func(t *testing.T) {
			expired := make(chan struct{}, 1)
			table, err := New(func(*big, *big) { expired <- struct{}{} }, timingwheel.Options{})
			require.NoError(t, err)
			var key, value weak.Pointer[big]
			func() {
				k, v := new(big), new(big)
				key, value = weak.Make(k), weak.Make(v)
				require.NoError(t, table.Set(k, v, time.Hour))
				// Another stays, so that no memory is released as a whole.
				require.NoError(t, table.Set(nil, nil, time.Hour))
				ends[name](table, k)
			}()
			if name == "expired" {
				require.Eventually(t, func() bool { return len(expired) == 1 }, time.Minute, milli)
			}
			require.Eventually(t, func() bool {
				runtime.GC()
				return value.Value() == nil && (name == "replaced" || key.Value() == nil)
			}, time.Minute, milli)
			_, err = table.Shutdown(context.Background(), timingwheel.Discard)
			require.NoError(t, err)
			runtime.KeepAlive(table)
		})
	}
}
