package keyed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

type due = timingwheel.Due[Entry[string, int]]

// returnedEntry returns the entry that Return returns for a key with that deadline after New.
func (f *fixture) returnedEntry(key string, value int, deadline time.Duration) due {
	return due{Value: Entry[string, int]{key, value}, Deadline: f.created.Add(deadline)}
}

// T13.
func TestShutdown(t *testing.T) {
	for _, c := range []struct {
		policy   timingwheel.Policy
		returned bool
		ends     []expiry
	}{
		{timingwheel.Discard, false, nil},
		{timingwheel.Return, true, nil},
		{timingwheel.RunNow, false, []expiry{{"c", 3, milli}, {"a", 11, milli}, {"b", 2, milli}}},
		{timingwheel.Await, false, []expiry{{"c", 3, 10 * milli}, {"a", 11, 20 * milli}, {"b", 2, 30 * milli}}},
	} {
		for _, wait := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/wait=%v", c.policy, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := start(t, timingwheel.Options{Shards: 4, Workers: 1})
					f.set("b", 2, 30*milli)
					f.set("a", 1, time.Hour)
					f.set("c", 3, 10*milli)
					f.set("a", 11, 20*milli)
					f.advance(milli)
					var returned []due
					var err error
					if wait {
						returned, err = f.Shutdown(t.Context(), c.policy)
					} else {
						returned, err = f.Close(c.policy)
						time.Sleep(100 * milli)
					}
					require.NoError(t, err)
					if c.returned {
						require.Equal(t, []due{f.returnedEntry("c", 3, 10*milli), f.returnedEntry("a", 11, 20*milli), f.returnedEntry("b", 2, 30*milli)}, returned)
					} else {
						require.Nil(t, returned)
					}
					require.Equal(t, c.ends, f.expired())

					require.Zero(t, f.Len())
					require.Empty(t, f.contents())
					require.Zero(t, f.Drain(func(string, int) {}))
					for _, key := range []string{"a", "new"} {
						require.ErrorIs(t, f.Set(key, 1, milli), timingwheel.ErrClosed)
						require.ErrorIs(t, f.SetAt(key, 1, time.Now()), timingwheel.ErrClosed)
						_, stored, err := f.SetIfAbsent(key, 1, milli)
						require.ErrorIs(t, err, timingwheel.ErrClosed)
						require.False(t, stored)
						f.lacksWithError(key, timingwheel.ErrClosed)
					}
					require.Equal(t, uint64(6), f.Stats().RefusedClosed) // T17
					for i := range f.parts {
						require.Zero(t, f.parts[i].keys.count)
					}
					require.Empty(t, f.advance(time.Hour))
				})
			})
		}
	}
}

// T18: Discard and Return release the memory of the keys at once.
func TestCloseDropsKeys(t *testing.T) {
	for _, policy := range []timingwheel.Policy{timingwheel.Discard, timingwheel.Return} {
		f := start(t, timingwheel.Options{})
		for i := range 10_000 {
			f.set(fmt.Sprint(i), i, time.Hour)
		}
		_, err := f.Close(policy)
		require.NoError(t, err)
		require.Equal(t, f.wheel.Stats().Bytes, f.Stats().Bytes)
	}
}

// A nil context panics, and an unknown policy is an error, before any change.
func TestShutdownBadArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		f.set("a", 1, 10*milli)
		require.PanicsWithValue(t, "keyed: the context is nil", func() { _, _ = f.Shutdown(nil, timingwheel.Await) })
		_, err := f.Shutdown(t.Context(), 4)
		require.EqualError(t, err, "keyed: the policy is Policy(4), must be Discard, Return, RunNow or Await")
		_, err = f.Close(255)
		require.ErrorContains(t, err, "Policy(255)")
		f.holds("a", 1)
		f.set("b", 2, 20*milli)
		f.lacks("c") // ErrAbsent, not ErrClosed
		require.Len(t, f.advance(time.Hour), 2)
	})
}

