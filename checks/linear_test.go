package checks

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/stretchr/testify/require"
)

// The calls on one operation, by any goroutine at any time, are linearizable (Herlihy and Wing,
// 1990): for every overlap there is an order in which a sequential operation would have given
// the same answers. Porcupine searches for that order.

type call uint8

const (
	callWatch    call = iota // reports whether the operation completed within the call
	callReady                // the condition holds from here on
	callCheck                // reports whether this call completed the operation
	callComplete             // likewise
	callCancel               // reports whether this call cancelled the operation
	callExpire               // made by the wheel; its answer is always true, as no caller sees it
	callOutcome              // returns the outcome passed to Complete, or 0 before that call
)

type linearCall struct {
	op   int // histories of different operations are independent
	call call
}

type linearAnswer struct {
	ok      bool
	outcome purgatory.Outcome
}

// sequential is the model: an operation with one call at a time.
type sequential struct {
	watched, ready bool
	outcome        purgatory.Outcome
}

func (s sequential) end(o purgatory.Outcome) (bool, sequential) {
	if !s.watched || s.outcome != 0 {
		return false, s
	}
	s.outcome = o
	return true, s
}

var sequentialModel = porcupine.Model{
	Init: func() any { return sequential{} },
	Step: func(state, input, output any) (bool, any) {
		s, a := state.(sequential), output.(linearAnswer)
		switch input.(linearCall).call {
		case callWatch:
			if s.watched {
				return false, s
			}
			s.watched = true
			if !a.ok {
				return true, s
			}
			ok, s := s.end(purgatory.Completed)
			return ok && s.ready, s
		case callReady:
			s.ready = true
			return true, s
		case callCheck:
			if !a.ok {
				// A check may be left to another goroutine, regardless of the condition.
				// TestLinearizable asserts at the end that the check was made.
				return true, s
			}
			ok, after := s.end(purgatory.Completed)
			return ok && s.ready, after
		case callComplete:
			ok, after := s.end(purgatory.Completed)
			return ok == a.ok, after
		case callCancel:
			ok, after := s.end(purgatory.Cancelled)
			return ok == a.ok, after
		case callExpire:
			return s.end(purgatory.Expired)
		case callOutcome:
			// Complete is called after the outcome is decided, so 0 is possible at
			// any time.
			return a.outcome == 0 || a.outcome == s.outcome, s
		}
		return false, s
	},
	Equal: func(a, b any) bool { return a == b },
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byOp := map[int][]porcupine.Operation{}
		for _, o := range history {
			id := o.Input.(linearCall).op
			byOp[id] = append(byOp[id], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byOp {
			parts = append(parts, part)
		}
		return parts
	},
}

// history records the calls of one goroutine.
type history struct {
	base   time.Time
	client int
	calls  []porcupine.Operation
}

func (h *history) do(op int, c call, f func() linearAnswer) linearAnswer {
	begun := time.Since(h.base)
	a := f()
	h.calls = append(h.calls, porcupine.Operation{
		ClientId: h.client, Input: linearCall{op, c}, Output: a,
		Call: int64(begun), Return: int64(time.Since(h.base)),
	})
	return a
}

// request is an operation that can complete once ready is set.
type request struct {
	ready atomic.Bool
	end   func(purgatory.Outcome)
}

func (r *request) TryComplete() bool                     { return r.ready.Load() }
func (r *request) Complete(o purgatory.Outcome, _ error) { r.end(o) }

// P1, P2, P9: rounds of one operation each, on which several goroutines make concurrent calls.
func TestLinearizable(t *testing.T) {
	const clients = 5
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	p, err := purgatory.New[int](purgatory.Options{
		Tick:    10 * time.Microsecond,
		OnPanic: func(p purgatory.Panic) { t.Errorf("P1: an operation panicked: %v\n%s", p.Value, p.Stack) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	base := time.Now()
	logs := make([]*history, clients)
	for i := range logs {
		logs[i] = &history{base: base, client: i}
	}
	wheel := &history{base: base, client: clients}
	for i := range rounds {
		r := &round{t: t, p: p, id: i, ended: make(chan struct{})}
		r.run(logs, wheel)
	}
	all := wheel.calls
	for _, log := range logs {
		all = append(all, log.calls...)
	}
	require.True(t, porcupine.CheckOperations(sequentialModel, all))
	require.NoError(t, p.Shutdown(context.Background()))
	st := p.Stats()
	t.Logf("%d calls; completed %d, expired %d, cancelled %d", len(all), st.Completed, st.Expired, st.Cancelled)
	require.Positive(t, min(st.Completed, st.Expired, st.Cancelled))
}

// round is one operation, and the data that its goroutines share.
type round struct {
	t           *testing.T
	p           *purgatory.Purgatory[int]
	id          int
	timeout     time.Duration
	timeoutOnly bool // only its timeout ends the operation

	request request
	handle  atomic.Pointer[purgatory.Pending] // nil until TryCompleteElseWatch has returned
	checked atomic.Bool                       // a check that began after ready was set has returned
	outcome atomic.Uint32
	ended   chan struct{} // closed by Complete
}

// run makes the round's calls and returns when the operation has ended.
func (r *round) run(logs []*history, wheel *history) {
	rnd := rand.New(rand.NewPCG(uint64(r.id), 7))
	r.timeoutOnly = rnd.IntN(3) == 0
	r.timeout = purgatory.NoTimeout
	if r.timeoutOnly || rnd.IntN(2) == 0 {
		r.timeout = time.Duration(rnd.IntN(60)-5) * time.Microsecond
	}
	begun := time.Since(wheel.base)
	r.request.end = func(o purgatory.Outcome) {
		if o == purgatory.Expired {
			wheel.calls = append(wheel.calls, porcupine.Operation{
				ClientId: wheel.client, Input: linearCall{r.id, callExpire}, Output: linearAnswer{ok: true},
				Call: int64(begun), Return: int64(time.Since(wheel.base)),
			})
		}
		r.outcome.Store(uint32(o))
		close(r.ended)
	}
	var wg sync.WaitGroup
	for i, log := range logs {
		seed := rnd.Uint64()
		wg.Go(func() {
			if i == 0 {
				log.do(r.id, callWatch, r.watch)
			}
			rnd := rand.New(rand.NewPCG(seed, 1))
			for range 4 {
				r.step(log, rnd)
			}
		})
	}
	wg.Wait()
	if r.timeout != purgatory.NoTimeout {
		<-r.ended
	} else if r.checked.Load() {
		require.NotZero(r.t, r.outcome.Load(), "P2: round %d: the condition held, a check was asked for, and none was made", r.id)
	}
	if h := r.handle.Load(); h != nil && !h.IsZero() {
		logs[0].do(r.id, callCancel, func() linearAnswer { return linearAnswer{ok: h.Cancel(nil)} })
	}
	<-r.ended
	logs[0].do(r.id, callOutcome, r.read)
}

func (r *round) watch() linearAnswer {
	h, err := r.p.TryCompleteElseWatch(context.Background(), &r.request, r.timeout, 1, 2)
	if err != nil {
		r.t.Error(err)
	}
	r.handle.Store(&h)
	// It may have expired within the call.
	return linearAnswer{ok: h.IsZero() && purgatory.Outcome(r.outcome.Load()) == purgatory.Completed}
}

func (r *round) read() linearAnswer {
	return linearAnswer{outcome: purgatory.Outcome(r.outcome.Load())}
}

// step makes one call, or none.
func (r *round) step(log *history, rnd *rand.Rand) {
	if r.timeoutOnly {
		for range rnd.IntN(100) {
			runtime.Gosched()
		}
		log.do(r.id, callOutcome, r.read)
		return
	}
	h := r.handle.Load()
	mayEnd := h != nil && !h.IsZero() && rnd.IntN(4) == 0
	switch rnd.IntN(6) {
	case 0:
		log.do(r.id, callReady, func() linearAnswer { r.request.ready.Store(true); return linearAnswer{} })
	case 1, 2:
		ready := r.request.ready.Load()
		key := 1 + rnd.IntN(2)
		log.do(r.id, callCheck, func() linearAnswer { return linearAnswer{ok: r.p.CheckAndComplete(key) > 0} })
		if ready {
			r.checked.Store(true)
		}
	case 3:
		if mayEnd {
			log.do(r.id, callComplete, func() linearAnswer { return linearAnswer{ok: h.ForceComplete()} })
		}
	case 4:
		if mayEnd {
			log.do(r.id, callCancel, func() linearAnswer { return linearAnswer{ok: h.Cancel(nil)} })
		}
	case 5:
		log.do(r.id, callOutcome, r.read)
	}
}

// The search finds violations: two calls that both report that they ended the operation, a
// cancel that failed although nothing had happened, an outcome that no call decided.
func TestLinearizableFindsViolations(t *testing.T) {
	yes, no := linearAnswer{ok: true}, linearAnswer{}
	type step struct {
		call   call
		answer linearAnswer
	}
	for name, steps := range map[string][]step{
		"two winners":        {{callWatch, no}, {callCancel, yes}, {callComplete, yes}},
		"checked too soon":   {{callWatch, no}, {callCheck, yes}},
		"cancel denied":      {{callWatch, no}, {callCancel, no}},
		"undecided outcome":  {{callWatch, no}, {callCancel, yes}, {callOutcome, linearAnswer{outcome: purgatory.Completed}}},
		"ended after ending": {{callWatch, no}, {callCancel, yes}, {callExpire, yes}},
		"completed unready":  {{callWatch, yes}},
	} {
		var h []porcupine.Operation
		for i, s := range steps {
			h = append(h, porcupine.Operation{Input: linearCall{0, s.call}, Output: s.answer, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		require.False(t, porcupine.CheckOperations(sequentialModel, h), name)
	}
}
