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

// at is the position of a goroutine.
type at uint8

const (
	toAcquire at = iota // CheckAndComplete: before acquire
	toHold              // a sweep: before hold
	toRelease           // before release
	toClear             // TryCompleteElseWatch: before takeRecheck, as the owner
	toCheck             // before TryComplete
	looking             // in TryComplete, which has read the version
	toSay               // before decide(Completed)
	toYield             // before tryYield
	toDecide            // an end by another goroutine: before decide
	toFree              // the operation has ended, and left all lists
	toFinish            // before Complete
	finishing           // in Complete
	toReuse             // before another operation uses the free record
	toRest              // before that operation yields
	toEnd               // before that operation is ended
	gone
)

// The generations of the operations that use the record in turn.
const (
	first  = 1
	second = 2
)

// thread is one goroutine: its script and its progress.
type thread struct {
	at      at
	changes bool    // makes a change before its acquire
	changed bool    // has made the change
	outcome Outcome // of its decide; then of the finish
	saw     uint8   // the version that its check saw
	version uint8   // the change for which it requested a check
}

// world is the operation, the history needed to verify it, and the goroutines.
type world struct {
	word    uint64 // of the state
	free    bool   // the operation has ended, its record may be used again
	version uint8  // changes made
	needs   uint8  // the operation can complete from this version on; 0: never
	looked  uint8  // the version that the last check saw
	asked   uint8  // the last version for which an acquire requested a check
	users   uint8  // goroutines in user code of the operation
	ended   uint8  // calls of Complete begun
	won     uint8  // calls of decide that returned won
	owners  uint8
	threads [4]thread
	n       int
}

// step runs the next step of goroutine i. It reports a violation, if any.
func (w world) step(i int) (world, string) {
	var s state
	s.word.Store(w.word)
	th := &w.threads[i]
	own := func() string {
		if w.owners++; w.owners > 1 {
			return "two owners"
		}
		return ""
	}
	broken := ""
	switch th.at {
	case toAcquire:
		if th.changes && !th.changed {
			w.version++
			th.version = w.version
			th.changed = true
			return w, "" // the change is a step of its own
		}
		if s.acquire(first) {
			broken = own()
			th.at = toCheck
		} else {
			th.at = gone
		}
		w.asked = max(w.asked, th.version)
	case toHold:
		th.at = gone
		if s.hold(first) {
			broken = own()
			th.at = toRelease
		}
	case toRelease:
		if w.owners--; w.word != first<<genShift|held {
			broken = "somebody did not wait for a sweep"
		}
		s.release(first)
		th.at = gone
	case toClear:
		s.takeRecheck()
		th.at = toCheck
	case toCheck:
		th.saw = w.version
		if w.users++; w.users > 1 {
			broken = "a check overlaps"
		}
		if w.ended > 0 {
			broken = "a check follows Complete"
		}
		th.at = looking
	case looking:
		w.users--
		w.looked = max(w.looked, th.saw)
		th.at = toYield
		if w.needs != 0 && th.saw >= w.needs {
			th.at = toSay
		}
	case toSay:
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
			th.at = gone
		}
	case toDecide:
		won, mine := s.decide(first, th.outcome)
		if won {
			w.won++
		}
		th.at = gone
		if mine {
			broken = own()
			th.at = toFree
			if !won {
				broken = "ends what it has not decided"
			}
		}
	case toFree:
		if got := outcomeOf(s.word.Load()); got != th.outcome {
			broken = fmt.Sprintf("ends as %v what is decided to be %v", th.outcome, got)
		}
		w.free = true
		th.at = toFinish
	case toFinish:
		if w.users++; w.users > 1 {
			broken = "Complete overlaps"
		}
		if w.ended++; w.ended > 1 {
			broken = "a second Complete"
		}
		th.at = finishing
	case finishing:
		w.users--
		th.at = gone
	case toReuse:
		s.begin()
		th.at = toRest
	case toRest:
		if o, again := s.tryYield(); o != 0 || again {
			broken = "somebody wants something of the second operation who meant the first"
		}
		th.at = toEnd
	case toEnd:
		if won, mine := s.decide(second, Closed); !won || !mine {
			broken = "somebody has the second operation who meant the first"
		}
		th.at = gone
	}
	w.word = s.word.Load()
	if w.won > 1 {
		broken = "two that won"
	}
	return w, broken
}

// atRest reports a violation in the final state, when all goroutines have finished.
func (w world) atRest() string {
	decided := w.free || outcomeOf(w.word) != 0
	switch {
	case decided && (w.ended != 1 || w.won != 1):
		return fmt.Sprintf("decided by %d, Complete called %d times", w.won, w.ended)
	case !decided && w.word != first<<genShift:
		return fmt.Sprintf("at rest with state %b", w.word)
	case !decided && w.looked < w.asked:
		return "a look that was asked for was not had"
	case !decided && w.needs != 0 && w.version >= w.needs:
		return "it can complete, and no goroutine will check"
	}
	return ""
}

