package purgatory

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each call returns, and each operation ends. This test runs first: where another test would
// only hang, it reports what hangs.
func TestNothingHangs(t *testing.T) {
	within := func(what string, f func()) {
		t.Helper()
		done := make(chan bool)
		go func() {
			defer close(done)
			f()
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s hangs", what)
		}
	}
	// No cleanup: it would hang as well.
	p, err := New[int](Options{MaxPending: 100})
	require.NoError(t, err)
	ends := make(chan Outcome, 100)
	watch := func(ready bool, timeout time.Duration, keys ...int) (h Pending) {
		op := newOp(t)
		op.try = func(n int) bool { return ready && n > 2 }
		op.end = func(o Outcome) { ends <- o }
		within("TryCompleteElseWatch", func() { h, err = p.TryCompleteElseWatch(t.Context(), op, timeout, keys...) })
		require.NoError(t, err)
		return h
	}
	ended := func(want Outcome) {
		t.Helper()
		within("an operation to be "+want.String(), func() { require.Equal(t, want, <-ends) })
	}
	watch(true, time.Hour, 1, 2, 3)
	within("CheckAndComplete", func() { p.CheckAndComplete(2) })
	ended(Completed)
	watch(true, time.Hour, 1, 2, 3)
	within("CheckAndCompleteLater", func() { _ = p.CheckAndCompleteLater(3) })
	ended(Completed)
	h := watch(false, NoTimeout, 1)
	within("Cancel", func() { h.Cancel(nil) })
	ended(Cancelled)
	watch(false, NoTimeout, 1, 5)
	within("CancelForKey", func() { p.CancelForKey(5, nil) })
	ended(Cancelled)
	for _, timeout := range []time.Duration{0, time.Millisecond, minPostponed + sweepEvery} {
		watch(false, timeout, 1, 2)
		ended(Expired)
	}
	for range 3 * maxContiguous / 2 {
		watch(false, NoTimeout, 1)
	}
	within("All", func() {
		for range p.All() {
		}
	})
	within("Oldest", func() { p.Oldest(5) })
	within("Hotspots", func() { p.Hotspots(5) })
	within("Stats", func() { p.Stats() })
	within("Len", func() { p.Len() })
	within("KeyCount", func() { p.KeyCount() })
	within("CheckAndComplete of many", func() { p.CheckAndComplete(1) })
	within("CancelForKey of many", func() { p.CancelForKey(1, nil) })
	for range 3 * maxContiguous / 2 {
		ended(Cancelled)
	}
	waits := make(chan error, 1)
	within("Await", func() {
		go func() { waits <- p.Await(t.Context(), NoTimeout, func() bool { return false }, 9) }()
		for p.Watching(9) == 0 {
			time.Sleep(time.Millisecond)
		}
	})
	within("Shutdown", func() { require.NoError(t, p.Shutdown(context.Background())) })
	within("Await's end", func() { require.Equal(t, ErrClosed, <-waits) })

	r, err := NewThreshold(func(int) int { return 0 }, Options{})
	require.NoError(t, err)
	within("Threshold.TryCompleteElseWatch", func() {
		for n := range 3 * batch {
			_, err = r.TryCompleteElseWatch(t.Context(), newOp(t), NoTimeout, All, Goal[int, int]{1, n/2 + 1}, Goal[int, int]{2, 3})
			require.NoError(t, err)
		}
	})
	within("Advance", func() { r.Advance(2, 3) })
	within("Threshold.All", func() {
		for range r.All() {
		}
	})
	within("Threshold.Oldest", func() { r.Oldest(5) })
	within("Advance of many", func() { r.Advance(1, 10) })
	within("AdvanceLater", func() { _ = r.AdvanceLater(1) })
	within("Threshold.CancelForKey", func() { r.CancelForKey(1, nil) })
	within("Threshold.Shutdown", func() { require.NoError(t, r.Shutdown(context.Background())) })
}

// A hash leads to the bucket with its keys at each size of the table, and lock does not keep
// the lock of a bucket that has just lost its keys.
func TestTableFindsTheBucket(t *testing.T) {
	var x table[int, int]
	x.init()
	leads := func() {
		t.Helper()
		for hash := range 4 * x.size.Load() {
			b := x.at(hash)
			require.NotNil(t, b, "hash %d, size %d", hash, x.size.Load())
			require.Equal(t, b.number, hash&b.mask.Load(), "hash %d, size %d", hash, x.size.Load())
			require.Same(t, b, x.lock(hash))
			b.mu.Unlock()
		}
	}
	leads()
	for range 5 {
		x.addSegment()
		leads()
	}
	hash := x.size.Load() - 1
	left := x.at(hash)
	x.dropSegment()
	leads()
	b := x.lockTouched(left, hash)
	require.Same(t, x.at(hash), b, "a bucket that is not in the table any more")
	b.mu.Unlock()
	require.True(t, left.mu.TryLock())
}
