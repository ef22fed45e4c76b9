package alarm

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// each runs a test with an alarm that may have a descriptor, and with one on a timer.
func each(t *testing.T, test func(t *testing.T, a *Alarm)) {
	for name, real := range map[string]bool{"descriptor": true, "timer": false} {
		t.Run(name, func(t *testing.T) {
			a := New(real)
			defer a.Close()
			test(t, a)
		})
	}
}

// T1: a sleep does not end early.
func TestNeverEarly(t *testing.T) {
	each(t, func(t *testing.T, a *Alarm) {
		for i := range 100 {
			d := time.Duration(i-1) * 30 * time.Microsecond
			begun := time.Now()
			a.Set(d, false)
			a.Sleep(nil, nil)
			require.GreaterOrEqual(t, time.Since(begun), d)
		}
	})
}

// A sleep ends when it is interrupted, before it or in it; the next one is not.
func TestInterrupt(t *testing.T) {
	each(t, func(t *testing.T, a *Alarm) {
		for i := range 100 {
			a.Set(Forever, false)
			var wg sync.WaitGroup
			if i%2 == 0 {
				a.Interrupt()
				a.Interrupt()
			} else {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Microsecond)
					a.Interrupt()
				})
			}
			a.Sleep(nil, nil)
			wg.Wait()

			begun := time.Now()
			a.Set(time.Millisecond, false)
			a.Sleep(nil, nil)
			require.GreaterOrEqual(t, time.Since(begun), time.Millisecond)
		}
	})
}

// A sleep is not ended by what was meant for an earlier one: an interruption that came too late,
// or the end of an interrupted one.
func TestSetAgain(t *testing.T) {
	each(t, func(t *testing.T, a *Alarm) {
		for i := range 20 {
			a.Set(100*time.Microsecond, false)
			if i%2 == 0 {
				a.Interrupt()
			}
			a.Sleep(nil, nil)
			time.Sleep(300 * time.Microsecond) // it expires
			a.Interrupt()
			begun := time.Now()
			a.Set(2*time.Millisecond, false)
			a.Sleep(nil, nil)
			require.GreaterOrEqual(t, time.Since(begun), 2*time.Millisecond)
		}
	})
}

// Closing ends a sleep, and so does either channel.
func TestSleepEnds(t *testing.T) {
	for _, withContext := range []bool{false, true} {
		for _, end := range []string{"close", "done"} {
			if end == "done" && !withContext {
				continue
			}
			a := New(true)
			done, closed := make(chan struct{}), make(chan struct{})
			a.Set(Forever, withContext)
			go func() {
				time.Sleep(time.Millisecond)
				if end == "done" {
					close(done)
				} else {
					close(closed)
					a.Close()
				}
			}()
			a.Sleep(done, closed)
			if end == "done" {
				a.Close()
			}
		}
	}
}

// A closed alarm sleeps on a timer, whether or not it had a descriptor; closing it again changes
// nothing.
func TestClosed(t *testing.T) {
	for _, used := range []bool{false, true} {
		before := opened.Load()
		a := New(true)
		if used {
			a.Set(0, false)
			a.Sleep(nil, nil)
			a.late = false
		}
		a.Close()
		a.Close()
		require.Equal(t, before, opened.Load())
		begun := time.Now()
		a.Set(time.Millisecond, false)
		require.False(t, a.onFD)
		a.Sleep(nil, nil)
		require.GreaterOrEqual(t, time.Since(begun), time.Millisecond)
	}
}

// T16: in a bubble a sleep takes no real time.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(false)
		begun := time.Now()
		a.Set(time.Hour, false)
		a.Sleep(nil, nil)
		require.Equal(t, time.Hour, time.Since(begun))
		require.Nil(t, a.fd)
	})
}
