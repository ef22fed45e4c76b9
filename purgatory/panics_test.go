package purgatory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errBad = errors.New("bad operation")

// faults are the ways in which user code can fail to return.
var faults = map[string]func(){
	"panic":  func() { panic(errBad) },
	"goexit": runtime.Goexit,
	// The goroutine still ends here, although the panic is recovered.
	"goexit and panic": func() {
		defer panic(errBad)
		runtime.Goexit()
	},
	// The behaviour before Go 1.21, and with GODEBUG=panicnil=1: recover returns nil, so that
	// the panic cannot be told from no panic.
	"nil panic": func() { panic(any(nil)) },
}

// onItsOwn runs f on a new goroutine, and waits for it to end.
func onItsOwn(f func()) {
	done := make(chan bool)
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// P7: a first or second check that does not return ends its operation as failed, within
// TryCompleteElseWatch, and leaves nothing behind.
func TestP7RegistrationFails(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	for name, fault := range faults {
		for at := 1; at <= 2; at++ {
			t.Run(fmt.Sprintf("%s,check %d", name, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var panics []Panic
					p := open[int](t, Options{MaxPending: 1, OnPanic: func(x Panic) { panics = append(panics, x) }})
					op := newFaultyOp(t, at, fault)
					onItsOwn(func() {
						h, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, 1, 2)
						require.NoError(t, err)
						require.Zero(t, h)
					})
					require.Equal(t, Failed, op.Outcome())
					if name == "panic" {
						require.Len(t, panics, 1)
						require.Equal(t, errBad, panics[0].Value)
						require.Contains(t, string(panics[0].Stack), "TryComplete")
					}
					require.EqualValues(t, 1, p.Stats().Failed)
					requireEmpty(t, p)
					mustWatch(t, p, newOp(t), time.Hour, 1) // there is capacity again
					mustShutdown(t, p)
				})
			})
		}
	}
}

// P7, purgatory 5 (KAFKA-17240): a later check, or a Complete, that does not return ends its
// own operation only. All others on the key are still checked or cancelled, however far the
// walk was, and expiry continues.
func TestP7OthersContinue(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	for name, fault := range faults {
		for _, where := range []string{"check", "complete", "cancel", "later"} {
			for _, bad := range [][]int{{0}, {50}, {99}, {31, 32}, {0, 1, 2, 30, 31, 32, 33, 62, 63, 64, 65, 98, 99}} {
				t.Run(fmt.Sprint(name, where, bad), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var panics atomic.Int32
						p := open[int](t, Options{OnPanic: func(Panic) { panics.Add(1) }})
						ops := make([]*testOp, 100)
						isBad := map[int]bool{}
						for _, i := range bad {
							isBad[i] = true
						}
						for i := range ops {
							ops[i] = newOp(t)
							ops[i].try = func(n int) bool {
								if n > 2 && isBad[i] && (where == "check" || where == "later") {
									fault()
								}
								return n > 2 && i%2 == 0
							}
							ops[i].end = func(o Outcome) {
								if isBad[i] && o != Failed {
									fault()
								}
							}
							mustWatch(t, p, ops[i], time.Hour, 1)
						}
						switch where {
						case "cancel":
							onItsOwn(func() { p.CancelForKey(1, nil) })
						case "later":
							require.NoError(t, p.CheckAndCompleteLater(1))
							synctest.Wait()
						default:
							onItsOwn(func() { p.CheckAndComplete(1) })
						}
						verify(t, p)
						for i, op := range ops {
							want := Outcome(0)
							switch {
							case where == "cancel":
								want = Cancelled
							case isBad[i] && where != "complete":
								want = Failed
							case i%2 == 0:
								want = Completed
							}
							require.Equal(t, want, op.Outcome(), i)
						}
						time.Sleep(time.Hour)
						synctest.Wait()
						for i, op := range ops {
							require.NotZero(t, op.Outcome(), i)
						}
						requireEmpty(t, p)
						require.EqualValues(t, len(ops), p.Stats().Ended())
						if name == "panic" {
							require.NotZero(t, panics.Load())
							require.EqualValues(t, panics.Load(), p.Stats().Panics)
						}
						mustShutdown(t, p)
					})
				})
			}
		}
	}
}

