package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P14: Complete and OnEnd receive the cause of each kind of end.
func TestP14Cause(t *testing.T) {
	why := errors.New("why")
	for name, c := range map[string]struct {
		end     func(p *Purgatory[int], h Pending, hangUp context.CancelCauseFunc)
		outcome Outcome
		cause   error
		also    error
	}{
		"force":              {func(_ *Purgatory[int], h Pending, _ context.CancelCauseFunc) { h.ForceComplete() }, Completed, nil, nil},
		"expire":             {func(*Purgatory[int], Pending, context.CancelCauseFunc) { time.Sleep(time.Minute) }, Expired, ErrExpired, context.DeadlineExceeded},
		"cancel":             {func(_ *Purgatory[int], h Pending, _ context.CancelCauseFunc) { h.Cancel(why) }, Cancelled, why, nil},
		"cancel without":     {func(_ *Purgatory[int], h Pending, _ context.CancelCauseFunc) { h.Cancel(nil) }, Cancelled, ErrCancelled, context.Canceled},
		"key":                {func(p *Purgatory[int], _ Pending, _ context.CancelCauseFunc) { p.CancelForKey(2, why) }, Cancelled, why, nil},
		"key without":        {func(p *Purgatory[int], _ Pending, _ context.CancelCauseFunc) { p.CancelForKey(2, nil) }, Cancelled, ErrCancelled, nil},
		"context":            {func(_ *Purgatory[int], _ Pending, f context.CancelCauseFunc) { f(why) }, Cancelled, why, nil},
		"context without":    {func(_ *Purgatory[int], _ Pending, f context.CancelCauseFunc) { f(nil) }, Cancelled, context.Canceled, nil},
		"close":              {func(p *Purgatory[int], _ Pending, _ context.CancelCauseFunc) { p.Close() }, Closed, ErrClosed, nil},
		"the first one says": {func(_ *Purgatory[int], h Pending, _ context.CancelCauseFunc) { h.Cancel(why); h.Cancel(nil) }, Cancelled, why, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var recorded []string
				p := open[int](t, Options{OnEnd: func(o Outcome, waited time.Duration, cause error) {
					recorded = append(recorded, fmt.Sprint(o, " ", waited, " ", cause))
				}})
				ctx, hangUp := context.WithCancelCause(t.Context())
				defer hangUp(nil)
				op := newOp(t)
				h, err := p.TryCompleteElseWatch(ctx, op, time.Minute, 1, 2)
				require.NoError(t, err)
				time.Sleep(time.Second)
				c.end(p, h, hangUp)
				synctest.Wait()
				require.Equal(t, c.outcome, op.Outcome())
				require.Equal(t, c.cause, op.cause)
				if c.also != nil {
					require.ErrorIs(t, op.cause, c.also)
				}
				waited := time.Second
				if c.outcome == Expired {
					waited = time.Minute
				}
				require.Equal(t, []string{fmt.Sprint(c.outcome, " ", waited, " ", c.cause)}, recorded)
				st := p.Stats()
				require.EqualValues(t, 1, st.Waited[c.outcome].Count)
				require.Equal(t, waited, st.Waited[c.outcome].Mean())
				mustShutdown(t, p)
			})
		})
	}
}

// P14: of many concurrent cancels one returns true, and the operation receives its cause, even
// if the record served others before.
func TestP14CancelsRacing(t *testing.T) {
	p := open[int](t, Options{})
	for range 3000 {
		op := newOp(t)
		h := mustWatch(t, p, op, NoTimeout, 1, 2)
		var wg sync.WaitGroup
		var won [4]bool
		causes := [4]error{}
		for i := range won {
			causes[i] = fmt.Errorf("cause %d", i)
			wg.Go(func() { won[i] = h.Cancel(causes[i]) })
		}
		forced := false
		wg.Go(func() { forced = h.ForceComplete() })
		wg.Wait()
		n := 0
		for i := range won {
			if won[i] {
				n++
				require.Equal(t, causes[i], op.cause)
			}
		}
		if forced {
			n++
			require.NoError(t, op.cause)
		}
		require.Equal(t, 1, n)
	}
	mustShutdown(t, p)
}

