package webhook

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newHosts(perHost int, wait, maxSnooze time.Duration) *hosts {
	return &hosts{perHost: perHost, wait: wait, maxSnooze: maxSnooze, m: make(map[string]*host)}
}

func enters(ctx context.Context, hs *hosts, name string) chan error {
	done := make(chan error, 1)
	go func() {
		d, err := hs.enter(ctx, name)
		if err == nil && d > 0 {
			err = errors.New("postponed")
		}
		done <- err
	}()
	return done
}

// A free slot goes to the call that has waited longest, and to no other.
func TestSlotIsTransferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(1, time.Second, time.Minute)
		require.NoError(t, <-enters(t.Context(), hs, "a"))
		waits := enters(t.Context(), hs, "a")
		synctest.Wait()
		require.EqualError(t, <-enters(t.Context(), hs, "a"), "postponed") // one waits already
		require.NoError(t, <-enters(t.Context(), hs, "b"))
		hs.leave("a", time.Millisecond)
		require.NoError(t, <-waits)
		require.Equal(t, 1, hs.m["a"].calls)
		hs.leave("a", time.Millisecond)
		hs.leave("b", time.Millisecond)
		require.Zero(t, hs.len()) // hosts without calls are removed
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(1, time.Second, time.Minute)
		require.NoError(t, <-enters(t.Context(), hs, "a"))
		began := time.Now()
		require.EqualError(t, <-enters(t.Context(), hs, "a"), "postponed")
		require.Equal(t, time.Second, time.Since(began))

		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("stopped")
		waits := enters(ctx, hs, "a")
		synctest.Wait()
		cancel(cause)
		require.Equal(t, cause, <-waits)
		require.Empty(t, hs.m["a"].waiting)
		hs.leave("a", time.Second)
		require.Zero(t, hs.len())
	})
}

// A slot that is transferred at the moment in which its call gives up waiting is used or released,
// not lost.
func TestSlotAtTheEndOfTheWait(t *testing.T) {
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			hs := newHosts(1, time.Second, time.Minute)
			require.NoError(t, <-enters(t.Context(), hs, "a"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 1 { // its context ends at that moment
				hs.wait = time.Hour
				time.AfterFunc(time.Second, cancel)
			}
			waits := enters(ctx, hs, "a")
			synctest.Wait()
			time.Sleep(time.Second)
			hs.leave("a", time.Millisecond)
			if <-waits != nil {
				require.Zero(t, hs.len())
				return
			}
			require.Equal(t, 1, hs.len())
			hs.leave("a", time.Millisecond)
			require.Zero(t, hs.len())
		})
	}
}

// Postponed calls return one after another, at the pace at which the host answers, and no later
// than the bound.
func TestPostponeSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hs := newHosts(2, 0, 10*time.Second)
		for range 2 {
			d, err := hs.enter(t.Context(), "a")
			require.NoError(t, err)
			require.Zero(t, d)
		}
		hs.m["a"].mean = time.Second
		for i := range 19 {
			d, err := hs.enter(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, time.Second+time.Duration(i)*time.Second/2, d)
		}
		for range 100 {
			d, err := hs.enter(t.Context(), "a")
			require.NoError(t, err)
			require.GreaterOrEqual(t, d, 5*time.Second)
			require.LessOrEqual(t, d, 10*time.Second)
		}
		time.Sleep(time.Minute) // the assigned times have passed
		d, _ := hs.enter(t.Context(), "a")
		require.Equal(t, time.Second, d)
	})
}

func TestMeanFollowsCalls(t *testing.T) {
	hs := newHosts(8, 0, time.Minute)
	for range 8 {
		_, _ = hs.enter(t.Context(), "a")
	}
	hs.leave("a", 8*time.Second)
	require.Equal(t, 8*time.Second, hs.m["a"].mean)
	hs.leave("a", 0)
	require.Equal(t, 7*time.Second, hs.m["a"].mean)
}

// A quick host does not make postponed calls return at once.
func TestPostponeHasAMinimum(t *testing.T) {
	hs := newHosts(1, 0, time.Minute)
	_, _ = hs.enter(t.Context(), "a")
	d, _ := hs.enter(t.Context(), "a")
	require.Equal(t, minSnooze, d)
}
