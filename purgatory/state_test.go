package purgatory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The search below plays every interleaving of a few goroutines on one operation, with the real
// transitions of state.go. Each step of a goroutine is one transition or one half of a call of
// user code, as in waiter.go.

// threadState is the position of a goroutine.
type threadState uint8

const (
	toAcquire         threadState = iota // CheckAndComplete: before acquire
	toHold                               // a sweep: before hold
	toRelease                            // before release
	toClear                              // TryCompleteElseWatch: before takeRecheck, as the owner
	toCheck                              // before TryComplete
	inCheck                              // in TryComplete, which has read the version
	toDecideCompleted                    // before decide(Completed)
	toYield                              // before tryYield
	toDecide                             // an end by another goroutine: before decide
	toFree                               // the operation has ended, and left all lists
	toFinish                             // before Complete
	finishing                            // in Complete
	toReuse                              // before another operation uses the free record
	toYieldSecond                        // before that operation yields
	toDecideSecond                       // before that operation is ended
	finished
)

// The generations of the operations that use the record in turn.
const (
	first  = 1
	second = 2
)

// thread is one goroutine: its actions and its progress.
type thread struct {
	at      threadState
	changes bool    // makes a change before its acquire
	changed bool    // has made the change
	outcome Outcome // of its decide; then of the finish
	saw     uint8   // the version that its check saw
	version uint8   // the change for which it requested a check
}

// modelState is the operation, the history needed to verify it, and the goroutines.
type modelState struct {
	word      uint64 // of the state
	free      bool   // the operation has ended, its record may be used again
	version   uint8  // changes made
	needs     uint8  // the operation can complete from this version on; 0: never
	checked   uint8  // the version that the last check saw
	requested uint8  // the last version for which an acquire requested a check
	users     uint8  // goroutines in user code of the operation
	ended     uint8  // calls of Complete begun
	won       uint8  // calls of decide that returned won
	owners    uint8
	threads   [4]thread
	n         int
}

// step runs the next step of goroutine i. It reports a violation, if any.
func (w modelState) step(i int) (modelState, string) {
	var s state
	s.word.Store(w.word)
	th := &w.threads[i]
	addOwner := func() string {
		if w.owners++; w.owners > 1 {
			return "two owners"
		}
		return ""
	}
	violation := ""
	switch th.at {
	case toAcquire:
		if th.changes && !th.changed {
			w.version++
			th.version = w.version
			th.changed = true
			return w, "" // the change is a step of its own
		}
		if s.acquire(first) {
			violation = addOwner()
			th.at = toCheck
		} else {
			th.at = finished
		}
		w.requested = max(w.requested, th.version)
	case toHold:
		th.at = finished
		if s.hold(first) {
			violation = addOwner()
			th.at = toRelease
		}
	case toRelease:
		if w.owners--; w.word != first<<genShift|held {
			violation = "a goroutine did not wait for a sweep"
		}
		s.release(first)
		th.at = finished
	case toClear:
		s.takeRecheck()
		th.at = toCheck
	case toCheck:
		th.saw = w.version
		if w.users++; w.users > 1 {
			violation = "a check overlaps"
		}
		if w.ended > 0 {
			violation = "a check follows Complete"
		}
		th.at = inCheck
	case inCheck:
		w.users--
		w.checked = max(w.checked, th.saw)
		th.at = toYield
		if w.needs != 0 && th.saw >= w.needs {
			th.at = toDecideCompleted
		}
	case toDecideCompleted:
		if s.decideAsOwner(Completed) {
			w.won++
		}
		th.at = toYield
	case toYield:
		switch o, again := s.tryYield(); {
		case o != 0:
			th.outcome, th.at = o, toFree
		case again:
			th.at = toCheck
		default:
			w.owners--
			th.at = finished
		}
	case toDecide:
		won, owns := s.decide(first, th.outcome)
		if won {
			w.won++
		}
		th.at = finished
		if owns {
			violation = addOwner()
			th.at = toFree
			if !won {
				violation = "ends an operation that it has not decided"
			}
		}
	case toFree:
		if got := outcomeOf(s.word.Load()); got != th.outcome {
			violation = fmt.Sprintf("ends as %v an operation that is decided to be %v", th.outcome, got)
		}
		w.free = true
		th.at = toFinish
	case toFinish:
		if w.users++; w.users > 1 {
			violation = "Complete overlaps"
		}
		if w.ended++; w.ended > 1 {
			violation = "a second Complete"
		}
		th.at = finishing
	case finishing:
		w.users--
		th.at = finished
	case toReuse:
		s.begin()
		th.at = toYieldSecond
	case toYieldSecond:
		if o, again := s.tryYield(); o != 0 || again {
			violation = "a request for the first operation has reached the second"
		}
		th.at = toDecideSecond
	case toDecideSecond:
		if won, owns := s.decide(second, Closed); !won || !owns {
			violation = "a transition for the first operation has reached the second"
		}
		th.at = finished
	}
	w.word = s.word.Load()
	if w.won > 1 {
		violation = "two calls of decide won"
	}
	return w, violation
}

