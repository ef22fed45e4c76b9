package purgatory

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// What is called on one operation, by any goroutine at any time, is
// linearizable (Herlihy and Wing, 1990): whatever overlaps, there is an order in
// which a simple operation, to which one thing happens at a time, would have
// given the same answers. Porcupine searches for that order.

type call uint8

const (
	callWatch    call = iota // says whether the operation completed within the call
	callReady                // the condition holds from now on
	callCheck                // says whether this call completed it
	callComplete             // likewise
	callCancel               // says whether this call cancelled it
	callExpire               // by the wheel; says true, for nobody sees it otherwise
	callOutcome              // what Complete was called with; 0: not yet
)

type linearCall struct {
	op   int // histories of different operations are independent
	call call
}

type linearAnswer struct {
	yes     bool
	outcome Outcome
}

// simple is an operation to which one thing happens at a time.
type simple struct {
	watched, ready bool
	outcome        Outcome
}

func (s simple) end(o Outcome) (bool, simple) {
	if !s.watched || s.outcome != 0 {
		return false, s
	}
	s.outcome = o
	return true, s
}

var simpleOperation = porcupine.Model{
	Init: func() any { return simple{} },
	Step: func(state, input, output any) (bool, any) {
		s, a := state.(simple), output.(linearAnswer)
		switch input.(linearCall).call {
		case callWatch:
			if s.watched {
				return false, s
			}
			s.watched = true
			if !a.yes {
				return true, s
			}
			ok, s := s.end(Completed)
			return ok && s.ready, s
		case callReady:
			s.ready = true
			return true, s
		case callCheck:
			if !a.yes {
				// It may leave the look to somebody else, whatever is the case;
				// that the look is had is seen at the end.
				return true, s
			}
			ok, after := s.end(Completed)
			return ok && s.ready, after
		case callComplete:
			ok, after := s.end(Completed)
			return ok == a.yes, after
		case callCancel:
			ok, after := s.end(Cancelled)
			return ok == a.yes, after
		case callExpire:
			return s.end(Expired)
		case callOutcome:
			// Complete is called after the outcome is decided, so 0 is always true.
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

// history is what one goroutine has called.
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

// P1, P2, P9: rounds of one operation each, met by several goroutines at once.
func TestLinearizable(t *testing.T) {
	const clients = 5
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	p := open[int](t, Options{Tick: 10 * time.Microsecond, Shards: 2})
	base := time.Now()
	logs := make([]*history, clients)
	for i := range logs {
		logs[i] = &history{base: base, client: i}
	}
	var all []porcupine.Operation
	for round := range rounds {
		op := newOp(t)
		var outcome atomic.Uint32
		var expired porcupine.Operation
		ended := make(chan struct{})
		rnd := rand.New(rand.NewPCG(uint64(round), 7))
		quiet := rnd.IntN(3) == 0 // nothing but its timeout ends it
		timeout := NoTimeout
		if quiet || rnd.IntN(2) == 0 {
			timeout = time.Duration(rnd.IntN(60)-5) * time.Microsecond
		}
		begun := time.Since(base)
		op.end = func(o Outcome) {
			if o == Expired {
				expired = porcupine.Operation{
					ClientId: clients, Input: linearCall{round, callExpire}, Output: linearAnswer{yes: true},
					Call: int64(begun), Return: int64(time.Since(base)),
				}
			}
			outcome.Store(uint32(o))
			close(ended)
		}
		var known atomic.Pointer[Pending]
		handle := func() Pending {
			if h := known.Load(); h != nil {
				return *h
			}
			return Pending{}
		}
		var asked atomic.Bool // a check that began when the condition held has returned
		var wg sync.WaitGroup
		for i, log := range logs {
			seed := rnd.Uint64()
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, 1))
				if i == 0 {
					log.do(round, callWatch, func() linearAnswer {
						h, err := p.TryCompleteElseWatch(op, timeout, 1, 2)
						if err != nil {
							t.Error(err)
						}
						known.Store(&h)
						return linearAnswer{yes: h.IsZero()}
					})
				}
				for range 4 {
					h := handle()
					what := r.IntN(6)
					if quiet {
						what = 5
						time.Sleep(10 * time.Microsecond)
					}
					switch what {
					case 0:
						log.do(round, callReady, func() linearAnswer { op.ready.Store(true); return linearAnswer{} })
					case 1, 2:
						ready := op.ready.Load()
						log.do(round, callCheck, func() linearAnswer { return linearAnswer{yes: p.CheckAndComplete(1+r.IntN(2)) > 0} })
						if ready {
							asked.Store(true)
						}
					case 3:
						if !h.IsZero() && r.IntN(4) == 0 {
							log.do(round, callComplete, func() linearAnswer { return linearAnswer{yes: h.Complete()} })
						}
					case 4:
						if !h.IsZero() && r.IntN(4) == 0 {
							log.do(round, callCancel, func() linearAnswer { return linearAnswer{yes: h.Cancel()} })
						}
					case 5:
						log.do(round, callOutcome, func() linearAnswer { return linearAnswer{outcome: Outcome(outcome.Load())} })
					}
				}
			})
		}
		wg.Wait()
		if timeout != NoTimeout {
			<-ended
		} else if asked.Load() {
			require.NotZero(t, outcome.Load(), "P2: round %d: the condition held, a check was asked for, and none was had", round)
		}
		log := logs[0]
		if h := handle(); !h.IsZero() {
			log.do(round, callCancel, func() linearAnswer { return linearAnswer{yes: h.Cancel()} })
		}
		<-ended
		log.do(round, callOutcome, func() linearAnswer { return linearAnswer{outcome: Outcome(outcome.Load())} })
		if expired.Output != nil {
			all = append(all, expired)
		}
	}
	for _, log := range logs {
		all = append(all, log.calls...)
	}
	result := porcupine.CheckOperationsTimeout(simpleOperation, all, time.Minute)
	require.Equal(t, porcupine.Ok, result)
	require.NoError(t, p.Shutdown(context.Background()))
	st := p.Stats()
	t.Logf("%d calls; completed %d, expired %d, cancelled %d", len(all), st.Completed, st.Expired, st.Cancelled)
	require.Positive(t, min(st.Completed, st.Expired, st.Cancelled))
}

// The search does find what is wrong: two calls that both say they decided it,
// a cancel that says no while nothing has happened, an outcome that nobody
// decided.
func TestLinearizableFindsWhatIsNot(t *testing.T) {
	yes, no := linearAnswer{yes: true}, linearAnswer{}
	type step struct {
		call   call
		answer linearAnswer
	}
	for name, steps := range map[string][]step{
		"two winners":        {{callWatch, no}, {callCancel, yes}, {callComplete, yes}},
		"checked too soon":   {{callWatch, no}, {callCheck, yes}},
		"cancel denied":      {{callWatch, no}, {callCancel, no}},
		"nobody's outcome":   {{callWatch, no}, {callCancel, yes}, {callOutcome, linearAnswer{outcome: Completed}}},
		"ended after ending": {{callWatch, no}, {callCancel, yes}, {callExpire, yes}},
		"completed unready":  {{callWatch, yes}},
	} {
		var h []porcupine.Operation
		for i, s := range steps {
			h = append(h, porcupine.Operation{Input: linearCall{0, s.call}, Output: s.answer, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		require.False(t, porcupine.CheckOperations(simpleOperation, h), name)
	}
}