// P14, P7: the cause says why a check failed.
func TestP14Failed(t *testing.T) {
	broken := errors.New("broken")
	for want, fault := range map[string]func(){
		"purgatory: TryComplete panicked: broken":      func() { panic(broken) },
		"purgatory: TryComplete panicked: 7":           func() { panic(7) },
		"purgatory: TryComplete called runtime.Goexit": faults["goexit"],
	} {
		for at := 1; at <= 3; at++ {
			var panics int
			p := open[int](t, Options{OnPanic: func(Panic) { panics++ }})
			op := newFaultyOp(t, at, fault)
			onItsOwn(func() {
				_, _ = p.TryCompleteElseWatch(t.Context(), op, time.Hour, 1)
				p.CheckAndComplete(1)
			})
			onItsOwn(func() { p.CheckAndComplete(1) })
			require.Equal(t, Failed, op.Outcome())
			require.EqualError(t, op.cause, want)
			require.ErrorIs(t, op.cause, ErrFailed)
			require.Equal(t, want == "purgatory: TryComplete panicked: broken", errors.Is(op.cause, broken))
			var failed *CheckError
			require.ErrorAs(t, op.cause, &failed)
			require.Equal(t, failed.Value != nil, panics == 1)
			mustShutdown(t, p)
		}
	}
}

// A panic of the hook is reported, and the operation still has its Complete.
func TestP14HookPanics(t *testing.T) {
	var panics []any
	p := open[int](t, Options{
		OnEnd:   func(Outcome, time.Duration, error) { panic("hook") },
		OnPanic: func(x Panic) { panics = append(panics, x.Value) },
	})
	op := newOp(t)
	require.True(t, mustWatch(t, p, op, NoTimeout, 1).ForceComplete())
	require.Equal(t, Completed, op.Outcome())
	require.Equal(t, []any{"hook"}, panics)
	require.EqualValues(t, 1, p.Stats().Completed)
	mustShutdown(t, p)
}

// P1, P7: whatever the hooks do, Complete is called once.
func TestP14HooksFail(t *testing.T) {
	for name, onEnd := range faults {
		for also, onPanic := range faults {
			t.Run(name+", then "+also, func(t *testing.T) {
				captureLog(t)
				p := open[int](t, Options{
					OnEnd:   func(Outcome, time.Duration, error) { onEnd() },
					OnPanic: func(Panic) { onPanic() },
				})
				op := newOp(t)
				h := mustWatch(t, p, op, NoTimeout, 1)
				onItsOwn(func() { h.ForceComplete() })
				require.EqualValues(t, 1, op.ends.Load(), "Complete was not called")
				require.Equal(t, Completed, op.Outcome())
				mustShutdown(t, p)
			})
		}
	}
}

func TestOutcomeText(t *testing.T) {
	for o := Completed; o < outcomes; o++ {
		text, err := json.Marshal(map[string]Outcome{"o": o})
		require.NoError(t, err)
		require.Equal(t, `{"o":"`+o.String()+`"}`, string(text))
		var back map[string]Outcome
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, o, back["o"])
	}
	_, err := Outcome(0).MarshalText()
	require.EqualError(t, err, "purgatory: the outcome is 0, must be 1 to 5")
	var o Outcome
	require.EqualError(t, o.UnmarshalText([]byte("lost")), `purgatory: the outcome is "lost", must be one of ["completed" "expired" "cancelled" "closed" "failed"]`)
	require.EqualError(t, o.UnmarshalText(nil), `purgatory: the outcome is "", must be one of ["completed" "expired" "cancelled" "closed" "failed"]`)

	require.NoError(t, Completed.Err())
	require.ErrorIs(t, Expired.Err(), context.DeadlineExceeded)
	require.NotErrorIs(t, Expired.Err(), context.Canceled)
	require.ErrorIs(t, Cancelled.Err(), context.Canceled)
	require.ErrorIs(t, Closed.Err(), ErrClosed)
	require.ErrorIs(t, Failed.Err(), ErrFailed)
	require.EqualError(t, Outcome(9).Err(), "purgatory: unknown outcome 9")
}
