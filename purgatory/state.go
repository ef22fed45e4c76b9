package purgatory

import (
	"runtime"
	"sync/atomic"
)

// state is where an operation stands: three flags, an outcome, and the generation
// of its record, in one word.
//
//	running   somebody owns the operation: registers, checks or ends it
//	recheck   somebody found it running and asks for one more check
//	held      a sweep enters its timeout on the wheel
//	outcome   decided; 0: not yet
//	gen       which of the operations that the record has served; the zero
//	          record served none. 56 bits do not wrap.
//
// The transitions, each one compare-and-swap:
//
//	          acquire             tryYield: nothing asked
//	idle ───────────────▶ running ───────────────▶ idle
//	          acquire              tryYield: check again
//	running ───────────────▶ running+recheck ───────────────▶ running
//	          decide
//	idle ───────────────▶ running+outcome              (the decider ends it)
//	          decide               tryYield
//	running ───────────────▶ running+outcome           (the owner ends it)
//	           hold                 release
//	idle ───────────────▶ held ───────────────▶ idle
//
// acquire and decide wait for release: no code of the user's comes before it, and mostly
// less than a microsecond. So whoever ends an operation of which no check runs has
// called its Complete when he returns.
//
// running is never cleared once an outcome is decided, so:
//
// Invariant: the first decide wins, and exactly one goroutine finds itself the
// owner of a decided operation; it calls Complete, once (P1), when no check
// runs or will ever run again (P3).
//
// Invariant: whoever fails to acquire a running operation has left recheck set,
// or found an outcome. The owner's step to idle fails while recheck is set, so a
// check begins after every acquire (P2). That is what Kafka's first version
// missed:
//
//  1. T1 checks, and sees "no".
//  2. T2 makes it "yes", tries the operation's lock, fails, and leaves.
//  3. T1 unlocks. Nobody checks again before the timeout (KAFKA-6653).
//
// Here step 2 leaves recheck behind, and step 3 does not succeed with it set.
//
// Invariant: a free record is decided, or nobody names its generation, until begin:
// it is new, or its operation was refused before others could meet it.
// Every transition is of the word as it was read, with its generation, so one
// that was meant for an operation of the past fails.
type state struct{ word atomic.Uint64 }

const (
	running      = 1 << 0
	recheck      = 1 << 1
	held         = 1 << 2
	outcomeShift = 3
	genShift     = 8
)

// outcomeOf returns the outcome in a word.
func outcomeOf(w uint64) Outcome {
	return Outcome(w >> outcomeShift & (1<<(genShift-outcomeShift) - 1))
}

// begin makes the state that of a new operation, which the caller owns. It
// returns the operation's generation.
func (s *state) begin() (gen uint64) {
	gen = s.generation() + 1
	s.word.Store(gen<<genShift | running)
	return gen
}

func (s *state) generation() uint64 { return s.word.Load() >> genShift }

// acquire requests a check. It reports whether the caller now owns the operation and
// must run it; else the owner will, or the operation is ending, or of the past.
func (s *state) acquire(gen uint64) bool {
	for {
		w := s.word.Load()
		switch {
		case w>>genShift != gen || outcomeOf(w) != 0:
			return false
		case w&held != 0:
			runtime.Gosched()
		case w&running == 0:
			if s.word.CompareAndSwap(w, w|running) {
				return true
			}
		default:
			// Written also if recheck is set already, so that what the caller did
			// before is visible to the check that is asked for by Go's memory
			// model, which gives a mere read no such order.
			if s.word.CompareAndSwap(w, w|recheck) {
				return false
			}
		}
	}
}

// hold keeps everybody away from an operation that waits and that nobody owns, until
// release; false: it does not wait, or somebody owns it. Unlike acquire it asks for nothing.
func (s *state) hold(gen uint64) bool {
	return s.word.CompareAndSwap(gen<<genShift, gen<<genShift|held)
}

func (s *state) release(gen uint64) { s.word.Store(gen << genShift) }

// decide sets the outcome if there is none. won: this call did. mine: and the
// caller owns the operation now, and ends it; otherwise its owner does.
func (s *state) decide(gen uint64, o Outcome) (won, mine bool) {
	for {
		w := s.word.Load()
		if w>>genShift != gen || outcomeOf(w) != 0 {
			return false, false
		}
		if w&held != 0 {
			runtime.Gosched()
			continue
		}
		if s.word.CompareAndSwap(w, w&^recheck|running|uint64(o)<<outcomeShift) {
			return true, w&running == 0
		}
	}
}

// decideAsOwner is decide, by the owner.
func (s *state) decideAsOwner(o Outcome) (won bool) {
	won, _ = s.decide(s.generation(), o)
	return won
}

// decided reports whether there is an outcome. The owner asks.
func (s *state) decided() bool { return outcomeOf(s.word.Load()) != 0 }

// waits reports whether an operation has no outcome yet. Anybody asks.
func (s *state) waits(gen uint64) bool {
	w := s.word.Load()
	return w>>genShift == gen && outcomeOf(w) == 0
}

// takeRecheck reports whether a check was asked for, and forgets it: the owner is
// about to run one.
func (s *state) takeRecheck() bool {
	if s.word.Load()&recheck == 0 {
		return false
	}
	return s.word.And(^uint64(recheck))&recheck != 0
}

// yield is tryYield where nothing was asked for and nothing decided; false: it is
// not so, and tryYield has to see to it.
func (s *state) yield(gen uint64) bool {
	return s.word.CompareAndSwap(gen<<genShift|running, gen<<genShift)
}

// tryYield is the owner's way out after a check. o != 0: an outcome is decided,
// and the caller ends the operation. again: the caller is to check once more.
// Otherwise the caller does not own the operation any more.
func (s *state) tryYield() (o Outcome, again bool) {
	for {
		w := s.word.Load()
		if o := outcomeOf(w); o != 0 {
			return o, false
		}
		if s.word.CompareAndSwap(w, w&^(running|recheck)|w&recheck>>1) {
			return 0, w&recheck != 0
		}
	}
}