// verifyFinal reports a violation in the final state, when all goroutines have finished.
func (w modelState) verifyFinal() string {
	decided := w.free || outcomeOf(w.word) != 0
	switch {
	case decided && (w.ended != 1 || w.won != 1):
		return fmt.Sprintf("decided by %d, Complete called %d times", w.won, w.ended)
	case !decided && w.word != first<<genShift:
		return fmt.Sprintf("at rest with state %b", w.word)
	case !decided && w.checked < w.requested:
		return "a requested check did not run"
	case !decided && w.needs != 0 && w.version >= w.needs:
		return "it can complete, and no goroutine will check"
	}
	return ""
}

// search plays all interleavings from w on. It returns the number of states, and the path to
// the first violation.
func search(w modelState) (states int, violation []string) {
	seen := map[modelState]bool{}
	var from func(w modelState) []string
	from = func(w modelState) []string {
		if seen[w] {
			return nil
		}
		seen[w] = true
		allFinished, stuck := true, true
		for i := range w.n {
			th := w.threads[i]
			if th.at == finished || th.at == toReuse && !w.free {
				continue
			}
			allFinished = false
			if w.word&held != 0 && (th.at == toAcquire && th.changes == th.changed || th.at == toDecide) {
				continue // the goroutine waits
			}
			stuck = false
			next, violationHere := w.step(i)
			here := fmt.Sprintf("goroutine %d at %d, state %03b -> %03b", i, w.threads[i].at, w.word, next.word)
			if violationHere != "" {
				return []string{here, violationHere}
			}
			if path := from(next); path != nil {
				return append([]string{here}, path...)
			}
		}
		violationHere := ""
		if allFinished {
			violationHere = w.verifyFinal()
		} else if stuck {
			violationHere = "no goroutine can proceed"
		}
		if violationHere != "" {
			return []string{violationHere}
		}
		return nil
	}
	violation = from(w)
	return len(seen), violation
}

// P1, P2, P3, purgatory 1 and 2: in every interleaving of up to four goroutines there is one
// owner, every requested check runs, a decided operation has exactly one Complete, which no
// check overlaps or follows, and no goroutine that refers to it reaches the record's next
// operation.
func TestStateEveryInterleaving(t *testing.T) {
	register := thread{at: toClear}
	check := thread{at: toAcquire, changes: true}
	idleCheck := thread{at: toAcquire}
	cancel := thread{at: toDecide, outcome: Cancelled}
	expire := thread{at: toDecide, outcome: Expired}
	reuse := thread{at: toReuse}
	sweep := thread{at: toHold}
	candidates := []thread{register, check, idleCheck, cancel, expire, reuse, sweep}
	total := 0
	var play func(chosen []thread, from int)
	play = func(chosen []thread, from int) {
		for needs := range uint8(4) {
			w := modelState{needs: needs, n: copy(make([]thread, 4), chosen), word: first << genShift}
			copy(w.threads[:], chosen)
			if slices.Contains(chosen, register) {
				var s state
				s.begin() // the first generation
				w.word, w.owners = s.word.Load(), 1
			}
			n, violation := search(w)
			total += n
			require.Empty(t, violation, "the goroutines begin at %+v; needs %d", chosen, needs)
		}
		if len(chosen) == 4 {
			return
		}
		for i := from; i < len(candidates); i++ {
			if (candidates[i] == register || candidates[i] == reuse || candidates[i] == sweep) && slices.Contains(chosen, candidates[i]) {
				continue // both operations are registered once, and swept once
			}
			play(append(slices.Clone(chosen), candidates[i]), i)
		}
	}
	play(nil, 0)
	t.Logf("%d states", total)
	require.Greater(t, total, 10_000)
}