// P7, purgatory 5: expiries that do not return do not kill the reaper, even with only one
// worker.
func TestP7ExpiryContinues(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := open[int](t, Options{Workers: 1, OnPanic: func(Panic) {}})
				ended := 0
				for i := range 100 {
					op := newOp(t)
					op.end = func(o Outcome) {
						ended++
						fault()
					}
					mustWatch(t, p, op, time.Duration(i/10)*time.Second, i%3)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, 100, ended)
				requireEmpty(t, p)
				mustShutdown(t, p)
			})
		})
	}
}

// P7, purgatory 5: the hook does not return either. The operation still ends, and so do later
// ones.
func TestP7HookFails(t *testing.T) {
	for name, fault := range faults {
		for at := 1; at <= 4; at++ { // 4: in Complete
			t.Run(fmt.Sprintf("%s,check %d", name, at), func(t *testing.T) {
				logged := captureLog(t)
				synctest.Test(t, func(t *testing.T) {
					p := open[int](t, Options{OnPanic: func(Panic) { fault() }})
					op, other := newOp(t), newOp(t)
					op.try = func(n int) bool {
						if n == at {
							panic("the operation's own")
						}
						return n > 2
					}
					op.end = func(Outcome) {
						if at == 4 {
							panic("the operation's own")
						}
					}
					onItsOwn(func() { _, _ = p.TryCompleteElseWatch(context.Background(), op, time.Hour, 1, 2) })
					mustWatch(t, p, other, time.Hour, 1)
					other.ready.Store(true)
					onItsOwn(func() { p.CheckAndComplete(1) })
					require.NotZero(t, op.Outcome())
					require.Equal(t, Completed, other.Outcome())
					if at < 4 {
						require.EqualValues(t, 1, p.Stats().Failed)
					} else {
						require.EqualValues(t, 2, p.Stats().Completed, "counted under its outcome")
					}
					require.EqualValues(t, 1, p.Stats().Panics)
					requireEmpty(t, p)
					mustShutdown(t, p)
				})
				if name == "panic" {
					require.Contains(t, logged(), "the operation's own")
					require.Contains(t, logged(), errBad.Error())
				}
			})
		}
	}
}

// P7: a check that is cancelled and then panics is still reported.
func TestP7CancelledThenPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := 0
		p := open[int](t, Options{OnPanic: func(Panic) { panics++ }})
		op := newOp(t)
		op.try = func(n int) bool {
			if n > 2 {
				require.Equal(t, 1, p.CancelForKey(1, nil))
				panic("too late")
			}
			return false
		}
		mustWatch(t, p, op, NoTimeout, 1)
		require.Zero(t, p.CheckAndComplete(1))
		require.Equal(t, Cancelled, op.Outcome())
		require.Equal(t, 1, panics)
		mustShutdown(t, p)
	})
}

// P7: by default a panic is an error in the log, with its stack.
func TestP7LoggedByDefault(t *testing.T) {
	logged := captureLog(t)
	synctest.Test(t, func(t *testing.T) {
		p, err := New[int](Options{})
		require.NoError(t, err)
		op := newOp(t)
		op.try = func(int) bool { panic(errBad) }
		h, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, 1)
		require.NoError(t, err)
		require.Zero(t, h)
		mustShutdown(t, p)
	})
	require.Contains(t, logged(), "purgatory: operation panicked")
	require.Contains(t, logged(), errBad.Error())
	require.Contains(t, logged(), "panics_test.go")
}

// captureLog redirects the default logger, and returns a function that returns its output.
func captureLog(t *testing.T) func() string {
	var buf bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&buf, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return func() string { return strings.ReplaceAll(buf.String(), `\n`, "\n") }
}