// search plays all interleavings from w on. It returns the number of states, and the path to
// the first violation.
func search(w world) (states int, broken []string) {
	seen := map[world]bool{}
	var from func(w world) []string
	from = func(w world) []string {
		if seen[w] {
			return nil
		}
		seen[w] = true
		rest, stuck := true, true
		for i := range w.n {
			th := w.threads[i]
			if th.at == gone || th.at == toReuse && !w.free {
				continue
			}
			rest = false
			if w.word&held != 0 && (th.at == toAcquire && th.changes == th.changed || th.at == toDecide) {
				continue // the goroutine waits
			}
			stuck = false
			next, what := w.step(i)
			here := fmt.Sprintf("goroutine %d at %d, state %03b -> %03b", i, w.threads[i].at, w.word, next.word)
			if what != "" {
				return []string{here, what}
			}
			if way := from(next); way != nil {
				return append([]string{here}, way...)
			}
		}
		what := ""
		if rest {
			what = w.atRest()
		} else if stuck {
			what = "no goroutine can proceed"
		}
		if what != "" {
			return []string{what}
		}
		return nil
	}
	broken = from(w)
	return len(seen), broken
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
	cast := []thread{register, check, idleCheck, cancel, expire, reuse, sweep}
	total := 0
	var play func(chosen []thread, from int)
	play = func(chosen []thread, from int) {
		for needs := range uint8(4) {
			w := world{needs: needs, n: copy(make([]thread, 4), chosen), word: first << genShift}
			copy(w.threads[:], chosen)
			if slices.Contains(chosen, register) {
				var s state
				s.begin() // the first generation
				w.word, w.owners = s.word.Load(), 1
			}
			n, broken := search(w)
			total += n
			require.Empty(t, broken, "the goroutines begin at %+v; needs %d", chosen, needs)
		}
		if len(chosen) == 4 {
			return
		}
		for i := from; i < len(cast); i++ {
			if (cast[i] == register || cast[i] == reuse || cast[i] == sweep) && slices.Contains(chosen, cast[i]) {
				continue // both operations are registered once, and swept once
			}
			play(append(slices.Clone(chosen), cast[i]), i)
		}
	}
	play(nil, 0)
	t.Logf("%d states", total)
	require.Greater(t, total, 10_000)
}

// The search finds the lost wake-up of Kafka's first version, with a transition that gives up
// without leaving a mark.
func TestStateSearchFindsALostCheck(t *testing.T) {
	w := world{needs: 1, n: 2, word: first<<genShift | running, owners: 1}
	w.threads[0] = thread{at: toCheck}
	w.threads[1] = thread{at: gone}
	w.version = 0
	w, _ = w.step(0) // it checks, and sees version 0
	w.version, w.asked = 1, 1
	_, broken := search(w) // the goroutine that made the change has left
	require.NotEmpty(t, broken)
	require.Equal(t, "a look that was asked for was not had", broken[len(broken)-1])
}

// Each transition, word by word, as in the table in state.go.
func TestStateTransitions(t *testing.T) {
	const (
		idle      = first << genShift
		owned     = idle | running
		asked     = owned | recheck
		expired   = owned | uint64(Expired)<<outcomeShift
		cancelled = owned | uint64(Cancelled)<<outcomeShift
		taken     = second<<genShift | running
		stranger  = second << genShift
		swept     = idle | held
	)
	for _, c := range []struct {
		name     string
		from, to uint64
		says     string
		by       func(*state) string
	}{
		{"acquire", idle, owned, "true", acquired},
		{"acquire", owned, asked, "false", acquired},
		{"acquire", stranger, stranger, "false", acquired},
		{"acquire", taken, taken, "false", acquired},
		{"decide", stranger, stranger, "false false", cancels},
		{"decide", taken, taken, "false false", cancels},
		{"yield", owned, idle, "true", yields},
		{"yield", asked, asked, "false", yields},
		{"yield", cancelled, cancelled, "false", yields},
		{"hold", idle, swept, "true", holds},
		{"hold", owned, owned, "false", holds},
		{"hold", swept, swept, "false", holds},
		{"hold", stranger, stranger, "false", holds},
		{"hold", expired, expired, "false", holds},
		{"release", swept, idle, "", releases},
		{"begin", expired, taken, "", begins},
		{"acquire", asked, asked, "false", acquired},
		{"acquire", expired, expired, "false", acquired},
		{"decide", idle, cancelled, "true true", cancels},
		{"decide", owned, cancelled, "true false", cancels},
		{"decide", asked, cancelled, "true false", cancels},
		{"decide", expired, expired, "false false", cancels},
		{"tryYield", owned, idle, "Outcome(0) false", settled},
		{"tryYield", asked, owned, "Outcome(0) true", settled},
		{"tryYield", expired, expired, "expired false", settled},
		{"takeRecheck", owned, owned, "false", cleared},
		{"takeRecheck", asked, owned, "true", cleared},
		{"takeRecheck", expired, expired, "false", cleared},
	} {
		var s state
		s.word.Store(c.from)
		require.Equal(t, c.says, c.by(&s), "%s from %05b", c.name, c.from)
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
		says := make(chan string)
		go func() { says <- by(&s) }()
		select {
		case <-says:
			t.Fatalf("%s did not wait", name)
		case <-time.After(5 * time.Millisecond):
		}
		s.release(first)
		require.Equal(t, by(&idle), <-says, name)
		require.Equal(t, idle.word.Load(), s.word.Load(), name)
	}
}

func acquired(s *state) string { return fmt.Sprint(s.acquire(first)) }
func holds(s *state) string    { return fmt.Sprint(s.hold(first)) }
func releases(s *state) string { s.release(first); return "" }
func settled(s *state) string  { return fmt.Sprint(s.tryYield()) }
func cancels(s *state) string  { return fmt.Sprint(s.decide(first, Cancelled)) }
func yields(s *state) string   { return fmt.Sprint(s.yield(first)) }
func begins(s *state) string   { s.begin(); return "" }
func cleared(s *state) string  { return fmt.Sprint(s.takeRecheck()) }
