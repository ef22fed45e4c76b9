package purgatory

import (
	"runtime"
	"sync/atomic"
)

// state is the state of an operation in one word: three flags, an outcome, and the generation
// of its record.
//
//	running   a goroutine owns the operation: it registers, checks or ends it
//	recheck   another goroutine found it running and asks for one more check
//	held      a sweep is entering its timeout on the wheel
//	outcome   0: not yet decided
//	gen       the number of operations that the record has served, this one
//	          included; 0 in a new record. 56 bits do not wrap.
//
// The transitions, each one compare-and-swap:
//
//	          acquire             tryYield: no recheck
//	idle ───────────────▶ running ───────────────▶ idle
//	          acquire              tryYield: recheck
//	running ───────────────▶ running+recheck ───────────────▶ running
//	          decide
//	idle ───────────────▶ running+outcome              (the decider ends it)
//	          decide               tryYield
//	running ───────────────▶ running+outcome           (the owner ends it)
//	           hold                 release
//	idle ───────────────▶ held ───────────────▶ idle
//
// acquire and decide wait for release: no user code runs before it, and it mostly takes less
// than a microsecond. So a goroutine that ends an operation while no check of it runs has
// called its Complete by the time it returns.
//
// running is never cleared once an outcome is decided, so:
//
// Invariant: the first decide wins, and exactly one goroutine finds itself the owner of a
// decided operation; it calls Complete once (one outcome, P1), when no check runs or will ever
// run again (checks are alone, P3).
//
// Invariant: a goroutine that fails to acquire a running operation has set recheck, or found an
// outcome. The owner's step to idle fails while recheck is set, so a check begins after every
// acquire (no lost wake-up, P2). Kafka's first version missed that:
//
//  1. T1 checks, and sees "no".
//  2. T2 makes it "yes", tries the operation's lock, fails, and leaves.
//  3. T1 unlocks. No check follows before the timeout (KAFKA-6653).
//
// Here step 2 sets recheck, so step 3 fails and T1 checks again.
//
// Invariant: until begin, a free record is decided, or no handle has its generation, because
// the record is new or its operation was refused before other goroutines could see it. Every
// transition compares the whole word, including the generation, so a transition that was meant
// for an earlier operation fails.
type state struct{ word atomic.Uint64 }

const (
	running      = 1 << 0
	recheck      = 1 << 1
	held         = 1 << 2
	outcomeShift = 3
	genShift     = 8
	outcomeMask  = 1<<(genShift-outcomeShift) - 1
)

// outcomeOf returns the outcome in a word.
func outcomeOf(w uint64) Outcome { return Outcome(w >> outcomeShift & outcomeMask) }

// begin makes this the state of a new operation, which the caller owns. It returns the
// operation's generation.
func (s *state) begin() (gen uint64) {
	gen = s.generation() + 1
	s.word.Store(gen<<genShift | running)
	return gen
}

func (s *state) generation() uint64 { return s.word.Load() >> genShift }

// acquire requests a check. It reports whether the caller now owns the operation and must run
// the check; otherwise the owner will, or the operation is ending, or the generation is an
// earlier one.
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
			// Written even if recheck is already set, so that under Go's memory model the
			// caller's earlier writes are visible to the requested check. A mere read gives no
			// such order.
			if s.word.CompareAndSwap(w, w|recheck) {
				return false
			}
		}
	}
}

// hold keeps other goroutines away from a waiting operation that has no owner, until release.
// It reports false if the operation does not wait or has an owner. Unlike acquire it does not
// request a check.
func (s *state) hold(gen uint64) bool {
	return s.word.CompareAndSwap(gen<<genShift, gen<<genShift|held)
}

func (s *state) release(gen uint64) { s.word.Store(gen << genShift) }

// decide sets the outcome if there is none. won reports whether this call did so, and owns
// whether the caller now owns the operation and must end it; otherwise its owner does.
func (s *state) decide(gen uint64, o Outcome) (won, owns bool) {
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

// decideAsOwner is decide for the owner.
func (s *state) decideAsOwner(o Outcome) (won bool) {
	won, _ = s.decide(s.generation(), o)
	return won
}

// decided reports whether there is an outcome. Only the owner calls it.
func (s *state) decided() bool { return outcomeOf(s.word.Load()) != 0 }

// waiting reports whether an operation has no outcome yet. Any goroutine may call it.
func (s *state) waiting(gen uint64) bool {
	w := s.word.Load()
	return w>>genShift == gen && outcomeOf(w) == 0
}

// takeRecheck clears recheck and reports whether it was set. The owner calls it just before it
// runs a check.
func (s *state) takeRecheck() bool {
	if s.word.Load()&recheck == 0 {
		return false
	}
	return s.word.And(^uint64(recheck))&recheck != 0
}

// yield is the fast path of tryYield, for an operation without recheck and without an outcome.
// If it returns false, the caller must call tryYield.
func (s *state) yield(gen uint64) bool {
	return s.word.CompareAndSwap(gen<<genShift|running, gen<<genShift)
}

// tryYield gives up the ownership after a check. If o is not 0, an outcome is decided, and the
// caller ends the operation. If again is set, the caller must check once more. Otherwise the
// caller does not own the operation any more.
func (s *state) tryYield() (o Outcome, again bool) {
	for {
		w := s.word.Load()
		if o := outcomeOf(w); o != 0 {
			return o, false
		}
		next, again := w&^(running|recheck), w&recheck != 0
		if again {
			next |= running
		}
		if s.word.CompareAndSwap(w, next) {
			return 0, again
		}
	}
}