// The search finds the lost wake-up of Kafka's first version, with a transition that gives up
// without leaving a mark.
func TestStateSearchFindsALostCheck(t *testing.T) {
	w := modelState{needs: 1, n: 2, word: first<<genShift | running, owners: 1}
	w.threads[0] = thread{at: toCheck}
	w.threads[1] = thread{at: finished}
	w.version = 0
	w, _ = w.step(0) // it checks, and sees version 0
	w.version, w.requested = 1, 1
	_, violation := search(w) // the goroutine that made the change has left
	require.NotEmpty(t, violation)
	require.Equal(t, "a requested check did not run", violation[len(violation)-1])
}

// Each transition, word by word, as in the table in state.go.
func TestStateTransitions(t *testing.T) {
	const (
		idle       = first << genShift
		owned      = idle | running
		requested  = owned | recheck
		expired    = owned | uint64(Expired)<<outcomeShift
		cancelled  = owned | uint64(Cancelled)<<outcomeShift
		otherOwned = second<<genShift | running
		other      = second << genShift
		swept      = idle | held
	)
	for _, c := range []struct {
		name     string
		from, to uint64
		result   string
		by       func(*state) string
	}{
		{"acquire", idle, owned, "true", acquired},
		{"acquire", owned, requested, "false", acquired},
		{"acquire", other, other, "false", acquired},
		{"acquire", otherOwned, otherOwned, "false", acquired},
		{"decide", other, other, "false false", cancels},
		{"decide", otherOwned, otherOwned, "false false", cancels},
		{"yield", owned, idle, "true", yields},
		{"yield", requested, requested, "false", yields},
		{"yield", cancelled, cancelled, "false", yields},
		{"hold", idle, swept, "true", holds},
		{"hold", owned, owned, "false", holds},
		{"hold", swept, swept, "false", holds},
		{"hold", other, other, "false", holds},
		{"hold", expired, expired, "false", holds},
		{"release", swept, idle, "", releases},
		{"begin", expired, otherOwned, "", begins},
		{"acquire", requested, requested, "false", acquired},
		{"acquire", expired, expired, "false", acquired},
		{"decide", idle, cancelled, "true true", cancels},
		{"decide", owned, cancelled, "true false", cancels},
		{"decide", requested, cancelled, "true false", cancels},
		{"decide", expired, expired, "false false", cancels},
		{"tryYield", owned, idle, "Outcome(0) false", triesYield},
		{"tryYield", requested, owned, "Outcome(0) true", triesYield},
		{"tryYield", expired, expired, "expired false", triesYield},
		{"takeRecheck", owned, owned, "false", cleared},
		{"takeRecheck", requested, owned, "true", cleared},
		{"takeRecheck", expired, expired, "false", cleared},
	} {
		var s state
		s.word.Store(c.from)
		require.Equal(t, c.result, c.by(&s), "%s from %05b", c.name, c.from)
		require.Equal(t, c.to, s.word.Load(), "%s from %05b", c.name, c.from)
		require.Equal(t, outcomeOf(c.to) != 0, s.decided())
	}
}

// acquire and decide wait while a sweep holds the operation, and then find it idle.
func TestStateWaitsForASweep(t *testing.T) {
	for name, by := range map[string]func(*state) string{"acquire": acquired, "decide": cancels} {
		var s, idle state
		s.word.Store(first << genShift)
		idle.word.Store(first << genShift)
		require.True(t, s.hold(first))
		result := make(chan string)
		go func() { result <- by(&s) }()
		select {
		case <-result:
			t.Fatalf("%s did not wait", name)
		case <-time.After(5 * time.Millisecond):
		}
		s.release(first)
		require.Equal(t, by(&idle), <-result, name)
		require.Equal(t, idle.word.Load(), s.word.Load(), name)
	}
}

func acquired(s *state) string   { return fmt.Sprint(s.acquire(first)) }
func holds(s *state) string      { return fmt.Sprint(s.hold(first)) }
func releases(s *state) string   { s.release(first); return "" }
func triesYield(s *state) string { return fmt.Sprint(s.tryYield()) }
func cancels(s *state) string    { return fmt.Sprint(s.decide(first, Cancelled)) }
func yields(s *state) string     { return fmt.Sprint(s.yield(first)) }
func begins(s *state) string     { s.begin(); return "" }
func cleared(s *state) string    { return fmt.Sprint(s.takeRecheck()) }