// T13: while a shutdown waits, new keys are refused, and those in the table work as before. It
// completes although its context has ended.
func TestShutdownAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{Shards: 2})
		for i, key := range []string{"a", "b", "c", "d", "e"} {
			f.set(key, i+1, 10*milli)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*milli)
		defer cancel()
		_, err := f.Shutdown(ctx, timingwheel.Await)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, f.Set("new", 6, milli), timingwheel.ErrClosed)
		f.lacksWithError("new", timingwheel.ErrClosed)
		require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, f.contents())
		require.NoError(t, f.Touch("a", 20*milli))
		require.NoError(t, f.Reset("b", 10*milli))
		require.NoError(t, f.Set("c", 33, 30*milli))
		require.NoError(t, f.SetAt("d", 44, f.created.Add(40*milli)))
		f.holds("c", 33) // Get, Deadline, Touch and SetIfAbsent
		value, ok := f.Remove("e")
		require.True(t, ok)
		require.Equal(t, 5, value)
		f.lacksWithError("e", timingwheel.ErrClosed) // not ErrAbsent: it cannot be set again
		require.ErrorIs(t, f.Set("e", 5, milli), timingwheel.ErrClosed)
		_, err = f.Shutdown(t.Context(), timingwheel.Await)
		require.NoError(t, err)
		require.Equal(t, []expiry{{"b", 2, 15 * milli}, {"a", 1, 25 * milli}, {"c", 33, 35 * milli}, {"d", 44, 40 * milli}}, f.expired())
		f.lacksWithError("a", timingwheel.ErrClosed)
	})
}

// A second shutdown with a stricter policy ends the first one sooner.
func TestShutdownStricter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		f.set("a", 1, time.Hour)
		f.set("b", 2, time.Minute)
		_, err := f.Close(timingwheel.Await)
		require.NoError(t, err)
		require.Equal(t, []expiry{{"b", 2, time.Minute}}, f.advance(time.Minute))
		returned, err := f.Shutdown(t.Context(), timingwheel.Return)
		require.NoError(t, err)
		require.Equal(t, []due{f.returnedEntry("a", 1, time.Hour)}, returned)
		returned, err = f.Shutdown(t.Context(), timingwheel.Return)
		require.NoError(t, err)
		require.Empty(t, returned)
	})
}

// Shutdown returns the keys that Return removed even if the context ends while an expiry
// function still runs.
func TestShutdownReturnsTimersWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := start(t, timingwheel.Options{}, func(*fixture, string, int) { <-hold })
		f.set("slow", 1, 0)
		f.set("a", 2, time.Hour)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		returned, err := f.Shutdown(ctx, timingwheel.Return)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []due{f.returnedEntry("a", 2, time.Hour)}, returned)
		close(hold)
		returned, err = f.Shutdown(t.Context(), timingwheel.Return)
		require.NoError(t, err)
		require.Empty(t, returned)
	})
}

// Several expiry functions call Close at once.
func TestCloseFromExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan due, 20)
		f := start(t, timingwheel.Options{Workers: 2}, func(f *fixture, _ string, _ int) {
			returned, err := f.Close(timingwheel.Return)
			require.NoError(f.t, err)
			for _, d := range returned {
				got <- d
			}
		})
		for i := range 10 {
			f.set(fmt.Sprint(i), i, milli+time.Duration(i)*time.Minute)
		}
		f.set("also", 10, milli)
		ran := f.advance(time.Hour)
		require.Len(t, got, 11-len(ran))
		require.LessOrEqual(t, len(ran), 2)
		_, err := f.Shutdown(t.Context(), timingwheel.Await)
		require.NoError(t, err)
	})
}

// A shutdown races goroutines that set keys: no key is both refused and in the table, and a key
// that the shutdown has ended is never reported as merely absent.
func TestCloseHammer(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		table, err := New(func(int, int) { t.Error("expired") }, timingwheel.Options{Shards: 2})
		require.NoError(t, err)
		require.NoError(t, table.Set(-1, 0, time.Hour))
		begun, ended := make(chan int), make(chan int)
		go func() {
			defer close(ended)
			accepted := 0
			for i := 0; ; i++ {
				if i == 20 {
					close(begun)
				}
				if i >= 20 {
					runtime.Gosched()
				}
				if err := table.Set(i, i, time.Hour); err != nil {
					if !errors.Is(err, timingwheel.ErrClosed) {
						t.Error(err)
					}
					break
				}
				accepted++
			}
			for err := error(nil); err == nil; {
				if err = table.Touch(-1, time.Hour); errors.Is(err, ErrAbsent) {
					t.Error(err)
				}
				runtime.Gosched()
			}
			ended <- accepted
		}()
		<-begun
		returned, err := table.Close(timingwheel.Return)
		require.NoError(t, err)
		require.Len(t, returned, <-ended+1)
		_, err = table.Shutdown(context.Background(), timingwheel.Await)
		require.NoError(t, err)
		verify(t, table)
	}
}
